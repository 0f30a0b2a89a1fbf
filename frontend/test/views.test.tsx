// @vitest-environment happy-dom
/** The views of jobs without a place: which keys they show, in which order, what they mark, and what they say without results. */
import { render } from "preact";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

import { NOWHERE, parse } from "../src/permalink";
import { type Declaration, readDeclaration, readSnapshot, readStatus } from "../src/protocol";
import { App } from "../src/state/app";
import type { Entry } from "../src/state/results";
import { SeriesMemory } from "../src/state/series";
import { BoardPage, inOrder } from "../src/ui/board";
import { changeOf } from "../src/ui/views/numbers";
import { Changes, firstOrder, sorted } from "../src/ui/views/table";
import { greatest, steady } from "../src/ui/views/top";
import { declaration, group } from "./messages";

const VALUE = { column: "scans", label: "scans", unit: "" };
const COLUMNS = [{ name: "depot", type: "text" }, { name: "scans", type: "number" }];

function job(kind: string, more: Record<string, unknown> = {}): Declaration {
  const values = kind === "table" ? [] : [VALUE];
  return readDeclaration(declaration({ job: "depots", kind, keys: ["depot"], cell: null, values, columns: COLUMNS, ...more }));
}

let version = 0;

function write(app: App, rows: Record<string, number | null>, end = 1_760_000_030_000): Entry[] {
  const keys = Object.keys(rows);
  const times = { window_end: end, event_time: end - 1 };
  const values = { depot: keys, scans: Object.values(rows) };
  const entries = Object.fromEntries(keys.map((key) => [key, 1]));
  app.snapshot(readSnapshot({ job: "depots", version: (version += 1), groups: [group(entries, { ...times, values })] }));
  return [...app.resultsOf("depots").entries()];
}

const holder = document.createElement("div");
beforeEach(() => { document.body.append(holder); });
afterEach(() => {
  render(null, holder);
  holder.remove();
});

describe("pages", () => {
  it("are a board where no job has a place, and a map where one has", () => {
    const app = new App(NOWHERE);
    expect(app.page.value).toBeNull();
    app.declarations([job("bars")]);
    expect([app.page.value, app.wanted.value]).toEqual(["board", ["depots"]]);
    app.declarations([job("bars"), readDeclaration(declaration())]);
    expect(app.page.value).toBe("map");
  });

  it("show no map without a place, whatever the address says", () => {
    const app = new App(parse("#page=map"));
    app.declarations([job("number")]);
    expect(app.page.value).toBe("board");
  });

  it("of a job follow its outputs only, and forget the edge of another job", () => {
    const app = new App(parse("#page=job&job=depots&edge=source-0.stateful-0"));
    app.declarations([job("bars"), job("table", { job: "depots.more", run: "depots" }), job("table", { job: "other", run: "other" })]);
    expect(app.wanted.value).toEqual(["depots", "depots.more"]);
    app.open("job", "other");
    expect([app.jobShown.value, app.edge.value, app.wanted.value]).toEqual(["other", null, ["other"]]);
  });

  it("list what is read at a glance first", () => {
    const kinds = ["table", "cells", "series", "number", "bars"].map((kind) => job(kind));
    expect(inOrder(kinds).map((each) => each.kind)).toEqual(["number", "bars", "series", "table", "cells"]);
  });
});

describe("keys", () => {
  const app = new App(NOWHERE);
  const entries = write(app, { a: 3, b: 9, c: null, d: 9, e: -1 });

  it("with the greatest values come first; without a value there is no place", () => {
    expect(greatest(entries, "scans", 3).map(({ entry, value }) => [entry.key, value])).toEqual([["b", 9], ["d", 9], ["a", 3]]);
  });

  it("whose curves are shown stay while they are near the top", () => {
    expect(steady(entries, "scans", 2, ["a", "b"])).toEqual(["a", "b"]);
    expect(steady(entries, "scans", 1, ["a"])).toEqual(["b"]);
  });

  it("are sorted as asked, those without a value last either way", () => {
    const keys = (down: boolean) => sorted(entries, { column: "scans", down }).map((entry) => entry.key);
    expect(keys(true)).toEqual(["b", "d", "a", "e", "c"]);
    expect(keys(false)).toEqual(["e", "a", "b", "d", "c"]);
    expect(firstOrder(job("table"))).toEqual({ column: "depot", down: false });
    expect(firstOrder(job("table", { each: true }))).toEqual({ column: null, down: true });
  });
});

it("a table marks what has changed since it appeared, for a while", () => {
  const app = new App(NOWHERE);
  const changes = new Changes();
  changes.see(write(app, { a: 1, b: 2 }), ["depot", "scans"], 0);
  expect(changes.isFresh("a", "scans", 0)).toBe(false);
  changes.see(write(app, { a: 5, b: 2, c: 1 }), ["depot", "scans"], 1000);
  const fresh = ["a", "b", "c"].map((key) => changes.isFresh(key, "scans", 1500));
  expect(fresh).toEqual([true, false, true]);
  expect(changes.isFresh("a", "depot", 1500)).toBe(false);
  expect(changes.isFresh("a", "scans", 9000)).toBe(false);
});

it("curves carry on what the server has kept, and forget keys that are not shown", () => {
  const app = new App(NOWHERE);
  const memory = new SeriesMemory("depots", "scans", false);
  memory.follow(write(app, { a: 5, b: 1 }, 1000));
  memory.follow(write(app, { a: 6 }, 6000));
  const kept = [500, 1000].map((time) => ({ eventTime: time, windowEnd: null, values: new Map([["scans", 3]]) }));
  memory.remember("a", kept);
  expect(memory.of("a")).toEqual({ at: [500, 1000, 6000], values: [3, 5, 6] });
  expect(memory.together(["a", "b"]).values).toEqual([[3, 5, 6], [null, null, null]]);
  expect(changeOf([500, 6000], [3, 6])).toEqual({ by: 3, since: 5500 });
  expect(changeOf([1], [1])).toBeNull();
});

describe("the board", () => {
  function board(kind: string, state: string, text: string): App {
    const app = new App(NOWHERE);
    app.link({ state: "connected" });
    app.declarations([job(kind)]);
    app.status(readStatus({ broker: { state: "connected" }, jobs: { depots: { state, text, entries: 2 } } }));
    return app;
  }

  it("shows bars with the numbers of the results", () => {
    const app = board("bars", "live", "");
    write(app, { north: 4, south: 12_345 });
    render(<BoardPage app={app} />, holder);
    const rows = [...holder.querySelectorAll(".bars li")].map((row) => row.textContent);
    expect(rows).toEqual(["south12,345", "north4"]);
  });

  it("shows a number per key", () => {
    const app = board("number", "live", "");
    write(app, { north: 4, south: 7 });
    vi.stubGlobal("fetch", () => Promise.resolve(Response.json({ points: [] })));
    render(<BoardPage app={app} />, holder);
    vi.unstubAllGlobals();
    expect([...holder.querySelectorAll(".numbers-value")].map((each) => each.textContent)).toEqual(["4", "7"]);
  });

  it("says why there is nothing, in the server's words", () => {
    render(<BoardPage app={board("table", "stopped", "Start it: headrace run depots.")} />, holder);
    expect(holder.querySelector(".empty")?.textContent).toBe("Start it: headrace run depots.");
  });

  it("says what to do where there is no job", () => {
    const app = new App(NOWHERE);
    app.declarations([]);
    render(<BoardPage app={app} />, holder);
    expect(holder.textContent).toContain("headrace new");
  });
});
