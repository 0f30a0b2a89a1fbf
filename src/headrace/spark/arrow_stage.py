"""The Arrow stage: from Kafka values to key groups, in one Python call per task.

Each task decodes its records once for all jobs, takes them in job by job (`headrace.stream.intake`), and sends every
key group one body of rows or partials and one clock record. Dead letters travel with the first group of the first
job, so that they reach the sink in the same batch as the results.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from headrace.engine.operator import EVENT_TIME, INGESTION_TIME
from headrace.errors import PlanError
from headrace.events.layout import is_open
from headrace.spark.exchange import Parcel
from headrace.stream.intake import ORIGINAL, take_in
from headrace.stream.plan import TopicSource

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from headrace.events import Codec
    from headrace.stream.pipeline import Pipeline

#: The local property in which the driver tells tasks the watermarks after the batch before; see `watermarks_before`.
WATERMARKS = "headrace.watermarks"
_BATCH_ID = "streaming.sql.batchId"

#: A record's origin is one number, since every further column costs time between the JVM and Python.
PARTITION_SHIFT = 40
TOPIC_SHIFT = 56
_TIMES = (EVENT_TIME, INGESTION_TIME)
_OFFSET_MASK = (1 << PARTITION_SHIFT) - 1
_PARTITION_MASK = (1 << (TOPIC_SHIFT - PARTITION_SHIFT)) - 1


@dataclass(frozen=True)
class ArrowStage:
    """What every task of the first stage does.

    Args:
        pipelines: The jobs' pipelines, by name; the order numbers the jobs.
        topics: The source topics; the order numbers them.
        groups: Key groups per job.
        codec: Reads Kafka values.
        known: Each job's watermark before this batch, where it is known from the start; else the driver tells it.
    """

    pipelines: dict[str, Pipeline]
    topics: tuple[str, ...]
    groups: int
    codec: Codec
    known: dict[str, int] | None = None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Turn the records of a task into exchange rows."""
        known = watermarks_before() if self.known is None else self.known
        loads = [_Load() for _ in self.pipelines]
        dead: list[pl.DataFrame] = []
        for batch in batches:
            dead += self._take(batch, loads, known)
        parcel = Parcel()
        for number, load in enumerate(loads):
            load.pack(parcel, number * self.groups, self.groups)
        parcel.add_frames(0, "dead", dead)
        yield parcel.to_arrow()

    def __post_init__(self) -> None:
        # What contradicts itself should be seen on the driver, not in a task.
        for topic in self.topics:
            self._columns([topic])

    def _take(self, batch: pa.RecordBatch, loads: list[_Load], known: dict[str, int]) -> list[pl.DataFrame]:
        dead = []
        for topics, part in self._parts(batch.rename_columns(["value", "offset"])):
            columns = self._columns(topics)
            decoded = self.codec.decode(part, types=list(columns), columns=columns, keep=["offset", "value"])
            for type_name, frame in decoded.frames.items():
                if frame.height == 0:
                    continue
                for origin, rows in _by_partition(frame.rename({"kafka_value": ORIGINAL})):
                    self._feed(type_name, origin, rows, loads, known)
            if decoded.dead.height:
                dead.append(self._with_origin(decoded.dead))
        return dead

    def _parts(self, batch: pa.RecordBatch) -> Iterator[tuple[Sequence[str], pa.RecordBatch]]:
        """Split a batch by topic where the same type has other columns in another topic; mostly it stays whole."""
        if not self._apart():
            yield self.topics, batch
            return
        numbers = batch.column("offset").to_numpy() >> TOPIC_SHIFT
        for number, topic in enumerate(self.topics):
            here = numbers == number
            if here.any():
                yield [topic], batch if here.all() else batch.filter(pa.array(here))

    def _apart(self) -> bool:
        """Tell whether a type whose records bring columns of their own is read from several topics."""
        pairs = {(source.type_name, source.topic) for source in self._sources() if self._open(source)}
        return len({name for name, _ in pairs}) < len(pairs)

    def _open(self, source: TopicSource) -> bool:
        return is_open(self.codec.registry.get(source.type_name).descriptor)

    def _sources(self) -> list[TopicSource]:
        entries = (entry for pipeline in self.pipelines.values() for entry in pipeline.entries)
        return [entry.source for entry in entries if isinstance(entry.source, TopicSource)]

    def _columns(self, topics: Sequence[str]) -> dict[str, list[str] | pl.Schema]:
        """Tell which columns of which types any job reads from some topics; both times are always there."""
        used: dict[str, dict[str, Any]] = {}
        declared = set()
        for job, pipeline in self.pipelines.items():
            for entry in pipeline.entries:
                source = entry.source
                if not isinstance(source, TopicSource) or source.topic not in topics:
                    continue
                columns = used.setdefault(source.type_name, {})
                for name in (name for name in entry.columns if name not in _TIMES):
                    kind = source.schema[name]
                    if columns.setdefault(name, kind) != kind:
                        raise PlanError(
                            f"job {job!r} reads {name!r} of {source.topic} as {kind}, another job as {columns[name]}",
                            hint="Declare the same type in both, or run the jobs apart.",
                        )
                if self._open(source):
                    declared.add(source.type_name)
        return {name: pl.Schema(columns) if name in declared else list(columns) for name, columns in used.items()}

    def _feed(self, type_name: str, origin: int, rows: pl.DataFrame, loads: list[_Load], known: dict[str, int]) -> None:
        topic = self.topics[origin >> (TOPIC_SHIFT - PARTITION_SHIFT)]
        partition = f"{topic}/{origin & _PARTITION_MASK}"
        for load, (job, pipeline) in zip(loads, self.pipelines.items(), strict=True):
            for number, entry in enumerate(pipeline.entries):
                source = entry.source
                if isinstance(source, TopicSource) and source.topic == topic and source.type_name == type_name:
                    taken = take_in(
                        pipeline,
                        number,
                        rows,
                        partition=partition,
                        groups=self.groups,
                        watermark=known.get(job),
                        now=None,
                    )
                    load.add(taken, rows)

    def _with_origin(self, dead: pl.DataFrame) -> pl.DataFrame:
        packed = pl.col("offset")
        topic = packed.floordiv(1 << TOPIC_SHIFT)
        names = dict(enumerate(self.topics))
        return dead.with_columns(
            topic.replace_strict(names, return_dtype=pl.String).alias("topic"),
            (packed.floordiv(1 << PARTITION_SHIFT) % (_PARTITION_MASK + 1)).cast(pl.Int32).alias("partition"),
            (packed % (_OFFSET_MASK + 1)).alias("offset"),
        )


@dataclass
class _Load:
    """What one task has for one job."""

    rows: dict[int, list[pl.DataFrame]] = field(default_factory=lambda: defaultdict(list))
    partials: dict[int, list[pl.DataFrame]] = field(default_factory=lambda: defaultdict(list))
    dismissed: list[pl.DataFrame] = field(default_factory=list)
    seen: list[list[Any]] = field(default_factory=list)
    count: int = 0
    newest_ingestion: int | None = None

    def add(self, taken: Any, rows: pl.DataFrame) -> None:
        for group, frame in taken.rows.items():
            self.rows[group].append(frame)
        for group, frame in taken.partials.items():
            self.partials[group].append(frame)
        if taken.dismissed is not None:
            self.dismissed.append(taken.dismissed)
        self.seen.append([taken.seen.input, taken.seen.partition, taken.seen.observation])
        self.count += rows.height
        newest = rows.get_column(INGESTION_TIME).to_physical().max()
        if newest is not None:
            self.newest_ingestion = max(self.newest_ingestion or 0, int(newest))  # type: ignore[arg-type]

    def pack(self, parcel: Parcel, first: int, groups: int) -> None:
        clock = {"seen": self.seen, "rows": self.count, "newest_ingestion": self.newest_ingestion}
        body = json.dumps(clock, separators=(",", ":")).encode()
        for group in range(groups):
            if self.seen:
                parcel.add(first + group, "clock", body)
            parcel.add_frames(first + group, "rows", self.rows[group])
            parcel.add_frames(first + group, "partials", self.partials[group])
        parcel.add_frames(first, "dismissed", self.dismissed)


def watermarks_before() -> dict[str, int]:
    """Tell each job's watermark after the batch before this one, where the driver could say it.

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
    watermarks: dict[str, int] = record["watermarks"]
    return watermarks


def _by_partition(frame: pl.DataFrame) -> Iterator[tuple[int, pl.DataFrame]]:
    """Split rows by topic and partition; mostly a task has one."""
    packed = frame.get_column("kafka_offset")
    first, last = int(packed.min()) >> PARTITION_SHIFT, int(packed.max()) >> PARTITION_SHIFT  # type: ignore[arg-type]
    if first == last:
        yield first, frame.drop("kafka_offset")
        return
    origin = (pl.col("kafka_offset").floordiv(1 << PARTITION_SHIFT)).alias("origin")
    parts = frame.with_columns(origin).partition_by("origin", as_dict=True, maintain_order=True)
    for (number,), part in parts.items():
        yield int(number), part.drop("origin", "kafka_offset")
