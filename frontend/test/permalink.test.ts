import { describe, expect, it } from "vitest";

import { format, NOWHERE, parse, type Permalink } from "../src/permalink";

const FULL: Permalink = {
  view: { zoom: 12.5, latitude: 60.1711, longitude: 24.9431, bearing: -12, pitch: 45 },
  layers: new Map([["vehicle-distribution", null], ["final-stop-distribution.pairs", null], ["delay-distribution", "p 90,&=:/#"]]),
  high: ["vehicle-distribution"],
  page: "job",
  job: "delay-distribution",
  edge: "source-0.step-1",
  selection: { job: "emergency-stop-pattern", key: "40/456@<b>&x" },
};

describe("permalinks", () => {
  it("say everything, and are read back as they were written", () => {
    expect(parse(format(FULL))).toEqual(FULL);
  });

  it("are short where there is little to say", () => {
    expect(format(NOWHERE)).toBe("#");
    expect(format({ ...NOWHERE, view: { zoom: 11, latitude: 60.2, longitude: 24.9, bearing: 0.2, pitch: 0 } })).toBe("#map=11/60.2/24.9");
    expect(parse("#")).toEqual(NOWHERE);
    expect(parse("")).toEqual(NOWHERE);
  });

  it("keep the difference between no layers and nothing said", () => {
    expect(parse(format({ ...NOWHERE, layers: new Map() })).layers).toEqual(new Map());
  });

  it.each(["map=1/2", "map=a/b/c", "map=11/91/24", "map=11/60/181", "map=//", "map=NaN/60/24", "map=1e999/60/24"])(
    "with no place on Earth lead to the usual view: %s",
    (text) => {
      expect(parse(`#${text}`).view).toBeNull();
    },
  );

  it("with a view beyond what the map can show lead to the nearest", () => {
    expect(parse("#map=99/60/24/999/89").view).toEqual({ zoom: 20, latitude: 60, longitude: 24, bearing: 180, pitch: 60 });
  });

  it("leave out what is no job, no page, no text", () => {
    const link = parse("#layers=<script>,ok,%zz,OK:1&page=elsewhere&at=ok:%zz&high=<b>,ok");
    expect([...(link.layers ?? [])]).toEqual([["ok", null]]);
    expect(link.page).toBeNull();
    expect(link.selection).toBeNull();
    expect(link.high).toEqual(["ok"]);
  });

  it("of any length stay small", () => {
    const link = parse(`#layers=${"a,".repeat(10_000)}b&at=a:${"x".repeat(100_000)}`);
    expect(link.layers?.size).toBeLessThanOrEqual(50);
    expect(link.selection?.key.length).toBeLessThanOrEqual(600);
  });
});
