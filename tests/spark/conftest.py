"""Real Spark on a real broker: one JVM for the whole run, topics of their own for every test."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from headrace.dev import EmbeddedBroker, ServerSettings
from headrace.events import Codec
from headrace.kafka import Topics
from headrace.kafka.consumer import Consumer
from headrace.kafka.producer import Producer
from headrace.kafka.topics import TopicSpec, commit_spec, dead_letter_spec, late_spec
from headrace.spark.run.batch import run_batch
from headrace.spark.run.progress import BatchDone
from headrace.spark.run.runner import RunOptions, run_jobs
from headrace.spark.session.session import spark_settings, start_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import polars as pl

    from headrace.spark.run.batch import Answer
    from headrace.spark.run.progress import RunEvent
    from headrace.stream import Job


@dataclass
class Bench:
    """Feeds a topic, runs jobs, reads results."""

    broker: EmbeddedBroker
    checkpoint: Path
    jars: list[Path]

    def prepare(self, job: Job, *, partitions: int = 4) -> None:
        outputs = [TopicSpec(name=topic, partitions=2) for topic in job.result_topics]
        outputs.append(late_spec(job.result_topic))
        inputs = [TopicSpec(name=name, partitions=partitions) for name in job.sources]
        Topics(self.broker.connection).ensure([*inputs, *outputs, dead_letter_spec(), commit_spec()])

    def send(self, topic: str, values: list[bytes], keys: list[str]) -> None:
        with Producer(self.broker.connection) as producer:
            for value, key in zip(values, keys, strict=True):
                producer.send(topic, value, key=key.encode())

    def send_rows(self, topic: str, rows: pl.DataFrame, kind: Any, key: str) -> None:
        self.send(topic, Codec().encode(rows, kind).to_pylist(), rows.get_column(key).to_list())

    def send_partition(self, topic: str, rows: pl.DataFrame, kind: Any, partition: int) -> None:
        with Producer(self.broker.connection) as producer:
            for value in Codec().encode(rows, kind).to_pylist():
                producer.send(topic, value, partition=partition)

    def run(
        self,
        *jobs: Job,
        until: Callable[[list[BatchDone]], bool],
        tell: Callable[[RunEvent], None] | None = None,
        patience: float = 240.0,
        **changes: Any,
    ) -> list[BatchDone]:
        """Run jobs until their batches so far satisfy a condition; not to get there in time is a failure."""
        options = RunOptions(connection=self.broker.connection, checkpoint=self.checkpoint, jars=self.jars)
        # All tests share a broker: the first run of a test may write what another test has written before.
        changes = {"take_over": not changes.get("checkpoint", self.checkpoint).exists(), **changes}
        done: list[BatchDone] = []
        stop = threading.Event()

        def report(event: RunEvent) -> None:
            if tell is not None:
                tell(event)
            if isinstance(event, BatchDone):
                done.append(event)
                if until(done):
                    stop.set()

        timer = threading.Timer(patience, stop.set)
        timer.start()
        try:
            run_jobs(jobs, replace(options, **changes), report, stop)
        finally:
            timer.cancel()
        assert until(done), f"not reached: {done}"
        return done

    def run_to(self, *jobs: Job, watermark: int, **changes: Any) -> list[BatchDone]:
        """Run jobs until the event time of all of them has come to a watermark."""

        def reached(batches: list[BatchDone]) -> bool:
            last = batches[-1].watermark if batches else None
            return last is not None and last >= watermark

        return self.run(*jobs, until=reached, **changes)

    def batch(self, *jobs: Job, **changes: Any) -> dict[str, Answer]:
        """Run jobs over all that their topics hold."""
        settings = spark_settings(
            jars=self.jars, state_partitions=2, driver_memory="2g", local_directory=self.checkpoint.parent / "local"
        )
        spark = start_session("batch", master="local[2]", settings=settings)
        try:
            return run_batch(spark, jobs, self.broker.connection, **changes)
        finally:
            spark.stop()

    def read(self, topic: str) -> pl.DataFrame:
        with Consumer(self.broker.connection, [topic]) as consumer:
            values = [record.value for record in consumer]
        frames = Codec().decode(values).frames
        assert len(frames) == 1, f"{topic} holds {list(frames)}"
        return next(iter(frames.values()))

    def count(self, topic: str) -> int:
        with Consumer(self.broker.connection, [topic]) as consumer:
            return sum(1 for _ in consumer)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A broker for these tests alone: jobs read the application's own topics, which other tests write to as well."""
    with EmbeddedBroker(ServerSettings(data_dir=tmp_path_factory.mktemp("spark-broker"))) as running:
        yield running


@pytest.fixture(scope="session")
def jars(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Start the one JVM of the test process, and no jar of Spark's Kafka connector: jobs must not need it."""
    found: list[Path] = []
    local = tmp_path_factory.mktemp("spark-local")
    settings = spark_settings(jars=found, state_partitions=2, driver_memory="2g", local_directory=local)
    start_session("tests", master="local[2]", settings=settings).stop()
    return found


@pytest.fixture
def bench(broker: EmbeddedBroker, tmp_path: Path, jars: list[Path]) -> Bench:
    return Bench(broker, tmp_path / "checkpoint", jars)
