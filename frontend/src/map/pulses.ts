/**
 * Rings that spread from the newest points. They are elements of the page, moved by the browser's compositor: a pulse costs no frame
 * of the map, and stands still for people who prefer less motion.
 */
import { type Map as MapLibre, Marker } from "maplibre-gl";

import type { Layer } from "../state/app";

/** Older points are drawn as dots only. */
const MOST = 40;

export class Pulses {
  private readonly shown = new Map<string, Marker>();

  constructor(private readonly map: MapLibre) {}

  show(layers: readonly Layer[]): void {
    const wanted = new Map<string, [number, number]>();
    for (const { declaration, results } of layers) {
      if (declaration.kind !== "points") continue;
      const newest = [...results.entries()]
        .sort((one, two) => (two.times.eventTime ?? 0) - (one.times.eventTime ?? 0))
        .slice(0, MOST);
      for (const { key, longitude, latitude } of newest) {
        if (longitude === null || latitude === null || Math.abs(latitude) > 90 || Math.abs(longitude) > 180) continue;
        wanted.set(`${declaration.job}/${key}`, [longitude, latitude]);
      }
    }
    for (const [id, marker] of this.shown) {
      if (wanted.has(id)) continue;
      marker.remove();
      this.shown.delete(id);
    }
    for (const [id, place] of wanted) {
      const known = this.shown.get(id);
      if (known !== undefined) known.setLngLat(place);
      else this.shown.set(id, new Marker({ element: ring(), pitchAlignment: "map" }).setLngLat(place).addTo(this.map));
    }
  }

  clear(): void {
    for (const marker of this.shown.values()) marker.remove();
    this.shown.clear();
  }
}

function ring(): HTMLElement {
  const outer = document.createElement("div");
  outer.className = "pulse";
  const inner = document.createElement("div");
  outer.append(inner);
  // The list of the same points is what keyboards and screen readers use.
  outer.setAttribute("aria-hidden", "true");
  return outer;
}
