/** The page: top bar, map with its panels, pipeline. */
import { useEffect, useRef, useState } from "preact/hooks";

import * as format from "../format";
import { MapView } from "../map/mapview";
import type { Page, View } from "../permalink";
import type { App } from "../state/app";
import { dependsOn } from "../state/depends";
import { choice, choose, type ThemeChoice } from "../theme";
import { BoardPage } from "./board";
import { cardCount, Dock } from "./dock";
import { JobPage } from "./job";
import { Layers } from "./layers";
import { Notices } from "./notices";
import { PipelinePage } from "./pipeline";
import { Tooltip } from "./tooltip";
import { Vitals } from "./vitals";

export interface MapSettings {
  readonly view: View;
  readonly style: string | null;
}

export function Root(props: { app: App; settings: MapSettings; onMap: (view: MapView) => void }) {
  const { app } = props;
  const page = app.page.value;
  useEscape(() => {
    if (app.page.peek() !== "map") app.select(null);
  });
  return (
    <>
      <a class="skip" href="#content" onClick={(event) => { skip(event); }}>Skip to the content</a>
      <TopBar app={app} />
      {/* Once drawn, the map stays: it is dear to make. */}
      {app.hasMap.value === true && <MapPage {...props} hidden={page !== "map"} />}
      {page === null && <BeginningPage app={app} />}
      {page === "board" && <BoardPage app={app} />}
      {page === "job" && <JobPage app={app} />}
      {page === "pipeline" && <PipelinePage app={app} />}
    </>
  );
}

function useEscape(close: () => void): void {
  useEffect(() => {
    const listen = (event: KeyboardEvent): void => {
      if (event.key === "Escape") close();
    };
    window.addEventListener("keydown", listen);
    return () => {
      window.removeEventListener("keydown", listen);
    };
  }, []);
}

/** Before the server has said what there is to see. */
function BeginningPage({ app }: { app: App }) {
  return (
    <main class="board" id="content" tabIndex={-1}>
      <h1 class="unseen">Headrace</h1>
      <Notices app={app} />
    </main>
  );
}

/** The address after `#` belongs to the permalink: move the focus without it. */
function skip(event: Event): void {
  event.preventDefault();
  (document.querySelector<HTMLElement>("main:not([hidden]) #layers") ?? document.querySelector<HTMLElement>("main:not([hidden])"))?.focus();
}

function TopBar({ app }: { app: App }) {
  const wrong = app.work.value?.problems.filter((problem) => problem.severity === "error").length ?? 0;
  return (
    <header class="topbar">
      <span class="brand">
        <svg viewBox="0 0 32 32" width="24" height="24" aria-hidden="true">
          <path d="M16 1.5 28.6 8.8v14.4L16 30.5 3.4 23.2V8.8z" class="brand-cell" />
          <path d="M7 13.2c3-2.6 6-2.6 9 0s6 2.6 9 0M7 19.2c3-2.6 6-2.6 9 0s6 2.6 9 0" class="brand-water" />
        </svg>
        <span>{app.config.value?.title ?? "Headrace"}</span>
      </span>
      <nav aria-label="Pages">
        {app.hasMap.value === true && <PageButton app={app} page="map" text="Map" />}
        <PageButton app={app} page="board" text="Board" />
        <PageButton app={app} page="job" text="Steps" />
        <PageButton app={app} page="pipeline" text="Pipeline" alarm={wrong} />
      </nav>
      <LinkState app={app} />
      <ThemeButton />
    </header>
  );
}

function PageButton({ app, page, text, alarm = 0 }: { app: App; page: Page; text: string; alarm?: number }) {
  return (
    <button
      type="button"
      class="tab"
      aria-current={app.page.value === page ? "page" : undefined}
      onClick={() => { app.open(page); }}
    >
      {text}
      {alarm > 0 && <span class="alarm">{alarm}<span class="unseen"> {alarm === 1 ? "problem" : "problems"}</span></span>}
    </button>
  );
}

const LINK: Record<string, string> = { connecting: "connecting", connected: "live", lost: "not connected", refused: "refused" };

function LinkState({ app }: { app: App }) {
  dependsOn(app.second);
  const { state } = app.link_.value;
  const gone = state === "connected" && app.state.value?.broker.state === "gone";
  return (
    <span class="link" data-state={gone ? "broker-gone" : state} title={`Server's time: ${format.time(app.clock.now(), app.clock.now())}`}>
      <span class="link-dot" aria-hidden="true" />
      <span class="link-text">{gone ? "Kafka gone" : LINK[state]}</span>
    </span>
  );
}

const THEMES: Record<ThemeChoice, { next: ThemeChoice; mark: string; text: string }> = {
  system: { next: "light", mark: "◐", text: "as the system" },
  light: { next: "dark", mark: "☀", text: "light" },
  dark: { next: "system", mark: "☾", text: "dark" },
};

function ThemeButton() {
  const { next, mark, text } = THEMES[choice.value];
  return (
    <button
      type="button"
      class="icon-button theme"
      aria-label={`Colours: ${text}. Change to ${THEMES[next].text}`}
      title={`Colours: ${text}`}
      onClick={() => { choose(next); }}
    >
      <span aria-hidden="true">{mark}</span>
    </button>
  );
}

// ---------------------------------------------------------------- the map and what lies on it

type Sheet = "layers" | "details" | null;

function MapPage(props: { app: App; settings: MapSettings; hidden: boolean; onMap: (view: MapView) => void }) {
  const { app, settings, hidden } = props;
  const holder = useRef<HTMLDivElement>(null);
  const [view, setView] = useState<MapView | null>(null);
  const [failure, setFailure] = useState<string | null>(null);
  const [sheet, setSheet] = useState<Sheet>(null);
  // Drawing takes memory and a graphics card: not before somebody wants to see the map.
  const [wanted, setWanted] = useState(!hidden);
  const cards = cardCount(app);

  useEffect(() => {
    const element = holder.current;
    if (element === null || !wanted) return undefined;
    if (!canDraw()) {
      setFailure("This browser cannot draw the map (WebGL 2 is missing or switched off). Lists, tables and the pipeline page work.");
      return undefined;
    }
    const made = new MapView(element, app, settings);
    setView(made);
    props.onMap(made);
    return () => {
      made.destroy();
    };
  }, [wanted]);

  useEffect(() => {
    if (hidden) return;
    setWanted(true);
    view?.resize();
  }, [hidden, view]);

  // On a small screen a selection opens the sheet that tells about it.
  const selection = app.selection.value;
  useEffect(() => {
    if (selection !== null) setSheet("details");
  }, [selection]);

  useEscape(() => {
    if (app.page.peek() !== "map") return;
    if (app.selection.peek() !== null) app.select(null);
    else setSheet(null);
  });

  const toggle = (which: Sheet): void => {
    setSheet((open) => (open === which ? null : which));
  };
  return (
    <main class="map-page" hidden={hidden} data-sheet={sheet ?? "none"}>
      <h1 class="unseen">Map</h1>
      <div class="map" ref={holder} />
      {failure !== null && <p class="notice no-map" data-severity="error">{failure}</p>}
      <Notices app={app} />
      <aside class="panel side" id="layers" tabIndex={-1} aria-label="Layers" data-sheet="layers">
        <Layers app={app} view={view} />
        <Vitals app={app} />
      </aside>
      <aside class="dock" aria-label="Details" data-sheet="details" hidden={cards === 0}>
        <Dock app={app} view={view} />
      </aside>
      <div class="sheet-buttons">
        <button type="button" aria-expanded={sheet === "layers"} onClick={() => { toggle("layers"); }}>Layers</button>
        <button type="button" aria-expanded={sheet === "details"} disabled={cards === 0} onClick={() => { toggle("details"); }}>
          Details{cards > 0 ? ` (${cards})` : ""}
        </button>
      </div>
      {view !== null && !hidden && <Tooltip app={app} view={view} />}
    </main>
  );
}

function canDraw(): boolean {
  return document.createElement("canvas").getContext("webgl2") !== null;
}
