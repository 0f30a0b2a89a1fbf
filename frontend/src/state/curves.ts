/** The curves of the pipeline: an hour of points at most, oldest first. */
import { type Signal, signal } from "@preact/signals";

import type { Point } from "../protocol";

const HOUR = 3_600_000;
/** A point every few seconds is enough for a curve of an hour. */
const STEP = 4_000;

export class Curves {
  readonly points: Signal<readonly Point[]> = signal([]);

  /** Take over what the server has kept. */
  load(points: readonly Point[]): void {
    const known = this.points.value;
    const last = points.at(-1)?.at ?? 0;
    this.points.value = trimmed([...points, ...known.filter((each) => (each.at ?? 0) > last)]);
  }

  /** The newest point. It replaces the one before while that is fresh, so that the curve ends with the newest value. */
  add(point: Point): void {
    if (point.at === null) return;
    const known = this.points.value;
    const last = known.at(-1);
    const beforeLast = known.at(-2);
    if (last?.at !== undefined && last.at !== null && point.at <= last.at) return;
    const replaces = beforeLast?.at !== undefined && beforeLast.at !== null && point.at - beforeLast.at < STEP;
    this.points.value = trimmed([...(replaces ? known.slice(0, -1) : known), point]);
  }
}

function trimmed(points: readonly Point[]): readonly Point[] {
  const newest = points.at(-1)?.at ?? 0;
  return points.filter((each) => each.at !== null && each.at > newest - HOUR);
}
