"""The figures of the live view, and how they are drawn."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from headrace.cli.gauges import LATENCY_SECONDS, Gauges, Rate, ResultRow, Snapshot, quantile
from headrace.cli.view import centre, screen, status_line, summary

CELL = "891126d3117ffff"


def progress(**fields: Any) -> dict[str, Any]:
    report = {
        "event": "progress",
        "batch": 0,
        "rows_in": 0,
        "results": 0,
        "late": 0,
        "dead_letters": 0,
        "duration_ms": 400,
        "watermark": None,
        "watermark_lag_ms": None,
        "backlog": 0,
    }
    return report | fields


def drawn(shown: Snapshot, **options: Any) -> str:
    console = Console(width=100, file=None, record=True, force_terminal=False)
    with console.capture() as captured:
        console.print(screen(shown, job="vehicle-distribution", footer=["Ctrl-C stops everything"], **options))
    return captured.get()


@settings(deadline=None, max_examples=100)
@given(rate=st.integers(1, 10_000), every=st.sampled_from([0.25, 0.5, 1.0, 2.0]), reports=st.integers(50, 80))
def test_a_steady_stream_has_its_rate(rate: int, every: float, reports: int) -> None:
    measured = Rate()
    now = 0.0
    for number in range(reports):
        now = number * every
        measured.add(int(rate * every * 4), now=now)
    assert measured.per_second(now=now) == pytest.approx(int(rate * every * 4) / every, rel=0.01)


def test_a_stream_that_stopped_has_no_rate() -> None:
    rate = Rate()
    rate.add(1000, now=1.0)
    assert rate.per_second(now=1.0) == 1000
    assert rate.per_second(now=11.1) == 0
    rate.add(500, now=20.0)
    assert rate.per_second(now=20.0) < 500


@settings(deadline=None, max_examples=100)
@given(values=st.lists(st.floats(-100, 100), min_size=1, max_size=300), q=st.sampled_from([0.5, 0.9, 0.99]))
def test_quantile_is_the_nearest_rank(values: list[float], q: float) -> None:
    found = quantile(sorted(values), q)
    assert found in values
    assert found is not None
    assert sum(value <= found for value in values) >= q * len(values)
    assert sum(value < found for value in values) < q * len(values)


def test_totals_and_last_figures() -> None:
    gauges = Gauges()
    gauges.progress(progress(batch=0, rows_in=300, results=0, dead_letters=2), now=1.0)
    gauges.progress(
        progress(
            batch=1,
            rows_in=300,
            results=60,
            late=1,
            watermark="2026-03-01T12:00:00+00:00",
            watermark_lag_ms=1500,
            backlog=7,
        ),
        now=2.0,
    )
    shown = gauges.snapshot(now=2.0)
    assert (shown.events, shown.results, shown.dead_letters, shown.late, shown.backlog) == (600, 60, 2, 1, 7)
    assert shown.events_per_second == 300
    assert shown.watermark == datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert shown.watermark_lag == 1.5


def test_only_the_newest_window_is_shown_and_a_cell_that_left_it_disappears() -> None:
    gauges = Gauges(top=2)
    gauges.results([ResultRow("a", 5, 5_000_000, 5_500_000), ResultRow("b", 9, 5_000_000, 5_500_000)], now=1.0)
    gauges.results([ResultRow("a", 2, 10_000_000, 10_500_000), ResultRow("c", 3, 10_000_000, 10_500_000)], now=2.0)
    gauges.results([ResultRow("b", 99, 5_000_000, 12_000_000, on_time=False)], now=3.0)
    shown = gauges.snapshot(now=3.0)
    assert shown.busiest == (("c", 3), ("a", 2))
    assert (shown.cells, shown.total) == (2, 5)


def test_latency_is_of_the_last_minute_and_of_complete_windows_only() -> None:
    gauges = Gauges()
    gauges.results([ResultRow("a", 1, 0, 9_000_000)], now=0.0)
    gauges.results([ResultRow("a", 1, 5_000_000, 5_700_000)], now=30.0)
    gauges.results([ResultRow("a", 1, 5_000_000, 50_000_000, on_time=False)], now=31.0)
    assert gauges.snapshot(now=31.0).latency_p99 == 9.0
    assert gauges.snapshot(now=LATENCY_SECONDS + 1).latency_p99 == pytest.approx(0.7)
    assert gauges.snapshot(now=200.0).latency_p50 is None


def test_windows_from_before_the_start_say_nothing_about_latency() -> None:
    gauges = Gauges(since=10_000_000)
    gauges.results([ResultRow("a", 1, 5_000_000, 95_000_000), ResultRow("a", 1, 10_000_000, 11_000_000)], now=1.0)
    assert gauges.snapshot(now=1.0).latency_p99 == 1.0


@pytest.mark.parametrize("report", [{}, {"event": "novelty"}, {"event": "progress"}, {"event": "state"}])
def test_reports_that_are_not_known_or_not_complete_do_no_harm(report: dict[str, Any]) -> None:
    gauges = Gauges()
    gauges.progress(report, now=1.0)
    assert gauges.snapshot(now=1.0).events == 0


def test_a_watermark_that_is_no_time_is_unknown() -> None:
    gauges = Gauges()
    gauges.progress(progress(watermark="yesterday"), now=1.0)
    assert gauges.snapshot(now=1.0).watermark is None


def test_the_screen_before_anything_came() -> None:
    gauges = Gauges()
    gauges.progress({"event": "state", "state": "warming", "detail": "first batch"}, now=0.0)
    text = drawn(gauges.snapshot(now=0.0), warning="careful")
    assert "warming (first batch)" in text
    assert "waiting for the first window" in text
    assert "careful" in text
    assert status_line(gauges.snapshot(now=0.0)) == "warming: first batch"


def test_the_screen_with_figures() -> None:
    gauges = Gauges()
    gauges.progress({"event": "state", "state": "running", "detail": ""}, now=0.0)
    gauges.progress(progress(batch=4, rows_in=1234, results=20, dead_letters=3), now=1.0)
    gauges.results([ResultRow(CELL, 12, 5_000_000, 5_730_000), ResultRow("other", 0, 5_000_000, 5_730_000)], now=1.0)
    shown = gauges.snapshot(now=1.0)
    text = drawn(shown)
    for piece in ("1,234 /s", "0.73 s", CELL, centre(CELL), "12 in 2 cells", "Ctrl-C stops everything"):
        assert piece in text
    assert "latency p50 0.73 s" in status_line(shown)
    assert f"Busiest cell: {CELL}" in "\n".join(summary(shown, elapsed=12.0, first_result=3.0))
    assert shown.to_dict()["busiest"][0] == {"key": CELL, "count": 12}


@pytest.mark.parametrize(
    ("watermark", "warned"),
    [
        # 2026-03-01 and 2099-12-31 in seconds, read as milliseconds.
        (datetime.fromtimestamp(1_772_352.001, UTC), True),
        (datetime.fromtimestamp(4_102_444.799, UTC), True),
        (datetime(1970, 3, 1, tzinfo=UTC), False),
        (datetime(1969, 12, 31, tzinfo=UTC), False),
        (datetime(2026, 3, 1, tzinfo=UTC), False),
        (None, False),
    ],
)
def test_event_time_in_january_1970_is_pointed_out(watermark: datetime | None, warned: bool) -> None:
    shown = Snapshot(state="running", batch=3, watermark=watermark)
    for text in (status_line(shown), drawn(shown), "\n".join(summary(shown, elapsed=1.0, first_result=None))):
        assert ("in another unit than time_format says" in " ".join(text.split())) == warned


def test_results_without_a_window_are_said_to_be_elsewhere() -> None:
    gauges = Gauges()
    gauges.progress({"event": "state", "state": "running", "detail": ""}, now=0.0)
    gauges.progress(progress(batch=4, rows_in=10, results=7), now=1.0)
    text = drawn(gauges.snapshot(now=1.0))
    assert "results without a window are not shown here" in text
    assert "waiting for the first window" not in text
