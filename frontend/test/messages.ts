/** Messages as the protocol describes them, for tests. */

export function declaration(more: Record<string, unknown> = {}): Record<string, unknown> {
  return {
    job: "vehicle-distribution",
    title: "Vehicle distribution",
    description: "Vehicles per cell",
    topic: "analytics.vehicle-distribution",
    windows: "sliding(30s every 5s)",
    step: 5000,
    kind: "cells",
    keys: ["cell"],
    cell: "cell",
    target: null,
    latitude: null,
    longitude: null,
    values: [{ column: "vehicles", label: "vehicles", unit: "vehicles" }],
    labels: [],
    columns: [
      { name: "cell", type: "cell" },
      { name: "vehicles", type: "number" },
    ],
    scale: "sequential",
    domain: null,
    legend: "",
    time_to_live: 5000,
    each: false,
    ...more,
  };
}

export const NORTH = "891126d3317ffff";
export const SOUTH = "891126d3313ffff";

export function group(entries: Record<string, number>, more: Record<string, unknown> = {}): Record<string, unknown> {
  return {
    window_start: 1_760_000_000_000,
    window_end: 1_760_000_030_000,
    event_time: 1_760_000_029_999,
    expires_at: 1_760_000_035_000,
    published: 1_760_000_031_420,
    key: Object.keys(entries),
    values: { vehicles: Object.values(entries) },
    ...more,
  };
}

export function snapshot(version: number, entries: Record<string, number>): Record<string, unknown> {
  return { job: "vehicle-distribution", version, groups: [group(entries)] };
}

export function changes(
  base: number,
  version: number,
  entries: Record<string, number>,
  removed: string[] = [],
): Record<string, unknown> {
  return { job: "vehicle-distribution", base, version, groups: Object.keys(entries).length > 0 ? [group(entries)] : [], removed };
}

export function point(at: number, more: Record<string, number | null> = {}): Record<string, number | null> {
  return { at, events: 310, results: 98, late: 0, dead_letters: 0, backlog: 120, batch_ms: 431, ...more };
}
