"""Windows, patterns and further joins behind joins, and joins behind windows: nothing is late on the way."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

import polars as pl
import pytest

from headrace.cep import Pattern
from headrace.cep.measures import first, last
from headrace.inprocess import Runner
from headrace.joins.sides import HOWS, How
from headrace.stream import Stream
from headrace.time import bounded
from headrace.windows import count, same_window, tumbling

if TYPE_CHECKING:
    from headrace.inprocess import Batch

INSTANT = pl.Datetime("us", "UTC")
LEFT = Stream.rows("left", {"k": pl.Int64, "v": pl.Int64}).watermark(bounded(20))
RIGHT = Stream.rows("right", {"k": pl.Int64, "w": pl.Int64}).watermark(bounded(20))
NEAR = LEFT.join(RIGHT, on="k", within=(-5, 10), how="left")

Row = tuple[int, int, int]


def inputs(seed: int) -> tuple[list[Row], list[Row]]:
    """Rows of (key, value, time), in an order that is up to 20 behind."""
    chance = random.Random(seed)
    sides = []
    for _ in range(2):
        rows = [(chance.randrange(3), chance.randrange(5), chance.randrange(300)) for _ in range(90)]
        sides.append(sorted(rows, key=lambda row: row[2] + chance.randrange(20)))
    return sides[0], sides[1]


def through(stream: Stream, sides: tuple[list[Row], list[Row]], groups: int) -> pl.DataFrame:
    """Run batches of both sides with the same share of their rows, with a restart; nothing may be late."""
    runner = Runner(stream, key_groups=groups)
    steps: list[Batch] = []
    for number in range(9):
        if number == 4:
            runner = Runner(stream, key_groups=groups, snapshot=runner.snapshot())
        batch = {}
        for name, value, rows in (("left", "v", sides[0]), ("right", "w", sides[1])):
            part = rows[number * 10 : number * 10 + 10]
            frame = pl.DataFrame(part, schema=["k", value, "event_time"], orient="row")
            batch[name] = frame.with_columns(pl.col("event_time").cast(INSTANT))
        steps.append(runner.step(batch))
    steps.append(runner.finish())
    late = [step.late for step in steps if step.late is not None]
    assert not late, f"late on the way: {late}"
    return pl.concat([step.results for step in steps])


def joined(sides: tuple[list[Row], list[Row]]) -> list[tuple[int, int, int | None, int]]:
    """The left join by loops: key, v, w, time."""
    found: list[tuple[int, int, int | None, int]] = []
    for k, v, time in sides[0]:
        partners = [(w, other) for key, w, other in sides[1] if key == k and time - 5 <= other <= time + 10]
        found += [(k, v, w, max(time, other)) for w, other in partners] or [(k, v, None, time)]
    return found


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("groups", [1, 3])
def test_windows_behind_a_join(seed: int, groups: int) -> None:
    sides = inputs(seed)
    expected = Counter((v, time - time % 25) for _, v, _, time in joined(sides))

    found = through(NEAR.key_by("v").window(tumbling(25)).aggregate(n=count()), sides, groups)

    start = pl.col("window_start").cast(pl.Int64)
    assert sorted(found.select("v", start, "n").rows()) == sorted((*key, n) for key, n in expected.items())


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("bounds", [(-5, 10), (-30, 0), (4, 40), (-40, -15)])
def test_windows_behind_every_kind_of_interval_join(how: How, bounds: tuple[int, int]) -> None:
    lower, upper = bounds
    sides = inputs(5)
    times: list[int] = []
    met: set[int] = set()
    for k, _, time in sides[0]:
        partners = [
            place
            for place, (key, _, other) in enumerate(sides[1])
            if key == k and time + lower <= other <= time + upper
        ]
        met.update(partners)
        if (how == "semi" and partners) or (how in ("left", "full", "anti") and not partners):
            times.append(time)
        if how not in ("semi", "anti"):
            times += [max(time, sides[1][place][2]) for place in partners]
    if how in ("right", "full"):
        times += [time for place, (_, _, time) in enumerate(sides[1]) if place not in met]
    expected = Counter(time - time % 7 for time in times)
    joined_rows = LEFT.join(RIGHT, on="k", within=bounds, how=how).with_columns(one=pl.lit(1))

    found = through(joined_rows.key_by("one").window(tumbling(7)).aggregate(n=count()), sides, 2)

    start = pl.col("window_start").cast(pl.Int64)
    assert dict(found.select(start, "n").rows()) == expected


@pytest.mark.parametrize("seed", range(3))
def test_a_pattern_behind_a_join(seed: int) -> None:
    sides = inputs(seed)
    alone_then_met = Pattern.begin("alone", pl.col("w").is_null()).next("met", pl.col("w").is_not_null()).within(1_000)
    stream = NEAR.key_by("k").match(alone_then_met).select(v=first("alone.v"), at=last("met.event_time"))
    expected = []
    for key in range(3):
        ordered = sorted((time, w is not None) for k, _, w, time in joined(sides) if k == key)
        times = [time for time, _ in ordered]
        # Rows of one time have no order; only patterns between different times are compared.
        expected += [
            (key, two[0])
            for one, two in pairwise(ordered)
            if not one[1] and two[1] and times.count(one[0]) == times.count(two[0]) == 1
        ]

    found = through(stream, sides, 2)

    assert expected
    assert set(expected) <= set(found.select("k", pl.col("at").cast(pl.Int64)).rows())


@pytest.mark.parametrize("seed", range(3))
def test_a_join_behind_a_join_by_another_key(seed: int) -> None:
    sides = inputs(seed)
    again = NEAR.filter(pl.col("w").is_not_null()).drop("k", "pane_index")
    stream = again.join(LEFT.select(w=pl.col("v"), other=pl.col("k")), on="w", within=(0, 30))
    expected = [
        (w, v, other)
        for _, v, w, time in joined(sides)
        if w is not None
        for other, value, moment in sides[0]
        if value == w and time <= moment <= time + 30
    ]

    found = through(stream, sides, 3)

    assert sorted(found.select("w", "v", "other").rows()) == sorted(expected)


@pytest.mark.parametrize("how", ["inner", "full"])
def test_a_join_behind_windows(how: str) -> None:
    sides = inputs(9)
    counted = [
        stream.key_by("k").window(tumbling(50)).aggregate(**{name: count()})
        for stream, name in ((LEFT, "lefts"), (RIGHT.filter(pl.col("w") > 2), "rights"))
    ]
    stream = counted[0].join(counted[1], on="k", window=same_window(), how=how)  # type: ignore[arg-type]
    lefts = Counter((k, time - time % 50) for k, _, time in sides[0])
    rights = Counter((k, time - time % 50) for k, w, time in sides[1] if w > 2)
    windows = {*lefts, *rights} if how == "full" else {*lefts} & {*rights}

    found = through(stream, sides, 2)

    start = pl.col("window_start").cast(pl.Int64)
    assert sorted(found.select("k", start, "lefts", "rights").rows()) == sorted(
        (*window, lefts.get(window), rights.get(window)) for window in windows
    )
