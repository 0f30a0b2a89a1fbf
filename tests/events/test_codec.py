"""What the codec promises to those who call it: frames in, values out, and back."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from headrace.errors import SchemaError
from headrace.events import ENCODING_HEADER, Codec, DeadLetter, Event, Reason, Rejection, TypeRegistry
from headrace_transit.schemas import StopEvent, VehiclePosition

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
VEHICLE = "headrace.v1.VehiclePosition"
STOP = "headrace.v1.StopEvent"


@pytest.mark.parametrize("encoding", ["binary", "json"])
def test_a_frame_comes_back_as_it_was(codec: Codec, positions: Any, encoding: Any) -> None:
    frame = positions(100)
    decoded = codec.decode(codec.encode(frame, VehiclePosition, encoding=encoding), types=[VehiclePosition])
    assert decoded.frame.select(frame.columns).equals(frame)
    assert decoded.dead.is_empty()
    rest = decoded.frame.drop(frame.columns)
    assert rest.select(pl.exclude("operator", "vehicle_number").is_null().all()).row(0) == (True,) * (rest.width - 2)


def test_one_topic_may_mix_encodings_and_types_and_order_stays(codec: Codec, positions: Any) -> None:
    frame = positions(6)
    stops = frame.select("event_time", "vehicle_id", event_type=pl.lit("ARS"))
    binary = codec.encode(frame, VehiclePosition).to_pylist()
    text = codec.encode(frame, VehiclePosition, encoding="json").to_pylist()
    other = codec.encode(stops, StopEvent).to_pylist()
    decoded = codec.decode([binary[0], text[1], other[2], text[3], binary[4], other[5]])
    assert decoded.frames[VEHICLE].select(frame.columns).equals(frame[[0, 1, 3, 4]])
    assert decoded.frames[STOP]["vehicle_id"].to_list() == ["40/2", "40/5"]
    assert decoded.dead.is_empty()


def test_types_that_were_not_asked_for_are_counted_not_lost(codec: Codec, positions: Any) -> None:
    frame = positions(3)
    stops = codec.encode(frame.select("event_time", "vehicle_id"), StopEvent).to_pylist()
    decoded = codec.decode(codec.encode(frame, VehiclePosition).to_pylist() + stops, types=[VehiclePosition])
    assert decoded.frame.height == 3
    assert decoded.ignored == {STOP: 3}
    assert decoded.dead.is_empty()


def test_a_wanted_type_is_there_even_without_rows(codec: Codec) -> None:
    decoded = codec.decode([], types=[VehiclePosition], columns=["vehicle_id"])
    assert decoded.frame.schema == {
        "event_time": pl.Datetime("us", "UTC"),
        "ingestion_time": pl.Datetime("us", "UTC"),
        "vehicle_id": pl.String,
    }
    assert codec.decode([]).frames == {}


def test_only_the_wanted_columns_are_read_in_the_wanted_order(codec: Codec, positions: Any) -> None:
    frame = positions(20)
    values = codec.encode(frame, VehiclePosition)
    decoded = codec.decode(values, types=[VehiclePosition], columns=["speed", "vehicle_id"])
    assert decoded.frame.equals(frame.select("event_time", "ingestion_time", "speed", "vehicle_id"))


def test_what_kafka_says_can_be_kept_beside_the_events(codec: Codec, positions: Any) -> None:
    frame = positions(5)
    values = codec.encode(frame, VehiclePosition).to_pylist()
    values[2] = b"rubbish"
    batch = pa.record_batch(
        {
            "key": pa.array([b"k"] * 5),
            "value": pa.array(values, pa.binary()),
            "topic": pa.array(["input.vehicles"] * 5),
            "partition": pa.array([0, 1, 0, 1, 0], pa.int32()),
            "offset": pa.array([7, 3, 8, 4, 9], pa.int64()),
            "timestamp": pa.array([NOON] * 5, pa.timestamp("us", "Europe/Helsinki")),
        }
    )
    decoded = codec.decode(batch, types=[VehiclePosition], keep=["partition", "offset"], job="test")
    assert decoded.frame["kafka_partition"].to_list() == [0, 1, 1, 0]
    assert decoded.frame["kafka_offset"].to_list() == [7, 3, 4, 9]
    assert decoded.dead.to_dicts() == [
        {
            "reason": "malformed",
            "text": decoded.dead["text"][0],
            "value": b"rubbish",
            "value_size": 7,
            "key": b"k",
            "key_size": 1,
            "topic": "input.vehicles",
            "partition": 0,
            "offset": 8,
            "record_timestamp": NOON,
            "job": "test",
            "event_type": None,
        }
    ]
    with pytest.raises(SchemaError, match=r"cannot keep \['offset'\]"):
        codec.decode(batch.select(["value"]), keep=["offset"])


def test_batches_may_be_chunked_sliced_or_large(codec: Codec, positions: Any) -> None:
    frame = positions(10)
    values = codec.encode(frame, VehiclePosition)
    expected = codec.decode(values, types=[VehiclePosition]).frame
    for form in (
        pa.chunked_array([values.slice(0, 4), values.slice(4)]),
        values.cast(pa.large_binary()),
        pa.table({"value": pa.chunked_array([values.slice(0, 4), values.slice(4)])}),
        values.to_pylist(),
    ):
        assert codec.decode(form, types=[VehiclePosition]).frame.equals(expected)
    assert codec.decode(values.slice(3, 4), types=[VehiclePosition]).frame.equals(expected[3:7])


def test_a_header_overrules_the_guess_and_an_unknown_one_is_a_dead_letter(codec: Codec, positions: Any) -> None:
    frame = positions(4)
    binary, text = (codec.encode(frame, VehiclePosition, encoding=e).to_pylist() for e in ("binary", "json"))

    def header(value: bytes | None) -> list[dict[str, Any]]:
        return [{"key": "other", "value": b"x"}, {"key": ENCODING_HEADER, "value": value}]

    # Other tools write JSON with a blank in front; only the header tells.
    batch = pa.record_batch(
        {
            "value": pa.array([b" " + text[0], binary[1], text[2], binary[3], text[0]], pa.binary()),
            "headers": pa.array(
                [header(b"json"), None, [], header(b"avro"), header(b"binary")],
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            ),
        }
    )
    decoded = codec.decode(batch, types=[VehiclePosition])
    assert decoded.frame["vehicle_id"].to_list() == ["40/0", "40/1", "40/2"]
    assert decoded.dead["reason"].to_list() == ["unknown_encoding", "malformed"]


def test_no_binary_event_begins_with_a_brace() -> None:
    # The guess rests on this: 0x7B is the tag of field 15 as a group, and the envelope promises never to have it.
    reserved = [(r.start, r.end) for r in _proto(Event).reserved_range]
    assert (15, 16) in reserved
    assert all(field.number != 15 for field in Event.DESCRIPTOR.fields)


def _proto(message: Any) -> Any:
    from google.protobuf import descriptor_pb2

    proto = descriptor_pb2.DescriptorProto()
    message.DESCRIPTOR.CopyToProto(proto)
    return proto


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"colour": pl.lit("red")}, "no field for column 'colour'"),
        ({"delay": pl.lit(2**40)}, "column 'delay'"),
        ({"heading": pl.lit(1.5)}, "column 'heading'"),
        ({"event_time": pl.lit(None, pl.Datetime("us", "UTC"))}, "'event_time' has nulls"),
        ({"event_time": pl.lit(datetime(2026, 1, 1))}, "no time zone"),  # noqa: DTZ001  a naive time is the point
        ({"event_time": pl.lit(2**62).cast(pl.Datetime("us", "UTC"))}, "out of protobuf's range"),
    ],
)
def test_a_frame_that_does_not_fit_is_refused(codec: Codec, positions: Any, change: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        codec.encode(positions(2).with_columns(**change), VehiclePosition)


def test_a_frame_without_event_time_is_refused(codec: Codec) -> None:
    with pytest.raises(SchemaError, match="no column 'event_time'"):
        codec.encode(pl.DataFrame({"vehicle_id": ["a"]}), VehiclePosition)


def test_mistakes_of_the_caller_are_named(codec: Codec) -> None:
    with pytest.raises(SchemaError, match="no field 'colour'"):
        codec.decode([], types=[VehiclePosition], columns=["colour"])
    with pytest.raises(SchemaError, match=r"'acme\.Ping' is not registered"):
        codec.decode([], types=["acme.Ping"])
    with pytest.raises(SchemaError, match="no column 'value'"):
        codec.decode(pa.table({"a": [1]}))
    with pytest.raises(SchemaError, match="0 frames"):
        _ = codec.decode([]).frame


def test_single_events_for_tools(codec: Codec) -> None:
    payload = VehiclePosition(vehicle_id="40/456", speed=1.5)
    for encoding in ("binary", "json"):
        value = codec.write(payload, event_time=NOON, ingestion_time=NOON + timedelta(seconds=1), encoding=encoding)  # type: ignore[arg-type]
        event = codec.read(value)
        assert isinstance(event, Event)
        assert event.event_timestamp.ToDatetime(UTC) == NOON
        assert codec.payload(event) == payload
        shown = json.loads(codec.to_json(value))
        assert shown == {
            "event_timestamp": "2026-06-01T12:00:00Z",
            "ingestion_timestamp": "2026-06-01T12:00:01Z",
            "details": {"@type": f"type.googleapis.com/{VEHICLE}", "vehicle_id": "40/456", "speed": 1.5},
        }
    assert codec.write(payload, event_time=1_780_315_200_000_000) == codec.write(payload, event_time=NOON)
    with pytest.raises(SchemaError, match="no time zone"):
        codec.write(payload, event_time=datetime(2026, 1, 1))  # noqa: DTZ001  a naive time is the point


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, Reason.EMPTY_VALUE),
        (b"rubbish", Reason.MALFORMED),
        (b"{rubbish", Reason.MALFORMED_JSON),
        (b"{}", None),
        (
            Event(details={"type_url": "x/headrace.v1.StopEvent", "value": b"\xff"}).SerializeToString(),
            Reason.MALFORMED_DETAILS,
        ),
        (Event(details={"type_url": "x/acme.Ping", "value": b"\xff"}).SerializeToString(), None),
        (Event(event_timestamp={"seconds": 2**62}).SerializeToString(), Reason.NO_JSON_FORM),
    ],
)
def test_tools_can_show_anything(codec: Codec, value: bytes | None, reason: Reason | None) -> None:
    shown = json.loads(codec.to_json(value))
    assert (shown["dead_letter"]["reason"] if reason else None) == reason
    assert ("dead_letter" in shown) == (reason is not None)


def test_dead_letters_go_on_a_topic_like_any_event(codec: Codec) -> None:
    dead = codec.decode([b"rubbish", None]).dead
    decoded = codec.decode(codec.encode_dead_letters(dead, now=1_000_000), types=[DeadLetter])
    assert decoded.frame.select(dead.columns).equals(dead)
    assert decoded.frame["event_time"].to_list() == [datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)] * 2


def test_a_codec_can_be_sent_to_a_worker_with_the_types_of_its_user(engine: Any, schema: Any) -> None:
    ping = schema("message Ping { optional int32 a = 1; }", "Ping")
    original = Codec(TypeRegistry(ping), engine=engine)
    value = original.write(ping(a=7), event_time=NOON)
    copy = pickle.loads(pickle.dumps(original))  # noqa: S301  our own bytes
    assert copy.engine == engine
    assert copy.decode([value], types=["Ping"]).frame["a"].to_list() == [7]


def test_read_says_why_not(codec: Codec) -> None:
    assert Codec(max_value_bytes=3).read(b"1234") == Rejection(Reason.TOO_LARGE, "4 bytes, the limit is 3")
    missing = codec.payload(Event())
    assert isinstance(missing, Rejection)
    assert missing.reason is Reason.MISSING_DETAILS
    unknown = codec.payload(Event(details={"type_url": "x/acme.Ping"}))
    assert unknown == Rejection(Reason.UNKNOWN_TYPE, "type 'x/acme.Ping' is not registered", "acme.Ping")
