"""Rows whose columns no schema knows: any frame as lists of named, typed cells, and back.

What a job answers is up to its author, so a result record carries its columns itself: a list of `Column`, each with
name, type and value. Here that list, for a whole batch at once, becomes a frame with the very same columns and types,
and back. A message type that has a field `repeated headrace.v1.Column columns` is *open*: in the codec, all columns of
a frame that are not fields of the type go there.

A type is written only where the value does not tell it: `integer` alone means i64, `text` means str, and so on.
"""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError

from headrace.errors import SchemaError
from headrace.events import dtype as dtypes
from headrace.events.columns import MAX_SECONDS, MIN_SECONDS
from headrace.events.layout import OPEN_FIELD, Layout
from headrace.events.schemas.records_pb2 import Cells, Column

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray
    from polars.datatypes import DataType, DataTypeClass

FIELD = OPEN_FIELD
#: More columns than this in one row, or in all rows of a batch together, and the rows that bring them are dead letters.
MAX_COLUMNS = 1_000

_CELL = Layout(Column.DESCRIPTOR).arrow_schema
_CELL_TYPE = pa.struct(list(_CELL))
_LIST_TYPE = pa.list_(pa.field("item", _CELL_TYPE, nullable=False))
_MEMBERS = ("boolean", "integer", "unsigned", "real", "text", "blob", "instant", "items")
#: Holds the position of each row while frames are put together; no column of a record can be called so.
_MARKER = "\0row"
#: What a member means where the type is left out.
_NATURAL = {
    "boolean": "bool",
    "integer": "i64",
    "unsigned": "u64",
    "real": "f64",
    "text": "str",
    "blob": "bin",
    "instant": "datetime[us,UTC]",
}
_NATURAL_MEMBERS = {text: member for member, text in _NATURAL.items()}


@lru_cache(maxsize=1024)
def _member(kind: DataType | DataTypeClass) -> str:
    """The member of `Column` that holds values of a type; "" for the type of nothing but nulls."""
    text = dtypes.to_text(kind)
    if text in _NATURAL_MEMBERS:
        return _NATURAL_MEMBERS[text]
    if kind == pl.Null:
        return ""
    if kind.is_nested():
        return "items"
    if isinstance(kind, pl.Decimal | pl.Int128 | pl.UInt128):
        return "text"
    if kind.is_float():
        return "real"
    return "unsigned" if kind.is_unsigned_integer() else "integer"


# -------------------------------------------------------------------- frame -> cells


def pack(frame: pl.DataFrame, columns: Sequence[str]) -> pa.ListArray:
    """Columns of a frame as one column of cells, one list per row."""
    rows, width = frame.height, len(columns)
    if width > MAX_COLUMNS:
        raise SchemaError(f"{width} columns; at most {MAX_COLUMNS}", hint="Put some into a struct or a list.")
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * width)
    if not rows or not width:
        return pa.ListArray.from_arrays(offsets, pa.array([], _CELL_TYPE), type=_LIST_TYPE)
    by_member: dict[str, list[tuple[int, pa.Array]]] = {}
    texts = [""]
    type_codes = np.zeros((rows, width), np.int32)
    for position, series in enumerate(map(frame.get_column, columns)):
        member = _member(series.dtype)
        text = dtypes.to_text(series.dtype)
        natural = _NATURAL.get(member) == text
        if member:
            by_member.setdefault(member, []).append((position, _to_member(series, member)))
        if not natural or series.null_count():
            texts.append(text)
            type_codes[:, position] = len(texts) - 1
            if natural:
                type_codes[:, position][series.is_not_null().to_numpy()] = 0
    cell = {
        "name": pa.array(columns, pa.string()).take(pa.array(np.tile(np.arange(width), rows))),
        "type": pa.array(texts, pa.string()).take(pa.array(type_codes.ravel())),
    }
    for field in _CELL:
        if field.name in _MEMBERS:
            cell[field.name] = _interleave(by_member.get(field.name, []), rows, width, field.type)
    values = pa.StructArray.from_arrays([cell[field.name] for field in _CELL], fields=list(_CELL))
    return pa.ListArray.from_arrays(offsets, values, type=_LIST_TYPE)


def _interleave(columns: list[tuple[int, pa.Array]], rows: int, width: int, of: pa.DataType) -> pa.Array:
    """Columns side by side -> one array, row after row, with nulls where other members hold the value."""
    if not columns:
        return pa.nulls(rows * width, of)
    source = np.full((rows, width), -1, np.int64)
    for index, (position, _) in enumerate(columns):
        source[:, position] = np.arange(index * rows, (index + 1) * rows)
    flat = source.ravel()
    return pa.concat_arrays([array for _, array in columns]).take(pa.array(flat, mask=flat < 0))


def _to_member(series: pl.Series, member: str) -> pa.Array:
    target = _CELL.field(member).type
    if member == "items":
        cells = [
            None
            if value is None
            else {"cells": [cell.SerializeToString() for cell in _items(value, series.dtype).cells]}
            for value in _python_values(series)
        ]
        return pa.array(cells, target)
    if member == "text":
        return series.cast(pl.String).to_arrow().cast(target)
    if member == "integer":
        return series.to_physical().cast(pl.Int64).to_arrow()
    if member == "unsigned":
        return series.cast(pl.UInt64).to_arrow()
    if member == "real":
        return series.cast(pl.Float64).to_arrow()
    return series.to_arrow().cast(target)


def _python_values(series: pl.Series) -> list[Any]:
    """Values as Python objects, times as their numbers."""
    return series.cast(_physical_type(series.dtype)).to_list()


@lru_cache(maxsize=1024)
def _physical_type(kind: DataType | DataTypeClass) -> DataType | DataTypeClass:
    if isinstance(kind, pl.List):
        return pl.List(_physical_type(kind.inner))
    if isinstance(kind, pl.Array):
        return pl.Array(_physical_type(_element(kind)), kind.shape[0])
    if isinstance(kind, pl.Struct):
        return pl.Struct({field.name: _physical_type(field.dtype) for field in kind.fields})
    member = _member(kind)
    return {"integer": pl.Int64(), "unsigned": pl.UInt64(), "real": pl.Float64(), "text": pl.String()}.get(member, kind)


@lru_cache(maxsize=1024)
def _element(kind: DataType | DataTypeClass) -> DataType | DataTypeClass:
    """What one element of a list or array is; of a two-dimensional array, a row."""
    if isinstance(kind, pl.Array) and len(kind.shape) > 1:
        return dtypes.from_text(dtypes.to_text(kind)[len("array[") :].rpartition(",")[0]) or kind.inner
    return kind.inner  # type: ignore[union-attr,no-any-return]


def _items(value: Any, kind: DataType | DataTypeClass) -> Cells:
    """A list or a struct (as physical Python values) as cells."""
    if isinstance(kind, pl.Struct):
        return Cells(cells=[_cell(value[field.name], field.dtype) for field in kind.fields])
    return Cells(cells=[_cell(item, _element(kind)) for item in value])


def _cell(value: Any, kind: DataType | DataTypeClass) -> Column:
    cell = Column()
    if value is None:
        return cell
    member = _member(kind)
    if member == "items":
        cell.items.CopyFrom(_items(value, kind))
    elif member == "instant":
        cell.instant.FromDatetime(value)
    elif member:
        setattr(cell, member, value)
    return cell


# -------------------------------------------------------------------- cells -> frame


@dataclass(frozen=True, slots=True)
class Unpacked:
    """What came out of a column of cells.

    Args:
        frame: The columns of all good rows; a row that lacks one has null there.
        rows: The position of each good row, ascending.
        bad: Position and reason of every other row.
    """

    frame: pl.DataFrame
    rows: NDArray[np.int64]
    bad: list[tuple[int, str]]


def unpack(
    column: pa.ListArray, *, taken: Sequence[str] = (), schema: Mapping[str, DataType] | None = None
) -> Unpacked:
    """Columns from cells.

    Args:
        column: One list of cells per row.
        taken: Names that columns cannot have, because the frame needs them for itself.
        schema: Only these columns, as these types; a row with a value that is none is bad. None: all, as they are.
    """
    bad: list[tuple[int, str]] = []
    pieces: list[pl.DataFrame] = []
    seen: set[str] = set()
    for names, rows in _by_signature(column, bad):
        problem = _name_problem(names, seen, (*taken, _MARKER))
        if problem:
            bad.extend((row, problem) for row in rows.tolist())
            continue
        if schema is None:
            seen.update(names)
        pieces.extend(_columns_of(names, rows, column, bad, schema))
    frame, positions = _join(pieces, bad)
    return Unpacked(frame, positions, sorted(bad))


def _by_signature(column: pa.ListArray, bad: list[tuple[int, str]]) -> list[tuple[tuple[str, ...], NDArray[np.int64]]]:
    """Group rows that have the same column names in the same order; nearly always there is one group."""
    lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False)
    offsets = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    encoded = column.flatten().field("name").dictionary_encode()
    names, codes = encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False)
    groups: list[tuple[tuple[str, ...], NDArray[np.int64]]] = []
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        if length > MAX_COLUMNS:
            bad.extend((int(row), f"{length} columns in one row; at most {MAX_COLUMNS}") for row in rows)
            continue
        table = codes[offsets[rows][:, None] + np.arange(length)] if length else np.zeros((len(rows), 0), np.int32)
        groups.extend(
            (tuple(names[code] for code in signature), rows[inside]) for inside, signature in _distinct_rows(table)
        )
    return sorted(groups, key=lambda group: int(group[1][0]))


def _name_problem(names: tuple[str, ...], seen: set[str], taken: Sequence[str]) -> str:
    if len(set(names)) < len(names):
        return "a column name occurs twice in one row"
    if clash := sorted(set(names) & set(taken)):
        return f"column name {clash[0]!r} is one of the record's own"
    if len(seen | set(names)) > MAX_COLUMNS:
        return f"more than {MAX_COLUMNS} different columns in one batch"
    return ""


def _columns_of(
    names: tuple[str, ...],
    rows: NDArray[np.int64],
    column: pa.ListArray,
    bad: list[tuple[int, str]],
    schema: Mapping[str, DataType] | None,
) -> list[pl.DataFrame]:
    """The frames of rows with the same names: one for each combination of types, nearly always one."""
    chosen = [position for position, name in enumerate(names) if schema is None or name in schema]
    if not chosen:
        return [pl.DataFrame({_MARKER: rows})]
    cells = (column if len(rows) == len(column) else column.take(pa.array(rows))).flatten()
    if len(chosen) < len(names):
        cells = cells.take(pa.array((np.arange(len(rows))[:, None] * len(names) + np.array(chosen)).ravel()))
        names = tuple(names[position] for position in chosen)
    width = len(names)
    resolved = _resolve(cells)
    table = resolved.indices.to_numpy(zero_copy_only=False).reshape(len(rows), width)
    texts = resolved.dictionary.to_pylist()
    result = []
    for inside, codes in _distinct_rows(table):
        whole = len(inside) == len(rows)
        part = cells if whole else cells.take(pa.array((inside[:, None] * width + np.arange(width)).ravel()))
        good = np.ones(len(inside), bool)
        series = []
        for position, (name, code) in enumerate(zip(names, codes.tolist(), strict=True)):
            text = texts[code]
            kind = dtypes.from_text(text)
            if kind is None:
                problem = f"column {name!r} has the unknown type {text[:100]!r}"
                bad.extend((row, problem) for row in rows[inside][good].tolist())
                good[:] = False
                break
            one = part.take(pa.array(np.arange(len(inside)) * width + position))
            values, fits = _from_cells(name, kind, one)
            wrong = good & ~fits
            problem = f"column {name!r} holds a value that is no {text}"
            bad.extend((row, problem) for row in rows[inside][wrong].tolist())
            good &= fits
            if schema is not None:
                values, fits = _as_declared(values, schema[name])
                problem = f"column {name!r} is {text}, which cannot be read as {dtypes.to_text(schema[name])}"
                bad.extend((row, problem) for row in rows[inside][good & ~fits].tolist())
                good &= fits
            series.append(values)
        if good.any():
            frame = pl.DataFrame([*series, pl.Series(_MARKER, rows[inside])])
            result.append(frame if good.all() else frame.filter(pl.Series(good)))
    return result


def _as_declared(values: pl.Series, kind: DataType) -> tuple[pl.Series, NDArray[np.bool_]]:
    """A column as the type that a reader expects, and which rows lose nothing by that."""
    if values.dtype == kind:
        return values, np.ones(len(values), bool)
    held = values.dtype
    related = (
        held == pl.Null
        or (kind.is_numeric() and held.is_integer())
        or (kind.is_float() and held.is_numeric())
        or (isinstance(kind, pl.Datetime) and isinstance(held, pl.Datetime) and held.time_zone == kind.time_zone)
        or (isinstance(kind, pl.Duration) and isinstance(held, pl.Duration))
    )
    if not related:
        return pl.Series(values.name, [None] * len(values), kind), values.is_null().to_numpy()
    made = values.cast(kind, strict=False)
    return made, (made.is_null() == values.is_null()).to_numpy()


def _distinct_rows(table: NDArray[np.int32]) -> list[tuple[NDArray[np.int64], NDArray[np.int32]]]:
    """The different rows of a table of codes, each with the positions where it occurs."""
    if (table == table[0]).all():
        return [(np.arange(len(table)), table[0])]
    distinct, which = np.unique(table, axis=0, return_inverse=True)
    which = which.ravel()
    return [(np.flatnonzero(which == index), row) for index, row in enumerate(distinct)]


def _resolve(cells: pa.StructArray) -> pa.DictionaryArray:
    """The type of each cell as text: the one it says, or the natural one of the member it has."""
    text = cells.field("type")
    unsaid = pc.equal(text, "")
    if not pc.any(unsaid).as_py():
        return text.dictionary_encode()
    natural = pa.scalar("null", pa.string())
    for member in reversed(_NATURAL):
        natural = pc.if_else(cells.field(member).is_valid(), pa.scalar(_NATURAL[member], pa.string()), natural)
    # A list or struct without its type cannot be read; the empty text is no type.
    natural = pc.if_else(cells.field("items").is_valid(), pa.scalar("", pa.string()), natural)
    return pc.if_else(unsaid, natural, text).dictionary_encode()


def _from_cells(name: str, kind: DataType, cells: pa.StructArray) -> tuple[pl.Series, NDArray[np.bool_]]:
    """One column, and which of its rows hold a value of the type, or null."""
    member = _member(kind)
    fits = np.ones(len(cells), bool)
    for other in _MEMBERS:
        array = cells.field(other)
        if other != member and array.null_count < len(array):
            fits &= array.is_null().to_numpy(zero_copy_only=False)
    if not member:
        return pl.Series(name, [None] * len(cells), pl.Null), fits
    array = cells.field(member)
    if member == "items":
        values, readable = _nested(name, array, kind)
        return values, fits & readable
    raw = pl.Series(name, pl.from_arrow(array))
    made = _cast(raw, kind)
    return made, fits & (made.is_null() == raw.is_null()).to_numpy()


def _cast(raw: pl.Series, kind: DataType) -> pl.Series:
    """Cast, with null for what the type, or any calendar, cannot hold."""
    if (limits := _limits(kind)) is not None:
        raw = raw.to_frame().select(pl.when(pl.all().is_between(*limits)).then(pl.all())).to_series()
    return raw.cast(kind, strict=False)


def _limits(kind: DataType | DataTypeClass) -> tuple[int, int] | None:
    """The least and the greatest number of a time type that Python's own types can show."""
    if isinstance(kind, pl.Date):
        return MIN_SECONDS // 86_400, MAX_SECONDS // 86_400
    if isinstance(kind, pl.Time):
        return 0, 86_400 * 10**9 - 1
    if isinstance(kind, pl.Datetime) and kind.time_unit != "ns":
        per_second = 10**6 if kind.time_unit == "us" else 1_000
        return MIN_SECONDS * per_second, (MAX_SECONDS + 1) * per_second - 1
    if isinstance(kind, pl.Duration) and kind.time_unit == "ms":
        most = timedelta.max // timedelta(milliseconds=1)
        return -most, most
    return None


def _nested(name: str, items: pa.StructArray, kind: DataType) -> tuple[pl.Series, NDArray[np.bool_]]:
    values: list[Any] = []
    readable = np.ones(len(items), bool)
    for row, entry in enumerate(items.to_pylist()):
        try:
            values.append(None if entry is None else _from_items(map(Column.FromString, entry["cells"]), kind))
        except (DecodeError, _MismatchError, ValueError, OverflowError):
            readable[row] = False
            values.append(None)
    made = _nested_series(name, values, kind)
    if made is None:
        # One of them does not fit, such as a number beyond the type's range: find out which.
        for row, value in enumerate(values):
            if _nested_series(name, [value], kind) is None:
                readable[row] = False
                values[row] = None
        made = _nested_series(name, values, kind)
    return pl.Series(name, [None] * len(values), kind) if made is None else made, readable


def _nested_series(name: str, values: list[Any], kind: DataType) -> pl.Series | None:
    try:
        return pl.Series(name, values, _physical_type(kind)).cast(kind)
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError):
        return None


class _MismatchError(Exception):
    """A cell inside a list or struct is not of the type that the column says."""


def _from_items(cells: Iterable[Column], kind: DataType | DataTypeClass) -> Any:
    cells = list(cells)
    if isinstance(kind, pl.Struct):
        if len(cells) != len(kind.fields):
            raise _MismatchError
        return {field.name: _value(cell, field.dtype) for field, cell in zip(kind.fields, cells, strict=True)}
    if isinstance(kind, pl.Array) and len(cells) != kind.shape[0]:
        raise _MismatchError
    inner = _element(kind)
    return [_value(cell, inner) for cell in cells]


def _value(cell: Column, kind: DataType | DataTypeClass) -> Any:
    held = cell.WhichOneof("value")
    if held is None:
        return None
    if held != _member(kind):
        raise _MismatchError
    if held == "items":
        return _from_items(cell.items.cells, kind)
    if held == "instant":
        return cell.instant.ToDatetime(tzinfo=UTC)
    value = getattr(cell, held)
    if held == "integer" and (limits := _limits(kind)) is not None and not limits[0] <= value <= limits[1]:
        raise _MismatchError
    return value


def _join(pieces: list[pl.DataFrame], bad: list[tuple[int, str]]) -> tuple[pl.DataFrame, NDArray[np.int64]]:
    """One frame of all pieces: missing columns are null, types widen if nothing is lost; else later rows are bad."""
    joined: list[pl.DataFrame] = []
    schema: dict[str, DataType] = {}
    for piece in pieces:
        merged = {name: _common(schema.get(name, kind), kind) for name, kind in piece.schema.items()}
        if misfits := [name for name, kind in merged.items() if kind is None]:
            text = f"column {misfits[0]!r} is {piece.schema[misfits[0]]}, but {schema[misfits[0]]} in earlier rows"
            bad.extend((row, text) for row in piece.get_column(_MARKER).to_list())
            continue
        schema |= {name: kind for name, kind in merged.items() if kind is not None}
        joined.append(piece)
    if not joined:
        return pl.DataFrame(), np.zeros(0, np.int64)
    cast = [piece.cast({name: schema[name] for name in piece.columns}) for piece in joined]
    frame = cast[0] if len(cast) == 1 else pl.concat(cast, how="diagonal")
    if len(cast) > 1:
        frame = frame.sort(_MARKER)
    return frame.drop(_MARKER), frame.get_column(_MARKER).to_numpy()


def _common(left: DataType, right: DataType) -> DataType | None:
    """The type that holds all values of both without loss, or None."""
    if left == right or right == pl.Null:
        return left
    if left == pl.Null:
        return right
    order = [pl.Int8(), pl.Int16(), pl.Int32(), pl.Int64()], [pl.UInt8(), pl.UInt16(), pl.UInt32(), pl.UInt64()]
    for family in (*order, [pl.Float32(), pl.Float64()]):
        if left in family and right in family:
            return family[max(family.index(left), family.index(right))]  # type: ignore[arg-type]
    return None


# -------------------------------------------------------------------- for people


def to_values(columns: Iterable[Column]) -> dict[str, Any]:
    """The columns of one record as JSON values; what does not fit its type is shown as it is.

    >>> to_values([Column(name="count", integer=3), Column(name="day", type="date", integer=0)])
    {'count': 3, 'day': '1970-01-01'}
    """
    result = {}
    for column in columns:
        held = column.WhichOneof("value")
        kind = dtypes.from_text(column.type or _NATURAL.get(held or "", "null"))
        try:
            value = None if kind is None else _shown(_value(column, kind), kind)
            result[column.name] = _json_value(value)
        except (_MismatchError, ValueError, TypeError, OverflowError, pl.exceptions.PolarsError):
            result[column.name] = str(column).strip()
    return result


def _shown(value: Any, kind: DataType) -> Any:
    """A value as Python shows it: a datetime, not the number that stands for it."""
    return pl.Series([value], dtype=_physical_type(kind)).cast(kind)[0]


def _json_value(value: Any) -> Any:
    if isinstance(value, pl.Series):
        value = value.to_list()
    if isinstance(value, list):
        return [_json_value(item) for item in value]
    if isinstance(value, dict):
        return {name: _json_value(item) for name, item in value.items()}
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g}s"  # as protobuf's JSON form writes durations
    return value if isinstance(value, str | int | float | bool | None) else str(value)
