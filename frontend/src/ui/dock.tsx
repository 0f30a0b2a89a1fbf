/** Cards beside the map: what is selected with its history, lists of what happened, tables and charts of jobs without a place. */
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";

import * as format from "../format";
import type { MapView } from "../map/mapview";
import { NOWHERE_KNOWN } from "../map/places";
import type { Declaration, HistoryPoint, Shown } from "../protocol";
import type { App, Layer } from "../state/app";
import { dependsOn } from "../state/depends";
import { History } from "../state/history";
import { type Entry, numberOf, valueOf } from "../state/results";
import { Chart, type Curve } from "./chart";
import { Lines, linesOf, nameOf, typeOf } from "./details";

/** The layers that bring a card with them. */
const withCard = (layer: Layer): boolean => ["points", "table", "chart"].includes(layer.declaration.kind);

export function cardCount(app: App): number {
  return app.layers.value.filter(withCard).length + (app.selection.value === null ? 0 : 1);
}

export function Dock({ app, view }: { app: App; view: MapView | null }) {
  const layers = app.layers.value.filter(withCard);
  return (
    <div class="dock-cards">
      <SelectionCard app={app} view={view} />
      {layers.map((layer) => {
        const { job, kind } = layer.declaration;
        if (kind === "points") return <EventCard key={job} app={app} layer={layer} view={view} />;
        if (kind === "chart") return <ChartCard key={job} app={app} layer={layer} />;
        return <TableCard key={job} app={app} layer={layer} />;
      })}
    </div>
  );
}

function Card(props: { title: string; note?: string; job?: string; onClose?: () => void; children: ComponentChildren }) {
  return (
    <section class="card" aria-label={props.title} data-card={props.job ?? "selection"}>
      <header>
        <h2>{props.title}</h2>
        {props.note !== undefined && <span class="card-note">{props.note}</span>}
        {props.onClose !== undefined && (
          <button type="button" class="icon-button" aria-label={`Close ${props.title}`} onClick={props.onClose}>
            ✕
          </button>
        )}
      </header>
      {props.children}
    </section>
  );
}

// ---------------------------------------------------------------- what is selected

function SelectionCard({ app, view }: { app: App; view: MapView | null }) {
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
      note={entry === undefined ? entryKey : nameOf(declaration, entry, app.clock.now(), app.places.value)}
      onClose={() => {
        app.select(null);
      }}
    >
      {entry === undefined ? (
        <p class="hint">Nothing is shown here at present: its last value has expired.</p>
      ) : (
        <Lines lines={linesOf(declaration, entry, app.clock.now(), chosen)} />
      )}
      {entry !== undefined && view !== null && (
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

function HistoryChart({ history, declaration }: { history: History; declaration: Declaration }) {
  const state = history.state.value;
  const points = state.state === "ready" ? state.points : null;
  const at = useMemo(() => (points ?? []).map((point) => point.windowEnd ?? point.eventTime), [points]);
  const curves = useMemo(
    () => declaration.values.map((shown): Curve => ({ ...curveName(shown), values: (points ?? []).map((point) => asNumber(point.values.get(shown.column))) })),
    [points, declaration],
  );
  if (declaration.values.length === 0) return null;
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

/** The texts of an event first, then its first number: "line 6 · 40/456 · 12.4 m/s". */
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
    parts.push(type === "text" ? (column === "line" ? `line ${text}` : text) : `${format.words(column)} ${text}`);
  }
  return parts.slice(0, 3).join(" · ") || entry.key;
}

// ---------------------------------------------------------------- jobs without a place

const MOST_ROWS = 200;

function TableCard({ app, layer }: { app: App; layer: Layer }) {
  const { declaration, results } = layer;
  dependsOn(app.revision, app.second);
  const now = app.clock.now();
  const columns = (declaration.labels.length > 0 ? declaration.labels : declaration.columns.map((column) => column.name)).slice(0, 8);
  const rows = newestFirst(results.entries()).slice(0, MOST_ROWS);
  return (
    <Card title={declaration.title} job={declaration.job} note={`${format.number(results.size)} rows`}>
      {rows.length === 0 ? (
        <p class="hint">No results yet.</p>
      ) : (
        <div class="scroll" tabIndex={0} role="region" aria-label={`Table of ${declaration.title}`}>
          <table>
            <thead>
              <tr>
                {columns.map((column) => (
                  <th key={column} scope="col" data-type={typeOf(declaration, column)}>{format.words(column)}</th>
                ))}
                <th scope="col">age</th>
              </tr>
            </thead>
            <tbody>
              {rows.map((entry) => (
                <tr key={entry.key} data-key={entry.key}>
                  {columns.map((column) => (
                    <td key={column} data-type={typeOf(declaration, column)}>
                      {format.value(valueOf(entry, column), typeOf(declaration, column), now)}
                    </td>
                  ))}
                  <td>{format.age(entry.times.published ?? entry.times.eventTime, now)}</td>
                </tr>
              ))}
            </tbody>
          </table>
          {results.size > MOST_ROWS && <p class="hint">The newest {MOST_ROWS} of {format.number(results.size)} rows.</p>}
        </div>
      )}
    </Card>
  );
}

const MOST_CURVES = 4;
const MOST_POINTS = 720;

/** Curves of the last hour, one per key: what the server has kept, then what arrives. */
function ChartCard({ app, layer }: { app: App; layer: Layer }) {
  const { declaration, results, shown } = layer;
  const memory = useMemo(() => new ChartMemory(), [declaration.job, shown?.column]);
  const [, setLoaded] = useState(0);
  dependsOn(app.revision);
  useEffect(() => {
    if (shown === null) return undefined;
    const asked = [...results.entries()].slice(0, MOST_CURVES).map((entry) => {
      const history = new History(declaration.job, entry.key);
      void history.load().then(() => {
        const state = history.state.peek();
        if (state.state !== "ready") return;
        memory.load(nameOf(declaration, entry, app.clock.now(), NOWHERE_KNOWN), state.points, shown.column);
        setLoaded((before) => before + 1);
      });
      return history;
    });
    return () => {
      for (const each of asked) each.close();
    };
  }, [memory, results.size > 0]);
  if (shown === null) return null;
  const { at, curves } = memory.with(results.entries(), results.revision, declaration, shown, app.clock.now());
  return (
    <Card title={declaration.title} job={declaration.job} note={results.size > MOST_CURVES ? `${MOST_CURVES} of ${results.size}` : ""}>
      {at.length === 0 ? <p class="hint">No results yet.</p> : <Chart at={at} curves={curves} height={170} label={declaration.title} />}
    </Card>
  );
}

export class ChartMemory {
  private times: number[] = [];
  private readonly rows = new Map<string, Map<number, number>>();
  private seen = -1;
  private made: { at: number[]; curves: Curve[] } = { at: [], curves: [] };

  /** Take over what was before; what has arrived meanwhile stays. */
  load(name: string, points: readonly HistoryPoint[], column: string): void {
    const row = this.rows.get(name) ?? new Map<number, number>();
    this.rows.set(name, row);
    for (const point of points) {
      const at = point.windowEnd ?? point.eventTime;
      const value = point.values.get(column);
      if (typeof value !== "number" || row.has(at)) continue;
      row.set(at, value);
      if (!this.times.includes(at)) this.times.push(at);
    }
    this.seen = -1;
  }

  with(entries: Iterable<Entry>, revision: number, declaration: Declaration, shown: Shown, now: number): { at: number[]; curves: Curve[] } {
    if (revision === this.seen) return this.made;
    this.seen = revision;
    const times = new Set(this.times);
    for (const entry of entries) {
      const at = entry.times.windowEnd ?? entry.times.eventTime;
      const value = numberOf(entry, shown.column);
      if (at === null || value === null) continue;
      const name = nameOf(declaration, entry, now, NOWHERE_KNOWN);
      const row = this.rows.get(name) ?? new Map<number, number>();
      this.rows.set(name, row.set(at, value));
      times.add(at);
    }
    this.times = [...times].sort((one, two) => one - two).slice(-MOST_POINTS);
    const oldest = this.times[0] ?? 0;
    for (const [name, row] of this.rows) {
      for (const at of row.keys()) if (at < oldest) row.delete(at);
      if (row.size === 0) this.rows.delete(name);
    }
    const names = [...this.rows.keys()].sort().slice(0, MOST_CURVES);
    const curves = names.map((label) => ({ label, unit: shown.unit, values: this.times.map((at) => this.rows.get(label)?.get(at) ?? null) }));
    this.made = { at: this.times, curves };
    return this.made;
  }
}
