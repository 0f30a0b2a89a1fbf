/** One entry in words: its value, its other columns, its window and its age. */
import * as format from "../format";
import { NOWHERE_KNOWN, type Places } from "../map/places";
import { type Declaration, isPlaced } from "../protocol";
import { type Entry, valueOf } from "../state/results";

export interface Line {
  readonly name: string;
  readonly text: string;
  readonly strong: boolean;
}

/** The lines of a tooltip or card. All texts are data: they go into text nodes. */
export function linesOf(declaration: Declaration, entry: Entry, now: number, chosen: string | null): Line[] {
  const lines: Line[] = declaration.values.map(({ column, label, unit }) => ({
    name: label,
    text: withUnit(format.value(valueOf(entry, column), typeOf(declaration, column), now), label, unit),
    strong: column === chosen,
  }));
  const values = new Set(declaration.values.map((each) => each.column));
  const places = new Set([declaration.cell, declaration.target, declaration.latitude, declaration.longitude]);
  const labels = declaration.labels.length > 0 ? declaration.labels : declaration.columns.map((column) => column.name);
  for (const column of labels) {
    if (values.has(column) || places.has(column)) continue;
    const text = format.value(valueOf(entry, column), typeOf(declaration, column), now);
    lines.push({ name: format.words(column), text, strong: false });
  }
  const { windowStart, windowEnd, eventTime, published } = entry.times;
  if (windowEnd !== null) lines.push({ name: "window", text: format.windowOf(windowStart, windowEnd, now), strong: false });
  else lines.push({ name: "event time", text: format.time(eventTime, now), strong: false });
  // The age of the news, not of the event: a replayed recording is years old and yet current.
  lines.push({ name: "age", text: format.age(published ?? eventTime, now), strong: false });
  return lines;
}

function withUnit(text: string, label: string, unit: string): string {
  return unit === "" || unit === label || text === format.UNKNOWN ? text : `${text} ${unit}`;
}

export function typeOf(declaration: Declaration, column: string): string {
  return declaration.columns.find((each) => each.name === column)?.type ?? "text";
}

export function Lines({ lines }: { lines: readonly Line[] }) {
  return (
    <dl class="lines">
      {lines.map((line) => (
        <div key={line.name} class={line.strong ? "strong" : ""}>
          <dt>{line.name}</dt>
          <dd>{line.text}</dd>
        </div>
      ))}
    </dl>
  );
}

/** What an entry is called in a list: its labels, or where it is, or its key. */
export function nameOf(declaration: Declaration, entry: Entry, now: number, places: Places): string {
  const values = new Set(declaration.values.map((each) => each.column));
  const labels = declaration.labels.filter((label) => !values.has(label) && typeOf(declaration, label) === "text");
  const texts = labels.map((label) => format.value(valueOf(entry, label), "text", now)).filter((text) => text !== format.UNKNOWN);
  if (texts.length > 0) return texts.join(" · ");
  return (isPlaced(declaration.kind) ? places.of(entry) : null) ?? entry.key;
}

/** What an entry is called among others of its job: its labels, or the values of its keys. */
export function keyName(declaration: Declaration, entry: Entry, now: number): string {
  const name = nameOf(declaration, entry, now, NOWHERE_KNOWN);
  if (name !== entry.key) return name;
  const values = declaration.keys.map((key) => format.value(valueOf(entry, key), typeOf(declaration, key), now));
  return values.length > 0 && values.every((value) => value !== format.UNKNOWN) ? values.join(" · ") : entry.key;
}
