"""What the tests of the codec share: codecs of both engines, sample frames, messages of any schema by hypothesis."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc_tools
import polars as pl
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from grpc_tools import protoc
from hypothesis import strategies as st

from headrace.events import Codec, TypeRegistry
from headrace_transit.schemas import StopEvent, VehiclePosition

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="session", params=["arrow", "python"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="session")
def codec(engine: Any) -> Codec:
    return Codec(TypeRegistry(VehiclePosition, StopEvent), engine=engine)


@pytest.fixture(scope="session")
def positions() -> Any:
    """A frame of vehicle positions; every tenth has lost its GPS."""

    def make(rows: int) -> pl.DataFrame:
        lost = [k % 10 == 9 for k in range(rows)]
        return pl.DataFrame(
            {
                "event_time": [NOON + timedelta(milliseconds=k) for k in range(rows)],
                "ingestion_time": [NOON + timedelta(milliseconds=k + 60) for k in range(rows)],
                "vehicle_id": [f"40/{k % 700}" for k in range(rows)],
                "latitude": [None if lost[k] else 60.17 + k * 1e-6 for k in range(rows)],
                "longitude": [None if lost[k] else 24.95 for k in range(rows)],
                "speed": [k % 20 + 0.25 for k in range(rows)],
                "delay": [k % 300 - 60 for k in range(rows)],
                "line": ["6"] * rows,
                "doors_open": [False] * rows,
            },
            schema_overrides={
                "event_time": pl.Datetime("us", "UTC"),
                "ingestion_time": pl.Datetime("us", "UTC"),
                "delay": pl.Int32,
            },
        )

    return make


@pytest.fixture(scope="session")
def schema(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Compile a schema from text, in a pool of its own: `schema("message Ping { optional int32 a = 1; }", "Ping")`."""

    def compile_message(text: str, name: str) -> type[Message]:
        folder = tmp_path_factory.mktemp("schema")
        imports = "".join(
            f'import "google/protobuf/{part}.proto";\n' for part in ("any", "timestamp", "duration", "wrappers")
        )
        (folder / "acme.proto").write_text(f'syntax = "proto3";\npackage acme;\n{imports}\n{text}')
        out = folder / "set.bin"
        include = Path(grpc_tools.__file__).parent / "_proto"
        command = [
            "protoc",
            f"-I{folder}",
            f"-I{include}",
            f"--descriptor_set_out={out}",
            "--include_imports",
            "acme.proto",
        ]
        assert protoc.main(command) == 0
        pool = descriptor_pool.DescriptorPool()
        for file in descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file:
            pool.AddSerializedFile(file.SerializeToString())
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"acme.{name}"))

    return compile_message


@pytest.fixture(scope="session")
def rich(schema: Any) -> Any:
    """A message type with everything that protobuf has."""
    return schema(
        """
        enum Colour { NONE = 0; RED = 1; BLUE = 2; }
        message Point { double x = 1; optional float y = 2; google.protobuf.Timestamp at = 3; }
        message Tree { string leaf = 1; repeated Tree branches = 2; }
        message Rich {
          int32 i32 = 1; sint64 s64 = 2; uint64 u64 = 3; fixed32 f32 = 4; sfixed64 sf64 = 5;
          bool flag = 6; string text = 7; bytes blob = 8; float single = 9; double twice = 10;
          optional int32 maybe = 11; optional string maybe_text = 12;
          Colour colour = 13; optional Colour maybe_colour = 14; repeated Colour colours = 15;
          repeated sint32 numbers = 16; repeated string texts = 17;
          Point point = 18; repeated Point points = 19;
          map<string, int64> counts = 20; map<int32, Point> places = 21;
          oneof choice { int32 number = 22; string word = 23; Point spot = 24; }
          google.protobuf.Timestamp at = 25; repeated google.protobuf.Timestamp times = 26;
          google.protobuf.Duration span = 27;
          google.protobuf.Int64Value boxed = 28; google.protobuf.StringValue boxed_text = 29;
          repeated google.protobuf.BoolValue boxed_flags = 30;
          Tree tree = 31;
          google.protobuf.Any anything = 32;
        }
        """,
        "Rich",
    )


_SCALARS: dict[int, st.SearchStrategy[Any]] = {
    FieldDescriptor.TYPE_DOUBLE: st.floats(),
    # protobuf's own JSON writes the largest float as 3.4028235e+38 and then refuses to read it.
    FieldDescriptor.TYPE_FLOAT: st.one_of(
        st.floats(-(2.0**127), 2.0**127, width=32), st.sampled_from([math.inf, math.nan])
    ),
    FieldDescriptor.TYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_SINT64: st.integers(-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_SFIXED64: st.integers(-(2**63), 2**63 - 1),
    FieldDescriptor.TYPE_UINT64: st.integers(0, 2**64 - 1),
    FieldDescriptor.TYPE_FIXED64: st.integers(0, 2**64 - 1),
    FieldDescriptor.TYPE_INT32: st.integers(-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_SINT32: st.integers(-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_SFIXED32: st.integers(-(2**31), 2**31 - 1),
    FieldDescriptor.TYPE_UINT32: st.integers(0, 2**32 - 1),
    FieldDescriptor.TYPE_FIXED32: st.integers(0, 2**32 - 1),
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_STRING: st.text(max_size=12),
    FieldDescriptor.TYPE_BYTES: st.binary(max_size=12),
    FieldDescriptor.TYPE_ENUM: st.integers(0, 5),
}
INSTANTS = st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)
SPANS = st.integers(-315_576_000_000_000_000, 315_576_000_000_000_000)


@pytest.fixture(scope="session")
def messages() -> Any:
    return messages_of


def messages_of(descriptor: Descriptor, depth: int = 3) -> st.SearchStrategy[Any]:
    """Any message of a type, with whole microseconds in its times."""

    @st.composite
    def build(draw: st.DrawFn) -> Any:
        message = message_factory.GetMessageClass(descriptor)()
        for field in descriptor.fields:
            if draw(st.integers(0, 2)) == 0:
                continue
            if field.is_repeated:
                for _ in range(draw(st.integers(0, 3))):
                    _add(message, field, draw)
            else:
                _set(message, field, draw)
        return message

    def _add(message: Any, field: FieldDescriptor, draw: st.DrawFn) -> None:
        if field.message_type is None:
            getattr(message, field.name).append(draw(_SCALARS[field.type]))
        elif field.message_type.GetOptions().map_entry:
            key = draw(_SCALARS[field.message_type.fields_by_name["key"].type])
            value = field.message_type.fields_by_name["value"]
            if value.message_type is None:
                getattr(message, field.name)[key] = draw(_SCALARS[value.type])
            else:
                getattr(message, field.name)[key].CopyFrom(draw(messages_of(value.message_type, depth - 1)))
        elif depth:
            getattr(message, field.name).add().CopyFrom(draw(inner(field.message_type)))

    def _set(message: Any, field: FieldDescriptor, draw: st.DrawFn) -> None:
        if field.message_type is None:
            setattr(message, field.name, draw(_SCALARS[field.type]))
        elif depth:
            getattr(message, field.name).CopyFrom(draw(inner(field.message_type)))

    def inner(kind: Descriptor) -> st.SearchStrategy[Any]:
        made = message_factory.GetMessageClass(kind)
        if kind.full_name == "google.protobuf.Timestamp":
            return INSTANTS.map(lambda micros: made(seconds=micros // 10**6, nanos=micros % 10**6 * 1000))
        if kind.full_name == "google.protobuf.Duration":
            return SPANS.map(lambda micros: _duration(made, micros))
        if kind.full_name == "google.protobuf.Any":
            # In JSON an Any must hold a known type, so it holds another schema's message here.
            return st.just(made(type_url="type.googleapis.com/google.protobuf.Duration", value=b"\x08\x05"))
        return messages_of(kind, depth - 1)

    return build()


def _duration(made: Any, micros: int) -> Any:
    sign = -1 if micros < 0 else 1
    seconds, rest = divmod(abs(micros), 10**6)
    return made(seconds=sign * seconds, nanos=sign * rest * 1000)


_WRAPPERS = {
    f"google.protobuf.{kind}Value"
    for kind in ("Bool", "Bytes", "Double", "Float", "Int32", "Int64", "String", "UInt32", "UInt64")
}


@pytest.fixture(scope="session")
def as_row() -> Any:
    """What a message must look like as a row, worked out from the message alone, by the rules in the docs."""
    return row_of


def row_of(message: Any, path: tuple[str, ...] = ()) -> dict[str, Any]:
    path = (*path, message.DESCRIPTOR.full_name)
    row: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.is_repeated and field.message_type is not None and field.message_type.GetOptions().map_entry:
            inner = field.message_type.fields_by_name["value"]
            row[field.name] = [{"key": key, "value": _cell(inner, value[key], path)} for key in sorted(value)]
        elif field.is_repeated:
            row[field.name] = [_cell(field, item, path) for item in value]
        elif field.has_presence and not message.HasField(field.name):
            row[field.name] = None
        else:
            row[field.name] = _cell(field, value, path)
    return row


def _cell(field: FieldDescriptor, value: Any, path: tuple[str, ...]) -> Any:
    if field.enum_type is not None:
        known = field.enum_type.values_by_number
        return known[value].name if value in known else str(value)
    if field.message_type is None:
        return value
    name = field.message_type.full_name
    if name == "google.protobuf.Timestamp":
        return EPOCH + timedelta(microseconds=value.seconds * 10**6 + value.nanos // 1000)
    if name == "google.protobuf.Duration":
        return timedelta(seconds=value.seconds, microseconds=value.nanos / 1000)
    if name in _WRAPPERS:
        return value.value
    if name in path:
        return value.SerializeToString()
    return row_of(value, path)


@pytest.fixture(scope="session")
def same() -> Any:
    """Equality of rows with NaN equal to itself."""
    return same_value


def same_value(left: Any, right: Any) -> bool:
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same_value(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same_value, left, right))
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (left != left and right != right)  # NaN
    return type(left) is type(right) and bool(left == right)
