/** A table that keeps itself up to date: sorted as the viewer likes, with the newest changes marked. */
import { useRef, useState } from "preact/hooks";

import * as format from "../../format";
import type { Declaration, JobView, Value } from "../../protocol";
import { dependsOn } from "../../state/depends";
import { type Entry, valueOf } from "../../state/results";
import { typeOf } from "../details";
import { emptyText, type ViewProps } from "./view";

const MOST_COLUMNS = 12;
/** Milliseconds for which a changed cell is marked. */
const MARKED = 3_000;

export interface Order {
  /** A column; null: by how new a row is. */
  readonly column: string | null;
  readonly down: boolean;
}

export function Table({ app, declaration, view, results }: ViewProps) {
  dependsOn(app.revision, app.second);
  const now = app.clock.now();
  const changes = useRef(new Changes());
  const [chosen, setOrder] = useState<Order | null>(null);
  const order = chosen ?? firstOrder(declaration);
  const columns = columnsOf(declaration, view);
  const all = [...results.entries()];
  changes.current.see(all, columns, now);
  const most = view.top ?? 200;
  const rows = sorted(all, order).slice(0, most);
  if (rows.length === 0) return <p class="hint empty">{emptyText(app, declaration)}</p>;
  const sortBy = (column: string | null): void => {
    // First the way that is looked for most: texts from A, numbers and times from the greatest.
    const down = column === null || typeOf(declaration, column) !== "text";
    setOrder(order.column === column ? { column, down: !order.down } : { column, down });
  };
  const head = (column: string | null, text: string, type: string) => (
    <th key={text} scope="col" data-type={type} aria-sort={order.column === column ? (order.down ? "descending" : "ascending") : "none"}>
      <button type="button" onClick={() => { sortBy(column); }}>
        {text}<span class="sort" aria-hidden="true">{order.column === column ? (order.down ? "▼" : "▲") : ""}</span>
      </button>
    </th>
  );
  return (
    <>
      <div class="scroll" tabIndex={0} role="region" aria-label={`Table of ${declaration.title}`}>
        <table class="live">
          <thead>
            <tr>
              {columns.map((column) => head(column, format.words(column), typeOf(declaration, column)))}
              {head(null, "age", "number")}
            </tr>
          </thead>
          <tbody>
            {rows.map((entry) => (
              <tr
                key={entry.key}
                data-key={entry.key}
                aria-selected={app.selection.value?.key === entry.key}
                onClick={() => { app.select({ job: declaration.job, key: entry.key }); }}
              >
                {columns.map((column, at) => {
                  const type = typeOf(declaration, column);
                  const text = format.value(valueOf(entry, column), type, now);
                  return (
                    <td key={column} data-type={type} data-column={column} data-changed={changes.current.isFresh(entry.key, column, now)}>
                      {at === 0 ? <button type="button" class="row-name" title={entry.key}>{text}</button> : text}
                    </td>
                  );
                })}
                <td data-type="number" class="age">{format.age(entry.times.published ?? entry.times.eventTime, now)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {all.length > most && <p class="hint">{most} of {format.number(all.length)} rows.</p>}
    </>
  );
}

function columnsOf(declaration: Declaration, view: JobView): string[] {
  const named = view.labels.length > 0 ? view.labels : declaration.columns.map((column) => column.name);
  const keys = declaration.keys.filter((key) => named.includes(key));
  return [...keys, ...named.filter((name) => !keys.includes(name))].slice(0, MOST_COLUMNS);
}

/** Events from the newest; rows that are replaced stay where they are: by their key. */
export function firstOrder({ each, keys }: Declaration): Order {
  return each || keys[0] === undefined ? { column: null, down: true } : { column: keys[0], down: false };
}

const collator = new Intl.Collator("en", { numeric: true });

export function sorted(entries: readonly Entry[], { column, down }: Order): Entry[] {
  const value = (entry: Entry): Value => (column === null ? (entry.times.eventTime ?? 0) : valueOf(entry, column));
  const order = (one: Entry, two: Entry): number => {
    const [first, second] = [value(one), value(two)];
    // What is not known is last, whichever way.
    if (first === null || second === null) return Number(first === null) - Number(second === null);
    const by = typeof first === "number" && typeof second === "number" ? first - second : collator.compare(String(first), String(second));
    return down ? -by : by;
  };
  return [...entries].sort((one, two) => order(one, two) || collator.compare(one.key, two.key));
}

/** Remembers when which cell of which row got another value. */
export class Changes {
  private rows = new Map<string, { entry: Entry; at: Map<string, number> }>();
  private begun = false;

  see(entries: readonly Entry[], columns: readonly string[], now: number): void {
    const before = this.rows;
    this.rows = new Map();
    for (const entry of entries) {
      const known = before.get(entry.key);
      if (known?.entry === entry) {
        this.rows.set(entry.key, known);
        continue;
      }
      const at = new Map(known?.at);
      for (const column of columns) {
        // What was there when the table appeared is not news.
        const changed = known === undefined ? this.begun : String(valueOf(known.entry, column)) !== String(valueOf(entry, column));
        if (changed) at.set(column, now);
      }
      this.rows.set(entry.key, { entry, at });
    }
    this.begun ||= entries.length > 0;
  }

  isFresh(key: string, column: string, now: number): boolean {
    const at = this.rows.get(key)?.at.get(column);
    return at !== undefined && now - at < MARKED;
  }
}
