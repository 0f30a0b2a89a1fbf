"""Topics that others write, on real Spark: JSON in by a plain producer, JSON out to a plain consumer."""

from __future__ import annotations

import json as plain_json
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from confluent_kafka import Consumer as PlainConsumer
from confluent_kafka import Producer as PlainProducer

from headrace.formats import header_time, json, text
from headrace.inprocess import Runner
from headrace.kafka.topics import DEAD_LETTERS
from headrace.stream import Job, Stream
from headrace.time import bounded
from headrace.time.instants import instant
from headrace.windows import count, tumbling
from headrace.windows import sum as total
from headrace_transit.schemas import VehiclePosition

if TYPE_CHECKING:
    from tests.spark.conftest import Bench

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]

START = datetime(2026, 3, 1, 8, tzinfo=UTC)
TOPIC = "scans"
SECONDS = 60
SCANS = json(schema={"depot": pl.String, "parcel": pl.String, "weight": pl.Float64}, time="scanned_at")
BROKEN = {
    b"not json at all": "malformed_json",
    b'{"depot": "north", "parcel": "p"}': "missing_timestamp",
    b'{"depot": 7, "scanned_at": "2026-03-01T08:00:00Z"}': "wrong_type",
}

JOB = Job(
    "scans-per-depot",
    Stream.topic(TOPIC, format=SCANS)
    .watermark(bounded("1s"), idle_after="1min")
    .key_by("depot")
    .window(tumbling("10s"))
    .aggregate(scans=count(), weight=total("weight"))
    .select("depot", "scans", "weight", "window_start", "window_end"),
    format=json(),
)


def scan(second: float, depot: str, number: int) -> bytes:
    at = (START + timedelta(seconds=second)).isoformat()
    return plain_json.dumps({"depot": depot, "parcel": f"p{number}", "weight": 0.5, "scanned_at": at}).encode()


def scans(first: int, last: int) -> list[bytes]:
    return [
        scan(second, depot, number)
        for second in range(first, last)
        for number, depot in enumerate(["north", "south", "east", "west", "north"])
    ]


def produce(bench: Bench, topic: str, values: list[bytes], **options: Any) -> None:
    """What somebody else's program does: no line of Headrace in it."""
    producer = PlainProducer({"bootstrap.servers": bench.broker.connection.bootstrap})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % 4, **options)
    assert producer.flush(30) == 0


def consume(bench: Bench, topic: str, expected: int) -> list[tuple[bytes, dict[str, Any], dict[str, bytes]]]:
    """Read at least so many records as a program would that does not know Headrace, and what follows them."""
    consumer = PlainConsumer(
        {
            "bootstrap.servers": bench.broker.connection.bootstrap,
            "group.id": f"reader of {topic}",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    found = []
    quiet = 0
    while quiet < 3 or len(found) < expected:
        message = consumer.poll(1.0)
        quiet = quiet + 1 if message is None else 0
        assert quiet < 30, f"{len(found)} of {expected} records"
        if message is not None:
            assert message.error() is None
            found.append((message.key(), plain_json.loads(message.value()), dict(message.headers() or ())))
    consumer.close()
    return found


def reference(values: list[bytes], until: datetime) -> Counter[tuple[str, str]]:
    """Scans per depot and window, by a computation that shares no code with Headrace."""
    found: Counter[tuple[str, str]] = Counter()
    for value in values:
        row = plain_json.loads(value)
        second = int((datetime.fromisoformat(row["scanned_at"]) - START).total_seconds())
        begin = START + timedelta(seconds=second // 10 * 10)
        if begin + timedelta(seconds=10) <= until:
            found[row["depot"], begin.strftime("%Y-%m-%dT%H:%M:%S.%fZ")] += 1
    return found


def test_json_in_json_out_over_a_restart_with_dead_letters_and_late_rows(bench: Bench) -> None:
    bench.prepare(JOB)
    early, rest = scans(0, SECONDS // 2), scans(SECONDS // 2, SECONDS)
    late = scan(2, "north", 99)

    produce(bench, TOPIC, early)
    bench.run_to(JOB, watermark=instant(START + timedelta(seconds=SECONDS // 2 - 2)))
    produce(bench, TOPIC, [late, *BROKEN])
    produce(bench, TOPIC, rest)
    done = bench.run_to(JOB, watermark=instant(START + timedelta(seconds=SECONDS - 2)))

    last = done[-1].watermark
    assert last is not None
    expected = reference(early + rest, START + timedelta(seconds=SECONDS - 2))
    results = consume(bench, JOB.result_topic, len(expected))
    assert Counter({(row["depot"], row["window_start"]): row["scans"] for _, row, _ in results}) == expected
    assert len(results) == len(expected), "nothing twice"
    assert all(key.decode() == row["depot"] and row["weight"] == row["scans"] / 2 for key, row, _ in results)
    assert set(results[0][1]) == {"event_time", "depot", "scans", "weight", "window_start", "window_end"}
    names = [headers["headrace-idempotency-key"] for _, _, headers in results]
    assert len(set(names)) == len(names)

    lates = bench.read(JOB.late_topic)
    assert lates.select("record_value", "record_topic", "record_format", "key", "job").rows() == [
        (late, TOPIC, "json", "north", JOB.name)
    ]
    assert lates.item(0, "event") is None
    assert lates.item(0, "event_time") == START + timedelta(seconds=2)
    dead = bench.read(DEAD_LETTERS).filter(pl.col("topic") == TOPIC)
    assert dict(dead.select("value", "reason").rows()) == BROKEN
    assert dead.height == len(BROKEN)
    assert dead.select(pl.col("offset", "partition", "record_timestamp").is_not_null().all()).row(0) == (True,) * 3

    # The same in one batch, and in process.
    answer = bench.batch(JOB)[JOB.name]
    runner = Runner(JOB)
    first = runner.step(early)
    second = runner.step([late, *BROKEN, *rest])
    inside = pl.concat([first.results, second.results])
    counts = sorted(inside.select("depot", "window_start", "scans").rows())
    assert {(depot, at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")): n for depot, at, n in counts} == expected
    # In a batch nothing is late: the row of the first window is counted in it.
    batched = {(depot, at): n for depot, at, n in answer.results.select("depot", "window_start", "scans").rows()}
    batched["north", START] -= 1
    assert sorted((*place, n) for place, n in batched.items()) == counts
    assert sorted(pl.concat(answer.dead).get_column("reason")) == sorted(BROKEN.values())
    assert second.dead is not None
    assert sorted(second.dead.get_column("reason")) == sorted(BROKEN.values())
    assert second.late is not None
    assert second.late.height == 1


def test_one_job_reads_the_envelope_and_json_and_another_the_same_topic_as_text(bench: Bench) -> None:
    readings = Stream.topic(
        "mixed-readings", format=json(schema={"line": pl.String}, time=header_time("at", "ms"))
    ).watermark(bounded("0s"), idle_after="1min")
    positions = Stream.topic("mixed-positions", VehiclePosition).watermark(bounded("0s"), idle_after="1min")
    both = readings.select("line").union(positions.select("line"))
    mixed = Job("mixed", both.key_by("line").window(tumbling("10s")).aggregate(rows=count()))
    lines = Stream.topic("mixed-readings", format=text("line")).watermark(bounded("0s"), idle_after="1min")
    texts = Job("mixed-texts", lines.key_by("line").window(tumbling("10s")).aggregate(rows=count()), format=json())
    for job in (mixed, texts):
        bench.prepare(job)

    def send(second: int) -> None:
        at = START + timedelta(seconds=second)
        stamp = int(at.timestamp() * 1_000)
        headers = [("at", str(stamp).encode())]
        produce(bench, "mixed-readings", [b'{"line":"6"}'] * 4, headers=headers, timestamp=stamp)
        rows = pl.DataFrame({"event_time": [at] * 4, "line": ["6"] * 4, "vehicle_id": ["a"] * 4})
        for partition in range(4):
            bench.send_partition("mixed-positions", rows.head(1), VehiclePosition, partition)

    send(5)
    send(15)
    bench.run_to(mixed, texts, watermark=instant(START + timedelta(seconds=15)))
    send(6)
    send(25)
    bench.run_to(mixed, texts, watermark=instant(START + timedelta(seconds=25)))

    results = bench.read(mixed.result_topic).sort("window_start")
    assert results.select("line", "rows").rows() == [("6", 8)] * 2
    lates = bench.read(mixed.late_topic)
    assert (
        lates.filter(pl.col("record_topic") == "mixed-readings").get_column("record_value").to_list()
        == [b'{"line":"6"}'] * 4
    )
    events = lates.filter(pl.col("record_topic").is_null()).get_column("event").to_list()
    assert [VehiclePosition.FromString(event["details"]["value"]).vehicle_id for event in events] == ["a"] * 4
    assert [row["rows"] for _, row, _ in consume(bench, texts.result_topic, 2)] == [4, 4]
