// @vitest-environment happy-dom
import { describe, expect, it } from "vitest";

import { NOWHERE, parse } from "../src/permalink";
import { readDeclaration, readSnapshot, readStatus } from "../src/protocol";
import { App, firstChoice } from "../src/state/app";
import { noticesOf } from "../src/ui/notices";
import { declaration, NORTH, snapshot } from "./messages";

const CELLS = readDeclaration(declaration());
const DELAY = readDeclaration(
  declaration({ job: "delay", values: [{ column: "p50" }, { column: "p90" }], scale: "diverging" }),
);
const STOPS = readDeclaration(declaration({ job: "stops", kind: "points", values: [], columns: [{ name: "line", type: "text" }] }));
const STOPS_SQL = readDeclaration(declaration({ job: "stops-sql", kind: "points", values: [], columns: [{ name: "line", type: "text" }] }));
const TABLE = readDeclaration(declaration({ job: "lines", kind: "table", values: [] }));

describe("layers", () => {
  it("at first: the first cells, and what happens at points, once", () => {
    expect([...firstChoice([TABLE, DELAY, CELLS, STOPS, STOPS_SQL]).keys()]).toEqual(["delay", "stops"]);
    expect([...firstChoice([TABLE]).keys()]).toEqual(["lines"]);
    expect(firstChoice([]).size).toBe(0);
  });

  it("are what the address says, known or not", () => {
    const app = new App(parse("#layers=delay:p90,gone"));
    app.declarations([CELLS, DELAY]);
    expect(app.layers.value.map((layer) => [layer.declaration.job, layer.shown?.column])).toEqual([["delay", "p90"]]);
    expect(app.wanted.value).toEqual(["delay"]);
  });

  it("show the first value if the address names one that is not there", () => {
    const app = new App(parse("#layers=delay:p12"));
    app.declarations([DELAY]);
    expect(app.layers.value[0]?.shown?.column).toBe("p50");
  });

  it("may all be off: an address with none is not an address without any", () => {
    const app = new App(parse("#layers="));
    app.declarations([CELLS]);
    expect(app.layers.value).toEqual([]);
  });

  it("keep their colours when others are switched", () => {
    const app = new App(parse("#layers=vehicle-distribution,flow"));
    app.declarations([CELLS, readDeclaration(declaration({ job: "flow", kind: "edges" }))]);
    const both = app.layers.value.find((layer) => layer.declaration.job === "flow")?.palette;
    app.choose("vehicle-distribution", { on: false });
    expect(app.layers.value[0]?.palette).toBe(both);
    expect(app.layers.value).toHaveLength(1);
  });

  it("go to the address once the viewer has chosen", () => {
    const app = new App(NOWHERE);
    app.declarations([CELLS, DELAY]);
    expect(app.chosenLayers().layers).toBeNull();
    app.choose("delay", { on: true, value: "p90", high: true });
    expect(app.chosenLayers()).toEqual({
      layers: new Map([["vehicle-distribution", null], ["delay", "p90"]]),
      high: ["delay"],
    });
  });

  it("take their selection with them", () => {
    const app = new App(NOWHERE);
    app.declarations([CELLS]);
    app.snapshot(readSnapshot(snapshot(1, { [NORTH]: 2 })));
    app.select({ job: CELLS.job, key: NORTH });
    expect(app.selected()?.key).toBe(NORTH);
    app.choose(CELLS.job, { on: false });
    expect(app.selection.value).toBeNull();
  });
});

describe("notices", () => {
  const status = (broker: string, states: Record<string, [string, string]>) =>
    readStatus({
      broker: { state: broker, text: "" },
      jobs: Object.fromEntries(Object.entries(states).map(([job, [state, text]]) => [job, { state, text, entries: 0 }])),
    });

  function connected(): App {
    const app = new App(NOWHERE);
    app.link({ state: "connected" });
    app.declarations([CELLS]);
    return app;
  }

  it("are none when all is well", () => {
    const app = connected();
    app.status(status("connected", { [CELLS.job]: ["live", ""] }));
    expect(noticesOf(app)).toEqual([]);
  });

  it("tell of no data yet", () => {
    const app = connected();
    app.status(status("connected", { [CELLS.job]: ["waiting", ""] }));
    expect(noticesOf(app)).toMatchObject([{ id: "waiting", severity: "info" }]);
  });

  it("tell of a broker that is gone, and then of nothing that follows from it", () => {
    const app = connected();
    app.status(status("gone", { [CELLS.job]: ["silent", "silent for 20 s"] }));
    expect(noticesOf(app)).toMatchObject([{ id: "broker", severity: "error" }]);
  });

  it("tell of parts of the server whose figures are old", () => {
    const app = connected();
    const parts = [
      { name: "offsets", state: "running", stale: true, refreshed: 1_760_000_000_000 },
      { name: "figures", state: "restarting", stale: false, refreshed: null },
      { name: "results", state: "running", stale: false, refreshed: 1_760_000_000_000 },
    ];
    app.status(readStatus({ broker: { state: "connected" }, jobs: { [CELLS.job]: { state: "live" } }, parts }));
    const [notice] = noticesOf(app);
    expect(notice).toMatchObject({ id: "parts", severity: "warning" });
    expect(notice?.text).toMatch(/not current: offsets \(as of .*\), figures\./);
  });

  it("tell of a job that stopped, in the server's words", () => {
    const app = connected();
    app.status(status("connected", { [CELLS.job]: ["stopped", "Start it: headrace run vehicle-distribution."] }));
    expect(noticesOf(app)).toMatchObject([{ severity: "warning", text: "Start it: headrace run vehicle-distribution." }]);
  });

  it("tell of a lost connection, and that what is seen is old", () => {
    const app = connected();
    app.link({ state: "lost", why: "transport close" });
    const [notice] = noticesOf(app);
    expect(notice).toMatchObject({ id: "link", severity: "error" });
    expect(notice?.text).toContain("what you see is from then");
  });

  it("tell why the server refused", () => {
    const app = connected();
    app.link({ state: "refused", why: "A token is needed." });
    expect(noticesOf(app)[0]?.text).toContain("A token is needed.");
  });

  it("tell that no layer is on", () => {
    const app = connected();
    app.choose(CELLS.job, { on: false });
    app.status(status("connected", {}));
    expect(noticesOf(app)).toMatchObject([{ id: "none" }]);
  });
});
