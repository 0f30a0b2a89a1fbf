/**
 * The base map that needs no network: land and shore from the polygons that the build cut out, lines and stops from the backend, names
 * in the viewer's own fonts.
 */
import type { ExpressionSpecification, StyleSpecification } from "maplibre-gl";

import type { Theme } from "../colour";
import landUrl from "../generated/land.json?url";

export const NETWORK = "network";
/** Layers of data are drawn below this one. */
export const FIRST_LABEL = "label-stop";

const ATTRIBUTION = "Land © OpenStreetMap contributors (ODbL)";

const COLOURS: Record<Theme, Record<"sea" | "land" | "shore" | "name" | "halo" | "stop", string>> = {
  light: { sea: "#cddde6", land: "#f4f3ee", shore: "#a9c0cc", name: "#4a5560", halo: "#f8f7f3", stop: "#7d8791" },
  dark: { sea: "#0a121d", land: "#161f2c", shore: "#2b3a4c", name: "#a9b4c0", halo: "#101823", stop: "#5d6b7b" },
};

/** The colours that a line of the network may ask for by its number. */
const LINES: Record<Theme, readonly [string, string, string, string, string]> = {
  light: ["#9db4cf", "#9cc3a5", "#e2b48c", "#b9a8cf", "#8fbccb"],
  dark: ["#33475f", "#2f5140", "#5f4a35", "#4a3f60", "#2c505c"],
};

const FONT = ["system-ui", "sans-serif"];

const kind = (name: string): ExpressionSpecification => ["==", ["get", "kind"], name];

export const NO_NETWORK: GeoJSON.FeatureCollection = { type: "FeatureCollection", features: [] };

/** The style of the whole base map in the colours of a theme, with the lines and stops that are known. */
export function baseStyle(theme: Theme, network: GeoJSON.FeatureCollection): StyleSpecification {
  const colour = COLOURS[theme];
  const label = { "text-color": colour.name, "text-halo-color": colour.halo, "text-halo-width": 1.4 };
  const [usual, ...others] = LINES[theme];
  const line: ExpressionSpecification = ["match", ["get", "colour"], 1, others[0], 2, others[1], 3, others[2], 4, others[3], usual];
  return {
    version: 8,
    name: "Headrace",
    sources: {
      land: { type: "geojson", data: new URL(landUrl, document.baseURI).href, attribution: ATTRIBUTION, tolerance: 0.2 },
      [NETWORK]: { type: "geojson", data: network },
    },
    layers: [
      { id: "sea", type: "background", paint: { "background-color": colour.sea } },
      { id: "land", type: "fill", source: "land", filter: kind("land"), paint: { "fill-color": colour.land, "fill-antialias": false } },
      { id: "shore", type: "line", source: "land", filter: kind("shore"), paint: { "line-color": colour.shore, "line-width": 1 } },
      {
        id: "lines", type: "line", source: NETWORK, filter: kind("line"),
        layout: { "line-join": "round", "line-cap": "round" },
        paint: {
          "line-color": line,
          "line-width": ["interpolate", ["linear"], ["zoom"], 8, 0.6, 11, 1.3, 15, 3],
          "line-opacity": 0.85,
        },
      },
      {
        id: "stops", type: "circle", source: NETWORK, minzoom: 11.5, filter: kind("stop"),
        paint: {
          "circle-color": colour.halo,
          "circle-stroke-color": colour.stop,
          "circle-stroke-width": ["interpolate", ["linear"], ["zoom"], 11.5, 0.6, 15, 1.6],
          "circle-radius": ["interpolate", ["linear"], ["zoom"], 11.5, 1.2, 15, 4],
        },
      },
      {
        id: FIRST_LABEL, type: "symbol", source: NETWORK, minzoom: 12.8, filter: kind("stop"),
        layout: {
          "text-field": ["get", "name"], "text-font": FONT, "text-size": 11, "text-anchor": "top", "text-offset": [0, 0.5],
          "text-optional": true,
        },
        paint: label,
      },
      {
        id: "label-town", type: "symbol", source: NETWORK,
        filter: ["all", kind("town"), ["any", ["<=", ["get", "rank"], 2], [">=", ["zoom"], 9.5]]],
        layout: {
          "text-field": ["get", "name"], "text-font": FONT, "symbol-sort-key": ["get", "rank"],
          "text-size": ["match", ["get", "rank"], 1, 15, 2, 13, 11.5],
          "text-letter-spacing": 0.02,
        },
        paint: { ...label, "text-opacity": ["interpolate", ["linear"], ["zoom"], 12, 1, 13.5, 0] },
      },
    ],
  };
}
