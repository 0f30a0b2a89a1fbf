"""A job run again over a closed range of its topics, with its results in a topic of their own.

It is the batch of `headrace.spark.run.batch`: the same stages and operators as the stream, without a checkpoint. The
results have the idempotency keys that the stream gives them, so the two can be compared and told apart.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.errors import PlanError
from headrace.events import Codec
from headrace.kafka import Topics
from headrace.kafka.job_topics import written_topics
from headrace.kafka.producer import TransactionalProducer
from headrace.spark.output.records import Writer
from headrace.spark.run.batch import run_batch
from headrace.stream.sink_frames import keyed_results

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from headrace.events import Encoding
    from headrace.kafka import Connection
    from headrace.stream import Job

#: Results of one transaction.
_TRANSACTION = 50_000


@dataclass(frozen=True)
class Replayed:
    """What a replay gave.

    Args:
        events: How many events were read.
        results: How many results were written.
        late: Rows that came too late for a step after the first; they are not written.
        dismissed: Rows that could not be used, nor are these.
        dead_letters: Records that could not be read, nor are these.
        topics: Where the results are.
        watermark: How far event time came before its end, in microseconds since the epoch.
    """

    events: int
    results: int
    late: int
    dismissed: int
    dead_letters: int
    topics: tuple[str, ...]
    watermark: int


def replay_job(
    spark: SparkSession,
    job: Job,
    connection: Connection,
    *,
    start: dict[str, dict[int, int]],
    end: dict[str, dict[int, int]],
    into: str,
    key_groups: int = 4,
    encoding: Encoding = "binary",
    to_the_end: bool = True,
    append: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
) -> Replayed:
    """Run a job over a closed range, and write its results to a topic.

    Args:
        spark: A session.
        job: The job.
        connection: The Kafka to read from and to write to.
        start: The first offset of each partition.
        end: The offset to end before.
        into: The result topic; those of further outputs are `<into>.<output>`.
        key_groups: Key groups of the job.
        encoding: How results in the envelope are written.
        to_the_end: Let windows fire that are still open at the end.
        append: Write to a topic that has records already.
        progress: Is told what is done, and how much of it is.

    Raises:
        PlanError: The topic is one of the job's own, or has records already.
    """
    again = replayed(job, into)
    refuse_topics(Topics(connection), job, into, append=append)
    tell = progress or (lambda *_: None)
    events = sum(max(0, end[topic][n] - at) for topic, each in start.items() for n, at in each.items())
    with _watched(spark, lambda done, total: tell("tasks", done, total)):
        [answer] = run_batch(
            spark, [again], connection, start=start, end=end, key_groups=key_groups, to_the_end=to_the_end
        ).values()
    Topics(connection).ensure(spec for spec in written_topics([again]) if spec.name in again.result_topics)
    writer, now = Writer(again, Codec(), encoding), time.time_ns() // 1_000
    written = 0
    total = sum(rows.height for rows in answer.ways)
    with TransactionalProducer(connection, transactional_id=f"replay-{uuid.uuid4().hex}") as producer:
        for way, rows in zip(again.pipeline.outputs, answer.ways, strict=True):
            keyed = keyed_results(again, way, rows, batch=f"replay {json.dumps([start, end], sort_keys=True)}")
            for part in keyed.iter_slices(_TRANSACTION):
                with producer.transaction():
                    for records in writer.results(part, now, output=way):
                        producer.send_all(
                            records.topic,
                            records.values,
                            keys=records.keys,
                            headers=records.headers or None,
                            each_headers=records.each_headers,
                        )
                written += part.height
                tell("results", written, total)
    return Replayed(
        events,
        written,
        sum(each.height for each in answer.late),
        sum(each.height for each in answer.dismissed),
        sum(each.height for each in answer.dead),
        again.result_topics,
        answer.watermark,
    )


def replayed(job: Job, into: str) -> Job:
    """Make the job that a replay runs: its results go to another topic, and to no sink."""
    return replace(job, result_topic=into, sinks=())


def refuse_topics(topics: Topics, job: Job, into: str, *, append: bool) -> None:
    """Refuse to write results of a replay among those of a run, or of another replay.

    Args:
        topics: The topics of Kafka.
        job: The job.
        into: The result topic of the replay.
        append: Write to a topic that has records already.

    Raises:
        PlanError: A topic is one of the job's own, one that it reads, or has records already.
    """
    again = replayed(job, into)
    own = {*job.result_topics, job.late_topic, *job.sources} & {*again.result_topics}
    if own:
        raise PlanError(
            f"{', '.join(sorted(own))} is a topic of {job.name} itself",
            hint="Give another topic (--into): readers of the results would get them twice.",
        )
    there = [name for name in again.result_topics if name not in topics.missing(again.result_topics)]
    used = [name for name in there if any(part.latest > part.earliest for part in topics.get(name).partitions)]
    if used and not append:
        raise PlanError(
            f"{', '.join(used)} has records already", hint="Give another topic, delete this one, or add --append."
        )


@contextmanager
def _watched(spark: SparkSession, tell: Callable[[int, int], None], *, pause: float = 0.2) -> Iterator[None]:
    """Tell now and then how many tasks of the job under way are done."""
    over = threading.Event()

    def watch() -> None:
        tracker = spark.sparkContext.statusTracker()
        while not over.wait(pause):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            known = [stage for stage in stages if stage is not None]
            if known:
                tell(sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known))

    watching = threading.Thread(target=watch, name="replay-progress", daemon=True)
    watching.start()
    try:
        yield
    finally:
        over.set()
        watching.join(5)
