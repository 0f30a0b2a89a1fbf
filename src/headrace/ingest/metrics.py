"""What ingestion tells Prometheus: the newest report of every feed, as counters, gauges and a histogram of lag."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from headrace.ingest.report import LAG_BUCKETS
from headrace.observe.metrics import Condition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prometheus_client.metrics_core import Metric

    from headrace.ingest.report import IngestReport

_PREFIX = "headrace_ingest"


class IngestMetrics(Collector):
    """Collects the reports of feeds.

    Args:
        feeds: Their names; a feed is shown from the start on, with zeros.

    >>> metrics = IngestMetrics(["hsl"])
    >>> [sample.value for family in metrics.collect() if family.name.endswith("restarts") for sample in family.samples]
    [0]
    """

    def __init__(self, feeds: Iterable[str]) -> None:
        self._lock = threading.Lock()
        self._reports: dict[str, IngestReport | None] = dict.fromkeys(feeds)
        self._restarts: Counter[str] = Counter()

    def report(self, report: IngestReport) -> None:
        """Take note of a report."""
        with self._lock:
            self._reports[report.feed] = report

    def restarted(self, feed: str) -> None:
        """Take note that a feed has failed and will be started again."""
        with self._lock:
            self._restarts[feed] += 1

    def alive(self) -> Condition:
        """Feeds are supervised: while the process answers, each is running or will be started again."""
        return Condition(True, "up")

    def ready(self) -> Condition:
        """Whether every feed has told of itself and is connected to its source."""
        with self._lock:
            fine = all(report is not None and report.connected for report in self._reports.values())
        return Condition(fine, "connected" if fine else "not connected")

    def collect(self) -> Iterator[Metric]:
        """Tell what is known."""
        with self._lock:
            reports, restarts = dict(self._reports), Counter(self._restarts)
        yield self._restart_family(reports, restarts)
        known = {feed: report for feed, report in reports.items() if report is not None}
        for name, text, attribute in (
            ("messages", "Raw messages taken from the connector", "messages"),
            ("message_bytes", "Bytes of their payloads", "message_bytes"),
            ("dead_letters", "Dismissed messages written to the dead-letter topic", "dead_letters"),
            ("reconnects", "How often a connector had to connect again", "reconnects"),
            ("gaps", "How often messages may have been lost because the source did not keep them for us", "gaps"),
        ):
            family = CounterMetricFamily(f"{_PREFIX}_{name}", text, labels=["feed"])
            for feed, report in known.items():
                family.add_metric([feed], getattr(report, attribute))
            yield family
        for name, text, label, attribute in (
            ("events", "Events handed to Kafka, by topic", "topic", "events_by_topic"),
            ("dismissed", "Messages that became no event, by cause", "cause", "dismissed"),
            ("cleared", "Values that were left out, by field", "field", "cleared"),
        ):
            family = CounterMetricFamily(f"{_PREFIX}_{name}", text, labels=["feed", label])
            for feed, report in known.items():
                for value, count in getattr(report, attribute).items():
                    family.add_metric([feed, value], count)
            yield family
        for name, text, attribute in (
            ("connected", "Whether the connector is connected to its source", "connected"),
            ("waiting", "Records handed over and not yet acknowledged by Kafka", "waiting"),
            ("rate", "Messages per second", "rate"),
            ("behind_seconds", "How far a replay or simulation is behind its schedule", "behind"),
        ):
            gauge = GaugeMetricFamily(f"{_PREFIX}_{name}", text, labels=["feed"])
            for feed, report in known.items():
                gauge.add_metric([feed], float(getattr(report, attribute)))
            yield gauge
        yield from self._lag(known)

    @staticmethod
    def _restart_family(reports: Iterable[str], restarts: Counter[str]) -> Metric:
        text = "How often a feed failed and was started again"
        family = CounterMetricFamily(f"{_PREFIX}_restarts", text, labels=["feed"])
        for feed in reports:
            family.add_metric([feed], restarts[feed])
        return family

    @staticmethod
    def _lag(known: dict[str, IngestReport]) -> Iterator[Metric]:
        text = "Seconds from an event to its arrival here"
        histogram = HistogramMetricFamily(f"{_PREFIX}_lag_seconds", text, labels=["feed"])
        quantiles = GaugeMetricFamily(
            f"{_PREFIX}_recent_lag_seconds", f"{text}, of the last minute or two", labels=["feed", "quantile"]
        )
        for feed, report in known.items():
            total, buckets = 0, []
            for limit, count in zip((*map(str, LAG_BUCKETS), "+Inf"), report.lag_counts, strict=True):
                total += count
                buckets.append((limit, float(total)))
            histogram.add_metric([feed], buckets=buckets, sum_value=report.lag_sum)
            for quantile, value in (("0.5", report.recent_lag_p50), ("0.99", report.recent_lag_p99)):
                if value is not None:
                    quantiles.add_metric([feed, quantile], value)
        yield histogram
        yield quantiles
