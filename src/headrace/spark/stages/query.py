"""The query: the source with the Arrow stage in it, then stateful stages, as one Spark plan for any number of jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.spark.run.isolation import Attendance
from headrace.spark.source.arrow_stage import ArrowStage
from headrace.spark.source.exchange import SPARK_SCHEMA
from headrace.spark.source.kafka_source import KafkaPlan, stream_rows
from headrace.spark.stages.partitioning import spread_expression
from headrace.spark.stages.shipping import Packed
from headrace.spark.stages.slots import Slots
from headrace.spark.stages.stage_turn import StageWork, group_turn
from headrace.spark.stages.stateful_stage import StatefulStage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from headrace.engine.limits import StateLimit
    from headrace.events import Codec
    from headrace.kafka import Connection
    from headrace.spark.checkpoint.positions import Position
    from headrace.spark.source.advice import AdviceFile
    from headrace.spark.source.kafka_source import Starting
    from headrace.stream import Job
    from headrace.stream.pipeline import Pipeline


def source_topics(jobs: Sequence[Job]) -> tuple[str, ...]:
    """Tell the topics that the jobs read, each once, in an order that does not depend on that of the jobs."""
    return tuple(sorted({topic for job in jobs for topic in job.sources}))


def heartbeat(spark: SparkSession, groups: int) -> DataFrame:
    """Once a second, tell every key group of every step the time.

    The rate source writes what it said into the query's offsets, so a batch that is repeated after a crash hears the
    same time again.
    """
    beats = spark.readStream.format("rate").option("rowsPerSecond", 1).option("numPartitions", 1).load()
    # After an outage the source has a beat for every second of it; only the newest matters. The time of a batch is in
    # its offsets, too, so this leaves the same beats when it is repeated.
    beats = beats.where("timestamp > current_timestamp() - INTERVAL 60 SECONDS")
    return beats.selectExpr(
        f"explode(sequence(0, {groups - 1})) AS group",
        "'beat' AS kind",
        "cast(cast(unix_micros(timestamp) AS string) AS binary) AS body",
    )


def stateful(
    rows: DataFrame,
    pipelines: Mapping[str, Pipeline],
    work: Callable[[int], StageWork],
    *,
    slots: Slots,
    streaming: bool,
) -> DataFrame:
    """Chain the levels of some jobs: the one loop of all that runs on Spark.

    Args:
        rows: Exchange rows.
        pipelines: The jobs' pipelines, by name.
        work: Makes the work of a level.
        slots: The numbers of the steps.
        streaming: Keep state in Spark's state store; else every key group has one turn, with state that nobody keeps.
    """
    levels = max(pipeline.levels for pipeline in pipelines.values())
    if not streaming:
        for level in range(levels):
            rows = rows.groupBy("group").applyInArrow(group_turn(work(level)), SPARK_SCHEMA)
        return rows
    state_partitions = int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    key = f"{spread_expression(slots.count, state_partitions)} AS group"
    for level in range(levels):
        rows = (
            rows.selectExpr(key, "kind", "body")
            .groupBy("group")
            .transformWithStateInPandas(StatefulStage(work(level)), SPARK_SCHEMA, "Update", "None")
        )
    return rows


def streaming_query(
    spark: SparkSession,
    jobs: Sequence[Job],
    *,
    connection: Connection,
    groups: int,
    codec: Codec,
    partitions: dict[str, int],
    starting: Starting = "earliest",
    beginning: Path | None = None,
    advice: AdviceFile | None = None,
    cadence: float = 0.0,
    attendance: Attendance | None = None,
    stops: Sequence[Position] = (),
    whole: Sequence[Position] = (),
    state_limit: StateLimit | None = None,
    slots: Slots | None = None,
) -> DataFrame:
    """Put the whole plan together for a stream.

    Args:
        spark: The session.
        jobs: What to run.
        connection: The Kafka to read from.
        groups: Key groups per step.
        codec: Reads Kafka values.
        partitions: How many partitions each source topic has.
        starting: Where to begin without a checkpoint; a number is a time in microseconds.
        beginning: The file that remembers where that was.
        advice: Where the source is told how to plan batches; None: each reads all that is there.
        cadence: Seconds from the planning of one batch to that of the next at least.
        attendance: Which jobs take part; None: all.
        stops: Where results are out beyond the checkpoint: batches end exactly there.
        whole: Those of the stops whose batch must come again in one piece, since a part of it is out.
        state_limit: How much state each stateful step of a job may keep.
        slots: The numbers of the steps; counted through if not given.
    """
    present = attendance or Attendance()
    pipelines = {job.name: job.pipeline for job in jobs}
    numbers = slots or Slots.numbered(pipelines, groups)
    plan = KafkaPlan(
        connection,
        source_topics(jobs),
        Packed.of(ArrowStage(pipelines, groups, codec, attendance=present, slots=numbers)),
        tasks=spark.sparkContext.defaultParallelism,
        starting=starting,
        beginning=beginning,
        advice=advice,
        cadence=cadence,
        stops=tuple(stops),
        whole=tuple(whole),
    )

    def work(level: int) -> StageWork:
        return StageWork(
            pipelines, groups, level, partitions, attendance=present, state_limit=state_limit, slots=numbers
        )

    return stateful(stream_rows(spark, plan), pipelines, work, slots=numbers, streaming=True)
