/** The newest rows on an edge of a job's graph, asked for again and again until they are held. */
import { effect, type Signal, signal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";

import { ApiError, ask } from "../api";
import * as format from "../format";
import { type JobGraph, readSample, type Sample } from "../jobgraph";
import type { App } from "../state/app";

/** Seconds between two looks. */
const EVERY = 2;

type Found = { sample: Sample } | { why: string } | null;

export function SamplePanel({ app, run, graph }: { app: App; run: string; graph: JobGraph | null }) {
  const edge = app.edge.value;
  if (edge === null) {
    return graph === null || graph.edges.length === 0 ? null : (
      <p class="hint sample-hint">Choose an arrow between two steps to see the rows on it.</p>
    );
  }
  return <LiveSample app={app} run={run} edge={edge} graph={graph} />;
}

function LiveSample({ app, run, edge, graph }: { app: App; run: string; edge: string; graph: JobGraph | null }) {
  const found = useMemo(() => signal<Found>(null), []);
  const held = useMemo(() => signal(false), []);
  useEffect(() => keepSample(app, run, edge, found, held), []);
  const panel = useRef<HTMLElement>(null);
  // Below the graph, on a small screen, nobody would see that something has come.
  useEffect(() => { panel.current?.scrollIntoView({ block: "nearest" }); }, [found.value === null]);
  const { value } = found;
  const line = graph?.edges.find((each) => each.id === edge);
  const title = (id: string | undefined): string => graph?.steps.find((step) => step.id === id)?.title ?? id ?? "";
  return (
    <section class="panel sample" ref={panel} data-sample={edge} aria-label="Rows on the edge">
      <header>
        <h2>Rows</h2>
        {line !== undefined && <span class="card-note">{title(line.source)} → {title(line.target)}</span>}
        {value !== null && "sample" in value && value.sample.columns.length > 0 && (
          <button type="button" class="text-button" aria-pressed={held.value} onClick={() => { held.value = !held.value; }}>
            {held.value ? "Go on" : "Hold"}
          </button>
        )}
        <button type="button" class="icon-button" aria-label="Close the rows" onClick={() => { app.edge.value = null; }}>✕</button>
      </header>
      {value === null && <p class="hint">Reading …</p>}
      {value !== null && "why" in value && <p class="layer-trouble">{value.why}</p>}
      {value !== null && "sample" in value && <Rows sample={value.sample} now={app.clock.now()} />}
    </section>
  );
}

function Rows({ sample, now }: { sample: Sample; now: number }) {
  const { columns, rows, text } = sample;
  return (
    <>
      <p class="hint" data-sample-text>{text}</p>
      {rows.length > 0 && (
        <div class="scroll" tabIndex={0} role="region" aria-label="Rows">
          <table>
            <thead>
              <tr>{columns.map((column) => <th key={column.name} scope="col" data-type={column.type}>{format.words(column.name)}</th>)}</tr>
            </thead>
            <tbody>
              {rows.map((row, at) => (
                <tr key={at}>
                  {columns.map((column, place) => (
                    <td key={column.name} data-type={column.type}>{format.value(row[place] ?? null, column.type, now)}</td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}

function keepSample(app: App, run: string, edge: string, found: Signal<Found>, held: Signal<boolean>): () => void {
  const stop = new AbortController();
  let [due, asking] = [0, false];
  const look = async (): Promise<void> => {
    asking = true;
    try {
      const answer = await ask(`api/jobs/${encodeURIComponent(run)}/sample?edge=${encodeURIComponent(edge)}`, stop.signal);
      if (!held.peek() || found.peek() === null) found.value = { sample: readSample(answer) };
    } catch (error) {
      if (stop.signal.aborted) return;
      if (!(error instanceof ApiError)) throw error;
      if (found.peek() === null || error.status !== null) found.value = { why: error.message };
    } finally {
      asking = false;
    }
  };
  const undo = effect(() => {
    const second = app.second.value;
    if (held.value || second < due || asking) return;
    if (app.link_.value.state !== "connected" && found.peek() !== null) return;
    due = second + EVERY;
    void look();
  });
  return () => {
    undo();
    stop.abort();
  };
}
