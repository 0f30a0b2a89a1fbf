"""Each batch's way from Spark to the sinks, and the story that is told of it."""

from __future__ import annotations

import json
import logging
import time
from collections import Counter, defaultdict
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError
from headrace.logs import in_batch
from headrace.spark.output.records import reasons_of, steps_of
from headrace.spark.output.task_writer import COPY, REFUSED, WRITTEN, Order, TaskWriter
from headrace.spark.run.dead_letter_watch import Refused, first_refused
from headrace.spark.run.progress import BatchDone, JobFigures, StateChange
from headrace.spark.source.advice import Advice
from headrace.spark.source.arrow_stage import WATERMARKS
from headrace.spark.source.exchange import SPARK_SCHEMA, frames
from headrace.spark.source.kafka_source import backlogs_of
from headrace.spark.stages.shipping import Packed
from headrace.spark.stages.stage_turn import merged_times
from headrace.time.instants import BEGINNING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from headrace.kafka import Connection
    from headrace.sinks.contract import BatchFrames
    from headrace.spark.checkpoint.positions import Span
    from headrace.spark.checkpoint.watermarks_file import StandingFile
    from headrace.spark.output.delivery import Deliveries
    from headrace.spark.output.job_sinks import JobSinks
    from headrace.spark.output.records import Finished, Writer
    from headrace.spark.output.sink import Outgoing
    from headrace.spark.run.dead_letter_watch import DeadLetterWatch
    from headrace.spark.run.progress import RunEvent
    from headrace.spark.source.advice import AdviceFile
    from headrace.spark.source.backpressure import RecordSizes, Throttle
    from headrace.spark.source.batch_timing import Punctuality
    from headrace.spark.stages.slots import Slots
    from headrace.stream import Delivery

log = logging.getLogger(__name__)

#: How long a stop waits for the batch under way.
_STOP_SECONDS = 4.0

Times = dict[int, dict[str, Any]]
_ROWS = ("results", "late", "dead_letters")
#: What a job has seen that took no part in a batch.
_NO_TIME: dict[str, Any] = {"rows": 0, "partitions": []}


class Batches:
    """Takes each batch from Spark to the sinks.

    Args:
        spark: The session.
        connection: The Kafka that results go to.
        writers: How each job's results are encoded, in the order of the jobs.
        slots: The numbers of the jobs' steps.
        deliveries: How batches go to Kafka.
        sinks: Where they go besides.
        report: Is told of each batch.
        standing: Is told where sources stand.
        throttle: Learns how long batches take.
        record_sizes: Learns how long records are.
        most_bytes: The most bytes that a batch may read.
        punctuality: Foresees when windows will be complete.
        advice: Where the source is told how to plan the next batch.
        watch: Notices when most of the input is refused.
        token: Names the checkpoint.
        spans: Tells what a batch reads.
        absent: Jobs that are left out.
    """

    def __init__(
        self,
        spark: SparkSession,
        connection: Connection,
        writers: Sequence[Writer],
        slots: Slots,
        *,
        deliveries: Deliveries,
        sinks: JobSinks,
        report: Callable[[RunEvent], None],
        standing: StandingFile,
        throttle: Throttle,
        record_sizes: RecordSizes,
        most_bytes: int,
        punctuality: Punctuality,
        advice: AdviceFile,
        watch: DeadLetterWatch,
        token: str,
        spans: Callable[[int], Span],
        absent: Collection[str] = (),
    ) -> None:
        self.query: StreamingQuery | None = None
        self.failure: HeadraceError | None = None
        self.last = -1
        self._spark = spark
        self._jobs = [writer.job for writer in writers]
        self._slots = slots
        self._writers = writers
        self._deliveries = deliveries
        self._sinks = sinks
        self._report = report
        self._standing = standing
        self._throttle = throttle
        self._record_sizes = record_sizes
        self._most_bytes = most_bytes
        self._punctuality = punctuality
        self._advice = advice
        self._spans = spans
        self._watch = watch
        self._absent = absent
        self._warm = False
        self._counts: dict[str, Counter[str]] = {}
        self._first_refused: Refused | None = None
        self._dismissed = 0
        order = Order(
            connection.portable(),
            tuple(writers),
            deliveries.modes,
            deliveries.carrier,
            slots,
            deliveries.query,
            token,
            deliveries.run,
            deliveries.most,
        )
        self._order = Packed.of(order)

    def write(self, frame: DataFrame, batch: int) -> None:
        """Run a batch and write what came out of it; Spark calls this."""
        try:
            self._write(frame, batch)
        except HeadraceError as problem:
            # Spark turns an error into text; keep the real one for the caller.
            self.failure = problem
            raise
        self.last = batch

    def stop(self, query: StreamingQuery) -> None:
        """End the query when Spark has noted the last batch, or soon anyway: a batch that it has not is repeated."""
        deadline = time.monotonic() + _STOP_SECONDS
        while query.isActive and time.monotonic() < deadline and not self._noted(query):
            time.sleep(0.02)
        query.stop()

    def _noted(self, query: StreamingQuery) -> bool:
        progress = query.lastProgress
        return self.last < 0 or (progress is not None and progress.batchId >= self.last)

    def _write(self, frame: DataFrame, batch: int) -> None:
        span = replace(self._spans(batch), absent=tuple(sorted(self._absent)))
        with in_batch(span.name):
            self._process(frame, batch, span)

    def _process(self, frame: DataFrame, batch: int, span: Span) -> None:
        began = time.monotonic()
        apart = self._deliveries.apart(batch, span)
        if apart:
            frame = frame.mapInArrow(TaskWriter(self._order, batch, apart, span), SPARK_SCHEMA)
        table = frame.toArrow()
        parts = _Parts(self._slots, self._deliveries.carrier)
        for group, kind, body in zip(
            *(table.column(name).to_pylist() for name in ("group", "kind", "body")), strict=True
        ):
            parts.add(group, kind, body)
        times: Times = {
            number: told
            for number in range(len(self._jobs))
            if (told := merged_times(parts.of(number)["time"])) is not None
        }
        counts = self._bring_out(batch, parts, _now(times), span)
        self._record_sizes.after(json.loads(body) for body in parts.of(0)["sizes"])
        self._tell_tasks(batch, times)
        self._standing.write({self._jobs[number].name: told for number, told in times.items()}, batch=batch)
        self._tell(batch, span, times, counts, time.monotonic() - began)

    def _bring_out(self, batch: int, parts: _Parts, now: int, span: Span) -> Counter[str]:
        """Write what the tasks have not, and count what is new."""
        records: dict[Delivery, list[Iterable[Outgoing]]] = defaultdict(list)
        counts: list[Counter[str]] = []
        for_sinks: dict[str, Callable[[], BatchFrames]] = {}
        self._first_refused = None
        for number, writer in enumerate(self._writers):
            count: Counter[str] = Counter()
            bodies = parts.of(number)
            if self._first_refused is None:
                told = [Refused(**json.loads(body)) for body in bodies[REFUSED][:1]]
                self._first_refused = told[0] if told else first_refused(bodies)
            for written in bodies[WRITTEN]:
                count.update(json.loads(written))
            mode = self._deliveries.modes[writer.job.name]
            finished = None
            if not self._deliveries.committed(mode, batch, span):
                finished = writer.finish(bodies, count, batch=span.name)
                records[mode].append(writer.encode(finished, now))
            if writer.job.name in self._sinks.jobs:
                for_sinks[writer.job.name] = partial(_frames_of, writer, finished, bodies, parts.dead(), span)
            counts.append(count)
        self._deliveries.write(batch, {mode: chain.from_iterable(each) for mode, each in records.items()}, span)
        self._sinks.write(batch, span, for_sinks)
        by_job = {job.name: count for job, count in zip(self._jobs, counts, strict=True)}
        self._counts = by_job
        self._deliveries.learn({name: sum(count[kind] for kind in _ROWS) for name, count in by_job.items()})
        # What cannot be read is refused once for all jobs; what a job dismisses, others may use.
        self._dismissed = max((count["dismissed"] for count in counts), default=0)
        return sum(counts, Counter())

    def _tell_tasks(self, batch: int, times: Times) -> None:
        """Let the tasks of the next batch know the watermarks: they get the properties of the thread this runs on."""
        known = {self._jobs[number].name: told["watermarks"] for number, told in times.items()}
        if len(known) == len(self._jobs) - len(self._absent):
            told = json.dumps({"batch": batch, "watermarks": known})
            self._spark.sparkContext.setLocalProperty(WATERMARKS, told)

    def _figures(self, times: Times) -> dict[str, JobFigures]:
        """Tell what each job did."""
        numbers = {job.name: number for number, job in enumerate(self._jobs)}
        return {
            name: JobFigures(
                events=times.get(numbers[name], _NO_TIME)["rows"],
                results=count["results"],
                late=count["late"],
                dead_letters=reasons_of(count, "dismissed"),
                partitions=tuple(times.get(numbers[name], _NO_TIME)["partitions"]),
            )
            for name, count in self._counts.items()
        }

    def _tell(self, batch: int, span: Span, times: Times, counts: Counter[str], seconds: float) -> None:
        if not self._warm:
            self._warm = True
            self._report(StateChange("running"))
        marks = {
            self._jobs[number].name: told["watermark"]
            for number, told in times.items()
            if told["watermark"] > BEGINNING
        }
        progress = self.query.lastProgress if self.query is not None else None
        duration, backlogs = _last_progress(progress)
        backlog = None if backlogs is None else sum(backlogs.values())
        rows = max((told["rows"] for told in times.values()), default=0)
        limit = self._throttle.after(rows=rows, backlog=backlog, seconds=seconds)
        planned = max((told["now"] for told in times.values()), default=BEGINNING)
        due, step = self._punctuality.after(marks, now=planned, took=int(seconds * 1e6))
        self._advice.write(Advice(limit, due, step, self._most_bytes, dict(self._record_sizes.known)))
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
                counters={name: steps for name, count in self._counts.items() if (steps := steps_of(count))},
                batch_id=span.name,
                seconds=seconds,
                jobs=self._figures(times),
                unreadable=reasons_of(counts, "dead"),
                backlogs=backlogs or {},
                **_sizes(progress),
            )
        )
        _log_batch(batch, counts, rows, seconds)
        unreadable = counts["dead_letters"] - counts["dismissed"]
        alarm = self._watch.after(
            records=rows + unreadable, refused=unreadable + self._dismissed, first=self._first_refused
        )
        if alarm is not None:
            log.log(logging.WARNING if alarm.active else logging.INFO, "%s", alarm.text)
            self._report(alarm)


def _log_batch(batch: int, counts: Counter[str], rows: int, seconds: float) -> None:
    figures = {"batch_number": batch, "events": rows, "seconds": round(seconds, 3), **{k: counts[k] for k in _ROWS}}
    log.info(
        "batch %d is out: %d events, %d results, %d late, %d dead letters, %.3f s",
        *(batch, rows, *(counts[kind] for kind in _ROWS), seconds),
        extra={"figures": figures},
    )


def _now(times: Times) -> int:
    told = max((told["now"] for told in times.values()), default=BEGINNING)
    # Before the first heartbeat, events that nobody stamped at their ingestion tell no time.
    return told if told > BEGINNING else time.time_ns() // 1_000


def _last_progress(progress: Any) -> tuple[int | None, dict[tuple[str, int], int] | None]:
    if progress is None:
        return None, None
    return int(progress.durationMs.get("triggerExecution", 0)), backlogs_of(progress)


def _sizes(progress: Any) -> dict[str, Any]:
    """What the state store holds and where the time of the last batch went, as far as Spark has told."""
    if progress is None:
        return {}
    return {
        "state_rows": sum(int(store.numRowsTotal) for store in progress.stateOperators),
        "state_bytes": sum(int(store.memoryUsedBytes) for store in progress.stateOperators),
        "phases": {name: int(took) for name, took in progress.durationMs.items()},
    }


class _Parts:
    """The bodies of a batch, by job and kind."""

    def __init__(self, slots: Slots, carrier: int) -> None:
        self._slots = slots
        self._carrier = carrier
        self._bodies: dict[int, dict[str, list[bytes]]] = defaultdict(lambda: defaultdict(list))

    def add(self, group: int, kind: str, body: bytes) -> None:
        # Dead letters were read for all jobs; who carries them out promises the most.
        job = self._carrier if kind.removeprefix(COPY) == "dead" else self._slots.job_number(group)
        self._bodies[job][kind].append(body)

    def of(self, job: int) -> dict[str, list[bytes]]:
        return self._bodies[job]

    def dead(self) -> list[bytes]:
        """Give the dead letters of all jobs, also those that tasks have written."""
        bodies = self._bodies[self._carrier]
        return [*bodies["dead"], *bodies[COPY + "dead"]]


def _frames_of(
    writer: Writer, finished: Finished | None, bodies: Mapping[str, list[bytes]], dead: list[bytes], span: Span
) -> BatchFrames:
    """Make what a job's sinks get, also of what tasks or an earlier attempt have written to Kafka."""
    copied = {kind.removeprefix(COPY): those for kind, those in bodies.items() if kind.startswith(COPY)}
    if finished is None or copied:
        whole = {kind: [*bodies.get(kind, ()), *copied.get(kind, ())] for kind in {*bodies, *copied}}
        finished = writer.finish(whole, Counter(), batch=span.name)
    return finished.frames(frames(dead))
