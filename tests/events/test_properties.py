"""What holds for any data: what is written is read, in both encodings, by both engines, and nothing raises."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.events import Codec, Event, TypeRegistry
from headrace.events.registry import BUILT_IN
from headrace_transit.schemas import StopEvent, VehiclePosition

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
SOME = settings(deadline=None, max_examples=15)
MANY = settings(deadline=None, max_examples=40)
TYPES = [*(message.DESCRIPTOR.full_name for message in BUILT_IN), "acme.Rich"]


@pytest.fixture(scope="module")
def codecs(rich: Any) -> dict[str, Codec]:
    return {"arrow": Codec(TypeRegistry(rich), engine="arrow"), "python": Codec(TypeRegistry(rich), engine="python")}


@pytest.mark.parametrize("encoding", ["binary", "json"])
@pytest.mark.parametrize("name", TYPES)
@SOME
@given(data=st.data())
def test_what_is_written_is_read(
    codecs: dict[str, Codec], messages: Any, as_row: Any, same: Any, name: str, encoding: Any, data: st.DataObject
) -> None:
    codec = codecs["arrow"]
    written = data.draw(st.lists(messages(codec.registry.get(name).descriptor), min_size=1, max_size=4))
    for message in written:
        message.ClearField("columns") if "columns" in message.DESCRIPTOR.fields_by_name else None  # see test_results
    values = [codec.write(message, event_time=NOON, encoding=encoding) for message in written]
    for engine, reader in codecs.items():
        decoded = reader.decode(values, types=[name])
        assert decoded.dead.is_empty(), (engine, decoded.dead["text"].to_list())
        frame = decoded.frame
        for row, message in zip(frame.iter_rows(named=True), written, strict=True):
            expected = {"event_time": NOON, "ingestion_time": None, **as_row(message)}
            expected.pop("columns", None)
            assert same(row, expected), engine
        # And the frame itself: encode -> decode is identity, whichever engine writes or reads.
        for writer in codecs.values():
            again = reader.decode(writer.encode(frame, name, encoding=encoding), types=[name])
            assert again.dead.is_empty()
            assert again.frame.equals(frame)


@MANY
@given(values=st.lists(st.binary(max_size=300), min_size=1, max_size=20))
def test_any_bytes_decode_or_become_a_dead_letter(codecs: dict[str, Codec], values: list[bytes]) -> None:
    outcomes = [_outcome(codec, values) for codec in codecs.values()]
    for decoded in outcomes:
        rows = sum(frame.height for frame in decoded.frames.values())
        assert rows + decoded.dead.height == len(values)


@st.composite
def damaged(draw: st.DrawFn, value: bytes) -> bytes:
    """A value with a few bytes changed, inserted, removed, repeated, or cut off."""
    result = bytearray(value)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(result)))
        change = draw(st.sampled_from(["set", "insert", "remove", "cut", "repeat"]))
        if change == "set" and at < len(result):
            result[at] = draw(st.integers(0, 255))
        elif change == "insert":
            result[at:at] = bytes([draw(st.integers(0, 255))])
        elif change == "remove":
            del result[at : at + 1]
        elif change == "cut":
            del result[at:]
        else:
            result += result[at : at + draw(st.integers(1, 40))]
    return bytes(result)


@pytest.mark.parametrize("name", TYPES)
@MANY
@given(data=st.data())
def test_damaged_events_mean_the_same_to_both_engines(
    codecs: dict[str, Codec], messages: Any, name: str, data: st.DataObject
) -> None:
    codec = codecs["arrow"]
    message = data.draw(messages(codec.registry.get(name).descriptor))
    whole = codec.write(message, event_time=NOON)
    details = Event.FromString(whole).details.value
    if data.draw(st.booleans()):
        value = data.draw(damaged(whole))
    else:
        inner = data.draw(damaged(details))
        event = Event.FromString(whole)
        event.details.value = inner
        value = event.SerializeToString()
    fast, slow = (_outcome(codec, [value]) for codec in codecs.values())
    assert sum(frame.height for frame in fast.frames.values()) + fast.dead.height == 1
    if _refused(slow) and not fast.dead.equals(slow.dead) and _may_hold_group(value):
        return  # the one known difference (see test_engines): ptars went on where protobuf had enough
    assert fast.dead.equals(slow.dead)
    assert fast.frames.keys() == slow.frames.keys()
    assert all(fast.frames[key].equals(slow.frames[key]) for key in fast.frames)


def _outcome(codec: Codec, values: list[bytes]) -> Any:
    return codec.decode(pa.array(values, pa.binary()))


def _refused(decoded: Any) -> bool:
    """Whether protobuf itself found the wire format wrong."""
    return decoded.dead.height == 1 and str(decoded.dead["text"][0]).startswith("Error parsing message")


def _may_hold_group(value: bytes) -> bool:
    """Whether a byte could open a group (wire type 3), whose end ptars does not compare with its beginning."""
    return any(byte & 7 == 3 for byte in value)


LIMIT = 100_000
BAD = {
    "malformed": b"\x0a\xff rubbish",
    "malformed_json": b'{"event_timestamp": 5}',
    "missing_timestamp": Event(details={"type_url": "x/headrace.v1.VehiclePosition"}).SerializeToString(),
    "missing_details": Event(event_timestamp={"seconds": 5}).SerializeToString(),
    "bad_timestamp": Event(
        event_timestamp={"seconds": 2**60}, details={"type_url": "x/headrace.v1.VehiclePosition"}
    ).SerializeToString(),
    "unknown_type": Event(event_timestamp={"seconds": 5}, details={"type_url": "x/acme.Unheard"}).SerializeToString(),
    "malformed_details": Event(
        event_timestamp={"seconds": 5}, details={"type_url": "x/headrace.v1.VehiclePosition", "value": b"\x0a\xff"}
    ).SerializeToString(),
    "empty_value": None,
    "too_large": b"\x0a" * (LIMIT + 1),
}


@pytest.mark.parametrize("reason", BAD)
def test_one_bad_message_in_ten_thousand_costs_only_itself(reason: str, positions: Any) -> None:
    codec = Codec(max_value_bytes=LIMIT)
    frame = positions(10_000)
    good = codec.encode(frame, VehiclePosition).to_pylist()
    for place in (0, 4_321, 9_999):
        values = [*good[:place], BAD[reason], *good[place + 1 :]]
        decoded = codec.decode(values, types=[VehiclePosition])
        assert decoded.dead["reason"].to_list() == [reason]
        assert decoded.frame.select(frame.columns).equals(pl.concat([frame[:place], frame[place + 1 :]]))


def test_many_bad_ones_of_every_kind_leave_the_good_ones_alone(engine: Any, positions: Any) -> None:
    codec = Codec(engine=engine, max_value_bytes=LIMIT)
    frame = positions(1_000)
    values = codec.encode(frame, VehiclePosition).to_pylist()
    stops = codec.encode(frame.select("event_time", "vehicle_id"), StopEvent).to_pylist()
    kinds = list(BAD)
    expected = []
    for row in range(0, 1_000, 7):
        kind = kinds[row // 7 % len(kinds)]
        values[row] = BAD[kind]
        expected.append(kind)
    values[3::7] = stops[3::7]
    decoded = codec.decode(values, types=[VehiclePosition])
    assert decoded.dead["reason"].to_list() == expected
    assert decoded.ignored == {"headrace.v1.StopEvent": len(stops[3::7])}
    rest = [row for row in range(1_000) if row % 7 not in (0, 3)]
    assert decoded.frame.select(frame.columns).equals(frame[rest])


def test_a_batch_of_nothing_but_rubbish(codec: Codec) -> None:
    decoded = codec.decode([b"rubbish %d" % k for k in range(2_000)], types=[VehiclePosition])
    assert decoded.frame.is_empty()
    assert decoded.dead["reason"].value_counts().rows() == [("malformed", 2_000)]
    assert decoded.dead["value"][1_999] == b"rubbish 1999"
