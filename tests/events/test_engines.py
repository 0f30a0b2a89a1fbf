"""The fast engine against protobuf's own classes, in the corners of the wire format where decoders differ."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from headrace.events import Codec, Event, Layout, TypeRegistry
from headrace.events import reader as reader_module
from headrace.events.reader import FAST_LIMIT, Reader
from headrace.events.registry import BUILT_IN
from headrace_transit.schemas import VehiclePosition

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def both(rich: Any) -> tuple[Codec, Codec]:
    return Codec(TypeRegistry(rich), engine="arrow"), Codec(TypeRegistry(rich), engine="python")


def wrap(details: bytes, name: str = "acme.Rich") -> bytes:
    return Event(
        event_timestamp={"seconds": 5}, details={"type_url": f"x/{name}", "value": details}
    ).SerializeToString()


@pytest.mark.parametrize(
    "details",
    [
        pytest.param(b"\x08\x01\x08\x02", id="a number twice: the last counts"),
        pytest.param(
            b"\x92\x01\x09\x09\x00\x00\x00\x00\x00\x00\xf0\x3f\x92\x01\x05\x15\x00\x00\x00\x3f",
            id="a message twice: merged",
        ),
        pytest.param(b"\xca\x01\x02\x08\x05\xca\x01\x02\x10\x07", id="a timestamp in two parts"),
        pytest.param(b"\xb0\x01\x05\xba\x01\x01a", id="two members of a oneof: the last counts"),
        pytest.param(b"\xba\x01\x01a\xb0\x01\x05", id="and the other way round"),
        pytest.param(b"\xc2\x01\x00\xb0\x01\x05\xc2\x01\x00", id="a message of a oneof, unset and set again"),
        pytest.param(b"\x80\x01\x02\x80\x01\x04", id="unpacked numbers"),
        pytest.param(b"\x82\x01\x02\x02\x04\x80\x01\x06", id="packed and unpacked numbers"),
        pytest.param(b"\x82\x01\x00", id="packed nothing"),
        pytest.param(b"\x82\x01\x02\x02\x84", id="a packed number cut off"),
        pytest.param(b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", id="minus one as ten bytes"),
        pytest.param(b"\x08\xff\xff\xff\xff\x1f", id="more bits than the type has"),
        pytest.param(b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", id="a number of eleven bytes"),
        pytest.param(b"\x0d\x01\x00\x00\x00", id="the wrong wire type for a number"),
        pytest.param(b"\x3a\x02\xff\xfe", id="text that is no UTF-8"),
        pytest.param(b"\x3a\x03\xed\xa0\x80", id="text with a surrogate"),
        pytest.param(b"\x68\x63\x78\x01", id="an enum value nobody knows"),
        pytest.param(b"\x68\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", id="a negative enum value"),
        pytest.param(b"\xa2\x01\x00", id="a map entry without key and value"),
        pytest.param(b"\xa2\x01\x05\x10\x05\x0a\x01a", id="a map entry with value before key"),
        pytest.param(
            b"\xa2\x01\x05\x0a\x01a\x10\x05\xa2\x01\x05\x0a\x01a\x10\x06", id="a map key twice: the last counts"
        ),
        pytest.param(b"\xa2\x01\x07\x0a\x01a\x10\x05\x18\x01", id="a map entry with an unknown field"),
        pytest.param(b"\x00", id="field number nought"),
        pytest.param(b"\x0e", id="a wire type that there is not"),
        pytest.param(b"\xfb\x0f\x08\x01\xfc\x0f", id="an unknown group, closed"),
        pytest.param(b"\xfb\x0f\x08\x01", id="an unknown group, left open"),
        pytest.param(b"\xfc\x0f", id="the end of a group that never began"),
        pytest.param(b"\xca\x01\x0c\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x10\x01", id="a timestamp out of range"),
        pytest.param(b"\xca\x01\x06\x10\x80\x94\xeb\xdc\x03", id="a second of 10^9 nanoseconds"),
        pytest.param(b"\xca\x01\x0b\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", id="minus one nanosecond"),
        pytest.param(b"\xda\x01\x0b\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", id="a span of minus one nanosecond"),
        pytest.param(b"\xda\x01\x0d\x08\x01\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", id="a span of two signs"),
        pytest.param(
            b"\x9a\x01\x0d\x1a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f", id="a bad timestamp inside a list"
        ),
        pytest.param(b"\xfa\x01\x06\x12\x04\x12\x02\x12\x00", id="a tree"),
    ],
)
def test_the_engines_agree(both: tuple[Codec, Codec], details: bytes) -> None:
    fast, slow = (codec.decode([wrap(details)]) for codec in both)
    assert fast.frames.keys() == slow.frames.keys()
    assert fast.dead.equals(slow.dead)
    assert all(fast.frames[name].equals(slow.frames[name]) for name in fast.frames)


def test_the_one_known_difference(both: tuple[Codec, Codec]) -> None:
    # A group whose end has another number than its beginning: no writer makes it, ptars skips it, protobuf refuses it.
    fast, slow = (codec.decode([wrap(b"\xfb\x0f\x08\x01\xf4\x0f")]) for codec in both)
    assert fast.dead.is_empty()
    assert slow.dead["reason"].to_list() == ["malformed_details"]


def test_without_ptars_protobufs_classes_do_the_work(monkeypatch: pytest.MonkeyPatch, positions: Any) -> None:
    frame = positions(50)
    types = TypeRegistry(VehiclePosition)
    expected = Codec(types, engine="arrow").decode(Codec(types, engine="arrow").encode(frame, VehiclePosition))
    monkeypatch.setattr(reader_module, "ptars", None)
    codec = Codec(types)
    assert codec.decode(codec.encode(frame, VehiclePosition)).frame.equals(expected.frame)
    assert Reader(Layout(VehiclePosition.DESCRIPTOR)).engine == "python"  # type: ignore[arg-type]
    with pytest.raises(ImportError, match="ptars"):
        Codec(engine="arrow")


def test_a_ptars_that_maps_types_differently_is_not_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    class Handler:
        def schema(self) -> pa.Schema:
            return pa.schema([pa.field("vehicle_id", pa.large_string())])

    class Pool:
        def __init__(self, files: Any) -> None: ...

        def get_for_message(self, descriptor: Any) -> Handler:
            return Handler()

    class Stranger:
        HandlerPool = Pool

    monkeypatch.setattr(reader_module, "ptars", Stranger)
    assert Reader(Layout(VehiclePosition.DESCRIPTOR)).engine == "python"  # type: ignore[arg-type]


@pytest.mark.parametrize("message", BUILT_IN, ids=lambda message: message.DESCRIPTOR.name)
def test_ptars_takes_every_schema_of_ours(message: Any) -> None:
    assert Reader(Layout(message.DESCRIPTOR)).engine == "arrow"


def test_long_values_take_the_safe_way_and_keep_their_place(both: tuple[Codec, Codec], rich: Any) -> None:
    texts = ["short", "x" * FAST_LIMIT, "short again", "y" * (FAST_LIMIT * 3)]
    values = [both[0].write(rich(text=text), event_time=NOON) for text in texts]
    values.insert(2, b"rubbish")
    values.append(b"\x0b" * (FAST_LIMIT + 1))
    fast, slow = (codec.decode(values, types=["Rich"], columns=["text"]) for codec in both)
    assert fast.frame["text"].to_list() == texts
    assert fast.dead["reason"].to_list() == ["malformed", "malformed"]
    assert fast.frame.equals(slow.frame)
    assert fast.dead.equals(slow.dead)
