/**
 * What the backend says, as types, and readers that turn a parsed message into one of them or refuse it.
 *
 * `docs/dashboard-protocol.md` describes the messages. A reader checks the shape once, at the door, so that the rest of the page
 * can rely on its types; what it does not know it leaves out, so that a newer backend can say more.
 */

import { type Fields, fields, isPair, list, number, numberOrNull, oneOf, ProtocolError, text, textOrNull, texts } from "./reading";

export { ProtocolError } from "./reading";

export const KINDS = ["cells", "arcs", "edges", "points", "table", "chart", "bars", "series", "number"] as const;
export type Kind = (typeof KINDS)[number];

const PLACED: ReadonlySet<Kind> = new Set(["cells", "arcs", "edges", "points"]);

/** The kinds that are drawn on the map; the others are cards on the board and beside the map. */
export const isPlaced = (kind: Kind): boolean => PLACED.has(kind);

export interface Shown {
  column: string;
  label: string;
  unit: string;
}

/** One way in which a job's results are shown. */
export interface JobView {
  kind: Kind;
  values: Shown[];
  labels: string[];
  /** How many keys it shows; null: all. */
  top: number | null;
  title: string;
}

export interface Column {
  name: string;
  type: string;
}

export interface Declaration {
  job: string;
  /** The job that computes it: the same, or the one whose further output it is. */
  run: string;
  title: string;
  description: string;
  topic: string;
  windows: string;
  step: number | null;
  kind: Kind;
  keys: string[];
  cell: string | null;
  target: string | null;
  latitude: string | null;
  longitude: string | null;
  values: Shown[];
  labels: string[];
  columns: Column[];
  scale: "sequential" | "diverging";
  domain: [number, number] | null;
  legend: string;
  timeToLive: number | null;
  each: boolean;
  /** Every way in which the results are shown; the first is that of `kind` and `values`. */
  views: JobView[];
}

/** The views that are cards: all but those on the map. */
export const cardViews = ({ views }: Declaration): JobView[] => views.filter((view) => !isPlaced(view.kind));

export const isOnMap = ({ kind }: Declaration): boolean => isPlaced(kind);

/** One value of an entry, as JSON has it. */
export type Value = string | number | boolean | null | Value[];

/** Entries that share their times, by column. */
export interface Group {
  windowStart: number | null;
  windowEnd: number | null;
  eventTime: number | null;
  expiresAt: number | null;
  published: number | null;
  key: string[];
  cell: (string | null)[] | null;
  target: (string | null)[] | null;
  latitude: (number | null)[] | null;
  longitude: (number | null)[] | null;
  values: Map<string, Value[]>;
}

export interface Snapshot {
  job: string;
  version: number;
  groups: Group[];
}

export interface Changes extends Snapshot {
  base: number;
  removed: string[];
}

export interface Hello {
  version: string;
  now: number;
  started: number;
}

export interface JobStatus {
  state: string;
  text: string;
  entries: number;
  newest: number | null;
  heard: number | null;
}

export interface Part {
  name: string;
  state: string;
  stale: boolean;
  refreshed: number | null;
}

export interface Status {
  broker: { state: string; since: number | null; text: string };
  jobs: Map<string, JobStatus>;
  parts: Part[];
}

export type Health = "ok" | "warning" | "error" | "unknown";

export interface Problem {
  severity: Health;
  stage: string;
  text: string;
}

export interface Stage {
  name: string;
  title: string;
  state: Health;
  text: string;
  rates: Map<string, number | null>;
  refreshed: number | null;
  stale: boolean;
}

export interface Query {
  query: string;
  jobs: string[];
  state: string;
  text: string;
  /** Jobs that failed and are left out, with the reason. */
  failed: Map<string, string>;
  batch: number | null;
  batchMs: number | null;
  batchMsP50: number | null;
  batchMsP99: number | null;
  restarts: number | null;
  started: number | null;
  stateRows: number | null;
  stateBytes: number | null;
  heard: number | null;
  stale: boolean;
}

export interface Watermark {
  job: string;
  watermark: number | null;
  lag: number | null;
}

export interface Partition {
  job: string;
  topic: string;
  partition: number;
  end: number | null;
  committed: number | null;
  backlog: number | null;
}

export interface Latency {
  job: string;
  stage: string;
  p50: number | null;
  p99: number | null;
  count: number | null;
}

/** The curves of the last hour; `at` first. */
export const SERIES = ["at", "events", "results", "late", "dead_letters", "backlog", "batch_ms"] as const;
export type SeriesName = (typeof SERIES)[number];
export type Point = Record<SeriesName, number | null>;

export interface Pipeline {
  now: number;
  problems: Problem[];
  stages: Stage[];
  queries: Query[];
  watermarks: Watermark[];
  partitions: Partition[];
  latency: Latency[];
  series: Point | null;
}

export interface Config {
  title: string;
  version: string;
  /** Without a middle, the map begins where the first results are. */
  map: { style: string | null; center: [number, number] | null; zoom: number };
}

export interface HistoryPoint {
  eventTime: number;
  windowEnd: number | null;
  values: Map<string, Value>;
}

export function readDeclarations(message: unknown): Declaration[] {
  return list(message, "declarations").map(readDeclaration);
}

export function readDeclaration(message: unknown): Declaration {
  const from = fields(message, "declaration");
  const job = text(from, "job");
  const domain = from["domain"];
  const first = readView(from);
  const views = list(from["views"] ?? [], "views").map((view) => readView(fields(view, "view")));
  return {
    job,
    run: text(from, "run", job) || job,
    title: text(from, "title", job) || job,
    description: text(from, "description", ""),
    topic: text(from, "topic", ""),
    windows: text(from, "windows", ""),
    step: numberOrNull(from, "step"),
    kind: first.kind,
    keys: texts(from["keys"]),
    cell: textOrNull(from, "cell"),
    target: textOrNull(from, "target"),
    latitude: textOrNull(from, "latitude"),
    longitude: textOrNull(from, "longitude"),
    values: first.values,
    labels: first.labels,
    columns: list(from["columns"] ?? [], "columns").map((each) => {
      const column = fields(each, "column");
      return { name: text(column, "name"), type: text(column, "type", "text") };
    }),
    scale: oneOf(from["scale"], ["sequential", "diverging"] as const, "sequential"),
    domain: isPair(domain) && domain[0] < domain[1] ? domain : null,
    legend: text(from, "legend", ""),
    timeToLive: numberOrNull(from, "time_to_live"),
    each: from["each"] === true,
    // A server that names no views has one per job.
    views: views.length > 0 ? views : [{ ...first, title: "" }],
  };
}

function readView(from: Fields): JobView {
  return {
    // A kind that this page does not know is still worth a table.
    kind: oneOf(from["kind"], KINDS, "table"),
    values: list(from["values"] ?? [], "values").map((each) => {
      const shown = fields(each, "value");
      const column = text(shown, "column");
      return { column, label: text(shown, "label", column) || column, unit: text(shown, "unit", "") };
    }),
    labels: texts(from["labels"]),
    top: numberOrNull(from, "top"),
    title: text(from, "title", ""),
  };
}

export function readSnapshot(message: unknown): Snapshot {
  const from = fields(message, "snapshot");
  return {
    job: text(from, "job"),
    version: number(from, "version"),
    groups: list(from["groups"] ?? [], "groups").map(readGroup),
  };
}

export function readChanges(message: unknown): Changes {
  const from = fields(message, "changes");
  return { ...readSnapshot(message), base: number(from, "base"), removed: texts(from["removed"]) };
}

function readGroup(message: unknown): Group {
  const from = fields(message, "group");
  const key = list(from["key"], "key").map(String);
  const column = (name: string): unknown[] | null => {
    const values = from[name];
    if (values === undefined || values === null) return null;
    return sameLength(list(values, name), key.length, name);
  };
  const values = new Map<string, Value[]>();
  for (const [name, cells] of Object.entries(fields(from["values"] ?? {}, "values"))) {
    values.set(name, sameLength(list(cells, name), key.length, name) as Value[]);
  }
  return {
    windowStart: numberOrNull(from, "window_start"),
    windowEnd: numberOrNull(from, "window_end"),
    eventTime: numberOrNull(from, "event_time"),
    expiresAt: numberOrNull(from, "expires_at"),
    published: numberOrNull(from, "published"),
    key,
    cell: column("cell") as (string | null)[] | null,
    target: column("target") as (string | null)[] | null,
    latitude: column("latitude") as (number | null)[] | null,
    longitude: column("longitude") as (number | null)[] | null,
    values,
  };
}

function sameLength(values: unknown[], length: number, name: string): unknown[] {
  if (values.length !== length) {
    throw new ProtocolError(`${name}: ${values.length} values for ${length} keys`);
  }
  return values;
}

export function readHello(message: unknown): Hello {
  const from = fields(message, "hello");
  return { version: text(from, "version", ""), now: number(from, "now"), started: numberOrNull(from, "started") ?? 0 };
}

export function readStatus(message: unknown): Status {
  const from = fields(message, "status");
  const broker = fields(from["broker"] ?? {}, "broker");
  const jobs = new Map<string, JobStatus>();
  for (const [job, value] of Object.entries(fields(from["jobs"] ?? {}, "jobs"))) {
    const each = fields(value, job);
    jobs.set(job, {
      state: text(each, "state", "waiting"),
      text: text(each, "text", ""),
      entries: numberOrNull(each, "entries") ?? 0,
      newest: numberOrNull(each, "newest"),
      heard: numberOrNull(each, "heard"),
    });
  }
  return {
    broker: { state: text(broker, "state", "connecting"), since: numberOrNull(broker, "since"), text: text(broker, "text", "") },
    jobs,
    parts: list(from["parts"] ?? [], "parts").map((value) => {
      const part = fields(value, "part");
      return { name: text(part, "name"), state: text(part, "state"), stale: part["stale"] === true, refreshed: numberOrNull(part, "refreshed") };
    }),
  };
}

const HEALTH: readonly Health[] = ["ok", "warning", "error", "unknown"];

export function readPipeline(message: unknown): Pipeline {
  const from = fields(message, "pipeline");
  const each = <T>(name: string, read: (from: Fields) => T): T[] =>
    list(from[name] ?? [], name).map((value) => read(fields(value, name)));
  return {
    now: numberOrNull(from, "now") ?? 0,
    problems: each("problems", (problem) => ({
      severity: oneOf(problem["severity"], HEALTH, "warning"),
      stage: text(problem, "stage", ""),
      text: text(problem, "text", ""),
    })),
    stages: each("stages", (stage) => ({
      name: text(stage, "name"),
      title: text(stage, "title", text(stage, "name")),
      state: oneOf(stage["state"], HEALTH, "unknown"),
      text: text(stage, "text", ""),
      rates: readRates(stage["rates"]),
      refreshed: numberOrNull(stage, "refreshed"),
      stale: stage["stale"] === true,
    })),
    queries: each("queries", (query) => ({
      query: text(query, "query", ""),
      jobs: texts(query["jobs"]),
      state: text(query, "state", "unknown"),
      text: text(query, "text", ""),
      failed: readTexts(query["failed"]),
      batch: numberOrNull(query, "batch"),
      batchMs: numberOrNull(query, "batch_ms"),
      batchMsP50: numberOrNull(query, "batch_ms_p50"),
      batchMsP99: numberOrNull(query, "batch_ms_p99"),
      restarts: numberOrNull(query, "restarts"),
      started: numberOrNull(query, "started"),
      stateRows: numberOrNull(query, "state_rows"),
      stateBytes: numberOrNull(query, "state_bytes"),
      heard: numberOrNull(query, "heard"),
      stale: query["stale"] === true,
    })),
    watermarks: each("watermarks", (mark) => ({
      job: text(mark, "job"),
      watermark: numberOrNull(mark, "watermark"),
      lag: numberOrNull(mark, "lag"),
    })),
    partitions: each("partitions", (partition) => ({
      job: text(partition, "job", ""),
      topic: text(partition, "topic"),
      partition: numberOrNull(partition, "partition") ?? 0,
      end: numberOrNull(partition, "end"),
      committed: numberOrNull(partition, "committed"),
      backlog: numberOrNull(partition, "backlog"),
    })),
    latency: each("latency", (latency) => ({
      job: text(latency, "job", ""),
      stage: text(latency, "stage", ""),
      p50: numberOrNull(latency, "p50"),
      p99: numberOrNull(latency, "p99"),
      count: numberOrNull(latency, "count"),
    })),
    series: from["series"] === undefined || from["series"] === null ? null : readPoint(fields(from["series"], "series")),
  };
}

function readTexts(value: unknown): Map<string, string> {
  const from = fields(value ?? {}, "failed");
  return new Map(Object.keys(from).map((name) => [name, text(from, name, "")]));
}

function readRates(value: unknown): Map<string, number | null> {
  const from = fields(value ?? {}, "rates");
  return new Map(Object.keys(from).map((name) => [name, numberOrNull(from, name)]));
}

function readPoint(from: Fields): Point {
  return Object.fromEntries(SERIES.map((name) => [name, numberOrNull(from, name)])) as Point;
}

/** The curves of `GET /api/pipeline`: lists by column, turned into points. */
export function readCurves(message: unknown): Point[] {
  const history = fields(message, "pipeline")["history"];
  if (history === undefined || history === null) return [];
  const columns = fields(history, "history");
  const at = list(columns["at"] ?? [], "at");
  return at.map((_, row) =>
    readPoint(
      Object.fromEntries(
        SERIES.map((name) => [name, Array.isArray(columns[name]) ? (columns[name] as unknown[])[row] : null]),
      ),
    ),
  );
}

export function readConfig(message: unknown): Config {
  const from = fields(message, "config");
  const map = fields(from["map"] ?? {}, "map");
  const center = map["center"];
  return {
    title: text(from, "title", "Headrace") || "Headrace",
    version: text(from, "version", ""),
    map: {
      style: textOrNull(map, "style"),
      center: isPair(center) ? center : null,
      zoom: numberOrNull(map, "zoom") ?? 2,
    },
  };
}

/** The lines and stops: what is no feature is left out, the rest MapLibre checks. */
export function readNetwork(message: unknown): GeoJSON.FeatureCollection {
  const features = list(fields(message, "network")["features"] ?? [], "features");
  const sound = features.filter((each) => {
    const from = fields(each, "feature");
    return from["type"] === "Feature" && typeof from["geometry"] === "object" && from["geometry"] !== null;
  });
  return { type: "FeatureCollection", features: sound as GeoJSON.Feature[] };
}

export function readHistory(message: unknown): HistoryPoint[] {
  const points = list(fields(message, "history")["points"] ?? [], "points");
  return points.flatMap((each) => {
    const from = fields(each, "point");
    const eventTime = numberOrNull(from, "event_time");
    if (eventTime === null) return [];
    const values = new Map(Object.entries(fields(from["values"] ?? {}, "values"))) as Map<string, Value>;
    return [{ eventTime, windowEnd: numberOrNull(from, "window_end"), values }];
  });
}
