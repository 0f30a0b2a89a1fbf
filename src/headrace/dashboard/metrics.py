"""Figures for Prometheus, read when they are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from prometheus_client.core import Metric

    from headrace.dashboard.board import Board
    from headrace.dashboard.figures import Figures
    from headrace.dashboard.reader import Reader
    from headrace.dashboard.viewers import Viewers

_PREFIX = "headrace_dashboard_"


class DashboardCollector(Collector):
    """Turns what the dashboard knows into metrics.

    Args:
        boards: By job.
        reader: Reads the results.
        viewers: Who is served.
        figures: The pipeline's own state.
    """

    def __init__(self, boards: Mapping[str, Board], reader: Reader, viewers: Viewers, figures: Figures) -> None:
        self._boards = boards
        self._reader = reader
        self._viewers = viewers
        self._figures = figures

    def collect(self) -> Iterable[Metric]:
        """Read everything."""
        yield from self._own()
        yield from self._jobs()
        yield from self._pipeline()

    def _own(self) -> Iterable[Metric]:
        yield _gauge("viewers", "Browsers and programs that are connected.", len(self._viewers))
        yield _gauge("viewers_behind", "Viewers that have not answered the last messages.", self._viewers.behind)
        connected = self._reader.status.state == "connected"
        yield _gauge("broker_connected", "Whether results can be read from Kafka.", float(connected))
        sent = CounterMetricFamily(f"{_PREFIX}messages", "Messages to viewers, by event.", labels=["event"])
        for event in ("snapshot", "changes", "held_back", "refused"):
            sent.add_metric([event], self._viewers.counts[event])
        yield sent

    def _jobs(self) -> Iterable[Metric]:
        entries = GaugeMetricFamily(f"{_PREFIX}entries", "Values shown, by job.", labels=["job"])
        points = GaugeMetricFamily(f"{_PREFIX}history_points", "Points of history kept, by job.", labels=["job"])
        results = CounterMetricFamily(f"{_PREFIX}results", "Results read, by job.", labels=["job"])
        fates = CounterMetricFamily(f"{_PREFIX}result_fates", "What became of results.", labels=["job", "fate"])
        for job, board in self._boards.items():
            overview = board.overview()
            entries.add_metric([job], overview.entries)
            points.add_metric([job], overview.history_points)
            for fate, count in sorted(overview.counts.items()):
                fates.add_metric([job, fate], count)
            with self._reader.arrivals.lock:
                results.add_metric([job], self._reader.arrivals.rates[job].total)
                fates.add_metric([job, "refused"], self._reader.arrivals.refused[job])
        yield from (entries, points, results, fates)

    def _pipeline(self) -> Iterable[Metric]:
        shown = self._figures.pipeline
        latency = GaugeMetricFamily(
            f"{_PREFIX}latency_seconds", "Legs of the way of results.", labels=["job", "leg", "quantile"]
        )
        for row in shown.get("latency", ()):
            for quantile, name in (("0.5", "p50"), ("0.99", "p99")):
                latency.add_metric([row["job"], row["stage"], quantile], row[name] / 1000)
        yield latency
        lag = GaugeMetricFamily(f"{_PREFIX}watermark_lag_seconds", "Clock minus watermark, by job.", labels=["job"])
        for row in shown.get("watermarks", ()):
            lag.add_metric([row["job"]], row["lag"] / 1000)
        yield lag
        backlog = GaugeMetricFamily(
            f"{_PREFIX}backlog", "Records that a job has not read yet.", labels=["job", "topic", "partition"]
        )
        for row in shown.get("partitions", ()):
            if row["backlog"] is not None:
                backlog.add_metric([row["job"], row["topic"], str(row["partition"])], row["backlog"])
        yield backlog
        stages = GaugeMetricFamily(
            f"{_PREFIX}stage_ok", "1: fine, 0: a warning or an error, by stage of the pipeline.", labels=["stage"]
        )
        for stage in shown.get("stages", ()):
            if stage["state"] != "unknown":
                stages.add_metric([stage["name"]], float(stage["state"] == "ok"))
        yield stages


def make_registry(collector: Collector) -> CollectorRegistry:
    """A registry of its own, so that several dashboards can live in one process."""
    registry = CollectorRegistry()
    registry.register(collector)
    return registry


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{_PREFIX}{name}", text, value=value)
