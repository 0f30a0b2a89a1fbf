"""Catching up: batches after an outage are bounded, grow towards their target time, and give the same answers."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

import polars as pl
import pytest

from headrace.events import Codec
from headrace.kafka.producer import Producer
from headrace.stream import Job, Stream
from headrace.time import bounded
from headrace.time.instants import instant
from headrace.windows import count, tumbling
from headrace_transit.schemas import VehiclePosition

if TYPE_CHECKING:
    from tests.spark.conftest import Bench

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]

START = datetime(2026, 3, 2, 7, 30, tzinfo=UTC)
SECONDS = 60
TOPIC = "input.pressure"


def _job(name: str = "pressure", topic: str = TOPIC) -> Job:
    stream = (
        Stream.topic(topic, VehiclePosition)
        .watermark(bounded("1s"))
        .key_by("line")
        .window(tumbling("5s"))
        .aggregate(n=count())
    )
    return Job(name, stream)


def _send(bench: Bench) -> Counter[tuple[datetime, str]]:
    """Fill four partitions unevenly, each in the order of event time; tell the counts per window and line."""
    expected: Counter[tuple[datetime, str]] = Counter()
    with Producer(bench.broker.connection) as producer:
        for partition, per_second in enumerate((200, 20, 20, 20)):
            times = [START + timedelta(seconds=number / per_second) for number in range(SECONDS * per_second)]
            lines = [str(number % 7) for number in range(len(times))]
            rows = pl.DataFrame({"event_time": times, "ingestion_time": times, "line": lines}).with_columns(
                pl.lit(f"v{partition}").alias("vehicle_id")
            )
            for value in Codec().encode(rows, VehiclePosition).to_pylist():
                producer.send(TOPIC, value, partition=partition)
            for at, line in zip(times, lines, strict=True):
                start = START + (at - START) // timedelta(seconds=5) * timedelta(seconds=5)
                expected[start, line] += 1
    return expected


def test_a_backlog_is_read_in_bounded_batches_that_grow_and_lose_nothing(bench: Bench) -> None:
    job = _job()
    bench.prepare(job)
    expected = _send(bench)
    done = bench.run_to(
        job,
        watermark=instant(START + timedelta(seconds=SECONDS - 2)),
        first_batch_events=400,
        max_events_per_batch=5_000,
        target_batch_ms=60_000,
    )
    assert done[0].rows_in <= 400
    for before, batch in pairwise(done):
        assert before.limit is not None
        assert batch.rows_in <= before.limit
    assert max(batch.rows_in for batch in done) > 1_600, "the limit of the running query has grown twice, at least"
    assert max(batch.limit or 0 for batch in done) <= 5_000
    assert sum(batch.late for batch in done) == 0, "uneven partitions make nothing late"
    last = START + timedelta(seconds=SECONDS - 5)
    results = bench.read(job.result_topic)
    got = {(start, line): n for start, line, n in results.select("window_start", "line", "n").rows() if start < last}
    assert got == {window: n for window, n in expected.items() if window[0] < last}


LARGE = 150_000


def _large_rows(count: int, start: datetime) -> pl.DataFrame:
    """Reports of one vehicle, a second apart, each of `LARGE` bytes."""
    times = [start + timedelta(seconds=number) for number in range(count)]
    return pl.DataFrame({"event_time": times, "ingestion_time": times}).with_columns(
        pl.lit("v").alias("vehicle_id"), pl.lit("1").alias("line"), pl.lit("x" * LARGE).alias("headsign")
    )


def test_batches_of_large_messages_are_bounded_by_bytes_and_every_row_comes_out_once(bench: Bench) -> None:
    job = _job("large-messages", "input.large-messages")
    bench.prepare(job)
    for partition in range(2):
        bench.send_partition(job.sources[0], _large_rows(200, START), VehiclePosition, partition)
    for partition in range(2, 4):
        bench.send_partition(job.sources[0], _large_rows(200, START).drop("headsign"), VehiclePosition, partition)
    bound = 6_000_000
    done = bench.run_to(
        job,
        watermark=instant(START + timedelta(seconds=195)),
        max_bytes_per_batch=bound,
        target_batch_ms=60_000,
    )
    # Half of the records are large, and each partition gives at least one.
    assert max(batch.rows_in for batch in done) * LARGE / 2 <= bound + 4 * LARGE
    assert sum(batch.rows_in for batch in done) == 800
    assert sum(batch.late + batch.dead_letters for batch in done) == 0
    results = bench.read(job.result_topic)
    last = START + timedelta(seconds=190)
    counts = results.filter(pl.col("window_start") < last).select("window_start", "n")
    assert sorted(counts.rows()) == [(START + timedelta(seconds=5 * number), 20) for number in range(38)]
