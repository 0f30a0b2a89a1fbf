"""Avro values to raw columns: all values at once where the reader in Rust takes them, one by one where it does not.

`read_values` decides. The quick way gives all values to pyruhvro, which builds Arrow columns of messages. It reads an
int of any size, does not check texts, and ignores bytes that are left over. So it gets a schema in which whole numbers
are long and bytes are texts, and the columns are checked afterwards; and each value gets a random number behind it,
which is read as one more field: it is found there only if the value ends where its last field ends.

A batch that is refused is divided, and small parts are read by `read_value`, which defines what is right. Schemas that
pyruhvro does not take (with fixed, with null as a field, with unions of several types) are always read by it.
"""

from __future__ import annotations

import json
import secrets
import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.formats.avro_columns import UnfitError, raw_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from headrace.formats.avro_columns import Converter
    from headrace.formats.avro_schema import AvroType

Read: TypeAlias = "Callable[[bytes, int], tuple[Any, int]]"

#: A part that was refused is divided into so many; one of at most so many values is read one by one.
_DIVIDE = 16
_ONE_BY_ONE = 24
#: Longer parts are divided: columns of texts hold two GiB.
_MOST_BYTES = 512 << 20
_MASK = (1 << 64) - 1
_MOST_VARINT = 10
_LEAST_LONG = -(1 << 63)


class MalformedError(ValueError):
    """Bytes that are no value of the schema."""


def read_values(
    values: pa.BinaryArray, schema: AvroType, convert: Converter
) -> tuple[pa.Array, NDArray[np.int64], dict[int, str]]:
    """Read values, none of which is null.

    Args:
        values: The values.
        schema: The record that they were written as.
        convert: Makes columns of the raw ones; what it refuses is not read.

    Returns:
        The rows as structs, the position of each among the values, and why the others cannot be read.
    """
    quick = wire_schema(schema, marked=True)
    rejections: dict[int, str] = {}
    empty = convert(pa.array([], raw_type(schema)))
    parts, kept = [empty], [np.zeros(0, np.int64)]
    todo = [(0, len(values))] if len(values) else []
    one_by_one = reader(schema)
    while todo:
        begin, end = todo.pop()
        part = values.slice(begin, end - begin)
        found = _read_all(part, quick, convert)
        if found is not None:
            parts.append(found)
            kept.append(np.arange(begin, end))
        elif quick is None or end - begin <= _ONE_BY_ONE:
            for rows, positions in _each(part, begin, schema, one_by_one, convert, rejections):
                parts.append(rows)
                kept.append(positions)
        else:
            step = -(-(end - begin) // _DIVIDE)
            todo += [(at, min(at + step, end)) for at in reversed(range(begin, end, step))]
    rows = parts[1] if len(parts) == 2 else pa.concat_arrays(parts)  # without a copy where all is well
    return rows, np.concatenate(kept), rejections


def _read_all(values: pa.BinaryArray, quick: str | None, convert: Converter) -> pa.Array | None:
    """Read values in one call; None if one of them may not be as it should be."""
    if quick is None or values.nbytes > _MOST_BYTES:
        return None
    import pyruhvro

    mark = secrets.randbits(62)
    marked = pc.binary_join_element_wise(values, pa.scalar(varint(mark)), pa.scalar(b""))
    try:
        batch = pyruhvro.deserialize_array(marked.to_pylist(), quick)
    except ValueError:
        return None
    *columns, marks = batch.columns
    if not pc.all(pc.equal(marks, mark)).as_py():
        return None
    try:
        return convert(pa.StructArray.from_arrays(columns, names=batch.schema.names[:-1]))
    except UnfitError:
        return None


def _each(
    values: pa.BinaryArray,
    begin: int,
    schema: AvroType,
    read: Read,
    convert: Converter,
    rejections: dict[int, str],
) -> list[tuple[pa.Array, NDArray[np.int64]]]:
    rows: list[Any] = []
    positions: list[int] = []
    for number, value in enumerate(values.to_pylist(), begin):
        try:
            rows.append(read_value(value, read))
            positions.append(number)
        except MalformedError as problem:
            rejections[number] = str(problem)
    kind = raw_type(schema)
    found: list[tuple[pa.Array, NDArray[np.int64]]] = []
    todo = [(0, len(rows))] if rows else []
    while todo:
        first, last = todo.pop()
        try:
            columns = convert(pa.array(rows[first:last], kind))
        except UnfitError as problem:
            if last - first == 1:
                rejections[positions[first]] = str(problem)
                continue
            middle = (first + last) // 2
            todo += [(middle, last), (first, middle)]
        else:
            found.append((columns, np.array(positions[first:last], np.int64)))
    return found


@lru_cache(maxsize=256)
def wire_schema(schema: AvroType, *, marked: bool = False) -> str | None:
    """Give the schema that pyruhvro gets; None if it takes no such.

    Args:
        schema: The schema.
        marked: Whether there is a number behind the last field.
    """
    if not _is_quick(schema):
        return None
    wire = _wire(schema, [0])
    if marked:
        wire["fields"].append({"name": max(field.name for field in schema.fields) + "_", "type": "long"})
    return json.dumps(wire)


def _is_quick(kind: AvroType) -> bool:
    if kind.kind == "union":
        branches = kind.branches
        return len(kind.inner) == 2 and len(branches) == 1 and _is_quick(branches[0])
    if kind.kind == "record":
        return bool(kind.fields) and all(_is_quick(field.type) for field in kind.fields)
    return kind.kind not in ("fixed", "null") and all(_is_quick(inner) for inner in kind.inner)


def _wire(kind: AvroType, count: list[int]) -> Any:
    """Give a type with nothing but what is on the wire: whole numbers as long, bytes as string."""
    match kind.kind:
        case "null":
            return "null"
        case "int" | "long":
            return "long"
        case "bytes" | "string":
            return "string"
        case "union":
            return [_wire(branch, count) for branch in kind.inner]
        case "array":
            return {"type": "array", "items": _wire(kind.inner[0], count)}
        case "map":
            return {"type": "map", "values": _wire(kind.inner[0], count)}
        case "enum":
            count[0] += 1
            return {"type": "enum", "name": f"E{count[0]}", "symbols": list(kind.symbols)}
        case "record":
            count[0] += 1
            name = f"R{count[0]}"
            fields = [{"name": field.name, "type": _wire(field.type, count)} for field in kind.fields]
            return {"type": "record", "name": name, "fields": fields}
    return kind.kind


def varint(number: int) -> bytes:
    r"""Write a whole number as Avro has it: zigzag, seven bits in a byte.

    >>> varint(-1), varint(64)
    (b'\x01', b'\x80\x01')
    """
    rest = ((number << 1) ^ (number >> 63)) & _MASK
    found = bytearray()
    while rest > 127:
        found.append(rest & 127 | 128)
        rest >>= 7
    found.append(rest)
    return bytes(found)


def read_value(value: bytes, read: Read) -> Any:
    """Read one value.

    Raises:
        MalformedError: It is none of the schema, or has bytes behind its end.
    """
    row, end = read(value, 0)
    if end != len(value):
        raise MalformedError(f"{len(value) - end:,} bytes are left behind the end of the record")
    return row


@lru_cache(maxsize=256)
def reader(schema: AvroType) -> Read:
    """Give the function that reads a value at a place in bytes, and tells where it ends."""
    return _reader(schema, "")


def _reader(kind: AvroType, place: str) -> Read:
    match kind.kind:
        case "record":
            return _record(kind, place)
        case "array" | "map":
            return _blocks(kind, place)
        case "union":
            return _union(kind, place)
        case "enum":
            return _enum(kind, place)
        case "string" | "bytes":
            return _text(place) if kind.kind == "string" else _sized(place)
        case "fixed":
            return _fixed(kind.size, place)
        case "float" | "double":
            return _real("<f" if kind.kind == "float" else "<d", place)
        case "boolean":
            return _boolean(place)
        case "null":
            return lambda _, at: (None, at)
    return _whole(place)


def _long(data: bytes, at: int, place: str) -> tuple[int, int]:
    number = shift = 0
    limit = len(data)
    while True:
        if at >= limit:
            raise MalformedError(f"the value ends in the middle of {place or 'a number'}")
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            number &= _MASK
            return (number >> 1) ^ -(number & 1), at
        shift += 7
        if shift >= 7 * _MOST_VARINT:
            raise MalformedError(f"{place or 'a number'} has more than {_MOST_VARINT} bytes")


def _whole(place: str) -> Read:
    def read(data: bytes, at: int) -> tuple[int, int]:
        # Most numbers are short.
        if at < len(data) and (byte := data[at]) < 128:
            return (byte >> 1) ^ -(byte & 1), at + 1
        return _long(data, at, place)

    return read


def _length(data: bytes, at: int, place: str) -> tuple[int, int]:
    length, at = _long(data, at, place)
    if length < 0 or length > len(data) - at:
        raise MalformedError(f"{place} says that it has {length:,} bytes; {len(data) - at:,} are left")
    return length, at


def _sized(place: str) -> Read:
    def read(data: bytes, at: int) -> tuple[bytes, int]:
        length, at = _length(data, at, place)
        return data[at : at + length], at + length

    return read


def _text(place: str) -> Read:
    def read(data: bytes, at: int) -> tuple[str, int]:
        length, at = _length(data, at, place)
        try:
            return data[at : at + length].decode(), at + length
        except UnicodeDecodeError as problem:
            raise MalformedError(f"{place} is not UTF-8: {problem.reason}") from None

    return read


def _fixed(size: int, place: str) -> Read:
    def read(data: bytes, at: int) -> tuple[bytes, int]:
        if size > len(data) - at:
            raise MalformedError(f"the value ends in the middle of {place}")
        return data[at : at + size], at + size

    return read


def _real(form: str, place: str) -> Read:
    one = struct.Struct(form)

    def read(data: bytes, at: int) -> tuple[float, int]:
        if one.size > len(data) - at:
            raise MalformedError(f"the value ends in the middle of {place}")
        return one.unpack_from(data, at)[0], at + one.size

    return read


def _boolean(place: str) -> Read:
    def read(data: bytes, at: int) -> tuple[bool, int]:
        if at >= len(data):
            raise MalformedError(f"the value ends before {place}")
        if data[at] > 1:
            raise MalformedError(f"{place} is the byte {data[at]}, neither true nor false")
        return data[at] == 1, at + 1

    return read


def _enum(kind: AvroType, place: str) -> Read:
    symbols = kind.symbols

    def read(data: bytes, at: int) -> tuple[str, int]:
        number, at = _long(data, at, place)
        if not 0 <= number < len(symbols):
            raise MalformedError(f"{place} is symbol {number}, of {len(symbols)}")
        return symbols[number], at

    return read


def _union(kind: AvroType, place: str) -> Read:
    reads = [_reader(branch, place) for branch in kind.inner]
    several = len(kind.branches) > 1
    labels = [branch.label if several and branch.kind != "null" else None for branch in kind.inner]

    def read(data: bytes, at: int) -> tuple[Any, int]:
        number, at = _long(data, at, place)
        if not 0 <= number < len(reads):
            raise MalformedError(f"{place} is branch {number} of a union of {len(reads)}")
        value, at = reads[number](data, at)
        label = labels[number]
        return (value if label is None else {label: value}), at

    return read


def _record(kind: AvroType, place: str) -> Read:
    parts = [
        (field.name, _reader(field.type, f"{place}.{field.name}" if place else field.name)) for field in kind.fields
    ]

    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        row = {}
        for name, part in parts:
            row[name], at = part(data, at)
        return row, at

    return read


def _blocks(kind: AvroType, place: str) -> Read:
    """Read an array, or a map as a list of pairs: blocks with a count, the last one empty."""
    is_map = kind.kind == "map"
    key, item = _text(f"{place}[]"), _reader(kind.inner[0], f"{place}[]")
    least = kind.inner[0].least_bytes + is_map

    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        found: list[Any] = []
        while True:
            count, at = _long(data, at, place)
            if not count:
                return found, at
            if count < 0:
                # The size in bytes follows, for those who skip the block. The least number has no counterpart: no
                # writer writes it, and pyruhvro takes it for a block without items.
                count = -count if count > _LEAST_LONG else 0
                _, at = _long(data, at, place)
            if count * least > len(data) - at:
                raise MalformedError(f"{place} says that it has {count:,} items; {len(data) - at:,} bytes are left")
            for _ in range(count):
                if is_map:
                    name, at = key(data, at)
                    value, at = item(data, at)
                    found.append((name, value))
                else:
                    value, at = item(data, at)
                    found.append(value)

    return read
