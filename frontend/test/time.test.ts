// @vitest-environment happy-dom
import { describe, expect, it } from "vitest";

import type { HistoryPoint, Point } from "../src/protocol";
import { readSnapshot } from "../src/protocol";
import { ServerClock } from "../src/state/clock";
import { Curves } from "../src/state/curves";
import { extended } from "../src/state/history";
import { Results } from "../src/state/results";
import { NORTH, point, snapshot } from "./messages";

describe("the server's clock", () => {
  it("is carried on by a counter, whatever the browser's clock does", () => {
    let [counter, wall] = [1000, 5_000_000];
    const clock = new ServerClock(() => counter, () => wall);
    expect(clock.now()).toBe(5_000_000);
    clock.set(9_000_000);
    counter += 250;
    wall = 77;
    expect(clock.now()).toBe(9_000_250);
    expect(clock.offset()).toBe(77 - 9_000_250);
  });
});

describe("curves", () => {
  const at = (curves: Curves): (number | null)[] => curves.points.value.map((each) => each.at);
  const add = (curves: Curves, time: number): void => {
    curves.add(point(time) as Point);
  };

  it("get a point every few seconds and always end with the newest", () => {
    const curves = new Curves();
    for (let time = 1000; time <= 12_000; time += 1000) add(curves, time);
    expect(at(curves).at(-1)).toBe(12_000);
    expect(at(curves).length).toBeLessThan(6);
  });

  it("do not go back in time", () => {
    const curves = new Curves();
    add(curves, 9000);
    add(curves, 4000);
    add(curves, 9000);
    expect(at(curves)).toEqual([9000]);
  });

  it("are an hour long at most", () => {
    const curves = new Curves();
    for (let time = 0; time <= 2 * 3_600_000; time += 5000) add(curves, time);
    expect(at(curves)[0]).toBeGreaterThan(3_600_000);
    expect(at(curves).length).toBeLessThanOrEqual(721);
  });

  it("take over what the server kept and keep what is newer", () => {
    const curves = new Curves();
    add(curves, 20_000);
    curves.load([5000, 10_000, 15_000].map((time) => point(time) as Point));
    expect(at(curves)).toEqual([5000, 10_000, 15_000, 20_000]);
  });
});

describe("the history of an entry", () => {
  const results = new Results();
  results.replace(readSnapshot(snapshot(1, { [NORTH]: 4 })));
  const entry = results.get(NORTH);
  if (entry === undefined) throw new Error("the entry is missing");
  const before: HistoryPoint = { eventTime: 1_760_000_024_999, windowEnd: 1_760_000_025_000, values: new Map([["vehicles", 9]]) };

  it("goes on with what arrives", () => {
    const points = extended([before], entry);
    expect(points).toHaveLength(2);
    expect(points[1]).toEqual({ eventTime: 1_760_000_029_999, windowEnd: 1_760_000_030_000, values: new Map([["vehicles", 4]]) });
  });

  it("replaces a value of the same time and ignores an older one", () => {
    const once = extended([before], entry);
    expect(extended(once, entry)).toEqual(once);
    const newer: HistoryPoint = { ...before, eventTime: 1_760_000_099_999 };
    expect(extended([newer], entry)).toEqual([newer]);
  });

  it("stays bounded", () => {
    const many = Array.from({ length: 900 }, (_, time): HistoryPoint => ({ eventTime: time, windowEnd: null, values: new Map() }));
    expect(extended(many, entry)).toHaveLength(720);
  });
});
