import { cellToBoundary, gridDisk, latLngToCell } from "h3-js";
import { describe, expect, it } from "vitest";

import { arrows, cellAt, hexagons, resolutionOf, shapeOf } from "../src/map/geometry";
import { heightShare } from "../src/map/pictures";
import { NORTH } from "./messages";

const shape = (cell: string) => {
  const found = shapeOf(cell);
  if (found === null) throw new Error(`${cell} is no cell`);
  return found;
};

describe("cells", () => {
  it("have the corners that H3 says", () => {
    const corners = cellToBoundary(NORTH).flatMap(([latitude, longitude]) => [longitude, latitude]);
    expect([...shape(NORTH).corners]).toEqual(corners);
    expect(shapeOf(NORTH)).toBe(shapeOf(NORTH));
  });

  it.each(["", "nonsense", "891126d3317fff", "ffffffffffffffff", "<script>", "0"])("that are none have no shape: %s", (text) => {
    expect(shapeOf(text)).toBeNull();
    expect(resolutionOf(text)).toBeNull();
  });

  it("on the date line stay in one piece", () => {
    const { centre, corners } = shape(latLngToCell(10, 179.9999, 5));
    for (let at = 0; at < corners.length; at += 2) expect(Math.abs((corners[at] ?? 0) - centre[0])).toBeLessThan(1);
  });

  it("are found by a place in them", () => {
    const [longitude, latitude] = shape(NORTH).centre;
    expect(cellAt(longitude, latitude, 9)).toBe(NORTH);
  });
});

describe("hexagons", () => {
  it("are closed rings, each in as many triangles as it takes", () => {
    const shapes = gridDisk(NORTH, 1).map(shape);
    const mesh = hexagons(shapes, 0.9);
    expect(mesh.length).toBe(7);
    expect([...mesh.starts]).toEqual([0, 7, 14, 21, 28, 35, 42, 49]);
    expect(mesh.indices).toHaveLength(7 * 4 * 3);
    for (let ring = 0; ring < 7; ring += 1) {
      const first = 2 * (mesh.starts[ring] ?? 0);
      const last = 2 * ((mesh.starts[ring + 1] ?? 0) - 1);
      expect([mesh.positions[last], mesh.positions[last + 1]]).toEqual([mesh.positions[first], mesh.positions[first + 1]]);
    }
  });

  it("may have five corners", () => {
    const pentagon = shape("8009fffffffffff");
    const mesh = hexagons([pentagon, shape(NORTH)], 1);
    expect(mesh.starts[1]).toBe(pentagon.corners.length / 2 + 1);
    expect(Math.max(...mesh.indices)).toBeLessThan(mesh.positions.length / 2);
  });

  it("of less than full size lie inside their cells", () => {
    const { centre, corners } = shape(NORTH);
    const mesh = hexagons([shape(NORTH)], 0.5);
    expect((mesh.positions[0] ?? 0) - centre[0]).toBeCloseTo(0.5 * ((corners[0] ?? 0) - centre[0]), 12);
  });
});

describe("arrows", () => {
  it("begin in one cell and point to the other, the two of a pair beside each other", () => {
    const other = gridDisk(NORTH, 1).find((cell) => cell !== NORTH) ?? "";
    const mesh = arrows([shape(NORTH), shape(other)], [shape(other), shape(NORTH)], new Float32Array([1, 1]));
    const tip = (arrow: number) => cellAt(mesh.positions[2 * (8 * arrow + 3)] ?? 0, mesh.positions[2 * (8 * arrow + 3) + 1] ?? 0, 9);
    const tail = (arrow: number) => cellAt(mesh.positions[16 * arrow] ?? 0, mesh.positions[16 * arrow + 1] ?? 0, 9);
    expect([tail(0), tip(0), tail(1), tip(1)]).toEqual([NORTH, other, other, NORTH]);
    expect([...mesh.positions].every((degrees) => Number.isFinite(degrees))).toBe(true);
  });

  it("grow with their value", () => {
    const other = gridDisk(NORTH, 1).find((cell) => cell !== NORTH) ?? "";
    const width = (share: number): number => {
      const { positions } = arrows([shape(NORTH)], [shape(other)], new Float32Array([share]));
      return Math.hypot((positions[0] ?? 0) - (positions[12] ?? 0), (positions[1] ?? 0) - (positions[13] ?? 0));
    };
    expect(width(1)).toBeGreaterThan(2 * width(0));
  });
});

it("stands values up from zero, not without limit", () => {
  const domain = { least: -100, greatest: 100, below: false, above: false };
  expect([0, 50, -50, 100, 1e9].map((value) => heightShare(value, domain))).toEqual([0, 0.5, 0.5, 1, 2]);
});
