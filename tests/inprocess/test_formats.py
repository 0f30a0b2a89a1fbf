"""Topics that others write, in process: values in, results, dead letters and late rows out."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from headrace.errors import PlanError
from headrace.events import Codec
from headrace.formats import Format, Records, csv, header_time, json, kafka_time, raw, text
from headrace.inprocess import Runner, run
from headrace.stream import Stream
from headrace.time import bounded
from headrace.windows import count, tumbling
from headrace.windows import sum as total
from headrace_transit.schemas import VehiclePosition

START = datetime(2026, 3, 1, 8, tzinfo=UTC)
MICROS = int(START.timestamp()) * 1_000_000
SCANS = json(schema={"depot": pl.String, "weight": pl.Float64}, time="at")


def counted(source: Format, key: str = "depot") -> Stream:
    stream = Stream.topic("scans", format=source).watermark(bounded("0s"))
    return stream.key_by(key).window(tumbling("10s")).aggregate(scans=count())


def answer(results: pl.DataFrame, key: str = "depot") -> list[tuple[Any, ...]]:
    start = (pl.col("window_start").cast(pl.Int64) - MICROS) // 1_000_000
    return sorted(results.select(key, start, "scans").rows())


JSON = [
    b'{"depot":"north","weight":1.5,"at":"2026-03-01T08:00:01Z","unknown":[1]}',
    b'{"depot":"north","at":"2026-03-01T09:00:02+01:00"}',
    b'{"depot":"south","weight":2,"at":"2026-03-01T08:00:11Z"}',
]
EXPECTED = [("north", 0, 2), ("south", 10, 1)]


@pytest.mark.parametrize(
    ("source", "values"),
    [
        (SCANS, JSON),
        (
            json(schema={"depot": pl.String}, time="meta.at", time_format="ms"),
            [
                b'{"depot":"%s","meta":{"at":%d}}' % (depot, MICROS // 1_000 + ms)
                for depot, ms in [(b"north", 1_000), (b"north", 9_999), (b"south", 10_000)]
            ],
        ),
        (
            csv({"depot": pl.String, "at": pl.Datetime("us", "UTC")}, time="at"),
            [b"north,2026-03-01T08:00:01Z", b"north,2026-03-01T08:00:02Z", b"south,2026-03-01T08:00:11Z"],
        ),
    ],
    ids=["json", "json in milliseconds, nested", "csv"],
)
def test_values_are_read_and_counted(source: Format, values: list[bytes]) -> None:
    batch = run(counted(source), values)
    assert answer(batch.results) == EXPECTED
    assert batch.dead is None


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "malformed_json"),
        (b"not json", "malformed_json"),
        (b'{"depot":"north"}', "missing_timestamp"),
        (b'{"depot":"north","at":"yesterday"}', "bad_timestamp"),
        (b'{"depot":7,"at":"2026-03-01T08:00:00Z"}', "wrong_type"),
        (None, "empty_value"),
    ],
)
def test_what_cannot_be_read_is_a_dead_letter_and_costs_nobody_else_anything(value: bytes | None, reason: str) -> None:
    batch = run(counted(SCANS), [JSON[0], value, *JSON[1:]])
    assert answer(batch.results) == EXPECTED
    assert batch.dead is not None
    assert batch.dead.select("reason", "value", "topic").rows() == [(reason, value or b"", "scans")]
    assert batch.dead.item(0, "text")


def test_rows_and_values_give_the_same() -> None:
    rows = pl.DataFrame({"depot": ["north"], "weight": [1.0], "event_time": [START], "ingestion_time": [START]})
    runner = Runner(counted(SCANS))
    runner.step(rows)
    runner.step({"scans": {"0": JSON[1:2]}})
    assert answer(runner.finish().results) == [("north", 0, 2)]


def test_late_rows_are_kept() -> None:
    runner = Runner(counted(SCANS))
    runner.step(JSON)
    late = runner.step([JSON[0]]).late
    assert late is not None
    assert late.select("depot", "weight", "event_time").rows() == [("north", 1.5, START.replace(second=1))]


def test_time_from_kafka_and_from_a_header() -> None:
    at = [START.replace(second=second) for second in (1, 2, 11)]
    values = pa.array([b'{"depot":"north"}', b'{"depot":"north"}', b'{"depot":"south"}'], pa.binary())
    times = pa.array(at, pa.timestamp("us", "UTC"))
    by_kafka = run(counted(json(schema={"depot": pl.String}, time=kafka_time())), Records(values, timestamps=times))
    assert answer(by_kafka.results) == EXPECTED
    headers = pa.array(
        [[{"key": "at", "value": each.isoformat().encode()}] for each in at],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    source = json(schema={"depot": pl.String}, time=header_time("at"))
    assert answer(run(counted(source), Records(values, headers=headers)).results) == EXPECTED


def test_values_alone_arrive_at_the_time_of_the_step() -> None:
    runner = Runner(counted(text("word"), key="word"))
    runner.step([b"one", b"two", b"one"], now=MICROS + 1_000_000)
    assert answer(runner.finish().results, "word") == [("one", 0, 2), ("two", 0, 1)]
    assert (dead := Runner(counted(text("word"), key="word")).step([b"one"]).dead) is not None
    assert dead.item(0, "reason") == "missing_timestamp"


def test_raw_values_and_the_envelope_are_formats_like_others() -> None:
    stream = Stream.topic("blobs", format=raw()).watermark(bounded("0s"))
    sized = stream.with_columns(size=pl.col("value").bin.size("b").cast(pl.Int64)).key_by("size")
    runner = Runner(sized.window(tumbling("10s")).aggregate(scans=count()))
    runner.step([b"\xff", b"\x00", b"abc"], now=MICROS)
    assert answer(runner.finish().results, "size") == [(1, 0, 2), (3, 0, 1)]

    rows = pl.DataFrame({"event_time": [START] * 2, "vehicle_id": ["a", "b"], "line": ["6", "6"], "speed": [1.0, 2.0]})
    values = [*Codec().encode(rows, VehiclePosition).to_pylist(), b"rubbish"]
    positions = Stream.topic("positions", VehiclePosition).watermark(bounded("0s")).key_by("line")
    batch = run(positions.window(tumbling("10s")).aggregate(speed=total("speed")), values)
    assert batch.results.select("line", "speed").rows() == [("6", 3.0)]
    assert batch.dead is not None
    assert batch.dead.get_column("reason").to_list() == ["malformed"]


def test_a_topic_in_two_formats_at_once() -> None:
    lines = Stream.topic("scans", format=text("line")).watermark(bounded("0s")).with_columns(depot=pl.lit("any"))
    both = Stream.topic("scans", format=SCANS).watermark(bounded("0s")).select("depot").union(lines.select("depot"))
    runner = Runner(both.key_by("depot").window(tumbling("10s")).aggregate(scans=count()))
    dead = runner.step([*JSON, b"not json"], now=MICROS).dead
    assert answer(runner.finish().results) == [("any", 0, 4), *EXPECTED]
    assert dead is not None
    assert dead.height == 1


@pytest.mark.parametrize(
    ("build", "complaint"),
    [
        (lambda: Stream.topic("t", VehiclePosition, format=SCANS), "VehiclePosition beside it"),
        (lambda: Stream.topic("t", schema={"a": pl.String}, format=SCANS), "schema= beside it"),
        (lambda: Stream.topic("t", format=json()), "no columns to read"),
        (lambda: Stream.topic("t", format=text("kafka_offset")), "cannot be called 'kafka_offset'"),
        (lambda: Stream.topic("t", format=text("original_value")), "cannot be called 'original_value'"),
        (
            lambda: Runner(
                Stream.rows("t", {"a": pl.String})
                .watermark(bounded(0))
                .key_by("a")
                .window(tumbling("1s"))
                .aggregate(n=count())
            ).step([b"x"]),
            "no topic",
        ),
    ],
)
def test_refusals(build: Any, complaint: str) -> None:
    with pytest.raises(PlanError, match=complaint):
        build()
