"""Writing apart: each state partition brings out its own results, in the task that computed them.

A task takes what left the last stage in its partition, writes the results of the jobs it was told, with their late
events and dead letters, and passes on what is left with a count of what it wrote. Its transactional id is that of the
partition, whichever process runs the task, so two attempts at one partition can never both bring out a batch: the
second one to take the id fences the first, and then reads the first one's token.

A worker process keeps its producers between batches. Spark gives a partition to any worker, which then takes the id
over; a worker that finds its id taken takes it back, unless a later run of the query has begun.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.kafka.producer import ExpiredError, FencedError
from headrace.spark.output.delivery import author_name
from headrace.spark.output.sink import TRANSACTION_BYTES, Author, make_sink
from headrace.spark.output.tokens import read_tokens
from headrace.spark.run.dead_letter_watch import first_refused
from headrace.spark.source.exchange import ARROW_SCHEMA, holds_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.kafka import Connection
    from headrace.spark.checkpoint.positions import Span
    from headrace.spark.output.records import Writer
    from headrace.spark.output.sink import Outgoing, Sink
    from headrace.spark.stages.shipping import Packed
    from headrace.spark.stages.slots import Slots
    from headrace.stream import Delivery

log = logging.getLogger(__name__)

#: What a task says about the rows that it wrote itself.
WRITTEN = "written"
#: The first dead letter that a task wrote itself.
REFUSED = "refused"
#: Before the kind of bodies that a task wrote itself and that the driver needs for sinks besides Kafka.
COPY = "copy/"
_ATTEMPTS = 3


@dataclass(frozen=True)
class Order:
    """What tasks need to know, the same for all batches of a run.

    Args:
        connection: Where to write.
        writers: How each job's results are encoded, in the order of the jobs.
        modes: Each job's promise.
        carrier: The number of the job that carries what belongs to all.
        slots: The numbers of the jobs' steps.
        query: The query's name.
        token: Names the checkpoint.
        run: Names the run.
        most: Bytes that one transaction holds at most.
    """

    connection: Connection
    writers: tuple[Writer, ...]
    modes: dict[str, Delivery]
    carrier: int
    slots: Slots
    query: str
    token: str
    run: str
    most: int = TRANSACTION_BYTES

    def needs_copy(self, job: int, kind: str) -> bool:
        """Tell whether sinks besides Kafka need what a task writes; the driver writes to them."""
        if kind == "dead":
            return any(writer.job.sinks for writer in self.writers)
        return bool(self.writers[job].job.sinks)


@dataclass(frozen=True)
class TaskWriter:
    """What each task does after the last stage.

    Args:
        order: What it needs to know.
        batch: The batch's number.
        jobs: The jobs whose results tasks write.
        span: What the batch reads.
    """

    order: Packed[Order] = field(repr=False)
    batch: int
    jobs: tuple[str, ...]
    span: Span | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write what is ours, and pass on the rest."""
        from pyspark import TaskContext

        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        order = self.order.open()
        mine: dict[int, dict[str, list[bytes]]] = defaultdict(lambda: defaultdict(list))
        for batch in batches:
            rest = []
            kinds = batch.column("kind").to_pylist()
            columns = (batch.column(name).to_pylist() for name in ("group", "body"))
            for place, (group, body) in enumerate(zip(*columns, strict=True)):
                kind = kinds[place]
                job = order.carrier if kind == "dead" else order.slots.job_number(group)
                if holds_rows(kind) and order.writers[job].job.name in self.jobs:
                    mine[job][kind].append(body)
                    if not order.needs_copy(job, kind):
                        continue
                    kinds[place] = COPY + kind
                rest.append(place)
            if rest:
                yield _renamed(batch, kinds).take(pa.array(rest))
        yield from self._write(order, partition, mine)

    def _write(self, order: Order, partition: int, mine: dict[int, dict[str, list[bytes]]]) -> Iterator[pa.RecordBatch]:
        now = time.time_ns() // 1_000
        records: dict[Delivery, list[Outgoing]] = defaultdict(list)
        counts: dict[int, Counter[str]] = {}
        for number, bodies in mine.items():
            writer = order.writers[number]
            counts[number] = Counter()
            name = str(self.batch) if self.span is None else self.span.name
            records[order.modes[writer.job.name]] += writer.outgoing(bodies, now, counts[number], batch=name)
        for mode, outgoing in records.items():
            if not bring_out(order, mode, partition, self.batch, self.jobs, outgoing, self.span):
                for number in counts:
                    if order.modes[order.writers[number].job.name] == mode:
                        counts[number].clear()
        first = {number: found for number, bodies in mine.items() if (found := first_refused(bodies)) is not None}
        if first:
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array([order.slots.first(number) for number in first], pa.int32()),
                    pa.array([REFUSED] * len(first), pa.string()),
                    pa.array([json.dumps(asdict(found)).encode() for found in first.values()], pa.binary()),
                ],
                schema=ARROW_SCHEMA,
            )
        numbers = list(counts)
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([order.slots.first(number) for number in numbers], pa.int32()),
                pa.array([WRITTEN] * len(numbers), pa.string()),
                pa.array([json.dumps(counts[number]).encode() for number in numbers], pa.binary()),
            ],
            schema=ARROW_SCHEMA,
        )


def _renamed(batch: pa.RecordBatch, kinds: list[str]) -> pa.RecordBatch:
    """Give bodies other kinds, in a batch of the same schema."""
    columns = [
        pa.array(kinds, field.type) if field.name == "kind" else batch.column(field.name) for field in batch.schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


_open: dict[str, tuple[str, Sink]] = {}


def bring_out(
    order: Order,
    mode: Delivery,
    partition: int,
    batch: int,
    jobs: Sequence[str],
    records: list[Outgoing],
    span: Span | None = None,
) -> bool:
    """Write a partition's records of a batch under a promise; False if they were out already.

    Raises:
        FencedError: A later run of the query has begun.
        ExpiredError: Other attempts take the id again and again, or Kafka ends transactions at their time-out.
        BrokerError: Kafka cannot be reached, or does not allow it.
    """
    name = author_name(order.query, mode, partition)
    author = Author(name, order.token, order.run, of=author_name(order.query, mode), jobs=tuple(jobs))
    for attempt in range(1, _ATTEMPTS + 1):
        # A transaction that Kafka ended at its time-out looks like one that another process took over: make it smaller.
        sink = _sink(order, mode, author, order.most // 4 ** (attempt - 1))
        try:
            if sink.committed(batch, span):
                return False
            sink.write(batch, records, span)
        except FencedError as problem:
            _forget(name)
            # Who takes an id from a later run and is killed then leaves it a transaction that hides its tokens.
            author.check(read_tokens(order.connection, [author.of]))
            if attempt == _ATTEMPTS:
                raise ExpiredError(
                    f"{_ATTEMPTS} transactions of {name} were ended by Kafka at their time-out of "
                    f"{order.connection.transaction_timeout:g} s, or by another attempt at the same task",
                    hint="If this comes again, raise broker.transaction_timeout_ms or lower spark.transaction_mb.",
                ) from problem
            log.info("another process took %s over; taking it back", name)
        except BaseException:
            # Whether the batch is out can only be told after the id was taken anew.
            _forget(name)
            raise
        else:
            return True
    return False


def _sink(order: Order, mode: Delivery, author: Author, most: int) -> Sink:
    run, kept = _open.get(author.name, ("", None))
    if kept is not None and run == f"{author.run}/{author.jobs}":
        return kept
    _forget(author.name)
    sink = make_sink(mode, order.connection, author, most=max(1, most))
    try:
        sink.open()
    except BaseException:
        sink.close()
        raise
    _open[author.name] = (f"{author.run}/{author.jobs}", sink)
    return sink


def _forget(name: str) -> None:
    _, kept = _open.pop(name, ("", None))
    if kept is not None:
        kept.close()
