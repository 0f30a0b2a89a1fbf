"""The query: Kafka source, Arrow stage, heartbeat, stateful stages, as one Spark plan for any number of jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.spark.arrow_stage import PARTITION_SHIFT, TOPIC_SHIFT, ArrowStage
from headrace.spark.exchange import SPARK_SCHEMA
from headrace.spark.stateful_stage import StatefulStage
from headrace.spark.work import StageWork

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from headrace.events import Codec
    from headrace.stream import Job


def kafka_rows(reader: DataFrame, topics: Sequence[str]) -> DataFrame:
    """Reduce Spark's Kafka columns to the value and its origin: topic number, partition and offset in one integer."""
    number = " ".join(f"WHEN topic = '{topic}' THEN {place}L" for place, topic in enumerate(topics[1:], start=1))
    topic = f"(CASE {number} ELSE 0L END)" if number else "0L"
    origin = f"shiftleft({topic}, {TOPIC_SHIFT}) | shiftleft(cast(partition AS bigint), {PARTITION_SHIFT}) | `offset`"
    return reader.selectExpr("value", f"{origin} AS origin")


def source_topics(jobs: Sequence[Job]) -> tuple[str, ...]:
    """Tell the topics that the jobs read, each once, in an order that does not depend on that of the jobs."""
    return tuple(sorted({topic for job in jobs for topic in job.sources}))


def exchange_rows(rows: DataFrame, jobs: Sequence[Job], *, groups: int, codec: Codec) -> DataFrame:
    """Run the Arrow stage."""
    stage = ArrowStage({job.name: job.pipeline for job in jobs}, source_topics(jobs), groups, codec)
    return rows.mapInArrow(stage, SPARK_SCHEMA)


def heartbeat(spark: SparkSession, groups: int) -> DataFrame:
    """Once a second, tell every key group the time.

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
    rows: DataFrame, jobs: Sequence[Job], *, groups: int, partitions: dict[str, int] | None = None
) -> DataFrame:
    """Chain as many stateful stages as the longest job has."""
    pipelines = {job.name: job.pipeline for job in jobs}
    for level in range(max(len(pipeline.stages) for pipeline in pipelines.values())):
        stage = StatefulStage(StageWork(pipelines, groups, level, partitions))
        rows = rows.groupBy("group").transformWithStateInPandas(stage, SPARK_SCHEMA, "Update", "None")
    return rows


def streaming_query(
    spark: SparkSession,
    jobs: Sequence[Job],
    *,
    options: Mapping[str, str],
    groups: int,
    codec: Codec,
    partitions: dict[str, int],
) -> DataFrame:
    """Put the whole plan together for a stream.

    Args:
        spark: The session.
        jobs: What to run.
        options: Of Spark's Kafka source.
        groups: Key groups per job.
        codec: Reads Kafka values.
        partitions: How many partitions each source topic has.
    """
    topics = source_topics(jobs)
    reader = spark.readStream.format("kafka").options(**options).option("subscribe", ",".join(topics)).load()
    # A task costs more than a partition: what does not run side by side may as well share a hand-over to Python.
    few = kafka_rows(reader, topics).coalesce(spark.sparkContext.defaultParallelism)
    rows = exchange_rows(few, jobs, groups=groups, codec=codec)
    every = rows.union(heartbeat(spark, groups * len(jobs)))
    return stateful(every, jobs, groups=groups, partitions=partitions)
