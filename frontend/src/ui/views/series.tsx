/** Values over time: one chart with a line per key, or a small chart per key where there are more than can be told apart. */
import { useEffect, useMemo, useRef } from "preact/hooks";

import * as format from "../../format";
import type { Shown } from "../../protocol";
import { dependsOn } from "../../state/depends";
import type { Entry } from "../../state/results";
import { SeriesMemory } from "../../state/series";
import { Chart } from "../chart";
import { keyName } from "../details";
import { Trend } from "./trend";
import { steady } from "./top";
import type { ViewProps } from "./view";

/** More lines than that are not told apart in one chart. */
const MOST_LINES = 5;

export function Series({ app, declaration, view, results, shown }: ViewProps & { shown: Shown }) {
  const memory = useMemo(() => new SeriesMemory(declaration.job, shown.column, !declaration.each), []);
  useEffect(() => () => { memory.close(); }, [memory]);
  const keys = useRef<readonly string[]>([]);
  dependsOn(app.revision, memory.loaded);
  const revision = results.revision;
  const entries = useMemo(() => {
    keys.current = steady(results.entries(), shown.column, view.top ?? 4, keys.current);
    const found = keys.current.flatMap((key) => results.get(key) ?? []);
    memory.follow(found);
    return found;
  }, [revision]);
  const loaded = memory.loaded.value;
  const { at, values } = useMemo(() => memory.together(entries.map((entry) => entry.key)), [entries, loaded]);
  const name = (entry: Entry): string => keyName(declaration, entry, app.clock.now()) || shown.label;
  const curves = useMemo(
    () => entries.map((entry, row) => ({ label: name(entry), unit: "", values: values[row] ?? [] })),
    [entries, values],
  );
  if (entries.length === 0 || at.length === 0) return null;
  if (entries.length <= MOST_LINES) return <Chart at={at} curves={curves} height={210} label={`${shown.label} over time`} />;
  const known = values.flat().filter((value) => value !== null);
  const range = [known.reduce((one, two) => Math.min(one, two), 0), known.reduce((one, two) => Math.max(one, two), 0)] as const;
  return (
    <ul class="multiples" aria-label={`${shown.label} over time, a small chart per key on the same scale`}>
      {curves.map((curve, row) => (
        <li key={entries[row]?.key}>
          <span class="multiples-name">{curve.label}</span>
          <b>{format.number(curve.values.findLast((value) => value !== null))}</b>
          <Trend at={at} values={curve.values} range={range} />
        </li>
      ))}
    </ul>
  );
}
