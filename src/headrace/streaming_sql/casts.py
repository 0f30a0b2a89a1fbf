"""CAST and TRY_CAST as Polars expressions, and the types that may be written in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import polars as pl
from sqlglot import exp

from headrace.streaming_sql.values import BIGINT, BOOLEAN, DATE, DOUBLE, STRING, TIMESTAMP, instance, is_time

if TYPE_CHECKING:
    from headrace.streaming_sql.values import Bound, DataType

_Kind = exp.DataType.Type
_SIMPLE: Final[dict[Any, DataType]] = {
    _Kind.BOOLEAN: BOOLEAN,
    _Kind.TINYINT: pl.Int8(),
    _Kind.SMALLINT: pl.Int16(),
    _Kind.INT: pl.Int32(),
    _Kind.BIGINT: BIGINT,
    _Kind.FLOAT: pl.Float32(),
    _Kind.DOUBLE: DOUBLE,
    _Kind.VARCHAR: STRING,
    _Kind.CHAR: STRING,
    _Kind.TEXT: STRING,
    _Kind.NVARCHAR: STRING,
    _Kind.DATE: DATE,
    _Kind.TIME: pl.Time(),
    _Kind.TIMESTAMP: TIMESTAMP,
    _Kind.TIMESTAMPTZ: TIMESTAMP,
    _Kind.TIMESTAMPLTZ: TIMESTAMP,
    _Kind.TIMESTAMPNTZ: TIMESTAMP,
    _Kind.DATETIME: TIMESTAMP,
    _Kind.BINARY: pl.Binary(),
    _Kind.VARBINARY: pl.Binary(),
}
_TIME_FORMATS: Final = (
    "%Y-%m-%d %H:%M:%S%.f",
    "%Y-%m-%dT%H:%M:%S%.f",
    "%Y-%m-%d %H:%M:%S%.fZ",
    "%Y-%m-%dT%H:%M:%S%.fZ",
    "%Y-%m-%d %H:%M",
)


def type_of(node: exp.DataType) -> DataType | None:
    """Tell the type that is written in a cast; None if it is not known.

    >>> type_of(exp.DataType.build("decimal(10, 2)"))
    Decimal(precision=10, scale=2)
    """
    inner = [each for each in node.expressions if isinstance(each, exp.DataType)]
    numbers = _parameters(node)
    if numbers is None:
        return None
    if node.this == _Kind.DECIMAL:
        precision, scale = [*numbers, 10, 0][:2] if len(numbers) != 1 else [numbers[0], 0]
        return pl.Decimal(precision, scale) if 1 <= precision <= 38 and 0 <= scale <= precision else None
    if node.this == _Kind.ARRAY and len(inner) == 1:
        element = type_of(inner[0])
        return None if element is None else pl.List(element)
    if node.this == _Kind.MAP and len(inner) == 2:
        key, value = type_of(inner[0]), type_of(inner[1])
        return None if key is None or value is None else pl.List(pl.Struct({"key": key, "value": value}))
    if node.this == _Kind.STRUCT:
        fields = {each.name: type_of(each.args["kind"]) for each in node.expressions if each.args.get("kind")}
        known = {name: kind for name, kind in fields.items() if kind is not None}
        return pl.Struct(known) if known and len(known) == len(node.expressions) else None
    return _SIMPLE.get(node.this)


def length_of(node: exp.DataType) -> int | None:
    """Tell the length that texts are cut to, such as 3 for CHAR(3)."""
    if node.this not in (_Kind.VARCHAR, _Kind.CHAR):
        return None
    numbers = _parameters(node)
    return numbers[0] if numbers else None


def _parameters(node: exp.DataType) -> list[int] | None:
    """Read the numbers in the brackets of a type; None if one is no whole number, as in VARCHAR(a)."""
    written = [each.this.name for each in node.expressions if isinstance(each, exp.DataTypeParam)]
    return [int(each) for each in written] if all(each.isascii() and each.isdigit() for each in written) else None


def cast_of(bound: Bound, target: DataType, *, strict: bool, length: int | None = None) -> pl.Expr | None:
    """Cast an expression; None if its type cannot be cast to the other.

    Args:
        bound: What is cast.
        target: The type.
        strict: Whether a value that does not fit fails the query; else it becomes null.
        length: What texts are cut to.
    """
    source = bound.dtype
    if source == target or isinstance(source, pl.Null):
        value: pl.Expr | None = bound.expr.cast(target)
    elif isinstance(target, pl.String):
        value = _as_text(bound.expr, source)
    elif isinstance(source, pl.String):
        value = _from_text(bound.expr, target, strict=strict)
    elif is_time(target) and is_time(source):
        if isinstance(target, pl.Date):
            value = bound.expr.dt.date()
        else:
            value = bound.expr.cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
    elif isinstance(target, pl.Time) and isinstance(source, pl.Datetime):
        value = bound.expr.dt.time()
    elif (
        (target.is_numeric() or isinstance(target, pl.Boolean))
        and (source.is_numeric() or isinstance(source, pl.Boolean))
    ) or _nested(source, target):
        shortens = source.is_float() or (
            isinstance(source, pl.Decimal) and isinstance(target, pl.Decimal) and target.scale < source.scale
        )
        value = _rounded(bound.expr, target) if shortens else bound.expr
        if source.is_float() and isinstance(target, pl.Decimal) and not strict:
            # Polars raises for a number with a few digits too many, also where it is asked for null.
            value = pl.when(value.abs() < 10.0 ** (target.precision - target.scale)).then(value)
        value = value.cast(target, strict=strict)
    else:
        return None
    return (
        value.str.slice(0, length)
        if value is not None and length is not None and isinstance(target, pl.String)
        else value
    )


def _rounded(value: pl.Expr, target: DataType) -> pl.Expr:
    """Round half away from zero for a decimal; a cast alone rounds half to even."""
    return value.round(target.scale, mode="half_away_from_zero") if isinstance(target, pl.Decimal) else value


def _nested(source: DataType, target: DataType) -> bool:
    if isinstance(source, pl.List) and isinstance(target, pl.List):
        return True
    return isinstance(source, pl.Struct) and isinstance(target, pl.Struct)


def _as_text(value: pl.Expr, source: DataType) -> pl.Expr:
    if isinstance(source, pl.Datetime):
        text = value.dt.strftime("%Y-%m-%d %H:%M:%S%.6f")
        return text.str.replace(r"(\.\d*?)0+$", "${1}").str.replace(r"\.$", "")
    if isinstance(source, pl.List | pl.Struct | pl.Array):
        wrapped = pl.struct(value.alias("value")).struct.json_encode()
        return wrapped.str.slice(9).str.head(-1)
    if isinstance(source, pl.Binary):
        return value.cast(STRING, strict=False)
    return value.cast(STRING)


def _from_text(value: pl.Expr, target: DataType, *, strict: bool) -> pl.Expr | None:
    stripped = value.str.strip_chars()
    if isinstance(target, pl.Boolean):
        lowered = stripped.str.to_lowercase()
        truth = (
            pl.when(lowered.is_in(["true", "t", "1", "yes"]))
            .then(statement=True)
            .when(lowered.is_in(["false", "f", "0", "no"]))
            .then(statement=False)
        )
        return truth.otherwise(None)
    if isinstance(target, pl.Date):
        return stripped.str.slice(0, 10).str.to_date("%Y-%m-%d", strict=strict)
    if isinstance(target, pl.Datetime):
        return timestamp_of_text(stripped, strict=strict)
    if isinstance(target, pl.Time):
        return stripped.str.to_time("%H:%M:%S%.f", strict=strict)
    if target.is_integer():
        # A fraction is cut off, as with numbers.
        return stripped.str.replace(r"^([+-]?\d+)\.\d*$", "${1}").str.strip_prefix("+").cast(target, strict=strict)
    if isinstance(target, pl.Decimal):
        # Digits behind the scale are rounded, as with numbers.
        wide = pl.Decimal(38, min(target.scale + 6, 38))
        return _rounded(stripped.cast(wide, strict=strict), target).cast(target, strict=strict)
    if target.is_numeric():
        return stripped.cast(target, strict=strict)
    if isinstance(target, pl.Binary):
        return value.cast(pl.Binary)
    return None


def timestamp_of_text(text: pl.Expr, *, strict: bool) -> pl.Expr:
    """Read a timestamp in the forms of ISO 8601, with or without a time of day."""
    tried = [text.str.to_datetime(shape, strict=False, time_unit="us") for shape in _TIME_FORMATS]
    day = text.str.to_datetime("%Y-%m-%d", strict=False, time_unit="us")
    found = pl.coalesce(*tried, day)
    if strict:
        known = pl.when(found.is_null()).then(text)
        found = pl.coalesce(found, known.str.to_datetime(_TIME_FORMATS[0], strict=True, time_unit="us"))
    return found.dt.replace_time_zone("UTC")


def is_known(dtype: DataType) -> bool:
    """Whether a type has a name in SQL."""
    return instance(dtype) in _SIMPLE.values()
