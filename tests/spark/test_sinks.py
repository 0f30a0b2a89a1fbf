"""Sinks besides Kafka: the same results in both, each once, also after kills of the driver in between."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from headrace.errors import PlanError
from headrace.inprocess import write_to_sinks
from headrace.kafka.topics import DEAD_LETTERS
from headrace.sinks import memory, parquet
from headrace.stream import Job, Output, Stream
from headrace.time import bounded
from headrace.time.instants import instant
from headrace.windows import count, tumbling
from headrace_transit.schemas import VehiclePosition

if TYPE_CHECKING:
    from tests.spark.conftest import Bench

    from headrace.sinks import Sink

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]

START = datetime(2026, 3, 2, 7, 30, tzinfo=UTC)
_RUN = """
import sys, threading
from pathlib import Path
from headrace.kafka import Connection
from headrace.sinks import parquet
from headrace.spark.run.runner import RunOptions, run_jobs
from tests.spark.test_sinks import make_job

name, bootstrap, checkpoint, files, apart, take_over, *jars = sys.argv[1:]
options = RunOptions(
    connection=Connection(bootstrap=bootstrap), checkpoint=Path(checkpoint), jars=[Path(jar) for jar in jars],
    apart_rows=0 if apart == "tasks" else None, take_over=take_over == "yes",
)
run_jobs([make_job(name, parquet(files, roll="0s"))], options, print, threading.Event())
"""


def make_job(name: str, *sinks: Sink) -> Job:
    counted = (
        Stream.topic(f"input.{name}", VehiclePosition)
        .watermark(bounded("1s"))
        .key_by("line")
        .window(tumbling("5s"))
        .aggregate(n=count())
    )
    doubled = counted.with_columns(twice=pl.col("n") * 2)
    return Job(name, counted, outputs={"doubled": Output(doubled)}, sinks=sinks)


def _send(bench: Bench, job: Job, first: int, last: int) -> None:
    """Ten events a second in each of two partitions, in order."""
    for partition in range(2):
        times = [START + timedelta(milliseconds=100 * tenth) for tenth in range(10 * first, 10 * last)]
        rows = pl.DataFrame({"event_time": times, "ingestion_time": times}).with_columns(
            vehicle_id=pl.lit(f"v{partition}"), line=pl.lit("1")
        )
        bench.send_partition(job.sources[0], rows, VehiclePosition, partition)


def _at(second: float) -> int:
    return instant(START + timedelta(seconds=second))


def _same(seen: pl.DataFrame, expected: pl.DataFrame) -> None:
    names = ["window_start", "n", "idempotency_key"]
    assert seen.select(names).sort(names).rows() == expected.select(names).sort(names).rows()


@pytest.mark.parametrize("way", ["driver", "tasks"])
def test_a_driver_that_is_killed_between_kafka_and_the_files_leaves_each_result_in_both_once(
    bench: Bench, tmp_path: Path, way: str
) -> None:
    files, faults = tmp_path / "files", tmp_path / "faults"
    job = make_job(f"killed-{way}", parquet(files, roll="0s"))
    bench.prepare(job, partitions=2)
    faults.mkdir()
    arguments = [job.name, bench.broker.bootstrap, str(bench.checkpoint), str(files), way]
    # Kafka has the batch and the files have not; then both have it and Spark does not know.
    for run, point in enumerate(("before-sinks", "after-sinks")):
        _send(bench, job, 11 * run, 11 * run + 11)
        (faults / point).write_text("kill")
        command = [sys.executable, "-c", _RUN, *arguments, "no" if run else "yes", *map(str, bench.jars)]
        killed = subprocess.run(
            command,
            env=os.environ | {"HEADRACE_FAULTS": str(faults), "PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        assert killed.returncode == -signal.SIGKILL, killed.stdout[-2000:] + killed.stderr[-2000:]
    _send(bench, job, 0, 1)  # late by now
    _send(bench, job, 22, 32)
    bench.send(job.sources[0], [b"\xff rubbish"], ["1"])
    kept = memory()
    finishing = make_job(job.name, parquet(files, roll="0s"), kept)
    bench.run_to(finishing, watermark=_at(30.9), apart_rows=0 if way == "tasks" else None)

    for table, topic in ((job.name, job.result_topic), (f"{job.name}.doubled", job.output_topic("doubled"))):
        written = pl.read_parquet(files / table / "*.parquet")
        _same(written, bench.read(topic))
        assert written["idempotency_key"].is_unique().all()
        assert written.filter(pl.col("window_start") < START + timedelta(seconds=25))["n"].sum() > 0
    late = pl.read_parquet(files / f"{job.name}.late" / "*.parquet")
    assert late.height == bench.count(job.late_topic) > 0
    letters = kept.table(f"{job.name}.dead_letters")
    assert letters["value"].to_list() == [b"\xff rubbish"]
    assert letters["topic"].to_list() == [job.sources[0]]
    assert bench.count(DEAD_LETTERS) >= 1
    tokens = kept.tokens(job.name)
    assert len({token.name for token in tokens}) == len(tokens) > 0


def test_a_batch_over_a_closed_range_goes_to_the_same_tables(bench: Bench, tmp_path: Path) -> None:
    job = make_job("closed-range", parquet(tmp_path / "files"))
    bench.prepare(job, partitions=2)
    _send(bench, job, 0, 10)
    answer = bench.batch(job, to_the_end=True)[job.name]
    for _ in range(2):  # the second time, the sink has it already
        write_to_sinks(job, [answer], run="first ten seconds")
    assert sorted(pl.read_parquet(tmp_path / "files" / job.name)["n"].to_list()) == [100, 100]
    with pytest.raises(PlanError, match="no sinks"):
        write_to_sinks(make_job("without"), [answer], run="any")
