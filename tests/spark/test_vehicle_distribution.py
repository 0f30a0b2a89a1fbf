"""vehicle-distribution from Kafka to Kafka on real Spark, against a computation that shares no code with it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import polars as pl
import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from tests.transit.reference import answer_of, distribution, rows_of

from headrace.kafka.topics import DEAD_LETTERS
from headrace.spark.output.committed_offsets import group_of
from headrace.time.instants import instant
from headrace_transit.jobs import all_jobs
from headrace_transit.schemas import VehiclePosition
from headrace_transit.simulator import Fleet

if TYPE_CHECKING:
    from tests.spark.conftest import Bench


pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]

START = datetime(2026, 3, 2, 7, 30, tzinfo=UTC)
SECONDS = 80


def _rows(fleet: Fleet, first: int, last: int) -> pl.DataFrame:
    rows = pl.concat([fleet.positions(second) for second in range(first, last)])
    return rows.with_columns(pl.col("event_time").alias("ingestion_time"))


def _at(second: int) -> int:
    return instant(START + timedelta(seconds=second))


def test_counts_equal_a_plain_computation_window_by_window_also_over_a_restart(bench: Bench) -> None:
    job = all_jobs()["vehicle-distribution"]
    bench.prepare(job)
    topic = job.sources[0]
    fleet = Fleet(vehicles=150, seed=7, start=START)
    early, rest = _rows(fleet, 0, SECONDS // 2), _rows(fleet, SECONDS // 2, SECONDS)

    # The first half comes from a feed that does not say when it took events in.
    bench.send_rows(topic, early.drop("ingestion_time"), VehiclePosition, "vehicle_id")
    first = bench.run_to(job, watermark=_at(SECONDS // 2 - 2))

    # Half a minute behind the watermark: its last window has expired. And a value that nobody can read.
    late = early.head(1).with_columns(pl.lit(START - timedelta(seconds=60)).dt.cast_time_unit("us").alias("event_time"))
    bench.send_rows(topic, late, VehiclePosition, "vehicle_id")
    bench.send(topic, [b"\xff rubbish"], ["x"])
    bench.send_rows(topic, rest, VehiclePosition, "vehicle_id")
    # The second run writes JSON beside the binary results of the first: a reader needs no setting for either.
    second = bench.run_to(job, watermark=_at(SECONDS - 2), encoding="json")
    assert second[0].batch >= first[-1].batch, "the second run continues where the first one was"

    watermark = second[-1].watermark
    assert watermark is not None
    results = bench.read(job.result_topic)
    expected = distribution(rows_of(pl.concat([early, rest])))
    complete = {window: cells for window, cells in expected.items() if window[1] <= watermark}
    assert len(complete) == SECONDS // 5 - 1, "windows that end 5, 10, ... 75 s after the start"
    assert answer_of(results) == complete
    assert results.get_column("idempotency_key").is_unique().all()
    assert results.get_column("key").to_list() == results.get_column("cell").cast(pl.String).to_list()

    lates = bench.read(job.late_topic)
    assert lates.height == 1
    assert lates.item(0, "key") == late.item(0, "vehicle_id")
    assert lates.item(0, "lateness") > timedelta(0)
    event = lates.item(0, "event")
    original = VehiclePosition.FromString(event["details"]["value"])
    assert original.vehicle_id == late.item(0, "vehicle_id")
    assert original.line == late.item(0, "line"), "the whole event is kept, not only what the job read"

    group = ConsumerGroupTopicPartitions(group_of(job.name))
    admin = AdminClient(bench.broker.connection.client_config())
    committed = next(iter(admin.list_consumer_group_offsets([group]).values())).result(10)
    shown = sum(place.offset for place in committed.topic_partitions if place.topic == topic)
    assert shown == early.height + rest.height + 2, "Kafka's own tools see how far the job has come"

    dead = bench.read(DEAD_LETTERS).filter(pl.col("topic") == topic)
    assert dead.select("reason", "value").rows() == [("malformed", b"\xff rubbish")]
    assert dead.item(0, "offset") is not None
    assert 0 <= dead.item(0, "partition") < 4
