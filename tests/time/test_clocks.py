"""Clocks of keys: what most of them say, which are wrong, and what becomes of events that are ahead."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import PlanError
from headrace.inprocess import Runner
from headrace.stream import Stream
from headrace.time import INSTANT, WatermarkTracker, bounded, percentile
from headrace.time.clocks import SAMPLE, front, merge_key_times
from headrace.time.duration import SECOND
from headrace.windows import count, tumbling

NOW = 1_700_000_000 * SECOND


def reports(seconds: dict[str, float], *, arrival: float | None = None) -> pl.DataFrame:
    """One report of each vehicle."""
    frame = pl.DataFrame(
        {
            "bus": list(seconds),
            "event_time": pl.Series([NOW + round(second * SECOND) for second in seconds.values()]).cast(INSTANT),
        }
    )
    if arrival is None:
        return frame
    return frame.with_columns(ingestion_time=pl.lit(NOW + round(arrival * SECOND)).cast(INSTANT))


def fleet(second: float, wrong: dict[str, float], *, vehicles: int = 100) -> dict[str, float]:
    return {f"bus {n}": second + wrong.get(f"bus {n}", 0.0) for n in range(vehicles)}


@pytest.mark.parametrize(
    ("strategy", "delay"), [(bounded("1s", of="95%", clock="bus"), 1), (percentile(0.9, of=0.95, clock="bus"), 0)]
)
def test_the_watermark_follows_most_clocks_and_not_the_newest(strategy: Any, delay: int) -> None:
    wrong = {"bus 3": 299.0, "bus 40": 2.0, "bus 77": -30.0}
    tracker, plain = WatermarkTracker(strategy), WatermarkTracker(bounded("1s"))
    for second in range(10):
        rows = reports(fleet(second, wrong))
        for each in (tracker, plain):
            each.observe("a", json.loads(json.dumps(each.strategy.observe(rows))), NOW)
            each.advance(NOW)
    assert plain.watermark == NOW + (9 + 299 - 1) * SECOND
    assert tracker.watermark == NOW + (9 - delay) * SECOND


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 500)), max_size=40), max_size=8))
def test_the_front_is_that_of_all_keys_while_they_are_few_and_speak(batches: list[list[tuple[int, int]]]) -> None:
    strategy = bounded(0, of="90%", clock="bus")
    newest: dict[int, int] = {}
    progress: list[list[int]] = []
    for batch in batches:
        newest |= {key: max(time, newest.get(key, 0)) for key, time in sorted(batch, key=lambda row: row[1])}
        rows = pl.DataFrame({"bus": [k for k, _ in batch], "event_time": [t for _, t in batch]})
        rows = rows.cast({"bus": pl.Int64, "event_time": pl.Int64}).cast({"event_time": INSTANT})
        progress = merge_key_times(progress, strategy.observe(rows).get("keys", []))
        if newest:
            times = sorted(newest.values(), reverse=True)
            assert front(progress, 0.9) == times[len(times) // 10]


def test_the_sample_is_bounded_and_forgets_keys_that_fell_silent() -> None:
    progress: list[list[int]] = []
    for batch in range(100):
        names = pl.Series([f"bus {n}" for n in range(batch * 100, batch * 100 + 1000)])
        strategy = bounded(0, of="95%", clock="bus")
        times = pl.Series(np.full(1000, batch)).cast(INSTANT)
        observed = strategy.observe(pl.DataFrame({"bus": names, "event_time": times}))
        assert len(observed["keys"]) == SAMPLE
        progress = merge_key_times(progress, observed["keys"])
        assert len(progress) == SAMPLE
        assert front(progress, 0.95) == batch


def test_keys_whose_clocks_are_wrong_are_counted_and_the_worst_named() -> None:
    strategy = bounded("1s", clock="bus")
    wrong = {f"bus {n}": float(n) for n in range(2, 16)} | {"bus 50": -120.0}
    tracker = WatermarkTracker(strategy)
    for second in range(3):
        rows = reports(fleet(second, wrong), arrival=second + 0.1)
        tracker.observe("a", json.loads(json.dumps(strategy.observe(rows))), NOW)
    (report,) = tracker.report(NOW)
    assert report.clocks is not None
    assert (report.clocks["keys"], report.clocks["ahead"], report.clocks["behind"]) == (100, 14, 1)
    assert report.clocks["worst"][0] == {"key": "bus 50", "ahead": -120 * SECOND}
    assert [clock["key"] for clock in report.clocks["worst"][1:]] == [f"bus {n}" for n in range(15, 6, -1)]


def test_in_a_recording_all_are_late_and_no_clock_is_behind() -> None:
    strategy = bounded("1s", clock="bus")
    tracker = WatermarkTracker(strategy)
    tracker.observe("a", strategy.observe(reports(fleet(0, {"bus 7": 5.0}), arrival=86_400)), NOW + 86_400 * SECOND)
    (report,) = tracker.report(NOW)
    assert report.clocks is not None
    assert (report.clocks["ahead"], report.clocks["behind"]) == (1, 0)


@pytest.mark.parametrize(
    ("ahead", "counts", "dead"),
    [("take", [(0, 1), (60, 1)], 0), ("clamp", [(0, 2)], 0), ("dismiss", [(0, 1)], 1)],
)
def test_what_becomes_of_an_event_that_is_ahead(ahead: Any, counts: list[tuple[int, int]], dead: int) -> None:
    stream = (
        Stream.rows("reports", {"bus": pl.String, "ingestion_time": INSTANT})
        .watermark(bounded("1s", clock_tolerance="2s", ahead=ahead))
        .key_by("bus")
        .window(tumbling("10s"))
        .aggregate(n=count())
    )
    rows = pl.concat([reports({"a": 3.0}, arrival=3), reports({"a": 61.0}, arrival=4)])
    runner = Runner(stream)
    batch, end = runner.step(rows), runner.finish()
    results = pl.concat([batch.results, end.results])
    begins = ((results["window_start"].to_physical() - NOW) // SECOND).to_list()
    assert sorted(zip(begins, results["n"].to_list(), strict=True)) == counts
    assert (0 if batch.dismissed is None else batch.dismissed.height) == dead
    if batch.dismissed is not None:
        assert batch.dismissed["reason"].to_list() == ["clock_ahead"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"of": "95%"}, "without clock"),
        ({"of": "40%", "clock": "bus"}, "not between 50% and 99%"),
        ({"of": "most", "clock": "bus"}, "no share"),
        ({"ahead": "clamp"}, "without clock_tolerance"),
        ({"ahead": "drop", "clock_tolerance": 0}, "take, clamp, dismiss"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        bounded("1s", **settings)


def test_a_clock_column_that_is_not_there_is_named() -> None:
    with pytest.raises(PlanError, match="cannot work"):
        Stream.rows("reports", {"bus": pl.String}).watermark(bounded("1s", of="95%", clock="tram"))
