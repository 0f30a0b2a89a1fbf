/** The pulse of the pipeline in four small curves. */
import * as format from "../format";
import type { SeriesName } from "../protocol";
import type { App } from "../state/app";
import { Sparkline } from "./chart";

const VITALS: readonly (readonly [SeriesName, string])[] = [
  ["events", "events/s"],
  ["results", "results/s"],
  ["late", "late/s"],
  ["dead_letters", "dead letters/s"],
];

export function Vitals({ app }: { app: App }) {
  const points = app.curves.points.value;
  if (points.length === 0) return null;
  return (
    <dl class="vitals" aria-label="The pipeline now">
      {VITALS.map(([name, text]) => (
        <div key={name} data-series={name}>
          <dt>{text}</dt>
          <dd>{format.number(points.at(-1)?.[name])}<Sparkline values={points.map((point) => point[name])} /></dd>
        </div>
      ))}
    </dl>
  );
}
