/**
 * Colour scales that also work for colour-blind eyes.
 *
 * A scale is a path through a perceptual colour space (Oklab), computed here rather than copied from a table: lightness runs evenly
 * from one end to the other, so order can be read without any sense of hue, and hue runs between colours that remain apart with each
 * kind of colour blindness (blue to yellow, violet to orange; for two directions blue and orange). On a dark page "much" is bright, on
 * a light page "much" is dark: little is always near the background. `test/colour.test.ts` simulates colour-blind eyes.
 */

export type Rgb = readonly [number, number, number];
export type Theme = "light" | "dark";
export type ScaleName = "water" | "ember" | "moss" | "balance";

/** Scales of one direction; layers take them in turn, so that two layers at once look different. */
export const SEQUENTIAL: readonly ScaleName[] = ["water", "ember", "moss"];

/** A place on a path: lightness 0..1, chroma, hue in degrees. */
type Stop = readonly [lightness: number, chroma: number, hue: number];

const PATHS: Record<Theme, Record<ScaleName, readonly Stop[]>> = {
  dark: {
    water: [
      [0.38, 0.11, 275],
      [0.58, 0.105, 225],
      [0.76, 0.13, 165],
      [0.94, 0.16, 105],
    ],
    ember: [
      [0.36, 0.12, 310],
      [0.55, 0.19, 5],
      [0.74, 0.17, 50],
      [0.94, 0.1, 95],
    ],
    moss: [
      [0.36, 0.07, 260],
      [0.55, 0.035, 250],
      [0.75, 0.07, 100],
      [0.94, 0.15, 104],
    ],
    balance: [
      [0.86, 0.1, 215],
      [0.6, 0.14, 250],
      [0.4, 0.012, 260],
      [0.67, 0.16, 55],
      [0.9, 0.12, 88],
    ],
  },
  light: {
    water: [
      [0.91, 0.13, 108],
      [0.74, 0.13, 165],
      [0.53, 0.105, 230],
      [0.29, 0.12, 278],
    ],
    ember: [
      [0.91, 0.1, 90],
      [0.72, 0.17, 50],
      [0.52, 0.19, 10],
      [0.29, 0.12, 312],
    ],
    moss: [
      [0.91, 0.12, 104],
      [0.72, 0.07, 98],
      [0.5, 0.04, 250],
      [0.28, 0.08, 262],
    ],
    balance: [
      [0.34, 0.13, 262],
      [0.6, 0.13, 248],
      [0.84, 0.012, 100],
      [0.66, 0.16, 58],
      [0.4, 0.11, 42],
    ],
  },
};

const STEPS = 256;
const tables = new Map<string, Uint8ClampedArray>();

/** The colours of a scale as RGB bytes, 256 of them. */
export function table(name: ScaleName, theme: Theme): Uint8ClampedArray {
  const id = `${theme}/${name}`;
  const known = tables.get(id);
  if (known !== undefined) return known;
  const made = new Uint8ClampedArray(STEPS * 3);
  for (let i = 0; i < STEPS; i += 1) made.set(along(PATHS[theme][name], i / (STEPS - 1)), i * 3);
  tables.set(id, made);
  return made;
}

/** The colour at `share` (0..1) of a scale. */
export function colourAt(name: ScaleName, theme: Theme, share: number): Rgb {
  const at = indexOf(share) * 3;
  const colours = table(name, theme);
  return [colours[at] ?? 0, colours[at + 1] ?? 0, colours[at + 2] ?? 0];
}

/** Which of the 256 colours a share of 0..1 gets. */
export function indexOf(share: number): number {
  if (!(share > 0)) return 0;
  return share >= 1 ? STEPS - 1 : Math.round(share * (STEPS - 1));
}

export const css = ([r, g, b]: Rgb, alpha = 1): string =>
  alpha === 1 ? `rgb(${r} ${g} ${b})` : `rgb(${r} ${g} ${b} / ${alpha})`;

/** A CSS gradient of the whole scale, from left to right. */
export function gradient(name: ScaleName, theme: Theme, stops = 12): string {
  const colours = Array.from({ length: stops }, (_, i) => css(colourAt(name, theme, i / (stops - 1))));
  return `linear-gradient(to right, ${colours.join(", ")})`;
}

function along(path: readonly Stop[], share: number): Rgb {
  const at = Math.min(share * (path.length - 1), path.length - 1);
  const before = Math.min(Math.floor(at), path.length - 2);
  const [one, two] = [path[before], path[before + 1]];
  if (one === undefined || two === undefined) throw new RangeError("a colour path needs two stops");
  const mix = at - before;
  // In Oklab's own axes, not along the hue circle: no path takes a detour through a colour that nobody asked for.
  const [a1, b1, a2, b2] = [...polar(one), ...polar(two)] as [number, number, number, number];
  return toRgb(one[0] + mix * (two[0] - one[0]), a1 + mix * (a2 - a1), b1 + mix * (b2 - b1));
}

function polar([, chroma, hue]: Stop): [number, number] {
  const angle = (hue * Math.PI) / 180;
  return [chroma * Math.cos(angle), chroma * Math.sin(angle)];
}

/** Oklab to sRGB bytes; what a screen cannot show is cut off. */
function toRgb(lightness: number, a: number, b: number): Rgb {
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    byte(4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s),
    byte(-1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s),
    byte(-0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s),
  ];
}

function byte(linear: number): number {
  const value = linear <= 0.0031308 ? 12.92 * linear : 1.055 * Math.max(linear, 0) ** (1 / 2.4) - 0.055;
  return Math.round(Math.min(1, Math.max(0, value)) * 255);
}
