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
    from headrace.dashboard.connections import Connections
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
        connections: What is open.
    """

    def __init__(
        self,
        boards: Mapping[str, Board],
        reader: Reader,
        viewers: Viewers,
        figures: Figures,
        connections: Connections,
    ) -> None:
        self._boards = boards
        self._reader = reader
        self._viewers = viewers
        self._figures = figures
        self._connections = connections

    def collect(self) -> Iterable[Metric]:
        """Read everything."""
        yield from self._own()
        yield from self._parts()
        yield from self._jobs()
        yield from self._pipeline()

    def _own(self) -> Iterable[Metric]:
        yield _gauge("viewers", "Browsers and programs that are connected.", len(self._viewers))
        yield _gauge("viewers_behind", "Viewers that have not answered the last messages.", self._viewers.behind)
        connected = self._reader.status.state == "connected"
        yield _gauge("broker_connected", "Whether results can be read from Kafka.", float(connected))
        sent = CounterMetricFamily(f"{_PREFIX}messages", "Messages to viewers, by event.", labels=["event"])
        for event in ("snapshot", "changes", "held_back", "refused", "dropped"):
            sent.add_metric([event], self._viewers.counts[event])
        yield sent
        yield _gauge("connections", "Open connections.", len(self._connections))
        yield _gauge("connections_waiting", "Those that have not been let in yet.", self._connections.waiting)
        ended = CounterMetricFamily(f"{_PREFIX}connections_ended", "Connections that were cut.", labels=["reason"])
        for reason in ("refused", "crowded_out", "timed_out", "unread", "slow"):
            ended.add_metric([reason], self._connections.counts[reason])
        yield ended

    def _parts(self) -> Iterable[Metric]:
        working = GaugeMetricFamily(
            f"{_PREFIX}part_ok", "1: it works and is up to date, 0: it fails or is out of date.", labels=["part"]
        )
        ages = GaugeMetricFamily(
            f"{_PREFIX}part_refreshed_timestamp_seconds", "When a part last did its work.", labels=["part"]
        )
        failures = CounterMetricFamily(f"{_PREFIX}part_failures", "Unexpected failures of a part.", labels=["part"])
        for part in self._figures.parts:
            working.add_metric([part.name], float(not part.is_failing() and not part.is_stale()))
            failures.add_metric([part.name], part.failures)
            if part.refreshed_at is not None:
                ages.add_metric([part.name], part.refreshed_at / 1000)
        yield from (working, ages, failures)
        yield CounterMetricFamily(
            f"{_PREFIX}malformed_records",
            "Records of headrace.progress that were skipped.",
            value=self._figures.malformed,
        )

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
        refused = GaugeMetricFamily(
            f"{_PREFIX}mostly_dead_letters", "1: most of the input of a query becomes dead letters.", labels=["query"]
        )
        share = GaugeMetricFamily(
            f"{_PREFIX}dead_letter_share",
            "Share of dead letters among recent records, while it is high.",
            labels=["query"],
        )
        for row in shown.get("queries", ()):
            told = row["mostly_dead_letters"]
            refused.add_metric([row["query"]], float(told is not None))
            share.add_metric([row["query"]], 0.0 if told is None else told["share"])
        yield from (refused, share)
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
