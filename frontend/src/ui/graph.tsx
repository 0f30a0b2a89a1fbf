/** Steps from the sources at the top to the outputs at the bottom, placed by dagre; edges can be chosen. */
import { graphlib, layout } from "@dagrejs/dagre";
import { useEffect, useMemo, useState } from "preact/hooks";

import * as format from "../format";
import type { Figure, JobGraph, Step, StepKind } from "../jobgraph";

const WIDTH = 250;
/** Beside a single column: where lines run that pass over steps. */
const GUTTER = 66;
const narrow = window.matchMedia("(max-width: 760px)");
const KINDS: Record<StepKind, string> = { source: "source", stateless: "step", stateful: "stateful step", results: "results", late: "late rows" };

interface Placed {
  readonly width: number;
  readonly height: number;
  readonly steps: ReadonlyMap<string, { x: number; y: number; height: number }>;
  readonly edges: ReadonlyMap<string, readonly { x: number; y: number }[]>;
}

export function Graph(props: { graph: JobGraph; chosen: string | null; now: number; choose: (edge: string) => void }) {
  const { graph, chosen, now, choose } = props;
  const shape = JSON.stringify([graph.steps.map((step) => [step.id, heightOf(step)]), graph.edges.map((edge) => [edge.source, edge.target])]);
  const [column, setColumn] = useState(narrow.matches);
  useEffect(() => {
    const change = (): void => { setColumn(narrow.matches); };
    narrow.addEventListener("change", change);
    return () => { narrow.removeEventListener("change", change); };
  }, []);
  const placed = useMemo(() => (column ? placeInColumn(graph) : place(graph)), [shape, column]);
  return (
    <div class="graph-scroll">
      <div class="graph" style={{ width: `${placed.width}px`, height: `${placed.height}px` }}>
        <svg width={placed.width} height={placed.height} viewBox={`0 0 ${placed.width} ${placed.height}`} aria-hidden="true">
          <defs>
            <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">
              <path d="M0 0.5 7.5 4 0 7.5z" />
            </marker>
          </defs>
          {graph.edges.map((edge) => {
            const line = pathOf(placed.edges.get(edge.id) ?? []);
            return (
              <g key={edge.id} class="edge" data-edge-line={edge.id} data-chosen={edge.id === chosen} onClick={() => { choose(edge.id); }}>
                <path class="edge-reach" d={line} />
                <path class="edge-line" d={line} marker-end="url(#arrow)" />
              </g>
            );
          })}
        </svg>
        {graph.steps.map((step) => {
          const at = placed.steps.get(step.id);
          return at === undefined ? null : (
            <StepBox key={step.id} step={step} now={now} at={at} />
          );
        })}
        {graph.edges.map((edge) => {
          const at = middle(placed.edges.get(edge.id) ?? []);
          return (
            <button
              key={edge.id}
              type="button"
              class="edge-button"
              data-edge={edge.id}
              data-sampled={edge.sampled}
              aria-pressed={edge.id === chosen}
              title="Show rows"
              style={{ left: `${at.x}px`, top: `${at.y}px` }}
              onClick={() => { choose(edge.id); }}
            >
              {edge.rate === null ? "rows" : `${format.number(edge.rate)}/s`}
              <span class="unseen"> from {titleOf(graph, edge.source)} to {titleOf(graph, edge.target)}</span>
            </button>
          );
        })}
      </div>
    </div>
  );
}

const titleOf = (graph: JobGraph, id: string): string => graph.steps.find((step) => step.id === id)?.title ?? id;

function StepBox({ step, now, at }: { step: Step; now: number; at: { x: number; y: number; height: number } }) {
  return (
    <article
      class="step"
      data-step={step.id}
      data-kind={step.kind}
      style={{ left: `${at.x - WIDTH / 2}px`, top: `${at.y - at.height / 2}px`, width: `${WIDTH}px`, height: `${at.height}px` }}
    >
      <span class="step-kind">{KINDS[step.kind]}</span>
      <h3 title={step.title}>{step.title}</h3>
      {step.detail.map((line) => <p key={line} title={line}>{line}</p>)}
      {step.figures.length > 0 && (
        <dl>
          {step.figures.map((figure) => (
            <div key={figure.name} data-figure={figure.name} title={figure.of === "query" ? "of the whole query, which all its jobs and steps share" : undefined}>
              <dt>{figure.name}{figure.of === "query" && <small> (query)</small>}</dt>
              <dd>{figureText(figure, now)}</dd>
            </div>
          ))}
        </dl>
      )}
    </article>
  );
}

export function figureText({ value, unit }: Figure, now: number): string {
  if (value === null) return "not known";
  if (unit === "ms") return format.duration(value);
  if (unit === "bytes") return format.bytes(value);
  if (unit === "time") return format.time(value, now);
  return unit === "per_second" ? `${format.number(value)}/s` : format.number(value);
}

/** In step with the heights in board.css. */
const heightOf = (step: Step): number => 52 + 18 * step.detail.length + (step.figures.length > 0 ? 8 + 19 * step.figures.length : 0);

export function place(graph: JobGraph): Placed {
  const drawn = new graphlib.Graph({ multigraph: true });
  drawn.setGraph({ rankdir: "TB", nodesep: 28, ranksep: 44, marginx: 4, marginy: 4 });
  drawn.setDefaultEdgeLabel(() => ({}));
  for (const step of graph.steps) drawn.setNode(step.id, { width: WIDTH, height: heightOf(step) });
  for (const edge of graph.edges) drawn.setEdge(edge.source, edge.target, {}, edge.id);
  layout(drawn);
  const size = drawn.graph() as { width?: number; height?: number };
  const steps = graph.steps.map(({ id }) => [id, drawn.node(id) as { x: number; y: number; height: number }] as const);
  const edges = graph.edges.map(({ id, source, target }) => {
    const { points } = drawn.edge(source, target, id) as { points?: { x: number; y: number }[] };
    return [id, points ?? []] as const;
  });
  return { width: Math.ceil(size.width ?? WIDTH), height: Math.ceil(size.height ?? 0), steps: new Map(steps), edges: new Map(edges) };
}

/** One step below the other, for narrow screens; a line that passes over steps runs beside them. */
export function placeInColumn(graph: JobGraph): Placed {
  const steps = new Map<string, { x: number; y: number; height: number }>();
  let top = 4;
  for (const step of graph.steps) {
    const height = heightOf(step);
    steps.set(step.id, { x: WIDTH / 2 + 4, y: top + height / 2, height });
    top += height + 44;
  }
  const order = graph.steps.map((step) => step.id);
  const edges = graph.edges.map(({ id, source, target }): [string, { x: number; y: number }[]] => {
    const [from, to] = [steps.get(source), steps.get(target)];
    if (from === undefined || to === undefined) return [id, []];
    const [begin, end] = [{ x: from.x, y: from.y + from.height / 2 }, { x: to.x, y: to.y - to.height / 2 }];
    if (order.indexOf(target) === order.indexOf(source) + 1) return [id, [begin, end]];
    const side = WIDTH + 4;
    return [id, [{ x: side, y: from.y }, { x: side + GUTTER / 2, y: (from.y + to.y) / 2 }, { x: side, y: to.y }]];
  });
  return { width: WIDTH + GUTTER + 8, height: top - 40, steps, edges: new Map(edges) };
}

/** A smooth line through the points: straight where they are in line. */
function pathOf(points: readonly { x: number; y: number }[]): string {
  const [first, ...others] = points;
  if (first === undefined) return "";
  let line = `M${first.x} ${first.y}`;
  let before = first;
  for (const point of others) {
    const half = (before.y + point.y) / 2;
    line += `C${before.x} ${half} ${point.x} ${half} ${point.x} ${point.y}`;
    before = point;
  }
  return line;
}

function middle(points: readonly { x: number; y: number }[]): { x: number; y: number } {
  const at = (points.length - 1) / 2;
  const [one, two] = [points[Math.floor(at)], points[Math.ceil(at)]];
  if (one === undefined || two === undefined) return { x: 0, y: 0 };
  return { x: (one.x + two.x) / 2, y: (one.y + two.y) / 2 };
}
