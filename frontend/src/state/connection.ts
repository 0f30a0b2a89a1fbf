/**
 * The line to the backend: what is asked for, what comes, and what happens when it breaks.
 *
 * On every connection (the first and each one after a break) the page subscribes to the jobs it shows and says which version of
 * each it has, so that the server can send the difference only. Each snapshot and each difference is acknowledged once it has been
 * applied: the server sends no more than a browser can take.
 */
import { io } from "socket.io-client";

import {
  type Changes,
  type Declaration,
  type Hello,
  type Pipeline,
  ProtocolError,
  readChanges,
  readDeclarations,
  readHello,
  readPipeline,
  readSnapshot,
  readStatus,
  type Snapshot,
  type Status,
} from "../protocol";

/** What is needed of a Socket.IO client; tests bring one of their own. */
export interface Line {
  on(event: string, listener: (...details: unknown[]) => void): unknown;
  emit(event: string, ...details: unknown[]): unknown;
  connect(): unknown;
  disconnect(): unknown;
  readonly connected: boolean;
}

export type LinkState =
  | { state: "connecting" }
  | { state: "connected" }
  | { state: "lost"; why: string }
  | { state: "refused"; why: string };

/** What the page does with what it hears. */
export interface Listener {
  link(state: LinkState): void;
  hello(hello: Hello): void;
  declarations(declarations: Declaration[]): void;
  status(status: Status): void;
  pipeline(pipeline: Pipeline): void;
  snapshot(snapshot: Snapshot): void;
  /** Returns whether the difference fitted. */
  changes(changes: Changes): boolean;
  /** The version of what is shown of a job; null if there is nothing yet. */
  version(job: string): number | null;
  /** Something that the protocol does not allow, or a refusal: a sentence for people. */
  trouble(text: string): void;
}

export class Connection {
  private jobs: readonly string[] = [];
  private everConnected = false;

  constructor(
    private readonly line: Line,
    private readonly listener: Listener,
    refusal: () => Promise<string | null>,
  ) {
    line.on("connect", () => {
      this.everConnected = true;
      listener.link({ state: "connected" });
      this.ask();
    });
    line.on("disconnect", (why) => {
      listener.link({ state: "lost", why: String(why) });
      // Socket.IO reconnects by itself after a break, but not when the server has closed the connection on purpose (a restart).
      if (why === "io server disconnect") line.connect();
    });
    line.on("connect_error", (error) => {
      const why = error instanceof Error ? error.message : String(error);
      listener.link(this.everConnected ? { state: "lost", why } : { state: "connecting" });
      // A browser does not tell why a handshake failed: whether nobody is there, or somebody who says no.
      void refusal().then((text) => {
        if (text !== null && !line.connected) listener.link({ state: "refused", why: text });
      });
    });
    this.hear("hello", readHello, (hello) => {
      listener.hello(hello);
    });
    this.hear("declarations", readDeclarations, (declarations) => {
      listener.declarations(declarations);
    });
    this.hear("status", readStatus, (status) => {
      listener.status(status);
    });
    this.hear("pipeline", readPipeline, (pipeline) => {
      listener.pipeline(pipeline);
      line.emit("received", { pipeline: pipeline.now });
    });
    this.hear("snapshot", readSnapshot, (snapshot) => {
      listener.snapshot(snapshot);
      this.received(snapshot.job, snapshot.version);
    });
    this.hear("changes", readChanges, (changes) => {
      if (listener.changes(changes)) this.received(changes.job, changes.version);
      else this.ask();
    });
  }

  /** Show these jobs from now on. */
  subscribe(jobs: readonly string[]): void {
    if (jobs.length === this.jobs.length && jobs.every((job, at) => job === this.jobs[at])) return;
    this.jobs = [...jobs];
    if (this.line.connected) this.ask();
  }

  private ask(): void {
    const resume: Record<string, number> = {};
    for (const job of this.jobs) {
      const version = this.listener.version(job);
      if (version !== null) resume[job] = version;
    }
    this.line.emit("subscribe", { jobs: this.jobs, resume }, (answer: unknown) => {
      if (typeof answer !== "object" || answer === null || !("ok" in answer) || answer.ok === true) return;
      const error = "error" in answer && typeof answer.error === "string" ? answer.error : "no reason given";
      this.listener.trouble(`The server refused the subscription: ${error}`);
    });
  }

  private received(job: string, version: number): void {
    this.line.emit("received", { job, version });
  }

  private hear<T>(event: string, read: (message: unknown) => T, use: (message: T) => void): void {
    this.line.on(event, (message) => {
      let known: T;
      try {
        known = read(message);
      } catch (error) {
        if (!(error instanceof ProtocolError)) throw error;
        this.listener.trouble(`The server sent a ${event} message that this page cannot read (${error.message}). Reload the page.`);
        return;
      }
      use(known);
    });
  }
}

/** Connect to the backend that this page came from. */
export function dial(base: string): Line {
  const address = new URL("socket.io", base);
  return io(address.origin, {
    path: address.pathname,
    transports: ["websocket", "polling"],
    reconnectionDelay: 500,
    reconnectionDelayMax: 4000,
  });
}
