"""Equivalent forms of one pattern side by side: the builder and SQL, with and without a time bound.

    python -m benchmarks.pattern_grid                     # 284,000 rows; writes benchmarks/results/pattern_grid.json
    python -m benchmarks.pattern_grid --rows 28400 --only within   # to look at, nothing is written

The rows are positions of synthetic aircraft that climb, cruise and descend, with noise in the vertical rate; they lie
in few long keys or in many short ones. The forms of a pattern find the same matches, which is checked. For each form
the table shows the processor time and how many times slower than the fastest form of its pattern it is; the last line
names the worst. Times are of one thread, in one process, for a frame that is all there.
"""

from __future__ import annotations

import os

os.environ["POLARS_MAX_THREADS"] = "1"

import argparse
import json
import logging
import platform
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
from polars import col
from rich.console import Console
from rich.table import Table

from headrace import sql
from headrace.cep import Pattern, current, matched
from headrace.cep.batch import find
from headrace.cep.measures import first, last

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RESULTS = Path(__file__).parent / "results" / "pattern_grid.json"
START = 1_772_000_000
ROWS = 284_000
SHAPES = {"few long keys": 30, "many short keys": 14_200}
#: A form may be so many times slower than the fastest form of its pattern.
AIM = 5.0

CLIMBS, LEVEL, DESCENDS = col("vertical_rate") > 2, col("vertical_rate").abs() <= 2, col("vertical_rate") < -2
DEFINE = "c AS vertical_rate > 2, l AS vertical_rate BETWEEN -2 AND 2, d AS vertical_rate < -2"
console = Console()


@dataclass(frozen=True)
class Figure:
    """What one form took.

    Args:
        shape: How the rows lie in keys.
        pattern: Which pattern.
        form: Which form of it.
        seconds: Of processor time.
        times_fastest: How many times that of the fastest form of the pattern.
        matches: What came out.
    """

    shape: str
    pattern: str
    form: str
    seconds: float
    times_fastest: float
    matches: int


def flights(keys: int, rows: int, *, seed: int = 1) -> pl.DataFrame:
    """Positions every five seconds."""
    random = np.random.default_rng(seed)
    per_key = max(rows // keys, 1)
    cycle = random.integers(600, 1200, keys)[:, None]
    phase = (random.integers(0, 1200, keys)[:, None] + np.arange(per_key)) % cycle / cycle
    stages = [phase < 0.2, phase < 0.75, phase < 0.95]
    rate = np.select(stages, [8.0, 0.0, -8.0], 0.0)
    rate += np.where(phase < 0.95, random.normal(0, 0.8, rate.shape), 0.0)
    times = np.broadcast_to((START + 5 * np.arange(per_key)) * 1_000_000, rate.shape)
    names = pl.Series("icao", [f"4b{number:04x}" for number in range(keys)])
    return pl.DataFrame(
        {
            "icao": names.gather(np.repeat(np.arange(keys), per_key)),
            "vertical_rate": rate.ravel(),
            "altitude": np.cumsum(rate * 5, axis=1).ravel(),
            "event_time": pl.Series(times.ravel()).cast(pl.Datetime("us", "UTC")),
        }
    )


def built(pattern: Pattern) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """A pattern of the builder; of several matches of a start row the one that is complete first is given."""
    measures = {"began": first("event_time"), "ended": last("event_time")}
    return lambda rows: find(pattern, rows, key="icao", measures=measures)


def written(
    pattern: str, *, within: str = "", define: str = DEFINE, skip: str = "PAST LAST ROW"
) -> Callable[[pl.DataFrame], pl.DataFrame]:
    """The same in SQL."""
    used = ", ".join(each for each in define.split(", ") if each.split()[0] in pattern)
    query = f"""
        SELECT * FROM flights MATCH_RECOGNIZE (
          PARTITION BY icao ORDER BY event_time
          MEASURES FIRST(event_time) AS began, LAST(event_time) AS ended
          AFTER MATCH SKIP {skip} PATTERN ({pattern}) {within} DEFINE {used})
        """  # noqa: S608
    return lambda rows: sql(query, {"flights": rows})


def grid() -> Iterator[tuple[str, dict[str, Callable[[pl.DataFrame], pl.DataFrame]]]]:
    """Patterns, each with its forms."""
    for bound in ("", "1h", "3h"):
        name = f"within {bound}" if bound else "unbounded"
        clause = f"WITHIN INTERVAL '{bound[0]}' HOUR" if bound else ""

        def limited(pattern: Pattern, bound: str = bound) -> Pattern:
            return (pattern.within(bound) if bound else pattern).skip("past_last")

        climb = Pattern.begin("c", CLIMBS).one_or_more().consecutive()
        level = climb.next("l", LEVEL).one_or_more().consecutive()
        yield (
            f"climb, level, descend, {name}",
            {
                "builder": built(limited(level.next("d", DESCENDS))),
                "builder, greedy": built(
                    limited(climb.next("l", LEVEL).one_or_more().consecutive().greedy().next("d", DESCENDS))
                ),
                "SQL": written("c+ l+ d", within=clause),
                "SQL, reluctant": written("c+? l+? d", within=clause),
            },
        )
        yield (
            f"optional level, {name}",
            {
                "builder": built(limited(level.optional().next("d", DESCENDS))),
                "SQL": written("c+ l* d", within=clause),
                "SQL, reluctant": written("c+? l*? d", within=clause),
            },
        )
        group = Pattern.begin("c", CLIMBS).next("l", LEVEL)
        yield (
            f"group of climb and level, {name}",
            {
                "builder": built(limited(Pattern.begin(group).one_or_more().consecutive().next("d", DESCENDS))),
                "SQL": written("(c l)+ d", within=clause),
                "SQL, reluctant": written("(c l)+? d", within=clause),
            },
        )
        yield (
            f"descent some time after a climb, {name}",
            {
                "builder, followed_by": built(limited(Pattern.begin("c", CLIMBS).followed_by("d", DESCENDS))),
                "builder, consecutive": built(
                    limited(
                        Pattern.begin("c", CLIMBS)
                        .next("n", ~DESCENDS)
                        .one_or_more()
                        .consecutive()
                        .optional()
                        .next("d", DESCENDS)
                    )
                ),
                "SQL": written("c n* d", within=clause, define=f"{DEFINE}, n AS NOT vertical_rate < -2"),
                "SQL, reluctant": written("c x*? d", within=clause, define=f"{DEFINE}, x AS TRUE"),
            },
        )
        rising = Pattern.begin("c", CLIMBS).next("up", current("altitude") > matched("c").last("altitude"))
        yield (
            f"higher than at the start, {name}",
            {
                "builder, iterative": built(limited(rising.one_or_more().consecutive().next("d", DESCENDS))),
                "SQL, FIRST": written(
                    "c up+? d", within=clause, define=f"{DEFINE}, up AS altitude > FIRST(c.altitude)"
                ),
            },
        )
        run = Pattern.begin("c", CLIMBS).next("up", current("altitude") > matched("c").last("altitude")).where(CLIMBS)
        yield (
            f"three rows of a climb, {name}",
            {
                "builder": built(limited(Pattern.begin("c", CLIMBS).times(3).consecutive())),
                "builder, iterative": built(limited(run.times(2).consecutive())),
                "SQL": written("c c c", within=clause),
                "SQL, PREV": written(
                    "c up up", within=clause, define=f"{DEFINE}, up AS vertical_rate > 2 AND altitude > PREV(altitude)"
                ),
            },
        )


def measure(
    shape: str, frame: pl.DataFrame, pattern: str, forms: dict[str, Callable[[pl.DataFrame], pl.DataFrame]]
) -> list[Figure]:
    """Time the forms of a pattern, and check that they find the same."""
    seconds: dict[str, float] = {}
    answers: dict[str, pl.DataFrame] = {}
    for name, form in forms.items():
        begin = time.process_time()
        found = form(frame)
        seconds[name] = time.process_time() - begin
        answers[name] = found.select("icao", "began", "ended").sort("icao", "began")
    expected = next(iter(answers.values()))
    for name, answer in answers.items():
        if not answer.equals(expected):
            raise SystemExit(
                f"{shape}, {pattern}: {name} finds {answer.height} matches, not the {expected.height} of the others"
            )
    fastest = min(seconds.values())
    return [
        Figure(shape, pattern, name, round(took, 3), round(took / fastest, 1), expected.height)
        for name, took in seconds.items()
    ]


def show(figures: list[Figure]) -> None:
    """Print the figures and the worst of them."""
    table = Table("keys", "pattern", "form", "seconds", "times the fastest", "matches")
    for figure in figures:
        table.add_row(
            figure.shape,
            figure.pattern,
            figure.form,
            f"{figure.seconds:.2f}",
            f"{figure.times_fastest:.1f}",
            str(figure.matches),
        )
    console.print(table)
    worst = max(figures, key=lambda figure: figure.times_fastest)
    console.print(
        f"slowest against its fastest form: {worst.form} of {worst.pattern}, {worst.shape}: {worst.times_fastest} x"
    )


def main() -> None:
    """Run the grid."""
    parser = argparse.ArgumentParser(description="Equivalent forms of patterns side by side.")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--only", default="", help="patterns whose name contains this")
    parser.add_argument("--quick", action="store_true", help="a hundredth of the rows, and nothing is written")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    rows = options.rows // 100 if options.quick else options.rows
    figures: list[Figure] = []
    for shape, keys in SHAPES.items():
        frame = flights(max(keys * rows // ROWS, 1), rows)
        for pattern, forms in grid():
            if options.only in pattern:
                figures += measure(shape, frame, pattern, forms)
    show(figures)
    if not options.quick and not options.only:
        told = {"rows": rows, "python": platform.python_version(), "figures": [asdict(each) for each in figures]}
        RESULTS.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
