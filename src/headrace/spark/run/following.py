"""A stream whose results are looked at and not kept: one query on Spark that hands its results to whoever asked.

Where `headrace.spark.run.runner` brings the results of jobs to Kafka exactly once, this one tells them to a function,
batch by batch, from a checkpoint that is thrown away. It is what `headrace sql --follow --engine spark` runs.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.events import Codec
from headrace.kafka import Topics
from headrace.spark.run.batch import answers_of
from headrace.spark.run.failure import explain_failure
from headrace.spark.session.session import spark_settings, start_session
from headrace.spark.stages.query import source_topics, streaming_query
from headrace.spark.stages.slots import Slots
from headrace.stream.message_types import types_of

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from headrace.kafka import Connection
    from headrace.spark.run.batch import Answer
    from headrace.spark.source.kafka_source import Starting
    from headrace.stream import Job


@dataclass(frozen=True, kw_only=True)
class FollowOptions:
    """How a stream is followed.

    Args:
        connection: The Kafka to read from.
        master: Where Spark runs.
        starting: Where to begin: at the beginning, at the end, or at microseconds since the epoch.
        key_groups: Key groups of the stream.
        state_partitions: Spark's state partitions.
        driver_memory: Heap of the driver.
        local_directory: Where Spark and the checkpoint may write; None for a temporary directory.
    """

    connection: Connection
    master: str = "local[2]"
    starting: Starting = "earliest"
    key_groups: int = 4
    state_partitions: int = 2
    driver_memory: str = "2g"
    local_directory: Path | None = None


def follow(job: Job, options: FollowOptions, tell: Callable[[Answer], None], stop: threading.Event) -> None:
    """Run a stream until `stop` is set.

    Args:
        job: What to run; its topics for results are not used.
        options: How.
        tell: Is given what each batch brought, from the query's thread.
        stop: Ends the run.

    Raises:
        JobError: The query failed; the message says why.
    """
    topics = Topics(options.connection)
    partitions = {name: len(topics.get(name).partitions) for name in source_topics([job])}
    with tempfile.TemporaryDirectory(prefix="headrace-follow-", dir=options.local_directory) as directory:
        home = Path(directory)
        settings = spark_settings(
            state_partitions=options.state_partitions,
            driver_memory=options.driver_memory,
            local_directory=home / "local",
        )
        spark = start_session("headrace-follow", master=options.master, settings=settings)
        try:
            frame = streaming_query(
                spark,
                [job],
                connection=options.connection,
                starting=options.starting,
                groups=options.key_groups,
                codec=Codec(types_of([job])),
                partitions=partitions,
            )

            slots = Slots.numbered({job.name: job.pipeline}, options.key_groups)

            def told(rows: DataFrame, _: int) -> None:
                tell(answers_of(rows, [job], slots)[job.name])

            writer = frame.writeStream.outputMode("update").foreachBatch(told)
            query = writer.option("checkpointLocation", str(home / "checkpoint")).start()
            while not stop.wait(0.1) and query.isActive:
                pass
            problem = query.exception()
            query.stop()
            if problem is not None and not stop.is_set():
                raise explain_failure(str(problem), topics=source_topics([job]), checkpoint=home)
        finally:
            spark.stop()
