/** Numbers, times and ages as people read them. All of it is text for text nodes. */
import type { Value } from "./protocol";

export const UNKNOWN = "–";

const LOCALE = "en-GB";
const whole = new Intl.NumberFormat(LOCALE, { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat(LOCALE, { maximumFractionDigits: 1 });
const hundredths = new Intl.NumberFormat(LOCALE, { maximumFractionDigits: 2 });
// British "1.2m" reads like metres.
const short = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });

/** A number with as many digits as help: 0.25, 4.2, 120, 12,345, 1.2M. */
export function number(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return UNKNOWN;
  const size = Math.abs(value);
  if (size >= 1e15) return value.toExponential(2);
  if (size >= 1e6) return short.format(value);
  if (Number.isInteger(value) || size >= 100) return whole.format(value);
  if (size !== 0 && size < 0.005) return value.toExponential(1);
  return size >= 10 ? tenths.format(value) : hundredths.format(value);
}

/** A number with its unit; a unit of words stands apart, and so does "s". */
export function quantity(value: number | null | undefined, unit: string): string {
  const text = number(value);
  return unit === "" || text === UNKNOWN ? text : `${text} ${unit}`;
}

/** A length of time in milliseconds: 431 ms, 2.4 s, 1 min 20 s, 2 h 5 min, 3 days. */
export function duration(milliseconds: number | null | undefined): string {
  if (milliseconds === null || milliseconds === undefined || !Number.isFinite(milliseconds)) return UNKNOWN;
  const sign = milliseconds < 0 ? "−" : "";
  const size = Math.abs(milliseconds);
  if (size < 1000) return `${sign}${Math.round(size)} ms`;
  if (size < 9950) return `${sign}${(size / 1000).toFixed(1)} s`;
  const seconds = Math.round(size / 1000);
  if (seconds < 60) return `${sign}${seconds} s`;
  if (seconds < 3600) return sign + two(Math.floor(seconds / 60), "min", seconds % 60, "s");
  const minutes = Math.round(seconds / 60);
  if (minutes < 24 * 60) return sign + two(Math.floor(minutes / 60), "h", minutes % 60, "min");
  const days = Math.round(minutes / (24 * 60));
  return `${sign}${whole.format(days)} ${days === 1 ? "day" : "days"}`;
}

const two = (first: number, unit: string, second: number, smaller: string): string =>
  second === 0 ? `${first} ${unit}` : `${first} ${unit} ${second} ${smaller}`;

/** How long ago something was, by the server's clock. */
export function age(then: number | null | undefined, now: number): string {
  if (then === null || then === undefined) return UNKNOWN;
  const gone = now - then;
  // Clocks of two machines differ by some milliseconds: nothing happens in the future.
  return gone < 1000 ? "just now" : `${duration(gone)} ago`;
}

const clock = new Intl.DateTimeFormat(LOCALE, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const dated = new Intl.DateTimeFormat(LOCALE, {
  year: "numeric", month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit",
});

/** A moment in the viewer's time zone; with its date unless it is within half a day. */
export function time(at: number | null | undefined, now: number): string {
  if (at === null || at === undefined || !Number.isFinite(at) || Math.abs(at) > 8.64e15) return UNKNOWN;
  return Math.abs(now - at) < 12 * 3600 * 1000 ? clock.format(at) : dated.format(at);
}

/** A window as its two ends: 12:00:00 – 12:00:30. */
export function windowOf(start: number | null, end: number | null, now: number): string {
  if (end === null) return UNKNOWN;
  return start === null ? `until ${time(end, now)}` : `${time(start, now)} – ${Math.abs(end - start) < 43_200_000 ? clock.format(end) : time(end, now)}`;
}

/** Bytes: 812 B, 903 kB, 1.2 MB. */
export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return UNKNOWN;
  const units = ["B", "kB", "MB", "GB", "TB"];
  let [size, unit] = [value, 0];
  while (size >= 1000 && unit < units.length - 1) [size, unit] = [size / 1000, unit + 1];
  return `${size >= 100 || unit === 0 ? whole.format(size) : tenths.format(size)} ${units[unit] ?? ""}`;
}

/** A result column's name as words: "vehicle_id" reads "vehicle id". */
export const words = (name: string): string => name.replaceAll("_", " ");

/** Any value of a result by the type that its column is declared with. */
export function value(of: Value, type: string, now: number): string {
  if (of === null) return UNKNOWN;
  if (Array.isArray(of)) return of.map((each) => value(each, "text", now)).join(", ");
  if (typeof of === "boolean") return of ? "yes" : "no";
  if (typeof of === "number") {
    if (type === "time") return time(of, now);
    return type === "duration" ? duration(of) : number(of);
  }
  return of;
}
