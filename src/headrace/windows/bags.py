"""Aggregates that need the values themselves: distinct, top_k, exact quantiles, collect.

A *bag* holds values with weights. It is one column, a list of structs, that merges by joining lists; `compact` adds
up the weights of equal values, and the reading happens for all rows at once. A row that takes back an earlier one has
the weight -1, so a bag also serves every aggregate that cannot subtract: `min`, `max`, `first` and `latest` become
bags when they must understand retractions. A bag grows with the number of different values; where that is too much,
take a sketch.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import polars as pl

from headrace.engine.operator import EVENT_TIME
from headrace.errors import PlanError
from headrace.windows.aggregates import Aggregate, Column, Need, column, label_of, sign

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_WEIGHT = "weight"
_ROW = "row"

Interpolation = Literal["nearest", "higher", "lower", "midpoint", "linear"]


@dataclass(frozen=True)
class Bag(Aggregate):
    """Values with weights, and a way to read a result out of them.

    Args:
        name_: What a user wrote.
        fields: The columns of an item, null values left out by the first of them.
        weight: What an item weighs; 1 for the row itself.
        reading: Given the items of positive weight (columns of the fields, `weight`, `row`), the result per `row`.
        kind: Type of the result, from the type of the items.
        empty: Result where nothing is in the bag.
    """

    name_: str
    fields: tuple[tuple[str, pl.Expr], ...] = field(compare=False)
    reading: Callable[[pl.DataFrame], pl.DataFrame] = field(compare=False)
    kind: Callable[[pl.DataTypeExpr], pl.DataTypeExpr | pl.DataType | type[pl.DataType]] = field(compare=False)
    weight: pl.Expr | None = field(default=None, compare=False)
    empty: object = None

    def partial(self, name: str) -> list[pl.Expr]:
        """Put the rows into a bag."""
        weight = pl.lit(1, dtype=pl.Int64) if self.weight is None else self.weight
        if self.signed:
            weight = weight * sign()
        item = pl.struct(*[expr.alias(label) for label, expr in self.fields], weight.alias(_WEIGHT))
        return [item.filter(self.fields[0][1].is_not_null()).implode().alias(f"{name}.bag")]

    def merge(self, name: str) -> list[pl.Expr]:
        """Join the bags."""
        return [pl.col(f"{name}.bag").explode(empty_as_null=False, keep_nulls=False).implode()]

    def compact(self, name: str) -> list[pl.Expr]:
        """Add up the weights of equal items, and drop those that weigh nothing."""
        bag = f"{name}.bag"
        return [pl.col(bag).map_batches(self._compacted, return_dtype=pl.dtype_of(bag))]

    def result(self, name: str) -> pl.Expr:
        """Read the result out of the items of positive weight."""
        bag = f"{name}.bag"
        kind = self.kind(pl.dtype_of(bag).list.inner_dtype())
        return pl.col(bag).map_batches(self._read, return_dtype=kind).alias(name)

    def retracting(self) -> Aggregate:
        """Let rows that take back weigh -1."""
        return self if self.signed else replace(self, signed=True)

    def columns(self) -> list[str]:
        """Name the columns that the items read."""
        names = [name for _, expr in self.fields for name in expr.meta.root_names()]
        return names if self.weight is None else [*names, *self.weight.meta.root_names()]

    def describe(self) -> str:
        """Write the aggregate as a user writes it."""
        return self.name_

    def _items(self, bags: pl.Series) -> pl.DataFrame:
        items = bags.alias("item").to_frame().with_row_index(_ROW)
        items = items.explode("item", empty_as_null=False, keep_nulls=False).unnest("item")
        labels = [label for label, _ in self.fields]
        summed = items.group_by(_ROW, *labels, maintain_order=True).agg(pl.col(_WEIGHT).sum())
        return summed.filter(pl.col(_WEIGHT) != 0)

    def _compacted(self, bags: pl.Series) -> pl.Series:
        labels = [label for label, _ in self.fields]
        items = self._items(bags).select(_ROW, pl.struct(*labels, _WEIGHT).alias("item"))
        regrouped = items.group_by(_ROW, maintain_order=True).agg(pl.col("item").implode())
        return _aligned(bags.len(), regrouped, "item").fill_null([]).cast(bags.dtype)

    def _read(self, bags: pl.Series) -> pl.Series:
        items = self._items(bags).filter(pl.col(_WEIGHT) > 0)
        found = _aligned(bags.len(), self.reading(items), "result")
        return found if self.empty is None else found.fill_null(pl.lit(self.empty, dtype=found.dtype))


@dataclass(frozen=True)
class Values(Aggregate):
    """A plain list of values: exact quantiles and `collect` without retractions."""

    name_: str
    of: pl.Expr = field(compare=False)
    read: Callable[[pl.Expr], pl.Expr] = field(compare=False)
    bag: Bag = field(compare=False)
    known: pl.Expr = field(compare=False)
    unique: bool = False
    numbers: pl.Expr | None = field(default=None, compare=False)

    def needs(self) -> Need | None:
        """Numbers, for quantiles."""
        return None if self.numbers is None else Need("numbers", self.numbers)

    def partial(self, name: str) -> list[pl.Expr]:
        """Collect the values."""
        values = self.of.filter(self.known.is_not_null())
        return [(values.unique() if self.unique else values).implode().alias(f"{name}.values")]

    def merge(self, name: str) -> list[pl.Expr]:
        """Join the lists."""
        values = pl.col(f"{name}.values").explode(empty_as_null=False, keep_nulls=False)
        return [(values.unique() if self.unique else values).implode()]

    def result(self, name: str) -> pl.Expr:
        """Read the result out of the list."""
        return self.read(pl.col(f"{name}.values").fill_null([])).alias(name)

    def retracting(self) -> Aggregate:
        """Keep the values with their weights."""
        return self.bag.retracting()

    def columns(self) -> list[str]:
        """Name the columns that are read."""
        return self.of.meta.root_names()

    def describe(self) -> str:
        """Write the aggregate as a user writes it."""
        return self.name_


def exact_distinct(of: Column, *, values: bool = False) -> Values:
    """Count the different values of a column, exactly; or list them, in order.

    Args:
        of: The column.
        values: Give the values instead of their number.

    >>> rows = pl.DataFrame({"v": [3, 1, 3, None]})
    >>> rows.select(exact_distinct("v").partial("n")).select(exact_distinct("v").result("n")).item()
    2
    """
    expr, label = column(of), f"distinct({label_of(of)}{', values=True' if values else ''})"
    if values:
        bag = _bag(label, {"value": expr}, pl.col("value").sort().implode(), _listed, empty=[])
        return Values(label, expr, lambda kept: kept.list.sort(), bag, expr, unique=True)
    bag = _bag(label, {"value": expr}, pl.len().cast(pl.Int64), lambda _: pl.Int64, empty=0)
    return Values(label, expr, lambda kept: kept.list.len().cast(pl.Int64), bag, expr, unique=True)


def top_k(of: Column, k: int, *, by: Column | None = None) -> Bag:
    """List the `k` most frequent values with their counts, most frequent first; of equals the smaller value first.

    Args:
        of: The column.
        k: How many at most.
        by: Sum of this whole-number column instead of the count of rows.

    >>> rows = pl.DataFrame({"v": ["a", "b", "a"]})
    >>> top = top_k("v", 1)
    >>> rows.select(top.partial("t")).select(top.result("t")).item().to_list()
    [{'value': 'a', 'count': 2}]
    """
    if k < 1:
        raise PlanError(f"top_k of {k} values", hint="Give a number of 1 or more.")
    item = pl.struct("value", pl.col(_WEIGHT).alias("count"))
    pick = item.sort_by([_WEIGHT, "value"], descending=[True, False]).head(k).implode()
    weight = None if by is None else column(by).cast(pl.Int64).fill_null(0)
    label = f"top_k({label_of(of)}, {k}{'' if by is None else f', by={label_of(by)}'})"

    def kind(items: pl.DataTypeExpr) -> pl.DataTypeExpr:
        return pl.struct_with_fields({"value": items.struct.field_dtype("value"), "count": pl.Int64}).wrap_in_list()

    return _bag(label, {"value": column(of)}, pick, kind, empty=[], weight=weight)


def exact_quantile(of: Column, q: float | Sequence[float], *, interpolation: Interpolation = "linear") -> Values:
    """Take quantiles of all values; see `headrace.windows.quantile`."""
    levels = [q] if isinstance(q, float | int) else list(q)
    if not levels or not all(0 <= level <= 1 for level in levels):
        raise PlanError(f"quantile of q={q}", hint="Give shares between 0 and 1, such as 0.5 or [0.5, 0.99].")
    one = isinstance(q, float | int)
    # NaN sorts above everything and would pass for the maximum.
    expr = column(of).cast(pl.Float64)
    known = pl.when(expr.is_not_nan()).then(expr)
    label = f"quantile({label_of(of)}, {q}{'' if interpolation == 'linear' else f', {interpolation}'})"

    def read(kept: pl.Expr) -> pl.Expr:
        parts = [kept.list.agg(pl.element().quantile(level, interpolation)) for level in levels]
        return parts[0] if one else pl.concat_list(parts)

    def reading(items: pl.DataFrame) -> pl.DataFrame:
        spread = items.select(_ROW, pl.col("value").repeat_by(_WEIGHT)).explode("value", empty_as_null=False)
        parts = [pl.col("value").quantile(level, interpolation).alias(f"q{n}") for n, level in enumerate(levels)]
        found = spread.group_by(_ROW, maintain_order=True).agg(parts)
        names = [f"q{n}" for n in range(len(levels))]
        return found.select(_ROW, (pl.col("q0") if one else pl.concat_list(names)).alias("result"))

    kind = pl.Float64() if one else pl.List(pl.Float64)
    bag = Bag(label, (("value", known),), reading, lambda _: kind, empty=None if one else [None] * len(levels))
    return Values(label, known, read, bag, known, numbers=column(of))


def collect(of: Column, *, by: Column = EVENT_TIME) -> Values:
    """List all values in the order of event time; values of one time in their own order.

    Args:
        of: The column; nulls are left out.
        by: What orders the rows.

    >>> rows = pl.DataFrame({"event_time": [2, 1], "v": ["b", "a"]})
    >>> rows.select(collect("v").partial("all")).select(collect("v").result("all")).item().to_list()
    ['a', 'b']
    """
    expr, label = column(of), f"collect({label_of(of)})"

    def read(kept: pl.Expr) -> pl.Expr:
        return kept.list.eval(pl.element().sort()).list.eval(pl.element().struct.field("value"))

    def reading(items: pl.DataFrame) -> pl.DataFrame:
        spread = items.with_columns(pl.col("value").repeat_by(_WEIGHT)).explode("value", empty_as_null=False)
        ordered = pl.col("value").sort_by("time", "value").implode().alias("result")
        return spread.group_by(_ROW, maintain_order=True).agg(ordered)

    bag = Bag(label, (("value", expr), ("time", column(by))), reading, _listed, empty=[])
    both = pl.struct(column(by).alias("time"), expr.alias("value"))
    return Values(label, both, read, bag, expr)


def bag_extreme(of: pl.Expr, label: str, *, largest: bool) -> Bag:
    """Make `min` or `max` that understands retractions."""
    pick = pl.col("value").max() if largest else pl.col("value").min()
    bag = _bag(f"{'max' if largest else 'min'}({label})", {"value": of}, pick, _valued)
    return replace(bag, signed=True)


def bag_by_time(of: pl.Expr, label: str, by: pl.Expr, *, newest: bool) -> Bag:
    """Make `latest` or `first` that understands retractions."""
    pick = pl.col("value").sort_by(["time", "value"], descending=[not newest, False]).last()
    bag = _bag(f"{'latest' if newest else 'first'}({label})", {"value": of, "time": by}, pick, _valued)
    return replace(bag, signed=True)


def _bag(
    label: str,
    fields: dict[str, pl.Expr],
    pick: pl.Expr,
    kind: Callable[[pl.DataTypeExpr], pl.DataTypeExpr | pl.DataType | type[pl.DataType]],
    *,
    empty: object = None,
    weight: pl.Expr | None = None,
) -> Bag:
    def reading(items: pl.DataFrame) -> pl.DataFrame:
        return items.group_by(_ROW, maintain_order=True).agg(pick.alias("result"))

    return Bag(label, tuple(fields.items()), reading, kind, weight, empty)


def _valued(items: pl.DataTypeExpr) -> pl.DataTypeExpr:
    return items.struct.field_dtype("value")


def _listed(items: pl.DataTypeExpr) -> pl.DataTypeExpr:
    return items.struct.field_dtype("value").wrap_in_list()


def _aligned(rows: int, found: pl.DataFrame, name: str) -> pl.Series:
    every = pl.DataFrame({_ROW: pl.int_range(rows, dtype=pl.get_index_type(), eager=True)})
    return every.join(found, on=_ROW, how="left", maintain_order="left").get_column(name)
