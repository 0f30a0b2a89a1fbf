/**
 * Pictures of jobs: one class per kind, each from results to layers of deck.gl.
 *
 * A picture is made anew only when its results or its looks have changed, and as typed arrays that go to the graphics card as they
 * are: no object and no function call per entry and frame. Corners are reused while the same cells are shown.
 */
import type { Layer as DeckLayer } from "@deck.gl/core";
import { ArcLayer, ScatterplotLayer, SolidPolygonLayer } from "@deck.gl/layers";

import { indexOf, table, type Theme } from "../colour";
import { type Domain, domainOf, shareOf } from "../scale";
import type { Layer } from "../state/app";
import { type Entry, numberOf } from "../state/results";
import { arrows, type CellShape, hexagons, type Mesh, shapeOf } from "./geometry";

/** How a picture should look, beside its data. */
export interface Looks {
  readonly theme: Theme;
  /** The share of its cell that a hexagon fills: the second layer of cells is drawn inside the first. */
  readonly size: number;
  /** Whether the values are no longer current: they pale. */
  readonly stale: boolean;
}

/** What is under the pointer, by the number that the graphics card knows it by. */
export interface Picture {
  readonly layers: DeckLayer[];
  readonly domain: Domain | null;
  /** Entries that are drawn, in the order of their numbers. */
  readonly drawn: readonly Entry[];
  /** Entries without a place or value that can be drawn. */
  readonly left: number;
}

interface Valued {
  readonly entries: Entry[];
  readonly values: Float64Array;
  readonly left: number;
}

/** Metres of the greatest value of the scale. */
const TALLEST = 1300;
const NO_VALUE: Record<Theme, readonly [number, number, number]> = { light: [150, 150, 150], dark: [110, 116, 128] };

/** Makes the pictures of one job, and remembers what can be used again. */
export class Painter {
  private domain: Domain | null = null;
  private domainFor = "";
  private made: { id: string; picture: Picture } | null = null;
  private mesh: { id: string; shapes: readonly CellShape[]; mesh: Mesh } | null = null;

  paint(layer: Layer, looks: Looks): Picture {
    const { results, shown, palette, choice } = layer;
    const id = [results.revision, shown?.column, palette, choice.high, looks.theme, looks.size, looks.stale].join("/");
    if (this.made?.id !== id) this.made = { id, picture: this.draw(layer, looks) };
    return this.made.picture;
  }

  private draw(layer: Layer, looks: Looks): Picture {
    switch (layer.declaration.kind) {
      case "cells":
        return this.cells(layer, looks);
      case "arcs":
        return this.arcs(layer, looks);
      case "edges":
        return this.edges(layer, looks);
      case "points":
        return this.points(layer, looks);
      case "table":
      case "chart":
      case "bars":
      case "series":
      case "number":
        return { layers: [], domain: null, drawn: [], left: 0 };
    }
  }

  private cells(layer: Layer, looks: Looks): Picture {
    const shapes: CellShape[] = [];
    const found = this.valued(layer, (entry) => {
      const shape = shapeOf(entry.cell ?? "");
      if (shape !== null) shapes.push(shape);
      return shape !== null;
    });
    const domain = this.ends(layer, found.values);
    const mesh = this.meshOf(shapes, looks.size);
    const { high } = layer.choice;
    const colours = this.cornerColours(layer, looks, domain, found.values, mesh, high ? 235 : 205);
    const attributes: Record<string, object> = {
      getPolygon: { value: mesh.positions, size: 2 },
      indices: { value: mesh.indices, size: 1 },
      getFillColor: { value: colours, size: 4, normalized: true },
    };
    if (high) attributes["getElevation"] = { value: heights(found.values, domain, mesh), size: 1 };
    const drawn = new SolidPolygonLayer({
      id: `${layer.declaration.job}/cells/${high ? "high" : "flat"}`,
      data: { length: mesh.length, startIndices: mesh.starts, attributes } as never,
      _normalize: false,
      _windingOrder: "CCW",
      positionFormat: "XY",
      extruded: high,
      elevationScale: TALLEST,
      material: { ambient: 0.55, diffuse: 0.55, shininess: 20, specularColor: [40, 40, 40] },
      // Flat cells are found by their coordinates, which costs nothing; only standing ones need the graphics card.
      pickable: high,
      parameters: { depthCompare: high ? "less-equal" : "always", cullMode: "none" },
    });
    return { layers: [drawn], domain, drawn: found.entries, left: found.left };
  }

  private edges(layer: Layer, looks: Looks): Picture {
    const [from, to]: [CellShape[], CellShape[]] = [[], []];
    const found = this.valued(layer, (entry) => {
      const [start, end] = [shapeOf(entry.cell ?? ""), shapeOf(entry.target ?? "")];
      if (start === null || end === null || start === end) return false;
      from.push(start);
      to.push(end);
      return true;
    });
    const domain = this.ends(layer, found.values);
    const widths = Float32Array.from(found.values, (value) => (Number.isNaN(value) ? 0 : shareOf(value, domain)));
    const mesh = arrows(from, to, widths);
    const drawn = new SolidPolygonLayer({
      id: `${layer.declaration.job}/edges`,
      data: {
        length: mesh.length,
        startIndices: mesh.starts,
        attributes: {
          getPolygon: { value: mesh.positions, size: 2 },
          indices: { value: mesh.indices, size: 1 },
          getFillColor: { value: this.cornerColours(layer, looks, domain, found.values, mesh, 240), size: 4, normalized: true },
        },
      } as never,
      _normalize: false,
      positionFormat: "XY",
      pickable: true,
      parameters: { depthCompare: "always", cullMode: "none" },
    });
    return { layers: [drawn], domain, drawn: found.entries, left: found.left };
  }

  private arcs(layer: Layer, looks: Looks): Picture {
    const [from, to]: [CellShape[], CellShape[]] = [[], []];
    const found = this.valued(layer, (entry) => {
      const [start, end] = [shapeOf(entry.cell ?? ""), shapeOf(entry.target ?? "")];
      if (start === null || end === null) return false;
      from.push(start);
      to.push(end);
      return true;
    });
    const domain = this.ends(layer, found.values);
    // The more there are, the more they cover each other: thinner and paler.
    const crowd = Math.min(1, Math.sqrt(120 / Math.max(1, found.entries.length)));
    const colours = this.colours(layer, looks, domain, found.values, 40 + 190 * crowd);
    // In a crowd the great ones stand out, and what lies below can be seen.
    for (const [at, value] of found.values.entries()) {
      const share = Number.isNaN(value) ? 0 : shareOf(value, domain);
      colours[4 * at + 3] = (colours[4 * at + 3] ?? 0) * (crowd + (1 - crowd) * (0.3 + 0.7 * share));
    }
    const marks = this.colours(layer, looks, domain, found.values, 150 + 80 * crowd);
    const pale = colours.slice();
    for (let at = 3; at < pale.length; at += 4) pale[at] = (pale[at] ?? 0) * 0.3;
    const widths = Float32Array.from(
      found.values,
      (value) => 1 + (1.5 + 3.5 * crowd) * (Number.isNaN(value) ? 0 : shareOf(value, domain) ** 1.5),
    );
    const length = found.entries.length;
    const arcs = new ArcLayer({
      id: `${layer.declaration.job}/arcs`,
      data: {
        length,
        attributes: {
          getSourcePosition: { value: middles(from), size: 2 },
          getTargetPosition: { value: middles(to), size: 2 },
          getSourceColor: { value: pale, size: 4, normalized: true },
          getTargetColor: { value: colours, size: 4, normalized: true },
          getWidth: { value: widths, size: 1 },
        },
      } as never,
      getHeight: 0.35,
      getTilt: 18,
      numSegments: 28,
      pickable: true,
      parameters: { depthCompare: "always" },
    });
    const ends = new ScatterplotLayer({
      id: `${layer.declaration.job}/arcs/ends`,
      data: {
        length,
        attributes: {
          getPosition: { value: middles(to), size: 2 },
          getFillColor: { value: marks, size: 4, normalized: true },
        },
      } as never,
      getRadius: 4,
      radiusUnits: "pixels",
      parameters: { depthCompare: "always" },
    });
    return { layers: [arcs, ends], domain, drawn: found.entries, left: found.left };
  }

  private points(layer: Layer, looks: Looks): Picture {
    const places: number[] = [];
    const found = this.valued(layer, ({ latitude, longitude }) => {
      if (latitude === null || longitude === null || Math.abs(latitude) > 90 || Math.abs(longitude) > 180) return false;
      places.push(longitude, latitude);
      return true;
    });
    const length = found.entries.length;
    const colour = ALARM[looks.theme];
    const drawn = new ScatterplotLayer({
      id: `${layer.declaration.job}/points`,
      data: { length, attributes: { getPosition: { value: Float64Array.from(places), size: 2 } } } as never,
      getRadius: 6.5,
      radiusUnits: "pixels",
      getFillColor: [...colour, looks.stale ? 110 : 255],
      stroked: true,
      getLineColor: looks.theme === "dark" ? [12, 17, 27, 255] : [255, 255, 255, 255],
      getLineWidth: 1.5,
      lineWidthUnits: "pixels",
      pickable: true,
      parameters: { depthCompare: "always" },
    });
    return { layers: [drawn], domain: null, drawn: found.entries, left: found.left };
  }

  /** The entries that have a place, with the value that is shown; NaN where there is none. */
  private valued(layer: Layer, hasPlace: (entry: Entry) => boolean): Valued {
    const entries: Entry[] = [];
    let left = 0;
    for (const entry of layer.results.entries()) {
      if (hasPlace(entry)) entries.push(entry);
      else left += 1;
    }
    const column = layer.shown?.column;
    const values = new Float64Array(entries.length);
    for (const [at, entry] of entries.entries()) values[at] = column === undefined ? NaN : (numberOf(entry, column) ?? NaN);
    return { entries, values, left };
  }

  private ends(layer: Layer, values: Float64Array): Domain {
    const { scale, domain: declared } = layer.declaration;
    const column = layer.shown?.column ?? "";
    // Another column, or a job that begins anew, has nothing to do with the scale before.
    const before = this.domainFor === column ? this.domain : null;
    const known = values.filter((value) => !Number.isNaN(value));
    this.domain = domainOf(known, { scale, declared, before });
    this.domainFor = column;
    return this.domain;
  }

  private meshOf(shapes: readonly CellShape[], size: number): Mesh {
    const before = this.mesh;
    const id = `${size}/${shapes.length}`;
    if (before?.id === id && shapes.every((shape, at) => shape === before.shapes[at])) return before.mesh;
    const mesh = hexagons(shapes, size);
    this.mesh = { id, shapes, mesh };
    return mesh;
  }

  /** Four bytes per entry: its colour on the layer's scale. */
  private colours(layer: Layer, looks: Looks, domain: Domain, values: Float64Array, alpha: number): Uint8Array {
    const colours = table(layer.palette, looks.theme);
    const made = new Uint8Array(values.length * 4);
    const opacity = looks.stale ? alpha * 0.45 : alpha;
    for (const [at, value] of values.entries()) {
      const known = !Number.isNaN(value);
      const from = 3 * indexOf(known ? shareOf(value, domain) : 0);
      for (let part = 0; part < 3; part += 1) {
        made[4 * at + part] = (known ? colours[from + part] : NO_VALUE[looks.theme][part]) ?? 0;
      }
      made[4 * at + 3] = known ? opacity : opacity * 0.6;
    }
    return made;
  }

  /** The same colour for all corners of a polygon. */
  private cornerColours(layer: Layer, looks: Looks, domain: Domain, values: Float64Array, mesh: Mesh, alpha: number): Uint8Array {
    const own = new Uint32Array(this.colours(layer, looks, domain, values, alpha).buffer);
    const made = new Uint32Array(mesh.positions.length / 2);
    for (const [number, colour] of own.entries()) made.fill(colour, mesh.starts[number], mesh.starts[number + 1]);
    return new Uint8Array(made.buffer);
  }
}

/** The colour of things that happened: stands out from every scale, light and dark. */
export const ALARM: Record<Theme, readonly [number, number, number]> = { light: [196, 30, 58], dark: [255, 92, 108] };

function heights(values: Float64Array, domain: Domain, mesh: Mesh): Float32Array {
  const made = new Float32Array(mesh.positions.length / 2);
  for (const [number, value] of values.entries()) {
    const share = Number.isNaN(value) ? 0 : heightShare(value, domain);
    made.fill(share, mesh.starts[number], mesh.starts[number + 1]);
  }
  return made;
}

/** How high a value stands: from zero, to either side. Beyond the ends of the scale it may grow, up to twice. */
export function heightShare(value: number, domain: Domain): number {
  const far = Math.max(Math.abs(domain.least), Math.abs(domain.greatest));
  return far > 0 ? Math.min(2, Math.abs(value) / far) : 0;
}

function middles(shapes: readonly CellShape[]): Float64Array {
  const made = new Float64Array(shapes.length * 2);
  for (const [at, { centre }] of shapes.entries()) made.set(centre, 2 * at);
  return made;
}
