/**
 * The map: MapLibre for the ground and for moving about, deck.gl for the results, drawn into the same canvas between the ground and
 * its names. Whatever changes, the picture is brought up to date once per frame at most.
 */
import { type Layer as DeckLayer, type PickingInfo } from "@deck.gl/core";
import { PathLayer } from "@deck.gl/layers";
import { MapboxOverlay } from "@deck.gl/mapbox";
import { effect, type Signal, signal } from "@preact/signals";
import { type GeoJSONSource, Map as MapLibre, NavigationControl, ScaleControl, setWorkerUrl } from "maplibre-gl";
import workerUrl from "maplibre-gl/dist/maplibre-gl-worker.mjs?url";

import type { Theme } from "../colour";
import type { View } from "../permalink";
import type { Domain } from "../scale";
import type { App, Layer } from "../state/app";
import { dependsOn } from "../state/depends";
import type { Entry } from "../state/results";
import { theme } from "../theme";
import { baseStyle, FIRST_LABEL, NETWORK, NO_NETWORK } from "./base";
import { cellAt, resolutionOf, shapeOf } from "./geometry";
import { Painter, type Picture } from "./pictures";
import { Pulses } from "./pulses";

// A file of our own instead of a blob: the page's policy lets no other script run, not even in a worker.
setWorkerUrl(new URL(workerUrl, document.baseURI).href);

export interface Hit {
  readonly layer: Layer;
  readonly entry: Entry;
}

export interface Hover {
  readonly x: number;
  readonly y: number;
  readonly hits: readonly Hit[];
}

/** The sizes of hexagons when several layers of cells are on: each inside the one before. */
const SIZES = [0.94, 0.6, 0.32];

export class MapView {
  readonly hover: Signal<Hover | null> = signal(null);
  /** The ends of each layer's scale, for its legend. */
  readonly domains: Signal<ReadonlyMap<string, Domain>> = signal(new Map());
  readonly ready: Signal<boolean> = signal(false);
  /** Grows when the map has come to rest somewhere else. */
  readonly moved: Signal<number> = signal(0);

  private readonly map: MapLibre;
  private readonly overlay: MapboxOverlay;
  private readonly painters = new Map<string, Painter>();
  private readonly pulses: Pulses;
  private pictures = new Map<string, Picture>();
  private scheduled = 0;
  private pointer: { x: number; y: number } | null = null;
  private picked: Hit | null = null;
  private network: GeoJSON.FeatureCollection | null = null;
  private pointing = 0;
  private moving = false;
  private readonly undo: (() => void)[] = [];

  constructor(
    container: HTMLElement,
    private readonly app: App,
    options: { view: View; style: string | null },
  ) {
    const { view, style } = options;
    let drawn: Theme = theme.peek();
    this.map = new MapLibre({
      container,
      style: style ?? baseStyle(drawn, NO_NETWORK),
      center: [view.longitude, view.latitude],
      zoom: view.zoom,
      bearing: view.bearing,
      pitch: view.pitch,
      maxPitch: 60,
      minZoom: 1,
      maxZoom: 19,
      // Nobody reads stops' names while the map turns: no fading saves frames on small machines.
      fadeDuration: 150,
      attributionControl: { compact: true },
      canvasContextAttributes: { antialias: !drawsInSoftware() },
      locale: { "Map.Title": "Map of the results" },
    });
    this.map.addControl(new NavigationControl({ visualizePitch: true }), "bottom-right");
    this.map.addControl(new ScaleControl({ maxWidth: 90 }), "bottom-right");
    this.overlay = new MapboxOverlay({
      interleaved: true,
      layers: [],
      pickingRadius: 4,
      onHover: (info) => {
        this.picked = this.hitOf(info);
        this.schedulePointer();
      },
    });
    letDeckMeasure(this.map);
    this.map.addControl(this.overlay);
    this.pulses = new Pulses(this.map);

    this.map.on("load", () => {
      this.ready.value = true;
      if (container.clientWidth < 700) foldAttribution(container);
      this.showNetwork();
      this.refresh();
    });
    this.map.on("mousemove", (event) => {
      this.pointer = event.point;
      this.schedulePointer();
    });
    this.map.on("mouseout", () => {
      this.pointer = null;
      this.hover.value = null;
    });
    this.map.on("movestart", () => {
      this.hover.value = null;
      this.moves(true);
    });
    this.map.on("moveend", () => {
      // Not read here: an effect that moves the map would depend on what it changes.
      this.moved.value = this.moved.peek() + 1;
      this.moves(false);
    });
    this.map.on("click", (event) => {
      this.click(event.point);
    });
    this.map.on("error", (event) => {
      const reason = event.error instanceof Error ? event.error.message : "unknown reason";
      app.trouble(`A part of the map could not be loaded (${reason}).`);
    });

    this.undo.push(
      effect(() => {
        if (style === null && theme.value !== drawn) {
          drawn = theme.value;
          this.map.setStyle(baseStyle(drawn, this.network ?? NO_NETWORK), { diff: true });
        }
      }),
      effect(() => {
        // Everything that a picture depends on: read here, so that a change of any calls for a new one.
        dependsOn(app.layers, app.revision, app.selection, app.link_, app.page, theme, this.ready);
        this.schedule();
      }),
    );
  }

  /** Where the map is now. */
  view(): View {
    const { lng, lat } = this.map.getCenter();
    return { zoom: this.map.getZoom(), latitude: lat, longitude: lng, bearing: this.map.getBearing(), pitch: this.map.getPitch() };
  }

  go(view: View): void {
    this.map.jumpTo({ center: [view.longitude, view.latitude], zoom: view.zoom, bearing: view.bearing, pitch: view.pitch });
  }

  /** Fly to an entry, near enough to see what is around it. */
  fly(entry: Entry): void {
    const place = placeOf(entry);
    if (place === null) return;
    this.map.flyTo({ center: [place[0], place[1]], zoom: Math.max(this.map.getZoom(), 14), duration: 1200 });
  }

  /** Show everything that is drawn; false if there is nothing yet. */
  showAll(): boolean {
    const places = this.app.layers.peek().flatMap(({ results }) => [...results.entries()].map(placeOf).filter((place) => place !== null));
    if (places.length === 0) return false;
    const [east, north] = [places.map((place) => place[0]), places.map((place) => place[1])];
    const [least, greatest] = [(values: number[]) => values.reduce((one, two) => Math.min(one, two)), (values: number[]) => values.reduce((one, two) => Math.max(one, two))];
    this.map.fitBounds([least(east), least(north), greatest(east), greatest(north)], { padding: 60, maxZoom: 13, animate: false });
    return true;
  }

  /** Tilt the map when cells stand up, and lay it flat again. */
  tilt(pitch: number): void {
    this.map.easeTo({ pitch, duration: 600 });
  }

  setNetwork(network: GeoJSON.FeatureCollection): void {
    this.network = network;
    this.showNetwork();
  }

  resize(): void {
    this.map.resize();
  }

  /** What is drawn of a job, for the inspection of the page. */
  drawn(job: string): number {
    return this.pictures.get(job)?.drawn.length ?? 0;
  }

  /** Where on the page a place is: pixels from the map's upper left corner. */
  project(longitude: number, latitude: number): { x: number; y: number } {
    const { x, y } = this.map.project([longitude, latitude]);
    return { x, y };
  }

  destroy(): void {
    for (const each of this.undo) each();
    cancelAnimationFrame(this.scheduled);
    this.pulses.clear();
    this.map.remove();
  }

  private showNetwork(): void {
    const source = this.map.getSource<GeoJSONSource>(NETWORK);
    if (this.network !== null && source !== undefined) void source.setData(this.network);
  }

  private schedule(): void {
    if (this.scheduled === 0) {
      this.scheduled = requestAnimationFrame(() => {
        this.scheduled = 0;
        this.refresh();
      });
    }
  }

  private refresh(): void {
    // Nobody sees the map while the pipeline is shown: it is brought up to date when it is.
    if (!this.ready.peek() || this.app.page.peek() !== "map") return;
    const layers = this.app.layers.peek();
    const stale = this.app.link_.peek().state !== "connected";
    const pictures = new Map<string, Picture>();
    const domains = new Map<string, Domain>();
    let cells = 0;
    for (const layer of layers) {
      const { job, kind } = layer.declaration;
      const painter = this.painters.get(job) ?? new Painter();
      this.painters.set(job, painter);
      const size = kind === "cells" ? (SIZES[cells++] ?? 0.2) : 1;
      const picture = painter.paint(layer, { theme: theme.peek(), size, stale });
      pictures.set(job, picture);
      if (picture.domain !== null) domains.set(job, picture.domain);
    }
    this.pictures = pictures;
    if (!same(domains, this.domains.peek())) this.domains.value = domains;
    this.draw();
    this.pulses.show(layers);
    // What is under a resting pointer may have changed, too.
    if (this.pointer !== null) this.schedulePointer();
  }

  /** While the map moves nothing asks what is under the pointer: for all but flat cells that is a second drawing in every frame. */
  private moves(moving: boolean): void {
    this.moving = moving;
    if (this.ready.peek() && this.app.layers.peek().some(needsPicking)) this.draw();
  }

  private draw(): void {
    // Points above everything, then arrows and arcs, cells at the bottom.
    const order = ["cells", "edges", "arcs", "points"];
    const layers = [...this.app.layers.peek()]
      .sort((one, two) => order.indexOf(one.declaration.kind) - order.indexOf(two.declaration.kind))
      .flatMap(({ declaration }) => this.pictures.get(declaration.job)?.layers ?? []);
    this.overlay.setProps({ layers: this.placed([...layers, ...this.outlines()]) });
    this.map.triggerRepaint();
  }

  /** Between the ground and its names. */
  private placed(layers: DeckLayer[]): DeckLayer[] {
    const beforeId = this.map.getLayer(FIRST_LABEL) === undefined ? undefined : FIRST_LABEL;
    return layers.map((each) => each.clone({ beforeId, pickable: !this.moving && each.props.pickable === true } as object) as DeckLayer);
  }

  private outlines(): DeckLayer[] {
    const shape = shapeOf(this.app.selected()?.cell ?? "");
    if (shape === null) return [];
    const corners: [number, number][] = [];
    for (let at = 0; at < shape.corners.length; at += 2) corners.push([shape.corners[at] ?? 0, shape.corners[at + 1] ?? 0]);
    const first = corners[0];
    if (first !== undefined) corners.push(first);
    return [
      new PathLayer({
        id: "selected",
        data: [{ path: corners }],
        getPath: (each: { path: [number, number][] }) => each.path,
        getColor: theme.peek() === "dark" ? [255, 255, 255, 255] : [15, 23, 32, 255],
        getWidth: 2.5,
        widthUnits: "pixels",
        jointRounded: true,
        parameters: { depthCompare: "always" },
      }),
    ];
  }

  // ---------------------------------------------------------------- what is under the pointer

  private schedulePointer(): void {
    if (this.pointing !== 0) return;
    this.pointing = requestAnimationFrame(() => {
      this.pointing = 0;
      if (this.pointer === null || this.map.isMoving()) return;
      const hits = this.hitsAt(this.pointer, this.picked);
      this.map.getCanvas().style.cursor = hits.length > 0 ? "pointer" : "";
      this.hover.value = hits.length === 0 ? null : { x: this.pointer.x, y: this.pointer.y, hits };
    });
  }

  private click(point: { x: number; y: number }): void {
    const picked = this.app.layers.peek().some(needsPicking) ? this.hitOf(this.overlay.pickObject({ ...point, radius: 6 })) : null;
    const first = this.hitsAt(point, picked)[0];
    this.app.select(first === undefined ? null : { job: first.layer.declaration.job, key: first.entry.key });
  }

  /** Flat cells by their coordinates; the rest is what the graphics card says. */
  private hitsAt(point: { x: number; y: number }, picked: Hit | null): Hit[] {
    const { lng, lat } = this.map.unproject([point.x, point.y]);
    const hits: Hit[] = picked?.layer.results.get(picked.entry.key) === undefined ? [] : [picked];
    for (const layer of this.app.layers.peek()) {
      if (layer.declaration.kind !== "cells" || needsPicking(layer)) continue;
      const resolution = this.resolution(layer);
      if (resolution === null || Math.abs(lat) > 90) continue;
      for (const entry of layer.results.at(cellAt(lng, lat, resolution))) hits.push({ layer, entry });
    }
    return hits;
  }

  private resolution(layer: Layer): number | null {
    for (const entry of layer.results.entries()) {
      const found = entry.cell === null ? null : resolutionOf(entry.cell);
      if (found !== null) return found;
    }
    return null;
  }

  private hitOf(info: PickingInfo | null): Hit | null {
    if (info?.layer === null || info?.layer === undefined || info.index < 0) return null;
    const job = info.layer.id.split("/")[0] ?? "";
    const layer = this.app.layers.peek().find((each) => each.declaration.job === job);
    const entry = this.pictures.get(job)?.drawn[info.index];
    return layer === undefined || entry === undefined ? null : { layer, entry: layer.results.get(entry.key) ?? entry };
  }
}

/**
 * deck.gl 9.4 divides by `map.transform.height` when it draws into the map's canvas; MapLibre 6 no longer shows its transform. The
 * height is all that is read of it.
 */
function letDeckMeasure(map: MapLibre): void {
  if ("transform" in map) return;
  // Kept, and not asked of the page: every frame wants to know, and asking may make the browser lay out the page.
  const transform = { height: map.getCanvas().clientHeight };
  map.on("resize", () => {
    transform.height = map.getCanvas().clientHeight;
  });
  Object.defineProperty(map, "transform", { get: () => transform });
}

/** Without a graphics card every sample of every pixel costs the processor: smooth movement is worth more than smooth edges. */
function drawsInSoftware(): boolean {
  const gl = document.createElement("canvas").getContext("webgl2");
  const info = gl?.getExtension("WEBGL_debug_renderer_info");
  if (gl === null || info === null || info === undefined) return false;
  const renderer: unknown = gl.getParameter(info.UNMASKED_RENDERER_WEBGL);
  gl.getExtension("WEBGL_lose_context")?.loseContext();
  return typeof renderer === "string" && /swiftshader|llvmpipe|softpipe|software/i.test(renderer);
}

/** On a small screen the sources are behind the "i", not over the map. */
function foldAttribution(container: HTMLElement): void {
  const shown = container.querySelector(".maplibregl-ctrl-attrib");
  shown?.classList.remove("maplibregl-compact-show");
  shown?.removeAttribute("open");
}

const needsPicking = (layer: Layer): boolean => layer.declaration.kind !== "cells" || layer.choice.high;

/** Longitude and latitude of an entry. */
export function placeOf(entry: Entry): readonly [number, number] | null {
  if (entry.longitude !== null && entry.latitude !== null) return [entry.longitude, entry.latitude];
  return shapeOf(entry.cell ?? "")?.centre ?? null;
}

function same(one: ReadonlyMap<string, Domain>, two: ReadonlyMap<string, Domain>): boolean {
  if (one.size !== two.size) return false;
  return [...one].every(([job, domain]) => {
    const other = two.get(job);
    return (
      other?.least === domain.least &&
      other.greatest === domain.greatest &&
      other.above === domain.above &&
      other.below === domain.below
    );
  });
}
