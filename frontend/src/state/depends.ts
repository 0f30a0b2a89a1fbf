import type { ReadonlySignal } from "@preact/signals";

/**
 * Say that what comes depends on these signals, where their values are not used themselves: results are kept in plain maps, and a
 * signal only tells that they have changed.
 */
export function dependsOn(...signals: readonly ReadonlySignal<unknown>[]): void {
  signals.forEach((each) => each.value);
}
