"""Protobuf of one's own, keys, CloudEvents and Debezium's changes on real Spark."""

from __future__ import annotations

import json as plain_json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from confluent_kafka import Producer as PlainProducer
from google.protobuf import message_factory

from headrace.formats import cloudevents, debezium, json, protobuf, record, text
from headrace.formats.proto_files import find_message
from headrace.formats.record import RecordFormat
from headrace.kafka.topics import DEAD_LETTERS
from headrace.stream import Job, Stream
from headrace.time import bounded
from headrace.time.instants import instant
from headrace.windows import count, tumbling

if TYPE_CHECKING:
    from pathlib import Path

    from tests.spark.conftest import Bench

    from headrace.formats import Format

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]

START = datetime(2026, 3, 1, 8, tzinfo=UTC)
SCHEMA = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Scan { string depot = 1; google.protobuf.Timestamp at = 2; }
"""


def produce(bench: Bench, topic: str, values: list[bytes | None], **options: Any) -> None:
    """What somebody else's program does: no line of Headrace in it."""
    producer = PlainProducer({"bootstrap.servers": bench.broker.connection.bootstrap})
    for value in values:
        for partition in range(2):
            producer.produce(topic, value, partition=partition, **options)
    assert producer.flush(30) == 0


def job(name: str, form: Format, key: str) -> Job:
    stream = Stream.topic(f"{name}-in", format=form).watermark(bounded("0s"), idle_after="1min")
    return Job(name, stream.key_by(key).window(tumbling("10s")).aggregate(rows=count()))


def test_other_formats_on_spark(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "scan.proto"
    path.write_text(SCHEMA)
    scans = protobuf(path, time="at", key=text("parcel"))
    assert isinstance(scans, RecordFormat)
    path.unlink()  # tasks need neither the file nor a generated class
    message: Any = message_factory.GetMessageClass(find_message(scans.value.files, "Scan"))  # type: ignore[attr-defined]
    events = record(cloudevents(json({"depot": pl.String})), partition="partition", offset="offset")
    changes = debezium({"depot": pl.String})
    jobs = [job("scans", scans, "parcel"), job("events", events, "partition"), job("changes", changes, "op")]
    for each in jobs:
        bench.prepare(each, partitions=2)
    for second in (1, 15):
        at = START + timedelta(seconds=second)
        scan = message(depot="north")
        scan.at.FromDatetime(at)
        produce(bench, "scans-in", [scan.SerializeToString(), b"\xff"], key=b"parcel-1")
        headers = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "time": at.isoformat()}
        binary = [(f"ce_{name}", value.encode()) for name, value in headers.items()]
        produce(bench, "events-in", [b'{"depot":"north"}'], headers=binary)
        produce(bench, "events-in", [plain_json.dumps({**headers, "data": {"depot": "n"}}).encode()])
        source = {"ts_ms": int(at.timestamp() * 1_000)}
        change = {"op": "d", "before": {"depot": "north"}, "source": source}
        produce(bench, "changes-in", [plain_json.dumps(change).encode(), None])
    done = bench.run_to(*jobs, watermark=instant(START + timedelta(seconds=15)))

    found = {each.name: bench.read(each.result_topic) for each in jobs}
    assert found["scans"].select("parcel", "rows").rows() == [("parcel-1", 2)]
    assert sorted(found["events"].select("partition", "rows").rows()) == [(0, 2), (1, 2)]
    assert found["changes"].select("op", "rows").rows() == [("delete", 2)]
    dead = bench.read(DEAD_LETTERS).filter(pl.col("topic").is_in([f"{each.name}-in" for each in jobs]))
    assert dead.select("topic", "reason").unique().rows() == [("scans-in", "malformed")]
    assert dead.height == 4
    assert done
