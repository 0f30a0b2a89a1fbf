"""Clocks that are ahead of the arrival of their events, and what they do to a watermark."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import PlanError
from headrace.inprocess import Runner
from headrace.stream import Stream
from headrace.time import (
    BEGINNING,
    INSTANT,
    WatermarkStrategy,
    WatermarkTracker,
    ascending,
    bounded,
    percentile,
    punctuated,
)
from headrace.time.duration import SECOND
from headrace.windows import count, tumbling

NOW = 1_700_000_000 * SECOND


def reports(*pairs: tuple[int, int | None], **columns: list[object]) -> pl.DataFrame:
    """Make rows from pairs of event time and arrival."""
    times = pl.DataFrame(pairs, {"event_time": pl.Int64, "ingestion_time": pl.Int64}, orient="row")
    return times.cast(INSTANT).with_columns(**{name: pl.Series(values) for name, values in columns.items()})


@pytest.mark.parametrize(
    ("strategy", "pairs", "watermark"),
    [
        pytest.param(ascending(clock_tolerance=0), [(90, 100), (500, 101)], 101, id="ahead: counts as its arrival"),
        pytest.param(ascending(clock_tolerance=5), [(90, 100), (500, 101)], 106, id="the tolerance is added"),
        pytest.param(ascending(clock_tolerance=5), [(104, 100)], 104, id="ahead by less: counts as it is"),
        pytest.param(ascending(clock_tolerance=0), [(90, 100), (95, 10_000)], 95, id="a backlog is not touched"),
        pytest.param(ascending(clock_tolerance=0), [(90, 100), (500, None)], 500, id="no arrival: no bound"),
        pytest.param(ascending(), [(90, 100), (500, 101)], 500, id="no tolerance: no bound"),
        pytest.param(bounded(10, clock_tolerance=0), [(90, 100), (500, 101)], 91, id="bounded"),
        pytest.param(percentile(0.9, initial=10, clock_tolerance=0), [(500, 101)], 91, id="percentile"),
        pytest.param(punctuated(pl.lit(True), clock_tolerance=0), [(500, 101)], 101, id="punctuated"),
    ],
)
def test_what_is_ahead_of_its_arrival_moves_the_watermark_to_the_arrival(
    strategy: WatermarkStrategy, pairs: list[tuple[int, int | None]], watermark: int
) -> None:
    tracker = WatermarkTracker(strategy)
    tracker.observe("a", json.loads(json.dumps(strategy.observe(reports(*pairs)))), NOW)
    assert tracker.advance(NOW) == watermark


def test_events_that_are_ahead_are_counted_and_not_taken_for_late() -> None:
    strategy = bounded(0, clock_tolerance=0)
    tracker = WatermarkTracker(strategy)
    for observation in (strategy.observe(reports((500, 100), (99, 101))), strategy.observe(reports((600, 102)))):
        tracker.observe("a", observation, NOW)
    (report,) = tracker.report(NOW)
    assert (report.ahead, report.newest, report.rows) == (2, 102, 3)
    assert (report.lateness["max"], report.lateness["p50"]) == (1, 0)


@pytest.mark.parametrize("tolerance", ["-1s", -1])
def test_a_negative_tolerance_is_refused(tolerance: str | int) -> None:
    with pytest.raises(PlanError, match="clock_tolerance"):
        bounded("1s", clock_tolerance=tolerance)


def test_a_tolerance_needs_to_know_the_arrival() -> None:
    with pytest.raises(PlanError, match="ingestion_time"):
        Stream.rows("doors", {"door": pl.String}).watermark(bounded("1s", clock_tolerance=0))


TIMES = st.integers(0, 200)
REPORTS = st.lists(st.tuples(TIMES, st.none() | TIMES), max_size=6)


@given(batches=st.lists(st.dictionaries(st.sampled_from("ab"), REPORTS), max_size=6), tolerance=st.integers(0, 50))
@settings(deadline=None, max_examples=80)
def test_property_the_bound_only_ever_holds_back(
    batches: list[dict[str, list[tuple[int, int | None]]]], tolerance: int
) -> None:
    free, bound = ascending(), ascending(clock_tolerance=tolerance)
    trackers = WatermarkTracker(free), WatermarkTracker(bound)
    newest_arrival = BEGINNING
    honest = True
    for batch in batches:
        for partition, pairs in batch.items():
            for tracker in trackers:
                tracker.observe(partition, tracker.strategy.observe(reports(*pairs)), NOW)
            for event, arrival in pairs:
                newest_arrival = max(newest_arrival, event if arrival is None else arrival)
                honest = honest and (arrival is None or event <= arrival + tolerance)
        without, within = (tracker.advance(NOW) for tracker in trackers)
        assert within <= without
        assert within <= newest_arrival + tolerance
        if honest:
            assert within == without


def test_all_key_groups_agree_and_the_event_itself_is_taken_as_it_is() -> None:
    stream = (
        Stream.rows("doors", {"door": pl.String, "ingestion_time": INSTANT})
        .watermark(bounded("1s", clock_tolerance=0))
        .key_by("door")
        .window(tumbling("10s"))
        .aggregate(openings=count())
    )
    runner = Runner(stream, key_groups=4)

    def at(second: int) -> datetime:
        return datetime(2026, 1, 1, 12, 0, second, tzinfo=UTC)

    def step(*seen: tuple[str, int, int]) -> tuple[int, list[tuple[str, int]]]:
        frame = pl.DataFrame(
            [(door, at(event), at(arrival)) for door, event, arrival in seen],
            {"door": pl.String, "event_time": INSTANT, "ingestion_time": INSTANT},
            orient="row",
        )
        batch = runner.step(frame)
        assert batch.late is None
        return batch.watermark, sorted(batch.results.select("door", "openings").rows())

    # Door "x" is 30 s ahead. Without the bound everything of the second batch would be late.
    assert step(("a", 1, 1), ("x", 31, 1)) == (int(at(0).timestamp()) * SECOND, [])
    assert step(("a", 2, 2), ("b", 2, 2), ("x", 32, 2)) == (int(at(1).timestamp()) * SECOND, [])
    _, results = step(("a", 11, 11))
    assert results == [("a", 2), ("b", 1)]
    _, results = step(("a", 41, 41))
    assert results == [("a", 1), ("x", 2)]
