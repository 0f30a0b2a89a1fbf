"""The types of SQL as Polars has them, and how two of them meet."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import polars as pl

from headrace.cep.sql.lexer import problem
from headrace.cep.sql.syntax import Months, TypeName

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.cep.sql.bound import DataType

NULL = pl.Null()
BOOLEAN = pl.Boolean()
INTEGER = pl.Int64()
DOUBLE = pl.Float64()
STRING = pl.String()
DATE = pl.Date()
TIMESTAMP = pl.Datetime("us")
TIMESTAMP_UTC = pl.Datetime("us", "UTC")
DURATION = pl.Duration("us")
MONTHS = pl.Struct({"months": pl.Int64()})
"""Marks an interval of calendar months; no column has it."""

_SIMPLE: dict[str, DataType] = {
    "BOOLEAN": BOOLEAN,
    "BOOL": BOOLEAN,
    "TINYINT": pl.Int8(),
    "SMALLINT": pl.Int16(),
    "INTEGER": pl.Int32(),
    "INT": pl.Int32(),
    "BIGINT": INTEGER,
    "LONG": INTEGER,
    "REAL": pl.Float32(),
    "FLOAT": DOUBLE,
    "DOUBLE": DOUBLE,
    "VARCHAR": STRING,
    "CHAR": STRING,
    "CHARACTER": STRING,
    "STRING": STRING,
    "TEXT": STRING,
    "DATE": DATE,
    "TIME": pl.Time(),
    "TIMESTAMP": TIMESTAMP,
    "DATETIME": TIMESTAMP,
    "TIMESTAMP WITH TIME ZONE": TIMESTAMP_UTC,
    "TIMESTAMPTZ": TIMESTAMP_UTC,
    "TIMESTAMP_LTZ": TIMESTAMP_UTC,
    "VARBINARY": pl.Binary(),
    "BINARY": pl.Binary(),
}


def type_of(name: TypeName) -> DataType:
    """The type that a name in a cast stands for."""
    if name.name in _SIMPLE:
        return _SIMPLE[name.name]
    if name.name in ("DECIMAL", "NUMERIC", "DEC"):
        numbers = [parameter for parameter in name.parameters if isinstance(parameter, int)]
        return pl.Decimal(numbers[0] if numbers else 38, numbers[1] if len(numbers) > 1 else 0)
    if name.name == "ARRAY" and len(name.parameters) == 1 and isinstance(name.parameters[0], TypeName):
        return pl.List(type_of(name.parameters[0]))
    raise problem(f"unknown type {name.name.lower()}", name.at, hint="Known are " + ", ".join(_SIMPLE).lower() + ".")


def type_of_value(value: Any) -> DataType:
    """The type of a constant."""
    match value:
        case None:
            return NULL
        case bool():
            return BOOLEAN
        case int():
            return INTEGER
        case float():
            return DOUBLE
        case str():
            return STRING
        case Decimal():
            exponent = value.as_tuple().exponent
            return pl.Decimal(38, -exponent if isinstance(exponent, int) and exponent < 0 else 0)
        case dt.datetime():
            return TIMESTAMP if value.tzinfo is None else TIMESTAMP_UTC
        case dt.date():
            return DATE
        case dt.time():
            return pl.Time()
        case dt.timedelta():
            return DURATION
        case Months():
            return MONTHS
        case bytes():
            return pl.Binary()
        case list() | tuple():
            return pl.List(common([type_of_value(item) for item in value]) or NULL)
        case _:
            return pl.Object()


def spoken(data_type: DataType) -> str:
    """A type as SQL users call it."""
    if data_type.is_integer():
        return "integer"
    if data_type.is_float():
        return "double"
    names = {
        BOOLEAN: "boolean",
        STRING: "varchar",
        DATE: "date",
        NULL: "null",
        MONTHS: "interval",
        DURATION: "interval",
    }
    if isinstance(data_type, pl.Datetime):
        return "timestamp"
    if isinstance(data_type, pl.Duration):
        return "interval"
    return names.get(data_type, str(data_type).lower())


def is_string(data_type: DataType) -> bool:
    """Whether values are texts (categories and enumerations read as texts too)."""
    return isinstance(data_type, pl.String | pl.Categorical | pl.Enum)


def common(types: Sequence[DataType]) -> DataType | None:
    """The type to which all can be brought for a comparison or a choice between them; None if there is none.

    >>> common([pl.Int32(), pl.Float32(), pl.Null()]), common([pl.Int64(), pl.String()])
    (Float64, None)
    """
    known = [data_type for data_type in types if not isinstance(data_type, pl.Null)]
    if not known:
        return NULL
    first = known[0]
    if all(data_type == first for data_type in known):
        return first
    if all(data_type.is_numeric() for data_type in known):
        if any(data_type.is_float() for data_type in known):
            return DOUBLE
        decimals = [data_type for data_type in known if isinstance(data_type, pl.Decimal)]
        if decimals:
            return pl.Decimal(38, max(data_type.scale for data_type in decimals))
        return INTEGER
    if all(is_string(data_type) for data_type in known):
        return STRING
    if all(isinstance(data_type, pl.Date | pl.Datetime) for data_type in known):
        zoned = any(isinstance(data_type, pl.Datetime) and data_type.time_zone for data_type in known)
        return TIMESTAMP_UTC if zoned else TIMESTAMP
    if all(isinstance(data_type, pl.Duration) for data_type in known):
        return DURATION
    if all(isinstance(data_type, pl.List) for data_type in known):
        inner = common([element(data_type) for data_type in known])
        return None if inner is None else pl.List(inner)
    return None


def element(data_type: DataType) -> DataType:
    """The type of a list's elements."""
    inner = data_type.inner if isinstance(data_type, pl.List | pl.Array) else NULL
    return inner() if isinstance(inner, type) else inner


def fields(data_type: DataType) -> dict[str, DataType]:
    """The fields of a struct, or of the pairs of a map; empty for other types."""
    struct = element(data_type) if isinstance(data_type, pl.List) else data_type
    if not isinstance(struct, pl.Struct):
        return {}
    return {name: kind() if isinstance(kind, type) else kind for name, kind in struct.to_schema().items()}


def is_map(data_type: DataType) -> bool:
    """Whether values are maps: lists of key and value, as in Arrow."""
    return isinstance(data_type, pl.List) and list(fields(data_type)) == ["key", "value"]


def python_values(series: pl.Series) -> list[Any]:
    """The values of a column as the functions of MEASURES and DEFINE take them: maps are dictionaries."""
    values = series.to_list()
    if not is_map(series.dtype):
        return values
    return [None if pairs is None else {pair["key"]: pair["value"] for pair in pairs} for pairs in values]


def column_of(values: Sequence[Any], data_type: DataType) -> pl.Series:
    """The reverse of `python_values`."""
    if is_map(data_type):
        values = [
            [{"key": key, "value": item} for key, item in value.items()] if isinstance(value, dict) else value
            for value in values
        ]
    return pl.Series(values, dtype=data_type, strict=False)
