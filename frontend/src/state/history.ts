/** What one entry was in the last hour: asked for once, then carried on with what arrives. */
import { type Signal, signal } from "@preact/signals";

import { ApiError, ask } from "../api";
import { type HistoryPoint, readHistory } from "../protocol";
import type { Entry } from "./results";

const MOST = 720;

export type HistoryState =
  | { state: "loading" }
  | { state: "ready"; points: readonly HistoryPoint[] }
  | { state: "failed"; why: string };

export class History {
  readonly state: Signal<HistoryState> = signal({ state: "loading" });
  private readonly stop = new AbortController();

  constructor(
    readonly job: string,
    readonly key: string,
  ) {}

  async load(): Promise<void> {
    try {
      const path = `api/jobs/${encodeURIComponent(this.job)}/history?key=${encodeURIComponent(this.key)}`;
      this.state.value = { state: "ready", points: readHistory(await ask(path, this.stop.signal)) };
    } catch (error) {
      if (this.stop.signal.aborted) return;
      if (!(error instanceof ApiError)) throw error;
      this.state.value = { state: "failed", why: error.message };
    }
  }

  /** The entry has a new value, perhaps. */
  extend(entry: Entry): void {
    const state = this.state.peek();
    if (state.state === "ready") this.state.value = { state: "ready", points: extended(state.points, entry) };
  }

  close(): void {
    this.stop.abort();
  }
}

/** Add an entry's newest value; one with the same event time takes the place of the one before. */
export function extended(points: readonly HistoryPoint[], entry: Entry): readonly HistoryPoint[] {
  const { eventTime, windowEnd } = entry.times;
  const last = points.at(-1);
  if (eventTime === null || (last !== undefined && last.eventTime > eventTime)) return points;
  const point: HistoryPoint = {
    eventTime,
    windowEnd,
    values: new Map(entry.columns.map((column, at) => [column, entry.values[at] ?? null])),
  };
  const kept = last?.eventTime === eventTime ? points.slice(0, -1) : points;
  return [...kept, point].slice(-MOST);
}
