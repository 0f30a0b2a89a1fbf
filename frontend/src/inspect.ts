/**
 * `window.headrace`: what the page shows, for people at the console and for tests in a browser. It only reads.
 *
 *     headrace.entry("vehicle-distribution", "891126d3317ffff")
 */
import { cellToLatLng } from "h3-js";

import type { MapView } from "./map/mapview";
import type { App } from "./state/app";

export interface Inspection {
  /** Jobs with what is shown and drawn of each. */
  jobs(): Record<string, { version: number | null; entries: number; drawn: number; on: boolean }>;
  keys(job: string): string[];
  /** One entry: its values by column, its place and times; null if it is not shown. */
  entry(job: string, key: string): Record<string, unknown> | null;
  /** The address-bar view of the map; null before it is there. */
  view(): ReturnType<MapView["view"]> | null;
  mapReady(): boolean;
  /** Where the middle of a cell is, in pixels of the map. */
  cellOnScreen(cell: string): { x: number; y: number } | null;
  /** By the server's clock. */
  now(): number;
  link(): string;
}

declare global {
  interface Window {
    headrace?: Inspection;
  }
}

export function inspect(app: App, map: MapView | null): void {
  if (map === null && window.headrace !== undefined) return;
  window.headrace = {
    jobs: () =>
      Object.fromEntries(
        (app.declared.peek() ?? []).map(({ job }) => {
          const results = app.resultsOf(job);
          return [job, { version: results.version, entries: results.size, drawn: map?.drawn(job) ?? 0, on: app.choiceOf(job).on }];
        }),
      ),
    keys: (job) => [...app.resultsOf(job).entries()].map((entry) => entry.key),
    entry: (job, key) => {
      const entry = app.resultsOf(job).get(key);
      if (entry === undefined) return null;
      const values = Object.fromEntries(entry.columns.map((column, at) => [column, entry.values[at]]));
      return { ...entry, ...entry.times, values };
    },
    view: () => map?.view() ?? null,
    mapReady: () => map?.ready.peek() ?? false,
    cellOnScreen: (cell) => {
      if (map === null) return null;
      const [latitude, longitude] = cellToLatLng(cell);
      return map.project(longitude, latitude);
    },
    now: () => app.clock.now(),
    link: () => app.link_.peek().state,
  };
}
