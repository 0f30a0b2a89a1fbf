/** Names for places: the nearest stop that the backend's network knows. A cell's number tells people nothing. */
import { gridDisk, latLngToCell } from "h3-js";

import type { Entry } from "../state/results";
import { shapeOf } from "./geometry";

/** Stops are kept by cells of this size, about 500 m across; one is looked for in the cell of a place and those around it. */
const RESOLUTION = 8;

interface Stop {
  readonly name: string;
  readonly longitude: number;
  readonly latitude: number;
}

export class Places {
  private readonly stops = new Map<string, Stop[]>();

  constructor(network: GeoJSON.FeatureCollection) {
    for (const { geometry, properties } of network.features) {
      const name: unknown = properties?.["name"];
      if (properties?.["kind"] !== "stop" || geometry.type !== "Point" || typeof name !== "string" || name === "") continue;
      const [longitude, latitude] = geometry.coordinates;
      if (longitude === undefined || latitude === undefined || Math.abs(latitude) > 90) continue;
      const cell = latLngToCell(latitude, longitude, RESOLUTION);
      const others = this.stops.get(cell);
      if (others === undefined) this.stops.set(cell, [{ name, longitude, latitude }]);
      else others.push({ name, longitude, latitude });
    }
  }

  /** The name of the stop that is nearest, within about a kilometre. */
  near(longitude: number, latitude: number): string | null {
    const squeeze = Math.cos((latitude * Math.PI) / 180);
    let [found, least]: [string | null, number] = [null, Infinity];
    for (const cell of gridDisk(latLngToCell(latitude, longitude, RESOLUTION), 1)) {
      for (const stop of this.stops.get(cell) ?? []) {
        const distance = Math.hypot((stop.longitude - longitude) * squeeze, stop.latitude - latitude);
        if (distance < least) [found, least] = [stop.name, distance];
      }
    }
    return found;
  }

  /** Where an entry is, in words: "near Kamppi", "Kamppi → Pasila"; null if nobody knows. */
  of(entry: Entry): string | null {
    const start = this.nearEntry(entry);
    if (start === null) return null;
    const target = shapeOf(entry.target ?? "");
    if (target === null) return `near ${start}`;
    const end = this.near(target.centre[0], target.centre[1]);
    return end === null ? `near ${start}` : `${start} → ${end}`;
  }

  private nearEntry(entry: Entry): string | null {
    if (entry.longitude !== null && entry.latitude !== null) {
      return Math.abs(entry.latitude) > 90 ? null : this.near(entry.longitude, entry.latitude);
    }
    const shape = shapeOf(entry.cell ?? "");
    return shape === null ? null : this.near(shape.centre[0], shape.centre[1]);
  }
}

export const NOWHERE_KNOWN = new Places({ type: "FeatureCollection", features: [] });
