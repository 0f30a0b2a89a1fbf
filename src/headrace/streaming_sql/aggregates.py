"""Aggregate functions of SQL, as aggregates of windows and groups.

An aggregate of SQL is one or more of ours, and an expression over their results: SUM of no values is null and not 0,
AVG of integers is cut to an integer. FILTER makes null of the rows that do not count; nulls are left out by all but
COUNT(*).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import polars as pl

from headrace.engine.operator import EVENT_TIME
from headrace.streaming_sql.functions import ArgumentError
from headrace.streaming_sql.operators import divide
from headrace.streaming_sql.values import BIGINT, BOOLEAN, DOUBLE, STRING, UNKNOWN, Bound, is_number, spoken
from headrace.windows import aggregates as folds
from headrace.windows.bags import collect, exact_distinct, exact_quantile
from headrace.windows.sketches import distinct, quantile

if TYPE_CHECKING:
    from headrace.windows.aggregates import Aggregate


@dataclass(frozen=True)
class Folded:
    """An aggregate call as ours.

    Args:
        parts: What is folded, by the end of its column name.
        read: The value, from the names of the columns.
        dtype: The type of the value.
    """

    parts: Mapping[str, Aggregate]
    read: Callable[[Mapping[str, pl.Expr]], pl.Expr]
    dtype: pl.DataType


Fold: TypeAlias = Callable[[Sequence[Bound]], Folded]


@dataclass(frozen=True)
class AggregateFunction:
    """An aggregate function of SQL.

    Args:
        name: Its name.
        signature: Its arguments.
        does: What it does.
        fold: Makes our aggregates.
        least: Fewest arguments.
        most: Most arguments.
    """

    name: str
    signature: str
    does: str
    fold: Fold
    least: int = 1
    most: int = 1


def _count(arguments: Sequence[Bound]) -> Folded:
    counted = folds.count(arguments[0].expr) if arguments else folds.count()
    return Folded({"n": counted}, lambda parts: parts["n"], BIGINT)


def _sum(arguments: Sequence[Bound]) -> Folded:
    value = _number(arguments[0], "SUM")
    dtype = BIGINT if value.dtype.is_integer() else value.dtype
    if isinstance(dtype, pl.Decimal):
        dtype = pl.Decimal(38, dtype.scale)
    expr = value.expr.cast(dtype)
    if isinstance(dtype, pl.Float32):
        dtype, expr = DOUBLE, value.expr.cast(DOUBLE)
    return Folded(
        {"n": folds.count(expr), "sum": folds.sum(expr)},
        lambda parts: pl.when(parts["n"] > 0).then(parts["sum"]),
        dtype,
    )


def _avg(arguments: Sequence[Bound]) -> Folded:
    value = _number(arguments[0], "AVG")
    if value.dtype.is_float():
        return Folded({"mean": folds.mean(value.expr)}, lambda parts: parts["mean"], DOUBLE)
    total = _sum([value])

    def read(parts: Mapping[str, pl.Expr]) -> pl.Expr:
        return divide(Bound(parts["sum"], total.dtype), Bound(parts["n"], BIGINT)).expr

    dtype = divide(Bound(pl.lit(None), total.dtype), Bound(pl.lit(None), BIGINT)).dtype
    return Folded(total.parts, read, dtype)


def _extreme(*, largest: bool) -> Fold:
    def fold(arguments: Sequence[Bound]) -> Folded:
        (value,) = arguments
        if isinstance(value.dtype, pl.List | pl.Struct):
            raise ArgumentError(f"{'MAX' if largest else 'MIN'} of {spoken(value.dtype)}")
        made = folds.max(value.expr) if largest else folds.min(value.expr)
        return Folded({"value": made}, lambda parts: parts["value"], value.dtype)

    return fold


def _statistic(make: Callable[[pl.Expr], Aggregate]) -> Fold:
    def fold(arguments: Sequence[Bound]) -> Folded:
        value = _number(arguments[0], "this")
        return Folded({"value": make(value.expr.cast(DOUBLE))}, lambda parts: parts["value"], DOUBLE)

    return fold


def _by_time(*, newest: bool) -> Fold:
    def fold(arguments: Sequence[Bound]) -> Folded:
        (value,) = arguments
        made = folds.latest(value.expr) if newest else folds.first(value.expr)
        return Folded({"value": made}, lambda parts: parts["value"], value.dtype)

    return fold


def _by_column(*, newest: bool) -> Fold:
    def fold(arguments: Sequence[Bound]) -> Folded:
        value, order = arguments
        made = folds.latest(value.expr, by=order.expr) if newest else folds.first(value.expr, by=order.expr)
        return Folded({"value": made}, lambda parts: parts["value"], value.dtype)

    return fold


def _collected(arguments: Sequence[Bound]) -> Folded:
    (value,) = arguments
    return Folded({"values": collect(value.expr)}, lambda parts: parts["values"], pl.List(value.dtype))


def _joined(arguments: Sequence[Bound]) -> Folded:
    from headrace.streaming_sql.text_functions import text_of

    value = text_of(arguments[0])
    between = arguments[1].value if len(arguments) > 1 else ","
    if not isinstance(between, str):
        raise ArgumentError("the separator of LISTAGG must be a text in quotes")

    def read(parts: Mapping[str, pl.Expr]) -> pl.Expr:
        return pl.when(parts["values"].list.len() > 0).then(parts["values"].list.join(between))

    return Folded({"values": collect(value)}, read, STRING)


def _approximate_count(arguments: Sequence[Bound]) -> Folded:
    made = distinct(arguments[0].expr, method="hll")
    return Folded({"n": made}, lambda parts: parts["n"].round().cast(BIGINT), BIGINT)


def _quantile(*, approximate: bool) -> Fold:
    def fold(arguments: Sequence[Bound]) -> Folded:
        share = float(arguments[1].value) if arguments[1].is_constant and arguments[1].value is not None else -1.0
        if not 0 <= share <= 1:
            raise ArgumentError("the share must be a constant between 0 and 1")
        value = _number(arguments[0], "a percentile").expr.cast(DOUBLE)
        made: Any = quantile(value, share, method="kll") if approximate else exact_quantile(value, share)
        return Folded({"value": made}, lambda parts: parts["value"], DOUBLE)

    return fold


def _every(*, all_of: bool) -> Fold:
    def fold(arguments: Sequence[Bound]) -> Folded:
        (value,) = arguments
        if not isinstance(value.dtype, pl.Boolean | pl.Null):
            raise ArgumentError(f"a condition is needed, not {spoken(value.dtype)}")
        number = value.expr.cast(pl.Int8)
        made = folds.min(number) if all_of else folds.max(number)
        return Folded({"value": made}, lambda parts: parts["value"] == 1, BOOLEAN)

    return fold


def _median(arguments: Sequence[Bound]) -> Folded:
    value = _number(arguments[0], "MEDIAN").expr.cast(DOUBLE)
    return Folded({"value": exact_quantile(value, 0.5)}, lambda parts: parts["value"], DOUBLE)


def _number(value: Bound, what: str) -> Bound:
    if not is_number(value.dtype) and not isinstance(value.dtype, pl.Null):
        raise ArgumentError(f"{what} of {spoken(value.dtype)}", "It takes numbers; CAST the others.")
    return Bound(value.expr.cast(BIGINT), BIGINT) if isinstance(value.dtype, pl.Null) else value


_LIST: Final = (
    AggregateFunction("COUNT", "COUNT(*) or COUNT(value)", "How many rows, or values that are not null.", _count, 0),
    AggregateFunction("SUM", "SUM(n)", "The sum; null of no values.", _sum),
    AggregateFunction("AVG", "AVG(n)", "The mean; of integers an integer, cut towards zero.", _avg),
    AggregateFunction("MIN", "MIN(value)", "The smallest value.", _extreme(largest=False)),
    AggregateFunction("MAX", "MAX(value)", "The largest value.", _extreme(largest=True)),
    AggregateFunction("STDDEV_SAMP", "STDDEV_SAMP(n)", "The standard deviation of a sample.", _statistic(folds.std)),
    AggregateFunction("STDDEV", "STDDEV(n)", "The same as STDDEV_SAMP.", _statistic(folds.std)),
    AggregateFunction(
        "STDDEV_POP",
        "STDDEV_POP(n)",
        "The standard deviation of a population.",
        _statistic(lambda value: folds.std(value, ddof=0)),
    ),
    AggregateFunction("VAR_SAMP", "VAR_SAMP(n)", "The variance of a sample.", _statistic(folds.variance)),
    AggregateFunction("VARIANCE", "VARIANCE(n)", "The same as VAR_SAMP.", _statistic(folds.variance)),
    AggregateFunction(
        "VAR_POP",
        "VAR_POP(n)",
        "The variance of a population.",
        _statistic(lambda value: folds.variance(value, ddof=0)),
    ),
    AggregateFunction(
        "FIRST_VALUE", "FIRST_VALUE(value)", "The value of the oldest row, nulls left out.", _by_time(newest=False)
    ),
    AggregateFunction(
        "LAST_VALUE", "LAST_VALUE(value)", "The value of the newest row, nulls left out.", _by_time(newest=True)
    ),
    AggregateFunction(
        "MIN_BY", "MIN_BY(value, by)", "The value where `by` is smallest.", _by_column(newest=False), 2, 2
    ),
    AggregateFunction("MAX_BY", "MAX_BY(value, by)", "The value where `by` is largest.", _by_column(newest=True), 2, 2),
    AggregateFunction("COLLECT", "COLLECT(value)", "All values as an array, in the order of event time.", _collected),
    AggregateFunction("ARRAY_AGG", "ARRAY_AGG(value)", "The same as COLLECT.", _collected),
    AggregateFunction(
        "LISTAGG", "LISTAGG(value, between)", "All values as a text, with a text between.", _joined, 1, 2
    ),
    AggregateFunction("STRING_AGG", "STRING_AGG(value, between)", "The same as LISTAGG.", _joined, 1, 2),
    AggregateFunction(
        "APPROX_COUNT_DISTINCT",
        "APPROX_COUNT_DISTINCT(value)",
        "How many different values, estimated from a sketch.",
        _approximate_count,
    ),
    AggregateFunction(
        "PERCENTILE",
        "PERCENTILE(n, share)",
        "The value below which a share of all values lies.",
        _quantile(approximate=False),
        2,
        2,
    ),
    AggregateFunction(
        "APPROX_PERCENTILE",
        "APPROX_PERCENTILE(n, share)",
        "The same, from a sketch.",
        _quantile(approximate=True),
        2,
        2,
    ),
    AggregateFunction("MEDIAN", "MEDIAN(n)", "The value in the middle.", _median),
    AggregateFunction("BOOL_AND", "BOOL_AND(condition)", "Whether all are true.", _every(all_of=True)),
    AggregateFunction("EVERY", "EVERY(condition)", "The same as BOOL_AND.", _every(all_of=True)),
    AggregateFunction("BOOL_OR", "BOOL_OR(condition)", "Whether one is true.", _every(all_of=False)),
    AggregateFunction("SINGLE_VALUE", "SINGLE_VALUE(value)", "The only value.", _extreme(largest=True)),
)
AGGREGATES: Final[Mapping[str, AggregateFunction]] = {each.name: each for each in _LIST}


def folded(name: str, arguments: Sequence[Bound], *, is_distinct: bool, where: pl.Expr | None) -> Folded:
    """Make an aggregate call ours.

    Args:
        name: The function, in upper case.
        arguments: Its arguments; none for COUNT(*).
        is_distinct: Whether equal values count once.
        where: Which rows count; None for all.

    Raises:
        ArgumentError: The arguments do not fit.
    """
    function = AGGREGATES[name]
    if not function.least <= len(arguments) <= function.most:
        raise ArgumentError(f"{name} does not take {len(arguments)} arguments", f"Write {function.signature}.")
    arguments = [_per_row(each) for each in arguments[:1]] + list(arguments[1:])
    if where is not None:
        kept = list(arguments) or [Bound(pl.lit(1, dtype=pl.Int8), pl.Int8())]
        first = _per_row(Bound(pl.when(where).then(kept[0].expr), kept[0].dtype))
        arguments = [first, *kept[1:]]
    if not is_distinct or name in ("MIN", "MAX", "BOOL_AND", "BOOL_OR", "EVERY", "APPROX_COUNT_DISTINCT"):
        return function.fold(arguments)
    if not arguments:
        raise ArgumentError(f"{name}(DISTINCT *)", "Name a column.")
    return _distinct(name, arguments)


def _per_row(value: Bound) -> Bound:
    """Let a constant have a value in each row; Polars would fold it once for all rows."""
    if value.expr.meta.root_names():
        return value
    return replace(value, expr=pl.when(pl.col(EVENT_TIME).is_not_null()).then(value.expr), value=UNKNOWN)


def _distinct(name: str, arguments: Sequence[Bound]) -> Folded:
    value = arguments[0]
    if name == "COUNT":
        if len(arguments) > 1:
            raise ArgumentError("COUNT(DISTINCT a, b)", "Count one value, such as COUNT(DISTINCT ROW(a, b)).")
        return Folded({"n": exact_distinct(value.expr)}, lambda parts: parts["n"], BIGINT)
    listed = {"values": exact_distinct(value.expr, values=True)}
    plain = AGGREGATES[name].fold(arguments)
    if name == "SUM":
        return Folded(
            listed,
            lambda parts: pl.when(parts["values"].list.len() > 0).then(parts["values"].list.sum().cast(plain.dtype)),
            plain.dtype,
        )
    if name == "AVG":

        def mean(parts: Mapping[str, pl.Expr]) -> pl.Expr:
            number = parts["values"].list.len().cast(BIGINT)
            total = pl.when(number > 0).then(parts["values"].list.sum())
            whole = BIGINT if value.dtype.is_integer() else value.dtype
            return divide(Bound(total.cast(whole), whole), Bound(number, BIGINT)).expr

        return Folded(listed, mean, plain.dtype)
    if name in ("COLLECT", "ARRAY_AGG"):
        return Folded(listed, lambda parts: parts["values"], plain.dtype)
    raise ArgumentError(f"{name}(DISTINCT ...) is not supported", "DISTINCT goes with COUNT, SUM, AVG and COLLECT.")


def is_aggregate_name(name: str) -> bool:
    """Tell whether a name is that of an aggregate function."""
    return name.upper() in AGGREGATES


__all__ = ["AGGREGATES", "AggregateFunction", "Folded", "folded", "is_aggregate_name"]
