"""The Arrow stage: from Kafka values to key groups, in one Python call per task.

Each task decodes its records once for all jobs (once for each format, where jobs read a topic in several), takes them
in job by job (`headrace.stream.intake`), and sends every key group one body of rows or partials and one clock record.
Dead letters travel with the first group of the first job, so that they reach the sink in the same batch as the results.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa

from headrace.engine.operator import EVENT_TIME, INGESTION_TIME
from headrace.engine.tally import count, tallied
from headrace.errors import PlanError
from headrace.events.layout import is_open
from headrace.events.letters import SCHEMA, dead_letters
from headrace.formats import Records
from headrace.formats.format import SKIPPED
from headrace.formats.origin import labelled
from headrace.kafka.ranges import CHUNK_BYTES
from headrace.spark.run.isolation import Attendance, blamed
from headrace.spark.source.exchange import Parcel, rows_kind
from headrace.spark.stages.slots import Slots
from headrace.stream.intake import ORIGINAL, Parts, take_in
from headrace.stream.plan import TopicSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headrace.events import Codec
    from headrace.formats import Format, RecordPart
    from headrace.kafka.ranges import Chunk
    from headrace.stream.intake import Intake
    from headrace.stream.pipeline import Pipeline

#: The local property in which the driver tells tasks the watermarks after the batch before; see `watermarks_before`.
WATERMARKS = "headrace.watermarks"
#: Watermarks by job and step.
Watermarks = dict[str, dict[str, int]]
_BATCH_ID = "streaming.sql.batchId"

#: Fewer rows than this are put together with those of other partitions: a call has a price of its own.
_ROWS_WORTH_A_CALL = 50_000
_TIMES = (EVENT_TIME, INGESTION_TIME)
_NO_LETTERS = pl.DataFrame(schema=SCHEMA)


@dataclass(frozen=True)
class ArrowStage:
    """What every task of the first stage does.

    Args:
        pipelines: The jobs' pipelines, by name; the order numbers the jobs.
        groups: Key groups per step.
        codec: Reads Kafka values.
        known: The watermarks before this batch by job and step, where they are known from the start; else the driver
            tells them.
        attendance: Which jobs take part.
        slots: The numbers of the steps; counted through if not given.
    """

    pipelines: dict[str, Pipeline]
    groups: int
    codec: Codec
    known: Watermarks | None = None
    attendance: Attendance = field(default_factory=Attendance)
    slots: Slots | None = None

    def __call__(
        self,
        chunks: Iterator[Chunk],
        now: int | None,
        *,
        steady: int | None = None,
        added: Iterable[tuple[str, int]] = (),
    ) -> pa.RecordBatch:
        """Turn the records of a task into exchange rows.

        Args:
            chunks: The records.
            now: The time of the batch, where it has one.
            steady: The same by the clock that idleness is measured with.
            added: Partitions, by topic and number, that this batch is the first to know of. They are made known to
                every key group whether they have rows or not, so that they hold the watermark back.
        """
        known = watermarks_before() if self.known is None else self.known
        batch = batch_number()
        loads = {job: _Load() for job in self.pipelines if self.attendance.takes_part(job, batch)}
        dead: list[pl.DataFrame] = []
        sizes: dict[str, list[int]] = {}
        for topic, those in _gathered(_measured(chunks, sizes)):
            dead += self._take(topic, those, loads, known)
        for job, load in loads.items():
            for stage, seen in self._made_known(job, added):
                load.seen[stage].append(seen)
        parcel = Parcel()
        slots = self.slots or Slots.numbered(self.pipelines, self.groups)
        for job, load in loads.items():
            load.pack(parcel, job, self.pipelines[job], slots, now, steady)
        parcel.add_frames(slots.first(0), "dead", dead)
        if sizes:
            parcel.add(slots.first(0), "sizes", json.dumps(sizes).encode())
        return parcel.to_arrow()

    def unreadable(self, chunks: Iterator[Chunk]) -> list[pl.DataFrame]:
        """Give the dead letters of records and nothing else; no code of a job's own runs.

        Args:
            chunks: The records.
        """
        loads = {job: _Load() for job in self.pipelines}
        return [
            letters
            for topic, those in _gathered(chunks)
            for letters in self._take(topic, those, loads, {}, decode_only=True)
        ]

    def __post_init__(self) -> None:
        # What contradicts itself should be seen on the driver, not in a task.
        for source in self._sources():
            self._columns(source.topic, self.pipelines)

    def _take(
        self,
        topic: str,
        chunks: list[Chunk],
        loads: dict[str, _Load],
        known: Watermarks,
        *,
        decode_only: bool = False,
    ) -> list[pl.DataFrame]:
        columns, formats = self._columns(topic, loads), self._formats(topic, loads)
        if not columns and not formats:
            return []  # only jobs that are left out read it
        partitions = np.repeat([chunk.partition for chunk in chunks], [len(chunk.values) for chunk in chunks])
        batch = pa.record_batch(
            {
                "value": pa.concat_arrays([chunk.values for chunk in chunks]),
                "offset": pa.concat_arrays([chunk.offsets for chunk in chunks]),
                "partition": pa.array(partitions.astype(np.int32)),
            }
        )
        dead: list[pl.DataFrame] = []
        if columns:
            decoded = self.codec.decode(batch, types=list(columns), columns=columns, keep=["value", "partition"])
            for type_name, frame in decoded.frames.items():
                if frame.height and not decode_only:
                    self._feed(topic, type_name, frame.rename({"kafka_value": ORIGINAL}), loads, known)
            dead.append(decoded.dead)
        for format_, (names, job) in formats.items():
            with blamed(job), tallied(loads[job].counts):
                frame, letters = _decoded(topic, format_, names, batch, chunks)
            if frame.height and not decode_only:
                self._feed(topic, format_, frame, loads, known)
            dead.append(letters)
        letters = pl.concat([each for each in dead if each.height] or [dead[0]])
        # What two formats refuse for the same reason is one dead letter.
        letters = letters if len(dead) == 1 else letters.unique(["partition", "offset", "reason"], maintain_order=True)
        return [letters.with_columns(topic=pl.lit(topic))] if letters.height else []

    @property
    def reads(self) -> dict[str, frozenset[RecordPart]]:
        """What the formats of each topic need of a record besides its value."""
        parts: dict[str, frozenset[RecordPart]] = {}
        for source in self._sources():
            parts[source.topic] = parts.get(source.topic, frozenset()) | source.format.reads
        return parts

    def _made_known(self, job: str, added: Iterable[tuple[str, int]]) -> list[tuple[int, list[Any]]]:
        """Give an empty observation of each new partition to each stage of a job that reads its topic."""
        pipeline = self.pipelines[job]
        return [
            (entry.stage, [pipeline.entries_of(entry.stage).index(number), f"{topic}/{partition}", {"rows": 0}])
            for topic, partition in added
            for number, entry in enumerate(pipeline.entries)
            if isinstance(entry.source, TopicSource) and entry.source.topic == topic
        ]

    def _open(self, type_name: str) -> bool:
        return is_open(self.codec.registry.get(type_name).descriptor)

    def _sources(self) -> list[TopicSource]:
        entries = (entry for pipeline in self.pipelines.values() for entry in pipeline.entries)
        return [entry.source for entry in entries if isinstance(entry.source, TopicSource)]

    def _columns(self, topic: str, jobs: Iterable[str]) -> dict[str, list[str] | pl.Schema]:
        """Tell which columns of which types some jobs read from a topic; both times are always there."""
        used: dict[str, dict[str, Any]] = {}
        declared = set()
        for job in jobs:
            for entry in self.pipelines[job].entries:
                source = entry.source
                if not isinstance(source, TopicSource) or source.topic != topic or source.type_name is None:
                    continue
                columns = used.setdefault(source.type_name, {})
                for name in (name for name in entry.columns if name not in _TIMES):
                    kind = source.schema[name]
                    if columns.setdefault(name, kind) != kind:
                        raise PlanError(
                            f"job {job!r} reads {name!r} of {source.topic} as {kind}, another job as {columns[name]}",
                            hint="Declare the same type in both, or run the jobs apart.",
                        )
                if self._open(source.type_name):
                    declared.add(source.type_name)
        return {name: pl.Schema(columns) if name in declared else list(columns) for name, columns in used.items()}

    def _formats(self, topic: str, jobs: Iterable[str]) -> dict[Format, tuple[list[str], str]]:
        """Tell the formats other than the envelope that jobs read a topic in: columns, and the first of the jobs."""
        found: dict[Format, tuple[list[str], str]] = {}
        for job in jobs:
            for entry in self.pipelines[job].entries:
                source = entry.source
                if isinstance(source, TopicSource) and source.topic == topic and source.type_name is None:
                    names, first = found.get(source.format, ([], job))
                    used = {*names, *entry.columns}
                    found[source.format] = ([name for name in source.format.schema if name in used], first)
        return found

    def _feed(
        self, topic: str, what: str | Format, rows: pl.DataFrame, loads: dict[str, _Load], known: Watermarks
    ) -> None:
        parts = Parts(_by_partition(topic, rows))
        for job, load in loads.items():
            pipeline = self.pipelines[job]
            for number, entry in enumerate(pipeline.entries):
                source = entry.source
                if (
                    isinstance(source, TopicSource)
                    and source.topic == topic
                    and what in (source.type_name, source.format)
                ):
                    with blamed(job), tallied(load.counts):
                        taken = take_in(pipeline, number, parts, groups=self.groups, watermarks=known.get(job))
                    load.add(taken, rows)


@dataclass
class _Load:
    """What one task has for one job."""

    #: By stage, input and key group.
    rows: dict[tuple[int, int, int], list[pl.DataFrame]] = field(default_factory=lambda: defaultdict(list))
    #: By stage and key group.
    partials: dict[tuple[int, int], list[pl.DataFrame]] = field(default_factory=lambda: defaultdict(list))
    dismissed: list[pl.DataFrame] = field(default_factory=list)
    #: By stage.
    seen: dict[int, list[list[Any]]] = field(default_factory=lambda: defaultdict(list))
    counts: dict[str, int] = field(default_factory=dict)
    count: int = 0
    newest_ingestion: int | None = None

    def add(self, taken: Intake, rows: pl.DataFrame) -> None:
        for group, frame in taken.rows.items():
            self.rows[taken.stage, taken.input, group].append(frame)
        for group, frame in taken.partials.items():
            self.partials[taken.stage, group].append(frame)
        if taken.dismissed is not None:
            self.dismissed.append(taken.dismissed)
        self.seen[taken.stage] += [[each.input, each.partition, each.observation] for each in taken.seen]
        self.count += rows.height
        newest = rows.get_column(INGESTION_TIME).to_physical().max()
        if newest is not None:
            self.newest_ingestion = max(self.newest_ingestion or 0, int(newest))  # type: ignore[arg-type]

    def pack(
        self, parcel: Parcel, job: str, pipeline: Pipeline, slots: Slots, now: int | None, steady: int | None
    ) -> None:
        for stage in dict.fromkeys(entry.stage for entry in pipeline.entries):
            clock = {
                "seen": self.seen[stage],
                "now": now,
                "steady": steady,
                "rows": self.count,
                "newest_ingestion": self.newest_ingestion,
            }
            body = json.dumps(clock, separators=(",", ":")).encode()
            for group in range(slots.groups):
                number = slots.number(job, stage, group)
                parcel.add(number, "clock", body)
                for place in range(len(pipeline.stages[stage].inputs)):
                    parcel.add_frames(number, rows_kind(place), self.rows[stage, place, group])
                parcel.add_frames(number, "partials", self.partials[stage, group])
        first = slots.number(job, 0, 0)
        parcel.add_frames(first, "dismissed", self.dismissed)
        parcel.add_counts(first, self.counts)


def _decoded(
    topic: str,
    format_: Format,
    columns: list[str],
    batch: pa.RecordBatch,
    chunks: list[Chunk],
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Read records in a format other than the envelope: rows with what they were read from, and dead letters."""
    values, partitions = batch.column("value"), batch.column("partition")
    parts = {name: [getattr(chunk, name) for chunk in chunks] for name in ("keys", "headers", "timestamps")}
    rest = {name: None if those[0] is None else pa.concat_arrays(those) for name, those in parts.items()}
    decoded = format_.decode(Records(values, **rest, partitions=partitions, offsets=batch.column("offset")), columns)
    count(SKIPPED, 0 if decoded.skipped is None else len(decoded.skipped))
    if decoded.positions is not None:
        rows = pa.array(decoded.positions)
        values, partitions = values.take(rows), partitions.take(rows)
    frame = decoded.frame.with_columns(
        pl.Series(ORIGINAL, pl.from_arrow(labelled(values, topic, format_)), dtype=pl.Binary),
        pl.Series("kafka_partition", pl.from_arrow(partitions), dtype=pl.Int32),
    )
    if not decoded.rejections:
        return frame, _NO_LETTERS
    origin = {"partition": batch.column("partition"), "offset": batch.column("offset")}
    origin |= {
        name: column
        for name, column in (("key", rest["keys"]), ("timestamp", rest["timestamps"]))
        if column is not None
    }
    return frame, dead_letters(decoded.rejections, batch.column("value"), origin)


def batch_number() -> int | None:
    """Tell the number of the batch that this task runs for; None outside of a stream."""
    from pyspark import TaskContext

    context = TaskContext.get()
    number = context.getLocalProperty(_BATCH_ID) if context is not None else None
    return int(number) if number else None


def _measured(chunks: Iterator[Chunk], sizes: dict[str, list[int]]) -> Iterator[Chunk]:
    """Note the records and the bytes of each partition: batches are bounded by what the ones before them read."""
    for chunk in chunks:
        size = sizes.setdefault(f"{chunk.topic}/{chunk.partition}", [0, 0])
        size[0] += len(chunk.values)
        size[1] += chunk.bytes
        yield chunk


def _gathered(chunks: Iterator[Chunk]) -> Iterator[tuple[str, list[Chunk]]]:
    """Put chunks of a topic together until they are worth a call."""
    waiting: dict[str, list[Chunk]] = {}
    for chunk in chunks:
        those = waiting.setdefault(chunk.topic, [])
        those.append(chunk)
        rows, size = sum(len(each.values) for each in those), sum(each.bytes for each in those)
        if rows >= _ROWS_WORTH_A_CALL or size >= CHUNK_BYTES:
            yield chunk.topic, waiting.pop(chunk.topic)
    yield from waiting.items()


def _by_partition(topic: str, rows: pl.DataFrame) -> dict[str, pl.DataFrame]:
    numbers = rows.get_column("kafka_partition")
    plain = rows.drop("kafka_partition")
    if numbers.n_unique() == 1:
        return {f"{topic}/{numbers[0]}": plain}
    runs = numbers.rle().struct.unnest()
    found: dict[str, list[pl.DataFrame]] = {}
    at = 0
    for length, number in runs.iter_rows():
        found.setdefault(f"{topic}/{number}", []).append(plain.slice(at, length))
        at += length
    return {name: pl.concat(parts) for name, parts in found.items()}


def watermarks_before() -> Watermarks:
    """Tell the watermarks after the batch before this one, by job and step, where the driver could say it.

    The driver sets the property after each batch on the thread that runs the query, and Spark hands a thread's
    properties to the tasks it starts. After a restart, or where the number of the batch does not follow, there is
    none, and rows go on unfolded.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    told = context.getLocalProperty(WATERMARKS) if context is not None else None
    number = context.getLocalProperty(_BATCH_ID) if context is not None else None
    if not told or not number:
        return {}
    record = json.loads(told)
    if record["batch"] + 1 != int(number):
        return {}
    watermarks: Watermarks = record["watermarks"]
    return watermarks
