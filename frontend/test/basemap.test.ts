import { describe, expect, it } from "vitest";

import { area, basemap, clipRing, REGION, rounded, shore, simplify } from "../scripts/basemap.mjs";

type Ring = [number, number][];
const BOX: [number, number, number, number] = [0, 0, 10, 10];
const square = (west: number, south: number, size: number): Ring => [
  [west, south], [west + size, south], [west + size, south + size], [west, south + size], [west, south],
];

describe("cutting a ring to a box", () => {
  it("keeps what is inside and leaves out what is outside", () => {
    expect(clipRing(square(2, 2, 3), BOX)).toEqual(square(2, 2, 3));
    expect(clipRing(square(20, 20, 3), BOX)).toBeNull();
  });

  it("cuts along the sides", () => {
    const cut = clipRing(square(5, 5, 10), BOX);
    expect(area(cut ?? [])).toBeCloseTo(25);
    expect(cut?.[0]).toEqual(cut?.at(-1));
  });

  it("fills the box from a ring around it", () => {
    expect(area(clipRing(square(-50, -50, 200), BOX) ?? [])).toBeCloseTo(100);
  });
});

it("tells the shore from the sides of the box", () => {
  const cut = clipRing(square(5, 5, 10), BOX) ?? [];
  const length = shore(cut, BOX).flatMap((line: Ring) => line.slice(1).map((end, at) => Math.hypot(end[0] - (line[at]?.[0] ?? 0), end[1] - (line[at]?.[1] ?? 0))));
  expect(length.reduce((one: number, two: number) => one + two, 0)).toBeCloseTo(10);
});

it("leaves out points that say little", () => {
  const ring: Ring = [[0, 0], [5, 0.01], [10, 0], [10, 10], [0, 10], [0, 0]];
  expect(simplify(ring, 0.1)).toEqual([[0, 0], [10, 0], [10, 10], [0, 10], [0, 0]]);
  expect(simplify(ring, 0.001)).toEqual(ring);
});

it("rounds corners inside a box only", () => {
  const ring = rounded(square(0, 0, 4), [3, 3, 5, 5], 1);
  expect(ring).toEqual([[0, 0], [4, 0], [4, 3], [3, 4], [0, 4], [0, 0]]);
});

it("is fine in the region and coarse around it", () => {
  const [west, south] = REGION;
  const island: Ring = square(west + 0.5, south + 0.2, 0.01);
  const farIsland: Ring = square(100, 10, 0.01);
  const continent: Ring = square(-20, 30, 10);
  const made = basemap([[island], [farIsland], [continent]]);
  const [land, coast] = made.features;
  expect(land?.geometry.coordinates).toHaveLength(2);
  expect(coast?.properties.kind).toBe("shore");
  expect(coast?.geometry.coordinates).toHaveLength(1);
});
