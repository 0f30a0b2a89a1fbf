"""What joins keep: freed by time on both sides, bounded by a setting, and no more than rows to come can need."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from headrace.engine.limits import StateLimit, StateLimitError
from headrace.inprocess import Runner
from headrace.stream import Stream
from headrace.time import bounded
from headrace.windows import tumbling

INSTANT = pl.Datetime("us", "UTC")
SECOND = 1_000_000
LEFT = Stream.rows("left", {"k": pl.Int64, "v": pl.Int64}).watermark(bounded("0s"), idle_after="5s")
RIGHT = Stream.rows("right", {"k": pl.Int64, "w": pl.Int64}).watermark(bounded("0s"), idle_after="5s")
JOINS = {
    "interval": LEFT.join(RIGHT, on="k", within=("-5s", "3s"), how="full"),
    "semi": LEFT.join(RIGHT, on="k", within=("-5s", "3s"), how="semi"),
    "keep_for": LEFT.join(RIGHT, on="k", within=("-5s", None), how="full", keep_for="3s"),
    "window": LEFT.join(RIGHT, on="k", window=tumbling("4s"), how="full"),
    "asof": LEFT.join_asof(RIGHT, on="k", tolerance="5s"),
}
VERSIONS = LEFT.join(RIGHT.as_table("k", versioned=True), on="k", as_of="event_time", how="left")


def rows(value: str, second: float, keys: int = 50) -> pl.DataFrame:
    numbers = pl.int_range(keys, eager=True)
    frame = pl.DataFrame({"k": numbers, value: numbers})
    return frame.with_columns(pl.lit(int(second * SECOND)).cast(INSTANT).alias("event_time"))


def size(runner: Runner) -> int:
    return sum(len(value) for groups in runner.snapshot().values() for group in groups for value in group.values())


@pytest.mark.parametrize("name", list(JOINS))
@pytest.mark.parametrize("sides", [("left", "right"), ("left",), ("right",)])
def test_rows_are_freed_by_time_also_where_a_side_never_has_an_event(name: str, sides: tuple[str, ...]) -> None:
    runner = Runner(JOINS[name], key_groups=2)
    sizes, given = [], 0
    for second in range(60):
        # A side without events is idle from the sixth second on.
        batch = {side: rows("v" if side == "left" else "w", second) for side in sides}
        given += runner.step(batch, now=second * SECOND).results.height
        sizes.append(size(runner))

    assert max(sizes[40:]) <= 1.3 * max(sizes[10:30])
    one_sided = {"semi": 0, "asof": 50 * 60} if sides == ("left",) else {"semi": 0, "asof": 0}
    if len(sides) == 1:
        expected = one_sided.get(name, 50 * 60)
        # The last seconds are not decided yet.
        assert expected - 50 * 10 <= given <= expected


def test_a_row_of_the_far_future_does_not_keep_others() -> None:
    runner = Runner(JOINS["interval"], key_groups=1)
    runner.step({"left": rows("v", 10**6), "right": rows("w", 0)}, now=0)
    for second in range(1, 40):
        runner.step({"right": rows("w", second), "left": rows("v", 10**6 + second, keys=1)}, now=second * SECOND)

    assert size(runner) < 60_000


def test_very_many_versions_of_one_key() -> None:
    """Those that the watermark has passed are forgotten, but for the newest."""
    many = 100_000
    numbers = pl.int_range(many, eager=True)
    versions = pl.DataFrame({"k": [7] * many, "w": numbers}).with_columns(
        (numbers * 1_000).cast(INSTANT).alias("event_time")
    )
    runner = Runner(VERSIONS, key_groups=1)
    runner.step({"right": versions})
    full = size(runner)
    asked = pl.DataFrame({"k": [7, 7], "v": [0, 1]}).with_columns(
        pl.Series("event_time", [500_499, 1_000_000], dtype=pl.Int64).cast(INSTANT)
    )

    found = [runner.step({"left": asked}).results]
    after = rows("v", 150, keys=8).filter(pl.col("k") == 7)
    found.append(runner.step({"left": after, "right": rows("w", 150, keys=1)}).results)

    assert pl.concat(found).select("v", "w").rows() == [(0, 500), (1, 1_000)]
    assert size(runner) < full / 50
    assert runner.finish().results.get_column("w").to_list() == [many - 1]


def test_a_bound_on_the_state_names_the_join() -> None:
    runner = Runner(JOINS["interval"].named("orders-of-scans"), key_groups=1, state_limit=StateLimit(keys=150))
    runner.step({"left": rows("v", 0), "right": rows("w", 0)})

    with pytest.raises(StateLimitError, match=r"orders-of-scans.* keeps 200 keys .* spark.max_state_keys"):
        runner.step({"left": rows("v", 1), "right": rows("w", 1)})


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_a_join_of_a_stream_with_itself(how: Any) -> None:
    joined = LEFT.join(LEFT, on="k", within=("-2s", "-1s"), how=how, suffix="_before")
    runner = Runner(joined, key_groups=3)
    found = [runner.step(rows("v", second, keys=4)).results for second in (0, 1, 2, 10)]
    found.append(runner.finish().results)

    # Seconds 1 and 2 have partners, second 2 two of them; 0 and 10 have none.
    expected = {"inner": 3 * 4, "left": 5 * 4, "semi": 2 * 4, "anti": 2 * 4}[how]
    assert sum(each.height for each in found) == expected
