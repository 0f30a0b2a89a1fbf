// Cut the base map out of the land polygons of the whole Earth: `node scripts/basemap.mjs`.
//
// The package is 117 MB of GeoJSON; the page needs the shore of one region in full detail and the rest of the world only so that
// nobody who zooms out sees a hole. So: inside REGION every point is kept, outside it the rings are simplified and small
// islands and lakes are dropped. The result (about 600 kB, 170 kB compressed) is made when the page is built and is not kept in git.
import { readFile, writeFile, mkdir, rename } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, resolve } from "node:path";
import { fileURLToPath } from "node:url";

/** West, south, east, north of what is kept in full detail: the Helsinki region with some sea around it. */
export const REGION = [23.4, 59.3, 26.6, 61.0];
/** Where people look closely: corners of the shore are rounded there, as the polygons are some hundred metres from point to point. */
const CITY = [24.4, 60.03, 25.4, 60.4];
const WORLD = [-180, -85, 180, 85];
/** Degrees by which a simplified shore may differ from the real one. */
const TOLERANCE = 0.15;
/** Islands and lakes outside the region below this size, in square degrees, are dropped. */
const SMALLEST = 0.15;
/** Parts overlap by this much, in degrees, so that no seam shows. */
const OVERLAP = 0.005;

const home = dirname(fileURLToPath(import.meta.url));

/**
 * Cut a closed ring to a box, one side after the other (Sutherland and Hodgman's way). Where the ring leaves the box, the result
 * runs along its sides.
 */
export function clipRing(ring, [west, south, east, north]) {
  const sides = [
    [(p) => p[0] >= west, (a, b) => crossing(a, b, 0, west)],
    [(p) => p[0] <= east, (a, b) => crossing(a, b, 0, east)],
    [(p) => p[1] >= south, (a, b) => crossing(a, b, 1, south)],
    [(p) => p[1] <= north, (a, b) => crossing(a, b, 1, north)],
  ];
  let points = ring.slice(0, -1);
  for (const [inside, cut] of sides) {
    const kept = [];
    for (let i = 0; i < points.length; i += 1) {
      const point = points[i];
      const before = points[(i + points.length - 1) % points.length];
      if (inside(point)) {
        if (!inside(before)) kept.push(cut(before, point));
        kept.push(point);
      } else if (inside(before)) {
        kept.push(cut(before, point));
      }
    }
    points = kept;
  }
  return points.length < 3 ? null : [...points, points[0]];
}

function crossing(a, b, axis, at) {
  const share = (at - a[axis]) / (b[axis] - a[axis]);
  const point = [a[0] + share * (b[0] - a[0]), a[1] + share * (b[1] - a[1])];
  point[axis] = at;
  return point;
}

/** Leave out points that are within `tolerance` of the line between their neighbours (Douglas and Peucker's way). */
export function simplify(ring, tolerance) {
  if (ring.length <= 4) return ring;
  const keep = new Uint8Array(ring.length);
  keep[0] = keep[ring.length - 1] = 1;
  const spans = [[0, ring.length - 1]];
  while (spans.length > 0) {
    const [first, last] = spans.pop();
    let farthest = -1;
    let most = tolerance * tolerance;
    for (let i = first + 1; i < last; i += 1) {
      const distance = squaredDistance(ring[i], ring[first], ring[last]);
      if (distance > most) [most, farthest] = [distance, i];
    }
    if (farthest > 0) {
      keep[farthest] = 1;
      spans.push([first, farthest], [farthest, last]);
    }
  }
  return ring.filter((_, i) => keep[i]);
}

function squaredDistance([x, y], [ax, ay], [bx, by]) {
  const [dx, dy] = [bx - ax, by - ay];
  const length = dx * dx + dy * dy;
  const share = length === 0 ? 0 : Math.max(0, Math.min(1, ((x - ax) * dx + (y - ay) * dy) / length));
  return (x - ax - share * dx) ** 2 + (y - ay - share * dy) ** 2;
}

/** Cut the corners inside `box`, twice (Chaikin's way). The ring stays closed. */
export function rounded(ring, box, times = 2) {
  let points = ring.slice(0, -1);
  for (let time = 0; time < times; time += 1) {
    points = points.flatMap((point, i) => {
      if (!within(point, box)) return [point];
      const before = points[(i + points.length - 1) % points.length];
      const after = points[(i + 1) % points.length];
      return [mix(point, before), mix(point, after)];
    });
  }
  return [...points, points[0]];
}

const mix = (near, far) => [0.75 * near[0] + 0.25 * far[0], 0.75 * near[1] + 0.25 * far[1]];
const within = ([x, y], [west, south, east, north]) => x > west && x < east && y > south && y < north;

/** The area of a ring in square degrees, without sign. */
export function area(ring) {
  let sum = 0;
  for (let i = 1; i < ring.length; i += 1) sum += ring[i - 1][0] * ring[i][1] - ring[i][0] * ring[i - 1][1];
  return Math.abs(sum) / 2;
}

/** The pieces of a ring that are shore, not the side of the box it was cut with. */
export function shore(ring, [west, south, east, north]) {
  const onSide = (a, b) =>
    (a[0] === b[0] && (a[0] === west || a[0] === east)) || (a[1] === b[1] && (a[1] === south || a[1] === north));
  const lines = [];
  let line = [ring[0]];
  for (let i = 1; i < ring.length; i += 1) {
    if (onSide(ring[i - 1], ring[i])) {
      if (line.length > 1) lines.push(line);
      line = [ring[i]];
    } else {
      line.push(ring[i]);
    }
  }
  if (line.length > 1) lines.push(line);
  return lines;
}

function touches(ring, [west, south, east, north]) {
  let [w, s, e, n] = [180, 90, -180, -90];
  for (const [x, y] of ring) {
    if (x < w) w = x;
    if (x > e) e = x;
    if (y < s) s = y;
    if (y > n) n = y;
  }
  return w <= east && e >= west && s <= north && n >= south;
}

/** Polygons inside `box`, holes included. */
function cut(polygons, box) {
  const found = [];
  for (const polygon of polygons) {
    if (!touches(polygon[0], box)) continue;
    const rings = polygon.map((ring) => clipRing(ring, box)).filter((ring) => ring !== null);
    if (rings.length > 0) found.push(rings);
  }
  return found;
}

const precise = (digits) => (rings) =>
  rings.map((ring) => ring.map((point) => point.map((degrees) => Number(degrees.toFixed(digits)))));

/** Make the base map of all land polygons: fine in the region, coarse around it. */
export function basemap(polygons) {
  const [west, south, east, north] = REGION;
  const fine = cut(polygons, REGION).map((rings) => rings.map((ring) => rounded(ring, CITY)));
  const coarse = polygons
    .filter((polygon) => area(polygon[0]) >= SMALLEST)
    .map((polygon) => polygon.filter((ring) => area(ring) >= SMALLEST).map((ring) => simplify(ring, TOLERANCE)));
  const around = [
    [WORLD[0], WORLD[1], west + OVERLAP, WORLD[3]],
    [east - OVERLAP, WORLD[1], WORLD[2], WORLD[3]],
    [west, WORLD[1], east, south + OVERLAP],
    [west, north - OVERLAP, east, WORLD[3]],
  ].flatMap((box) => cut(coarse, box));
  const lines = fine.flatMap((rings) => rings.flatMap((ring) => shore(ring, REGION)));
  return {
    type: "FeatureCollection",
    features: [
      feature("land", "MultiPolygon", [...fine.map(precise(4)), ...around.map(precise(2))]),
      feature("shore", "MultiLineString", precise(4)(lines)),
    ],
  };
}

function feature(kind, type, coordinates) {
  return { type: "Feature", properties: { kind }, geometry: { type, coordinates } };
}

async function main() {
  const source = createRequire(import.meta.url).resolve("@geo-maps/earth-lands-100m/map.geo.json");
  const target = resolve(home, "../src/generated/land.json");
  const earth = JSON.parse(await readFile(source, "utf8"));
  const polygons = earth.geometries.flatMap((each) => (each.type === "MultiPolygon" ? each.coordinates : [each.coordinates]));
  const text = JSON.stringify(basemap(polygons));
  await mkdir(dirname(target), { recursive: true });
  await writeFile(`${target}.draft`, text);
  await rename(`${target}.draft`, target);
  process.stdout.write(`base map: ${Math.round(text.length / 1024)} kB of ${polygons.length} land polygons\n`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await main();
