"""Watermark strategies and the tracker that takes their minimum."""

from __future__ import annotations

import json

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import PlanError, StateError
from headrace.time import (
    BEGINNING,
    INSTANT,
    WatermarkStrategy,
    WatermarkTracker,
    absurd,
    ascending,
    bounded,
    percentile,
    perfect,
    punctuated,
)
from headrace.time.duration import DAY, SECOND

NOW = 1_700_000_000 * SECOND


def rows(*times: int | None, **columns: list[object]) -> pl.DataFrame:
    return pl.DataFrame({"event_time": pl.Series(times, dtype=pl.Int64).cast(INSTANT), **columns})


def track(strategy: WatermarkStrategy, *batches: dict[str, list[int]], idle_after: int | None = None) -> list[int]:
    tracker, marks = WatermarkTracker(strategy, idle_after), []
    for batch in batches:
        for partition, times in batch.items():
            tracker.observe(partition, strategy.observe(rows(*times)), NOW)
        marks.append(tracker.advance(NOW))
        tracker = WatermarkTracker(strategy, idle_after, state=json.loads(json.dumps(tracker.state())))
    return marks


@pytest.mark.parametrize(
    ("strategy", "batches", "expected"),
    [
        (ascending(), [{"a": [1, 5, 3]}, {"a": [4]}, {"a": [9]}], [5, 5, 9]),
        (bounded(2), [{"a": [1, 5, 3]}, {"a": [4]}, {"a": [9]}], [3, 3, 7]),
        (bounded(0), [{"a": [10], "b": [4]}, {"b": [20]}], [4, 10]),
        (bounded(0), [{"a": [10], "b": []}, {"b": [3]}], [BEGINNING, 3]),
        (percentile(0.99, initial=4), [{"a": [10]}], [6]),
    ],
)
def test_the_watermark_is_the_minimum_over_partitions_and_never_goes_back(
    strategy: WatermarkStrategy, batches: list[dict[str, list[int]]], expected: list[int]
) -> None:
    assert track(strategy, *batches) == expected


def test_a_percentile_strategy_learns_the_delay_across_batches() -> None:
    strategy = percentile(0.7, min_rows=4)
    tracker = WatermarkTracker(strategy)
    for base in range(100, 4000, 100):
        # Every second event is 30 behind the newest one of the batch before.
        tracker.observe("a", strategy.observe(rows(base - 30, base + 100)), NOW)
    assert tracker.advance(NOW) == 4000 - 30
    assert tracker.recommended_delay(share=0.99) == 30
    (report,) = tracker.report(NOW)
    assert (report.lateness["max"], report.rows, report.holds_back) == (30, 78, False)


def test_punctuated_follows_marks_only() -> None:
    strategy = punctuated(pl.col("flush"))
    tracker = WatermarkTracker(strategy)
    tracker.observe("a", strategy.observe(rows(1, 9, flush=[True, False])), NOW)
    assert tracker.advance(NOW) == 1
    tracker.observe("a", strategy.observe(rows(50, flush=[False])), NOW)
    assert tracker.advance(NOW) == 1


def test_perfect_takes_what_the_source_says() -> None:
    tracker = WatermarkTracker(perfect())
    tracker.observe("a", {"watermark": 40}, NOW)
    tracker.observe("a", {"watermark": 30}, NOW)
    assert tracker.advance(NOW) == 40
    strategy = perfect("said")
    tracker = WatermarkTracker(strategy)
    tracker.observe("a", strategy.observe(rows(1, 2, said=[7, 8])), NOW)
    assert tracker.advance(NOW) == 8


def test_an_idle_partition_leaves_the_minimum_and_comes_back() -> None:
    strategy = ascending()
    tracker = WatermarkTracker(strategy, idle_after=10)
    tracker.observe("a", strategy.observe(rows(100)), 0)
    tracker.observe("b", strategy.observe(rows(5)), 0)
    assert tracker.advance(0) == 5
    tracker.observe("a", strategy.observe(rows(200)), 9)
    assert tracker.advance(9) == 5
    assert tracker.advance(10) == 200
    assert [(r.partition, r.idle) for r in tracker.report(10)] == [("a", False), ("b", True)]
    tracker.observe("b", strategy.observe(rows(7)), 11)
    assert tracker.advance(11) == 200
    assert [(r.partition, r.holds_back, r.behind) for r in tracker.report(11)] == [("a", False, 0), ("b", True, 193)]


@pytest.mark.parametrize(("rule", "expected"), [("max", 100), ("hold", 5), ("clock", 140)])
def test_when_all_are_idle(rule: str, expected: int) -> None:
    strategy = ascending()
    tracker = WatermarkTracker(strategy, idle_after=10, all_idle=rule)  # type: ignore[arg-type]
    tracker.observe("a", strategy.observe(rows(100)), 0)
    tracker.observe("b", strategy.observe(rows(5)), 0)
    assert tracker.advance(50) == expected


def test_an_absurd_timestamp_does_not_move_the_watermark() -> None:
    strategy = bounded("1s")
    year_3000 = 32_503_680_000 * SECOND
    batch = rows(NOW, year_3000, 0, None, ingestion_time=pl.Series([NOW] * 4).cast(INSTANT))
    assert batch.select(strategy.absurd(batch)).to_series().to_list() == [False, True, True, True]
    tracker = WatermarkTracker(strategy)
    tracker.observe("a", strategy.observe(batch), NOW)
    assert tracker.advance(NOW) == NOW - SECOND
    assert tracker.report(NOW)[0].absurd == 3
    # Without an ingestion time only the tracker's clock can tell.
    tracker.observe("a", strategy.observe(rows(year_3000)), NOW)
    assert tracker.advance(NOW) == NOW - SECOND


def test_bounds_can_be_switched_off() -> None:
    batch = rows(NOW + 2 * DAY)
    assert batch.select(absurd(batch, NOW)).item() is True
    assert batch.select(absurd(batch, NOW, max_ahead=None)).item() is False
    assert batch.select(absurd(batch)).item() is False


@given(
    batches=st.lists(st.dictionaries(st.sampled_from("abc"), st.lists(st.integers(0, 1000), max_size=5)), max_size=8),
    delay=st.integers(0, 50),
)
@settings(deadline=None, max_examples=60)
def test_property_monotone_and_never_past_a_known_partition(batches: list[dict[str, list[int]]], delay: int) -> None:
    marks = track(bounded(delay), *batches)
    assert marks == sorted(marks)
    newest: dict[str, int] = {}
    for batch, mark in zip(batches, marks, strict=True):
        for name, times in batch.items():
            newest[name] = max([newest.get(name, BEGINNING + delay), *times])
        if newest:
            assert mark >= min(newest.values()) - delay
            assert mark <= max(newest.values()) - delay


def test_what_cannot_work_is_refused() -> None:
    with pytest.raises(PlanError, match="zero or more"):
        bounded(-1)
    with pytest.raises(PlanError, match="between 0 and 1"):
        percentile(99)
    with pytest.raises(PlanError, match="above zero"):
        WatermarkTracker(ascending(), 0)
    with pytest.raises(StateError, match="version"):
        WatermarkTracker(ascending(), state={"version": 99})
