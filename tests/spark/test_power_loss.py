"""A checkpoint after a power loss: its last files are missing or cut off, while Kafka has the transactions."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import polars as pl
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from headrace.errors import HeadraceError
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


def _empty_commit(spark: Path, last: int) -> None:
    (spark / "commits" / str(last)).write_bytes(b"")


def _half_an_offset(spark: Path, last: int) -> None:
    _without_commit(spark, last)
    path = spark / "offsets" / str(last)
    path.write_bytes(path.read_bytes()[:20])


def _without_state(spark: Path, last: int) -> None:
    """The state of the last batch, of all partitions, did not reach the disk either."""
    _without_commit(spark, last)
    for path in (spark / "state").rglob(f"{last + 1}.*"):
        path.unlink()


DAMAGES: dict[str, Callable[[Path, int], None]] = {
    "the last commit is missing": _without_commit,
    "the last batch is missing": _without_batch,
    "the last commit is empty": _empty_commit,
    "the last offsets are cut off": _half_an_offset,
    "the last state is missing": _without_state,
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
    refused = {}
    for name, damage in DAMAGES.items():
        shutil.rmtree(bench.checkpoint)
        shutil.copytree(whole, bench.checkpoint)
        progress = read_progress(bench.checkpoint)
        assert progress is not None
        damage(progress.directory, progress.committed)
        for log in ("commits", "offsets"):
            (progress.directory / log / f".{progress.committed}.crc").unlink(missing_ok=True)
        try:
            bench.run_to(JOB, watermark=_at(20.9), accept_old_checkpoint=name == "the last batch is missing")
        except HeadraceError as problem:
            refused[name] = problem
        rows = bench.read(JOB.result_topic).select("window_start", "n").rows()
        assert len(rows) == len(set(rows)), name
    found = {int((start - START).total_seconds()): n for start, n in rows}
    assert found == {0: 100, 5: 100, 10: 10 * 4 * 2 + 10 * 3, 15: 150}
    assert set(refused) <= {"the last commit is empty", "the last offsets are cut off"}
    assert all("restore" in str(problem.hint).lower() for problem in refused.values()), refused
