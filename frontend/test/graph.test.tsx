// @vitest-environment happy-dom
/** A job's steps as a graph: placed without overlap, with figures in words and edges that can be chosen. */
import { render } from "preact";
import { expect, it, vi } from "vitest";

import { readGraph, readSample } from "../src/jobgraph";
import { ProtocolError } from "../src/protocol";
import { figureText, Graph, place, placeInColumn } from "../src/ui/graph";

const step = (id: string, kind: string, figures: unknown[] = []) => ({ id, kind, title: `${id} <b>`, detail: ["by depot"], topic: null, figures });
const edge = (source: string, target: string, rate: number | null = null) => ({ id: `${source}.${target}`, source, target, rate, sampled: rate !== null });
const GRAPH = readGraph({
  job: "depots",
  query: null,
  steps: [
    step("source-0", "source", [{ name: "backlog", value: null, unit: "records", of: "job" }]),
    step("stateful-0", "stateful", [{ name: "state size", value: 903_000, unit: "bytes", of: "query" }]),
    step("results", "results"),
    step("late", "late"),
  ],
  edges: [edge("source-0", "stateful-0", 310.2), edge("stateful-0", "results"), edge("stateful-0", "late")],
});

it.each([["side by side", place], ["in a column", placeInColumn]] as const)("steps are placed %s without overlap", (_, placed) => {
  const { steps, edges, width, height } = placed(GRAPH);
  const boxes = [...steps.values()];
  for (const [at, one] of boxes.entries()) {
    for (const two of boxes.slice(at + 1)) {
      const apart = Math.abs(one.y - two.y) >= (one.height + two.height) / 2 || Math.abs(one.x - two.x) >= 250;
      expect(apart).toBe(true);
    }
  }
  for (const point of [...edges.values()].flat()) {
    expect(point.x >= 0 && point.x <= width && point.y >= 0 && point.y <= height).toBe(true);
  }
  expect([...edges.values()].every((points) => points.length > 1)).toBe(true);
});

it("edges say their rate or that they have rows, and are chosen by a click", () => {
  const holder = document.createElement("div");
  const choose = vi.fn();
  render(<Graph graph={GRAPH} chosen="stateful-0.late" now={0} choose={choose} />, holder);
  const buttons = [...holder.querySelectorAll<HTMLButtonElement>(".edge-button")];
  expect(buttons.map((each) => each.firstChild?.textContent)).toEqual(["310/s", "rows", "rows"]);
  expect(buttons.map((each) => each.getAttribute("aria-pressed"))).toEqual(["false", "false", "true"]);
  buttons[1]?.click();
  expect(choose).toHaveBeenCalledWith("stateful-0.results");
  expect(holder.querySelector("b")).toBeNull();
});

it("figures that are not known are said to be so", () => {
  const [backlog, size] = GRAPH.steps.flatMap((each) => each.figures);
  if (backlog === undefined || size === undefined) throw new Error("figures are missing");
  expect(figureText(backlog, 0)).toBe("not known");
  expect(figureText(size, 0)).toBe("903 kB");
});

it("what is no graph or sample is refused", () => {
  expect(() => readGraph({ job: "x", steps: [{ title: "no id" }] })).toThrow(ProtocolError);
  expect(() => readSample({ edge: "e", rows: [1] })).toThrow(ProtocolError);
  expect(readSample({ edge: "e", text: "t", columns: [{ name: "a", type: "number" }], rows: [[1]] }).rows).toEqual([[1]]);
});
