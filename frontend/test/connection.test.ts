import { describe, expect, it } from "vitest";

import { parse } from "../src/permalink";
import { App } from "../src/state/app";
import { Connection, type Line } from "../src/state/connection";
import { changes, declaration, NORTH, point, snapshot, SOUTH } from "./messages";

/** A line whose other end is the test. */
class TestLine implements Line {
  connected = false;
  dialled = 0;
  readonly said: [string, unknown][] = [];
  answer: unknown = { ok: true };
  private readonly listeners = new Map<string, (...details: unknown[]) => void>();

  on(event: string, listener: (...details: unknown[]) => void): void {
    this.listeners.set(event, listener);
  }

  emit(event: string, ...details: unknown[]): void {
    this.said.push([event, details[0]]);
    const answer = details[1];
    if (typeof answer === "function") (answer as (answer: unknown) => void)(this.answer);
  }

  connect(): void {
    this.dialled += 1;
  }

  disconnect(): void {
    this.connected = false;
  }

  hear(event: string, ...details: unknown[]): void {
    if (event === "connect") this.connected = true;
    if (event === "disconnect") this.connected = false;
    this.listeners.get(event)?.(...details);
  }

  lastSaid(event: string): unknown {
    return this.said.findLast(([name]) => name === event)?.[1];
  }
}

function setUp(refusal: string | null = null): { line: TestLine; app: App; connection: Connection } {
  const line = new TestLine();
  const app = new App(parse("#layers=vehicle-distribution"));
  const connection = new Connection(line, app, () => Promise.resolve(refusal));
  app.onWanted((jobs) => {
    connection.subscribe(jobs);
  });
  line.hear("connect");
  line.hear("declarations", [declaration()]);
  return { line, app, connection };
}

const JOB = "vehicle-distribution";

describe("the connection", () => {
  it("subscribes to what is shown", () => {
    const { line } = setUp();
    expect(line.lastSaid("subscribe")).toEqual({ jobs: [JOB], resume: {} });
  });

  it("acknowledges snapshots, differences and figures, once they are applied", () => {
    const { line, app } = setUp();
    line.hear("snapshot", snapshot(1, { [NORTH]: 4 }));
    expect(line.lastSaid("received")).toEqual({ job: JOB, version: 1 });
    line.hear("changes", changes(1, 2, { [SOUTH]: 3 }));
    expect(line.lastSaid("received")).toEqual({ job: JOB, version: 2 });
    expect(app.resultsOf(JOB).size).toBe(2);
    line.hear("pipeline", { now: 99, series: point(98) });
    expect(line.lastSaid("received")).toEqual({ pipeline: 99 });
  });

  it("resumes after a break from the versions it has", () => {
    const { line, app } = setUp();
    line.hear("snapshot", snapshot(7, { [NORTH]: 4 }));
    line.hear("disconnect", "transport close");
    expect(app.link_.value.state).toBe("lost");
    expect(app.resultsOf(JOB).size).toBe(1);
    line.hear("connect");
    expect(line.lastSaid("subscribe")).toEqual({ jobs: [JOB], resume: { [JOB]: 7 } });
    expect(app.link_.value.state).toBe("connected");
    expect(app.lostAt.value).toBeNull();
  });

  it("asks again when a difference does not fit, and does not acknowledge it", () => {
    const { line } = setUp();
    line.hear("snapshot", snapshot(1, { [NORTH]: 4 }));
    const before = line.said.length;
    line.hear("changes", changes(5, 6, { [NORTH]: 9 }));
    expect(line.said.slice(before)).toEqual([["subscribe", { jobs: [JOB], resume: { [JOB]: 1 } }]]);
  });

  it("dials again when the server hangs up on purpose", () => {
    const { line } = setUp();
    line.hear("disconnect", "io server disconnect");
    expect(line.dialled).toBe(1);
  });

  it("tells a refusal from a server that is not there", async () => {
    const refused = setUp("A token is needed.");
    refused.line.hear("disconnect", "transport close");
    refused.line.hear("connect_error", new Error("websocket error"));
    await Promise.resolve();
    expect(refused.app.link_.value).toEqual({ state: "refused", why: "A token is needed." });
    const gone = setUp(null);
    gone.line.hear("disconnect", "transport close");
    gone.line.hear("connect_error", new Error("websocket error"));
    await Promise.resolve();
    expect(gone.app.link_.value).toEqual({ state: "lost", why: "websocket error" });
  });

  it("says what the server refused", () => {
    const { line, app } = setUp();
    line.answer = { ok: false, error: "there is no job 'x'" };
    app.choose(JOB, { on: false });
    expect(app.troubles.value).toEqual(["The server refused the subscription: there is no job 'x'"]);
  });

  it("survives a message that it cannot read, and says so", () => {
    const { line, app } = setUp();
    line.hear("snapshot", { job: JOB });
    expect(app.troubles.value[0]).toContain("version: a number was expected");
    line.hear("snapshot", snapshot(1, { [NORTH]: 4 }));
    expect(app.resultsOf(JOB).size).toBe(1);
  });

  it("asks once for the same set of jobs", () => {
    const { line, connection } = setUp();
    const before = line.said.length;
    connection.subscribe([JOB]);
    expect(line.said.length).toBe(before);
  });
});
