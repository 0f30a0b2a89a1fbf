/** The keys with the greatest values, as bars. */
import * as format from "../../format";
import type { Shown } from "../../protocol";
import { dependsOn } from "../../state/depends";
import { keyName } from "../details";
import { greatest } from "./top";
import type { ViewProps } from "./view";

export function Bars({ app, declaration, view, results, shown }: ViewProps & { shown: Shown }) {
  dependsOn(app.revision);
  const now = app.clock.now();
  const bars = greatest(results.entries(), shown.column, view.top ?? 10);
  const longest = Math.max(...bars.map(({ value }) => Math.abs(value)), 1e-9);
  if (bars.length === 0) return null;
  return (
    <ol class="bars" aria-label={`${shown.label} by ${declaration.keys.join(", ") || "key"}, greatest first`}>
      {bars.map(({ entry, value }) => (
        <li key={entry.key}>
          <button
            type="button"
            data-key={entry.key}
            aria-pressed={app.selection.value?.key === entry.key}
            onClick={() => { app.select({ job: declaration.job, key: entry.key }); }}
          >
            <span class="bars-name">{keyName(declaration, entry, now)}</span>
            <span class="bars-track" aria-hidden="true">
              <span data-negative={value < 0} style={{ width: `${((100 * Math.abs(value)) / longest).toFixed(2)}%` }} />
            </span>
            <b>{format.number(value)}</b>
          </button>
        </li>
      ))}
    </ol>
  );
}
