"""The bridge to Spark's own DataFrames: any source that Spark can read, any sink that it can write.

`stream_of` makes a stream of a DataFrame, `frame_of` a DataFrame of a stream's results; users call them as
`Stream.from_spark` and `Stream.to_spark`. A streaming DataFrame stays one (its state lives in the query that the user
starts on it), a batch DataFrame is run to the end of event time. Spark's partitions are not those of a source, so all
rows of a DataFrame count as one partition for the watermark.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from headrace.engine.operator import EVENT_TIME
from headrace.errors import PlanError
from headrace.spark.session.readiness import check_state_store, check_workers
from headrace.spark.source.exchange import SPARK_SCHEMA, Parcel, frames, output_kind, rows_kind
from headrace.spark.stages.query import heartbeat, stateful
from headrace.spark.stages.slots import Slots
from headrace.spark.stages.stage_turn import StageWork
from headrace.spark.state.state_server import warn_of_leak
from headrace.stream import Stream, plan
from headrace.stream.intake import Parts, take_in
from headrace.stream.pipeline import Pipeline, compile_plan
from headrace.time.instants import BEGINNING, INSTANT

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_PARTITION = "rows"
#: Spark has no unsigned numbers.
_SIGNED: dict[Any, Any] = {pl.UInt8: pl.Int16, pl.UInt16: pl.Int32, pl.UInt32: pl.Int64, pl.UInt64: pl.Int64}


def stream_of(frame: DataFrame, *, time: str, name: str) -> Stream:
    """Make a stream of a DataFrame.

    Args:
        frame: A streaming or a batch DataFrame.
        time: Its column that says when a row happened; it becomes `event_time`.
        name: What to call the source.
    """
    from pyspark.sql.pandas.types import to_arrow_schema

    if time not in frame.columns:
        hint = f"The columns are: {', '.join(frame.columns)}."
        raise PlanError(f"from_spark: there is no column {time!r}", hint=hint)
    if time != EVENT_TIME and EVENT_TIME in frame.columns:
        raise PlanError(f"from_spark: {EVENT_TIME!r} is taken by another column than {time!r}", hint="Rename it first.")
    renamed = frame.withColumnRenamed(time, EVENT_TIME)
    empty = pl.from_arrow(to_arrow_schema(renamed.schema, timezone="UTC").empty_table())
    schema = pl.Schema({**dict(empty.schema), EVENT_TIME: INSTANT})  # type: ignore[union-attr]
    typed = renamed.withColumn(EVENT_TIME, renamed[EVENT_TIME].cast("timestamp"))
    return Stream(plan.Read(source=plan.FrameSource(name, schema, typed), schema=schema))


def frame_of(stream: Stream, spark: SparkSession, *, output: Literal["results", "late"], key_groups: int) -> DataFrame:
    """Make a DataFrame of what a stream gives.

    Args:
        stream: A stream whose sources are DataFrames.
        spark: The session that they belong to.
        output: The results, or the rows that came too late.
        key_groups: How many key groups to spread keys over.

    Raises:
        PlanError: A source is no DataFrame.
        ConfigError: A streaming query needs another state store than the session has.
        EnvironmentProblem: The Python workers of the session cannot run Headrace.
    """
    # A fold over all key groups of a batch needs somebody who sees them all; here everything stays distributed.
    whole = compile_plan(stream.node, stream.schema, fuse=False)
    pipeline = replace(whole, entries=tuple(_without_frame(entry) for entry in whole.entries))
    sources = [_frame(entry) for entry in whole.entries]
    streaming = any(source.isStreaming for source in sources)
    if streaming and pipeline.stages:
        check_state_store(spark)
        warn_of_leak(spark)
    check_workers(spark)
    slots = Slots.numbered({"stream": pipeline}, key_groups)
    known = None if streaming else {stage.step: BEGINNING for stage in pipeline.stages}
    parts = [
        source.mapInArrow(RowStage(pipeline, number, slots, known), SPARK_SCHEMA)
        for number, source in enumerate(sources)
    ]
    if streaming:
        parts.append(heartbeat(spark, slots.count))
    rows = reduce(lambda one, other: one.union(other), parts)

    def work(level: int) -> StageWork:
        return StageWork({"stream": pipeline}, key_groups, level, ended=not streaming, slots=slots)

    rows = stateful(rows, {"stream": pipeline}, work, slots=slots, streaming=streaming)
    if output == "late":
        return _decoded(rows, ["late"], _late_schema(pipeline))
    kinds = [output_kind(each.name, each.part) for each in pipeline.results_of("")]
    return _decoded(rows, kinds, pipeline.schema)


def _without_frame(entry: Any) -> Any:
    return replace(entry, source=replace(entry.source, frame=None))


def _frame(entry: Any) -> DataFrame:
    frame: DataFrame | None = getattr(entry.source, "frame", None)
    if frame is None:
        raise PlanError(
            f"to_spark: {entry.source.text} is not a DataFrame",
            hint="Begin the stream with Stream.from_spark(df, time=...), or run it as a job: headrace run.",
        )
    return frame


@dataclass(frozen=True)
class RowStage:
    """Sorts the rows of a DataFrame into key groups."""

    pipeline: Pipeline
    number: int
    slots: Slots
    known: dict[str, int] | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Turn the rows of a task into exchange rows."""
        schema = self.pipeline.entries[self.number].source.schema
        for batch in batches:
            rows = pl.from_arrow(batch)
            if not isinstance(rows, pl.DataFrame) or rows.is_empty():
                continue
            taken = take_in(
                self.pipeline,
                self.number,
                Parts({_PARTITION: rows.select(pl.col(name).cast(kind) for name, kind in schema.items())}),
                groups=self.slots.groups,
                watermarks=self.known,
            )
            seen = [[each.input, each.partition, each.observation] for each in taken.seen]
            clock = {"seen": seen, "rows": rows.height}
            parcel = Parcel()
            for group in range(self.slots.groups):
                number, kind = self.slots.number("stream", taken.stage, group), rows_kind(taken.input)
                parcel.add(number, "clock", json.dumps(clock).encode())
                parcel.add_frames(number, kind, [taken.rows[group]] if group in taken.rows else [])
                parcel.add_frames(number, "partials", [taken.partials[group]] if group in taken.partials else [])
            first = self.slots.first(0)
            parcel.add_frames(first, "dismissed", [] if taken.dismissed is None else [taken.dismissed])
            yield parcel.to_arrow()


def _late_schema(pipeline: Pipeline) -> pl.Schema:
    lateness = {"lateness": pl.Duration("us"), "watermark": INSTANT}
    return pl.Schema({**dict(pipeline.stages[0].schema), **lateness})


def _decoded(rows: DataFrame, kinds: list[str], schema: pl.Schema) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema

    casts: Any = {name: _SIGNED[of] for name, of in schema.items() if of in _SIGNED}
    shown = schema.to_frame().cast(casts)

    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for frame in frames(batch.column("body").to_pylist()):
                ready = frame.select(list(schema)).cast(casts)
                yield from ready.to_arrow(compat_level=pl.CompatLevel.oldest()).to_batches()

    target = from_arrow_schema(shown.to_arrow(compat_level=pl.CompatLevel.oldest()).schema)
    return rows.filter(rows["kind"].isin(kinds)).mapInArrow(decode, target)
