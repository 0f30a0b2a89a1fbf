"""A query that runs for long opens no more files, sockets and threads than one that has just begun."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import polars as pl
import psutil
import pytest

from headrace.events import Codec
from headrace.kafka.producer import Producer
from headrace.stream import Job, Stream
from headrace.time import bounded
from headrace.windows import count, tumbling
from headrace_transit.schemas import VehiclePosition

if TYPE_CHECKING:
    from tests.spark.conftest import Bench

    from headrace.spark.run.progress import BatchDone

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

START = datetime(2026, 3, 2, 7, 30, tzinfo=UTC)
#: Java loads classes and workers start during the first batches.
_WARM, _LAST = 60, 260
#: What may come and go: a connection that is opened anew, a file that is being written.
_SLACK = 20


@dataclass(frozen=True)
class Usage:
    """What this process, Java and the Python workers have open together."""

    open_files: int
    half_closed: int
    threads: int

    @classmethod
    def now(cls) -> Usage:
        open_files = half_closed = threads = 0
        for process in [psutil.Process(), *psutil.Process().children(recursive=True)]:
            try:
                open_files += process.num_fds()
                half_closed += sum(each.status == psutil.CONN_CLOSE_WAIT for each in process.net_connections())
                threads += process.num_threads()
            except psutil.NoSuchProcess:
                continue
        return cls(open_files, half_closed, threads)


def _send(bench: Bench, topic: str, stop: threading.Event) -> None:
    """Send a second of events at a time, so that every batch has some."""
    second = 0
    with Producer(bench.broker.connection) as producer:
        while not stop.wait(0.05):
            rows = pl.DataFrame(
                {
                    "vehicle_id": [f"v{number}" for number in range(10)],
                    "event_time": [START + timedelta(seconds=second)] * 10,
                }
            )
            for value in Codec().encode(rows, VehiclePosition).to_pylist():
                producer.send(topic, value)
            second += 1


def test_hundreds_of_batches_leave_no_file_socket_or_thread_open(bench: Bench) -> None:
    stream = (
        Stream.topic("open-files", VehiclePosition)
        .watermark(bounded("1s"))
        .key_by("vehicle_id")
        .window(tumbling("10s"))
        .aggregate(reports=count())
    )
    job = Job("open-files", stream)
    bench.prepare(job)
    usages: dict[int, Usage] = {}

    def seen(done: list[BatchDone]) -> bool:
        if len(done) in (_WARM, _LAST):
            usages[len(done)] = Usage.now()
        return len(done) >= _LAST

    stop = threading.Event()
    sender = threading.Thread(target=_send, args=(bench, job.sources[0], stop), name="sender")
    sender.start()
    try:
        bench.run(job, until=seen, patience=540)
    finally:
        stop.set()
        sender.join()
    before, after = usages[_WARM], usages[_LAST]
    assert after.half_closed <= before.half_closed + 2, (before, after)
    assert after.open_files <= before.open_files + _SLACK, (before, after)
    assert after.threads <= before.threads + _SLACK, (before, after)
