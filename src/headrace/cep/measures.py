"""What a match gives: columns computed from its rows.

A measure names an element and a column, `first("cruising.speed")`, or a column alone for all rows of the match:

    match(stop).select(at=last("stopped.event_time"), from_speed=first("cruising.speed"), rows=count())

Over no rows `count` is 0, `collect` an empty list, and the others null.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import polars as pl

from headrace.cep.conditions import unknown_column
from headrace.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Mapping

MeasureKind: TypeAlias = Literal["first", "last", "count", "sum", "min", "max", "mean", "collect", "distinct"]


@dataclass(frozen=True, slots=True)
class Measure:
    """A column of a match.

    Args:
        kind: What to compute.
        path: "element.column", "column", or for a count also "element" or nothing.
    """

    kind: MeasureKind
    path: str = ""

    def resolve(self, names: tuple[str, ...]) -> tuple[str | None, str | None]:
        """The element and the column that are meant; None for all rows, or for no column."""
        element, dot, column = self.path.partition(".")
        if dot and element in names:
            return element, column
        if self.kind == "count" and (not self.path or self.path in names):
            return self.path or None, None
        if dot:
            raise PlanError(
                f"{self} names the element {element!r}, which the pattern does not have",
                hint=f"It has: {', '.join(names)}.",
            )
        return None, self.path

    def __str__(self) -> str:
        return f'{self.kind}("{self.path}")'


def first(path: str) -> Measure:
    """The value in the first row."""
    return Measure("first", path)


def last(path: str) -> Measure:
    """The value in the last row."""
    return Measure("last", path)


def count(path: str = "") -> Measure:
    """The number of rows; of values that are not null, if a column is named."""
    return Measure("count", path)


def total(path: str) -> Measure:
    """The sum of the values."""
    return Measure("sum", path)


def smallest(path: str) -> Measure:
    """The smallest value."""
    return Measure("min", path)


def largest(path: str) -> Measure:
    """The largest value."""
    return Measure("max", path)


def mean(path: str) -> Measure:
    """The mean of the values."""
    return Measure("mean", path)


def collect(path: str) -> Measure:
    """The values as a list."""
    return Measure("collect", path)


def distinct(path: str) -> Measure:
    """The number of distinct values."""
    return Measure("distinct", path)


def _aggregate(kind: MeasureKind, column: str | None) -> pl.Expr:
    if column is None:
        return pl.len()
    value = pl.col(column)
    expressions: dict[MeasureKind, pl.Expr] = {
        "first": value.first(),
        "last": value.last(),
        "count": value.count(),
        "sum": value.sum(),
        "min": value.min(),
        "max": value.max(),
        "mean": value.mean(),
        "collect": value,
        "distinct": value.drop_nulls().n_unique(),
    }
    return expressions[kind]


def compute(
    measures: Mapping[str, Measure], names: tuple[str, ...], detail: pl.DataFrame, matches: int
) -> pl.DataFrame:
    """Compute measures for all matches at once.

    Args:
        measures: By the name of the result column.
        names: The names of the pattern's elements.
        detail: The rows of all matches, in order, with their number as `#match` and their element as `#label`.
        matches: How many matches there are.
    """
    result = pl.DataFrame({"#match": pl.int_range(matches, eager=True)})
    by_element: dict[str | None, list[pl.Expr]] = {}
    for name, measure in measures.items():
        element, column = measure.resolve(names)
        if column is not None and column not in detail.columns:
            raise unknown_column(column, [name for name in detail.columns if not name.startswith("#")])
        by_element.setdefault(element, []).append(_aggregate(measure.kind, column).alias(name))
    for element, expressions in by_element.items():
        rows = detail if element is None else detail.filter(pl.col("#label") == names.index(element))
        result = result.join(rows.group_by("#match").agg(expressions), on="#match", how="left", maintain_order="left")
    empty: dict[MeasureKind, object] = {"count": 0, "distinct": 0, "collect": []}
    fills = [
        pl.col(name).fill_null(pl.lit(empty[m.kind], dtype=result.schema[name]))
        for name, m in measures.items()
        if m.kind in empty
    ]
    return result.with_columns(fills).select(*measures)


def columns_of(measures: Mapping[str, Measure], names: tuple[str, ...]) -> set[str]:
    """The columns of the rows that measures read."""
    return {column for measure in measures.values() if (column := measure.resolve(names)[1]) is not None}
