import { describe, expect, it } from "vitest";

import { type Domain, domainOf, roundUp, shareOf, ticksOf } from "../src/scale";

const sequential = { scale: "sequential" as const };
const diverging = { scale: "diverging" as const };

describe("round numbers", () => {
  it.each([[0.7, 0.8], [1, 1], [1.2, 1.5], [7, 8], [23, 30], [99, 100], [101, 150], [0.0011, 0.0015], [0, 1], [-4, 1], [Infinity, 1]])(
    "%s becomes %s",
    (value, round) => {
      expect(roundUp(value)).toBe(round);
    },
  );
});

describe("the ends of a scale", () => {
  it("follow what is shown", () => {
    expect(domainOf([1, 2, 7], sequential)).toEqual({ least: 0, greatest: 8, below: false, above: false });
    expect(domainOf([-3, 2], sequential)).toMatchObject({ least: -3, greatest: 2 });
  });

  it("are not moved by one outlier, and the legend says that there is more", () => {
    const values = [...Array.from({ length: 199 }, () => 4), 4000];
    expect(domainOf(values, sequential)).toEqual({ least: 0, greatest: 4, below: false, above: true });
  });

  it("are the same on both sides of zero for two directions", () => {
    expect(domainOf([-20, 5, 130], diverging)).toEqual({ least: -150, greatest: 150, below: false, above: false });
  });

  it("are those that the job declared", () => {
    expect(domainOf([-5, 500], { ...diverging, declared: [-60, 300] })).toEqual({ least: -60, greatest: 300, below: false, above: true });
  });

  it("stay while they fit, grow at once, and shrink when they are far too wide", () => {
    const before = domainOf([10], sequential);
    expect(before.greatest).toBe(10);
    expect(domainOf([6], { ...sequential, before }).greatest).toBe(10);
    expect(domainOf([14], { ...sequential, before }).greatest).toBe(15);
    expect(domainOf([3], { ...sequential, before }).greatest).toBe(3);
  });

  it("of nothing are those before, or usual ones", () => {
    const before: Domain = { least: 0, greatest: 40, below: false, above: false };
    expect(domainOf([], { ...sequential, before })).toBe(before);
    expect(domainOf([], sequential)).toMatchObject({ least: 0, greatest: 1 });
    expect(domainOf([], diverging)).toMatchObject({ least: -1, greatest: 1 });
  });

  it("are sound for zeros alone and for huge numbers", () => {
    expect(domainOf([0, 0], sequential)).toMatchObject({ least: 0, greatest: 1 });
    const huge = domainOf([1e300], sequential);
    expect(shareOf(1e300, huge)).toBeGreaterThan(0.9);
  });
});

it("puts values between the ends, and what is beyond at the ends", () => {
  const domain: Domain = { least: -10, greatest: 30, below: false, above: false };
  expect([-99, -10, 10, 30, 99].map((value) => shareOf(value, domain))).toEqual([0, 0, 0.5, 1, 1]);
  expect(shareOf(1, { ...domain, greatest: -10 })).toBe(0.5);
});

it("has a zero in the middle of two directions", () => {
  expect(ticksOf({ least: -150, greatest: 150, below: false, above: false }, "diverging")).toEqual([-150, 0, 150]);
  expect(ticksOf({ least: 0, greatest: 15, below: false, above: false }, "sequential")).toEqual([0, 7.5, 15]);
});
