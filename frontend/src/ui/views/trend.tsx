/** A small curve without axes, by its times. */

export function Trend(props: {
  at: readonly number[]; values: readonly (number | null)[]; range?: readonly [number, number]; label?: string;
}) {
  const { at, values } = props;
  const known = values.flatMap((value, row) => (value === null ? [] : [[at[row] ?? 0, value] as const]));
  const [least, greatest] = props.range ?? rangeOf(known.map(([, value]) => value));
  const [first, last] = [at[0] ?? 0, at.at(-1) ?? 1];
  const x = (time: number): string => ((100 * (time - first)) / Math.max(1, last - first)).toFixed(2);
  const y = (value: number): string => (38 - (36 * (value - least)) / Math.max(1e-12, greatest - least)).toFixed(2);
  const line = known.map(([time, value]) => `${x(time)},${y(value)}`).join(" ");
  const [begin, end] = [known[0], known.at(-1)];
  return (
    <svg class="trend" viewBox="0 0 100 40" preserveAspectRatio="none" aria-hidden={props.label === undefined} role="img" aria-label={props.label}>
      {known.length > 1 && begin !== undefined && end !== undefined && (
        <>
          <polygon points={`${x(begin[0])},40 ${line} ${x(end[0])},40`} />
          <polyline points={line} />
        </>
      )}
    </svg>
  );
}

/** From zero, unless everything is far from it: then the curve would be a straight line. */
function rangeOf(values: readonly number[]): readonly [number, number] {
  const least = values.reduce((one, two) => Math.min(one, two), Infinity);
  const greatest = values.reduce((one, two) => Math.max(one, two), -Infinity);
  if (greatest - least < 0.2 * Math.abs(greatest)) return [least - 0.5 * (greatest - least) - 1e-9, greatest + 0.1 * (greatest - least) + 1e-9];
  return [Math.min(0, least), Math.max(0, greatest)];
}
