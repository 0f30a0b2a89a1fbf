/** A job as a graph of steps with their figures, and the rows on one of its edges: `GET /api/jobs/{job}/graph` and `.../sample`. */
import type { Column, Value } from "./protocol";
import { type Fields, fields, list, numberOrNull, oneOf, text, textOrNull, texts } from "./reading";

export const STEP_KINDS = ["source", "stateless", "stateful", "results", "late"] as const;
export type StepKind = (typeof STEP_KINDS)[number];

export interface Figure {
  name: string;
  value: number | null;
  unit: "per_second" | "records" | "ms" | "bytes" | "rows" | "time";
  /** What the figure is of: this step, the job, or the whole query, which may run further jobs. */
  of: "step" | "job" | "query";
}

export interface Step {
  id: string;
  kind: StepKind;
  title: string;
  detail: string[];
  topic: string | null;
  figures: Figure[];
}

export interface Edge {
  id: string;
  source: string;
  target: string;
  /** Rows per second, where they are known. */
  rate: number | null;
  /** Whether rows of it can be shown. */
  sampled: boolean;
}

export interface JobGraph {
  job: string;
  query: string | null;
  steps: Step[];
  edges: Edge[];
}

export interface Sample {
  edge: string;
  /** What the rows are, or why there are none. */
  text: string;
  columns: Column[];
  rows: Value[][];
  at: number | null;
}

export function readGraph(message: unknown): JobGraph {
  const from = fields(message, "graph");
  return {
    job: text(from, "job"),
    query: textOrNull(from, "query"),
    steps: list(from["steps"] ?? [], "steps").map((each) => readStep(fields(each, "step"))),
    edges: list(from["edges"] ?? [], "edges").map((each) => {
      const edge = fields(each, "edge");
      return {
        id: text(edge, "id"), source: text(edge, "source"), target: text(edge, "target"), rate: numberOrNull(edge, "rate"),
        sampled: edge["sampled"] === true,
      };
    }),
  };
}

function readStep(from: Fields): Step {
  return {
    id: text(from, "id"),
    kind: oneOf(from["kind"], STEP_KINDS, "stateless"),
    title: text(from, "title", ""),
    detail: texts(from["detail"]),
    topic: textOrNull(from, "topic"),
    figures: list(from["figures"] ?? [], "figures").map((each) => {
      const figure = fields(each, "figure");
      return {
        name: text(figure, "name"),
        value: numberOrNull(figure, "value"),
        unit: oneOf(figure["unit"], ["per_second", "records", "ms", "bytes", "rows", "time"] as const, "records"),
        of: oneOf(figure["of"], ["step", "job", "query"] as const, "step"),
      };
    }),
  };
}

export function readSample(message: unknown): Sample {
  const from = fields(message, "sample");
  const columns = list(from["columns"] ?? [], "columns").map((each) => {
    const column = fields(each, "column");
    return { name: text(column, "name"), type: text(column, "type", "text") };
  });
  return {
    edge: text(from, "edge"),
    text: text(from, "text", ""),
    columns,
    rows: list(from["rows"] ?? [], "rows").map((row) => list(row, "row") as Value[]),
    at: numberOrNull(from, "at"),
  };
}
