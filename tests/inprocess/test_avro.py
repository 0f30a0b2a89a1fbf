"""A job from Avro to Avro in this process."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from io import BytesIO

import fastavro
import pyarrow as pa

from headrace import Job, Stream, bounded, tumbling
from headrace.formats import Records, avro
from headrace.inprocess import Runner
from headrace.windows import count

START = datetime(2026, 3, 1, 8, tzinfo=UTC)
SCAN = {
    "type": "record",
    "name": "Scan",
    "fields": [
        {"name": "depot", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}


def scan(second: int) -> bytes:
    buffer = BytesIO()
    fastavro.schemaless_writer(buffer, SCAN, {"depot": "north", "at": START + timedelta(seconds=second)})
    return buffer.getvalue()


def test_results_dead_letters_and_late_records() -> None:
    scans = avro(SCAN, time="at")
    job = Job(
        "avro-per-depot",
        Stream.topic("scans", format=scans)
        .watermark(bounded("1s"))
        .key_by("depot")
        .window(tumbling("10s"))
        .aggregate(scans=count())
        .select("depot", "scans"),
        format=avro(),
    )
    runner = Runner(job)
    first = runner.step([*map(scan, range(25)), scan(1)[:-1]])
    assert first.dead.select("reason").rows() == [("malformed",)]
    assert first.results.select("depot", "scans").rows() == [("north", 10), ("north", 10)]
    second = runner.step([scan(2)])
    assert second.late.height == 1
    again = scans.decode(Records(pa.array([scan(2)], pa.binary())))
    assert again.frame.get_column("event_time").to_list() == [START + timedelta(seconds=2)]
    values = avro().encode(first.results.select("depot", "scans"))
    nullable = [{"name": "depot", "type": ["null", "string"]}, {"name": "scans", "type": ["null", "long"]}]
    written = {"type": "record", "name": "Result", "fields": nullable}
    assert [fastavro.schemaless_reader(BytesIO(value), written, None) for value in values.to_pylist()] == [
        {"depot": "north", "scans": 10}
    ] * 2
