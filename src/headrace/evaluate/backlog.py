"""Kafka's backlog over time: events that are in the input topics and that the jobs have not dealt with.

Asked of Kafka itself, as any tool for lags would: where the input topics end, less what the jobs have committed to
their consumer groups. An event that a micro-batch is working on still counts as backlog. Offsets are committed at most
once a second, so the figure is up to a second of events too high, always.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import polars as pl

from headrace.errors import BrokerError
from headrace.kafka.groups import GroupOffsets
from headrace.kafka.ranges import LogEnds
from headrace.observe.probe import wall
from headrace.spark.output.committed_offsets import group_of
from headrace.time.instants import INSTANT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.kafka import Connection
    from headrace.stream import Job

log = logging.getLogger(__name__)

#: Columns of `BacklogWatch.samples`.
SCHEMA = pl.Schema({"at": INSTANT, "events": pl.Int64()})
_EVERY = 1.0
_TIMEOUT = 5.0


class BacklogWatch:
    """Looks at the backlog every second, in a thread of its own.

    Args:
        connection: Where.
        jobs: Whose backlog; they run in one query, so the first one that reads a topic speaks for all.
    """

    def __init__(self, connection: Connection, jobs: Sequence[Job]) -> None:
        self._ends = LogEnds(connection)
        readers = {topic: group_of(job.name) for job in reversed(jobs) for topic in job.sources}
        self._places = self._ends.partitions(sorted(readers))
        self._groups = {
            group: (GroupOffsets(connection, group), [place for place in self._places if readers[place[0]] == group])
            for group in sorted(set(readers.values()))
        }
        self._rows: list[tuple[int, int]] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="backlog", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End it."""
        self._closing.set()
        self._thread.join(timeout=10)
        if not self._thread.is_alive():
            for offsets, _ in self._groups.values():
                offsets.close()

    def newest(self) -> int | None:
        """Tell the backlog of the last look, None if there was none yet."""
        with self._lock:
            return self._rows[-1][1] if self._rows else None

    def samples(self) -> pl.DataFrame:
        """Tell all looks, with the columns of `SCHEMA`."""
        with self._lock:
            rows = list(self._rows)
        return pl.DataFrame(rows, schema={"at": pl.Int64, "events": pl.Int64}, orient="row").cast(SCHEMA)

    def _run(self) -> None:
        while not self._closing.wait(_EVERY):
            try:
                found = self._look()
            except BrokerError as problem:
                # One look less; if Kafka is gone for good, its readers and writers say so.
                log.warning("the backlog could not be seen: %s", problem)
                continue
            with self._lock:
                self._rows.append((wall(), found))

    def _look(self) -> int:
        committed: dict[tuple[str, int], int] = {}
        for offsets, places in self._groups.values():
            committed |= offsets.committed(places, timeout=_TIMEOUT)
        ends = self._ends.ends(self._places)
        return sum(end - committed.get(place, 0) for place, end in ends.items())
