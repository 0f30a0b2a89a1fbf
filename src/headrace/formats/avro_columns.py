"""Avro values in columns: from what is on the wire to what a user sees, and from a writer's schema to a reader's.

What is on the wire are *raw* columns: a whole number is an Int64, an instant is a whole number, a decimal is bytes. A
`converter` makes columns of them. It applies the rules of schema resolution on whole columns: fields by name or alias,
defaults, promotions such as int to double.

A union of several types is a struct with a field for each of them, of which at most one is not null.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import SchemaError
from headrace.events.letters import SHOWABLE
from headrace.formats.avro_schema import MAX_PRECISION

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.formats.avro_schema import AvroField, AvroType

Converter: TypeAlias = "Callable[[pa.Array], pa.Array]"

INSTANT = pa.timestamp("us", "UTC")
_LOCAL = pa.timestamp("us")
_DAY = 86_400_000_000
_DECIMAL_BYTES = 16
_INT_BOUNDS = (-(2**31), 2**31 - 1)
#: The microseconds of a count; negative: the counts of a microsecond.
_UNITS = {"millis": 1_000, "micros": 1, "nanos": -1_000}
_PROMOTIONS = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
_RAW: dict[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int64(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "fixed": pa.binary(),
    "enum": pa.string(),
}


class UnfitError(ValueError):
    """A value does not fit its type, though its bytes do."""


def raw_type(kind: AvroType) -> pa.DataType:
    """Tell the Arrow type of a type as it is on the wire."""
    return _arrow_type(kind, raw=True)


def column_type(kind: AvroType) -> pa.DataType:
    """Tell the Arrow type of a type in columns."""
    return _arrow_type(kind, raw=False)


def _arrow_type(kind: AvroType, *, raw: bool) -> pa.DataType:
    if kind.kind == "union":
        branches = kind.branches
        if not branches:
            return pa.null()
        if len(branches) == 1:
            return _arrow_type(branches[0], raw=raw)
        return pa.struct([(branch.label, _arrow_type(branch, raw=raw)) for branch in branches])
    if kind.kind == "record":
        return pa.struct([(field.name, _arrow_type(field.type, raw=raw)) for field in kind.fields])
    if kind.kind == "array":
        return pa.list_(_arrow_type(kind.inner[0], raw=raw))
    if kind.kind == "map":
        value = _arrow_type(kind.inner[0], raw=raw)
        return pa.map_(pa.string(), value) if raw else pa.list_(pa.struct([("key", pa.string()), ("value", value)]))
    return _RAW[kind.kind] if raw else _leaf_type(kind)


def _leaf_type(kind: AvroType) -> pa.DataType:
    match kind.logical:
        case "decimal":
            return pa.decimal128(kind.precision, kind.scale)
        case "date":
            return pa.date32()
        case "time-millis" | "time-micros":
            return pa.time64("us")
        case "uuid":
            return pa.string()
        case str() as logical:
            return _LOCAL if logical.startswith("local") else INSTANT
    return pa.int32() if kind.kind == "int" else _RAW[kind.kind]


def converter(writer: AvroType, reader: AvroType, place: str = "") -> Converter:
    """Give the function that makes columns of raw ones.

    Args:
        writer: The type that values were written by.
        reader: The type of the columns.
        place: The field, for messages.

    Raises:
        SchemaError: No value of the writer's type can be read as the reader's.
    """
    if writer.kind == "union" or reader.kind == "union":
        return _union_converter(writer, reader, place)
    if not _matches(writer, reader):
        raise SchemaError(
            f"{place or 'the record'} was written as {writer.label} and cannot be read as {reader.label}",
            hint="Read it by the type that it was written by, or by one that Avro promotes it to.",
        )
    if reader.kind == "record":
        return _record_converter(writer, reader, place)
    if reader.kind == "array":
        items = converter(writer.inner[0], reader.inner[0], f"{place}[]")
        return lambda raw: _list(raw.offsets, items(raw.values), raw)
    if reader.kind == "map":
        values = converter(writer.inner[0], reader.inner[0], f"{place}[]")
        return lambda raw: _list(raw.offsets, _entries(raw, values, place), raw)
    return _leaf_converter(writer, reader, place)


def _matches(writer: AvroType, reader: AvroType) -> bool:
    """Tell whether values can be read, as far as the types themselves go and not what is in them."""
    if writer.kind != reader.kind:
        return reader.kind in _PROMOTIONS.get(writer.kind, ())
    if reader.kind == "fixed" and writer.size != reader.size:
        return False
    if reader.logical == "decimal" == writer.logical and (writer.precision, writer.scale) != (
        reader.precision,
        reader.scale,
    ):
        return False
    # A record is known by its fields: names of records differ between programs that agree on everything else.
    same = writer.label == reader.label or writer.label in {alias.rpartition(".")[2] for alias in reader.aliases}
    return reader.kind not in ("fixed", "enum") or same


def _list(offsets: pa.Array, values: pa.Array, raw: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(offsets, values, mask=raw.is_null() if raw.null_count else None)


def _entries(raw: pa.MapArray, values: Converter, place: str) -> pa.Array:
    keys = _text(raw.keys, place)
    return pa.StructArray.from_arrays([keys, values(raw.items)], ["key", "value"])


def _record_converter(writer: AvroType, reader: AvroType, place: str) -> Converter:
    parts: list[tuple[int, Any]] = []
    written = {field.name: (number, field) for number, field in enumerate(writer.fields)}
    for field in reader.fields:
        where = f"{place}.{field.name}" if place else field.name
        name = next((each for each in (field.name, *field.aliases) if each in written), None)
        if name is None:
            parts.append((-1, default_column(field, where)))
        else:
            number, source = written[name]
            parts.append((number, converter(source.type, field.type, where)))
    fields = [pa.field(field.name, column_type(field.type)) for field in reader.fields]

    def convert(raw: pa.Array) -> pa.Array:
        if raw.null_count:
            # What is in the fields of a record that is not there means nothing.
            there = raw.is_valid().to_numpy(zero_copy_only=False)
            return convert(raw.drop_null()).take(pa.array(np.cumsum(there) - 1, mask=~there))
        if not fields:
            return pa.array([{}] * len(raw), pa.struct([]))
        first = pa.array(np.zeros(len(raw), np.int64))
        arrays = [part(raw.field(number)) if number >= 0 else part.take(first) for number, part in parts]
        return pa.StructArray.from_arrays(arrays, fields=fields)

    return convert


def default_column(field: AvroField, place: str) -> pa.Array:
    """Give the default of a field that the writer does not have, as a column of one row.

    Raises:
        SchemaError: It has none, or one that is not of its type.
    """
    if field.default is None:
        raise SchemaError(
            f"the writer's schema has no field {place}, and the reader's gives it no default",
            hint='Give it one: {"name": ..., "type": ..., "default": ...}.',
        )
    try:
        raw = _raw_default(json.loads(field.default), field.type)
        return converter(field.type, field.type, place)(pa.array([raw], raw_type(field.type)))
    except (TypeError, ValueError, KeyError, pa.ArrowException) as problem:
        raise SchemaError(
            f"the default of {place} is {field.default[:80]}, which is no {field.type.label}", hint="Change it."
        ) from problem


def _raw_default(value: Any, kind: AvroType) -> Any:
    if kind.kind == "union":
        if value is None and kind.is_nullable:
            return None
        branches = kind.branches
        for branch in branches:
            try:
                found = _raw_default(value, branch)
            except (TypeError, KeyError):
                continue
            return found if len(branches) == 1 else {branch.label: found}
        raise TypeError(value)
    expected: Any = {
        "null": type(None), "boolean": bool, "int": int, "long": int, "float": (int, float), "double": (int, float),
        "array": list, "map": dict, "record": dict,
    }.get(kind.kind, str)  # fmt: skip
    if not isinstance(value, expected) or (isinstance(value, bool) and kind.kind != "boolean"):
        raise TypeError(value)
    match kind.kind:
        case "bytes" | "fixed":
            return value.encode("latin-1")
        case "array":
            return [_raw_default(each, kind.inner[0]) for each in value]
        case "map":
            return [(key, _raw_default(each, kind.inner[0])) for key, each in value.items()]
        case "record":
            return {
                field.name: _raw_default(
                    value[field.name] if field.default is None else value.get(field.name, json.loads(field.default)),
                    field.type,
                )
                for field in kind.fields
            }
    return value


def _union_converter(writer: AvroType, reader: AvroType, place: str) -> Converter:
    """Each branch that was written goes to the branch that fits it best; the others must not occur."""
    targets = reader.branches
    routes: list[tuple[int, Converter] | None] = []
    for branch in writer.branches:
        fitting = [
            *(n for n, each in enumerate(targets) if each.kind == branch.kind and each.label == branch.label),
            *(n for n, each in enumerate(targets) if _matches(branch, each)),
        ]
        routes.append((fitting[0], converter(branch, targets[fitting[0]], place)) if fitting else None)
    # Null alone can be read as null; but schemas that have nothing else in common are a mistake.
    if not any(routes) and (not (writer.is_nullable and reader.is_nullable) or (writer.branches and targets)):
        raise SchemaError(
            f"{place} was written as {_branches(writer)} and cannot be read as {_branches(reader)}",
            hint="Read it by the type that it was written by.",
        )
    several = len(writer.branches) > 1

    def convert(raw: pa.Array) -> pa.Array:
        if not reader.is_nullable and raw.null_count:
            raise UnfitError(f"{place} is null, which the reader's schema does not allow")
        parts = raw.flatten() if several else [raw]
        columns = [pa.nulls(len(raw), column_type(target)) for target in targets]
        for branch, part, route in zip(writer.branches, parts, routes, strict=False):
            if route is None:
                if part.null_count < len(part):
                    raise UnfitError(f"{place} is {branch.label}, which the reader's schema does not have")
                continue
            number, function = route
            found = function(part)
            columns[number] = found if columns[number].null_count == len(raw) else pc.coalesce(columns[number], found)
        if len(targets) == 1:
            return columns[0]
        if not targets:
            return pa.nulls(len(raw))
        fields = [pa.field(target.label, column.type) for target, column in zip(targets, columns, strict=True)]
        return pa.StructArray.from_arrays(columns, fields=fields, mask=raw.is_null() if raw.null_count else None)

    return convert


def _branches(kind: AvroType) -> str:
    return " or ".join(each.label for each in kind.inner) or kind.label


def _leaf_converter(writer: AvroType, reader: AvroType, place: str) -> Converter:
    match reader.kind:
        case "enum":
            return _enum_converter(writer, reader, place)
        case "string":
            return lambda raw: _text(raw, place)
        case "bytes" | "fixed" if reader.logical == "decimal":
            return lambda raw: _decimals(_bytes(raw), reader, place)
        case "fixed" if reader.logical == "uuid":
            return _uuids
        case "bytes" | "fixed":
            return _bytes
        case "int" | "long":
            return _whole_converter(writer, reader, place)
    target = _RAW[reader.kind]
    if writer.kind == "int":
        return lambda raw: _int(raw, place).cast(target, safe=False)
    return lambda raw: raw if raw.type == target else raw.cast(target, safe=False)


def _whole_converter(writer: AvroType, reader: AvroType, place: str) -> Converter:
    logical = reader.logical
    if logical is None:
        bounded = writer.kind == "int"
        target = column_type(reader)
        return lambda raw: _int(raw, place).cast(target, safe=False) if bounded else raw.cast(target)
    if logical == "date":
        lowest, highest = SHOWABLE[0] // _DAY, SHOWABLE[1] // _DAY
        return lambda raw: _between(raw, lowest, highest, place, "date").cast(pa.int32()).cast(pa.date32())
    # A writer that says what its numbers are is right, even if the reader has another unit.
    unit = _UNITS.get((writer.logical or "").rpartition("-")[2]) or _UNITS[logical.rpartition("-")[2]]
    lowest, highest = (0, _DAY - 1) if logical.startswith("time-") else SHOWABLE
    target = column_type(reader)

    def convert(raw: pa.Array) -> pa.Array:
        if unit > 0:
            counted = _between(raw, -(-lowest // unit), highest // unit, place, logical)
            return pc.multiply(counted, unit).cast(target)
        floor = pa.array(raw.to_numpy(zero_copy_only=False) // -unit) if not raw.null_count else _floored(raw, -unit)
        return _between(floor, lowest, highest, place, logical).cast(target)

    return convert


def _floored(raw: pa.Array, by: int) -> pa.Array:
    filled = pc.fill_null(raw, 0).to_numpy(zero_copy_only=False) // by
    return pa.array(filled, mask=raw.is_null().to_numpy(zero_copy_only=False))


def _int(raw: pa.Array, place: str) -> pa.Array:
    return _between(raw, *_INT_BOUNDS, place, "int")


def _between(raw: pa.Array, lowest: int, highest: int, place: str, what: str) -> pa.Array:
    bounds = pc.min_max(raw).as_py()
    if bounds["min"] is not None and not (lowest <= bounds["min"] and bounds["max"] <= highest):
        wrong = bounds["min"] if bounds["min"] < lowest else bounds["max"]
        raise UnfitError(f"{place} is {wrong}, which is no {what}")
    return raw


def _text(raw: pa.Array, place: str) -> pa.Array:
    texts = raw if pa.types.is_string(raw.type) else raw.view(pa.string())
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid as problem:
        raise UnfitError(f"{place} is not UTF-8") from problem
    return texts


def _bytes(raw: pa.Array) -> pa.Array:
    return raw if pa.types.is_binary(raw.type) else raw.view(pa.binary())


def _enum_converter(writer: AvroType, reader: AvroType, place: str) -> Converter:
    unknown = [symbol for symbol in writer.symbols if symbol not in reader.symbols]

    def convert(raw: pa.Array) -> pa.Array:
        if not unknown:
            return raw
        strange = pc.is_in(raw, pa.array(unknown))
        if not pc.any(strange).as_py():
            return raw
        if reader.default is None:
            raise UnfitError(f"{place} has a symbol that the reader's schema does not have")
        return pc.if_else(strange, reader.default, raw)

    return convert


def _decimals(raw: pa.BinaryArray, kind: AvroType, place: str) -> pa.Array:
    """Read whole numbers of two's complement, the most significant byte first."""
    count = len(raw)
    filled = pc.fill_null(raw, b"\0")
    offsets = np.frombuffer(filled.buffers()[1], np.int32)[filled.offset : filled.offset + count + 1].astype(np.int64)
    lengths = np.diff(offsets)
    if count and not (lengths.min() and lengths.max() <= _DECIMAL_BYTES):
        raise UnfitError(f"{place} is no decimal of {kind.precision} digits")
    data = filled.buffers()[2]
    every = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    # Column k is the byte of the weight 256**k; beyond the length there is the sign.
    at = offsets[1:, None] - 1 - np.arange(_DECIMAL_BYTES)
    inside = np.arange(_DECIMAL_BYTES) < lengths[:, None]
    sign = np.where(every[offsets[:-1]] >= 128, 255, 0).astype(np.uint8) if count else np.zeros(0, np.uint8)
    digits = np.where(inside, every[np.maximum(at, 0)], sign[:, None])
    numbers = pa.Array.from_buffers(
        pa.decimal128(MAX_PRECISION, kind.scale), count, [None, pa.py_buffer(np.ascontiguousarray(digits).tobytes())]
    )
    if raw.null_count:
        numbers = pc.if_else(raw.is_valid(), numbers, pa.scalar(None, numbers.type))
    try:
        numbers.validate(full=True)
        return numbers.cast(pa.decimal128(kind.precision, kind.scale))
    except pa.ArrowInvalid as problem:
        raise UnfitError(f"{place} is no decimal of {kind.precision} digits") from problem


def _uuids(raw: pa.BinaryArray) -> pa.Array:
    def text(value: bytes | None) -> str | None:
        if value is None:
            return None
        digits = value.hex()
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    return pa.array([text(value) for value in raw.to_pylist()], pa.string())
