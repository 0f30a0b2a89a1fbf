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

const COLOURS: Record<Theme, Record<"sea" | "land" | "shore" | "name" | "halo" | "stop" | "bus" | "tram" | "metro" | "train" | "ferry", string>> = {
  light: {
    sea: "#cddde6", land: "#f4f3ee", shore: "#a9c0cc", name: "#4a5560", halo: "#f8f7f3", stop: "#7d8791",
    bus: "#9db4cf", tram: "#9cc3a5", metro: "#e2b48c", train: "#b9a8cf", ferry: "#8fbccb",
  },
  dark: {
    sea: "#0a121d", land: "#161f2c", shore: "#2b3a4c", name: "#a9b4c0", halo: "#101823", stop: "#5d6b7b",
    bus: "#33475f", tram: "#2f5140", metro: "#5f4a35", train: "#4a3f60", ferry: "#2c505c",
  },
};

const FONT = ["system-ui", "sans-serif"];

/** Towns by which people find their way; places are approximate, written by hand. */
const TOWNS: readonly [name: string, longitude: number, latitude: number, rank: number][] = [
  ["Helsinki", 24.941, 60.17, 1], ["Espoo", 24.656, 60.206, 2], ["Vantaa", 25.04, 60.294, 2], ["Tallinn", 24.753, 59.437, 1],
  ["Kerava", 25.105, 60.403, 3], ["Järvenpää", 25.09, 60.474, 3], ["Tuusula", 25.03, 60.403, 3], ["Sipoo", 25.27, 60.377, 3],
  ["Kirkkonummi", 24.44, 60.123, 3], ["Porvoo", 25.665, 60.393, 3], ["Nurmijärvi", 24.807, 60.464, 3],
];

const kind = (name: string): ExpressionSpecification => ["==", ["get", "kind"], name];

export const NO_NETWORK: GeoJSON.FeatureCollection = { type: "FeatureCollection", features: [] };

/** The style of the whole base map in the colours of a theme, with the lines and stops that are known. */
export function baseStyle(theme: Theme, network: GeoJSON.FeatureCollection): StyleSpecification {
  const colour = COLOURS[theme];
  const label = { "text-color": colour.name, "text-halo-color": colour.halo, "text-halo-width": 1.4 };
  const mode: ExpressionSpecification = [
    "match", ["get", "mode"],
    "tram", colour.tram, "metro", colour.metro, "train", colour.train, "ferry", colour.ferry, colour.bus,
  ];
  return {
    version: 8,
    name: "Headrace",
    sources: {
      land: { type: "geojson", data: new URL(landUrl, document.baseURI).href, attribution: ATTRIBUTION, tolerance: 0.2 },
      towns: { type: "geojson", data: towns() },
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
          "line-color": mode,
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
        id: "label-town", type: "symbol", source: "towns",
        filter: ["any", ["<=", ["get", "rank"], 2], [">=", ["zoom"], 9.5]],
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

function towns(): GeoJSON.FeatureCollection {
  return {
    type: "FeatureCollection",
    features: TOWNS.map(([name, longitude, latitude, rank]) => ({
      type: "Feature",
      properties: { name, rank },
      geometry: { type: "Point", coordinates: [longitude, latitude] },
    })),
  };
}
