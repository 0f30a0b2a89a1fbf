"""Runs jobs on Spark until they are stopped: session, query, sink, and the story of it as it goes."""

from __future__ import annotations

import json
import logging
import time
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from headrace.broker import Topics
from headrace.broker.topics import COMMITS, DEAD_LETTERS
from headrace.errors import HeadraceError, PlanError
from headrace.events import Codec
from headrace.spark.arrow_stage import WATERMARKS
from headrace.spark.exchange import frames
from headrace.spark.failure import explain_failure
from headrace.spark.identity import claim
from headrace.spark.lag import OffsetMirror
from headrace.spark.pressure import FIRST, SourceLimit, Throttle, bound_by_memory
from headrace.spark.progress import BatchDone, RunEvent, StateChange
from headrace.spark.query import source_topics, streaming_query
from headrace.spark.records import Writer
from headrace.spark.session import spark_settings, start_session
from headrace.spark.sink import KafkaSink
from headrace.spark.standing import StandingFile
from headrace.time.instants import BEGINNING

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from headrace.broker import Connection
    from headrace.events import Encoding
    from headrace.spark.sink import Outgoing, Sink
    from headrace.stream import Job

log = logging.getLogger(__name__)

#: How long a stop waits for the batch under way.
_STOP_SECONDS = 4.0


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How jobs run.

    Args:
        connection: The Kafka to read from and write to.
        checkpoint: Where offsets and state are kept.
        jars: Spark's Kafka connector.
        master: Where Spark runs, such as "local[2]".
        key_groups: Key groups per job: the most that state can be spread over.
        state_partitions: Spark's state partitions; as many as there are cores.
        cadence_ms: The least time between the starts of two batches; 0: as soon as the last one is out.
        driver_memory: Heap of the driver.
        max_events_per_batch: The most events a batch reads; None: as many as memory allows.
        target_batch_ms: What a batch may take while there is a backlog; batches grow and shrink towards it.
        first_batch_events: What the first batch after a start may read, before its time is known.
        starting: Where to begin without a checkpoint.
        fresh: Forget the checkpoint.
        encoding: How results, late events and dead letters are written.
        settings: Further Spark settings, which win over ours.
    """

    connection: Connection
    checkpoint: Path
    jars: Sequence[Path]
    master: str = "local[2]"
    key_groups: int = 4
    state_partitions: int = 2
    cadence_ms: int = 0
    driver_memory: str = "2g"
    max_events_per_batch: int | None = None
    target_batch_ms: int = 2_500
    first_batch_events: int = FIRST
    starting: Literal["earliest", "latest"] = "earliest"
    fresh: bool = False
    encoding: Encoding = "binary"
    settings: dict[str, str] = field(default_factory=dict)


def run_jobs(
    jobs: Sequence[Job], options: RunOptions, report: Callable[[RunEvent], None], stop: threading.Event
) -> None:
    """Run jobs in one query until `stop` is set.

    Args:
        jobs: What to run; their order does not matter.
        options: How.
        report: Is told what happens, from the threads in which it happens.
        stop: Set it to end the run after the batch under way.

    Raises:
        JobError: The query failed; the message says why.
    """
    if not jobs:
        raise PlanError("no job to run", hint="Name at least one; `headrace jobs` lists them.")
    ordered = sorted(jobs, key=lambda job: job.name)
    identity = claim(
        options.checkpoint,
        ordered,
        key_groups=options.key_groups,
        state_partitions=options.state_partitions,
        fresh=options.fresh,
    )
    options.connection.check()
    Topics(options.connection).require(_topics(ordered))
    sink = KafkaSink(options.connection, query="+".join(job.name for job in ordered), token=identity.token)
    report(StateChange("starting", f"Spark on {options.master}"))
    spark = start_session("headrace", master=options.master, settings=_settings(options))
    try:
        sink.open()
        _run(spark, ordered, options, sink, report, stop)
    except HeadraceError as problem:
        report(StateChange("failed", str(problem)))
        raise
    finally:
        sink.close()
        spark.stop()
    report(StateChange("stopped"))


def _topics(jobs: Sequence[Job]) -> list[str]:
    outputs = [topic for job in jobs for topic in (job.result_topic, job.late_topic)]
    return [*source_topics(jobs), *outputs, DEAD_LETTERS, COMMITS]


def _settings(options: RunOptions) -> dict[str, str]:
    ours = spark_settings(
        jars=options.jars,
        state_partitions=options.state_partitions,
        driver_memory=options.driver_memory,
        local_directory=options.checkpoint.parent / "spark-local",
    )
    return ours | options.settings


def _source_options(options: RunOptions, first: int) -> dict[str, str]:
    return {
        **options.connection.spark_options(),
        "startingOffsets": options.starting,
        "failOnDataLoss": "true",
        "maxOffsetsPerTrigger": str(first),
        # What a transaction has not brought out is not there, for us as for any reader.
        "kafka.isolation.level": "read_committed",
    }


def _run(
    spark: SparkSession,
    jobs: Sequence[Job],
    options: RunOptions,
    sink: Sink,
    report: Callable[[RunEvent], None],
    stop: threading.Event,
) -> None:
    codec = Codec()
    topics = Topics(options.connection)
    most = options.max_events_per_batch or bound_by_memory()
    throttle = Throttle(target=options.target_batch_ms / 1000, most=most, first=options.first_batch_events)
    frame = streaming_query(
        spark,
        jobs,
        options=_source_options(options, throttle.limit),
        groups=options.key_groups,
        codec=codec,
        partitions={name: len(topics.get(name).partitions) for name in source_topics(jobs)},
    )
    standing = StandingFile(options.checkpoint)
    writers = [Writer(job, codec, options.encoding) for job in jobs]
    batches = _Batches(spark, writers, options.key_groups, sink, report, standing, throttle)
    report(StateChange("warming", "the first batch starts Java code and Python workers; this takes 10 to 30 s"))
    writer = frame.writeStream.outputMode("update").foreachBatch(batches.write)
    writer = writer.option("checkpointLocation", str(options.checkpoint / "spark"))
    if options.cadence_ms:
        writer = writer.trigger(processingTime=f"{options.cadence_ms} milliseconds")
    query = writer.start()
    batches.query = query
    mirror = OffsetMirror(options.connection, jobs)
    while not stop.wait(0.1) and query.isActive:
        mirror.show(query.lastProgress)
    stopped = query.isActive
    if stopped:
        report(StateChange("stopping", "the batch under way"))
        batches.stop(query)
        mirror.finish(query.lastProgress)
    problem = query.exception()
    if batches.failure is not None:
        raise batches.failure
    if stopped and problem is not None:
        # Ending a query in the middle of a batch looks to Spark like a failure of that batch; it will be repeated.
        log.info("the batch under way was given up: %s", problem)
    elif problem is not None:
        raise explain_failure(str(problem), topics=source_topics(jobs), checkpoint=options.checkpoint)


class _Batches:
    """Takes each batch from Spark to the sink."""

    def __init__(
        self,
        spark: SparkSession,
        writers: Sequence[Writer],
        groups: int,
        sink: Sink,
        report: Callable[[RunEvent], None],
        standing: StandingFile,
        throttle: Throttle,
    ) -> None:
        self.query: StreamingQuery | None = None
        self.failure: HeadraceError | None = None
        self._spark = spark
        self._jobs = [writer.job for writer in writers]
        self._groups = groups
        self._writers = writers
        self._sink = sink
        self._report = report
        self._standing = standing
        self._throttle = throttle
        self._source = SourceLimit(spark)
        self._written = -1
        self._warm = False

    def write(self, frame: DataFrame, batch: int) -> None:
        """Run a batch and write what came out of it; Spark calls this."""
        try:
            self._write(frame, batch)
        except HeadraceError as problem:
            # Spark turns an error into text; keep the real one for the caller.
            self.failure = problem
            raise
        self._written = batch

    def stop(self, query: StreamingQuery) -> None:
        """End the query when Spark has noted the last batch, or soon anyway: a batch that it has not is repeated."""
        deadline = time.monotonic() + _STOP_SECONDS
        while query.isActive and time.monotonic() < deadline and not self._noted(query):
            time.sleep(0.02)
        query.stop()

    def _noted(self, query: StreamingQuery) -> bool:
        progress = query.lastProgress
        return self._written < 0 or (progress is not None and progress.batchId >= self._written)

    def _write(self, frame: DataFrame, batch: int) -> None:
        began = time.monotonic()
        table = frame.toArrow()
        parts = _Parts(self._groups)
        for group, kind, body in zip(
            *(table.column(name).to_pylist() for name in ("group", "kind", "body")), strict=True
        ):
            parts.add(group, kind, body)
        times = {
            number: json.loads(parts.of(number, "time")[0])
            for number in range(len(self._jobs))
            if parts.of(number, "time")
        }
        told = max((told["now"] for told in times.values()), default=BEGINNING)
        # Before the first heartbeat, events that nobody stamped at their ingestion tell no time.
        now = told if told > BEGINNING else time.time_ns() // 1_000
        counts: dict[str, int] = defaultdict(int)
        records = chain.from_iterable(
            self._records(number, job, parts, now, counts) for number, job in enumerate(self._jobs)
        )
        if self._sink.committed(batch):
            counts.clear()
        else:
            self._sink.write(batch, records)
        self._tell_tasks(batch, times)
        self._standing.write({self._jobs[number].name: told for number, told in times.items()}, batch=batch)
        self._tell(batch, times, counts, time.monotonic() - began)

    def _records(self, number: int, job: Job, parts: _Parts, now: int, counts: dict[str, int]) -> Iterator[Outgoing]:
        writer = self._writers[number]
        left = frames(parts.of(number, "result"))
        if left:
            results = job.pipeline.finish(pl.concat(left))
            counts["results"] += results.height
            yield from writer.results(results, now)
        for kind, write in (("late", writer.late), ("dead", writer.dead), ("dismissed", writer.dismissed)):
            for rows in frames(parts.of(number, kind)):
                counts["late" if kind == "late" else "dead_letters"] += rows.height
                yield from write(rows, now)

    def _tell_tasks(self, batch: int, times: dict[int, dict[str, Any]]) -> None:
        """Let the tasks of the next batch know the watermarks: they get the properties of the thread this runs on."""
        known = {self._jobs[number].name: told["watermark"] for number, told in times.items()}
        if len(known) == len(self._jobs):
            told = json.dumps({"batch": batch, "watermarks": known})
            self._spark.sparkContext.setLocalProperty(WATERMARKS, told)

    def _tell(self, batch: int, times: dict[int, dict[str, Any]], counts: dict[str, int], seconds: float) -> None:
        if not self._warm:
            self._warm = True
            self._report(StateChange("running"))
        marks = {
            self._jobs[number].name: told["watermark"]
            for number, told in times.items()
            if told["watermark"] > BEGINNING
        }
        progress = self.query.lastProgress if self.query is not None else None
        duration, backlog = _last_progress(progress)
        rows = max((told["rows"] for told in times.values()), default=0)
        limit = self._throttle.after(rows=rows, backlog=backlog, seconds=seconds)
        if self.query is not None:
            self._source.set(self.query, limit)
        self._report(
            BatchDone(
                batch=batch,
                rows_in=rows,
                results=counts["results"],
                late=counts["late"],
                dead_letters=counts["dead_letters"],
                duration_ms=duration,
                watermark=min(marks.values(), default=None),
                backlog=backlog,
                limit=limit,
                watermarks=marks,
                **_sizes(progress),
            )
        )


class _Parts:
    """The bodies of a batch, by job and kind."""

    def __init__(self, groups: int) -> None:
        self._groups = groups
        self._bodies: dict[tuple[int, str], list[bytes]] = defaultdict(list)

    def add(self, group: int, kind: str, body: bytes) -> None:
        self._bodies[group // self._groups, kind].append(body)

    def of(self, job: int, kind: str) -> list[bytes]:
        return self._bodies.get((job, kind), [])


def _last_progress(progress: Any) -> tuple[int | None, int | None]:
    if progress is None:
        return None, None
    backlog = 0
    for source in progress.sources:
        behind = (source.metrics or {}).get("totalOffsetsBehindLatest")
        backlog += int(behind) if behind is not None else 0
    return int(progress.durationMs.get("triggerExecution", 0)), backlog


def _sizes(progress: Any) -> dict[str, Any]:
    """What the state store holds and where the time of the last batch went, as far as Spark has told."""
    if progress is None:
        return {}
    return {
        "state_rows": sum(int(store.numRowsTotal) for store in progress.stateOperators),
        "state_bytes": sum(int(store.memoryUsedBytes) for store in progress.stateOperators),
        "phases": {name: int(took) for name, took in progress.durationMs.items()},
    }
