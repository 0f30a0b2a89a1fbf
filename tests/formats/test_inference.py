"""What is told of records: the format, the schema, the time, and what could not be told."""

from __future__ import annotations

import json as plain_json
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.events import Codec
from headrace.formats.inference import Inference, SampleRecord, infer
from headrace.formats.json_shape import number_pattern, text_pattern
from headrace_transit.schemas import VehiclePosition

KAFKA = 1_772_352_000_000_000
AT = datetime(2026, 3, 1, tzinfo=UTC)


def look(*values: bytes | None, kind: Any = None, headers: tuple[tuple[str, bytes | None], ...] = ()) -> Inference:
    found = infer([SampleRecord(value, None, headers, KAFKA) for value in values], kind)
    assert found.records == len(values)
    if found.code:
        namespace: dict[str, Any] = {}
        exec(found.code, namespace)  # noqa: S102  it is there to be pasted
        assert namespace["records"] == found.format, "what is printed is what was tried"
    return found


def objects(*contents: Any) -> Inference:
    return look(*(plain_json.dumps(content).encode() for content in contents))


def test_types_are_widened_over_records() -> None:
    found = objects(
        {"n": 1, "x": 1, "deep": {"a": [1], "b": None}, "day": "2026-03-01", "at": "2026-03-01T08:00:00Z"},
        {"n": 2**63, "x": 1.5, "deep": {"a": [2.5, None], "b": True}, "day": "2026-03-02", "at": "2026-03-01T08:00Z"},
    )
    assert found.kind == "json"
    assert found.format is not None
    assert dict(found.format.schema) == {
        "n": pl.UInt64,
        "x": pl.Float64,
        "deep": pl.Struct({"a": pl.List(pl.Float64), "b": pl.Boolean}),
        "day": pl.Date,
    }
    assert (found.read, found.times) == (2, (("at", "iso8601"),))


def test_what_could_not_be_told_is_named() -> None:
    found = objects(
        {"id": 1, "mixed": 1, "never": None, "none": [], "kafka_id": 1, "big": 1 << 70, "o": {}},
        {"id": 2, "mixed": "x"},
    )
    notes = "\n".join(found.notes)
    assert "mixed is left out: it is a text in 1, a number in 1" in notes
    assert "never is left out: it is null" in notes
    assert "none is left out: its arrays are empty" in notes
    assert "kafka_id is left out: Headrace uses the name itself" in notes
    assert "o is left out: its objects are empty" in notes
    assert "big holds whole numbers beyond 64 bits" in notes
    assert found.read == 2
    many = objects(*({"of": {f"k{n}": n}} for n in range(60)), {"id": 1})
    assert any("of is left out: it has ever other fields, like a map" in note for note in many.notes)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([{"t": "2026-03-01T08:00:00+01:00"}], ("t", "iso8601")),
        ([{"id": 1_772_352_000, "ts": 1_772_352_000}], ("ts", "s")),
        ([{"meta": {"sent": 1_772_352_000_123}}], ("meta.sent", "ms")),
        ([{"us": 1_772_352_000_123_456}], ("us", "us")),
        ([{"when": "1772352000123"}], ("when", "ms")),
        ([{"at": "01.03.2026 08:00"}], ("at", "%d.%m.%Y %H:%M")),
        ([{"created_at": "2026-03-01T08:00:00Z", "event_time": "2026-03-01T08:00:00Z"}], ("event_time", "iso8601")),
    ],
)
def test_times(values: list[Any], expected: tuple[str, str]) -> None:
    found = objects(*[{"a": 1, **value} for value in values])
    assert found.times[0] == expected
    assert found.read == len(values)


def test_a_time_that_is_not_in_every_record_is_none() -> None:
    found = objects({"a": 1, "at": "2026-03-01T08:00:00Z"}, {"a": 2})
    assert found.times == ()
    assert found.time.startswith("Kafka's timestamp")
    assert found.read == 2
    assert number_pattern(5, 6, "time") is None
    assert text_pattern(["2026-13-01T00:00:00Z"]) is None
    assert text_pattern([]) is None


def test_csv() -> None:
    found = look(b"7;2026-03-01 08:00:00;1.5;true;a", b"8;2026-03-01 08:00:01;2;false;", b"no csv")
    assert found.kind == "csv"
    assert found.format is not None
    assert list(found.format.schema.dtypes()) == [pl.Int64, pl.String, pl.Float64, pl.Boolean, pl.String]
    assert (found.read, found.times) == (2, (("column_2", "iso8601"),))
    assert any("1 of 3 records cannot be read so: the record has 1 fields" in note for note in found.notes)


@pytest.mark.parametrize(
    ("values", "kind", "told"),
    [
        ([b"hello world", b"good bye"], "text", ""),
        ([b"\xff\xfe\x01"], "raw", "neither JSON nor text"),
        ([b"\x00\x00\x00\x00\x07\x02a"], "confluent", "a schema number (7)"),
        ([b'\x00\x00\x00\x00\x07{"a":1}'], "confluent", "what follows is JSON"),
        ([Codec().write(VehiclePosition(vehicle_id="1"), event_time=AT)], "envelope", "VehiclePosition (1)"),
        ([Codec().write(VehiclePosition(), event_time=AT, encoding="json")], "envelope", "VehiclePosition (1)"),
        ([b'{"op":"c","after":{"id":1},"source":{"ts_ms":1772352000000}}'], "debezium", "convert them"),
        ([None, None], "raw", "no record has a value"),
        ([b"{}"], "json", "no record is an object of JSON with a field"),
        ([b"{" * 9_000, b'{"a":' * 9_000], "text", ""),
    ],
)
def test_kinds(values: list[bytes | None], kind: str, told: str) -> None:
    found = look(*values)
    assert found.kind == kind
    assert told in "\n".join(found.notes)


def test_cloudevents_in_both_modes() -> None:
    value = b'{"specversion":"1.0","id":"1","source":"s","type":"t","time":"2026-03-01T08:00:00Z","data":{"a":1}}'
    assert look(value).read == 1
    headers = tuple((f"ce_{name}", b"1.0") for name in ("specversion", "id", "source", "type"))
    binary = look(b'{"a":1}', headers=headers)
    assert (binary.kind, binary.read) == ("cloudevents", 1)
    assert binary.time.startswith("Kafka's timestamp")


def test_most_records_decide_and_the_others_are_counted() -> None:
    found = look(b'{"a":1}', b'{"a":2}', b"\xff", None)
    assert (found.kind, found.read) == ("json", 2)
    assert "json 2, raw 1" in "\n".join(found.notes)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=40),
            st.none(),
            st.recursive(
                st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
                lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
            ).map(lambda content: plain_json.dumps({"a": content}).encode()),
        ),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from([None, "json", "csv", "text", "raw", "cloudevents", "debezium"]),
)
def test_any_records_are_told_something_of(values: list[bytes | None], kind: Any) -> None:
    look(*values, kind=kind)
