"""Aggregates over the rows of a match.

Each takes the argument tuples of the rows that count, oldest first, and gives a value; nulls are left out as SQL says.
Those that are asked most (count, sum, avg, min, max) can also go step by step: while a match is being tried, every row
of it would otherwise mean to aggregate all rows before it again.
"""

from __future__ import annotations

import heapq
import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import polars as pl

from headrace.cep.sql.datatypes import BOOLEAN, DOUBLE, INTEGER, STRING
from headrace.cep.sql.functions import map_type

if TYPE_CHECKING:
    from headrace.cep.sql.bound import DataType

Rows: TypeAlias = Sequence[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Steps:
    """An aggregate as a fold over immutable states."""

    initial: Any
    step: Callable[[Any, Any], Any]
    finish: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class AggregateFunction:
    """An aggregate function.

    Args:
        evaluate: From argument tuples to the value.
        result: Result type from argument types.
        least: Fewest arguments.
        most: Most arguments.
        steps: The same as a fold over the first argument, nulls left out, if there is a cheap one.
    """

    evaluate: Callable[[Rows], Any]
    result: Callable[[Sequence[DataType]], DataType]
    least: int = 1
    most: int = 1
    steps: Steps | None = None


def _known(rows: Rows) -> list[Any]:
    return [row[0] for row in rows if row[0] is not None]


def _sum(rows: Rows) -> Any:
    values = _known(rows)
    if not values:
        return None
    total = values[0]
    for value in values[1:]:
        total += value
    return total


def _avg_of(total: Any, count: int) -> Any:
    if count == 0:
        return None
    return total / count if not isinstance(total, Decimal) else total / Decimal(count)


def _avg(rows: Rows) -> Any:
    return _avg_of(_sum(rows), len(_known(rows)))


def _count(rows: Rows) -> int:
    return len(_known(rows)) if rows and rows[0] else len(rows)


def _extreme(largest: bool) -> Callable[[Rows], Any]:
    def extreme(rows: Rows) -> Any:
        values = _known(rows)
        if rows and len(rows[0]) == 2:
            count = int(rows[0][1])
            return (heapq.nlargest if largest else heapq.nsmallest)(count, values) if values else None
        return (max(values) if largest else min(values)) if values else None

    return extreme


def _extreme_by(largest: bool) -> Callable[[Rows], Any]:
    def extreme_by(rows: Rows) -> Any:
        keyed = [(row[1], row[0]) for row in rows if row[1] is not None]
        if not keyed:
            return None
        if len(rows[0]) == 3:
            ordered = sorted(keyed, key=lambda pair: pair[0], reverse=largest)
            return [value for _, value in ordered[: int(rows[0][2])]]
        best = keyed[0]
        for pair in keyed[1:]:
            if (pair[0] > best[0]) if largest else (pair[0] < best[0]):
                best = pair
        return best[1]

    return extreme_by


def _array_agg(rows: Rows) -> list[Any] | None:
    return [row[0] for row in rows] if rows else None


def _spread(*, root: bool, sample: bool) -> Callable[[Rows], float | None]:
    def spread(rows: Rows) -> float | None:
        values = [float(value) for value in _known(rows)]
        if len(values) < (2 if sample else 1):
            return None
        mean = math.fsum(values) / len(values)
        variance = math.fsum((value - mean) ** 2 for value in values) / (len(values) - sample)
        return math.sqrt(variance) if root else variance

    return spread


def _string_agg(rows: Rows) -> str | None:
    values = [str(value) for value in _known(rows)]
    separator = rows[0][1] if rows and len(rows[0]) > 1 else ""
    return separator.join(values) if values else None


def _map_agg(rows: Rows) -> dict[Any, Any] | None:
    merged: dict[Any, Any] = {}
    for key, value in rows:
        if key is not None:
            merged.setdefault(key, value)
    return merged or None


def _multimap_agg(rows: Rows) -> dict[Any, list[Any]] | None:
    merged: dict[Any, list[Any]] = {}
    for key, value in rows:
        if key is not None:
            merged.setdefault(key, []).append(value)
    return merged or None


def _map_union(rows: Rows) -> dict[Any, Any] | None:
    merged: dict[Any, Any] = {}
    for value in _known(rows):
        for key, item in value.items():
            merged.setdefault(key, item)
    return merged or None


def _histogram(rows: Rows) -> dict[Any, int] | None:
    return dict(Counter(_known(rows))) or None


def _percentile(rows: Rows) -> Any:
    values = sorted(_known(rows))
    if not values:
        return None
    place = max(math.ceil(float(rows[0][1]) * len(values)), 1)
    return values[place - 1]


def _first_known(rows: Rows) -> Any:
    return next((row[0] for row in rows if row[0] is not None), None)


def _last_known(rows: Rows) -> Any:
    return next((row[0] for row in reversed(rows) if row[0] is not None), None)


def _every(rows: Rows) -> bool | None:
    values = _known(rows)
    return all(values) if values else None


def _some(rows: Rows) -> bool | None:
    values = _known(rows)
    return any(values) if values else None


def _geometric_mean(rows: Rows) -> float | None:
    values = [float(value) for value in _known(rows)]
    return statistics.geometric_mean(values) if values and min(values) > 0 else None


def _bits(combine: Callable[[int, int], int]) -> Callable[[Rows], int | None]:
    def bits(rows: Rows) -> int | None:
        values = _known(rows)
        if not values:
            return None
        total: int = values[0]
        for value in values[1:]:
            total = combine(total, value)
        return total

    return bits


def _always(data_type: DataType) -> Callable[[Sequence[DataType]], DataType]:
    return lambda _: data_type


def _same(types: Sequence[DataType]) -> DataType:
    return types[0]


def _sum_type(types: Sequence[DataType]) -> DataType:
    kind = types[0]
    if kind.is_integer() or isinstance(kind, pl.Null):
        return INTEGER
    if isinstance(kind, pl.Decimal):
        return pl.Decimal(38, kind.scale)
    return DOUBLE if kind.is_float() else kind


def _avg_type(types: Sequence[DataType]) -> DataType:
    kind = types[0]
    if isinstance(kind, pl.Decimal):
        return pl.Decimal(38, kind.scale)
    return kind if isinstance(kind, pl.Duration) else DOUBLE


def _or_list(counted: int) -> Callable[[Sequence[DataType]], DataType]:
    return lambda types: pl.List(types[0]) if len(types) == counted else types[0]


def _pairs(types: Sequence[DataType]) -> DataType:
    return map_type(types[0], types[1])


def _multi_pairs(types: Sequence[DataType]) -> DataType:
    return map_type(types[0], pl.List(types[1]))


def _plus(state: Any, value: Any) -> Any:
    return value if state is None else state + value


def _larger(state: Any, value: Any) -> Any:
    return value if state is None or value > state else state


def _smaller(state: Any, value: Any) -> Any:
    return value if state is None or value < state else state


def _identity(state: Any) -> Any:
    return state


_AVG_STEPS = Steps(
    (None, 0), lambda state, value: (_plus(state[0], value), state[1] + 1), lambda state: _avg_of(state[0], state[1])
)

AGGREGATES: Final[Mapping[str, AggregateFunction]] = {
    "count": AggregateFunction(_count, _always(INTEGER), 0, 1, Steps(0, lambda state, _: state + 1, _identity)),
    "sum": AggregateFunction(_sum, _sum_type, steps=Steps(None, _plus, _identity)),
    "avg": AggregateFunction(_avg, _avg_type, steps=_AVG_STEPS),
    "min": AggregateFunction(_extreme(False), _or_list(2), 1, 2, Steps(None, _smaller, _identity)),
    "max": AggregateFunction(_extreme(True), _or_list(2), 1, 2, Steps(None, _larger, _identity)),
    "min_by": AggregateFunction(_extreme_by(False), _or_list(3), 2, 3),
    "max_by": AggregateFunction(_extreme_by(True), _or_list(3), 2, 3),
    "array_agg": AggregateFunction(_array_agg, lambda types: pl.List(types[0])),
    "collect": AggregateFunction(_array_agg, lambda types: pl.List(types[0])),
    "arbitrary": AggregateFunction(_first_known, _same),
    "any_value": AggregateFunction(_first_known, _same),
    "first_value": AggregateFunction(_first_known, _same),
    "last_value": AggregateFunction(_last_known, _same),
    "bool_and": AggregateFunction(_every, _always(BOOLEAN)),
    "every": AggregateFunction(_every, _always(BOOLEAN)),
    "bool_or": AggregateFunction(_some, _always(BOOLEAN)),
    "count_if": AggregateFunction(lambda rows: sum(row[0] is True for row in rows), _always(INTEGER)),
    "approx_distinct": AggregateFunction(lambda rows: len(set(_known(rows))), _always(INTEGER)),
    "stddev": AggregateFunction(_spread(root=True, sample=True), _always(DOUBLE)),
    "stddev_samp": AggregateFunction(_spread(root=True, sample=True), _always(DOUBLE)),
    "stddev_pop": AggregateFunction(_spread(root=True, sample=False), _always(DOUBLE)),
    "variance": AggregateFunction(_spread(root=False, sample=True), _always(DOUBLE)),
    "var_samp": AggregateFunction(_spread(root=False, sample=True), _always(DOUBLE)),
    "var_pop": AggregateFunction(_spread(root=False, sample=False), _always(DOUBLE)),
    "geometric_mean": AggregateFunction(_geometric_mean, _always(DOUBLE)),
    "approx_percentile": AggregateFunction(_percentile, _same, 2, 2),
    "bitwise_and_agg": AggregateFunction(_bits(lambda left, right: left & right), _always(INTEGER)),
    "bitwise_or_agg": AggregateFunction(_bits(lambda left, right: left | right), _always(INTEGER)),
    "string_agg": AggregateFunction(_string_agg, _always(STRING), 1, 2),
    "listagg": AggregateFunction(_string_agg, _always(STRING), 1, 2),
    "map_agg": AggregateFunction(_map_agg, _pairs, 2, 2),
    "multimap_agg": AggregateFunction(_multimap_agg, _multi_pairs, 2, 2),
    "map_union": AggregateFunction(_map_union, _same),
    "histogram": AggregateFunction(_histogram, lambda types: map_type(types[0], INTEGER)),
}
"""All aggregate functions by name."""

NUMERIC_ONLY: Final = frozenset(
    {"sum", "avg", "stddev", "stddev_samp", "stddev_pop", "variance", "var_samp", "var_pop", "geometric_mean"}
)
"""Aggregates that make no sense of texts."""


def stepwise(function: str, arguments: int) -> Steps | None:
    """The fold for an aggregate with that many arguments, if it has one."""
    return AGGREGATES[function].steps if arguments <= 1 else None


ORDERING: Final = {"min": 0, "max": 0, "approx_percentile": 0, "min_by": 1, "max_by": 1}
"""Aggregates that order values, and the argument they order by."""


def takes_numbers(function: str, data_type: DataType) -> bool:
    """Whether a numeric aggregate works on a type; intervals can be added, but have no variance."""
    additive = function in ("sum", "avg") and isinstance(data_type, pl.Duration)
    return data_type.is_numeric() or additive or isinstance(data_type, pl.Null)
