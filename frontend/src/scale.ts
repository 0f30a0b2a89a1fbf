/**
 * From a value to a place on a colour scale.
 *
 * Where the job declares no domain, it follows what is shown, with two cares: a single outlier must not turn all others into one
 * colour (so the scale ends at a high quantile, and its legend says "and more"), and colours must not change meaning every five
 * seconds (so ends are round numbers, and a scale that still fits is kept).
 */

export interface Domain {
  readonly least: number;
  readonly greatest: number;
  /** Whether values below `least` or above `greatest` are shown in the last colour. */
  readonly below: boolean;
  readonly above: boolean;
}

const TOP_SHARE = 0.98;

/** The next number of the form 1, 2 or 5 times a power of ten that is not smaller. */
export function roundUp(value: number): number {
  if (!(value > 0) || !Number.isFinite(value)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  for (const step of [1, 1.5, 2, 3, 4, 5, 6, 8, 10]) {
    // Not `step * power` alone: 10 ** -3 and its like are not exact.
    const candidate = Number((step * power).toPrecision(12));
    if (candidate >= value * (1 - 1e-12)) return candidate;
  }
  return 10 * power;
}

/** The ends of the scale for these values. */
export function domainOf(
  values: readonly number[] | Float64Array,
  options: { scale: "sequential" | "diverging"; declared?: readonly [number, number] | null; before?: Domain | null },
): Domain {
  const { scale, declared = null, before = null } = options;
  let [least, greatest] = [Infinity, -Infinity];
  for (const value of values) {
    if (value < least) least = value;
    if (value > greatest) greatest = value;
  }
  if (declared !== null) {
    return { least: declared[0], greatest: declared[1], below: least < declared[0], above: greatest > declared[1] };
  }
  if (least > greatest) return before ?? (scale === "diverging" ? end(-1, 1) : end(0, 1));
  let wanted: Domain;
  if (scale === "diverging") {
    const far = roundUp(quantile(Float64Array.from(values, Math.abs), TOP_SHARE));
    wanted = { least: -far, greatest: far, below: least < -far, above: greatest > far };
  } else {
    const top = roundUp(quantile(Float64Array.from(values), TOP_SHARE));
    const bottom = least < 0 ? -roundUp(-least) : 0;
    wanted = { least: bottom, greatest: Math.max(top, bottom + 1e-9), below: false, above: greatest > top };
  }
  return before !== null && fits(before, wanted) ? { ...before, below: least < before.least, above: greatest > before.greatest } : wanted;
}

const end = (least: number, greatest: number): Domain => ({ least, greatest, below: false, above: false });

/** A scale is kept while it is neither too small nor more than twice too large. */
function fits(kept: Domain, wanted: Domain): boolean {
  const [old, now] = [kept.greatest - kept.least, wanted.greatest - wanted.least];
  return kept.least <= wanted.least && kept.greatest >= wanted.greatest && old <= 2 * now;
}

function quantile(values: Float64Array, share: number): number {
  const sorted = values.toSorted();
  return sorted[Math.ceil(share * (sorted.length - 1))] ?? 0;
}

/** Where a value is between the ends: 0 to 1. */
export function shareOf(value: number, domain: Domain): number {
  const width = domain.greatest - domain.least;
  if (!(width > 0)) return 0.5;
  return Math.min(1, Math.max(0, (value - domain.least) / width));
}

/** Round numbers for a legend: the ends and what is between. */
export function ticksOf(domain: Domain, scale: "sequential" | "diverging"): number[] {
  const middle = (domain.least + domain.greatest) / 2;
  return scale === "diverging" && domain.least === -domain.greatest
    ? [domain.least, 0, domain.greatest]
    : [domain.least, Number(middle.toPrecision(6)), domain.greatest];
}
