/**
 * The state of the page as the part of its address after `#`: which page, which part of the map, which layers with which value, what is
 * selected. Whoever gets the address sees the same. An address comes from anywhere, so everything in it is checked and what is no
 * good is left out.
 *
 *     #map=12.5/60.1711/24.9431/0/45&layers=vehicle-distribution,delay-distribution:p90&high=vehicle-distribution
 *     #page=job&job=parcels-per-depot&edge=read-0
 */

export const PAGES = ["map", "board", "job", "pipeline"] as const;
export type Page = (typeof PAGES)[number];

export interface View {
  readonly zoom: number;
  readonly latitude: number;
  readonly longitude: number;
  readonly bearing: number;
  readonly pitch: number;
}

export interface Selection {
  readonly job: string;
  readonly key: string;
}

export interface Permalink {
  readonly view: View | null;
  /** The layers that are on, each with the value chosen; null: the address does not say. */
  readonly layers: ReadonlyMap<string, string | null> | null;
  /** Layers whose cells stand up. */
  readonly high: readonly string[];
  /** Null: the address does not say. The map is shown if there is a job with places, else the board. */
  readonly page: Page | null;
  /** The job whose page is shown, and the edge of its graph whose rows are. */
  readonly job: string | null;
  readonly edge: string | null;
  readonly selection: Selection | null;
}

export const NOWHERE: Permalink = { view: null, layers: null, high: [], page: null, job: null, edge: null, selection: null };

const JOB = /^[a-z][a-z0-9-]{0,62}(\.[a-z][a-z0-9-]{0,62})?$/;
const EDGE = /^[a-z0-9.-]{1,150}$/;
const MOST_LAYERS = 50;
const LONGEST = 600;

export function format(link: Permalink): string {
  const parts: string[] = [];
  if (link.page !== null) parts.push(`page=${link.page}`);
  if (link.page === "job" && link.job !== null) parts.push(`job=${link.job}`);
  if (link.page === "job" && link.edge !== null) parts.push(`edge=${encodeURIComponent(link.edge)}`);
  if (link.view !== null) {
    const { zoom, latitude, longitude, bearing, pitch } = link.view;
    const numbers = [trim(zoom, 2), trim(latitude, 5), trim(longitude, 5)];
    if (Math.round(bearing) !== 0 || Math.round(pitch) !== 0) numbers.push(trim(bearing, 0), trim(pitch, 0));
    parts.push(`map=${numbers.join("/")}`);
  }
  if (link.layers !== null) {
    const layers = [...link.layers].map(([job, value]) => (value === null ? job : `${job}:${encodeURIComponent(value)}`));
    parts.push(`layers=${layers.join(",")}`);
  }
  if (link.high.length > 0) parts.push(`high=${link.high.join(",")}`);
  if (link.selection !== null) parts.push(`at=${link.selection.job}:${encodeURIComponent(link.selection.key)}`);
  return `#${parts.join("&")}`;
}

const trim = (value: number, digits: number): string => String(Number(value.toFixed(digits)));

export function parse(hash: string): Permalink {
  const fields = new Map<string, string>();
  for (const part of hash.replace(/^#/, "").split("&")) {
    const at = part.indexOf("=");
    if (at > 0) fields.set(part.slice(0, at), part.slice(at + 1));
  }
  const layers = fields.get("layers");
  return {
    view: parseView(fields.get("map")),
    layers: layers === undefined ? null : new Map(list(layers).map(parseLayer).filter((layer) => layer !== null)),
    high: list(fields.get("high") ?? "").filter((job) => JOB.test(job)),
    page: PAGES.find((page) => page === fields.get("page")) ?? null,
    job: JOB.test(fields.get("job") ?? "") ? (fields.get("job") ?? null) : null,
    edge: parseEdge(fields.get("edge") ?? ""),
    selection: parseSelection(fields.get("at")),
  };
}

const list = (text: string): string[] => text.split(",").filter((each) => each !== "").slice(0, MOST_LAYERS);

function parseView(text: string | undefined): View | null {
  const numbers = (text ?? "").split("/").map((each) => (each === "" ? NaN : Number(each)));
  if (numbers.length < 3 || numbers.some((each) => !Number.isFinite(each))) return null;
  const [zoom = 0, latitude = 0, longitude = 0, bearing = 0, pitch = 0] = numbers;
  if (Math.abs(latitude) > 85 || Math.abs(longitude) > 180) return null;
  return { zoom: within(zoom, 0, 20), latitude, longitude, bearing: within(bearing, -180, 180), pitch: within(pitch, 0, 60) };
}

const within = (value: number, least: number, greatest: number): number => Math.min(greatest, Math.max(least, value));

function parseLayer(text: string): [string, string | null] | null {
  const [job, value] = halves(text);
  if (!JOB.test(job)) return null;
  return [job, value === null ? null : decoded(value)];
}

function parseSelection(text: string | undefined): Selection | null {
  const [job, value] = halves(text ?? "");
  const key = value === null ? null : decoded(value);
  return JOB.test(job) && key !== null && key !== "" ? { job, key } : null;
}

function parseEdge(text: string): string | null {
  const edge = decoded(text);
  return edge !== null && EDGE.test(edge) ? edge : null;
}

function halves(text: string): [string, string | null] {
  const at = text.indexOf(":");
  return at < 0 ? [text, null] : [text.slice(0, at), text.slice(at + 1)];
}

function decoded(text: string): string | null {
  try {
    return decodeURIComponent(text).slice(0, LONGEST);
  } catch (error) {
    if (error instanceof URIError) return null;
    throw error;
  }
}
