"""Protobuf messages of one's own: columns, times, the compiler, and the road to a task."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from google.protobuf import descriptor_pb2, message_factory, wrappers_pb2
from tests.formats.samples import records, rows

from headrace.errors import MissingExtraError, SchemaError
from headrace.formats import header_time, protobuf
from headrace.formats.proto_files import find_message

if TYPE_CHECKING:
    import pyarrow as pa
    from google.protobuf.message import Message

    from headrace.formats.protobuf import ProtobufFormat

PROTOS = Path(__file__).with_name("protos")
PARCEL = PROTOS / "parcel.proto"
AT = datetime(2026, 3, 1, 8, 0, 1, 250_000, tzinfo=UTC)


def message_class(form: ProtobufFormat) -> type[Message]:
    return message_factory.GetMessageClass(find_message(form.files, form.message))


SCANS = protobuf(PARCEL, message="Scan", time="scanned_at")
SCAN: Any = message_class(SCANS)


def scan(**fields: Any) -> Any:
    made = SCAN(**fields)
    made.scanned_at.FromDatetime(AT)
    return made


def test_every_kind_of_field_is_a_column() -> None:
    full = scan(parcel="a", kind=2, belt=0, labels=["x", "y"], counts={"b": 2, "a": 1}, robot=7)
    full.place.depot = "north"
    full.took.FromTimedelta(timedelta(seconds=-1.5))
    full.weight.value = 0.5
    full.parts.add(name="lid").at.FromDatetime(AT)
    first, second = rows(SCANS, full.SerializeToString(), scan(kind=9).SerializeToString())
    assert first == {
        "parcel": "a",
        "place": {"depot": "north", "lat": 0.0},
        "kind": "BOX",
        "scanned_at": AT,
        "took": timedelta(seconds=-1.5),
        "weight": 0.5,
        "belt": 0,
        "tries": 0,
        "labels": ["x", "y"],
        "counts": [{"key": "a", "value": 1}, {"key": "b", "value": 2}],
        "person": None,
        "robot": 7,
        "parts": [{"name": "lid", "at": AT}],
    }
    # What is not set is null where the schema can tell, and protobuf's default elsewhere.
    assert isinstance(second, dict)
    assert second["kind"] == "9"
    absent = ("place", "took", "weight", "belt", "person", "robot")
    assert [second[name] for name in absent] == [None] * len(absent)
    assert (second["parcel"], second["tries"], second["labels"], second["counts"]) == ("", 0, [], [])


def test_the_event_time_is_the_field() -> None:
    frame = SCANS.decode(records(scan().SerializeToString())).frame
    assert frame.item(0, "event_time") == AT


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"\xff", "malformed"),
        (None, "empty_value"),
        (SCAN(parcel="a").SerializeToString(), "missing_timestamp"),
        (SCAN(scanned_at={"seconds": 1 << 60}).SerializeToString(), "bad_timestamp"),
        (b"\x0a\x01\xff", "malformed"),
    ],
    ids=["garbage", "tombstone", "no time", "a time that no clock shows", "wrong UTF-8"],
)
def test_what_cannot_be_read_is_rejected_alone(value: bytes | None, reason: str) -> None:
    good = scan(parcel="a").SerializeToString()
    outcomes = rows(SCANS, good, value, good)
    assert outcomes[1] == reason
    assert [outcome["parcel"] for outcome in (outcomes[0], outcomes[2]) if isinstance(outcome, dict)] == ["a", "a"]


def test_a_time_that_is_a_number_in_a_message_and_zero_is_none() -> None:
    form = protobuf(PARCEL, message="Other", time="at_ms", time_format="ms", columns=[])
    kind: Any = message_class(form)
    decoded = form.decode(records(kind(at_ms=1_500).SerializeToString(), kind().SerializeToString()))
    assert decoded.frame.get_column("event_time").to_list() == [datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)]
    assert [str(each.reason) for each in decoded.rejections.values()] == ["missing_timestamp"]
    nested = protobuf(PARCEL, message="Other", time="scan.scanned_at", columns=["at_ms"])
    decoded = nested.decode(records(kind(scan={"scanned_at": AT}).SerializeToString()))
    assert decoded.frame.row(0, named=True)["event_time"] == AT
    assert decoded.frame.columns == ["event_time", "ingestion_time", "at_ms"]


def test_a_compiled_class_a_header_and_kafkas_timestamp() -> None:
    plain = protobuf(wrappers_pb2.StringValue)
    assert rows(plain, wrappers_pb2.StringValue(value="x").SerializeToString()) == [{"value": "x"}]
    by_header = protobuf(wrappers_pb2.StringValue, time=header_time("at", "s"))
    assert by_header.reads == {"timestamp", "headers"}
    assert rows(by_header, b"", b"", headers=[{"at": b"1"}, {}]) == [{"value": ""}, "missing_timestamp"]


def test_rows_are_written_and_read_by_protobufs_own_classes() -> None:
    frame = pl.DataFrame(
        {
            "event_time": [AT, AT],
            "parcel": ["a", None],
            "kind": ["LETTER", "BOX"],
            "tries": pl.Series([3, 4], dtype=pl.UInt8),
            "place": [{"depot": "north", "lat": 1.0}, None],
            "counts": [[{"key": "a", "value": 1}], []],
        }
    )
    first, second = (SCAN.FromString(value) for value in SCANS.encode(frame).to_pylist())
    assert (first.parcel, first.kind, first.tries, first.place.depot, dict(first.counts)) == (
        "a",
        1,
        3,
        "north",
        {"a": 1},
    )
    assert first.scanned_at.ToDatetime(UTC) == AT
    assert (second.parcel, second.kind, second.HasField("place")) == ("", 2, False)
    with pytest.raises(SchemaError, match="no field for the column 'speed'"):
        SCANS.encode(frame.with_columns(speed=1.0))
    with pytest.raises(SchemaError, match="name that the enum does not have"):
        SCANS.encode(frame.with_columns(kind=pl.lit("PALLET")))


@pytest.mark.parametrize(("pattern", "expected"), [("s", 2), ("ms", 1_500), ("us", 1_500_000), ("ns", 1_500_000_000)])
def test_event_times_are_written_as_counts(pattern: str, expected: int) -> None:
    form = protobuf(PARCEL, message="Other", time="at_ms", time_format=pattern, columns=[])
    at = datetime(1970, 1, 1, 0, 0, 1 if pattern != "s" else 2, 500_000, tzinfo=UTC)
    value = form.encode(pl.DataFrame({"event_time": [at]}))[0].as_py()
    kind: Any = message_class(form)
    assert kind.FromString(value).at_ms == expected


def test_a_pickled_format_needs_neither_the_file_nor_the_compiler(tmp_path: Path) -> None:
    stored = tmp_path / "format"
    stored.write_bytes(pickle.dumps(SCANS))
    program = (
        "import pathlib, pickle, sys\n"
        "sys.modules['grpc_tools'] = None\n"
        f"form = pickle.loads(pathlib.Path({str(stored)!r}).read_bytes())\n"
        "print(len(form.schema), form.text)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path, env=os.environ
    )
    assert done.stdout.strip() == f"{len(SCANS.schema)} protobuf parcels.Scan, time from scanned_at"


def test_equal_schemas_are_equal_formats_and_nothing_is_left_around(tmp_path: Path) -> None:
    again = protobuf(str(PARCEL), message="parcels.Scan", time="scanned_at")
    assert again == SCANS
    assert hash(again) == hash(SCANS)
    assert protobuf(PARCEL, message="Other") != SCANS
    (tmp_path / "one.proto").write_text('syntax = "proto3"; message One { int32 a = 1; }')
    assert protobuf(tmp_path / "one.proto").schema == {"a": pl.Int32}
    assert [path.name for path in tmp_path.iterdir()] == ["one.proto"]


def test_imports_are_searched_in_include_directories(tmp_path: Path) -> None:
    inner = tmp_path / "acme" / "events"
    inner.mkdir(parents=True)
    (tmp_path / "acme" / "unit.proto").write_text('syntax = "proto3"; package acme; enum Unit { KG = 0; LB = 1; }')
    (inner / "load.proto").write_text(
        'syntax = "proto3"; package acme; import "acme/unit.proto"; message Load { Unit unit = 1; }'
    )
    with pytest.raises(SchemaError, match=r"(?s)load.proto cannot be compiled:.*acme/unit.proto: File not found"):
        protobuf(inner / "load.proto")
    assert protobuf(inner / "load.proto", include=[tmp_path]).schema == {"unit": pl.String}


def test_fields_that_the_stream_has_itself(tmp_path: Path) -> None:
    path = tmp_path / "ping.proto"
    path.write_text(
        'syntax = "proto3"; import "google/protobuf/timestamp.proto";'
        "message Ping { google.protobuf.Timestamp event_time = 1; int32 n = 2; }"
    )
    with pytest.raises(SchemaError, match="a field 'event_time', a name that every stream has itself"):
        protobuf(path)
    assert protobuf(path, columns=["n"]).schema == {"n": pl.Int32}
    form = protobuf(path, time="event_time")
    assert form.schema == {"n": pl.Int32}
    frame = pl.DataFrame({"event_time": [AT], "n": [1]})
    assert (
        form.decode(pa_records(form.encode(frame)))
        .frame.select("event_time", "n")
        .equals(frame.cast({"event_time": pl.Datetime("us", "UTC"), "n": pl.Int32}))
    )


def pa_records(values: pa.BinaryArray) -> Any:
    return records(*values.to_pylist())


def test_a_oneof_shows_the_member_that_came_last() -> None:
    both = scan(person="joe").SerializeToString() + SCAN(robot=3).SerializeToString()
    (row,) = rows(SCANS, both)
    assert isinstance(row, dict)
    assert (row["person"], row["robot"]) == (None, 3)


@pytest.mark.parametrize(
    ("build", "complaint"),
    [
        (lambda: protobuf("nowhere.proto"), r"no schema nowhere.proto \(looked for at /"),
        (lambda: protobuf(PARCEL), "has 2 messages"),
        (lambda: protobuf(PARCEL, message="Parcel"), "no message 'Parcel'.*There are: parcels.Scan"),
        (lambda: protobuf(PARCEL, message="Scan", include=["/nowhere"]), "/nowhere, which is no directory"),
        (lambda: protobuf(dict), "is no message type"),  # type: ignore[arg-type]
        (lambda: protobuf(SCAN, message="Other"), "the class of parcels.Scan and message='Other'"),
        (lambda: protobuf(SCAN, columns=["speed"]), "no field 'speed'"),
        (lambda: protobuf(SCAN, time="at"), "no field 'at'"),
        (lambda: protobuf(SCAN, time="place.at"), "no 'at' in parcels.Scan"),
        (lambda: protobuf(SCAN, time="tries"), "its unit is not known"),
        (lambda: protobuf(SCAN, time="labels"), "which is no time"),
        (lambda: protobuf(descriptor_pb2.UninterpretedOption, time="name"), "which is no time"),
    ],
)
def test_refusals(build: Any, complaint: str) -> None:
    with pytest.raises(SchemaError, match=complaint):
        build()


def test_a_file_with_an_error_is_named_with_the_line(tmp_path: Path) -> None:
    path = tmp_path / "broken.proto"
    path.write_text('syntax = "proto3";\nmessage Broken {\n  strin a = 1;\n}\n')
    with pytest.raises(SchemaError, match=r'broken.proto:3:3: "strin" is not defined'):
        protobuf(path)


def test_without_the_compiler_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.extras.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"headrace\[protobuf\]"):
        protobuf(PARCEL, message="Scan")
