import { describe, expect, it } from "vitest";

import {
  ProtocolError,
  readChanges,
  readConfig,
  readCurves,
  readDeclaration,
  readHistory,
  readNetwork,
  readPipeline,
  readSnapshot,
  readStatus,
} from "../src/protocol";
import { changes, declaration, group, NORTH, point, snapshot, SOUTH } from "./messages";

describe("declarations", () => {
  it("are read as they are declared", () => {
    const read = readDeclaration(declaration({ domain: [0, 10], time_to_live: 120_000 }));
    expect(read).toMatchObject({ job: "vehicle-distribution", kind: "cells", domain: [0, 10], timeToLive: 120_000 });
    expect(read.values[0]).toEqual({ column: "vehicles", label: "vehicles", unit: "vehicles" });
  });

  it("of a kind from the future become a table", () => {
    expect(readDeclaration(declaration({ kind: "hologram" })).kind).toBe("table");
  });

  it("with an empty or infinite domain fall back to what is shown", () => {
    expect(readDeclaration(declaration({ domain: [5, 5] })).domain).toBeNull();
    expect(readDeclaration(declaration({ domain: [0, Infinity] })).domain).toBeNull();
  });

  it("without a title are called by their job", () => {
    expect(readDeclaration(declaration({ title: "" })).title).toBe("vehicle-distribution");
  });

  it("without a job are refused with what was wrong", () => {
    expect(() => readDeclaration(declaration({ job: 7 }))).toThrow(new ProtocolError("job: text was expected, not number"));
  });
});

describe("results", () => {
  it("come by column", () => {
    const read = readSnapshot(snapshot(42, { [NORTH]: 4, [SOUTH]: 1 }));
    expect(read.version).toBe(42);
    expect(read.groups[0]?.key).toEqual([NORTH, SOUTH]);
    expect(read.groups[0]?.values.get("vehicles")).toEqual([4, 1]);
  });

  it("whose columns differ in length are refused", () => {
    const broken = { job: "j", version: 1, groups: [group({ [NORTH]: 1 }, { values: { vehicles: [1, 2] } })] };
    expect(() => readSnapshot(broken)).toThrow("vehicles: 2 values for 1 keys");
  });

  it("name the version they are based on", () => {
    expect(readChanges(changes(42, 43, {}, [SOUTH]))).toMatchObject({ base: 42, version: 43, removed: [SOUTH] });
    expect(() => readChanges(snapshot(43, {}))).toThrow("base: a number was expected");
  });

  it.each([null, "text", 7, [], { job: "x" }])("that are no message are refused: %j", (message) => {
    expect(() => readSnapshot(message)).toThrow(ProtocolError);
  });
});

describe("state", () => {
  it("of jobs and broker is read", () => {
    const read = readStatus({
      broker: { state: "gone", since: 1, text: "Kafka does not answer." },
      jobs: { a: { state: "live", text: "", entries: 3, newest: 5, heard: 6 } },
    });
    expect(read.broker.text).toBe("Kafka does not answer.");
    expect(read.jobs.get("a")).toEqual({ state: "live", text: "", entries: 3, newest: 5, heard: 6 });
  });

  it("of the pipeline may have unknown figures", () => {
    const read = readPipeline({
      now: 9,
      stages: [{ name: "kafka", title: "Kafka", state: "odd", text: "", rates: { backlog: null, events: 3.5 } }],
      queries: [{ query: "q", jobs: ["a"], state: "running", batch_ms: null }],
      partitions: [{ job: "a", topic: "t", partition: 2, end: "9007199254740993", committed: 5, backlog: null }],
      series: point(8, { events: null }),
    });
    expect(read.stages[0]?.state).toBe("unknown");
    expect(read.stages[0]?.rates).toEqual(new Map([["backlog", null], ["events", 3.5]]));
    expect(read.queries[0]?.batchMs).toBeNull();
    expect(read.partitions[0]?.end).toBe(9007199254740992);
    expect(read.series?.events).toBeNull();
    expect(read.problems).toEqual([]);
  });
});

it("reads curves by column, also where one is missing", () => {
  const read = readCurves({ history: { at: [1, 2], events: [3, null] } });
  expect(read.map((each) => [each.at, each.events, each.late])).toEqual([[1, 3, null], [2, null, null]]);
});

it("reads a history and leaves out points without a time", () => {
  const read = readHistory({ points: [{ event_time: 1, window_end: 2, values: { n: 3 } }, { event_time: null, values: {} }] });
  expect(read).toEqual([{ eventTime: 1, windowEnd: 2, values: new Map([["n", 3]]) }]);
});

it("takes the features of the network and leaves out what is none", () => {
  const stop = { type: "Feature", properties: { kind: "stop" }, geometry: { type: "Point", coordinates: [24.9, 60.2] } };
  expect(readNetwork({ features: [stop, { type: "Feature", geometry: null }, { type: "Other" }] }).features).toEqual([stop]);
  expect(readNetwork({}).features).toEqual([]);
  expect(() => readNetwork({ features: [7] })).toThrow(ProtocolError);
});

it("starts with usual settings where the server names none", () => {
  expect(readConfig({})).toMatchObject({ title: "Headrace", map: { style: null, zoom: 2 } });
  expect(readConfig({ map: { center: [1, 2], zoom: 9, style: "https://tiles.example/style.json" } }).map).toEqual({
    center: [1, 2], zoom: 9, style: "https://tiles.example/style.json",
  });
});
