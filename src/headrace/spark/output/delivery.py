"""Delivery: which results of a batch go out by whom, under which promise.

A query has one sink per promise that its jobs make (`headrace.spark.output.sink`), all of them at the driver. That is
right for results that are few: one transaction holds the whole batch, in all partitions and topics. Where a job gives
more than passes through one process quickly, its results are written by the tasks of the state partitions instead, in
one transaction each (`headrace.spark.output.task_writer`).

The way may change from batch to batch, so after a crash it must be known how the batch in question was written. The
driver's token is written last, also by a batch whose results all went apart: a batch up to it is out as a whole. A
token of a state partition for a later batch says that this one was begun apart, and with which jobs; it is then
finished in the same way, and the partitions that are out are left alone.
"""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from headrace.delivery import DELIVERIES
from headrace.kafka.producer import ExpiredError, TransactionalProducer
from headrace.kafka.topics import COMMITS
from headrace.spark.output.ownership import Owner, Ownership
from headrace.spark.output.sink import TRANSACTION_BYTES, AtLeastOnce, AtMostOnce, Author, ExactlyOnce, make_sink
from headrace.spark.output.tokens import Token, read_tokens
from headrace.spark.run.isolation import Attendance

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from headrace.kafka import Connection
    from headrace.spark.checkpoint.positions import Span
    from headrace.spark.output.sink import Outgoing, Sink
    from headrace.stream import Delivery, Job

#: A job goes on apart until it gives fewer rows than this share of what made it go apart.
_STAY = 0.25
_THREADS = 8
#: A batch that did not go out before the time-out is written in parts of this share of the size.
_SMALLER = 4
_LEAST_BYTES = 64 * 1024


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

    Not so where the driver has to merge what the partitions say, nor where two partitions may have changes of one row
    that is written as an upsert: which of their records came last would be chance.
    """
    ways = job.pipeline.outputs
    tables = [way for way in ways if job.upsert_key(way.name)]
    alone = {way.name for way in tables if not {*way.keys} <= {*job.upsert_key(way.name)}}
    return not job.pipeline.folded and not alone and len({way.name for way in tables}) == len(tables)


class Deliveries:
    """The sinks of a query.

    Args:
        connection: Where to write.
        jobs: The jobs of the query, in their order.
        chosen: The promise for all jobs; each job's own if None.
        token: Names the checkpoint.
        partitions: Spark's state partitions.
        apart_rows: A job that gives more rows than this in a batch is written apart from then on; None: never.
        most: Bytes that one transaction holds at most.
        path: Where the checkpoint is, for messages of others.
        fresh: The checkpoint was made anew on request.
        take_over: Take results over from another checkpoint that has written them.
        query: Names the query; the names of the jobs if not given.
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
        most: int = TRANSACTION_BYTES,
        path: str = "",
        fresh: bool = False,
        take_over: bool = False,
        query: str | None = None,
    ) -> None:
        self._connection = connection
        self._jobs = jobs
        self._token = token
        self._partitions = partitions
        self._apart_rows = apart_rows
        self.most = most
        #: Who takes part in the batches that are written from now on.
        self.attendance = Attendance()
        self.query = query or "+".join(job.name for job in jobs)
        self.run = uuid.uuid4().hex
        self.modes: dict[str, Delivery] = {job.name: chosen or job.delivery for job in jobs}
        self._sinks: dict[Delivery, Sink] = {}
        self._begun: dict[str, Token] = {}
        #: Tokens of this checkpoint under promises that no job makes any more, by author.
        self._former: dict[str, Token] = {}
        self._ownership = Ownership(
            connection,
            jobs,
            Owner(query=self.query, checkpoint=token, path=path, partitions=partitions),
            modes=self.modes,
            fresh=fresh,
            take_over=take_over,
        )
        self._heavy = {job.name for job in jobs if apart_rows == 0 and splittable(job)}

    @property
    def carrier(self) -> int:
        """The number of the job that carries what belongs to all: the first with the strongest promise."""
        order = [DELIVERIES.index(self.modes[job.name]) for job in self._jobs]
        return order.index(min(order))

    def look(self, *, stable: bool) -> dict[str, Token]:
        """Tell what is out, by author, without taking an id: nobody is fenced, and more may go out meanwhile.

        Args:
            stable: Wait until no open transaction hides tokens; else the answer may be an old one.

        Raises:
            BrokerError: Kafka cannot be reached, or does not allow it.
        """
        drivers: dict[str, Delivery] = {
            author_name(self.query, mode): mode for mode in DELIVERIES if mode != "at_least_once"
        }
        tasks = self._partition_authors(DELIVERIES)
        found = {
            author: token
            for author, token in read_tokens(self._connection, [*drivers, *tasks], stable=stable).items()
            if token.token == self._token and token.pieces
        }
        whole: dict[Delivery, Token] = {
            mode: found.get(author, Token(self._token, -1)) for author, mode in drivers.items()
        }
        return {
            author: token
            for author, token in found.items()
            if author in drivers or _is_ahead(token, whole[tasks[author]])
        }

    def open(self) -> None:
        """Fence every earlier run of this query, and find out what it brought out.

        Raises:
            FencedError: A later run of the query has begun.
            StateError: Another checkpoint writes the results of one of the jobs.
            BrokerError: Kafka cannot be reached, or does not allow it.
        """
        self.run = uuid.uuid4().hex
        self._ownership.claim(self._fence_query)
        # A task that was killed has left its transaction open; it would hide all tokens behind it until its time-out.
        self._fence_partitions()
        for mode in dict.fromkeys(self.modes.values()):
            names = tuple(name for name, promise in self.modes.items() if promise == mode)
            author = Author(author_name(self.query, mode), self._token, self.run, jobs=names)
            self._sinks[mode] = make_sink(mode, self._connection, author, most=self.most)
            self._sinks[mode].open()
        self._former = self._fence_former()
        self._begun = self._batches_begun_apart()
        # With the ids in our hands: who takes the results over from now on fences them.
        self._ownership.check()

    def check_owner(self) -> None:
        """See that the results are still ours; worth asking after an id was taken.

        Raises:
            FencedError: Another checkpoint has taken them over.
        """
        self._ownership.check()

    def committed(self, mode: Delivery, batch: int, span: Span | None = None) -> bool:
        """Tell whether what goes out under a promise is out."""
        return self._sinks[mode].committed(batch, span)

    def apart(self, batch: int, span: Span | None = None) -> tuple[str, ...]:
        """Tell the jobs whose results of a batch are written by the tasks of the state partitions."""
        open_modes = {mode for mode in self._sinks if not self.committed(mode, batch, span)}
        names = self._begun_jobs(batch, span)
        if not names:
            parts = [sink.token.part for sink in self._tokened()]
            if any(part is not None and part.is_of(batch, span) for part in parts):
                return ()  # the driver has begun to write it
            names = self._heavy
        return tuple(
            name
            for name, mode in self.modes.items()
            if name in names and mode in open_modes and self.attendance.takes_part(name, batch)
        )

    def begun(self, batch: int, job: str, span: Span | None = None) -> bool:
        """Tell whether some state partitions have brought out their part of a job's results of a batch."""
        return job in self._begun_jobs(batch, span)

    def begun_without(self, batch: int, job: str, span: Span | None = None) -> bool:
        """Tell whether results of a batch are out, all or some, in which a job took no part."""
        return self._any_out(batch, span) and not self.took_part(batch, job, span)

    def took_part(self, batch: int, job: str, span: Span | None = None) -> bool:
        """Tell whether results of a batch are out, all or some, in which a job took part.

        What is out cannot be taken back: the job must take part in the batch when it is repeated.
        """
        sink = self._sinks[self.modes[job]]
        token = sink.token if isinstance(sink, ExactlyOnce | AtMostOnce) else None
        noted = token is not None and token.newest.is_of(batch, span) and job in token.present
        return noted or self.begun(batch, job, span)

    def is_out(self, batch: int, job: str, span: Span | None = None) -> bool:
        """Tell whether results of a job of a batch are out, all or some, whatever is promised of it now."""
        tokens = self.tokens().values()
        return self.begun(batch, job, span) or any(
            token.newest.is_of(batch, span) and job in token.present for token in tokens
        )

    def _any_out(self, batch: int, span: Span | None) -> bool:
        return any(piece.covers(batch, span) for sink in self._tokened() for piece in sink.token.pieces)

    def _tokened(self) -> list[ExactlyOnce | AtMostOnce]:
        return [sink for sink in self._sinks.values() if isinstance(sink, ExactlyOnce | AtMostOnce)]

    def _begun_jobs(self, batch: int, span: Span | None) -> set[str]:
        # Where offsets are not known, it is the batch with the number of the token that was begun.
        return {
            job
            for token in self._begun.values()
            for piece in token.pieces
            if (piece.batch == batch if span is None or piece.end is None else piece.covers(batch, span))
            for job in token.jobs
        }

    def tokens(self) -> dict[str, Token]:
        """Tell what is out, by author: tokens that let a batch, or a part of one, be left out."""
        modes = ((mode, sink) for mode, sink in self._sinks.items() if isinstance(sink, ExactlyOnce | AtMostOnce))
        found = {author_name(self.query, mode): sink.token for mode, sink in modes} | self._former
        repeated = author_name(self.query, "at_least_once")
        return {author: token for author, token in found.items() if token.pieces and author != repeated} | self._begun

    def moved(self, author: str, token: Token) -> dict[str, Delivery]:
        """Tell the jobs whose results a token covers and which make another promise now, with the one they made."""
        mode: Delivery = next((each for each in DELIVERIES if f":{each}" in author), "exactly_once")
        # A token of a version that did not note its jobs is of those that made the promise, which may be all.
        jobs = token.jobs or (() if mode in self.modes.values() else tuple(self.modes))
        return {job: mode for job in jobs if self.modes.get(job, mode) != mode}

    def repeated(self) -> list[Token]:
        """Tell up to where results went out that are written again when their batches are repeated."""
        former = self._former.get(author_name(self.query, "at_least_once"))
        tokens = [sink.token for sink in self._sinks.values() if isinstance(sink, AtLeastOnce)]
        return [token for token in [*tokens, *([former] if former is not None else [])] if token.batch >= 0]

    def amend(self, change: Callable[[Token], Token]) -> None:
        """Write the tokens that tell what is out anew, changed."""
        for author, token in self.tokens().items():
            changed = change(token)
            if changed == token:
                continue
            noted = self._begun if author in self._begun else self._former
            if author in noted:
                noted[author] = changed
                self._fence(author, changed)
        for sink in self._sinks.values():
            if isinstance(sink, ExactlyOnce | AtMostOnce) and sink.token.pieces:
                changed = change(sink.token)
                if changed != sink.token:
                    sink.amend(changed)

    def write(self, batch: int, records: Mapping[Delivery, Iterable[Outgoing]], span: Span | None = None) -> None:
        """Write what the driver has of a batch; the promise that needs most comes last.

        Args:
            batch: Its number.
            records: What goes out under each promise; also those that have nothing note the batch.
            span: What the batch reads.

        Raises:
            ExpiredError: Kafka ended a transaction at its time-out; the next ones will be smaller.
        """
        present = tuple(job.name for job in self._jobs if self.attendance.takes_part(job.name, batch))
        for tokened in self._tokened():
            tokened.present = present
        for mode in reversed(DELIVERIES):
            sink = self._sinks.get(mode)
            if sink is not None and not sink.committed(batch, span):
                try:
                    sink.write(batch, records.get(mode, ()), span)
                except ExpiredError:
                    self.most = max(self.most // _SMALLER, min(self.most, _LEAST_BYTES))
                    raise

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

    def _batches_begun_apart(self) -> dict[str, Token]:
        """Fence the tasks of earlier runs, and find the tokens of those that are ahead of the driver's.

        They were fenced already; only now, with the token of this run written, can none of them come back.
        """
        self._fence_partitions()
        ahead: dict[str, Token] = {}
        for sink_mode, sink in self._sinks.items():
            if isinstance(sink, ExactlyOnce | AtMostOnce):
                names = [name for name, mode in self._partition_authors().items() if mode == sink_mode]
                ahead |= self._ahead_of(sink.token, names)
        return ahead

    def _ahead_of(self, driver: Token, names: Collection[str]) -> dict[str, Token]:
        """Find the tokens of tasks that are ahead of the driver's; their ids are in our hands."""
        ahead: dict[str, Token] = {}
        for name, token in (read_tokens(self._connection, names) if names else {}).items():
            if token.token != self._token:
                continue
            if _is_ahead(token, driver):
                ahead[name] = token
            elif token.pieces:
                # The driver's token covers it, and is the one that is amended where the checkpoint goes back.
                self._fence(name, Token(self._token, -1, self.run))
        return ahead

    def _fence_former(self) -> dict[str, Token]:
        """Fence runs of this checkpoint that made other promises, and find out what they brought out."""
        unused = {author_name(self.query, mode): mode for mode in DELIVERIES if mode not in self._sinks}
        former: dict[str, Token] = {}
        for name, token in read_tokens(self._connection, unused).items():
            if token.token != self._token:
                continue
            sink = make_sink(unused[name], self._connection, Author(name, self._token, self.run))
            try:
                sink.open()
            finally:
                sink.close()
            if isinstance(sink, ExactlyOnce | AtLeastOnce | AtMostOnce):
                tasks = self._partition_authors([unused[name]])
                self._fence_partitions(tasks)
                former |= {name: sink.token} | self._ahead_of(sink.token, tasks)
        return former

    def _partition_authors(self, modes: Iterable[Delivery] | None = None) -> dict[str, Delivery]:
        """Name the tasks that write under some promises; under those that the jobs make now if none are given."""
        able = [job for job in self._jobs if splittable(job)]
        wanted = {self.modes[job.name] for job in able} if modes is None else {*modes} if able else set()
        return {
            author_name(self.query, mode, partition): mode
            for mode in sorted(wanted - {"at_least_once"})
            for partition in range(self._partitions)
        }

    def _fence_partitions(self, names: Iterable[str] | None = None) -> None:
        with ThreadPoolExecutor(_THREADS) as threads:
            list(threads.map(self._fence, self._partition_authors() if names is None else names))

    def _fence_query(self, owner: Owner) -> None:
        """Let a query that has written these results before write no more: neither its driver nor its tasks."""
        names = []
        for mode in DELIVERIES:  # its promise may have changed since it was noted
            author = Author(author_name(owner.query, mode), owner.checkpoint, self.run)
            former = make_sink(mode, self._connection, author)
            try:
                former.open()  # takes the id, and notes a run that is not that of its tasks
            finally:
                former.close()
            names += [author_name(owner.query, mode, partition) for partition in range(owner.partitions)]
            # A query keeps its name when jobs come to it.
            jobs = {*owner.query.split("+"), *(job.name for job in self._jobs)}
            names += [author_name(owner.query, mode, catching_up=job) for job in sorted(jobs)]
        with ThreadPoolExecutor(_THREADS) as threads:
            list(threads.map(self._fence, names))

    def _fence(self, name: str, token: Token | None = None) -> None:
        """Take the id of a state partition, and note a token under it if one is given."""
        producer = TransactionalProducer(self._connection, transactional_id=f"headrace.{name}")
        try:
            producer.prepare()
            if token is not None:
                with producer.transaction():
                    producer.send(COMMITS, token.to_bytes(), key=name.encode())
        finally:
            producer.discard()


def _is_ahead(token: Token, driver: Token) -> bool:
    """Tell whether the token of a state partition covers what that of the driver does not."""
    newest = token.newest
    if newest.end is None or driver.end is None:
        return newest.batch > driver.batch
    return not driver.end.includes(newest.end)
