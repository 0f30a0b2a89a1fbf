"""Publishes what a run says of itself to a Kafka topic, so that a dashboard on any machine can follow it.

The topic `headrace.progress` is compacted by query: its last record of a query says what that query is doing, or was
doing when it was last heard of. It is a view for people. Nobody reads it back to decide anything, and a run that
cannot write it goes on without.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import KafkaException, Producer

from headrace.errors import BrokerError
from headrace.kafka import Topics, TopicSpec
from headrace.spark.run.progress import BatchDone, DeadLetterAlarm, JobChange, StateChange

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from headrace.kafka import Connection
    from headrace.spark.run.progress import RunEvent
    from headrace.stream import Job

log = logging.getLogger(__name__)

PROGRESS = "headrace.progress"
"""Where runs say what they are doing; compacted, so that the last word of each query stays."""

#: Seconds between two records, unless the state changes.
_EVERY = 1.0
_FLUSH_SECONDS = 2.0
_TOTALS = ("rows_in", "results", "late", "dead_letters")


def progress_spec() -> TopicSpec:
    """Declare the topic."""
    return TopicSpec(name=PROGRESS, partitions=1, cleanup="compact")


class ProgressTopic:
    """Takes the events of one run and writes them, at most one a second, with the totals since it began.

    Args:
        connection: Where to write.
        query: Names the query; the name of its checkpoint.
        jobs: What it runs.
    """

    def __init__(self, connection: Connection, *, query: str, jobs: Sequence[Job]) -> None:
        self._connection = connection
        self._query = query
        self._jobs = sorted(job.name for job in jobs)
        self._started = time.time_ns() // 1_000_000
        self._state = StateChange("starting")
        self._restarts = 0
        self._failed: dict[str, str] = {}
        self._totals: Counter[str] = Counter()
        self._batch: dict[str, Any] = {}
        self._alarm: DeadLetterAlarm | None = None
        self._written = 0.0
        self._producer = self._open()

    def _open(self) -> Producer | None:
        try:
            topics = Topics(self._connection)
            if topics.missing([PROGRESS]):  # one that is there may be of others, whose settings we may not see
                topics.ensure([progress_spec()])
            return Producer(
                self._connection.client_config(
                    acks="1", queue_buffering_max_messages=100, message_timeout_ms=5000, linger_ms=0
                )
            )
        except (BrokerError, KafkaException) as problem:
            log.warning("the run's progress is not published to %s: %s", PROGRESS, problem)
            return None

    def __call__(self, event: RunEvent) -> None:
        """Take an event of the run."""
        if isinstance(event, StateChange):
            self._state = event
            self._restarts += event.state == "restarting"
            self._write()
        elif isinstance(event, JobChange):
            self._failed.pop(event.job, None)
            if event.state == "stopped":
                self._failed[event.job] = event.detail[:500]
            self._write()
        elif isinstance(event, DeadLetterAlarm):
            self._alarm = event if event.active else None
            self._write()
        elif isinstance(event, BatchDone):
            self._batch = event.to_dict()
            for name in _TOTALS:
                self._totals[name] += int(self._batch.get(name) or 0)
            if time.monotonic() - self._written >= _EVERY:
                self._write()

    def _write(self) -> None:
        self._written = time.monotonic()
        if self._producer is None:
            return
        told = {
            "query": self._query,
            "jobs": self._jobs,
            "started": self._started,
            "host": platform.node(),
            "process": os.getpid(),
            "at": time.time_ns() // 1_000_000,
            "state": self._state.state,
            "detail": self._state.detail,
            # A supervised run starts again in the same process; a new process is seen by its `started`.
            "restarts": self._restarts,
            # Jobs whose own code failed, and why; the others go on.
            "failed_jobs": self._failed,
            # That most of the input becomes dead letters, and why; null when it does not.
            "mostly_dead_letters": None if self._alarm is None else self._alarm.to_dict(),
            "totals": dict(self._totals),
            "batch": self._batch,
        }
        try:
            self._producer.produce(PROGRESS, json.dumps(told).encode(), key=self._query.encode())
            self._producer.poll(0)
        except (BufferError, KafkaException) as problem:
            # Kafka is gone or slow; the run has its own way to say so.
            log.debug("progress was not published: %s", problem)

    def close(self) -> None:
        """Write what is still on its way, for a moment."""
        if self._producer is not None:
            self._producer.flush(_FLUSH_SECONDS)
            self._producer = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and self._state.state not in ("failed", "stopped"):
            self(StateChange("failed", str(error)[:500]))
        self.close()
