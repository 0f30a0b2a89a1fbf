"""Rows to Avro values, by a declared schema or by one made of the columns.

`raw_columns` gives a frame as the raw columns of a schema, and says which column does not fit. pyruhvro writes them;
schemas that it does not take are written by functions made for the schema, row by row.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import SchemaError
from headrace.formats.avro_columns import column_type, default_column
from headrace.formats.avro_reader import varint, wire_schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.formats.avro_schema import AvroField, AvroType

Write: TypeAlias = "Callable[[Any, bytearray], None]"
_EPOCH_UNITS = {"millis": 1_000, "micros": 1, "nanos": -1_000}


def write_values(frame: pl.DataFrame, schema: AvroType) -> pa.BinaryArray:
    """Write each row as a value.

    Args:
        frame: The rows; columns that the schema does not name are not written.
        schema: The record to write.

    Raises:
        SchemaError: A field has no column and no default, or a column does not fit its field.
    """
    columns = [_field_column(frame, field) for field in schema.fields]
    if not frame.height:
        return pa.array([], pa.binary())
    names = [field.name for field in schema.fields]
    quick = wire_schema(schema)
    if quick is not None and not any(kind.kind == "bytes" for kind in schema.walk()):
        import pyruhvro

        batch = pa.record_batch(columns, names=names)
        return pa.concat_arrays(pyruhvro.serialize_record_batch(batch, quick, 1)).cast(pa.binary())
    write = _writer(schema)
    values = []
    for row in pa.StructArray.from_arrays(columns, names=names).to_pylist():
        data = bytearray()
        write(row, data)
        values.append(bytes(data))
    return pa.array(values, pa.binary())


def _field_column(frame: pl.DataFrame, field: AvroField) -> pa.Array:
    """Give the raw column of a field."""
    if field.name not in frame.columns:
        if field.default is None:
            raise SchemaError(
                f"the format avro cannot write: the schema has the field {field.name!r}, which the results do not have "
                "and which has no default",
                hint=f"Select it, or give it a default. Columns are: {', '.join(frame.columns)}.",
            )
        default = default_column(field, field.name).take(pa.array(np.zeros(frame.height, np.int64)))
        return _required(default, field.type, field.name)
    series = frame.get_column(field.name)
    try:
        plain = _plain(series, field.type).rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
        return _required(plain.cast(column_type(field.type)), field.type, field.name)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pl.exceptions.PolarsError) as problem:
        raise SchemaError(
            f"the format avro cannot write column {field.name!r} of type {series.dtype} as {_described(field.type)}: "
            f"{str(problem).partition(chr(10))[0][:160]}",
            hint="Cast it in select(...), or change the schema.",
        ) from problem


def _described(kind: AvroType) -> str:
    return " or ".join(each.logical or each.label for each in kind.branches) or "null"


def _plain(series: pl.Series, kind: AvroType) -> pl.Series:
    """Give a column in types that Arrow casts to those of the schema."""
    if isinstance(series.dtype, pl.Duration):
        return series.dt.total_microseconds() / 1_000_000
    if isinstance(series.dtype, pl.Categorical | pl.Enum):
        return series.cast(pl.String)
    if isinstance(series.dtype, pl.Datetime) and series.dtype.time_unit != "us":
        return series.dt.cast_time_unit("us")
    if isinstance(series.dtype, pl.Array):
        return series.arr.to_list()
    if series.dtype.is_numeric() and any(each.logical == "decimal" for each in kind.branches):
        precise = next(each for each in kind.branches if each.logical == "decimal")
        return series.cast(pl.Decimal(precise.precision, precise.scale))
    return series


def raw_columns(column: pa.Array, kind: AvroType, place: str) -> pa.Array:
    """Give a column as what is on the wire.

    Raises:
        SchemaError: A value does not fit the schema.
    """
    if kind.kind == "union":
        branches = kind.branches
        if not kind.is_nullable and column.null_count:
            raise _null(place)
        if not branches:
            return column
        if len(branches) == 1:
            return raw_columns(column, branches[0], place) if branches[0].kind != "null" else column
        parts = [raw_columns(part, branch, place) for part, branch in zip(column.flatten(), branches, strict=True)]
        mask = column.is_null() if column.null_count else None
        return pa.StructArray.from_arrays(parts, names=[branch.label for branch in branches], mask=mask)
    return _raw_type(column, kind, place)


def _raw_type(column: pa.Array, kind: AvroType, place: str) -> pa.Array:
    """Give a column of one type; it may have nulls where a union around it allows them."""
    if kind.kind == "record":
        if column.null_count:
            there = column.is_valid().to_numpy(zero_copy_only=False)
            dense = _raw_type(column.drop_null(), kind, place)
            return dense.take(pa.array(np.cumsum(there) - 1, mask=~there))
        parts = [_required(column.field(n), field.type, f"{place}.{field.name}") for n, field in enumerate(kind.fields)]
        return pa.StructArray.from_arrays(parts, names=[field.name for field in kind.fields])
    if kind.kind in ("array", "map"):
        mask = column.is_null() if column.null_count else None
        values = column.values
        if kind.kind == "array":
            items = _required(values, kind.inner[0], f"{place}[]")
            return pa.ListArray.from_arrays(column.offsets, items, mask=mask)
        items = _required(values.field("value"), kind.inner[0], f"{place}[]")
        return pa.MapArray.from_arrays(column.offsets, values.field("key"), items, mask=mask)
    if kind.kind == "enum":
        unknown = pc.and_(column.is_valid(), pc.invert(pc.is_in(column, pa.array(kind.symbols))))
        if pc.any(unknown).as_py():
            symbol = column.filter(unknown)[0].as_py()
            raise SchemaError(
                f"the format avro cannot write {symbol!r} in {place}: the enum {kind.label} does not have it",
                hint=f"Symbols are: {', '.join(kind.symbols)}.",
            )
        return column
    return _raw_leaf(column, kind, place)


def _required(column: pa.Array, kind: AvroType, place: str) -> pa.Array:
    if column.null_count and not kind.is_nullable:
        raise _null(place)
    return raw_columns(column, kind, place)


def _null(place: str) -> SchemaError:
    return SchemaError(
        f"the format avro cannot write null in {place}: the schema does not allow it",
        hint='Give the field the type ["null", ...], or fill the nulls.',
    )


def _raw_leaf(column: pa.Array, kind: AvroType, place: str) -> pa.Array:
    if kind.logical == "decimal":
        return _decimal_bytes(column, kind, place)
    if kind.logical == "uuid" and kind.kind == "fixed":
        texts = column.to_pylist()
        return pa.array([None if each is None else bytes.fromhex(each.replace("-", "")) for each in texts], pa.binary())
    if kind.logical == "date":
        return column.cast(pa.int32()).cast(pa.int64())
    if kind.kind in ("int", "long"):
        raw = column.cast(pa.int64())
        unit = _EPOCH_UNITS[kind.logical.rpartition("-")[2]] if kind.logical else 1
        return pc.multiply_checked(raw, -unit) if unit < 0 else _divided(raw, unit) if unit > 1 else raw
    if kind.kind == "fixed" and any(len(each) != kind.size for each in column.drop_null().to_pylist()):
        raise SchemaError(f"the format avro cannot write {place}: a value has not {kind.size} bytes", hint="Pad it.")
    return column


def _divided(raw: pa.Array, unit: int) -> pa.Array:
    """Divide by a unit, downwards."""
    there = raw.is_valid().to_numpy(zero_copy_only=False)
    return pa.array(pc.fill_null(raw, 0).to_numpy(zero_copy_only=False) // unit, mask=~there)


def _decimal_bytes(column: pa.Array, kind: AvroType, place: str) -> pa.Array:
    def written(value: Any) -> bytes | None:
        if value is None:
            return None
        number = int(format(value, "f").replace(".", ""))  # with all digits of its scale
        size = kind.size if kind.kind == "fixed" else (number + (number < 0)).bit_length() // 8 + 1
        return number.to_bytes(size, "big", signed=True)

    try:
        return pa.array([written(value) for value in column.to_pylist()], pa.binary())
    except OverflowError as problem:
        raise SchemaError(
            f"the format avro cannot write {place}: a decimal is beyond {kind.size} bytes", hint="Round it."
        ) from problem


@lru_cache(maxsize=256)
def _writer(kind: AvroType) -> Write:
    """Give the function that writes a value of a type behind bytes."""
    match kind.kind:
        case "record":
            parts = [(field.name, _writer(field.type)) for field in kind.fields]

            def record(value: Any, data: bytearray) -> None:
                for name, write in parts:
                    write(value[name], data)

            return record
        case "array" | "map":
            return _blocks(kind)
        case "union":
            return _union(kind)
        case "enum":
            codes = {symbol: varint(number) for number, symbol in enumerate(kind.symbols)}
            return lambda value, data: data.extend(codes[value])
        case "string":
            return lambda value, data: _sized(value.encode(), data)
        case "bytes":
            return _sized
        case "fixed":
            return lambda value, data: data.extend(value)
        case "float" | "double":
            pack = struct.Struct("<f" if kind.kind == "float" else "<d").pack
            return lambda value, data: data.extend(pack(value))
        case "boolean":
            return lambda value, data: data.append(bool(value))
        case "null":
            return lambda _value, _data: None
    return lambda value, data: data.extend(varint(value))


def _sized(value: bytes, data: bytearray) -> None:
    data += varint(len(value))
    data += value


def _blocks(kind: AvroType) -> Write:
    write = _writer(kind.inner[0])
    is_map = kind.kind == "map"

    def blocks(value: Any, data: bytearray) -> None:
        if value:
            data += varint(len(value))
            for item in value:
                if is_map:
                    _sized(item[0].encode(), data)
                write(item[1] if is_map else item, data)
        data.append(0)

    return blocks


def _union(kind: AvroType) -> Write:
    writes = [(varint(number), _writer(branch)) for number, branch in enumerate(kind.inner)]
    null = next((number for number, branch in enumerate(kind.inner) if branch.kind == "null"), None)
    labels = [branch.label for branch in kind.inner]
    several = len(kind.branches) > 1

    def union(value: Any, data: bytearray) -> None:
        if several and value is not None:
            # A struct of which one field is there; where none is, it is null.
            number = next((n for n, label in enumerate(labels) if value.get(label) is not None), null)
            value = None if number is None else value.get(labels[number])
        else:
            number = null if value is None else next(n for n in range(len(writes)) if n != null)
        if number is None:
            raise SchemaError(
                f"the format avro cannot write null as {' or '.join(labels)}", hint="Let the union have null."
            )
        code, write = writes[number]
        data += code
        write(value, data)

    return union
