import { describe, expect, it } from "vitest";

import { readChanges, readSnapshot } from "../src/protocol";
import { numberOf, Results, valueOf } from "../src/state/results";
import { changes, group, NORTH, snapshot, SOUTH } from "./messages";

function shown(results: Results): Record<string, unknown> {
  return Object.fromEntries([...results.entries()].map((entry) => [entry.key, valueOf(entry, "vehicles")]));
}

describe("a job's results", () => {
  it("are a snapshot, then differences", () => {
    const results = new Results();
    expect(results.version).toBeNull();
    results.replace(readSnapshot(snapshot(1, { [NORTH]: 4, [SOUTH]: 1 })));
    expect(results.apply(readChanges(changes(1, 2, { [NORTH]: 5 }, [SOUTH])))).toBe(true);
    expect(shown(results)).toEqual({ [NORTH]: 5 });
    expect(results.version).toBe(2);
  });

  it("refuse a difference that is not based on them, and stay as they are", () => {
    const results = new Results();
    results.replace(readSnapshot(snapshot(1, { [NORTH]: 4 })));
    expect(results.apply(readChanges(changes(7, 8, { [NORTH]: 9 }, [])))).toBe(false);
    expect(shown(results)).toEqual({ [NORTH]: 4 });
    expect(results.version).toBe(1);
  });

  it("refuse a difference before the first snapshot", () => {
    expect(new Results().apply(readChanges(changes(0, 1, { [NORTH]: 9 })))).toBe(false);
  });

  it("forget all that a later snapshot does not have", () => {
    const results = new Results();
    results.replace(readSnapshot(snapshot(5, { [NORTH]: 4 })));
    results.replace(readSnapshot(snapshot(2, { [SOUTH]: 1 })));
    expect(shown(results)).toEqual({ [SOUTH]: 1 });
    // A server that has been restarted may count from anywhere.
    expect(results.version).toBe(2);
  });

  it("tell by their revision that something has changed", () => {
    const results = new Results();
    const before = results.revision;
    results.replace(readSnapshot(snapshot(1, {})));
    expect(results.revision).toBeGreaterThan(before);
  });

  it("share the times of their group", () => {
    const results = new Results();
    results.replace(readSnapshot(snapshot(1, { [NORTH]: 4 })));
    expect(results.get(NORTH)?.times).toMatchObject({ windowEnd: 1_760_000_030_000, published: 1_760_000_031_420 });
  });

  it("are found by their cell, also several of one cell and after a change", () => {
    const results = new Results();
    const keys = { [`${NORTH}/tram`]: 2, [`${NORTH}/bus`]: 3 };
    results.replace(readSnapshot({ job: "j", version: 1, groups: [group(keys, { cell: [NORTH, NORTH] })] }));
    expect(results.at(NORTH).map((entry) => entry.key).sort()).toEqual([`${NORTH}/bus`, `${NORTH}/tram`]);
    expect(results.at(SOUTH)).toEqual([]);
    results.apply(readChanges({ ...changes(1, 2, {}, [`${NORTH}/bus`]), job: "j" }));
    expect(results.at(NORTH).map((entry) => entry.key)).toEqual([`${NORTH}/tram`]);
  });
});

it("takes numbers that came as text, and none that are none", () => {
  const results = new Results();
  const columns = { vehicles: [1], big: ["9007199254740993"], name: ["abc"], empty: [""], flag: [true], missing: [null] };
  results.replace(readSnapshot({ job: "j", version: 1, groups: [group({ [NORTH]: 1 }, { values: columns })] }));
  const entry = results.get(NORTH);
  if (entry === undefined) throw new Error("the entry is missing");
  expect(["vehicles", "big", "name", "empty", "flag", "missing", "other"].map((column) => numberOf(entry, column))).toEqual([
    1, 9007199254740992, null, null, 1, null, null,
  ]);
});
