/** The front door: settings, state, connection, page. */
import "maplibre-gl/dist/maplibre-gl.css";
import "./style.css";
import "./board.css";

import { effect, type Signal, signal, untracked } from "@preact/signals";
import { render } from "preact";

import { ApiError, ask, BASE, refusal } from "./api";
import { inspect } from "./inspect";
import type { MapView } from "./map/mapview";
import { Places } from "./map/places";
import { format, parse, type View } from "./permalink";
import { readConfig, readCurves, readNetwork } from "./protocol";
import { App } from "./state/app";
import { Connection, dial } from "./state/connection";
import { dependsOn } from "./state/depends";
import { Root } from "./ui/app";

/** Longitude and latitude of the middle of a map of the world. */
const WORLD = [0, 20] as const;

async function start(): Promise<void> {
  const holder = document.getElementById("app");
  if (holder === null) throw new Error("the page has no element #app");
  const link = parse(location.hash);
  const app = new App(link);
  const config = await ask("api/config").then(readConfig).catch((error: unknown) => {
    if (!(error instanceof ApiError)) throw error;
    app.trouble(`${error.message} The page starts with its usual settings.`);
    return readConfig({});
  });
  app.config.value = config;
  document.title = config.title;
  const [longitude, latitude] = config.map.center ?? WORLD;
  const usual: View = { zoom: config.map.zoom, latitude, longitude, bearing: 0, pitch: link.high.length > 0 ? 50 : 0 };
  const settings = { view: link.view ?? usual, linked: link.view, style: config.map.style };
  const map: Signal<MapView | null> = signal(null);

  const connection = new Connection(dial(BASE), app, refusal);
  app.onWanted((jobs) => {
    connection.subscribe(jobs);
  });
  setInterval(() => {
    if (document.visibilityState === "visible") app.second.value += 1;
  }, 1000);
  keepCurves(app);
  keepAddress(app, settings, map);

  render(
    <Root
      app={app}
      settings={settings}
      onMap={(made) => {
        map.value = made;
        inspect(app, made);
        keepNetwork(app, made);
        if (link.view === null && config.map.center === null) showFirst(app, made);
      }}
    />,
    holder,
  );
  inspect(app, null);
}

/** The curves of the last hour, whenever a server is there to ask: after a break it knows what was missed. */
function keepCurves(app: App): void {
  effect(() => {
    if (app.link_.value.state !== "connected") return;
    void quietly(app, async () => {
      app.curves.load(readCurves(await ask("api/pipeline")));
    });
  });
}

/** Where nobody says where the map begins, it begins with what there is to see. */
function showFirst(app: App, map: MapView): void {
  let shown = false;
  const stop = effect(() => {
    dependsOn(app.revision);
    if (shown || !map.ready.value) return;
    shown = untracked(() => map.showAll());
    if (shown) queueMicrotask(() => { stop(); });
  });
}

function keepNetwork(app: App, map: MapView): void {
  void quietly(app, async () => {
    const network = readNetwork(await ask("api/network"));
    map.setNetwork(network);
    app.places.value = new Places(network);
  });
}

async function quietly(app: App, work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    app.trouble(error.message);
  }
}

/** The address says what is seen, and what the address says is seen; also before there is a map. */
function keepAddress(app: App, settings: { view: View; linked: View | null }, map: Signal<MapView | null>): void {
  let written = location.hash;
  effect(() => {
    const shown = map.value;
    if (shown !== null) dependsOn(shown.moved);
    dependsOn(app.choices);
    const next = format({
      ...app.chosenLayers(),
      view: shown?.view() ?? settings.linked,
      page: app.asked.value,
      job: app.job.value,
      edge: app.edge.value,
      selection: app.selection.value,
    });
    if (next === written) return;
    written = next;
    history.replaceState(null, "", next);
  });
  window.addEventListener("hashchange", () => {
    if (location.hash === written) return;
    written = location.hash;
    const link = parse(location.hash);
    app.follow(link);
    if (link.view === null) return;
    settings.view = settings.linked = link.view;
    map.peek()?.go(link.view);
  });
}

void start();
