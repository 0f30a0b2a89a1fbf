/** Curves over time, drawn by uPlot in the colours of the theme, and small ones without axes. */
import "uplot/dist/uPlot.min.css";

import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";

import { colourAt, css, type Theme } from "../colour";
import { number } from "../format";
import { theme } from "../theme";

export interface Curve {
  readonly label: string;
  readonly unit: string;
  readonly values: readonly (number | null)[];
}

/** Curves are told apart by brightness and by dashes, not by hue alone. */
const DASHES: readonly (number[] | undefined)[] = [undefined, [6, 3], [2, 3], [9, 3, 2, 3]];

function strokes(of: Theme, count: number): string[] {
  const from = of === "dark" ? 0.45 : 0.5;
  return Array.from({ length: count }, (_, at) => css(colourAt("water", of, count === 1 ? from + 0.2 : from + (0.5 * at) / (count - 1))));
}

/**
 * @param at Milliseconds since 1970, ascending.
 * @param label What the curves show, for people who cannot see them.
 */
export function Chart(props: { at: readonly number[]; curves: readonly Curve[]; height: number; label: string }) {
  const { at, curves, height, label } = props;
  const holder = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [cursor, setCursor] = useState<number | null>(null);
  const shape = curves.map((curve) => `${curve.label}/${curve.unit}`).join("|");
  const look = theme.value;

  useEffect(() => {
    const element = holder.current;
    if (element === null) return undefined;
    const style = getComputedStyle(element);
    const [ink, line] = [style.getPropertyValue("--muted"), style.getPropertyValue("--line")];
    const colours = strokes(look, curves.length);
    const axis: uPlot.Axis = {
      stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1, size: 4 }, font: "11px system-ui, sans-serif",
    };
    const made = new uPlot(
      {
        width: Math.max(element.clientWidth, 120),
        height,
        ms: 1,
        padding: [8, 8, 0, 0],
        cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
        legend: { show: false },
        hooks: {
          setCursor: [
            (self) => {
              setCursor(self.cursor.idx ?? null);
            },
          ],
        },
        scales: { y: { range: (_, least, greatest) => rangeOf(least, greatest) } },
        axes: [
          { ...axis, size: 26, space: 64, values: (_, ticks) => ticks.map(clock) },
          { ...axis, size: 46, values: (_, ticks) => ticks.map((tick) => number(tick)) },
        ],
        series: [
          {},
          ...curves.map((curve, index): uPlot.Series => ({
            label: curve.label,
            stroke: colours[index] ?? ink,
            width: 1.75,
            ...(DASHES[index % DASHES.length] === undefined ? {} : { dash: DASHES[index % DASHES.length] ?? [] }),
            points: { show: at.length < 3 },
          })),
        ],
      },
      data(at, curves),
      element,
    );
    plot.current = made;
    const watch = new ResizeObserver(() => {
      if (element.clientWidth > 0) made.setSize({ width: element.clientWidth, height });
    });
    watch.observe(element);
    return () => {
      watch.disconnect();
      made.destroy();
      plot.current = null;
    };
    // A plot is made anew when its curves or the theme change; new values only replace the data.
  }, [shape, look, height, at.length < 3]);

  useEffect(() => {
    plot.current?.setData(data(at, curves));
  }, [at, curves]);

  const row = cursor !== null && cursor < at.length ? cursor : null;
  return (
    <div class="chart">
      <div ref={holder} role="img" aria-label={`${label}. ${summary(curves)}`} />
      <ul class="chart-legend" aria-hidden="true">
        {curves.map((curve, index) => (
          <li key={curve.label}>
            <svg viewBox="0 0 22 6" width="22" height="6">
              <line x1="0" y1="3" x2="22" y2="3" stroke={strokes(look, curves.length)[index]} stroke-width="2.2" stroke-dasharray={(DASHES[index % DASHES.length] ?? []).join(" ")} />
            </svg>
            {curve.label} <b>{number(row === null ? curve.values.findLast((value) => value !== null) : curve.values[row])}</b> {curve.unit}
          </li>
        ))}
        <li class="chart-time">{row === null ? "now" : clock(at[row] ?? 0)}</li>
      </ul>
    </div>
  );
}

const data = (at: readonly number[], curves: readonly Curve[]): uPlot.AlignedData =>
  [at, ...curves.map((curve) => curve.values)] as unknown as uPlot.AlignedData;

const clock = (at: number): string =>
  new Date(at).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

/** From zero where all is on one side of it, with some room at the top. */
export function rangeOf(least: number | null, greatest: number | null): [number, number] {
  const low = Math.min(0, least ?? 0);
  const high = Math.max(0, greatest ?? 0);
  const room = (high - low) * 0.08 || 1;
  return [low === 0 ? 0 : low - room, high === 0 ? 0.0001 : high + room];
}

/** The newest and the greatest value in words. */
export function summary(curves: readonly Curve[]): string {
  return curves
    .map(({ label, unit, values }) => {
      const known = values.filter((value) => value !== null);
      const last = known.at(-1);
      if (last === undefined) return `${label}: no values yet`;
      return `${label}: now ${number(last)} ${unit}, at most ${number(known.reduce((one, two) => Math.max(one, two)))} ${unit}`;
    })
    .join("; ");
}

/** A curve without axes, as wide as its box. */
export function Sparkline(props: { values: readonly (number | null)[] }) {
  const known = props.values.slice(-120);
  const greatest = Math.max(1e-9, ...known.map((value) => value ?? 0));
  const points = known.flatMap((value, at) =>
    value === null ? [] : [`${((100 * at) / Math.max(1, known.length - 1)).toFixed(1)},${(22 - (20 * value) / greatest).toFixed(1)}`],
  );
  return (
    <svg class="sparkline" viewBox="0 0 100 24" preserveAspectRatio="none" aria-hidden="true">
      {points.length > 1 && <polyline points={points.join(" ")} />}
    </svg>
  );
}
