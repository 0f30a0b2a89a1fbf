"""What an expression of a query is bound to: a Polars expression and its type.

Types are those of Polars. Times are UTC in microseconds, with or without a zone in their name; integers are computed
with 64 bits; a map is a list of key and value.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import polars as pl

from headrace.cep.sql.syntax import Months

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

DataType: TypeAlias = pl.DataType

NULL: Final = pl.Null()
BOOLEAN: Final = pl.Boolean()
BIGINT: Final = pl.Int64()
DOUBLE: Final = pl.Float64()
STRING: Final = pl.String()
DATE: Final = pl.Date()
TIMESTAMP: Final = pl.Datetime("us", "UTC")
INTERVAL: Final = pl.Duration("us")
MAX_PRECISION: Final = 38


class _Unknown:
    """What is no constant."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = _Unknown()


@dataclass(frozen=True, slots=True)
class Bound:
    """An expression with its type.

    Args:
        expr: The expression.
        dtype: Its type.
        value: Its value if it is a constant, else UNKNOWN.
    """

    expr: pl.Expr
    dtype: DataType
    value: Any = UNKNOWN

    @property
    def is_constant(self) -> bool:
        """Whether the value is known from the text."""
        return self.value is not UNKNOWN

    @property
    def is_null(self) -> bool:
        """Whether it is the constant NULL."""
        return self.value is None


def constant(value: Any, dtype: DataType | None = None) -> Bound:
    """Bind a constant.

    >>> constant(3).dtype
    Int64
    """
    kind = _type_of(value) if dtype is None else dtype
    if isinstance(value, Months):
        return Bound(pl.lit(None), kind, value)
    return Bound(pl.lit(value, dtype=kind), kind, value)


def _type_of(value: Any) -> DataType:
    match value:
        case None:
            return NULL
        case bool():
            return BOOLEAN
        case int():
            return BIGINT
        case float():
            return DOUBLE
        case Decimal():
            exponent = value.as_tuple().exponent
            return pl.Decimal(MAX_PRECISION, -exponent if isinstance(exponent, int) and exponent < 0 else 0)
        case dt.timedelta():
            return INTERVAL
        case dt.datetime():
            return TIMESTAMP
        case dt.date():
            return DATE
        case _:
            return STRING


def instance(dtype: DataType | type[DataType] | Any) -> DataType:
    """Give a type as an object, where Polars has it as a class.

    >>> instance(pl.Int64)
    Int64
    """
    return dtype() if isinstance(dtype, type) else dtype


def is_number(dtype: DataType) -> bool:
    """Whether values can be computed with."""
    return dtype.is_numeric()


def is_time(dtype: DataType) -> bool:
    """Whether values are dates or timestamps."""
    return isinstance(dtype, pl.Date | pl.Datetime)


def is_map(dtype: DataType) -> bool:
    """Whether values are maps: lists of key and value."""
    if not isinstance(dtype, pl.List):
        return False
    inner = instance(dtype.inner)
    return isinstance(inner, pl.Struct) and [field.name for field in inner.fields] == ["key", "value"]


def common(types: Iterable[DataType]) -> DataType | None:
    """Tell the type that values of all these types can be brought to; None if there is none.

    >>> common([pl.Int32(), pl.Decimal(10, 2)]), common([pl.Int64(), pl.String()])
    (Decimal(precision=38, scale=2), None)
    """
    known = [dtype for dtype in dict.fromkeys(types) if not isinstance(dtype, pl.Null)]
    if not known:
        return NULL
    if len(known) == 1:
        return known[0]
    if all(dtype.is_numeric() for dtype in known):
        return _number(known)
    if all(is_time(dtype) for dtype in known):
        return TIMESTAMP
    if all(isinstance(dtype, pl.List) for dtype in known):
        inner = common(instance(dtype.inner) for dtype in known if isinstance(dtype, pl.List))
        return None if inner is None else pl.List(inner)
    if all(isinstance(dtype, pl.Struct) for dtype in known):
        return _struct([dtype for dtype in known if isinstance(dtype, pl.Struct)])
    return None


def _number(types: Sequence[DataType]) -> DataType:
    if any(dtype.is_float() for dtype in types):
        return DOUBLE if len(set(types)) > 1 else types[0]
    scales = [dtype.scale for dtype in types if isinstance(dtype, pl.Decimal)]
    if scales:
        return pl.Decimal(MAX_PRECISION, max(scales))
    sizes: list[DataType] = [pl.Int8(), pl.Int16(), pl.Int32(), BIGINT]
    signed = [sizes.index(dtype) for dtype in types if dtype in sizes]
    return sizes[max(signed)] if len(signed) == len(types) else BIGINT


def _struct(types: Sequence[pl.Struct]) -> DataType | None:
    names = [field.name for field in types[0].fields]
    if any(len(dtype.fields) != len(names) for dtype in types):
        return None
    fields: dict[str, DataType] = {}
    for place, name in enumerate(names):
        inner = common(instance(dtype.fields[place].dtype) for dtype in types)
        if inner is None:
            return None
        fields[name] = inner
    return pl.Struct(fields)


def every(conditions: Sequence[pl.Expr]) -> pl.Expr:
    """Join conditions by AND, as a tree that is not deep."""
    return _paired(list(conditions), lambda one, other: one & other)


def some(conditions: Sequence[pl.Expr]) -> pl.Expr:
    """Join conditions by OR, as a tree that is not deep."""
    return _paired(list(conditions), lambda one, other: one | other)


def _paired(parts: list[pl.Expr], join: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> pl.Expr:
    while len(parts) > 1:
        pairs = [join(one, other) for one, other in zip(parts[::2], parts[1::2], strict=False)]
        parts = [*pairs, parts[-1]] if len(parts) % 2 else pairs
    return parts[0]


def coerced(bound: Bound, dtype: DataType) -> pl.Expr:
    """Bring an expression to a type that its own fits into."""
    if bound.dtype == dtype:
        return bound.expr
    if isinstance(bound.dtype, pl.Date) and isinstance(dtype, pl.Datetime):
        return bound.expr.cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
    return bound.expr.cast(dtype)


def spoken(dtype: DataType) -> str:
    """Tell a type as users of SQL call it.

    >>> spoken(pl.Int32()), spoken(pl.List(pl.String()))
    ('INT', 'ARRAY<VARCHAR>')
    """
    names = {
        pl.Int8(): "TINYINT",
        pl.Int16(): "SMALLINT",
        pl.Int32(): "INT",
        BIGINT: "BIGINT",
        pl.Float32(): "FLOAT",
        DOUBLE: "DOUBLE",
        STRING: "VARCHAR",
        BOOLEAN: "BOOLEAN",
        DATE: "DATE",
        NULL: "NULL",
        pl.Binary(): "BYTES",
        pl.Time(): "TIME",
    }
    if isinstance(dtype, pl.Datetime):
        return "TIMESTAMP"
    if isinstance(dtype, pl.Duration):
        return "INTERVAL"
    if isinstance(dtype, pl.Decimal):
        return f"DECIMAL({dtype.precision}, {dtype.scale})"
    if is_map(dtype) and isinstance(dtype, pl.List):
        inner = instance(dtype.inner)
        pair = [spoken(instance(field.dtype)) for field in inner.fields] if isinstance(inner, pl.Struct) else []
        return f"MAP<{', '.join(pair)}>"
    if isinstance(dtype, pl.List | pl.Array):
        return f"ARRAY<{spoken(instance(dtype.inner))}>"
    if isinstance(dtype, pl.Struct):
        return f"ROW<{', '.join(f'{field.name} {spoken(instance(field.dtype))}' for field in dtype.fields)}>"
    return names.get(dtype, str(dtype).upper())
