"""A checkpoint after a power loss: its last files are missing, while Kafka has the transactions."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import polars as pl
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from headrace.spark.checkpoint.continuity import read_progress
from headrace.stream import Job, Stream
from headrace.time import bounded
from headrace.time.instants import instant
from headrace.windows import count, tumbling
from headrace_transit.schemas import VehiclePosition

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.spark.conftest import Bench

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

TOPIC = "input.power-loss"
START = datetime(2026, 3, 2, 7, 30, tzinfo=UTC)
POSITIONS = Stream.topic(TOPIC, VehiclePosition).watermark(bounded("1s"), idle_after="1min")
JOB = Job("power-loss", POSITIONS.key_by("vehicle_id").window(tumbling("5s")).aggregate(n=count()))


def _at(second: float) -> int:
    return instant(START + timedelta(seconds=second))


def _send(bench: Bench, first: int, last: int, *, partitions: int = 2) -> None:
    times = [START + timedelta(milliseconds=100 * number) for number in range(first * 10, last * 10)]
    rows = pl.DataFrame({"vehicle_id": "a", "event_time": times}).cast({"event_time": pl.Datetime("us", "UTC")})
    rows = rows.with_columns(ingestion_time=pl.col("event_time"))
    for partition in range(partitions):
        bench.send_partition(TOPIC, rows, VehiclePosition, partition)


def _without_commit(spark: Path, last: int) -> None:
    (spark / "commits" / str(last)).unlink()


def _without_batch(spark: Path, last: int) -> None:
    _without_commit(spark, last)
    (spark / "offsets" / str(last)).unlink()


DAMAGES: dict[str, Callable[[Path, int], None]] = {
    "the last commit is missing": _without_commit,
    "the last batch is missing": _without_batch,
}


def test_what_is_out_is_not_written_again_and_nothing_is_missing(bench: Bench) -> None:
    bench.prepare(JOB, partitions=2)
    _send(bench, 0, 8)
    bench.run_to(JOB, watermark=_at(6.9))
    _send(bench, 8, 12)
    bench.run_to(JOB, watermark=_at(10.9))
    whole = bench.checkpoint.with_name("whole")
    shutil.copytree(bench.checkpoint, whole)
    # While the query is down, events come, and a partition is added that begins with events of now.
    _send(bench, 12, 14)
    admin = AdminClient(bench.broker.connection.client_config())
    for future in admin.create_partitions([NewPartitions(TOPIC, 3)]).values():
        future.result(10)
    _send(bench, 14, 22, partitions=3)
    for name, damage in DAMAGES.items():
        shutil.rmtree(bench.checkpoint)
        shutil.copytree(whole, bench.checkpoint)
        progress = read_progress(bench.checkpoint)
        assert progress is not None
        damage(progress.directory, progress.committed)
        bench.run_to(JOB, watermark=_at(20.9), accept_old_checkpoint=name == "the last batch is missing")
        rows = bench.read(JOB.result_topic).select("window_start", "n").rows()
        assert len(rows) == len(set(rows)), name
        numbers = {int((start - START).total_seconds()): n for start, n in rows}
        assert numbers == {0: 100, 5: 100, 10: 110, 15: 150}, name
