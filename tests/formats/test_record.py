"""Keys, headers and Kafka's figures as columns."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from tests.formats.samples import HEADERS, records, rows

from headrace.errors import PlanError, SchemaError
from headrace.formats import Records, csv, header_time, json, protobuf, raw, record, text
from headrace.formats.headers import header_texts, header_values
from headrace.inprocess import run
from headrace.stream import Job, Stream
from headrace.time import bounded
from headrace.windows import count, tumbling

AT = datetime(2026, 1, 1, 12, tzinfo=UTC)
SCANS = json({"weight": pl.Float64}, key=text("parcel"))


def test_the_key_is_a_column() -> None:
    found = rows(SCANS, b'{"weight":1}', b'{"weight":2}', b"{}", keys=[b"a", None, "zwölf".encode()])
    assert found == [
        {"weight": 1.0, "parcel": "a"},
        {"weight": 2.0, "parcel": None},
        {"weight": None, "parcel": "zwölf"},
    ]


def test_a_key_of_fields() -> None:
    form = csv({"weight": pl.Float64}, key=json(schema={"parcel": pl.String, "depot": pl.Struct({"id": pl.Int64})}))
    found = rows(form, b"1", b"2", b"3", keys=[b'{"parcel":"a","depot":{"id":7}}', b'{"parcel":7}', b""])
    assert found == [{"weight": 1.0, "parcel": "a", "depot": {"id": 7}}, "wrong_type", "malformed_json"]


def test_a_key_that_cannot_be_read_is_said_to_be_the_key_and_the_value_comes_first() -> None:
    decoded = SCANS.decode(records(b"{}", b"{", b"{}", keys=[b"\xff", b"\xff", b"a"]))
    assert {row: each.text.split(":")[0] for row, each in decoded.rejections.items()} == {
        0: "the key",
        1: "the value is no JSON object",
    }
    assert decoded.frame.get_column("parcel").to_list() == ["a"]
    assert decoded.positions is not None
    assert decoded.positions.tolist() == [2]


def test_headers_partition_offset_and_timestamp() -> None:
    form = record(text(), headers=["trace"], partition="p", offset="o", timestamp="sent_at")
    assert form.reads == {"headers", "timestamp"}
    found = rows(form, b"a", b"b", b"c", headers=[{"trace": b"t1"}, {"other": b"x"}, {"trace": b"\xff"}])
    assert found == [
        {"text": "a", "trace": "t1", "p": 3, "o": 100, "sent_at": AT},
        {"text": "b", "trace": None, "p": 3, "o": 101, "sent_at": AT},
        "malformed",
    ]
    alone = form.decode(Records(pa.array([b"a"], pa.binary()), timestamps=pa.array([0], pa.timestamp("us", "UTC"))))
    assert alone.frame.select("trace", "p", "o").row(0) == (None, None, None)


def test_of_headers_of_one_name_the_last_with_a_value_counts_in_any_slice() -> None:
    several: list[Any] = [
        [{"key": "a", "value": b"0"}],
        None,
        [{"key": "a", "value": b"1"}, {"key": "b", "value": b"x"}, {"key": "a", "value": b"2"}],
        [{"key": "a", "value": b"3"}, {"key": "a", "value": None}],
        [],
    ]
    headers = pa.array(several, HEADERS)
    assert header_values(headers, "a", 5).to_pylist() == [b"0", None, b"2", b"3", None]
    assert header_values(headers.slice(1, 3), "a", 3).to_pylist() == [None, b"2", b"3"]
    assert header_texts(headers, "b", 5)[0].to_list() == [None, None, "x", None, None]
    assert header_values(None, "a", 2).to_pylist() == [None, None]


def test_a_job_counts_by_the_key_of_records() -> None:
    stream = Stream.topic("scans", format=SCANS).watermark(bounded("0s")).key_by("parcel")
    counted = stream.window(tumbling("10s")).aggregate(scans=count())
    batch = run(counted, records(b"{}", b"{}", b"{}", b"{}", keys=[b"a", b"b", b"a", b"\xff"]))
    assert sorted(batch.results.select("parcel", "scans").rows()) == [("a", 2), ("b", 1)]
    assert batch.dead is not None
    assert batch.dead.select("reason", "text").rows() == [("malformed", "the key: the value is not UTF-8")]


def test_explain_names_the_key() -> None:
    assert SCANS.text == "json, time from Kafka's timestamp, key as text"
    assert SCANS.name == "json"
    assert SCANS.reads == {"timestamp", "key"}


@pytest.mark.parametrize(
    ("build", "complaint"),
    [
        (lambda: json({"a": pl.Int64}, key=text("a")), "the value and the key both have a column 'a'"),
        (lambda: record(text("a"), headers=["a"]), "the value and the headers both"),
        (lambda: record(text("a"), headers=["b"], offset="b"), "the headers and Kafka's figures both"),
        (lambda: record(text(), offset="event_time"), "every stream has itself"),
        (lambda: json({"a": pl.Int64}, key=json({"b": pl.String}, time="b")), "time of the event from b"),
        (lambda: json({"a": pl.Int64}, key=json({"b": pl.String}, time=header_time("t"))), "from the header t"),
        (lambda: json({"a": pl.Int64}, key=text("b", key=raw("c"))), "reads other parts of a record"),
        (lambda: json({"a": pl.Int64}, key=json()), "has no columns"),
        (lambda: Stream.topic("t", format=record(text(), offset="kafka_offset")), "cannot be called 'kafka_offset'"),
    ],
)
def test_refusals(build: Any, complaint: str) -> None:
    with pytest.raises((SchemaError, PlanError), match=complaint):
        build()


def test_results_are_not_written_with_a_key() -> None:
    stream = Stream.topic("t", format=SCANS).watermark(bounded(0)).key_by("parcel").window(tumbling("1s"))
    with pytest.raises(PlanError, match="the key of a result is the key of the job"):
        Job("scans", stream.aggregate(n=count()), format=json({"a": pl.Int64}, key=text("k")))


def test_every_format_takes_a_key() -> None:
    from google.protobuf import wrappers_pb2

    key = text("k")
    formats = [json({"a": pl.Int64}, key=key), csv({"a": pl.Int64}, key=key), text(key=key), raw(key=key)]
    formats.append(protobuf(wrappers_pb2.StringValue, key=key))
    for form in formats:
        assert form.schema.names()[-1] == "k"
        assert "key" in form.reads
