"""What a run tells Prometheus: totals since the process began, the newest batch, and where time stands.

`RunMetrics` is told the events of a run, as the terminal and the topic `headrace.progress` are, and asked by the
endpoint (`headrace.observe.metrics`) at every scrape. Nothing here grows with the time that a run takes: there is one
value per job, partition, step, phase and reason, and reasons beyond the first `MOST_REASONS` of a job are counted
together.

Every metric has the label `query`, the name of the checkpoint, as records of `headrace.progress` have it.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from headrace.engine.limits import STATE_BYTES, STATE_KEYS
from headrace.observe.metrics import Condition
from headrace.observe.processes import memory_by_kind
from headrace.spark.run.progress import BatchDone, DeadLetterAlarm, JobChange, State, StateChange

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from prometheus_client.metrics_core import Metric

    from headrace.spark.run.progress import RunEvent

PREFIX = "headrace_run_"
#: Reasons of dead letters that are told apart, per job; a plug-in may have any number of them.
MOST_REASONS = 50
#: Seconds of a batch, for the histogram.
BATCH_BUCKETS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
OTHER = "other"
_ENDED = ("failed", "stopped")
_SECOND = 1_000_000

#: Metrics with a value per query: name, what it is.
_GAUGES = {
    "started_timestamp_seconds": "When the process began to run the jobs.",
    "last_batch_timestamp_seconds": "When the newest batch was out; missing before the first one.",
    "batch": "Number of the newest batch.",
    "batch_limit_events": "The most events that the next batch may read.",
    "state_store_rows": "Entries in Spark's state stores.",
    "state_store_bytes": "Memory of Spark's state stores.",
    "mostly_dead_letters": "1: most of the input becomes dead letters.",
    "dead_letter_share": "Share of dead letters among recent records, while it is high.",
}


class RunMetrics(Collector):
    """Follows a run.

    Args:
        query: The name of its checkpoint.
        jobs: The jobs that it runs.

    >>> metrics = RunMetrics("counts", ["counts"])
    >>> metrics(StateChange("running"))
    >>> metrics.alive().ok, metrics.ready().status
    (True, 'running')
    """

    def __init__(self, query: str, jobs: Sequence[str]) -> None:
        self._query = query
        self._jobs = sorted(jobs)
        self._lock = threading.Lock()
        self._state: State = "starting"
        self._started = time.time()
        self._restarts = 0
        self._stopped: set[str] = set()
        self._alarm: DeadLetterAlarm | None = None
        self._batches = 0
        self._batch: BatchDone | None = None
        self._batch_at: float | None = None
        self._marks: dict[str, int] = {}
        self._buckets: Counter[float] = Counter()
        self._seconds = 0.0
        self._phases: Counter[str] = Counter()
        self._rows: dict[str, Counter[str]] = {name: Counter() for name in ("events", "results", "late")}
        self._dead: dict[str, Counter[str]] = {}
        self._counted: dict[str, Counter[str]] = {}

    def __call__(self, event: RunEvent) -> None:
        """Take an event of the run."""
        with self._lock:
            if isinstance(event, StateChange):
                self._state = event.state
                self._restarts += event.state == "restarting"
            elif isinstance(event, JobChange):
                (self._stopped.discard if event.state == "returned" else self._stopped.add)(event.job)
            elif isinstance(event, DeadLetterAlarm):
                self._alarm = event if event.active else None
            else:
                self._take(event)

    def _take(self, batch: BatchDone) -> None:
        self._batches += 1
        self._batch, self._batch_at = batch, time.time()
        self._marks.update(batch.watermarks)
        self._seconds += batch.seconds
        self._buckets[next((most for most in BATCH_BUCKETS if batch.seconds <= most), float("inf"))] += 1
        self._phases.update(batch.phases)
        for job, figures in batch.jobs.items():
            for name, counts in self._rows.items():
                counts[job] += getattr(figures, name)
            self._add_reasons(job, figures.dead_letters)
        self._add_reasons("", batch.unreadable)
        for job, counters in batch.counters.items():
            steps = {name: count for name, count in counters.items() if not name.startswith((STATE_BYTES, STATE_KEYS))}
            self._counted.setdefault(job, Counter()).update(steps)

    def _add_reasons(self, job: str, reasons: Mapping[str, int]) -> None:
        known = self._dead.setdefault(job, Counter())
        for reason, count in reasons.items():
            known[reason if reason in known or len(known) < MOST_REASONS else OTHER] += count

    def alive(self) -> Condition:
        """Whether the run goes on; a restart of its own counts as going on."""
        with self._lock:
            return Condition(self._state not in _ENDED, self._state)

    def ready(self) -> Condition:
        """Whether batches come out, with all jobs taking part."""
        with self._lock:
            if self._state == "running" and self._stopped:
                return Condition(False, "jobs stopped")
            return Condition(self._state == "running", self._state)

    def collect(self) -> Iterator[Metric]:
        """Tell what is known."""
        memory = memory_by_kind()
        with self._lock:
            families = [*self._of_query(), *self._of_jobs(), *self._of_time(), *self._of_batches(), *self._of_state()]
        yield from families
        number = self._gauge("processes", "Processes of the run on this machine, by kind.", "kind")
        held = self._gauge("process_memory_bytes", "Memory of these processes that is in RAM, by kind.", "kind")
        for kind, sizes in memory.items():
            number.add_metric([self._query, kind], len(sizes))
            held.add_metric([self._query, kind], sum(sizes))
        yield from (number, held)

    def _gauge(self, name: str, text: str, *labels: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(f"{PREFIX}{name}", text, labels=["query", *labels])

    def _counter(self, name: str, text: str, *labels: str) -> CounterMetricFamily:
        return CounterMetricFamily(f"{PREFIX}{name}", text, labels=["query", *labels])

    def _of_query(self) -> Iterator[Metric]:
        info = self._gauge("info", "1; the labels say what runs.", "version")
        info.add_metric([self._query, _version()], 1)
        state = self._gauge("state", "1 for the state that the run is in, 0 for the others.", "state")
        for name in get_args(State):
            state.add_metric([self._query, name], float(name == self._state))
        restarts = self._counter("restarts", "How often the query failed and was started again.")
        restarts.add_metric([self._query], self._restarts)
        batches = self._counter("batches", "Batches that are out.")
        batches.add_metric([self._query], self._batches)
        yield from (info, state, restarts, batches)
        last = self._batch
        values = {
            "started_timestamp_seconds": self._started,
            "last_batch_timestamp_seconds": self._batch_at,
            "batch": None if last is None else last.batch,
            "batch_limit_events": None if last is None else last.limit,
            "state_store_rows": None if last is None else last.state_rows,
            "state_store_bytes": None if last is None else last.state_bytes,
            "mostly_dead_letters": float(self._alarm is not None),
            "dead_letter_share": 0.0 if self._alarm is None else self._alarm.share,
        }
        for name, text in _GAUGES.items():
            family = self._gauge(name, text)
            value = values[name]
            if value is not None:
                family.add_metric([self._query], value)
            yield family

    def _of_jobs(self) -> Iterator[Metric]:
        part = self._gauge("job_taking_part", "1: the job takes part, 0: its own code failed.", "job")
        for job in self._jobs:
            part.add_metric([self._query, job], float(job not in self._stopped))
        yield part
        for name, text in (
            ("events", "Events that a job took in."),
            ("results", "Results written."),
            ("late", "Events that came too late, written to the late topic."),
        ):
            family = self._counter(name, text, "job")
            for job in self._jobs:
                family.add_metric([self._query, job], self._rows[name][job])
            yield family
        text = "Dead letters, by reason; without a job those that no job could read."
        dead = self._counter("dead_letters", text, "job", "reason")
        for job, reasons in sorted(self._dead.items()):
            for reason, count in sorted(reasons.items()):
                dead.add_metric([self._query, job, reason], count)
        counted = self._counter("step_counts", "What the steps of a job have counted, by name.", "job", "name")
        for job, counters in sorted(self._counted.items()):
            for name, count in sorted(counters.items()):
                counted.add_metric([self._query, job, name], count)
        yield from (dead, counted)

    def _of_time(self) -> Iterator[Metric]:
        now = int(time.time() * _SECOND)
        at = self._gauge("watermark_timestamp_seconds", "The watermark of a job.", "job")
        lag = self._gauge("watermark_lag_seconds", "Clock minus watermark, by job.", "job")
        for job, mark in sorted(self._marks.items()):
            at.add_metric([self._query, job], mark / _SECOND)
            lag.add_metric([self._query, job], (now - mark) / _SECOND)
        yield from (at, lag)
        labels = ("job", "topic", "partition")
        lags = self._gauge("partition_watermark_lag_seconds", "Clock minus the watermark of a partition.", *labels)
        idle = self._gauge("partition_idle", "1: a partition without events, which does not hold back others.", *labels)
        holding = self._gauge("partition_holds_back", "1: the partition that holds a job's watermark back.", *labels)
        absurd = self._gauge("partition_absurd_events", "Events with an absurd time, since the state began.", *labels)
        ahead = self._gauge("partition_ahead_events", "Events ahead of their arrival, since the state began.", *labels)
        text = "Keys whose clocks are wrong by more than a second, since the state began, ahead or behind."
        wrong = self._gauge("partition_wrong_clocks", text, *labels, "side")
        for job, figures in sorted(({} if self._batch is None else self._batch.jobs).items()):
            for told in figures.partitions:
                topic, _, number = told["partition"].rpartition("/")
                place = [self._query, job, topic, number]
                if told["newest"] is not None:
                    lags.add_metric(place, (now - told["watermark"]) / _SECOND)
                idle.add_metric(place, float(told["idle"]))
                holding.add_metric(place, float(told["holds_back"]))
                absurd.add_metric(place, told["absurd"])
                ahead.add_metric(place, told["ahead"])
                for side in ("ahead", "behind") if told.get("clocks") else ():
                    wrong.add_metric([*place, side], told["clocks"][side])
        yield from (lags, idle, holding, absurd, ahead, wrong)

    def _of_batches(self) -> Iterator[Metric]:
        text = "Seconds from the plan of a batch to its commit."
        seconds = HistogramMetricFamily(f"{PREFIX}batch_seconds", text, labels=["query"])
        total, buckets = 0, []
        for most in (*BATCH_BUCKETS, float("inf")):
            total += self._buckets[most]
            buckets.append(("+Inf" if most == float("inf") else str(most), float(total)))
        seconds.add_metric([self._query], buckets=buckets, sum_value=self._seconds)
        phases = self._counter("phase_seconds", "Time of the parts of batches, in Spark's words.", "phase")
        for name, milliseconds in sorted(self._phases.items()):
            phases.add_metric([self._query, name], milliseconds / 1000)
        backlog = self._gauge("backlog", "Records not yet read, when the newest batch began.", "topic", "partition")
        for (topic, number), count in sorted(({} if self._batch is None else self._batch.backlogs).items()):
            backlog.add_metric([self._query, topic, str(number)], count)
        yield from (seconds, phases, backlog)

    def _of_state(self) -> Iterator[Metric]:
        size = self._gauge("step_state_bytes", "State that a step keeps, in bytes before compression.", "job", "step")
        keys = self._gauge("step_state_keys", "Keys that a step keeps something of.", "job", "step")
        for job, counters in sorted(({} if self._batch is None else self._batch.counters).items()):
            for name, number in sorted(counters.items()):
                kept, slash, step = name.partition("/")
                if slash and kept in (STATE_BYTES, STATE_KEYS):
                    (size if kept == STATE_BYTES else keys).add_metric([self._query, job, step], number)
        yield from (size, keys)


def _version() -> str:
    try:
        return version("headrace")
    except PackageNotFoundError:  # run from its sources
        return "unknown"
