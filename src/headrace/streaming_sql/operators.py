"""Operators: arithmetic, comparison, LIKE, and what an index takes out of an array or a map.

Integers are computed with 64 bits and wrap around at their ends. A whole number divided by a whole number is a whole
number, cut towards zero. Dividing by zero gives null for integers and decimals, and an infinity or NaN for doubles:
one bad row must not stop a stream. NaN equals NaN and is above all other numbers.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Final, TypeAlias

import polars as pl

from headrace.cep.sql.functions import like_pattern
from headrace.cep.sql.syntax import Months
from headrace.streaming_sql.casts import timestamp_of_text
from headrace.streaming_sql.functions import ArgumentError, element_type
from headrace.streaming_sql.number_functions import modulo
from headrace.streaming_sql.text_functions import text_of
from headrace.streaming_sql.time_functions import within_calendar
from headrace.streaming_sql.values import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTERVAL,
    MAX_PRECISION,
    STRING,
    TIMESTAMP,
    UNKNOWN,
    Bound,
    coerced,
    common,
    constant,
    is_map,
    is_number,
    is_time,
    spoken,
)

#: Products of decimals have no more digits behind the point, unless an operand has.
_MAX_SCALE: Final = 18
Operator: TypeAlias = Callable[[Bound, Bound], Bound]
#: The type of an interval of months, which only a constant has.
MONTHS: Final = pl.Struct({"months": pl.Int64()})


def negative(bound: Bound) -> Bound:
    """Turn the sign of a number or an interval."""
    if isinstance(bound.value, Months):
        return constant(Months(-bound.value.count), MONTHS)
    if isinstance(bound.value, dt.timedelta):
        return constant(-bound.value)
    if not is_number(bound.dtype) and not isinstance(bound.dtype, pl.Duration | pl.Null):
        raise ArgumentError(f"- before {spoken(bound.dtype)}", "It takes a number or an interval.")
    dtype = BIGINT if bound.dtype.is_integer() else bound.dtype
    return Bound(-bound.expr.cast(dtype), dtype)


def add(left: Bound, right: Bound) -> Bound:
    """`+`."""
    if _is_interval(left) and not _is_interval(right):
        left, right = right, left
    if is_time(left.dtype) and _is_interval(right):
        return _shifted(left, right, 1)
    if isinstance(left.dtype, pl.Duration) and isinstance(right.dtype, pl.Duration):
        return Bound(left.expr + right.expr, INTERVAL)
    return _computed(left, right, "+", lambda a, b: a + b)


def subtract(left: Bound, right: Bound) -> Bound:
    """`-`."""
    if is_time(left.dtype) and _is_interval(right):
        return _shifted(left, right, -1)
    if is_time(left.dtype) and is_time(right.dtype):
        return Bound(coerced(left, TIMESTAMP) - coerced(right, TIMESTAMP), INTERVAL)
    if isinstance(left.dtype, pl.Duration) and isinstance(right.dtype, pl.Duration):
        return Bound(left.expr - right.expr, INTERVAL)
    return _computed(left, right, "-", lambda a, b: a - b)


def multiply(left: Bound, right: Bound) -> Bound:
    """`*`."""
    if isinstance(right.dtype, pl.Duration):
        left, right = right, left
    if isinstance(left.dtype, pl.Duration) and is_number(right.dtype):
        return Bound(left.expr * right.expr, INTERVAL)
    kinds = [bound.dtype for bound in (left, right)]
    merged = common(kinds)
    if isinstance(merged, pl.Decimal):
        scales = [_scale(kind) for kind in kinds]
        scale = sum(scales) if sum(scales) <= _MAX_SCALE else max(_MAX_SCALE, *scales)
        wide = pl.Decimal(MAX_PRECISION, scale)
        one = left.expr.cast(wide, strict=False)
        other = right.expr.cast(pl.Decimal(MAX_PRECISION, scales[1]), strict=False)
        return Bound(_fitting(one, wide, one.cast(DOUBLE) * other.cast(DOUBLE)) * other, wide)
    return _computed(left, right, "*", lambda a, b: a * b)


def divide(left: Bound, right: Bound) -> Bound:
    """`/`."""
    if isinstance(left.dtype, pl.Duration) and is_number(right.dtype):
        return Bound(left.expr / right.expr, INTERVAL)
    merged = _numbers(left, right, "/")
    if merged.is_integer():
        a, b = left.expr.cast(BIGINT), right.expr.cast(BIGINT)
        divisor = pl.when(b != 0).then(b)
        quotient = a // divisor
        # `//` goes down, SQL goes towards zero.
        uneven = (quotient * divisor != a) & ((a < 0) != (b < 0))
        return Bound(quotient + uneven.cast(BIGINT), BIGINT)
    if isinstance(merged, pl.Decimal):
        scale = min(max(6, _scale(left.dtype) + _scale(right.dtype)), MAX_PRECISION)
        divisor = pl.when(right.expr != 0).then(right.expr.cast(pl.Decimal(MAX_PRECISION, _scale(right.dtype))))
        wide = pl.Decimal(MAX_PRECISION, scale)
        one = left.expr.cast(wide, strict=False)
        return Bound(_fitting(one, wide, one.cast(DOUBLE) / divisor.cast(DOUBLE)) / divisor, wide)
    return Bound(left.expr.cast(DOUBLE) / right.expr.cast(DOUBLE), DOUBLE)


def remainder(left: Bound, right: Bound) -> Bound:
    """`%`."""
    merged = _numbers(left, right, "%")
    return Bound(modulo([left, right]), BIGINT if merged.is_integer() else merged)


def concatenate(left: Bound, right: Bound) -> Bound:
    """`||`."""
    if isinstance(left.dtype, pl.List) or isinstance(right.dtype, pl.List):
        merged = common([left.dtype, right.dtype])
        if merged is None:
            raise ArgumentError(f"{spoken(left.dtype)} || {spoken(right.dtype)}", "Both must be arrays, or neither.")
        return Bound(pl.concat_list([coerced(left, merged), coerced(right, merged)]), merged)
    return Bound(pl.concat_str([text_of(left), text_of(right)]), STRING)


def compared(sign: str) -> Operator:
    """Make a comparison."""

    def apply(left: Bound, right: Bound) -> Bound:
        a, b = comparable(left, right, sign)
        return Bound(comparison(sign, a, b), BOOLEAN)

    return apply


def comparison(sign: str, one: pl.Expr, other: pl.Expr) -> pl.Expr:
    """Compare two values of one type.

    Polars gives one row for all where a constant is compared with a column that holds one value (`lit == col`; `col ==
    lit` is right), so the constant comes second.
    """
    if not one.meta.root_names() and other.meta.root_names():
        sign, one, other = _FLIPPED.get(sign, sign), other, one
    return _COMPARISONS[sign](one, other)


def comparable(left: Bound, right: Bound, sign: str) -> tuple[pl.Expr, pl.Expr]:
    """Bring two operands to a type in which they can be compared.

    Raises:
        ArgumentError: There is none.
    """
    left, right = _timely(left, right), _timely(right, left)
    merged = common([left.dtype, right.dtype])
    if merged is None:
        raise ArgumentError(
            f"{spoken(left.dtype)} {sign} {spoken(right.dtype)}: values of these types cannot be compared",
            "CAST one of them.",
        )
    if is_number(merged) and not isinstance(merged, pl.Decimal):
        return left.expr, right.expr
    return coerced(left, merged), coerced(right, merged)


def like(left: Bound, pattern: Bound, escape: str | None, *, ignore_case: bool) -> Bound:
    """LIKE and ILIKE."""
    for bound in (left, pattern):
        if not isinstance(bound.dtype, pl.String | pl.Null):
            raise ArgumentError(f"LIKE of {spoken(bound.dtype)}", "It compares texts; CAST to VARCHAR first.")
    if isinstance(pattern.dtype, pl.Null) or isinstance(left.dtype, pl.Null):
        return constant(None, BOOLEAN)
    if isinstance(pattern.value, str):
        return Bound(left.expr.str.contains(_regex_of_like(pattern.value, escape, ignore_case=ignore_case)), BOOLEAN)

    def match(rows: pl.Series) -> pl.Series:
        found = [
            None
            if row["text"] is None or row["pattern"] is None
            else like_pattern(row["pattern"], escape, ignore_case).fullmatch(row["text"]) is not None
            for row in rows
        ]
        return pl.Series(rows.name, found, dtype=BOOLEAN)

    pair = pl.struct(left.expr.alias("text"), pattern.expr.alias("pattern"))
    return Bound(pair.map_batches(match, return_dtype=BOOLEAN, is_elementwise=True), BOOLEAN)


def similar_to(left: Bound, pattern: Bound) -> Bound:
    """SIMILAR TO: `%` and `_` as in LIKE, `|`, `*`, `+`, `?`, `{}`, `()` and `[]` as in regular expressions."""
    if isinstance(left.dtype, pl.Null):
        return constant(None, BOOLEAN)
    if not isinstance(left.dtype, pl.String):
        raise ArgumentError(f"SIMILAR TO of {spoken(left.dtype)}", "It compares texts; CAST to VARCHAR first.")
    if not isinstance(pattern.value, str):
        raise ArgumentError("the pattern of SIMILAR TO must be a text in quotes")
    body = re.sub(r"[.^$\\]", lambda found: "\\" + found.group(), pattern.value)
    regex = f"(?s)^(?:{body.replace('%', '.*').replace('_', '.')})$"
    try:
        pl.Series([""]).str.contains(regex)
    except pl.exceptions.PolarsError:
        raise ArgumentError(f"the pattern {pattern.value!r} cannot be read") from None
    return Bound(left.expr.str.contains(regex), BOOLEAN)


def subscript(container: Bound, index: Bound) -> Bound:
    """`a[1]`, counted from 1, and `m['key']`; null where there is none."""
    if is_map(container.dtype):
        pairs = container.expr.list.eval(
            pl.element().filter(pl.element().struct.field("key") == pl.lit(index.value))
            if index.is_constant
            else pl.element()
        )
        if not index.is_constant:
            raise ArgumentError("the key of a map must be a constant", "Write m['key'].")
        return Bound(pairs.list.first().struct.field("value"), element_type([container]))
    if not isinstance(container.dtype, pl.List):
        raise ArgumentError(f"an index of {spoken(container.dtype)}", "Arrays and maps have one.")
    if not index.dtype.is_integer():
        raise ArgumentError(f"an index that is {spoken(index.dtype)}", "Arrays are counted from 1.")
    place = pl.when(index.expr > 0).then(index.expr - 1)
    return Bound(container.expr.list.get(place, null_on_oob=True), element_type([container]))


def _regex_of_like(pattern: str, escape: str | None, *, ignore_case: bool) -> str:
    parts: list[str] = []
    letters = iter(pattern)
    for letter in letters:
        if letter == escape:
            parts.append(_quoted(next(letters, "")))
        else:
            parts.append({"%": ".*", "_": "."}.get(letter) or _quoted(letter))
    return f"(?s{'i' if ignore_case else ''})^{''.join(parts)}$"


def _quoted(letter: str) -> str:
    return f"\\{letter}" if letter and letter in r"\.+*?()|[]{}^$#&-~" else letter


def _timely(bound: Bound, other: Bound) -> Bound:
    """Read a text constant as the time that it is compared with."""
    if not isinstance(bound.value, str) or not is_time(other.dtype):
        return bound
    try:
        moment = pl.select(timestamp_of_text(pl.lit(bound.value), strict=True)).item()
    except pl.exceptions.PolarsError:
        raise ArgumentError(
            f"{bound.value!r} is no time", "Write it as '2026-01-31' or '2026-01-31 12:00:00'."
        ) from None
    if isinstance(other.dtype, pl.Date) and moment.time() == dt.time():
        return constant(moment.date(), DATE)
    return constant(moment, TIMESTAMP)


def _is_interval(bound: Bound) -> bool:
    return isinstance(bound.dtype, pl.Duration) or isinstance(bound.value, Months)


def _shifted(moment: Bound, by: Bound, sign: int) -> Bound:
    if isinstance(by.value, Months):
        return Bound(
            within_calendar(moment.expr.dt.offset_by(f"{sign * by.value.count}mo"), moment.dtype), moment.dtype
        )
    if isinstance(moment.dtype, pl.Date):
        whole_days = isinstance(by.value, dt.timedelta) and by.value % dt.timedelta(days=1) == dt.timedelta(0)
        if not whole_days:
            moment = Bound(coerced(moment, TIMESTAMP), TIMESTAMP)
    shifted = moment.expr + by.expr if sign > 0 else moment.expr - by.expr
    return Bound(within_calendar(shifted, moment.dtype), moment.dtype)


def _scale(dtype: pl.DataType) -> int:
    return dtype.scale if isinstance(dtype, pl.Decimal) else 0


def _numbers(left: Bound, right: Bound, sign: str) -> pl.DataType:
    for bound in (left, right):
        if not is_number(bound.dtype) and not isinstance(bound.dtype, pl.Null):
            raise ArgumentError(
                f"{spoken(left.dtype)} {sign} {spoken(right.dtype)} cannot be computed",
                "CAST to a number first." if isinstance(bound.dtype, pl.String) else "It takes numbers.",
            )
    merged = common([left.dtype, right.dtype])
    if merged is None or isinstance(merged, pl.Null):
        return BIGINT
    return merged


def _computed(left: Bound, right: Bound, sign: str, compute: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> Bound:
    merged = _numbers(left, right, sign)
    kind = BIGINT if merged.is_integer() else DOUBLE if merged.is_float() else merged
    if (
        left.is_constant
        and right.is_constant
        and isinstance(left.value, int)
        and isinstance(right.value, int)
        and sign in "+-*"
    ):
        value = {"+": left.value + right.value, "-": left.value - right.value, "*": left.value * right.value}[sign]
        if not -(2**63) <= value < 2**63:
            raise ArgumentError(f"{left.value} {sign} {right.value} does not fit into BIGINT", "Use DECIMAL or DOUBLE.")
    if isinstance(kind, pl.Decimal):
        one, other = left.expr.cast(kind, strict=False), right.expr.cast(kind, strict=False)
        size = compute(one.cast(DOUBLE), other.cast(DOUBLE))
        return Bound(compute(_fitting(one, kind, size), other), kind)
    return Bound(compute(left.expr.cast(kind), right.expr.cast(kind)), kind)


def _fitting(one: pl.Expr, kind: pl.Decimal, size: pl.Expr) -> pl.Expr:
    """Make null of an operand where the result has too many digits, so that one bad row does not stop a stream."""
    most = 10.0 ** (MAX_PRECISION - kind.scale) * (1 - 1e-12)
    return pl.when(size.abs() < most).then(one)


def _distinct(left: Bound, right: Bound) -> Bound:
    a, b = comparable(left, right, "IS DISTINCT FROM")
    return Bound(comparison("IS DISTINCT FROM", a, b), BOOLEAN)


def _same(left: Bound, right: Bound) -> Bound:
    a, b = comparable(left, right, "IS NOT DISTINCT FROM")
    return Bound(comparison("IS NOT DISTINCT FROM", a, b), BOOLEAN)


_FLIPPED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_COMPARISONS: Final[Mapping[str, Callable[[pl.Expr, pl.Expr], pl.Expr]]] = {
    "=": lambda a, b: a == b,
    "<>": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "IS DISTINCT FROM": lambda a, b: a.ne_missing(b),
    "IS NOT DISTINCT FROM": lambda a, b: a.eq_missing(b),
}
#: The operators by the name of sqlglot's class.
BINARY: Final[Mapping[str, Operator]] = {
    "Add": add,
    "Sub": subtract,
    "Mul": multiply,
    "Div": divide,
    "Mod": remainder,
    "DPipe": concatenate,
    "EQ": compared("="),
    "NEQ": compared("<>"),
    "LT": compared("<"),
    "LTE": compared("<="),
    "GT": compared(">"),
    "GTE": compared(">="),
    "NullSafeEQ": _same,
    "NullSafeNEQ": _distinct,
}

__all__ = ["BINARY", "MONTHS", "UNKNOWN", "Decimal", "Months", "Operator", "add", "divide", "like", "negative"]
