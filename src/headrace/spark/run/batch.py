"""Batch: the same jobs over a closed range of offsets, without a checkpoint, for reprocessing and for comparison.

The plan is that of a stream with memory in place of the state store: every key group takes one turn. Since nothing came
before, the watermark before the only turn is known, so rows are folded at the source as in a running stream.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from headrace.events import Codec
from headrace.kafka import Topics
from headrace.kafka.ranges import LogEnds, Range
from headrace.spark.source.arrow_stage import ArrowStage
from headrace.spark.source.exchange import frames, output_kind
from headrace.spark.source.kafka_source import KafkaPlan, range_rows
from headrace.spark.stages.query import source_topics, stateful
from headrace.spark.stages.shipping import Packed
from headrace.spark.stages.slots import Slots
from headrace.spark.stages.stage_turn import StageWork, merged_times
from headrace.stream.message_types import types_of
from headrace.stream.stages import by_output
from headrace.time.instants import BEGINNING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from headrace.kafka import Connection
    from headrace.stream import Job

#: Per topic, per partition, the offset to begin at or to end before; "earliest" or "latest" for all.
Offsets = str | dict[str, dict[int, int]]


@dataclass
class Answer:
    """What a job gives for a closed range of offsets.

    Args:
        results: Result rows.
        late: Rows that came too late; only a stage after the first can have any in a batch.
        dismissed: Rows that could not be used.
        dead: Dead letters.
        watermark: How far event time came.
        outputs: Result rows of the job's further outputs, by name.
        counts: What its steps have counted, by name.
    """

    results: pl.DataFrame
    late: list[pl.DataFrame] = field(default_factory=list)
    dismissed: list[pl.DataFrame] = field(default_factory=list)
    dead: list[pl.DataFrame] = field(default_factory=list)
    watermark: int = BEGINNING
    outputs: dict[str, pl.DataFrame] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    ways: tuple[pl.DataFrame, ...] = ()


def run_batch(
    spark: SparkSession,
    jobs: Sequence[Job],
    connection: Connection,
    *,
    start: Offsets = "earliest",
    end: Offsets = "latest",
    key_groups: int = 4,
    to_the_end: bool = False,
) -> dict[str, Answer]:
    """Run jobs over a closed range of offsets.

    Args:
        spark: A session.
        jobs: What to run.
        connection: The Kafka to read from.
        start: Where to begin.
        end: Where to end; the offsets themselves are not read.
        key_groups: Key groups per job.
        to_the_end: Let event time go to its end, so that windows that are still open fire; otherwise the answer is
            that of a stream which has read so far.
    """
    ordered = sorted(jobs, key=lambda job: job.name)
    topics = source_topics(ordered)
    pipelines = {job.name: job.pipeline for job in ordered}
    slots = Slots.numbered(pipelines, key_groups)
    known = {name: {stage.step: BEGINNING for stage in pipeline.stages} for name, pipeline in pipelines.items()}
    stage = ArrowStage(pipelines, key_groups, Codec(types_of(ordered)), known, slots=slots)
    plan = KafkaPlan(connection, topics, Packed.of(stage), tasks=spark.sparkContext.defaultParallelism)
    rows = range_rows(spark, plan, _ranges(LogEnds(connection), topics, start, end))
    admin = Topics(connection)
    partitions = {name: len(admin.get(name).partitions) for name in topics}

    def work(level: int) -> StageWork:
        return StageWork(pipelines, key_groups, level, partitions, ended=to_the_end, slots=slots)

    return answers_of(stateful(rows, pipelines, work, slots=slots, streaming=False), ordered, slots)


def answers_of(rows: DataFrame, jobs: Sequence[Job], slots: Slots) -> dict[str, Answer]:
    """Collect what left the last level, by job.

    Args:
        rows: Exchange rows.
        jobs: In the order of the slots.
        slots: The numbers of the steps.
    """
    table = rows.toArrow()
    bodies: dict[tuple[int, str], list[bytes]] = defaultdict(list)
    columns = (table.column(name).to_pylist() for name in ("group", "kind", "body"))
    for group, kind, body in zip(*columns, strict=True):
        bodies[slots.job_number(group), kind].append(body)
    answers = {}
    for number, job in enumerate(jobs):
        ways = []
        for way in job.pipeline.outputs:
            parts = frames(bodies[number, output_kind(way.name, way.part)])
            ways.append(way.finish(pl.concat(parts)) if parts else way.schema.to_frame())
        results = by_output(job.pipeline, ways)
        time = merged_times(bodies[number, "time"])
        answers[job.name] = Answer(
            results.pop("").select(list(job.pipeline.schema)),
            frames(bodies[number, "late"]),
            frames(bodies[number, "dismissed"]),
            frames(bodies[number, "dead"]),
            BEGINNING if time is None else time["watermark"],
            results,
            _summed(bodies[number, "counts"]),
            tuple(ways),
        )
    return answers


def _summed(told: Sequence[bytes]) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for body in told:
        counts.update(json.loads(body))
    return dict(counts)


def _ranges(log: LogEnds, topics: Sequence[str], start: Offsets, end: Offsets) -> list[Range]:
    places = log.partitions(topics)
    begins, ends = log.begins(places), log.ends(places)

    def offset(chosen: Offsets, topic: str, partition: int) -> int:
        if isinstance(chosen, str):
            return begins[topic, partition] if chosen == "earliest" else ends[topic, partition]
        told = chosen[topic][partition]
        # As Spark counts: -2 is the beginning, -1 the end.
        return {-2: begins[topic, partition], -1: ends[topic, partition]}.get(told, told)

    found = [Range(*place, offset(start, *place), offset(end, *place)) for place in places]
    return [each for each in found if each.end > each.start]
