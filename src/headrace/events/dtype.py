"""Column types as text, as result records carry them.

| text | Polars type |
|---|---|
| `bool`, `i8` ... `i128`, `u8` ... `u128`, `f16`, `f32`, `f64`, `str`, `bin`, `date`, `time`, `null` | of that name |
| `datetime[us,UTC]`, `datetime[ns]` | Datetime with unit and zone, or without a zone |
| `duration[us]`, `decimal[38,2]` | Duration, Decimal |
| `list[i64]`, `array[f64,3]` | List, Array |
| `struct["cell":u64,"count":i64]` | Struct; names are JSON texts |

Categorical and Enum columns are written as `str`: their dictionaries do not belong into every row.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING

import polars as pl

from headrace.errors import SchemaError

if TYPE_CHECKING:
    from polars.datatypes import DataType, DataTypeClass

#: Types inside types, at most so deep.
MAX_DEPTH = 16
#: Elements of one Array value, at most; even a null takes that much memory.
MAX_WIDTH = 65_536

_SIMPLE: dict[str, DataType] = {
    "bool": pl.Boolean(),
    "i8": pl.Int8(),
    "i16": pl.Int16(),
    "i32": pl.Int32(),
    "i64": pl.Int64(),
    "i128": pl.Int128(),
    "u8": pl.UInt8(),
    "u16": pl.UInt16(),
    "u32": pl.UInt32(),
    "u64": pl.UInt64(),
    "u128": pl.UInt128(),
    "f16": pl.Float16(),
    "f32": pl.Float32(),
    "f64": pl.Float64(),
    "str": pl.String(),
    "bin": pl.Binary(),
    "date": pl.Date(),
    "time": pl.Time(),
    "null": pl.Null(),
}
_NAMES: dict[DataType, str] = {dtype: name for name, dtype in _SIMPLE.items()}
_WORD = re.compile(r"[a-z]+[0-9]*")
_ZONE = re.compile(r"[A-Za-z0-9_+\-/]+")
_NUMBER = re.compile(r"[0-9]{1,9}")
_UNITS = ("ms", "us", "ns")


def to_text(dtype: DataType | DataTypeClass) -> str:
    """Write a Polars type as text.

    >>> to_text(pl.List(pl.Struct({"cell": pl.UInt64, "at": pl.Datetime("us", "UTC")})))
    'list[struct["cell":u64,"at":datetime[us,UTC]]]'

    Raises:
        SchemaError: Values of this type cannot be written (pl.Object).
    """
    kind = dtype() if isinstance(dtype, type) else dtype
    if kind in _NAMES:
        return _NAMES[kind]
    if isinstance(kind, pl.Categorical | pl.Enum):
        return "str"
    if isinstance(kind, pl.Datetime):
        return (
            f"datetime[{kind.time_unit}]" if kind.time_zone is None else f"datetime[{kind.time_unit},{kind.time_zone}]"
        )
    if isinstance(kind, pl.Duration):
        return f"duration[{kind.time_unit}]"
    if isinstance(kind, pl.Decimal):
        return f"decimal[{kind.precision or 38},{kind.scale}]"
    if isinstance(kind, pl.List):
        return f"list[{to_text(kind.inner)}]"
    if isinstance(kind, pl.Array):
        inner: DataType | DataTypeClass = kind.inner
        text = to_text(inner if kind.shape is None or len(kind.shape) == 1 else pl.Array(_base(kind), kind.shape[1:]))
        return f"array[{text},{kind.shape[0]}]"
    if isinstance(kind, pl.Struct):
        fields = (f"{json.dumps(field.name, ensure_ascii=False)}:{to_text(field.dtype)}" for field in kind.fields)
        return f"struct[{','.join(fields)}]"
    raise SchemaError(
        f"a column of type {dtype} cannot be written",
        hint="Cast it to numbers, text, times, or lists and structs of these.",
    )


def _base(kind: pl.Array) -> DataType | DataTypeClass:
    inner: DataType | DataTypeClass = kind.inner
    while isinstance(inner, pl.Array):
        inner = inner.inner
    return inner


@lru_cache(maxsize=4096)
def from_text(text: str) -> DataType | None:
    """Read a type from text; None if it is not one.

    >>> from_text("list[f32]"), from_text("decimal[10,2]"), from_text("float")
    (List(Float32), Decimal(precision=10, scale=2), None)
    """
    parser = _Parser(text)
    try:
        dtype = parser.dtype(0)
        pl.Series([], dtype=dtype)  # Polars checks time zones and precisions only now
    except (_NotATypeError, pl.exceptions.PolarsError, ValueError):
        return None
    return dtype if parser.at == len(text) else None


class _NotATypeError(Exception):
    """The text is not a type."""


class _Parser:
    """Reads one type from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.width = 1

    def dtype(self, depth: int) -> DataType:
        word = self._match(_WORD)
        if depth > MAX_DEPTH:
            raise _NotATypeError
        if word in _SIMPLE:
            return _SIMPLE[word]
        self._expect("[")
        result = self._parametric(word, depth)
        self._expect("]")
        return result

    def _parametric(self, word: str, depth: int) -> DataType:
        if word == "list":
            return pl.List(self.dtype(depth + 1))
        if word == "array":
            inner = self.dtype(depth + 1)
            self._expect(",")
            length = int(self._match(_NUMBER))
            self.width *= max(length, 1)
            if self.width > MAX_WIDTH:
                raise _NotATypeError
            return pl.Array(inner, length)
        if word == "struct":
            return self._struct(depth)
        if word == "decimal":
            precision = int(self._match(_NUMBER))
            self._expect(",")
            return pl.Decimal(precision, int(self._match(_NUMBER)))
        unit = self._match(_WORD)
        if word == "duration" and unit in _UNITS:
            return pl.Duration(unit)  # type: ignore[arg-type]
        if word == "datetime" and unit in _UNITS:
            zone = None
            if self._peek(","):
                self._expect(",")
                zone = self._match(_ZONE)
            return pl.Datetime(unit, zone)  # type: ignore[arg-type]
        raise _NotATypeError

    def _struct(self, depth: int) -> DataType:
        fields: dict[str, DataType] = {}
        while not self._peek("]"):
            if fields:
                self._expect(",")
            name, self.at = json.JSONDecoder().raw_decode(self.text, self.at)
            if not isinstance(name, str) or name in fields:
                raise _NotATypeError
            self._expect(":")
            fields[name] = self.dtype(depth + 1)
        return pl.Struct(fields)

    def _peek(self, sign: str) -> bool:
        return self.text.startswith(sign, self.at)

    def _expect(self, sign: str) -> None:
        if not self._peek(sign):
            raise _NotATypeError
        self.at += len(sign)

    def _match(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.at)
        if match is None:
            raise _NotATypeError
        self.at = match.end()
        return match[0]
