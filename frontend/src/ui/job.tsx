/** The page of one job: its steps as a graph with their figures, the rows on an edge, and its results. */
import { effect, type Signal, signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";

import { ApiError, ask } from "../api";
import * as format from "../format";
import { type JobGraph, readGraph } from "../jobgraph";
import type { Declaration, Query } from "../protocol";
import type { App } from "../state/app";
import { StateBadge } from "./badge";
import { JobViews } from "./board";
import { SelectionCard } from "./dock";
import { Graph } from "./graph";
import { Notices } from "./notices";
import { SamplePanel } from "./sample";

/** Seconds between two looks at the figures. */
const EVERY = 2;

type Found = { graph: JobGraph } | { why: string } | null;

export function JobPage({ app }: { app: App }) {
  const declared = app.declared.value;
  const run = app.jobShown.value;
  const main = declared?.find((each) => each.job === run) ?? declared?.find((each) => each.run === run);
  return (
    <main class="job-page" id="content" tabIndex={-1} data-stale={app.link_.value.state !== "connected"}>
      <Notices app={app} />
      {declared === null ? (
        <p class="hint empty">Asking the server what there is to see …</p>
      ) : main === undefined || run === null ? (
        <>
          <h1>Job</h1>
          <p class="hint empty">{run === null ? "The server knows no job." : `There is no job ${run} here.`}</p>
          <Jobs app={app} run={run} />
        </>
      ) : (
        <OneJob key={run} app={app} run={run} main={main} outputs={declared.filter((each) => each.run === run)} />
      )}
      {app.selection.value !== null && <aside class="drawer" aria-label="Details"><SelectionCard app={app} view={null} /></aside>}
    </main>
  );
}

function OneJob({ app, run, main, outputs }: { app: App; run: string; main: Declaration; outputs: readonly Declaration[] }) {
  const found = useMemo(() => signal<Found>(null), []);
  useEffect(() => keepGraph(app, run, found), []);
  const { value } = found;
  const query = app.work.value?.queries.find((each) => each.jobs.includes(run));
  return (
    <>
      <header class="job-head">
        <h1>{run}</h1>
        <StateBadge status={app.state.value?.jobs.get(main.job)} />
        <Jobs app={app} run={run} />
        {main.description !== "" && <p>{main.description}</p>}
        <Facts main={main} query={query} now={app.clock.now()} />
      </header>
      <div class="job-body">
        <section class="panel steps" aria-label="Steps">
          <h2>Steps</h2>
          {value === null && <p class="hint">Asking for the steps …</p>}
          {value !== null && "why" in value && <p class="layer-trouble">{value.why}</p>}
          {value !== null && "graph" in value && (
            <Graph graph={value.graph} chosen={app.edge.value} now={app.clock.now()} choose={(edge) => { app.edge.value = app.edge.value === edge ? null : edge; }} />
          )}
        </section>
        <div class="job-side">
          <SamplePanel key={app.edge.value} app={app} run={run} graph={value !== null && "graph" in value ? value.graph : null} />
          {outputs.map((each) => (
            <section key={each.job} class="job" data-job={each.job} aria-label={`Results of ${each.title}`}>
              <header><h2>{outputs.length === 1 ? "Results" : each.title}</h2></header>
              <JobViews app={app} declaration={each} />
            </section>
          ))}
        </div>
      </div>
    </>
  );
}

function Facts({ main, query, now }: { main: Declaration; query: Query | undefined; now: number }) {
  const facts: [string, string][] = [["results", main.topic]];
  if (main.windows !== "") facts.push(["windows", main.windows]);
  if (main.keys.length > 0) facts.push(["key", main.keys.join(", ")]);
  facts.push(["query", query === undefined ? "not heard of" : `${query.query}, ${query.stale ? `last heard ${format.age(query.heard, now)}` : query.state}`]);
  if (query !== undefined && query.batchMsP50 !== null) facts.push(["batch", `${format.duration(query.batchMsP50)} (p50), ${format.duration(query.batchMsP99)} (p99)`]);
  return (
    <dl class="facts">
      {facts.map(([name, text]) => <div key={name}><dt>{name}</dt><dd>{text}</dd></div>)}
    </dl>
  );
}

/** The way to the other jobs. */
function Jobs({ app, run }: { app: App; run: string | null }) {
  const runs = [...new Set((app.declared.value ?? []).map((each) => each.run))];
  if (runs.length < 2 && run !== null && runs.includes(run)) return null;
  return (
    <label class="job-choice">
      <span class="unseen">Job</span>
      <select value={run ?? ""} onChange={(event) => { app.open("job", event.currentTarget.value); }}>
        {run !== null && !runs.includes(run) && <option value={run}>{run}</option>}
        {runs.map((each) => <option key={each} value={each}>{each}</option>)}
      </select>
    </label>
  );
}

/** Ask for the graph with its figures, again and again while the page is seen. */
function keepGraph(app: App, run: string, found: Signal<Found>): () => void {
  const stop = new AbortController();
  let [due, asking] = [0, false];
  const look = async (): Promise<void> => {
    asking = true;
    try {
      found.value = { graph: readGraph(await ask(`api/jobs/${encodeURIComponent(run)}/graph`, stop.signal)) };
    } catch (error) {
      if (stop.signal.aborted) return;
      if (!(error instanceof ApiError)) throw error;
      // While the server is away what was seen stays: a notice says so.
      if (found.peek() === null || error.status !== null) found.value = { why: error.message };
    } finally {
      asking = false;
    }
  };
  const undo = effect(() => {
    const second = app.second.value;
    if (app.link_.value.state !== "connected" && found.peek() !== null) return;
    if (second < due || asking) return;
    due = second + EVERY;
    void look();
  });
  return () => {
    undo();
    stop.abort();
  };
}
