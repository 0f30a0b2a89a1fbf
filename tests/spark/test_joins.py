"""Joins from Kafka to Kafka, with a restart, and as a batch: the same answer as in process."""

from __future__ import annotations

import json as text
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from headrace.engine.changelog import final
from headrace.formats import json
from headrace.inprocess import Runner
from headrace.stream import Job, Stream
from headrace.time import bounded
from headrace.time.instants import instant
from headrace.windows import tumbling

if TYPE_CHECKING:
    from tests.spark.conftest import Bench

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(900)]

START = datetime(2026, 3, 2, 7, 30, tzinfo=UTC)
SCHEMAS: dict[str, dict[str, Any]] = {
    "join.scans": {"parcel": pl.String, "depot": pl.String, "scan": pl.Int64},
    "join.orders": {"parcel": pl.String, "place": pl.String, "order": pl.Int64},
    "join.prices": {"depot": pl.String, "price": pl.Int64},
}


def _stream(topic: str) -> Stream:
    source = Stream.topic(topic, format=json(schema=SCHEMAS[topic], time="at"))
    return source.drop("ingestion_time").watermark(bounded("2s"), idle_after="1h")


SCANS, ORDERS, PRICES = map(_stream, SCHEMAS)
JOBS = [
    Job("joined-near", SCANS.join(ORDERS, on="parcel", within=("-5s", "20s"), how="left")),
    Job("joined-windows", SCANS.join(ORDERS, on="parcel", window=tumbling("10s"), how="full")),
    Job("joined-versions", SCANS.join(PRICES.as_table("depot", versioned=True), on="depot", as_of="event_time")),
    Job(
        "joined-tables",
        ORDERS.as_table("parcel").join(PRICES.as_table("depot"), on={"place": "depot"}, how="left"),
    ),
]
#: What tells a result, apart from the number that depends on how rows came in batches.
COLUMNS = {
    "joined-near": ["parcel", "scan", "order", "event_time"],
    "joined-windows": ["parcel", "scan", "order", "window_start", "window_end"],
    "joined-versions": ["depot", "scan", "price", "event_time"],
    "joined-tables": ["parcel", "order", "price", "is_retraction"],
}


def _rows(first: int, last: int) -> dict[str, pl.DataFrame]:
    """Make the rows of some seconds, out of order by less than the watermark waits."""
    scans, orders, prices = [], [], []
    for second in range(first, last):
        at = START + timedelta(seconds=second, milliseconds=-(second % 3) * 500)
        scans.append((f"p{second % 11}", f"d{second % 3}", second, at))
        orders.append((f"p{second * 7 % 13}", f"d{second % 4}", 1000 + second, at + timedelta(milliseconds=300)))
        if second % 4 == 0:
            prices.append((f"d{second % 3}", second, at))
    given = dict(zip(SCHEMAS, (scans, orders, prices), strict=True))
    return {
        topic: pl.DataFrame(
            given[topic], schema={**SCHEMAS[topic], "event_time": pl.Datetime("us", "UTC")}, orient="row"
        )
        for topic in SCHEMAS
    }


def _send(bench: Bench, rows: dict[str, pl.DataFrame]) -> None:
    for topic, frame in rows.items():
        named = frame.rename({"event_time": "at"})
        values = [text.dumps(row, default=datetime.isoformat).encode() for row in named.iter_rows(named=True)]
        bench.send(topic, values, frame.get_column(frame.columns[0]).to_list())


def _answers(job: str, results: pl.DataFrame) -> list[tuple[object, ...]]:
    told = results.select(COLUMNS[job])
    if "is_retraction" in told.columns:
        told = final(told)
    instants = [pl.col(name).dt.timestamp("us") for name, kind in told.schema.items() if isinstance(kind, pl.Datetime)]
    return sorted(told.with_columns(instants).rows(), key=repr)


def test_joins_give_the_same_in_process_in_a_stream_with_a_restart_and_in_a_batch(bench: Bench) -> None:
    for job in JOBS:
        bench.prepare(job, partitions=1)
    parts = [_rows(0, 40), _rows(40, 80), _rows(200, 202)]

    for number, part in enumerate(parts):
        _send(bench, part)
        newest = 40 * (number + 1) if number < 2 else 201
        bench.run_to(*JOBS, watermark=instant(START + timedelta(seconds=newest - 6)))

    together = {topic: pl.concat([part[topic] for part in parts]) for topic in SCHEMAS}
    batch = bench.batch(*JOBS)
    for job in JOBS:
        runner = Runner(job)
        sources = {topic: [part[topic] for part in parts] for topic in SCHEMAS if topic in job.sources}
        stepped = [runner.step({topic: frames[n] for topic, frames in sources.items()}).results for n in range(3)]
        expected = _answers(job.name, pl.concat(stepped))
        assert len(expected) > 10
        read = bench.read(job.result_topic)
        assert _answers(job.name, read) == expected, job.name
        assert read.get_column("idempotency_key").is_unique().all(), job.name
        whole = Runner(job)
        first = whole.step({topic: together[topic] for topic in sources}).results
        ended = pl.concat([first, whole.finish().results])
        assert _answers(job.name, batch[job.name].results) == _answers(job.name, ended), job.name
