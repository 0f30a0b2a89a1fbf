import { describe, expect, it } from "vitest";

import * as format from "../src/format";

const NOON = Date.UTC(2026, 5, 1, 12);

describe("numbers", () => {
  it.each([
    [0, "0"], [4, "4"], [4.25, "4.25"], [12.34, "12.3"], [123.4, "123"], [12_345, "12,345"], [1_234_567, "1.2M"], [-3.5, "-3.5"],
    [0.0004, "4.0e-4"], [1e300, "1.00e+300"], [NaN, "–"], [Infinity, "–"], [null, "–"], [undefined, "–"],
  ])("%s reads %s", (value, text) => {
    expect(format.number(value)).toBe(text);
  });

  it("stand before their unit, unless they are not known", () => {
    expect(format.quantity(4, "vehicles")).toBe("4 vehicles");
    expect(format.quantity(4, "")).toBe("4");
    expect(format.quantity(null, "s")).toBe("–");
  });

  it.each([[812, "812 B"], [903_000, "903 kB"], [1_240_000, "1.2 MB"], [null, "–"]])("of bytes: %s reads %s", (value, text) => {
    expect(format.bytes(value)).toBe(text);
  });
});

describe("durations", () => {
  it.each([
    [0, "0 ms"], [431, "431 ms"], [2449, "2.4 s"], [9960, "10 s"], [59_700, "1 min"], [80_000, "1 min 20 s"], [3_600_000, "1 h"],
    [7_500_000, "2 h 5 min"], [86_400_000, "1 day"], [5 * 86_400_000, "5 days"], [-1500, "−1.5 s"], [null, "–"],
  ])("%s ms reads %s", (value, text) => {
    expect(format.duration(value)).toBe(text);
  });

  it("since the future are nothing: clocks differ a little", () => {
    expect(format.age(NOON + 300, NOON)).toBe("just now");
    expect(format.age(NOON - 2400, NOON)).toBe("2.4 s ago");
    expect(format.age(null, NOON)).toBe("–");
  });
});

describe("times", () => {
  it("of today have no date, others have", () => {
    expect(format.time(NOON, NOON)).toMatch(/^\d\d:00:00$/);
    expect(format.time(NOON - 2000 * 86_400_000, NOON)).toContain("2020");
    expect(format.time(1e300, NOON)).toBe("–");
  });

  it("of a window are both its ends", () => {
    expect(format.windowOf(NOON - 30_000, NOON, NOON)).toMatch(/^\d\d:59:30 – \d\d:00:00$/);
    expect(format.windowOf(null, NOON, NOON)).toMatch(/^until /);
    expect(format.windowOf(null, null, NOON)).toBe("–");
  });
});

it("shows a value by the type of its column", () => {
  expect(format.value(NOON, "time", NOON)).toMatch(/:00:00$/);
  expect(format.value(1500, "duration", NOON)).toBe("1.5 s");
  expect(format.value(true, "boolean", NOON)).toBe("yes");
  expect(format.value(["a", 1.5, null], "list", NOON)).toBe("a, 1.5, –");
  expect(format.value("<b>x</b>", "text", NOON)).toBe("<b>x</b>");
  expect(format.value(null, "number", NOON)).toBe("–");
});
