/** What is under the pointer, beside it and never outside the map. */
import type { App } from "../state/app";
import type { MapView } from "../map/mapview";
import { dependsOn } from "../state/depends";
import { Lines, linesOf } from "./details";

const MOST = 3;
const WIDTH = 250;

export function Tooltip({ app, view }: { app: App; view: MapView }) {
  const hover = view.hover.value;
  dependsOn(app.second);
  if (hover === null) return null;
  const now = app.clock.now();
  const left = hover.x + WIDTH + 24 > window.innerWidth ? hover.x - WIDTH - 14 : hover.x + 14;
  const top = Math.max(8, Math.min(hover.y + 14, window.innerHeight - 190 * Math.min(hover.hits.length, 2) - 60));
  return (
    <div class="tooltip" role="tooltip" style={{ left: `${Math.max(8, left)}px`, top: `${top}px`, width: `${WIDTH}px` }}>
      {hover.hits.slice(0, MOST).map(({ layer, entry }) => (
        <section key={`${layer.declaration.job}/${entry.key}`}>
          <h3>
            {layer.declaration.title} <small>{app.places.value.of(entry)}</small>
          </h3>
          <Lines lines={linesOf(layer.declaration, layer.results.get(entry.key) ?? entry, now, layer.shown?.column ?? null)} />
        </section>
      ))}
      {hover.hits.length > MOST && <p>and {hover.hits.length - MOST} more here</p>}
    </div>
  );
}
