/** Cards beside the map: what is selected with its history, lists of what happened, and the views that have no place on it. */
import { useEffect, useMemo } from "preact/hooks";

import * as format from "../format";
import type { MapView } from "../map/mapview";
import { cardViews, type Declaration, isOnMap, type Shown } from "../protocol";
import type { App, Layer } from "../state/app";
import { dependsOn } from "../state/depends";
import { History } from "../state/history";
import { type Entry, valueOf } from "../state/results";
import { Card } from "./card";
import { Chart, type Curve } from "./chart";
import { keyName, Lines, linesOf, nameOf, typeOf } from "./details";
import { ViewCard } from "./views/view";

/** The layers that bring cards with them. */
const withCard = ({ declaration }: Layer): boolean => declaration.kind === "points" || cardViews(declaration).length > 0;

export function cardCount(app: App): number {
  return app.layers.value.filter(withCard).length + (app.selection.value === null ? 0 : 1);
}

export function Dock({ app, view }: { app: App; view: MapView | null }) {
  const layers = app.layers.value.filter(withCard);
  return (
    <div class="dock-cards">
      <SelectionCard app={app} view={view} />
      {layers.map((layer) => (
        <LayerCards key={layer.declaration.job} app={app} layer={layer} view={view} />
      ))}
    </div>
  );
}

function LayerCards({ app, layer, view }: { app: App; layer: Layer; view: MapView | null }) {
  const { declaration, results } = layer;
  const views = cardViews(declaration);
  return (
    <>
      {declaration.kind === "points" && <EventCard app={app} layer={layer} view={view} />}
      {views.map((each, at) => (
        <ViewCard key={at} app={app} declaration={declaration} view={each} results={results} alone={declaration.views.length === 1} />
      ))}
    </>
  );
}

// ---------------------------------------------------------------- what is selected

export function SelectionCard({ app, view }: { app: App; view: MapView | null }) {
  const selection = app.selection.value;
  const declaration = selection === null ? undefined : app.declaration(selection.job);
  if (selection === null || declaration === undefined) return null;
  return <SelectedEntry key={`${selection.job}/${selection.key}`} app={app} view={view} declaration={declaration} entryKey={selection.key} />;
}

function SelectedEntry(props: { app: App; view: MapView | null; declaration: Declaration; entryKey: string }) {
  const { app, declaration, entryKey, view } = props;
  dependsOn(app.revision, app.second);
  const entry = app.resultsOf(declaration.job).get(entryKey);
  const history = useMemo(() => new History(declaration.job, entryKey), [declaration.job, entryKey]);
  useEffect(() => {
    void history.load();
    return () => {
      history.close();
    };
  }, [history]);
  useEffect(() => {
    if (entry !== undefined) history.extend(entry);
  }, [history, entry]);
  const chosen = app.layers.value.find((each) => each.declaration.job === declaration.job)?.shown?.column ?? null;
  return (
    <Card
      title={declaration.title}
      note={entry === undefined ? entryKey : titleOf(app, declaration, entry)}
      onClose={() => {
        app.select(null);
      }}
    >
      {entry === undefined ? (
        <p class="hint">Nothing is shown here at present: its last value has expired.</p>
      ) : (
        <Lines lines={linesOf(declaration, entry, app.clock.now(), chosen)} />
      )}
      {entry !== undefined && view !== null && isOnMap(declaration) && (
        <button
          type="button"
          class="text-button"
          onClick={() => {
            view.fly(entry);
          }}
        >
          Show on the map
        </button>
      )}
      <HistoryChart history={history} declaration={declaration} />
    </Card>
  );
}

function titleOf(app: App, declaration: Declaration, entry: Entry): string {
  const now = app.clock.now();
  return isOnMap(declaration) ? nameOf(declaration, entry, now, app.places.value) : keyName(declaration, entry, now);
}

function HistoryChart({ history, declaration }: { history: History; declaration: Declaration }) {
  const state = history.state.value;
  const points = state.state === "ready" ? state.points : null;
  const at = useMemo(() => (points ?? []).map((point) => point.windowEnd ?? point.eventTime), [points]);
  const curves = useMemo(
    () => shownValues(declaration).map((shown): Curve => ({ ...curveName(shown), values: (points ?? []).map((point) => asNumber(point.values.get(shown.column))) })),
    [points, declaration],
  );
  if (curves.length === 0) return null;
  if (state.state === "loading") return <p class="hint">Asking for its history …</p>;
  if (state.state === "failed") return <p class="layer-trouble">{state.why}</p>;
  if (at.length === 0) return <p class="hint">No history has been kept of it yet.</p>;
  return (
    <>
      <h3>Last hour</h3>
      <Chart at={at} curves={curves} height={150} label={`History of ${declaration.title}`} />
    </>
  );
}

/** What has a history: the values of the views, or all numbers of a table. */
function shownValues({ views, columns, each }: Declaration): Shown[] {
  if (each) return [];
  const values = new Map(views.flatMap((view) => view.values).map((shown) => [shown.column, shown]));
  if (values.size > 0) return [...values.values()];
  return columns.filter(({ type }) => type === "number").map(({ name }) => ({ column: name, label: name, unit: "" }));
}

const curveName = ({ label, unit }: Shown): { label: string; unit: string } => ({ label, unit: unit === label ? "" : unit });

function asNumber(value: unknown): number | null {
  return typeof value === "number" ? value : null;
}

// ---------------------------------------------------------------- what happened

const MOST_EVENTS = 100;

function EventCard({ app, layer, view }: { app: App; layer: Layer; view: MapView | null }) {
  const { declaration, results } = layer;
  dependsOn(app.revision, app.second);
  const now = app.clock.now();
  const events = newestFirst(results.entries()).slice(0, MOST_EVENTS);
  return (
    <Card title={declaration.title} job={declaration.job} note={results.size === 0 ? "none at present" : format.number(results.size)}>
      {events.length === 0 ? (
        <p class="hint">Nothing has happened lately. What happens appears here and on the map{lifetime(declaration)}.</p>
      ) : (
        <ul class="events">
          {events.map((entry) => (
            <li key={entry.key}>
              <button
                type="button"
                data-key={entry.key}
                aria-pressed={app.selection.value?.key === entry.key}
                onClick={() => {
                  app.select({ job: declaration.job, key: entry.key });
                  view?.fly(entry);
                }}
              >
                <span class="event-time">{format.time(entry.times.eventTime, now)}</span>
                <span class="event-name">{eventName(declaration, entry, now)}</span>
                <span class="event-age">{format.age(entry.times.published ?? entry.times.eventTime, now)}</span>
              </button>
            </li>
          ))}
        </ul>
      )}
    </Card>
  );
}

const lifetime = ({ timeToLive }: Declaration): string => (timeToLive === null ? "" : ` for ${format.duration(timeToLive)}`);

export function newestFirst(entries: Iterable<Entry>): Entry[] {
  return [...entries].sort((one, two) => (two.times.eventTime ?? 0) - (one.times.eventTime ?? 0));
}

/** The texts of an event first, then its first number: "north · P-17 · weight 12.4". */
function eventName(declaration: Declaration, entry: Entry, now: number): string {
  const places = new Set([declaration.cell, declaration.target, declaration.latitude, declaration.longitude]);
  const columns = declaration.labels.length > 0 ? declaration.labels : declaration.columns.map((column) => column.name);
  const parts: string[] = [];
  for (const column of columns) {
    const type = typeOf(declaration, column);
    if (places.has(column) || type === "cell" || type === "time") continue;
    const text = format.value(valueOf(entry, column), type, now);
    if (text === format.UNKNOWN) continue;
    if (type !== "text" && parts.length > 2) continue;
    parts.push(type === "text" ? text : `${format.words(column)} ${text}`);
  }
  return parts.slice(0, 3).join(" · ") || entry.key;
}
