"""Looks at the pipeline from outside, in a thread: what runs say of themselves, and how far they are behind in Kafka.

Runs publish their progress to `headrace.progress` and commit their offsets to the consumer group `headrace.<job>`;
both can be read from anywhere. How much comes in is told by how fast the ends of the input topics move.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from headrace.dashboard.progress_record import TOTALS, MalformedRecordError, ProgressRecord, read_progress_record
from headrace.dashboard.samples import Rate, Samples
from headrace.dashboard.supervision import Part, Worker
from headrace.errors import BrokerError
from headrace.kafka.consumer import Consumer
from headrace.kafka.groups import GroupOffsets
from headrace.kafka.topics import DEAD_LETTERS
from headrace.spark.output.committed_offsets import group_of
from headrace.spark.run.publishing import PROGRESS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.kafka import Connection
    from headrace.stream import Job

log = logging.getLogger(__name__)

#: Seconds between two looks at the offsets.
_EVERY = 2.0
_TIMEOUT = 5.0
_RETRY = 2.0
#: Seconds after which what a thread of the probe has found is out of date.
_STALE = 15.0
#: What Kafka says when it cannot be reached or does not answer in time.
_UNREACHABLE = (BrokerError, KafkaException, TimeoutError)
#: Queries that are remembered, at most.
_MOST_RUNS = 100


@dataclass
class Run:
    """What a query said last, and how it went so far.

    `heard` is the reading of the monotonic clock when it was last heard of.
    """

    query: str
    told: ProgressRecord = field(default_factory=lambda: ProgressRecord(""))
    heard: float = 0.0
    restarts: int = 0
    rates: dict[str, Rate] = field(default_factory=lambda: {name: Rate() for name in TOTALS})
    durations: Samples = field(default_factory=Samples)
    _totals: dict[str, int] = field(default_factory=dict)
    _processes: int = 0

    def hear(self, told: ProgressRecord, *, now: float, fresh: bool) -> None:
        """Take a record of the progress topic.

        Args:
            told: What it says.
            now: The reading of the monotonic clock.
            fresh: Whether it was written just now; an old one says how things were, not how fast they go.
        """
        if told.started != self.told.started or not self._processes:
            self._processes += 1
            self._totals = {}
        self.told = told
        self.heard = now if fresh else now - max(0.0, time.time() - told.at / 1000)
        self.restarts = told.restarts + self._processes - 1
        for name, total in told.totals.items():
            if fresh and name in self._totals and total >= self._totals[name]:
                self.rates[name].add(total - self._totals[name], now=now)
            self._totals[name] = total
        if fresh and told.batch_ms is not None:
            self.durations.add([told.batch_ms], now=now)

    @property
    def jobs(self) -> tuple[str, ...]:
        """What it runs."""
        return self.told.jobs

    @property
    def at(self) -> int:
        """When it said so, in milliseconds."""
        return self.told.at

    def watermark(self, job: str) -> int | None:
        """The watermark of a job in milliseconds."""
        return self.told.watermarks.get(job)


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far a job is behind in one partition."""

    job: str
    topic: str
    partition: int
    end: int
    committed: int | None

    @property
    def backlog(self) -> int | None:
        """Records that the job has not read yet."""
        return None if self.committed is None else max(0, self.end - self.committed)


class Probe:
    """Follows the pipeline.

    Args:
        connection: Where Kafka is.
        jobs: The jobs that are shown.
        heard: Is called from the probe's thread with a job's watermark in milliseconds.
    """

    def __init__(self, connection: Connection, jobs: Sequence[Job], heard: Callable[[str, int], None]) -> None:
        self._connection = connection
        self._sources = {job.name: tuple(job.sources) for job in jobs}
        self._heard = heard
        self._stop = threading.Event()
        self._admin = AdminClient(connection.client_config())
        self._groups: dict[str, GroupOffsets] = {}
        self._ends: dict[tuple[str, int], int] = {}
        self.lock = threading.Lock()
        self.runs: dict[str, Run] = {}
        self.partitions: list[PartitionLag] = []
        self.incoming = Rate()
        self.dead = Rate()
        #: Records per second that are written to a source topic, and that a job reads of it.
        self.written: dict[str, Rate] = {}
        self.read: dict[tuple[str, str], Rate] = {}
        self.last_event: float | None = None
        #: Records of the progress topic that were skipped, and why the last of them was.
        self.malformed: Counter[str] = Counter()
        self.malformed_reason = ""
        self.progress = Part("progress", "reader of the runs' progress", stale_after=_STALE, expected=_UNREACHABLE)
        self.offsets = Part("offsets", "reader of offsets", stale_after=_STALE, expected=_UNREACHABLE)
        self._workers = [
            Worker(self.progress, self._follow_runs, self._stop),
            Worker(self.offsets, self._look_at_offsets, self._stop),
        ]

    def start(self) -> None:
        """Begin to look."""
        for worker in self._workers:
            worker.start()

    def stop(self) -> None:
        """End it."""
        self._stop.set()
        ended = [worker.join(timeout=5) for worker in self._workers]
        if all(ended):
            while self._groups:
                self._groups.popitem()[1].close()

    def run_of(self, job: str) -> Run | None:
        """The query that ran a job last, as far as we heard."""
        with self.lock:
            return max((run for run in self.runs.values() if job in run.jobs), key=lambda run: run.at, default=None)

    # ---------------------------------------------------------------- what runs say

    def _follow_runs(self) -> None:
        began = time.time_ns() // 1000
        with Consumer(self._connection, [PROGRESS], follow=True, patience=_RETRY) as consumer:
            while not self._stop.is_set():
                for record in consumer.read(timeout=0.5):
                    self.hear(record.value, fresh=record.timestamp >= began, now=time.monotonic())
                self.progress.refresh()

    def hear(self, value: bytes | None, *, fresh: bool, now: float) -> None:
        """Take a record of the progress topic; one that is malformed is counted and skipped."""
        try:
            told = read_progress_record(value, wall=time.time_ns() // 1_000_000)
        except MalformedRecordError as problem:
            self._skip(str(problem))
            return
        with self.lock:
            run = self.runs.setdefault(told.query, Run(told.query))
            run.hear(told, now=now, fresh=fresh)
            while len(self.runs) > _MOST_RUNS:
                self.runs.pop(min(self.runs.values(), key=lambda run: run.at).query)
        if fresh:
            for job, mark in told.watermarks.items():
                self._heard(job, mark)

    def _skip(self, why: str) -> None:
        with self.lock:
            if why != self.malformed_reason:
                log.warning("a record of %s was skipped: %s", PROGRESS, why)
            self.malformed["progress"] += 1
            self.malformed_reason = why

    # ---------------------------------------------------------------- offsets

    def _look_at_offsets(self) -> None:
        while not self._stop.wait(_EVERY):
            there = self._admin.list_topics(timeout=_TIMEOUT).topics
            wanted = {topic for topics in self._sources.values() for topic in topics} | {DEAD_LETTERS}
            places = [
                TopicPartition(topic, number)
                for topic in wanted
                if topic in there
                for number in there[topic].partitions
            ]
            ends = self._end_offsets(places)
            committed = {job: self._committed(job, places) for job in self._sources}
            self._take(ends, committed, now=time.monotonic())
            self.offsets.refresh()

    def _take(
        self, ends: dict[tuple[str, int], int], committed: dict[str, dict[tuple[str, int], int]], *, now: float
    ) -> None:
        events = dead = 0
        for place, end in ends.items():
            more = max(0, end - self._ends.get(place, end))
            if place[0] == DEAD_LETTERS:
                dead += more
            else:
                events += more
        lags = [
            PartitionLag(job, topic, number, end, committed[job].get((topic, number)))
            for job, topics in self._sources.items()
            for (topic, number), end in sorted(ends.items())
            if topic in topics
        ]
        with self.lock:
            self._note_rates(lags, now)
            if self._ends:
                self.incoming.add(events, now=now)
                self.dead.add(dead, now=now)
            if events:
                self.last_event = now
            self._ends, self.partitions = ends, lags

    def _note_rates(self, lags: list[PartitionLag], now: float) -> None:
        """Note how far the ends of topics and the offsets of jobs have moved."""
        before = {(lag.job, lag.topic, lag.partition): lag for lag in self.partitions}
        written: Counter[str] = Counter()
        read: Counter[tuple[str, str]] = Counter()
        ends = {(lag.topic, lag.partition): lag.end for lag in lags}
        for (topic, partition), end in ends.items():
            written[topic] += max(0, end - self._ends.get((topic, partition), end))
        for lag in lags:
            earlier = before.get((lag.job, lag.topic, lag.partition))
            if lag.committed is not None:
                from_offset = None if earlier is None else earlier.committed
                read[lag.job, lag.topic] += 0 if from_offset is None else max(0, lag.committed - from_offset)
        for topic, count in written.items():
            self.written.setdefault(topic, Rate()).add(count, now=now)
        for place, count in read.items():
            self.read.setdefault(place, Rate()).add(count, now=now)

    def _end_offsets(self, places: Sequence[TopicPartition]) -> dict[tuple[str, int], int]:
        if not places:
            return {}
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        asked = self._admin.list_offsets(dict.fromkeys(places, latest), request_timeout=_TIMEOUT)
        return {(place.topic, place.partition): int(future.result(_TIMEOUT).offset) for place, future in asked.items()}

    def _committed(self, job: str, places: Sequence[TopicPartition]) -> dict[tuple[str, int], int]:
        mine = [(place.topic, place.partition) for place in places if place.topic in self._sources[job]]
        if not mine:
            return {}
        if job not in self._groups:
            self._groups[job] = GroupOffsets(self._connection, group_of(job))
        try:
            return self._groups[job].committed(mine, timeout=_TIMEOUT)
        except BrokerError as problem:
            # No such group, or no right to see it: then the lag is not known.
            log.debug("offsets of %s cannot be seen: %s", job, problem)
            return {}
