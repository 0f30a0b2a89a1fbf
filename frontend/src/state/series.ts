/** Curves of some keys of a job: what the server has kept of the last hour, carried on with what arrives. */
import { type Signal, signal } from "@preact/signals";

import type { HistoryPoint } from "../protocol";
import { History } from "./history";
import { type Entry, numberOf } from "./results";

const MOST_POINTS = 720;

export class SeriesMemory {
  /** Grows when the server has told the history of a key. */
  readonly loaded: Signal<number> = signal(0);
  private readonly rows = new Map<string, Map<number, number>>();
  private readonly asked = new Map<string, History>();

  /**
   * @param job Whose results.
   * @param column The value.
   * @param ask Whether the server has a history of them.
   */
  constructor(
    private readonly job: string,
    private readonly column: string,
    private readonly ask = true,
  ) {}

  /** Take what is shown now of these keys, ask for what was before, and forget the others. */
  follow(entries: readonly Entry[]): void {
    const keys = new Set(entries.map((entry) => entry.key));
    for (const key of [...this.rows.keys()]) {
      if (keys.has(key)) continue;
      this.rows.delete(key);
      this.asked.get(key)?.close();
      this.asked.delete(key);
    }
    for (const entry of entries) {
      this.put(entry);
      if (this.ask && !this.asked.has(entry.key)) this.load(entry.key);
    }
  }

  /** The points of a key, oldest first. */
  of(key: string): { at: number[]; values: number[] } {
    const points = [...(this.rows.get(key) ?? [])].sort(([one], [two]) => one - two);
    return { at: points.map(([at]) => at), values: points.map(([, value]) => value) };
  }

  /** All keys over the same times. */
  together(keys: readonly string[]): { at: number[]; values: (number | null)[][] } {
    const times = new Set(keys.flatMap((key) => [...(this.rows.get(key)?.keys() ?? [])]));
    const at = [...times].sort((one, two) => one - two).slice(-MOST_POINTS);
    return { at, values: keys.map((key) => at.map((time) => this.rows.get(key)?.get(time) ?? null)) };
  }

  /** Take over what was before; what has arrived meanwhile stays. */
  remember(key: string, points: readonly HistoryPoint[]): void {
    const row = this.rows.get(key);
    if (row === undefined) return;
    for (const { eventTime, windowEnd, values } of points) {
      const at = windowEnd ?? eventTime;
      const value = values.get(this.column);
      if (typeof value === "number" && !row.has(at)) row.set(at, value);
    }
    this.loaded.value += 1;
  }

  close(): void {
    for (const each of this.asked.values()) each.close();
    this.asked.clear();
  }

  private put(entry: Entry): void {
    const row = this.rows.get(entry.key) ?? new Map<number, number>();
    this.rows.set(entry.key, row);
    const at = entry.times.windowEnd ?? entry.times.eventTime;
    const value = numberOf(entry, this.column);
    if (at !== null && value !== null) row.set(at, value);
    if (row.size > MOST_POINTS) row.delete(Math.min(...row.keys()));
  }

  private load(key: string): void {
    const history = new History(this.job, key);
    this.asked.set(key, history);
    void history.load().then(() => {
      const state = history.state.peek();
      if (state.state === "ready") this.remember(key, state.points);
    });
  }
}
