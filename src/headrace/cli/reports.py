"""What the commands that feed Kafka have in common: how events are written, and how they tell how they are doing.

On a terminal the newest report of every feed is one line that is drawn again and again; elsewhere it is a line now and
then, and with `--json` every report.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

from rich.live import Live
from rich.text import Text

from headrace.cli import terminal
from headrace.cli.monitoring import LOOPBACK, serve

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.ingest.metrics import IngestMetrics
    from headrace.ingest.report import IngestReport
    from headrace.ingest.supervisor import Restart

_REPORT_SECONDS = 5.0


class Encoding(StrEnum):
    """How values are written."""

    BINARY = "binary"
    JSON = "json"


class Reporter:
    """Passes the reports of ingestions on: to the terminal, to a program, to Prometheus.

    Args:
        json: Whether every report is printed as JSON.
        metrics: Who collects for Prometheus, if somebody does.
    """

    def __init__(self, *, json: bool, metrics: IngestMetrics | None = None) -> None:
        self._json = json
        self._metrics = metrics
        self._shown: dict[str, float] = {}
        self._status: dict[str, str] = {}
        self._lock = threading.Lock()
        drawn = not json and terminal.err.is_terminal
        self._live = Live(console=terminal.err, auto_refresh=False, transient=True) if drawn else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, report: IngestReport) -> None:
        """Show a report."""
        if self._metrics is not None:
            self._metrics.report(report)
        if self._json:
            terminal.record(report.to_dict())
            return
        with self._lock:
            self._status[report.feed] = status(report)
            if self._live is not None:
                self._live.update(
                    Text("  ".join(self._status.values()), no_wrap=True, overflow="ellipsis"), refresh=True
                )
            elif report.elapsed - self._shown.get(report.feed, 0.0) >= _REPORT_SECONDS:
                self._shown[report.feed] = report.elapsed
                terminal.note(status(report))

    def restarted(self, what: Restart) -> None:
        """Tell that a feed has failed and will be started again."""
        if self._metrics is not None:
            self._metrics.restarted(what.feed)
        if self._json:
            terminal.record({"event": "restart", "feed": what.feed, "error": str(what.error), "pause": what.pause})
        else:
            terminal.note(f"{what.feed} failed: {what.error} Next attempt in {what.pause:g} s.")


def status(report: IngestReport) -> str:
    """A report in a short line, as of now."""
    parts = [f"{report.feed}: {report.rate:,.0f}/s", f"{report.events:,} events"]
    lost = sum(report.dismissed.values())
    if lost:
        parts.append(f"{lost:,} dismissed ({_largest(report.dismissed)})")
    if report.recent_lag_p99 is not None:
        parts.append(f"lag p50 {report.recent_lag_p50:.2f} s p99 {report.recent_lag_p99:.2f} s")
    if report.waiting:
        parts.append(f"{report.waiting:,} on the way")
    if report.reconnects:
        parts.append(f"{report.reconnects:,} reconnects")
    if report.gaps:
        parts.append(f"{report.gaps:,} GAPS (the source forgot us)")
    if report.behind > 1.0:
        parts.append(f"{report.behind:.1f} s behind its clock")
    if not report.connected:
        parts.append("NOT CONNECTED")
    return ", ".join(parts)


def _largest(counts: Any) -> str:
    return str(max(counts, key=counts.__getitem__))


def summary(report: IngestReport) -> str:
    """A whole run in one line."""
    parts = [f"{report.messages:,} messages, {report.events:,} events"]
    parts += [f"{count:,} {cause}" for cause, count in sorted(report.dismissed.items())]
    if report.lag_p50 is not None and report.lag_p99 is not None:
        parts.append(f"lag p50 {report.lag_p50:.3f} s, p99 {report.lag_p99:.3f} s")
    return ", ".join(parts)


def serve_metrics(
    port: int | None, feeds: Iterable[str], *, host: str = LOOPBACK
) -> tuple[IngestMetrics | None, AbstractContextManager[Any]]:
    """Serve metrics of some feeds, if a port is given; the context ends the serving.

    Raises:
        EnvironmentProblem: The port is taken.
    """
    if port is None:
        return None, nullcontext()
    from headrace.ingest.metrics import IngestMetrics

    metrics = IngestMetrics(feeds)
    return metrics, serve(port, host, metrics, metrics)
