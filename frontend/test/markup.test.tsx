// @vitest-environment happy-dom
/** Texts of the stream are data: whatever is in them, the page gets text nodes. */
import { cellToLatLng } from "h3-js";
import { render } from "preact";
import { afterEach, beforeEach, describe, expect, it } from "vitest";

import { NOWHERE_KNOWN, Places } from "../src/map/places";
import { NOWHERE } from "../src/permalink";
import { readDeclaration, readPipeline, readSnapshot, readStatus } from "../src/protocol";
import { App } from "../src/state/app";
import { linesOf, nameOf } from "../src/ui/details";
import { Dock } from "../src/ui/dock";
import { Layers, topOf } from "../src/ui/layers";
import { Notices } from "../src/ui/notices";
import { PipelinePage } from "../src/ui/pipeline";
import { declaration, group, NORTH, SOUTH } from "./messages";

const EVIL = `<img src=x onerror="window.hit=1"><script>window.hit=1</script>`;
const holder = document.createElement("div");

beforeEach(() => {
  document.body.append(holder);
});
afterEach(() => {
  render(null, holder);
  holder.remove();
});

function expectText(): void {
  expect(holder.textContent).toContain(EVIL);
  expect(holder.querySelectorAll("img, script, iframe")).toHaveLength(0);
}

function appWith(kind: string): App {
  const app = new App({ ...NOWHERE, layers: new Map([["evil", null]]) });
  app.link({ state: "connected" });
  app.declarations([
    readDeclaration(
      declaration({
        job: "evil", kind, title: `Title ${EVIL}`, legend: EVIL, values: [], labels: ["name"], columns: [{ name: "name", type: "text" }],
      }),
    ),
  ]);
  app.status(readStatus({ broker: { state: "connected" }, jobs: { evil: { state: "stopped", text: `Stopped: ${EVIL}` } } }));
  const place = { latitude: [60.2], longitude: [24.9] };
  app.snapshot(readSnapshot({ job: "evil", version: 1, groups: [group({ [EVIL]: 1 }, { ...place, values: { name: [EVIL] } })] }));
  return app;
}

describe("markup in the stream is shown as text", () => {
  it("in lists of events", () => {
    render(<Dock app={appWith("points")} view={null} />, holder);
    expectText();
    expect(holder.querySelectorAll("button[data-key]")).toHaveLength(1);
  });

  it("in tables", () => {
    render(<Dock app={appWith("table")} view={null} />, holder);
    expectText();
    expect(holder.querySelector("td")?.textContent).toBe(EVIL);
  });

  it("in the list of layers", () => {
    render(<Layers app={appWith("points")} view={null} />, holder);
    expectText();
  });

  it("in notices", () => {
    render(<Notices app={appWith("points")} />, holder);
    expectText();
  });

  it("on the pipeline page", () => {
    const app = appWith("points");
    app.pipeline(
      readPipeline({
        now: 1,
        problems: [{ severity: "error", stage: "spark", text: EVIL }],
        stages: [{ name: "spark", title: `Spark ${EVIL}`, state: "error", text: EVIL, rates: { [EVIL]: 1 } }],
        queries: [{ query: EVIL, jobs: ["evil", "good"], state: "running", text: EVIL, failed: { evil: `Why: ${EVIL}` }, restarts: 2 }],
        partitions: [{ topic: EVIL, partition: 0, backlog: 4 }],
      }),
    );
    render(<PipelinePage app={app} />, holder);
    expectText();
    expect(holder.querySelector('.stage[data-state="error"]')).not.toBeNull();
    // A job that failed alone is named with the reason, among others that go on.
    expect(holder.querySelector('tr[data-failed="evil"] td[data-bad="true"]')?.textContent).toContain(`Why: ${EVIL}`);
    expect([...holder.querySelectorAll("th small s")].map((each) => each.textContent)).toEqual(["evil"]);
  });

  it("on the pipeline page while figures are old, which is said", () => {
    const app = appWith("points");
    app.pipeline(
      readPipeline({
        now: 1_760_000_060_000,
        stages: [
          { name: "kafka", state: "warning", rates: { backlog: 7 }, refreshed: 1_760_000_000_000, stale: true },
          { name: "spark", state: "error", rates: {}, refreshed: 1_760_000_059_000, stale: false },
        ],
        queries: [{ query: "q", state: "running", heard: 1_760_000_000_000, text: EVIL, stale: true }],
      }),
    );
    render(<PipelinePage app={app} />, holder);
    expectText();
    expect(holder.querySelector('.stage[data-stage="kafka"][data-stale="true"] .as-of')?.textContent).toContain("Not current: as of");
    expect(holder.querySelector('.stage[data-stage="spark"] .as-of')).toBeNull();
    expect(holder.querySelector('tr[data-query="q"] td:last-child')?.getAttribute("data-bad")).toBe("true");
  });
});

describe("an entry in words", () => {
  const known = readDeclaration(
    declaration({
      values: [{ column: "p50", label: "median", unit: "s" }, { column: "p90", unit: "s" }],
      columns: [{ name: "cell", type: "cell" }, { name: "p50", type: "number" }, { name: "p90", type: "number" }, { name: "line", type: "text" }],
    }),
  );
  const app = new App(NOWHERE);
  app.snapshot(
    readSnapshot({ job: known.job, version: 1, groups: [group({ [NORTH]: 1, [SOUTH]: 1 }, { values: { p50: [12, null], p90: [80, 7], line: ["6", "7"] } })] }),
  );
  const entry = app.resultsOf(known.job).get(NORTH);
  if (entry === undefined) throw new Error("the entry is missing");

  it("has its values with units, its other columns, its window and its age, but not its cell twice", () => {
    const lines = linesOf(known, entry, 1_760_000_034_000, "p90");
    expect(lines.map((line) => line.name)).toEqual(["median", "p90", "line", "window", "age"]);
    expect(lines.map((line) => line.text)).toEqual(expect.arrayContaining(["12 s", "80 s", "6", "2.6 s ago"]));
    expect(lines.filter((line) => line.strong).map((line) => line.name)).toEqual(["p90"]);
  });

  it("is called by its key where no text is declared for it", () => {
    expect(nameOf(known, entry, 0, NOWHERE_KNOWN)).toBe(NORTH);
    expect(nameOf({ ...known, labels: ["line"] }, entry, 0, NOWHERE_KNOWN)).toBe("6");
  });

  it("is called by the nearest stop where one is known", () => {
    const stop = (name: string, longitude: number, latitude: number) => ({
      type: "Feature" as const, properties: { kind: "stop", name }, geometry: { type: "Point" as const, coordinates: [longitude, latitude] },
    });
    const [latitude, longitude] = cellToLatLng(NORTH);
    const places = new Places({
      type: "FeatureCollection",
      features: [stop("Far", longitude + 0.01, latitude), stop("Near", longitude + 0.001, latitude), stop("Nowhere", longitude, 9)],
    });
    expect(nameOf(known, entry, 0, places)).toBe("near Near");
    expect(places.of({ ...entry, target: SOUTH })).toMatch(/^Near → /);
    expect(places.near(0, 0)).toBeNull();
  });

  it("is among the greatest by the value that is shown, unless it has none", () => {
    const entries = [...app.resultsOf(known.job).entries()];
    expect(topOf(entries, "p90").map(({ value }) => value)).toEqual([80, 7]);
    expect(topOf(entries, "p50").map(({ value }) => value)).toEqual([12]);
  });
});
