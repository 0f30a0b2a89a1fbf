"""Runs a known workload two ways: in process, and on Spark from Kafka to Kafka; tells events per second and core.

In process, events are rows in memory: what is measured is the engine itself, on one core. On Spark they are records in
a Kafka topic that was filled before, are decoded, and results go out exactly once; events per second are those of the
whole machine, events per second and core are by the processor time of the process, its JVM and its Python workers (the
broker is not in it). As in `engine.py`, time counts from the end of the second batch to the end of the last.
"""

from __future__ import annotations

import platform
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from headrace.evaluate.meter import tree
from headrace.evaluate.parity import stream_results, until
from headrace.events import Codec, Record
from headrace.inprocess import Runner
from headrace.kafka import Producer, Topics, TopicSpec
from headrace.kafka.topics import commit_spec, dead_letter_spec, late_spec
from headrace.spark.run.progress import BatchDone
from headrace.spark.run.runner import RunOptions, run_jobs
from headrace.time.instants import instant

if TYPE_CHECKING:
    import polars as pl

    from headrace.dev import EmbeddedBroker
    from headrace.spark.run.progress import RunEvent
    from headrace.stream import Job, Stream


@dataclass(frozen=True)
class Figure:
    """What a query took.

    Args:
        events: How many were timed.
        events_per_second: By the clock.
        events_per_core: By the seconds that processors were busy with it.
    """

    events: int
    events_per_second: float
    events_per_core: float

    def to_dict(self) -> dict[str, float]:
        return {name: round(value) for name, value in asdict(self).items()}


def in_process(stream: Stream, events: pl.DataFrame, *, batch: int) -> tuple[Figure, list[pl.DataFrame]]:
    """Run a stream over rows in memory.

    Returns:
        What it took after the first batch, and all results, with those of windows that were still open at the end.
    """
    runner = Runner(stream)
    results = []
    began = spent = 0.0
    for number, first in enumerate(range(0, events.height, batch)):
        if number == 1:
            began, spent = time.perf_counter(), time.process_time()
        rows = events.slice(first, batch)
        results.append(runner.step(rows, now=instant(rows["event_time"][-1])).results)
    timed = events.height - batch
    seconds, busy = time.perf_counter() - began, time.process_time() - spent
    results.append(runner.finish().results)
    # By the clock a window may still be open.
    results.append(runner.step(now=instant(events["event_time"][-1]) + 3_600_000_000).results)
    return Figure(timed, timed / seconds, timed / busy), results


def fill(broker: EmbeddedBroker, topic: str, events: pl.DataFrame, *, key: str, chunk: int = 50_000) -> None:
    """Write events to a topic, as records that bring their own columns."""
    Topics(broker.connection).ensure([TopicSpec(name=topic, partitions=4)])
    codec = Codec()
    with Producer(broker.connection) as producer:
        for first in range(0, events.height, chunk):
            rows = events.slice(first, chunk)
            keys = rows.get_column(key).cast(str).fill_null("").to_list()
            for name, value in zip(keys, codec.encode(rows, Record).to_pylist(), strict=True):
                producer.send(topic, value, key=name.encode())


def on_spark(
    broker: EmbeddedBroker, job: Job, *, events: int, batch: int, directory: Path
) -> tuple[Figure, pl.DataFrame, int]:
    """Run a job over a topic that was filled before, from Kafka to Kafka, exactly once.

    Returns:
        What it took, the results that are final, and the watermark that says which these are.
    """
    outputs = [TopicSpec(name=job.result_topic, partitions=4), late_spec(job.result_topic)]
    Topics(broker.connection).ensure([*outputs, dead_letter_spec(), commit_spec()])
    marks: list[tuple[float, float, int]] = []
    stop = threading.Event()
    total = watermark = 0

    def report(event: RunEvent) -> None:
        nonlocal total, watermark
        if isinstance(event, BatchDone):
            watermark = event.watermark or watermark
        if isinstance(event, BatchDone) and event.rows_in:
            total += event.rows_in
            marks.append((time.perf_counter(), _busy(), event.rows_in))
            if total >= events:
                stop.set()

    with tempfile.TemporaryDirectory(dir=directory) as home:
        options = RunOptions(
            connection=broker.connection,
            checkpoint=Path(home) / "checkpoint",
            take_over=True,
            max_events_per_batch=batch,
            driver_memory="3g",
        )
        run_jobs([job], options, report, stop)
    if len(marks) < 4:
        raise SystemExit(f"{len(marks)} batches are too few to time; take more events or smaller batches")
    timed = sum(rows for _, _, rows in marks[2:])
    figure = Figure(timed, timed / (marks[-1][0] - marks[1][0]), timed / (marks[-1][1] - marks[1][1]))
    return figure, until(stream_results(job, broker.connection), watermark), watermark


def _busy() -> float:
    """Processor seconds of this process and its children, Kafka's broker left out."""
    own = psutil.Process()
    seconds = sum(own.cpu_times()[:2])
    for child in own.children():
        # The broker has a guard of its own between us and it.
        if any("kafka.Kafka" in part for part in _command(child)):
            continue
        for process in tree(child.pid):
            try:
                seconds += sum(process.cpu_times()[:2])
            except psutil.Error:
                continue
    return seconds


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def conditions(**further: Any) -> dict[str, Any]:
    """What a run was made on."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cores": psutil.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30),
        "python": platform.python_version(),
        "pyspark": version("pyspark"),
        "polars": version("polars"),
        "load_average_before": [round(load, 2) for load in psutil.getloadavg()],
        "broker": "embedded, on the same cores",
        **further,
    }
