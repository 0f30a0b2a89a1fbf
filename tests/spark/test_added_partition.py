"""A partition that is added to a topic while a job reads it, on real Kafka and real Spark."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import polars as pl
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from headrace.events import Codec
from headrace.kafka.producer import Producer
from headrace.kafka.topics import Topics
from headrace.stream import Job, Stream
from headrace.time import bounded
from headrace.windows import count, tumbling
from headrace_transit.schemas import VehiclePosition

if TYPE_CHECKING:
    from tests.spark.conftest import Bench

    from headrace.kafka import Connection
    from headrace.spark.run.progress import RunEvent

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]

TOPIC = "input.added-partition"
START = datetime(2026, 3, 2, 7, 30, tzinfo=UTC)
JOB = Job(
    name="added-partition",
    description="Reports per vehicle and second",
    stream=Stream.topic(TOPIC, VehiclePosition)
    .watermark(bounded("1s"), idle_after="30s")
    .key_by("vehicle_id")
    .window(tumbling("1s"))
    .aggregate(reports=count()),
)
BEFORE, AFTER = 60, 200


class Feed(threading.Thread):
    """Writes a report to every partition per round; rounds are 100 ms of event time apart, however long they take."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.connection = connection
        self.sent = 0
        self.ended = threading.Event()

    def run(self) -> None:
        with Producer(self.connection) as producer:
            for number in range(BEFORE):
                self._round(producer, number, partitions=2)
        admin = AdminClient(self.connection.client_config())
        for future in admin.create_partitions([NewPartitions(TOPIC, 3)]).values():
            future.result(30)
        # Who writes has just learnt of the new partition, and uses it at once.
        with Producer(self.connection) as producer:
            for number in range(BEFORE, BEFORE + AFTER):
                self._round(producer, number, partitions=3)
        self.ended.set()

    def _round(self, producer: Producer, number: int, *, partitions: int) -> None:
        at = START + timedelta(milliseconds=100 * number)
        rows = pl.DataFrame({"vehicle_id": "a", "event_time": [at]}).cast({"event_time": pl.Datetime("us", "UTC")})
        (value,) = Codec().encode(rows, VehiclePosition).to_pylist()
        for partition in range(partitions):
            producer.send(TOPIC, value, partition=partition)
            self.sent += 1
        producer.flush()
        time.sleep(0.05)


def test_events_of_an_added_partition_are_all_read_and_none_is_late(bench: Bench) -> None:
    bench.prepare(JOB, partitions=2)
    feed = Feed(bench.broker.connection)

    def tell(event: RunEvent) -> None:
        if not feed.ident:
            feed.start()

    done = bench.run(
        JOB, until=lambda done: feed.ended.is_set() and sum(each.rows_in for each in done) >= feed.sent, tell=tell
    )
    feed.join()
    assert len(Topics(bench.broker.connection).get(TOPIC).partitions) == 3
    assert sum(each.rows_in for each in done) == feed.sent == 2 * BEFORE + 3 * AFTER
    assert sum(each.late for each in done) == 0
    results = bench.read(JOB.result_topic).sort("window_start")
    per_second = results["reports"].to_list()
    assert per_second == [20 if second < BEFORE // 10 else 30 for second in range(len(per_second))]
    assert len(per_second) > BEFORE // 10 + 5, "windows fired after the partition was added"
