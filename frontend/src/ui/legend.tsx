/** What colours and shapes of a layer mean. */
import { gradient } from "../colour";
import { number } from "../format";
import { type Domain, ticksOf } from "../scale";
import type { Layer } from "../state/app";
import { theme } from "../theme";

export function Legend({ layer, domain }: { layer: Layer; domain: Domain | undefined }) {
  const { declaration, shown, palette, choice } = layer;
  const { kind, legend, scale } = declaration;
  if (kind === "points") {
    return (
      <p class="legend">
        <span class="legend-dot" aria-hidden="true" /> {legend || "A point for each; the newest pulse."}
      </p>
    );
  }
  if (shown === null || domain === undefined) return legend === "" ? null : <p class="legend">{legend}</p>;
  const ticks = ticksOf(domain, scale);
  return (
    <figure class="legend">
      <div class="legend-bar" style={{ backgroundImage: gradient(palette, theme.value) }} aria-hidden="true" />
      <div class="legend-ticks">
        {ticks.map((tick, at) => (
          <span key={at}>
            {at === 0 && domain.below ? "≤ " : ""}
            {at === ticks.length - 1 && domain.above ? "≥ " : ""}
            {number(tick)}
          </span>
        ))}
      </div>
      <figcaption>
        {shown.label === shown.unit || shown.unit === "" ? shown.label : `${shown.label}, ${shown.unit}`}
        {kind === "cells" && choice.high ? "; height too" : ""}
        {kind === "arcs" || kind === "edges" ? "; width too" : ""}
        {legend === "" ? "" : `. ${legend}`}
      </figcaption>
    </figure>
  );
}
