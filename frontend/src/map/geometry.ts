/**
 * Shapes on the map from H3 cells. What a cell looks like never changes, so it is computed once and kept.
 */
import { cellToBoundary, cellToLatLng, getResolution, isValidCell, latLngToCell } from "h3-js";

/** Longitude and latitude of the middle. */
export type Place = readonly [number, number];

export interface CellShape {
  readonly centre: Place;
  /** Longitude, latitude, ... of the corners; the first is not repeated. Five or six of them, rarely more. */
  readonly corners: Float64Array;
}

/** How many shapes are kept: a whole metropolis at resolution 9 is a tenth of this. */
const MOST = 200_000;
const shapes = new Map<string, CellShape | null>();

/** The shape of a cell; null for a text that is no cell. */
export function shapeOf(cell: string): CellShape | null {
  const known = shapes.get(cell);
  if (known !== undefined) return known;
  if (shapes.size >= MOST) shapes.clear();
  const made = isValidCell(cell) ? draw(cell) : null;
  shapes.set(cell, made);
  return made;
}

function draw(cell: string): CellShape {
  const [latitude, longitude] = cellToLatLng(cell);
  const boundary = cellToBoundary(cell);
  const corners = new Float64Array(boundary.length * 2);
  for (const [at, [lat, lon]] of boundary.entries()) {
    corners[2 * at] = near(lon, longitude);
    corners[2 * at + 1] = lat;
  }
  return { centre: [longitude, latitude], corners };
}

/** A cell on the date line has corners on both sides of it: keep them together. */
function near(longitude: number, middle: number): number {
  if (longitude - middle > 180) return longitude - 360;
  return longitude - middle < -180 ? longitude + 360 : longitude;
}

export function resolutionOf(cell: string): number | null {
  return isValidCell(cell) ? getResolution(cell) : null;
}

export function cellAt(longitude: number, latitude: number, resolution: number): string {
  return latLngToCell(latitude, longitude, resolution);
}

/** Polygons in the form that the graphics card takes: all corners in a row, and triangles by their numbers. */
export interface Mesh {
  readonly length: number;
  readonly positions: Float64Array;
  /** Where each polygon begins, in corners; one more than there are polygons. */
  readonly starts: Uint32Array;
  readonly indices: Uint32Array;
}

/** Hexagons around their middles, `size` of their true size. Each ring is closed by repeating its first corner. */
export function hexagons(found: readonly CellShape[], size: number): Mesh {
  let [corners, triangles] = [0, 0];
  for (const { corners: own } of found) {
    corners += own.length / 2 + 1;
    triangles += own.length / 2 - 2;
  }
  const positions = new Float64Array(corners * 2);
  const indices = new Uint32Array(triangles * 3);
  const starts = new Uint32Array(found.length + 1);
  let [at, index] = [0, 0];
  for (const [number, { centre, corners: own }] of found.entries()) {
    const first = at;
    starts[number] = first;
    const count = own.length / 2;
    for (let corner = 0; corner <= count; corner += 1, at += 1) {
      const from = 2 * (corner % count);
      positions[2 * at] = centre[0] + size * ((own[from] ?? 0) - centre[0]);
      positions[2 * at + 1] = centre[1] + size * ((own[from + 1] ?? 0) - centre[1]);
    }
    for (let corner = 1; corner < count - 1; corner += 1) {
      indices[index++] = first;
      indices[index++] = first + corner;
      indices[index++] = first + corner + 1;
    }
  }
  starts[found.length] = at;
  return { length: found.length, positions, starts, indices };
}

const ARROW_CORNERS = 8;
const ARROW_TRIANGLES = [0, 1, 5, 0, 5, 6, 2, 3, 4];

/**
 * Arrows from cell to cell. They keep to the right of the line between the middles, so that two opposite ones are both seen; their
 * width is a share (0..1) of what fits.
 */
export function arrows(from: readonly CellShape[], to: readonly CellShape[], widths: Float32Array): Mesh {
  const positions = new Float64Array(from.length * ARROW_CORNERS * 2);
  const indices = new Uint32Array(from.length * ARROW_TRIANGLES.length);
  const starts = Uint32Array.from({ length: from.length + 1 }, (_, number) => number * ARROW_CORNERS);
  for (const [number, start] of from.entries()) {
    const end = to[number] ?? start;
    // On a plane where a degree has the same length both ways.
    const squeeze = Math.max(0.01, Math.cos((start.centre[1] * Math.PI) / 180));
    const [dx, dy] = [(near(end.centre[0], start.centre[0]) - start.centre[0]) * squeeze, end.centre[1] - start.centre[1]];
    const length = Math.hypot(dx, dy);
    const [ux, uy] = length === 0 ? [0, 1] : [dx / length, dy / length];
    const radius = radiusOf(start, squeeze);
    const half = radius * (0.05 + 0.17 * (widths[number] ?? 0));
    const head = Math.min(2.1 * half, 0.5 * radius);
    const tip = Math.max(length * 0.86, radius * 0.6);
    const neck = tip - 1.5 * head;
    const aside = 0.22 * radius;
    const corners: [number, number][] = [
      [length * 0.12, half], [neck, half], [neck, head], [tip, 0], [neck, -head], [neck, -half], [length * 0.12, -half],
    ];
    corners.push([length * 0.12, half]);
    for (const [corner, [along, left]] of corners.entries()) {
      const at = 2 * (number * ARROW_CORNERS + corner);
      const across = left - aside;
      positions[at] = start.centre[0] + (along * ux - across * uy) / squeeze;
      positions[at + 1] = start.centre[1] + (along * uy + across * ux);
    }
    for (const [at, corner] of ARROW_TRIANGLES.entries()) {
      indices[number * ARROW_TRIANGLES.length + at] = number * ARROW_CORNERS + corner;
    }
  }
  return { length: from.length, positions, starts, indices };
}

/** Distance from the middle of a cell to its first corner, in degrees of latitude. */
function radiusOf({ centre, corners }: CellShape, squeeze: number): number {
  return Math.hypot(((corners[0] ?? 0) - centre[0]) * squeeze, (corners[1] ?? 0) - centre[1]);
}
