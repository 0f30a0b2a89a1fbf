/** One view of a job's results as a card: chosen by the kind that the job declares. */
import { useState } from "preact/hooks";

import * as format from "../../format";
import type { Declaration, JobView, Shown } from "../../protocol";
import type { App } from "../../state/app";
import { dependsOn } from "../../state/depends";
import type { Results } from "../../state/results";
import { Card } from "../card";
import { Bars } from "./bars";
import { Numbers } from "./numbers";
import { Series } from "./series";
import { Table } from "./table";

export interface ViewProps {
  readonly app: App;
  readonly declaration: Declaration;
  readonly view: JobView;
  readonly results: Results;
}

const NAMES: Record<string, string> = { bars: "greatest", series: "over time", chart: "over time", number: "now", table: "rows" };

export function ViewCard(props: ViewProps & { alone: boolean }) {
  const { app, declaration, view, results, alone } = props;
  dependsOn(app.revision);
  const [chosen, choose] = useState<string | null>(null);
  const shown = view.values.find((each) => each.column === chosen) ?? view.values[0] ?? null;
  const title = view.title !== "" ? view.title : alone ? declaration.title : titleOf(view, shown, declaration);
  return (
    <Card title={title} note={noteOf(props, shown)} job={declaration.job} kind={view.kind}>
      {view.values.length > 1 && view.kind !== "table" && (
        <ValueChoice values={view.values} shown={shown} title={title} choose={choose} />
      )}
      <Drawn {...props} shown={shown} />
      {results.size === 0 && view.kind !== "table" && <p class="hint empty">{emptyText(app, declaration)}</p>}
    </Card>
  );
}

function Drawn(props: ViewProps & { shown: Shown | null }) {
  const { view, shown } = props;
  if (view.kind === "table" || shown === null) return <Table {...props} />;
  // Another value is another picture: it remembers nothing of the one before.
  if (view.kind === "bars") return <Bars key={shown.column} {...props} shown={shown} />;
  if (view.kind === "number") return <Numbers key={shown.column} {...props} shown={shown} />;
  return <Series key={shown.column} {...props} shown={shown} />;
}

function ValueChoice(props: { values: readonly Shown[]; shown: Shown | null; title: string; choose: (column: string) => void }) {
  return (
    <div class="segments" role="group" aria-label={`Value of ${props.title}`}>
      {props.values.map(({ column, label }) => (
        <button key={column} type="button" aria-pressed={props.shown?.column === column} onClick={() => { props.choose(column); }}>{label}</button>
      ))}
    </div>
  );
}

/** What a view is called where a job has several: "scans: greatest", "scans: over time". */
function titleOf(view: JobView, shown: Shown | null, declaration: Declaration): string {
  const what = shown === null ? declaration.title : format.words(shown.label);
  return `${what}: ${NAMES[view.kind] ?? view.kind}`;
}

function noteOf({ view, results }: ViewProps, shown: Shown | null): string {
  if (view.kind === "table") return results.size === 1 ? "1 row" : `${format.number(results.size)} rows`;
  const unit = shown === null || shown.unit === shown.label ? "" : shown.unit;
  const limited = view.top !== null && results.size > view.top;
  return [limited ? `${view.top} of ${format.number(results.size)} keys` : "", unit].filter((each) => each !== "").join(" · ");
}

/** Why there is nothing: in the words of the server, where it has some. */
export function emptyText(app: App, declaration: Declaration): string {
  const status = app.state.value?.jobs.get(declaration.job);
  if (status !== undefined && status.text !== "") return status.text;
  return status?.state === "live" || status?.state === "silent" ? "No current values: the last ones have expired." : "No results yet.";
}
