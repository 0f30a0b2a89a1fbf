type Ring = [number, number][];
type Box = readonly [number, number, number, number];

export const REGION: Box;
export function clipRing(ring: Ring, box: Box): Ring | null;
export function simplify(ring: Ring, tolerance: number): Ring;
export function rounded(ring: Ring, box: Box, times?: number): Ring;
export function area(ring: Ring): number;
export function shore(ring: Ring, box: Box): Ring[];
export function basemap(polygons: Ring[][]): {
  type: "FeatureCollection";
  features: { type: "Feature"; properties: { kind: string }; geometry: { type: string; coordinates: unknown[] } }[];
};
