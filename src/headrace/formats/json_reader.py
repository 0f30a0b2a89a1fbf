"""Objects of JSON to columns: all values at once where they are as they should be, one by one where they are not.

`read_objects` decides. The quick way hands all values, one per line, to Arrow's reader, which refuses the whole if one
of them does not fit. It can be trusted to have given each value its own row: every value begins with a brace and ends
with one, and no JSON has `}`, a line break and `{` in sequence but between two objects, so there are as many objects as
values only if each value is exactly one. What the quick way refuses is divided, and small parts are read one by one by
`read_object`, which defines what is right; the quick way may refuse more than it, never accept more.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as arrow_json

from headrace.events.letters import Reason, Rejection
from headrace.events.reader import value_lengths, value_offsets

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Objects and arrays inside each other, at most so deep.
MAX_DEPTH = 256
#: A part that was refused is divided into so many; one of at most so many values is read one by one.
_DIVIDE = 16
_ONE_BY_ONE = 24
_MOST_BYTES = 512 << 20
_LONG_NUMBER = 40
_SHOWN = 80
_BOM = b"\xef\xbb\xbf"
_BEFORE_A_VALUE = frozenset(b":,[- \t\r\n")
_TEXTS = (pl.Datetime, pl.Date)


class WrongValueError(Exception):
    """A value does not fit its column."""


class _Real(float):
    """A number with a fraction or an exponent, and how it is written."""

    text: str


def arrow_type(kind: pl.DataType) -> pa.DataType:
    """Tell the Arrow type that a column is read as; times are read as texts, and numbers are rounded afterwards."""
    if isinstance(kind, _TEXTS):
        return pa.string()
    if kind == pl.Float32:
        return pa.float64()
    if isinstance(kind, pl.List):
        return pa.list_(arrow_type(_instance(kind.inner)))
    if isinstance(kind, pl.Struct):
        return pa.struct([(field.name, arrow_type(_instance(field.dtype))) for field in kind.fields])
    return _SIMPLE[kind]


_SIMPLE: dict[Any, pa.DataType] = {
    pl.String(): pa.string(),
    pl.Boolean(): pa.bool_(),
    pl.Int8(): pa.int8(),
    pl.Int16(): pa.int16(),
    pl.Int32(): pa.int32(),
    pl.Int64(): pa.int64(),
    pl.UInt8(): pa.uint8(),
    pl.UInt16(): pa.uint16(),
    pl.UInt32(): pa.uint32(),
    pl.UInt64(): pa.uint64(),
    pl.Float64(): pa.float64(),
}


def _instance(kind: Any) -> pl.DataType:
    found: pl.DataType = kind() if isinstance(kind, type) else kind
    return found


def read_objects(values: pa.BinaryArray, schema: pa.Schema) -> tuple[pa.Table, NDArray[np.int64], dict[int, Rejection]]:
    """Read values, none of which is null.

    Args:
        values: The values.
        schema: The fields to read.

    Returns:
        The rows, the position of each among the values, and why the others cannot be read.
    """
    rejections: dict[int, Rejection] = {}
    plain = _is_plain(values)
    rows = np.arange(len(values))
    if not plain.all():
        # Longer values are looked at for depth; white space and a byte order mark at the ends are cut off.
        changed: list[bytes] = []
        source = np.arange(len(values))
        for row in np.flatnonzero(~plain).tolist():
            text = values[row].as_py().removeprefix(_BOM).strip(b" \t\r\n")
            if not (text[:1] == b"{" and text[-1:] == b"}"):
                rejections[row] = _no_object(text)
            elif text.count(b"{") + text.count(b"[") > MAX_DEPTH and _depth(text) > MAX_DEPTH:
                rejections[row] = Rejection(Reason.MALFORMED_JSON, f"nested deeper than {MAX_DEPTH} levels")
            else:
                source[row] = len(values) + len(changed)
                changed.append(text)
        rows = np.setdiff1d(rows, np.array(list(rejections), np.int64))
        values = pa.concat_arrays([values, pa.array(changed, pa.binary())]).take(pa.array(source[rows]))
    tables, kept = [schema.empty_table()], [np.zeros(0, np.int64)]
    todo = [(0, len(values))] if len(values) else []
    while todo:
        begin, end = todo.pop()
        table = _read_all(values.slice(begin, end - begin), schema)
        if table is not None:
            tables.append(table)
            kept.append(rows[begin:end])
        elif end - begin <= _ONE_BY_ONE:
            table, good = _one_by_one(values, range(begin, end), schema, rows, rejections)
            tables.append(table)
            kept.append(rows[good])
        else:
            step = -(-(end - begin) // _DIVIDE)
            todo += [(at, min(at + step, end)) for at in reversed(range(begin, end, step))]
    return pa.concat_tables(tables), np.concatenate(kept), rejections


def _is_plain(values: pa.BinaryArray) -> NDArray[np.bool_]:
    """Tell which values begin and end with a brace and are too short to be nested too deep."""
    lengths = value_lengths(values)
    data = values.buffers()[2]
    if data is None or not data.size:
        return np.zeros(len(values), bool)
    offsets = value_offsets(values)
    every = np.frombuffer(data, np.uint8)
    first = every[np.minimum(offsets[:-1], data.size - 1)]
    last = every[np.maximum(offsets[1:] - 1, 0)]
    plain: NDArray[np.bool_] = (first == ord("{")) & (last == ord("}")) & (lengths > 1) & (lengths < 2 * MAX_DEPTH)
    return plain


def _read_all(values: pa.BinaryArray, schema: pa.Schema) -> pa.Table | None:
    """Read objects in one call; None if one of them may not be as it should be."""
    if int(value_lengths(values).sum()) > _MOST_BYTES:
        return None
    whole = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    data = pc.binary_join(whole, b"\n")[0].as_py() + b"\n"
    if _may_have_constants(data):
        return None
    try:
        data.decode()
        table = arrow_json.read_json(
            pa.BufferReader(data),
            read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(data)),
            parse_options=arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except (pa.ArrowInvalid, UnicodeDecodeError):
        return None
    return table if table.num_rows == len(values) else None


def _may_have_constants(data: bytes) -> bool:
    """Tell whether NaN or Infinity may stand in the place of a value: Arrow reads them, and they are no JSON."""
    for word in (b"NaN", b"Inf"):
        if word[:1] not in data:  # a single byte is found several times as fast as a word
            continue
        at = data.find(word)
        while at > 0:
            if data[at - 1] in _BEFORE_A_VALUE:
                return True
            at = data.find(word, at + 3)
    return False


def _one_by_one(
    values: pa.BinaryArray,
    part: range,
    schema: pa.Schema,
    rows: NDArray[np.int64],
    rejections: dict[int, Rejection],
) -> tuple[pa.Table, list[int]]:
    found: list[dict[str, Any]] = []
    good: list[int] = []
    for place in part:
        row = read_object(values[place].as_py(), schema)
        if isinstance(row, Rejection):
            rejections[int(rows[place])] = row
        else:
            found.append(row)
            good.append(place)
    return pa.Table.from_pylist(found, schema=schema), good


def read_object(text: bytes, schema: pa.Schema) -> dict[str, Any] | Rejection:
    """Read one value.

    Args:
        text: The value.
        schema: The fields to read.
    """
    try:
        whole = json.loads(text.decode(), parse_constant=_refuse_constant, parse_float=_real, parse_int=_integer)
        if b"\\u" in text:
            # A surrogate without its other half is no text, wherever it stands.
            json.dumps(whole, ensure_ascii=False).encode()
    except UnicodeDecodeError as problem:
        return Rejection(Reason.MALFORMED_JSON, f"the value is not UTF-8: {problem.reason} at byte {problem.start}")
    except UnicodeEncodeError:
        return Rejection(Reason.MALFORMED_JSON, "half of a surrogate pair in a text")
    except RecursionError:
        return Rejection(Reason.MALFORMED_JSON, "nested too deep")
    except ValueError as problem:
        return Rejection(Reason.MALFORMED_JSON, f"the value is no JSON: {problem}")
    if not isinstance(whole, dict):
        return _no_object(text)
    try:
        return {field.name: _fitted(whole.get(field.name), field.type, field.name) for field in schema}
    except WrongValueError as problem:
        return Rejection(Reason.WRONG_TYPE, str(problem))


def _no_object(text: bytes) -> Rejection:
    try:
        kind = _kind(json.loads(text, parse_float=_real, parse_int=_integer))
    except (ValueError, RecursionError):
        shown = text[:_SHOWN].decode(errors="backslashreplace")
        return Rejection(Reason.MALFORMED_JSON, f"the value is no JSON object: {shown!r}")
    return Rejection(Reason.MALFORMED_JSON, f"the value is {kind}, not an object")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _integer(text: str) -> int | float:
    # No column holds a longer one, and Python refuses to read those of thousands of digits.
    return int(text) if len(text) <= _LONG_NUMBER else float(text)


def _real(text: str) -> _Real:
    number = _Real(text)
    number.text = text
    return number


def _fitted(value: Any, kind: pa.DataType, path: str) -> Any:
    """Give a value as its column holds it.

    Raises:
        WrongValueError: It does not fit.
    """
    if value is None:
        return None
    if pa.types.is_string(kind) and isinstance(value, str):
        return value
    if pa.types.is_boolean(kind) and isinstance(value, bool):
        return value
    if pa.types.is_floating(kind) and isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value)
        if abs(number) != float("inf"):
            return number
        raise WrongValueError(f"{path} is a number beyond Float64")
    if pa.types.is_integer(kind) and isinstance(value, int | float) and not isinstance(value, bool):
        return _whole(value, kind, path)
    if pa.types.is_list(kind) and isinstance(value, list):
        return [_fitted(each, kind.value_type, f"{path}[]") for each in value]
    if pa.types.is_struct(kind) and isinstance(value, dict):
        return {field.name: _fitted(value.get(field.name), field.type, f"{path}.{field.name}") for field in kind}
    raise WrongValueError(f"{path} is {_kind(value)}, not {_NAMES.get(kind.id, str(kind))}")


def _whole(value: float, kind: pa.DataType, path: str) -> int:
    signed = pa.types.is_signed_integer(kind)
    low, high = (
        (-(1 << (kind.bit_width - 1)), (1 << (kind.bit_width - 1)) - 1) if signed else (0, (1 << kind.bit_width) - 1)
    )
    number: Any = value
    if isinstance(value, _Real) and value.is_integer() and abs(value) < 1 << 65 and len(value.text) <= _LONG_NUMBER:
        exact = Decimal(value.text) if value else Decimal(0)
        number = int(exact) if exact == exact.to_integral_value() else value
    if isinstance(number, float):
        what = "beyond" if abs(number) >= 1 << 63 else "no whole number, so not"
        raise WrongValueError(f"{path} is {str(value)[:_SHOWN]}: {what} {str(kind).capitalize()}")
    if not low <= number <= high:
        raise WrongValueError(f"{path} is {number}: beyond {str(kind).capitalize()}")
    return int(number)


_NAMES = {
    pa.string().id: "a text",
    pa.bool_().id: "true or false",
    pa.float64().id: "a number",
    pa.int64().id: "a whole number",
    pa.list_(pa.null()).id: "an array",
    pa.struct([]).id: "an object",
}


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {str(value)[:_SHOWN]}"
    if isinstance(value, str):
        return f"the text {value[:_SHOWN]!r}"
    return "an array" if isinstance(value, list) else "an object"


def _depth(text: bytes) -> int:
    """Tell how deep objects and arrays are nested; brackets in texts do not count."""
    data = np.frombuffer(text.replace(b"\\\\", b"  ").replace(b'\\"', b"  "), np.uint8)
    outside = np.cumsum(data == ord('"')) % 2 == 0
    step = ((data == ord("{")) | (data == ord("["))).astype(np.int64) - ((data == ord("}")) | (data == ord("]")))
    return int(np.cumsum(np.where(outside, step, 0)).max(initial=0))
