"""Types of columns as SQL writes them, and as Polars has them.

| SQL | Polars |
|---|---|
| `BOOLEAN`, `TINYINT`, `SMALLINT`, `INT`, `BIGINT` | `Boolean`, `Int8` to `Int64` |
| `FLOAT` (`REAL`), `DOUBLE`, `DECIMAL(p, s)` | `Float32`, `Float64`, `Decimal(p, s)` |
| `STRING`, `VARCHAR(n)`, `CHAR(n)` | `String`; the length is not checked |
| `BYTES`, `VARBINARY(n)`, `BINARY(n)` | `Binary` |
| `DATE`, `TIME` | `Date`, `Time` |
| `TIMESTAMP(p)`, `TIMESTAMP_LTZ(p)` | `Datetime("us", "UTC")`: times are UTC, in microseconds |
| `ARRAY<t>`, `t ARRAY`, `ROW<name t, ...>`, `MAP<k, v>` | `List`, `Struct`, `List(Struct(key, value))` |
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

import polars as pl

from headrace.cep.sql.lexer import problem

if TYPE_CHECKING:
    from polars.datatypes import DataTypeClass

    from headrace.cep.sql.lexer import Cursor

_WITHIN: Final = "the type of a column"
_MAX_DEPTH: Final = 16
_SIMPLE: Final[dict[str, pl.DataType]] = {
    "BOOLEAN": pl.Boolean(),
    "BOOL": pl.Boolean(),
    "TINYINT": pl.Int8(),
    "SMALLINT": pl.Int16(),
    "INT": pl.Int32(),
    "INTEGER": pl.Int32(),
    "BIGINT": pl.Int64(),
    "FLOAT": pl.Float32(),
    "REAL": pl.Float32(),
    "DOUBLE": pl.Float64(),
    "STRING": pl.String(),
    "TEXT": pl.String(),
    "VARCHAR": pl.String(),
    "CHAR": pl.String(),
    "BYTES": pl.Binary(),
    "BINARY": pl.Binary(),
    "VARBINARY": pl.Binary(),
    "DATE": pl.Date(),
    "TIME": pl.Time(),
    "TIMESTAMP": pl.Datetime("us", "UTC"),
    "TIMESTAMP_LTZ": pl.Datetime("us", "UTC"),
}
_WITH_LENGTH: Final = frozenset(
    {"VARCHAR", "CHAR", "BINARY", "VARBINARY", "TIME", "TIMESTAMP", "TIMESTAMP_LTZ", "DECIMAL", "DEC", "NUMERIC"}
)
_KNOWN: Final = sorted({*_SIMPLE, "DECIMAL", "NUMERIC", "ARRAY", "ROW", "MAP"})


def parse_type(cursor: Cursor, *, depth: int = 0) -> pl.DataType:
    """Read a type, with NOT NULL or NULL behind it.

    Raises:
        PlanError: It is none.
    """
    at = cursor.token.at
    if depth > _MAX_DEPTH:
        raise problem(f"types are nested more than {_MAX_DEPTH} deep", at, hint="Flatten them.")
    found = _plain(cursor, depth)
    while True:
        if cursor.take_words("ARRAY"):
            found = pl.List(found)
        elif not cursor.take_words("NOT", "NULL") and not cursor.take_words("NULL"):
            return found


def _plain(cursor: Cursor, depth: int) -> pl.DataType:
    token = cursor.expect_identifier(within=_WITHIN, what="a type")
    name = token.text.upper()
    if name == "ARRAY":
        cursor.expect("<", within=_WITHIN)
        inner = parse_type(cursor, depth=depth + 1)
        cursor.expect(">", within=_WITHIN)
        return pl.List(inner)
    if name == "MAP":
        cursor.expect("<", within=_WITHIN)
        key = parse_type(cursor, depth=depth + 1)
        cursor.expect(",", within=_WITHIN)
        value = parse_type(cursor, depth=depth + 1)
        cursor.expect(">", within=_WITHIN)
        return pl.List(pl.Struct({"key": key, "value": value}))
    if name in ("ROW", "STRUCT"):
        return _row(cursor, depth)
    if name in ("DECIMAL", "DEC", "NUMERIC"):
        precision, scale = (*_lengths(cursor), 10, 0)[:2] if cursor.token.is_punctuation("(") else (10, 0)
        if not 1 <= precision <= 38 or not 0 <= scale <= precision:
            raise problem(f"DECIMAL({precision}, {scale})", token.at, hint="Precision is 1 to 38, scale at most that.")
        return pl.Decimal(precision, scale)
    if name not in _SIMPLE:
        close = difflib.get_close_matches(name, _KNOWN, n=1)
        guess = f"Did you mean {close[0]}? " if close else ""
        raise problem(f"unknown type {token.value}", token.at, hint=f"{guess}Types: {', '.join(_KNOWN)}.")
    if name == "DOUBLE":
        cursor.take_words("PRECISION")
    if name in _WITH_LENGTH and cursor.token.is_punctuation("("):
        _lengths(cursor)
    if name in ("TIMESTAMP", "TIME"):
        _ = cursor.take_words("WITHOUT", "TIME", "ZONE") or cursor.take_words("WITH", "LOCAL", "TIME", "ZONE")
    return _SIMPLE[name]


def _row(cursor: Cursor, depth: int) -> pl.DataType:
    opening = cursor.take("<", "(")
    if opening is None:
        raise cursor.unexpected("'<'", within=_WITHIN)
    fields: dict[str, pl.DataType] = {}
    while True:
        name = cursor.expect_identifier(within=_WITHIN, what="the name of a field")
        if name.value in fields:
            raise problem(f"two fields of a ROW are named {name.value}", name.at)
        fields[name.value] = parse_type(cursor, depth=depth + 1)
        if cursor.token.kind == "string":  # a comment
            cursor.advance()
        if not cursor.take(","):
            break
    cursor.expect(">" if opening.text == "<" else ")", within=_WITHIN)
    return pl.Struct(fields)


def _lengths(cursor: Cursor) -> tuple[int, ...]:
    cursor.expect("(", within=_WITHIN)
    found: list[int] = []
    while True:
        token = cursor.token
        if token.kind != "number" or not token.value.isdigit() or len(token.value) > 10:
            raise cursor.unexpected("a whole number", within=_WITHIN)
        found.append(int(cursor.advance().value))
        if not cursor.take(","):
            break
    cursor.expect(")", within=_WITHIN)
    return tuple(found)


_NAMES: Final[dict[pl.DataType, str]] = {
    pl.Boolean(): "BOOLEAN",
    pl.Int8(): "TINYINT",
    pl.Int16(): "SMALLINT",
    pl.Int32(): "INT",
    pl.Int64(): "BIGINT",
    pl.Int128(): "DECIMAL(38, 0)",
    pl.UInt8(): "SMALLINT",
    pl.UInt16(): "INT",
    pl.UInt32(): "BIGINT",
    pl.UInt64(): "DECIMAL(20, 0)",
    pl.Float32(): "FLOAT",
    pl.Float64(): "DOUBLE",
    pl.String(): "STRING",
    pl.Binary(): "BYTES",
    pl.Date(): "DATE",
    pl.Time(): "TIME",
    pl.Null(): "NULL",
}


def type_name(dtype: pl.DataType) -> str:
    """Tell how SQL writes a type.

    >>> type_name(pl.List(pl.Struct({"n": pl.Int64})))
    'ARRAY<ROW<n BIGINT>>'
    """
    if isinstance(dtype, pl.Datetime):
        return "TIMESTAMP_LTZ(6)" if dtype.time_zone else "TIMESTAMP(6)"
    if isinstance(dtype, pl.Duration):
        return "INTERVAL"
    if isinstance(dtype, pl.Decimal):
        return f"DECIMAL({dtype.precision}, {dtype.scale})"
    if isinstance(dtype, pl.List | pl.Array):
        return f"ARRAY<{type_name(_instance(dtype.inner))}>"
    if isinstance(dtype, pl.Struct):
        return f"ROW<{', '.join(f'{field.name} {type_name(_instance(field.dtype))}' for field in dtype.fields)}>"
    return _NAMES.get(dtype, str(dtype).upper())


def _instance(dtype: pl.DataType | DataTypeClass) -> pl.DataType:
    return dtype() if isinstance(dtype, type) else dtype
