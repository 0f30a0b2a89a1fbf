"""What an operator sees: metrics for Prometheus, one line on the terminal, counters that outlive failures."""

from __future__ import annotations

import io
import threading
import time
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console

from headrace.cli import reports, terminal
from headrace.errors import EnvironmentProblem
from headrace.ingest.metrics import IngestMetrics
from headrace.ingest.report import IngestReport, Tally
from headrace.observe.metrics import MetricsEndpoint

if TYPE_CHECKING:
    from collections.abc import Callable


def tally(clock: Callable[[], float] = time.monotonic) -> Tally:
    counts = Tally(clock=clock)
    counts.messages, counts.message_bytes, counts.dead_letters, counts.reconnects = 10, 4000, 2, 3
    counts.events.update({"input.a": 5, "input.b": 2})
    counts.dismissed.update({"bad_value": 2, "duplicate": 1})
    counts.cleared.update({"lat": 4})
    counts.add_lags(np.array([0.01, 0.2, 0.2, 0.7, 7200.0]))
    return counts


def report(**changes: Any) -> IngestReport:
    return tally().report("hsl", **{"waiting": 6, "elapsed": 2.0, "rate": 5.0, "connected": False, **changes})


def scraped(url: str) -> dict[tuple[str, ...], float]:
    text = httpx.get(url, timeout=10).text
    return {
        (
            sample.name.removeprefix("headrace_ingest_"),
            sample.labels["feed"],
            *(value for label, value in sample.labels.items() if label != "feed"),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_prometheus_reads_what_was_reported() -> None:
    metrics = IngestMetrics(["hsl", "quiet"])
    with MetricsEndpoint(0, metrics) as endpoint:
        before = scraped(endpoint.url)
        assert before == {("restarts_total", "hsl"): 0.0, ("restarts_total", "quiet"): 0.0}
        metrics.report(report())
        metrics.restarted("hsl")
        found = scraped(endpoint.url)
        with pytest.raises(EnvironmentProblem, match="cannot be served"):
            MetricsEndpoint(int(endpoint.url.rpartition(":")[2].partition("/")[0]))
    expected = {
        ("messages_total", "hsl"): 10.0, ("message_bytes_total", "hsl"): 4000.0, ("dead_letters_total", "hsl"): 2.0,
        ("reconnects_total", "hsl"): 3.0, ("restarts_total", "hsl"): 1.0, ("events_total", "hsl", "input.a"): 5.0,
        ("events_total", "hsl", "input.b"): 2.0, ("dismissed_total", "hsl", "bad_value"): 2.0,
        ("dismissed_total", "hsl", "duplicate"): 1.0, ("cleared_total", "hsl", "lat"): 4.0, ("connected", "hsl"): 0.0,
        ("waiting", "hsl"): 6.0, ("rate", "hsl"): 5.0, ("lag_seconds_count", "hsl"): 5.0,
        ("lag_seconds_bucket", "hsl", "0.05"): 1.0, ("lag_seconds_bucket", "hsl", "0.25"): 3.0,
        ("lag_seconds_bucket", "hsl", "1.0"): 4.0, ("lag_seconds_bucket", "hsl", "3600.0"): 4.0,
        ("lag_seconds_bucket", "hsl", "+Inf"): 5.0, ("lag_seconds_sum", "hsl"): pytest.approx(7201.11),
    }  # fmt: skip
    assert {key: found.get(key) for key in expected} == expected
    assert found["recent_lag_seconds", "hsl", "0.5"] == pytest.approx(0.2, abs=1e-6)


def test_recent_lag_forgets() -> None:
    now = 0.0
    counts = tally(lambda: now)
    seen = []
    for _ in range(4):
        now += 61.0
        counts.add_lags(np.full(100, 0.5))
        seen.append(counts.report("a", waiting=0, elapsed=1, rate=1).recent_lag_p99)
    assert seen == [pytest.approx(0.7), 0.5, 0.5, 0.5]
    assert counts.report("a", waiting=0, elapsed=1, rate=1).lag_max == 7200.0
    now += 1000.0
    counts.add_lags(np.array([2.0]))
    assert counts.report("a", waiting=0, elapsed=1, rate=1).recent_lag_p50 == 2.0


def test_the_status_is_one_line_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(terminal, "err", Console(file=screen, force_terminal=True, width=200))
    with reports.Reporter(json=False) as reporter:
        reporter(report())
        reporter(report(rate=7.0))
    shown = screen.getvalue()
    assert "hsl: 7/s, 7 events, 3 dismissed (bad_value), lag p50 0.20 s" in shown
    assert "3 reconnects, NOT CONNECTED" in shown
    assert shown.count("\n") <= 1


def test_elsewhere_it_is_a_line_now_and_then_for_each_feed(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(terminal, "err", Console(file=screen, width=300))
    with reports.Reporter(json=False) as reporter:
        for second in range(12):
            for feed in ("a", "b"):
                reporter(tally().report(feed, waiting=0, elapsed=float(second), rate=1.0, behind=2.5))
    lines = screen.getvalue().splitlines()
    assert [line[0] for line in lines] == ["a", "b", "a", "b"]
    assert "2.5 s behind its clock" in lines[0]


def test_two_threads_may_report_at_once() -> None:
    metrics = IngestMetrics([])
    threads = [
        threading.Thread(target=lambda: [metrics.report(report()) or list(metrics.collect()) for _ in range(20)])  # type: ignore[func-returns-value]
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert any(family.name == "headrace_ingest_messages" for family in metrics.collect())
