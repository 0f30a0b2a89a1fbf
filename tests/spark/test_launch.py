"""`headrace.run`: jobs on Spark from a script, with a plain producer before them and a plain consumer behind them."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from confluent_kafka import Consumer, Producer

import headrace
from headrace import Job, Stream, bounded, tumbling
from headrace.errors import BrokerError, PlanError
from headrace.formats import json as json_format
from headrace.spark.run.progress import BatchDone
from headrace.windows import count

if TYPE_CHECKING:
    from pathlib import Path

    from tests.spark.conftest import Bench

    from headrace.spark.run.progress import RunEvent

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]

SCANS = Stream.topic("launched.scans", format=json_format({"depot": pl.String}, time="at"))
JOB = Job(
    "launched",
    SCANS.watermark(bounded("0s"))
    .key_by("depot")
    .window(tumbling("10s"))
    .aggregate(scans=count())
    .select("depot", "scans", "window_end"),
    format=json_format(),
)


def produce(bootstrap: str, *seconds: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for second in seconds:
        value = json.dumps({"at": f"2026-01-01T12:00:{second:02}Z", "depot": "north"})
        producer.produce("launched.scans", value.encode(), partition=0)
    assert producer.flush(30) == 0


def consume(bootstrap: str, most: int) -> list[dict[str, Any]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "x", "auto.offset.reset": "earliest"})
    consumer.subscribe([JOB.result_topic])
    found = []
    while len(found) < most and (message := consumer.poll(20)) is not None:
        found.append(json.loads(message.value() or b""))
    assert consumer.poll(1) is None
    consumer.close()
    return found


def test_a_script_runs_a_job_and_goes_on_where_it_stopped(bench: Bench, tmp_path: Path) -> None:
    bootstrap = bench.broker.connection.bootstrap
    with pytest.raises(BrokerError, match=r"no topic launched\.scans"):
        headrace.run(JOB, bootstrap=bootstrap)
    bench.prepare(JOB, partitions=1)

    stop = threading.Event()

    def report(event: RunEvent) -> None:
        if isinstance(event, BatchDone) and event.results:
            stop.set()

    where: dict[str, Any] = {"bootstrap": bootstrap, "checkpoint": tmp_path / "state", "jars": bench.jars}
    produce(bootstrap, 1, 2, 11)
    first = headrace.run(JOB, **where, stop=stop, report=report)
    assert (first.events, first.results, first.dead_letters) == (3, 1, 0)
    produce(bootstrap, 12, 3, 25)
    second = headrace.run(JOB, **where, seconds=2)
    assert (second.events, second.results, second.late) == (3, 1, 1)
    assert [(row["depot"], row["scans"], row["window_end"]) for row in consume(bootstrap, 2)] == [
        ("north", 2, "2026-01-01T12:00:10.000000Z"),
        ("north", 2, "2026-01-01T12:00:20.000000Z"),
    ]


def test_no_job_is_refused() -> None:
    with pytest.raises(PlanError, match="no job to run"):
        headrace.run(bootstrap="localhost:1")
