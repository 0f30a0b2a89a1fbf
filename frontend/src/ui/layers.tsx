/** The list of layers: one per job, switched on and off, each with its legend, its choices and its state. */
import { useId } from "preact/hooks";

import { quantity } from "../format";
import type { MapView } from "../map/mapview";
import { type Declaration, isPlaced } from "../protocol";
import type { App, Layer } from "../state/app";
import { dependsOn } from "../state/depends";
import { type Entry, numberOf } from "../state/results";
import { StateBadge } from "./badge";
import { nameOf } from "./details";
import { Legend } from "./legend";

export function Layers({ app, view }: { app: App; view: MapView | null }) {
  const declared = app.declared.value;
  if (declared === null) return <p class="hint">Asking the server what there is to see …</p>;
  if (declared.length === 0) return <p class="hint">The server knows no job. Write one and start it: headrace new, headrace dev.</p>;
  const placed = declared.filter((each) => isPlaced(each.kind));
  const others = declared.filter((each) => !isPlaced(each.kind));
  return (
    <div class="layers">
      <LayerList title="On the map" declarations={placed} app={app} view={view} />
      <LayerList title="Cards beside it" declarations={others} app={app} view={view} />
    </div>
  );
}

function LayerList(props: { title: string; declarations: readonly Declaration[]; app: App; view: MapView | null }) {
  if (props.declarations.length === 0) return null;
  return (
    <section>
      <h2>{props.title}</h2>
      <ul>
        {props.declarations.map((declaration) => (
          <LayerRow key={declaration.job} declaration={declaration} app={props.app} view={props.view} />
        ))}
      </ul>
    </section>
  );
}

function LayerRow({ declaration, app, view }: { declaration: Declaration; app: App; view: MapView | null }) {
  const { job, title, description } = declaration;
  const id = useId();
  const layer = app.layers.value.find((each) => each.declaration.job === job);
  const status = app.state.value?.jobs.get(job);
  return (
    <li class="layer" data-job={job} data-on={layer !== undefined}>
      <div class="layer-head">
        <label class="switch" title={description}>
          <input
            type="checkbox"
            role="switch"
            checked={layer !== undefined}
            aria-describedby={`${id}-state`}
            onChange={(event) => {
              app.choose(job, { on: event.currentTarget.checked });
            }}
          />
          <span class="switch-track" aria-hidden="true" />
          <span class="layer-title">{title}</span>
        </label>
        <StateBadge id={`${id}-state`} status={status} />
      </div>
      {layer !== undefined && (
        <div class="layer-body">
          <Choices app={app} layer={layer} view={view} />
          <Legend layer={layer} domain={view?.domains.value.get(job)} />
          {status !== undefined && status.state !== "live" && status.text !== "" && <p class="layer-trouble">{status.text}</p>}
          {layer.shown !== null && isPlaced(declaration.kind) && <Busiest app={app} layer={layer} view={view} />}
        </div>
      )}
    </li>
  );
}

function Choices({ app, layer, view }: { app: App; layer: Layer; view: MapView | null }) {
  const { declaration, shown, choice } = layer;
  const { job, kind, values, title } = declaration;
  const name = useId();
  const several = values.length > 1 && isPlaced(kind);
  if (!several && kind !== "cells") return null;
  return (
    <div class="choices">
      {several && (
        <fieldset class="segments">
          <legend class="unseen">Value of {title}</legend>
          {values.map(({ column, label }) => (
            <label key={column}>
              <input
                type="radio"
                name={name}
                checked={shown?.column === column}
                onChange={() => {
                  app.choose(job, { value: column });
                }}
              />
              <span>{label}</span>
            </label>
          ))}
        </fieldset>
      )}
      {kind === "cells" && (
        <label class="check">
          <input
            type="checkbox"
            checked={choice.high}
            onChange={(event) => {
              const high = event.currentTarget.checked;
              app.choose(job, { high });
              if (high) view?.tilt(50);
              else if (!app.layers.value.some((each) => each.choice.high)) view?.tilt(0);
            }}
          />
          <span>as height</span>
        </label>
      )}
    </div>
  );
}

const MOST = 6;

/** The entries with the greatest values: a way to them without a pointer. */
function Busiest({ app, layer, view }: { app: App; layer: Layer; view: MapView | null }) {
  const { declaration, results, shown } = layer;
  dependsOn(app.revision);
  const top = topOf(results.entries(), shown?.column ?? "");
  if (top.length === 0) return null;
  const now = app.clock.now();
  return (
    <details class="busiest">
      <summary>Greatest values</summary>
      <ol>
        {top.map(({ entry, value }) => (
          <li key={entry.key}>
            <button
              type="button"
              data-key={entry.key}
              title={entry.key}
              onClick={() => {
                app.select({ job: declaration.job, key: entry.key });
                view?.fly(entry);
              }}
            >
              <span>{nameOf(declaration, entry, now, app.places.value)}</span>
              <b>{quantity(value, shown?.unit ?? "")}</b>
            </button>
          </li>
        ))}
      </ol>
    </details>
  );
}

export function topOf(entries: Iterable<Entry>, column: string): { entry: Entry; value: number }[] {
  const top: { entry: Entry; value: number }[] = [];
  for (const entry of entries) {
    const value = numberOf(entry, column);
    if (value === null) continue;
    if (top.length === MOST && value <= (top[MOST - 1]?.value ?? 0)) continue;
    const at = top.findIndex((each) => each.value < value);
    top.splice(at < 0 ? top.length : at, 0, { entry, value });
    if (top.length > MOST) top.pop();
  }
  return top;
}
