"""Delivery: which results of a batch go out by whom, under which promise.

A query has one sink per promise that its jobs make (`headrace.spark.sink`), all of them at the driver. That is right
for results that are few: one transaction holds the whole batch, in all partitions and topics. Where a job gives more
than passes through one process quickly, its results are written by the tasks of the state partitions instead, in one
transaction each (`headrace.spark.apart`).

The way may change from batch to batch, so after a crash it must be known how the batch in question was written. The
driver's token is written last, also by a batch whose results all went apart: a batch up to it is out as a whole. A
token of a state partition for a later batch says that this one was begun apart, and with which jobs; it is then
finished in the same way, and the partitions that are out are left alone.
"""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from headrace.broker.producer import TransactionalProducer
from headrace.spark.sink import Author, make_sink
from headrace.spark.tokens import read_tokens
from headrace.stream.job import DELIVERIES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.broker import Connection
    from headrace.spark.sink import Outgoing, Sink
    from headrace.stream import Delivery, Job

#: A job goes on apart until it gives fewer rows than this share of what made it go apart.
_STAY = 0.25
_THREADS = 8


def author_name(query: str, delivery: Delivery, partition: int | None = None, *, catching_up: str | None = None) -> str:
    """Name who writes; all names of a query begin with that of the query, so that one right covers them.

    Args:
        query: The query's name.
        delivery: What is promised.
        partition: For a task that writes for itself: the state partition.
        catching_up: For a job that takes in alone what it has missed: its name.

    >>> author_name("counts", "exactly_once"), author_name("counts", "at_most_once", 3)
    ('counts', 'counts:at_most_once#3')
    >>> author_name("counts+stops", "exactly_once", catching_up="stops")
    'counts+stops~stops'
    """
    mode = "" if delivery == "exactly_once" else f":{delivery}"
    place = "" if partition is None else f"#{partition}"
    return f"{query}{mode}{place}" + ("" if catching_up is None else f"~{catching_up}")


def splittable(job: Job) -> bool:
    """Tell whether the results of a job can be written by each state partition for itself.

    Not so where the driver has to merge what the partitions say.
    """
    pipeline = job.pipeline
    return pipeline.stages[-1].fold is None and all(branch.fold is None for branch in pipeline.branches)


class Deliveries:
    """The sinks of a query.

    Args:
        connection: Where to write.
        jobs: The jobs of the query, in their order.
        chosen: The promise for all jobs; each job's own if None.
        token: Names the checkpoint.
        partitions: Spark's state partitions.
        apart_rows: A job that gives more rows than this in a batch is written apart from then on; None: never.
    """

    def __init__(
        self,
        connection: Connection,
        jobs: Sequence[Job],
        *,
        chosen: Delivery | None,
        token: str,
        partitions: int,
        apart_rows: int | None,
    ) -> None:
        self._connection = connection
        self._jobs = jobs
        self._token = token
        self._partitions = partitions
        self._apart_rows = apart_rows
        self.query = "+".join(job.name for job in jobs)
        self.run = uuid.uuid4().hex
        self.modes: dict[str, Delivery] = {job.name: chosen or job.delivery for job in jobs}
        self._sinks: dict[Delivery, Sink] = {}
        self._begun: dict[int, set[str]] = {}
        self._heavy = {job.name for job in jobs if apart_rows == 0 and splittable(job)}

    @property
    def carrier(self) -> int:
        """The number of the job that carries what belongs to all: the first with the strongest promise."""
        order = [DELIVERIES.index(self.modes[job.name]) for job in self._jobs]
        return order.index(min(order))

    def open(self) -> None:
        """Fence every earlier run of this query, and find out what it brought out.

        Raises:
            BrokerError: Kafka cannot be reached, or does not allow it.
        """
        self.run = uuid.uuid4().hex
        # A task that was killed has left its transaction open; it would hide all tokens behind it until its time-out.
        self._fence_partitions()
        for mode in dict.fromkeys(self.modes.values()):
            author = Author(author_name(self.query, mode), self._token, self.run)
            self._sinks[mode] = make_sink(mode, self._connection, author)
            self._sinks[mode].open()
        self._begun = self._batches_begun_apart()

    def committed(self, mode: Delivery, batch: int) -> bool:
        """Tell whether what goes out under a promise is out."""
        return self._sinks[mode].committed(batch)

    def apart(self, batch: int) -> tuple[str, ...]:
        """Tell the jobs whose results of a batch are written by the tasks of the state partitions."""
        open_modes = {mode for mode in self._sinks if not self.committed(mode, batch)}
        names = self._begun.get(batch, self._heavy)
        return tuple(name for name, mode in self.modes.items() if name in names and mode in open_modes)

    def begun(self, batch: int, job: str) -> bool:
        """Tell whether some state partitions have brought out their part of a job's results of a batch."""
        return job in self._begun.get(batch, ())

    def write(self, batch: int, records: Mapping[Delivery, Iterable[Outgoing]]) -> None:
        """Write what the driver has of a batch; the promise that needs most comes last.

        Args:
            batch: Its number.
            records: What goes out under each promise; also those that have nothing note the batch.
        """
        for mode in reversed(DELIVERIES):
            sink = self._sinks.get(mode)
            if sink is not None and not sink.committed(batch):
                sink.write(batch, records.get(mode, ()))

    def learn(self, rows: Mapping[str, int]) -> None:
        """Take note of how much each job gave, for the way of the next batch."""
        most = self._apart_rows
        if not most:
            return
        for job in self._jobs:
            given = rows.get(job.name, 0)
            if splittable(job) and given > most:
                self._heavy.add(job.name)
            elif given < most * _STAY:
                self._heavy.discard(job.name)

    def close(self) -> None:
        """Let go of all connections."""
        for sink in self._sinks.values():
            sink.close()
        self._sinks = {}

    def _batches_begun_apart(self) -> dict[int, set[str]]:
        """Fence the tasks of earlier runs, and find batches that they have begun.

        They were fenced already; only now, with the token of this run written, can none of them come back.
        """
        names = self._partition_authors()
        if not names:
            return {}
        self._fence_partitions()
        begun: dict[int, set[str]] = {}
        for name, token in read_tokens(self._connection, names).items():
            if token.token == self._token and not self.committed(names[name], token.batch):
                begun.setdefault(token.batch, set()).update(token.jobs)
        return begun

    def _partition_authors(self) -> dict[str, Delivery]:
        if self._apart_rows is None:
            return {}
        modes = {self.modes[job.name] for job in self._jobs if splittable(job)} - {"at_least_once"}
        return {
            author_name(self.query, mode, partition): mode for mode in modes for partition in range(self._partitions)
        }

    def _fence_partitions(self) -> None:
        with ThreadPoolExecutor(_THREADS) as threads:
            list(threads.map(self._fence, self._partition_authors()))

    def _fence(self, name: str) -> None:
        producer = TransactionalProducer(self._connection, transactional_id=f"headrace.{name}")
        try:
            producer.prepare()
        finally:
            producer.discard()
