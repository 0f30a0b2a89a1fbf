/** Which keys a view shows. */
import { type Entry, numberOf } from "../../state/results";

export interface Ranked {
  readonly entry: Entry;
  readonly value: number;
}

/** The entries with the greatest values, greatest first; of the same value, in the order of their keys. */
export function greatest(entries: Iterable<Entry>, column: string, most: number): Ranked[] {
  const ranked: Ranked[] = [];
  for (const entry of entries) {
    const value = numberOf(entry, column);
    if (value !== null) ranked.push({ entry, value });
  }
  ranked.sort((one, two) => two.value - one.value || (one.entry.key < two.entry.key ? -1 : 1));
  return ranked.slice(0, most);
}

/**
 * The keys whose curves are shown. Values go up and down all the time: a key that is shown stays while it is among twice as many of the
 * greatest, so that curves do not come and go with every window.
 */
export function steady(entries: Iterable<Entry>, column: string, most: number, before: readonly string[]): string[] {
  const ranked = greatest(entries, column, 2 * most).map(({ entry }) => entry.key);
  const kept = before.filter((key) => ranked.includes(key));
  const fresh = ranked.filter((key) => !kept.includes(key));
  return [...kept, ...fresh].slice(0, most);
}
