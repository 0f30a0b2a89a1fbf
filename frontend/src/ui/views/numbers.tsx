/** Single numbers with their trend: one, or one per key. */
import { useEffect, useMemo } from "preact/hooks";

import * as format from "../../format";
import type { Shown } from "../../protocol";
import { dependsOn } from "../../state/depends";
import { SeriesMemory } from "../../state/series";
import { keyName } from "../details";
import { greatest } from "./top";
import { Trend } from "./trend";
import type { ViewProps } from "./view";

export function Numbers({ app, declaration, view, results, shown }: ViewProps & { shown: Shown }) {
  const memory = useMemo(() => new SeriesMemory(declaration.job, shown.column, !declaration.each), []);
  useEffect(() => () => { memory.close(); }, [memory]);
  dependsOn(app.revision, memory.loaded);
  const top = greatest(results.entries(), shown.column, view.top ?? 12);
  memory.follow(top.map(({ entry }) => entry));
  if (top.length === 0) return null;
  const now = app.clock.now();
  // In the order of their names: numbers that change places cannot be read.
  const named = top.map(({ entry, value }) => ({ entry, value, name: declaration.keys.length > 0 ? keyName(declaration, entry, now) : "" }));
  named.sort((one, two) => one.name.localeCompare(two.name, "en", { numeric: true }));
  return (
    <ul class="numbers" data-alone={named.length === 1}>
      {named.map(({ entry, value, name }) => {
        const { at, values } = memory.of(entry.key);
        return (
          <li key={entry.key} data-key={entry.key}>
            <span class="numbers-name">{name || format.words(shown.label)}</span>
            <span class="numbers-value">{format.number(value)}{unitOf(shown) !== "" && <small> {unitOf(shown)}</small>}</span>
            <Change at={at} values={values} />
            <Trend at={at} values={values} />
          </li>
        );
      })}
    </ul>
  );
}

const unitOf = ({ unit, label }: Shown): string => (unit === label ? "" : unit);

/** How far the value is from the one before, and from how long ago that is. */
function Change({ at, values }: { at: readonly number[]; values: readonly number[] }) {
  const difference = changeOf(at, values);
  if (difference === null) return <span class="numbers-change">&nbsp;</span>;
  const { by, since } = difference;
  const sign = by > 0 ? "▲" : by < 0 ? "▼" : "=";
  return (
    <span class="numbers-change" data-direction={Math.sign(by)}>
      <span aria-hidden="true">{sign}</span>
      <span class="unseen">{by > 0 ? "up by" : by < 0 ? "down by" : "unchanged"}</span> {by === 0 ? "" : format.number(Math.abs(by))} in {format.duration(since)}
    </span>
  );
}

export function changeOf(at: readonly number[], values: readonly number[]): { by: number; since: number } | null {
  const [last, before] = [values.at(-1), values.at(-2)];
  const [then, earlier] = [at.at(-1), at.at(-2)];
  if (last === undefined || before === undefined || then === undefined || earlier === undefined) return null;
  return { by: last - before, since: then - earlier };
}
