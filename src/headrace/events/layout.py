"""A layout: how one message type looks as columns.

A protobuf message is a tree of fields, a frame is a row of columns. The layout of a type says which column each field
becomes:

| field | column |
|---|---|
| number, bool, string, bytes | the Polars type of that kind |
| enum | String: the value's name, or its number in digits if this schema does not know it |
| `google.protobuf.Timestamp`, `Duration` | Datetime("us", "UTC"), Duration("us") |
| `google.protobuf.Int64Value` and the other wrappers | the wrapped value, or null |
| another message | Struct, or null |
| repeated | List |
| map | List of Struct(key, value), each key once, in the order of the keys |
| a message inside itself (recursion) | Binary: the serialised inner message |

A field that has presence (`optional`, a member of a oneof, a message) is null where it is not set; any other field has
protobuf's default (0, "", ...), as the standard says.

Both decoders, the fast one and protobuf's own classes, read by a **reading schema**: a copy of the type that has the
same wire format with simpler types (a timestamp is a pair of numbers, an enum a number, a map a list of entries, a
recursive message its bytes). What these mean is then worked out once, for both, on whole columns. So the two cannot
differ in meaning, values that no clock can show are seen instead of wrapped, and a layout with fewer columns skips the
others while it reads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, cast

import polars as pl
import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor

from headrace.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from google.protobuf.descriptor import Descriptor, EnumDescriptor
    from google.protobuf.message import Message

Kind = Literal["plain", "enum", "instant", "span", "wrapper", "struct", "map"]

#: The field that makes a message type open; see `cells`.
OPEN_FIELD = "columns"
#: Deeper messages stay bytes, so that no schema can make the decoders recurse without end.
MAX_DEPTH = 12
#: A schema that unfolds to more messages than this is a mistake, or an attack.
MAX_MESSAGES = 2_000

_WRAPPERS = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_ARROW: dict[int, pa.DataType] = {
    FieldDescriptor.TYPE_DOUBLE: pa.float64(),
    FieldDescriptor.TYPE_FLOAT: pa.float32(),
    FieldDescriptor.TYPE_INT64: pa.int64(),
    FieldDescriptor.TYPE_UINT64: pa.uint64(),
    FieldDescriptor.TYPE_INT32: pa.int32(),
    FieldDescriptor.TYPE_FIXED64: pa.uint64(),
    FieldDescriptor.TYPE_FIXED32: pa.uint32(),
    FieldDescriptor.TYPE_BOOL: pa.bool_(),
    FieldDescriptor.TYPE_STRING: pa.string(),
    FieldDescriptor.TYPE_BYTES: pa.binary(),
    FieldDescriptor.TYPE_UINT32: pa.uint32(),
    FieldDescriptor.TYPE_SFIXED32: pa.int32(),
    FieldDescriptor.TYPE_SFIXED64: pa.int64(),
    FieldDescriptor.TYPE_SINT32: pa.int32(),
    FieldDescriptor.TYPE_SINT64: pa.int64(),
    FieldDescriptor.TYPE_ENUM: pa.int32(),
}
_INSTANT = pa.struct([pa.field("seconds", pa.int64(), nullable=False), pa.field("nanos", pa.int32(), nullable=False)])
INSTANT_TYPE = pa.timestamp("us", "UTC")
SPAN_TYPE = pa.duration("us")


@dataclass(frozen=True, slots=True)
class Node:
    """One field of a layout.

    Args:
        name: The field's name, and the column's.
        kind: How the raw value becomes the finished one.
        repeated: Whether it is a list.
        nullable: Whether it may be null.
        raw: Arrow type of one element as the reading schema gives it.
        finished: Arrow type of one element in the frame.
        children: The fields of a struct.
        names: The names of an enum's numbers.
        oneof: The oneof it is a member of, if it is.
    """

    name: str
    kind: Kind
    repeated: bool
    nullable: bool
    raw: pa.DataType
    finished: pa.DataType
    children: tuple[Node, ...] = ()
    names: tuple[tuple[int, str], ...] = ()
    oneof: str | None = None

    @property
    def has_oneof(self) -> bool:
        """Whether it is a member of a oneof, or one of the fields in it is."""
        return self.oneof is not None or any(child.has_oneof for child in self.children)

    @property
    def plain(self) -> bool:
        """Whether the raw column is already the finished one."""
        return self.raw == self.finished and self.kind == "plain"

    def raw_field(self) -> pa.Field:
        """The column as the reading schema gives it."""
        return self._field(self.raw)

    def finished_field(self) -> pa.Field:
        """The column as it is in the frame."""
        return self._field(self.finished)

    def _field(self, element: pa.DataType) -> pa.Field:
        if self.repeated:
            return pa.field(self.name, pa.list_(pa.field("item", element, nullable=False)), nullable=False)
        return pa.field(self.name, element, nullable=self.nullable)


class Layout:
    """How the messages of one type look as columns.

    Args:
        descriptor: The type.
        columns: Only these columns, in this order; None means all.

    Attributes:
        name: The type's full name.
        field_names: All its fields, also those that are no columns of this layout.
        is_open: Whether its messages carry columns of their own; see `cells`.
        nodes: The columns.
        file: The reading schema, one file that depends on no other.
        root: The reading schema's descriptor of the type.
        message_class: The reading schema's Python class of the type.

    >>> from headrace.events.schemas.records_pb2 import DeadLetter
    >>> dict(Layout(DeadLetter.DESCRIPTOR, columns=["reason", "partition"]).schema)
    {'reason': String, 'partition': Int32}
    """

    def __init__(self, descriptor: Descriptor, *, columns: Sequence[str] | None = None) -> None:
        self.name: str = descriptor.full_name
        builder = _Builder(descriptor)
        every, self.file = builder.build(None if columns is None else frozenset(columns))
        if columns is None:
            self.nodes = every
        else:
            by_name = {node.name: node for node in every}
            self.nodes = tuple(by_name[name] for name in columns)
        #: Everything that is read; more than `nodes` where a column is one of several of a oneof.
        self.read_nodes = every
        self.field_names: tuple[str, ...] = tuple(field.name for field in descriptor.fields)
        self.is_open: bool = is_open(descriptor)
        pool = descriptor_pool.DescriptorPool()
        pool.AddSerializedFile(self.file.SerializeToString())
        self.root: Descriptor = pool.FindMessageTypeByName(f"{self.file.package}.{builder.root_name}")
        self.message_class: type[Message] = message_factory.GetMessageClass(self.root)
        self.raw_schema = pa.schema([node.raw_field() for node in every])
        self.arrow_schema = pa.schema([node.finished_field() for node in self.nodes])
        empty = pl.from_arrow(self.arrow_schema.empty_table())
        self.schema: pl.Schema = empty.schema if isinstance(empty, pl.DataFrame) else pl.Schema()

    def __repr__(self) -> str:
        return f"Layout({self.name}, {len(self.nodes)} columns)"


def is_open(descriptor: Descriptor) -> bool:
    """Whether messages of this type carry columns of their own (a field `repeated headrace.v1.Column columns`)."""
    field = descriptor.fields_by_name.get(OPEN_FIELD)
    inner = None if field is None else field.message_type
    return field is not None and inner is not None and field.is_repeated and inner.full_name == "headrace.v1.Column"


class _Builder:
    """Builds the reading schema of one type."""

    def __init__(self, descriptor: Descriptor) -> None:
        self.descriptor = descriptor
        self.file = descriptor_pb2.FileDescriptorProto(
            name="headrace/reading.proto", package="headrace.reading", syntax="proto3"
        )
        instant = self.file.message_type.add(name="Instant")
        instant.field.add(name="seconds", number=1, type=3, label=1)
        instant.field.add(name="nanos", number=2, type=5, label=1)
        self.root_name = ""

    def build(self, columns: frozenset[str] | None) -> tuple[tuple[Node, ...], descriptor_pb2.FileDescriptorProto]:
        known = {field.name for field in self.descriptor.fields}
        if columns is not None and (missing := sorted(columns - known)):
            raise SchemaError(
                f"{self.descriptor.full_name} has no field {', '.join(map(repr, missing))}",
                hint=f"Its fields are: {', '.join(sorted(known))}.",
            )
        self.root_name, nodes = self._message(self.descriptor, (self.descriptor.full_name,), columns)
        return nodes, self.file

    def _message(
        self, descriptor: Descriptor, path: tuple[str, ...], columns: frozenset[str] | None = None
    ) -> tuple[str, tuple[Node, ...]]:
        if len(self.file.message_type) > MAX_MESSAGES:
            raise SchemaError(
                f"{self.descriptor.full_name} unfolds to more than {MAX_MESSAGES} messages",
                hint="Give fields that hold large trees the type bytes.",
            )
        name = f"M{len(self.file.message_type)}_{descriptor.name}"
        message = self.file.message_type.add(name=name)
        # The list may move in memory while inner messages are added, so this one is filled in apart.
        draft = descriptor_pb2.DescriptorProto(name=name)
        nodes = []
        oneofs: dict[str, int] = {}
        for field in _kept(descriptor.fields, columns):
            if field.type == FieldDescriptor.TYPE_GROUP:
                raise SchemaError(
                    f"{descriptor.full_name}.{field.name} is a group, which Headrace does not read",
                    hint="Make it a message field.",
                )
            node, type_number, type_name = self._node(field, path)
            made = draft.field.add(name=field.name, number=field.number, label=3 if field.is_repeated else 1)
            made.type = type_number  # type: ignore[assignment]
            if type_name:
                made.type_name = f".headrace.reading.{type_name}"
            if not field.is_repeated and (oneof := _real_oneof(field)) is not None:
                made.oneof_index = oneofs.setdefault(oneof, len(oneofs))
                node = replace(node, oneof=oneof)
            nodes.append(node)
        draft.oneof_decl.extend(descriptor_pb2.OneofDescriptorProto(name=oneof) for oneof in oneofs)
        for made, node in zip(draft.field, nodes, strict=True):
            if node.nullable and not made.type_name and not made.HasField("oneof_index"):
                # protoc writes `optional` as a oneof of one member; those come after the real ones.
                made.proto3_optional = True
                made.oneof_index = len(draft.oneof_decl)
                draft.oneof_decl.add(name=f"_{made.name}")
        message.CopyFrom(draft)
        return name, tuple(nodes)

    def _node(self, field: FieldDescriptor, path: tuple[str, ...]) -> tuple[Node, int, str]:
        nullable = field.has_presence and not field.is_repeated
        inner = field.message_type
        if inner is None:
            raw = _ARROW[field.type]
            if field.type == FieldDescriptor.TYPE_ENUM:
                names = tuple((value.number, value.name) for value in cast("EnumDescriptor", field.enum_type).values)
                node = Node(field.name, "enum", field.is_repeated, nullable, raw, pa.string(), names=names)
                return node, FieldDescriptor.TYPE_INT32, ""
            return Node(field.name, "plain", field.is_repeated, nullable, raw, raw), field.type, ""
        if inner.full_name == "google.protobuf.Timestamp":
            node = Node(field.name, "instant", field.is_repeated, nullable, _INSTANT, INSTANT_TYPE)
            return node, FieldDescriptor.TYPE_MESSAGE, "Instant"
        if inner.full_name == "google.protobuf.Duration":
            node = Node(field.name, "span", field.is_repeated, nullable, _INSTANT, SPAN_TYPE)
            return node, FieldDescriptor.TYPE_MESSAGE, "Instant"
        if inner.full_name in path or len(path) >= MAX_DEPTH:
            raw = pa.binary()
            return Node(field.name, "plain", field.is_repeated, nullable, raw, raw), FieldDescriptor.TYPE_BYTES, ""
        name, children = self._message(inner, (*path, inner.full_name))
        raw = pa.struct([child.raw_field() for child in children])
        if inner.full_name in _WRAPPERS:
            wrapped = Node(field.name, "wrapper", field.is_repeated, nullable, raw, children[0].finished, children)
            return wrapped, FieldDescriptor.TYPE_MESSAGE, name
        finished = pa.struct([child.finished_field() for child in children])
        kind: Kind = "plain" if all(child.plain for child in children) else "struct"
        if inner.GetOptions().map_entry:
            kind = "map"
        node = Node(field.name, kind, field.is_repeated, nullable, raw, finished, children)
        return node, FieldDescriptor.TYPE_MESSAGE, name


def _kept(fields: Iterable[FieldDescriptor], columns: frozenset[str] | None) -> list[FieldDescriptor]:
    """Leave out fields nobody asked for, but no member of a oneof that is asked for: setting one unsets the others."""
    if columns is None:
        return list(fields)
    every = list(fields)
    oneofs = {oneof for field in every if field.name in columns and (oneof := _real_oneof(field)) is not None}
    return [field for field in every if field.name in columns or _real_oneof(field) in oneofs]


def _real_oneof(field: FieldDescriptor) -> str | None:
    """The oneof that the schema's author wrote, not the one that stands for `optional`."""
    oneof = field.containing_oneof
    if oneof is None or (len(oneof.fields) == 1 and oneof.name == f"_{field.name}"):
        return None
    return str(oneof.name)
