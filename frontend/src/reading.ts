/** Reading what a server sent: each function gives a value of a type, or refuses it with a sentence that names it. */

/** A message that is not what the protocol says. */
export class ProtocolError extends Error {
  override readonly name = "ProtocolError";
}

export type Fields = Record<string, unknown>;

export function fields(value: unknown, what: string): Fields {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new ProtocolError(`${what}: an object was expected, not ${describe(value)}`);
  }
  return value as Fields;
}

export function list(value: unknown, what: string): unknown[] {
  if (!Array.isArray(value)) throw new ProtocolError(`${what}: a list was expected, not ${describe(value)}`);
  return value;
}

function describe(value: unknown): string {
  if (value === null) return "null";
  return Array.isArray(value) ? "a list" : typeof value;
}

export function text(from: Fields, name: string, fallback?: string): string {
  const value = from[name];
  if (typeof value === "string") return value;
  if (fallback !== undefined && (value === undefined || value === null)) return fallback;
  throw new ProtocolError(`${name}: text was expected, not ${describe(value)}`);
}

export function textOrNull(from: Fields, name: string): string | null {
  const value = from[name];
  return typeof value === "string" ? value : null;
}

export function number(from: Fields, name: string): number {
  const value = from[name];
  if (typeof value === "number" && Number.isFinite(value)) return value;
  throw new ProtocolError(`${name}: a number was expected, not ${describe(value)}`);
}

/** Numbers beyond 2^53 come as text; for what is drawn, the nearest number will do. */
export function numberOrNull(from: Fields, name: string): number | null {
  const value = from[name];
  if (typeof value === "number") return Number.isFinite(value) ? value : null;
  if (typeof value === "string" && value !== "") {
    const parsed = Number(value);
    return Number.isFinite(parsed) ? parsed : null;
  }
  return null;
}

export function oneOf<T extends string>(value: unknown, known: readonly T[], fallback: T): T {
  return known.find((each) => each === value) ?? fallback;
}

export function texts(value: unknown): string[] {
  return Array.isArray(value) ? value.filter((each): each is string => typeof each === "string") : [];
}

export function isPair(value: unknown): value is [number, number] {
  return Array.isArray(value) && value.length === 2 && value.every((each) => typeof each === "number" && Number.isFinite(each));
}
