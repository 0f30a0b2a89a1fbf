/**
 * What one job shows: the newest entry of each key, as the server tells it.
 *
 * The server decides what is shown (a result replaces another one only if its event time is the same or newer, values expire,
 * retractions remove); the page applies a snapshot, then differences, each of which says which version it is based on. A difference
 * that does not fit is not applied: the page asks again from the version it has.
 */
import type { Changes, Group, Snapshot, Value } from "../protocol";

/** The times that entries of a group share. */
export interface Times {
  readonly windowStart: number | null;
  readonly windowEnd: number | null;
  readonly eventTime: number | null;
  readonly expiresAt: number | null;
  readonly published: number | null;
}

export interface Entry {
  readonly key: string;
  readonly cell: string | null;
  readonly target: string | null;
  readonly latitude: number | null;
  readonly longitude: number | null;
  readonly times: Times;
  /** In the order of the group's columns. */
  readonly values: readonly Value[];
  readonly columns: readonly string[];
}

/** The value of a column; null if the entry does not have it. */
export function valueOf(entry: Entry, column: string): Value {
  const at = entry.columns.indexOf(column);
  return at < 0 ? null : (entry.values[at] ?? null);
}

/** The value of a column as a number that can be drawn. */
export function numberOf(entry: Entry, column: string): number | null {
  const value = valueOf(entry, column);
  if (typeof value === "number") return value;
  if (typeof value === "boolean") return value ? 1 : 0;
  if (typeof value !== "string" || value === "") return null;
  const parsed = Number(value);
  return Number.isFinite(parsed) ? parsed : null;
}

export class Results {
  private shown = new Map<string, Entry>();
  private byCell: Map<string, Entry[]> | null = null;
  private known: number | null = null;
  private count = 0;

  /** The version that the server calls what is shown here; null before the first snapshot. */
  get version(): number | null {
    return this.known;
  }

  /** Grows with every change: lets others see cheaply whether anything has changed. */
  get revision(): number {
    return this.count;
  }

  get size(): number {
    return this.shown.size;
  }

  entries(): IterableIterator<Entry> {
    return this.shown.values();
  }

  get(key: string): Entry | undefined {
    return this.shown.get(key);
  }

  /** The entries of a map cell: usually one, more where the job has further keys. */
  at(cell: string): readonly Entry[] {
    if (this.byCell === null) {
      this.byCell = new Map();
      for (const entry of this.shown.values()) {
        if (entry.cell === null) continue;
        const others = this.byCell.get(entry.cell);
        if (others === undefined) this.byCell.set(entry.cell, [entry]);
        else others.push(entry);
      }
    }
    return this.byCell.get(cell) ?? [];
  }

  /** Forget all that was shown and show this. */
  replace(snapshot: Snapshot): void {
    this.shown = new Map();
    this.put(snapshot.groups);
    this.becomes(snapshot.version);
  }

  /** Apply a difference; false if it is not based on what is shown here. */
  apply(changes: Changes): boolean {
    if (changes.base !== this.known) return false;
    for (const key of changes.removed) this.shown.delete(key);
    this.put(changes.groups);
    this.becomes(changes.version);
    return true;
  }

  private becomes(version: number): void {
    this.known = version;
    this.byCell = null;
    this.count += 1;
  }

  private put(groups: readonly Group[]): void {
    for (const group of groups) {
      const { windowStart, windowEnd, eventTime, expiresAt, published } = group;
      const times: Times = { windowStart, windowEnd, eventTime, expiresAt, published };
      const columns = [...group.values.keys()];
      const lists = [...group.values.values()];
      for (const [row, key] of group.key.entries()) {
        this.shown.set(key, {
          key,
          cell: group.cell === null ? key : (group.cell[row] ?? null),
          target: group.target?.[row] ?? null,
          latitude: group.latitude?.[row] ?? null,
          longitude: group.longitude?.[row] ?? null,
          times,
          values: lists.map((values) => values[row] ?? null),
          columns,
        });
      }
    }
  }
}
