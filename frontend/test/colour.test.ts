import { describe, expect, it } from "vitest";

import { colourAt, gradient, indexOf, type Rgb, type ScaleName, SEQUENTIAL, table, type Theme } from "../src/colour";

const THEMES: Theme[] = ["light", "dark"];
const ALL: [ScaleName, Theme][] = [...SEQUENTIAL, "balance" as const].flatMap((name) => THEMES.map((theme): [ScaleName, Theme] => [name, theme]));

const linear = (byte: number): number => (byte <= 10.31 ? byte / 255 / 12.92 : ((byte / 255 + 0.055) / 1.055) ** 2.4);
const luminance = ([r, g, b]: Rgb): number => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);

/** What eyes without one kind of cone see, as matrices on linear RGB (after Machado and others, full severity). */
const EYES: Record<string, number[][]> = {
  protanopia: [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
  deuteranopia: [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
  tritanopia: [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
  achromatopsia: [[0.2126, 0.7152, 0.0722], [0.2126, 0.7152, 0.0722], [0.2126, 0.7152, 0.0722]],
};

function seen([r, g, b]: Rgb, eyes: number[][]): [number, number, number] {
  const own = [linear(r), linear(g), linear(b)];
  return eyes.map((row) => Math.min(1, Math.max(0, row.reduce((sum, part, at) => sum + part * (own[at] ?? 0), 0)))) as [number, number, number];
}

/** Distance in CIE Lab: about 2 is just noticeable. */
function distance(one: [number, number, number], two: [number, number, number]): number {
  const [a, b] = [lab(one), lab(two)];
  return Math.hypot(...a.map((part, at) => part - (b[at] ?? 0)));
}

function lab([r, g, b]: [number, number, number]): number[] {
  const f = (t: number): number => (t > 0.008856 ? Math.cbrt(t) : 7.787 * t + 16 / 116);
  const x = f((0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505);
  const y = f(0.2126 * r + 0.7152 * g + 0.0722 * b);
  const z = f((0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089);
  return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
}

describe("scales of one direction", () => {
  it.each(ALL.filter(([name]) => name !== "balance"))("%s on %s: much is far from the background, evenly", (name, theme) => {
    const steps = Array.from({ length: 9 }, (_, at) => luminance(colourAt(name, theme, at / 8)));
    const rising = theme === "dark" ? steps : steps.toReversed();
    for (const [at, value] of rising.entries()) if (at > 0) expect(value).toBeGreaterThan(rising[at - 1] ?? 0);
  });
});

describe("every scale", () => {
  const cases = ALL.flatMap(([name, theme]) => Object.keys(EYES).map((eyes): [ScaleName, Theme, string] => [name, theme, eyes]));

  it.each(cases)("%s on %s can be read with %s", (name, theme, eyes) => {
    // Two directions cannot be told apart by brightness alone: without any colour, only distance from zero remains.
    const from = name === "balance" && eyes === "achromatopsia" ? 0.5 : 0;
    const steps = Array.from({ length: 6 }, (_, at) => seen(colourAt(name, theme, from + ((1 - from) * at) / 5), EYES[eyes] ?? []));
    for (const [at, colour] of steps.entries()) if (at > 0) expect(distance(colour, steps[at - 1] ?? colour)).toBeGreaterThan(5);
  });

  it.each(THEMES)("balance on %s keeps its two ends apart for colour-blind eyes", (theme) => {
    for (const eyes of ["protanopia", "deuteranopia", "tritanopia"]) {
      const [low, high] = [0.15, 0.85].map((share) => seen(colourAt("balance", theme, share), EYES[eyes] ?? []));
      expect(distance(low ?? [0, 0, 0], high ?? [0, 0, 0])).toBeGreaterThan(25);
    }
  });
});

it("gives every share a colour, also an impossible one", () => {
  expect([-1, 0, 0.5, 1, 2, NaN].map(indexOf)).toEqual([0, 0, 128, 255, 255, 0]);
  expect(table("water", "dark")).toHaveLength(768);
  expect(table("water", "dark")).toBe(table("water", "dark"));
  expect(gradient("ember", "light", 3)).toMatch(/^linear-gradient\(to right, rgb\(.+\), rgb\(.+\), rgb\(.+\)\)$/);
});
