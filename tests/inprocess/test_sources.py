"""Several sources, several partitions, odd input: time goes on, and nothing is lost without a word."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import polars as pl
import pytest

from headrace.errors import PlanError
from headrace.inprocess import Runner, run
from headrace.stream import Stream
from headrace.time import bounded, perfect
from headrace.windows import (
    after_processing_time,
    count,
    latest,
    sum,  # noqa: A004
    tumbling,
)

if TYPE_CHECKING:
    from headrace.time.watermarks import AllIdle

INSTANT = pl.Datetime("us", "UTC")
SECOND = 1_000_000
NOW = int(datetime(2026, 6, 1, tzinfo=UTC).timestamp()) * SECOND
#: The clock of those whose events are of 1970.
START = 100 * SECOND
COLUMNS = {"door": pl.String, "n": pl.Int64}


def rows(*given: tuple[str | None, float | None], base: int = 0) -> pl.DataFrame:
    times = [None if second is None else base + round(second * SECOND) for _, second in given]
    return pl.DataFrame(
        {"door": [door for door, _ in given], "n": list(range(len(given))), "event_time": times},
        schema={**COLUMNS, "event_time": pl.Int64},
    ).cast({"event_time": INSTANT})


def source(name: str = "doors", *, idle_after: str | None = None) -> Stream:
    return Stream.rows(name, COLUMNS).watermark(bounded(0), idle_after=idle_after)


def counted(stream: Stream) -> Stream:
    return stream.key_by("door").window(tumbling("10s")).aggregate(n=count())


def found(results: pl.DataFrame) -> list[tuple[str, int, int]]:
    start = pl.col("window_start").cast(pl.Int64) // SECOND
    return sorted(results.select("door", start, "n").rows())


def test_a_union_counts_all_sources_and_waits_for_the_slowest() -> None:
    runner = Runner(counted(source("front").union(source("back"))))
    assert runner.step({"front": rows(("a", 1), ("a", 15))}).results.is_empty()
    batch = runner.step({"back": rows(("a", 2), ("b", 3), ("b", 12))})
    assert found(batch.results) == [("a", 0, 2), ("b", 0, 1)]
    assert batch.watermark == 12 * SECOND
    late = runner.step({"front": rows(("a", 9))}).late
    assert late is not None
    assert late.select("door", "lateness").rows() == [("a", timedelta(seconds=2))]


def test_an_idle_source_and_one_that_never_came_let_the_others_go_on() -> None:
    stream = counted(source("front", idle_after="30s").union(source("back", idle_after="30s")))
    runner = Runner(stream)
    assert runner.step({"front": rows(("a", 1), ("a", 15))}, now=START).results.is_empty()
    assert runner.step({"front": rows(("a", 16))}, now=START + 29 * SECOND).results.is_empty()
    assert found(runner.step({"front": rows(("a", 17))}, now=START + 30 * SECOND).results) == [("a", 0, 1)]
    back = runner.step({"back": rows(("b", 18)), "front": rows(("a", 40))}, now=START + 31 * SECOND)
    assert back.watermark == 18 * SECOND
    quiet = runner.step({"front": rows(("a", 41))}, now=START + 61 * SECOND)
    assert found(quiet.results) == [("a", 10, 3), ("b", 10, 1)]


def test_partitions_keep_their_own_time_and_an_idle_one_is_left_behind() -> None:
    runner = Runner(counted(source(idle_after="30s")))
    first = runner.step({"doors": {"p0": rows(("a", 1), ("a", 25)), "p1": rows(("b", 5))}}, now=START)
    assert first.watermark == 5 * SECOND
    assert first.results.is_empty()
    assert runner.step({"doors": {"p0": rows(("a", 31))}}, now=START + 29 * SECOND).results.is_empty()
    beat = runner.step({"doors": {"p0": rows(("a", 32))}}, now=START + 30 * SECOND)
    assert found(beat.results) == [("a", 0, 1), ("a", 20, 1), ("b", 0, 1)]
    back = runner.step({"doors": {"p1": rows(("b", 6), ("b", 33))}}, now=START + 31 * SECOND)
    assert back.late is not None
    assert back.late.get_column("door").to_list() == ["b"]


def test_time_goes_on_without_rows_once_all_is_quiet() -> None:
    runner = Runner(counted(source(idle_after="30s")))
    runner.step({"doors": {"p0": rows(("a", 1)), "p1": rows(("b", 12))}}, now=START)
    assert runner.step(now=START + 29 * SECOND).watermark == 1 * SECOND
    assert found(runner.step(now=START + 30 * SECOND).results) == [("a", 0, 1)]


@pytest.mark.parametrize(
    ("all_idle", "watermark"), [("max", 12 * SECOND), ("hold", 1 * SECOND), ("clock", 12 * SECOND + 5 * SECOND)]
)
def test_what_a_silent_feed_does_with_its_last_windows(all_idle: AllIdle, watermark: int) -> None:
    doors = Stream.rows("doors", COLUMNS).watermark(bounded(0), idle_after="30s", all_idle=all_idle)
    runner = Runner(counted(doors))
    runner.step({"doors": {"p0": rows(("a", 1)), "p1": rows(("b", 12))}}, now=START)
    runner.step(now=START + 30 * SECOND)
    assert runner.step(now=START + 35 * SECOND).watermark == watermark
    # A clock that jumps back, or stands, changes nothing.
    assert runner.step(now=START).watermark == watermark


def test_a_silent_feed_is_silent_by_a_measure() -> None:
    doors = Stream.rows("doors", COLUMNS)
    with pytest.raises(PlanError, match="without idle_after"):
        doors.watermark(bounded(0), all_idle="clock")
    with pytest.raises(PlanError, match="all_idle='never'"):
        doors.watermark(bounded(0), idle_after="1s", all_idle="never")  # type: ignore[arg-type]
    assert "all idle: clock" in doors.watermark(bounded(0), idle_after="1s", all_idle="clock").explain()


def test_a_source_that_knows_speaks_for_all_of_its_partitions() -> None:
    stream = counted(Stream.rows("doors", COLUMNS).watermark(perfect()))
    runner = Runner(stream)
    batch = runner.step({"doors": {"p0": rows(("a", 1)), "p1": rows(("b", 2))}}, watermark=10 * SECOND)
    assert found(batch.results) == [("a", 0, 1), ("b", 0, 1)]
    assert runner.step(watermark=5 * SECOND).watermark == 10 * SECOND


def test_a_window_fires_by_the_clock_without_a_row() -> None:
    stream = source().key_by("door").window(tumbling("1h"), trigger=after_processing_time("5s")).aggregate(n=count())
    runner = Runner(stream)
    assert runner.step(rows(("a", 1)), now=START).results.is_empty()
    assert runner.step(now=START + 4 * SECOND).results.is_empty()
    fired = runner.step(now=START + 5 * SECOND)
    assert fired.results.select("n", "pane_timing").rows() == [(1, "early")]


def test_absurd_times_are_dismissed_and_do_not_move_time() -> None:
    runner = Runner(counted(source()))
    batch = runner.step(rows(("a", 1), ("b", 86_400 * 365 * 900), ("c", None), ("d", -NOW / SECOND), base=NOW), now=NOW)
    assert batch.dismissed is not None
    assert sorted(batch.dismissed.select("door", "reason").rows()) == [
        ("b", "absurd_time"),
        ("c", "absurd_time"),
        ("d", "absurd_time"),
    ]
    assert batch.watermark == NOW + SECOND
    assert runner.finish().results.get_column("door").to_list() == ["a"]


def test_absurd_times_are_still_told_after_a_restart_that_says_no_time() -> None:
    stream = counted(source())
    first = Runner(stream)
    first.step(rows(("a", 1), base=NOW), now=NOW)
    second = Runner(stream, snapshot=first.snapshot())
    batch = second.step(rows(("b", 86_400 * 365 * 900), base=NOW))
    assert batch.dismissed is not None
    assert batch.watermark == NOW + SECOND


def test_rows_without_a_key_are_dismissed_wherever_they_lose_it() -> None:
    stream = (
        source()
        .with_columns(n=pl.col("n").cast(pl.String))
        .key_by("door")
        .window(tumbling("10s"))
        .aggregate(newest=latest(pl.when(pl.col("door") != "b").then(pl.col("n"))))
        .key_by("newest")
        .window(tumbling("1min"))
        .aggregate(doors=count())
    )
    batch = run(stream, rows(("a", 1), (None, 2), ("b", 3), ("c", None)))
    assert batch.results.select("newest", "doors").rows() == [("0", 1)]
    assert batch.dismissed is not None
    # The dismissed of a source, of a step that changed a type, and of a later stage stand side by side.
    assert batch.dismissed.select("door", "n", "reason").sort("reason", "door").rows() == [
        ("c", "3", "absurd_time"),
        (None, "1", "null_key"),
        ("b", None, "null_key"),
    ]


def test_a_time_that_a_step_takes_away_is_dismissed_not_lost() -> None:
    hidden = source().with_columns(event_time=pl.when(pl.col("door") != "b").then(pl.col("event_time")).cast(INSTANT))
    batch = run(counted(hidden), rows(("a", 1), ("b", 2)))
    assert found(batch.results) == [("a", 0, 1)]
    assert batch.dismissed is not None
    assert batch.dismissed.select("door", "reason").rows() == [("b", "event_time is null")]


def test_late_rows_are_shown_whole_with_window_lateness_and_watermark() -> None:
    runner = Runner(source().key_by("door").window(tumbling("10s")).aggregate(total=sum(pl.lit(1))))
    runner.step(rows(("a", 1), ("a", 25)))
    late = runner.step(rows(("x", 26), ("b", 3))).late
    assert late is not None
    shown = late.with_columns(
        pl.col("event_time", "window_start", "window_end", "watermark", "lateness").cast(pl.Int64) // SECOND
    )
    assert shown.to_dicts() == [
        {
            "door": "b",
            "n": 1,
            "event_time": 3,
            "window_start": 0,
            "window_end": 10,
            "lateness": 15,
            "watermark": 25,
        }
    ]


def test_columns_may_have_the_names_that_we_use_inside() -> None:
    odd = {"absurd": pl.Int64, "slice_start": pl.Int64, "index": pl.Int64, "number": pl.Int64, "k": pl.String}
    stream = (
        Stream.rows("odd", odd)
        .watermark(bounded(0))
        .key_by("k")
        .window(tumbling("10s"))
        .aggregate(**{name: sum(name) for name in odd if name != "k"})
    )
    given = pl.DataFrame({**{name: [1, 2] for name in odd if name != "k"}, "k": ["a", "a"], "event_time": [1, None]})
    runner = Runner(stream)
    first = runner.step(given.cast({"event_time": INSTANT}), now=0)
    assert first.dismissed is not None
    assert first.dismissed.get_column("absurd").to_list() == [2]
    assert runner.finish().results.select("absurd", "slice_start", "index", "number").rows() == [(1, 1, 1, 1)]


def test_after_the_end_every_row_is_late() -> None:
    runner = Runner(counted(source()))
    runner.step(rows(("a", 1)))
    assert found(runner.finish().results) == [("a", 0, 1)]
    late = runner.step(rows(("a", 2))).late
    assert late is not None
    assert late.height == 1
    assert runner.finish().results.is_empty()
