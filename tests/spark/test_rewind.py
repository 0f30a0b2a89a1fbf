"""A checkpoint that is older than its results: refused, and gone on with on request; nothing lost, nothing twice."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from headrace.errors import StateError
from headrace.spark.checkpoint.continuity import read_progress
from headrace.stream import Job, Stream
from headrace.time import bounded
from headrace.time.instants import instant
from headrace.windows import count, tumbling
from headrace_transit.schemas import VehiclePosition

if TYPE_CHECKING:
    from tests.spark.conftest import Bench

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]

START = datetime(2026, 3, 2, 7, 30, tzinfo=UTC)
_CRASHING = """
import sys, threading
from pathlib import Path
from headrace.kafka import Connection
from headrace.spark.run.runner import RunOptions, run_jobs
from tests.spark.test_rewind import make_job

name, bootstrap, checkpoint, *jars = sys.argv[1:]
connection = Connection(bootstrap=bootstrap)
options = RunOptions(connection=connection, checkpoint=Path(checkpoint), jars=[Path(jar) for jar in jars])
run_jobs([make_job(name)], options, print, threading.Event())
"""


def make_job(name: str) -> Job:
    stream = Stream.topic(f"input.{name}", VehiclePosition).watermark(bounded("1s")).key_by("line")
    return Job(name, stream.window(tumbling("5s")).aggregate(n=count()))


def _send(bench: Bench, job: Job, first: int, last: int) -> None:
    """Ten events a second in each of two partitions, in order."""
    for partition in range(2):
        times = [START + timedelta(milliseconds=100 * tenth) for tenth in range(10 * first, 10 * last)]
        rows = pl.DataFrame({"event_time": times, "ingestion_time": times}).with_columns(
            vehicle_id=pl.lit(f"v{partition}"), line=pl.lit("1")
        )
        bench.send_partition(job.sources[0], rows, VehiclePosition, partition)


def _counts(bench: Bench, job: Job) -> dict[int, int]:
    rows = bench.read(job.result_topic).select("window_start", "n").rows()
    found = {int((start - START).total_seconds()): n for start, n in rows}
    assert len(found) == len(rows), "no window twice"
    return found


def _at(second: float) -> int:
    return instant(START + timedelta(seconds=second))


@pytest.mark.parametrize(("apart_rows", "stations"), [(None, [30.9, 40.9]), (0, [40.9])], ids=["driver", "tasks"])
def test_an_older_copy_is_refused_and_gone_on_with_behind_what_is_out(
    bench: Bench, apart_rows: int | None, stations: list[float]
) -> None:
    job = make_job("older-copy" if apart_rows is None else "older-copy-of-tasks")
    bench.prepare(job, partitions=2)
    _send(bench, job, 0, 8)
    bench.run_to(job, watermark=_at(6.9), apart_rows=apart_rows)
    copy = bench.checkpoint.with_name("copy")
    shutil.copytree(bench.checkpoint, copy)
    _send(bench, job, 8, 22)
    bench.run_to(job, watermark=_at(20.9), apart_rows=apart_rows, max_events_per_batch=100)
    newest = read_progress(bench.checkpoint)
    assert newest is not None
    shutil.rmtree(bench.checkpoint)
    shutil.copytree(copy, bench.checkpoint)
    old = read_progress(bench.checkpoint)
    assert old is not None
    _send(bench, job, 22, 42)

    with pytest.raises(StateError) as caught:
        bench.run_to(job, watermark=_at(40.9), apart_rows=apart_rows)
    assert f"stands at batch {old.committed}" in caught.value.message
    assert "280 events more" in caught.value.message
    assert "--accept-old-checkpoint" in caught.value.hint
    assert read_progress(bench.checkpoint) == old, "nothing was changed"

    # Larger batches than in the first run: they end elsewhere, but for the last one that is out. Afterwards the
    # checkpoint is the newest again, and needs no choice.
    for run, second in enumerate(stations):
        choice = {"accept_old_checkpoint": run == 0, "max_events_per_batch": 250}
        bench.run_to(job, watermark=_at(second), apart_rows=apart_rows, **choice)
    assert _counts(bench, job) == dict.fromkeys(range(0, 40, 5), 100)


def test_a_loss_accepted_after_a_crash_between_sink_and_commit_log_loses_no_window(
    bench: Bench, tmp_path: Path
) -> None:
    job = make_job("accepted-crash")
    bench.prepare(job, partitions=2)
    topic = job.sources[0]
    _send(bench, job, 0, 8)
    bench.run_to(job, watermark=_at(6.9))
    _send(bench, job, 8, 12)
    faults = tmp_path / "faults"
    faults.mkdir()
    (faults / "after-commit").write_text("kill")
    command = [sys.executable, "-c", _CRASHING, job.name, bench.broker.bootstrap, str(bench.checkpoint)]
    root = Path(__file__).parents[2]
    environment = {**os.environ, "HEADRACE_FAULTS": str(faults), "PYTHONPATH": os.pathsep.join([str(root), *sys.path])}
    ended = subprocess.run([*command, *map(str, bench.jars)], env=environment, cwd=root, check=False, timeout=240)
    assert ended.returncode == -9, "killed between the transaction and Spark's commit log"
    progress = read_progress(bench.checkpoint)
    assert progress is not None
    assert progress.planned is not None
    # While the job was away, retention took 10 events of the batch that is out, and more events came.
    _send(bench, job, 12, 42)
    admin = AdminClient(bench.broker.connection.client_config())
    for future in admin.delete_records([TopicPartition(topic, 1, progress.next[topic][1] + 10)]).values():
        future.result(10)

    bench.run_to(job, watermark=_at(40.9), accept_loss=True)
    counts = _counts(bench, job)
    assert set(counts) == set(range(0, 40, 5)), "no window is missing"
    assert all(counts[start] == 100 for start in range(15, 40, 5))
    assert sum(counts.values()) >= 800 - 10, "no more is missing than was said"


def test_one_job_of_a_set_that_has_written_its_results_is_refused(bench: Bench) -> None:
    one, two = make_job("of-a-set"), make_job("of-a-set-too")
    for job in (one, two):
        bench.prepare(job, partitions=2)
        _send(bench, job, 0, 12)
    bench.run_to(one, two, watermark=_at(10.9))
    assert _counts(bench, one) == {0: 100, 5: 100}

    other = bench.checkpoint.with_name("alone")
    with pytest.raises(StateError) as caught:
        bench.run_to(one, watermark=_at(10.9), checkpoint=other, take_over=False)
    assert str(bench.checkpoint) in caught.value.message
    assert "--take-over" in caught.value.hint
    assert _counts(bench, one) == {0: 100, 5: 100}, "nothing came again"
