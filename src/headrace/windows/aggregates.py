"""Aggregates: what a window computes from its rows.

An aggregate is a frozen description with three moves, each a list of Polars expressions, so that all keys and windows
of a batch are computed at once:

- `partial(name)` folds raw rows inside a `group_by` into columns named `name.<part>`;
- `merge(name)` folds such columns into the same columns, so partials can be taken early (in the source task, per slice,
  per session) and merged later, in any order. A null partial counts for nothing;
- `result(name)` reads the value out of the merged columns, row by row.

**Nulls** in the input are left out by every aggregate but `count()` of rows. **NaN** is a value: it poisons `sum`,
`mean` and `variance`, is left out by `min`, `max` and the quantiles unless there is nothing else, and counts as one
distinct value. With no rows at all, `count` and `distinct` are 0, `sum` is 0, lists are empty and everything else is
null.

**Retractions.** After a window that revises its results, a row may take back an earlier one (`is_retraction`).
`retracting()` gives the aggregate that understands such rows. Counts, sums, means and variances subtract; those that
cannot (`min`, `latest`, quantiles ...) keep all values with their weights; sketches cannot at all and refuse. A NaN
or an infinity cannot be subtracted from a floating-point sum again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import polars as pl
from polars.exceptions import PolarsError

from headrace.engine.operator import EVENT_TIME, IS_RETRACTION
from headrace.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

#: A column by name, or an expression over the columns of a row.
Column = str | pl.Expr


class Bulk(NamedTuple):
    """A fold in two moves, for what Python does group by group: calling it inside a `group_by` costs more than it does.

    Args:
        gather: Collects what is needed of each group, inside the `group_by`.
        settle: Makes the columns `name.<part>` of it, over all groups at once.
    """

    gather: list[pl.Expr]
    settle: list[pl.Expr]


class Need(NamedTuple):
    """What kind of values an aggregate can fold.

    Args:
        kind: "numbers", or "order" for values of which one is the largest.
        of: The values.
    """

    kind: Literal["numbers", "order"]
    of: pl.Expr


_NO_NUMBERS = (pl.String, pl.Binary, pl.Categorical, pl.Enum)


@dataclass(frozen=True)
class Aggregate:
    """The contract of an aggregate; see the module.

    Args:
        signed: Whether rows may take back earlier ones (`is_retraction`).
    """

    signed: bool = field(default=False, kw_only=True)

    def partial(self, name: str) -> list[pl.Expr]:
        """Fold raw rows, inside a `group_by`, into the columns `name.<part>`."""
        raise NotImplementedError

    def merge(self, name: str) -> list[pl.Expr]:
        """Fold columns of partials, inside a `group_by`, into the same columns."""
        raise NotImplementedError

    def result(self, name: str) -> pl.Expr:
        """Read the value out of the columns, row by row, as the column `name`."""
        raise NotImplementedError

    def gather(self, name: str) -> Bulk | None:  # noqa: ARG002 - most fold inside the `group_by`
        """Give a quicker way to `partial` over many groups; None where there is none."""
        return None

    def regather(self, name: str) -> Bulk | None:  # noqa: ARG002 - most fold inside the `group_by`
        """Give a quicker way to `merge` over many groups; None where there is none."""
        return None

    def compact(self, name: str) -> list[pl.Expr]:  # noqa: ARG002 - most have nothing to compact
        """Shrink the columns, row by row, without a change of the value; worth it before they are kept."""
        return []

    def retracting(self) -> Self | Aggregate:
        """Return the aggregate that understands rows which take back earlier ones; PlanError where there is none."""
        return self if self.signed else replace(self, signed=True)

    def columns(self) -> list[str]:
        """Name the columns of a row that the aggregate reads."""
        return []

    def needs(self) -> Need | None:
        """Say what kind of values the aggregate can fold; None if any."""
        return None

    def describe(self) -> str:
        """Write the aggregate as a user writes it; also its fingerprint in saved state."""
        raise NotImplementedError


def check_values(aggregates: Mapping[str, Aggregate], schema: pl.Schema) -> None:
    """Refuse aggregates of values that they would fail on, or have no answer for, when rows come.

    >>> check_values({"mean": mean("name")}, pl.Schema({"name": pl.String}))
    Traceback (most recent call last):
    headrace.errors.PlanError: mean(name) of String: it takes numbers. Name another column, ...

    Raises:
        PlanError: There is one.
    """
    for name, aggregate in aggregates.items():
        _refuse_other(name, aggregate)
        need = aggregate.needs()
        if need is None:
            continue
        try:
            kind = schema.to_frame().select(need.of.alias("value")).schema["value"]
        except PolarsError:
            continue  # a column that is not there: the fold says so
        if need.kind == "numbers" and (kind.is_nested() or kind in _NO_NUMBERS):
            raise PlanError(
                f"{aggregate.describe()} of {kind}: it takes numbers",
                hint="Name another column, or cast it before: pl.col(...).cast(pl.Float64, strict=False).",
            )
        if need.kind == "order" and kind.is_nested():
            raise PlanError(
                f"{aggregate.describe()} of {kind}: such values have no order",
                hint='Name one of its fields: pl.col("...").struct.field("...").',
            )


def _refuse_other(name: str, given: object) -> None:
    """Refuse what is no aggregate, and say how one is written."""
    if isinstance(given, Aggregate):
        return
    if callable(given) and not isinstance(given, pl.Expr):
        what = getattr(given, "__name__", repr(given))
        raise PlanError(
            f"aggregate {name}={what}: a function, and no aggregate",
            hint=f"Call it: {name}={what}(...), with those of headrace.windows; custom() makes one of functions.",
        )
    what = "an expression of Polars" if isinstance(given, pl.Expr) else f"the {type(given).__name__} {given!r}"
    raise PlanError(
        f"aggregate {name}: {what}, and no aggregate",
        hint=f'Write those of headrace.windows: {name}=count(), {name}=mean("celsius"). What is computed of single '
        "rows comes before, in with_columns(...).",
    )


def column(of: Column) -> pl.Expr:
    """Turn the name of a column into an expression; an expression stays."""
    return pl.col(of) if isinstance(of, str) else of


def sign() -> pl.Expr:
    """Give -1 for a row that takes back, 1 for any other."""
    back = pl.col(IS_RETRACTION).fill_null(value=False)
    return pl.when(back).then(pl.lit(-1, dtype=pl.Int64)).otherwise(pl.lit(1, dtype=pl.Int64))


@dataclass(frozen=True)
class _OfColumn(Aggregate):
    """An aggregate of one column."""

    of: pl.Expr = field(compare=False)
    label: str

    def columns(self) -> list[str]:
        """Name the columns that the expression reads."""
        return self.of.meta.root_names()


@dataclass(frozen=True)
class Count(Aggregate):
    """How many rows, or how many values that are not null."""

    of: pl.Expr | None = field(default=None, compare=False)
    label: str = ""

    def partial(self, name: str) -> list[pl.Expr]:
        """Count."""
        if self.signed:
            counted = sign() if self.of is None else sign().filter(self.of.is_not_null())
            return [counted.sum().alias(f"{name}.count")]
        counted = pl.len() if self.of is None else self.of.count()
        return [counted.cast(pl.Int64).alias(f"{name}.count")]

    def merge(self, name: str) -> list[pl.Expr]:
        """Add the counts."""
        return [pl.col(f"{name}.count").sum()]

    def result(self, name: str) -> pl.Expr:
        """Give the count."""
        return pl.col(f"{name}.count").fill_null(0).alias(name)

    def columns(self) -> list[str]:
        """Name the column that is counted, if any."""
        return [] if self.of is None else self.of.meta.root_names()

    def describe(self) -> str:
        """Write the aggregate as a user writes it."""
        return f"count({self.label})"


@dataclass(frozen=True)
class Sum(_OfColumn):
    """The sum; small integers are summed as 64 bits.

    Args:
        or_null: Whether the sum of no values is null, as in SQL, and not 0.
    """

    or_null: bool = False

    def partial(self, name: str) -> list[pl.Expr]:
        """Add the values up, and count them where that is needed."""
        weight = sign() if self.signed else pl.lit(1, dtype=pl.Int64)
        total = (self.of * weight).sum().alias(f"{name}.sum")
        if not self.or_null:
            return [total]
        known = sign().filter(self.of.is_not_null()).sum() if self.signed else self.of.count().cast(pl.Int64)
        return [total, known.alias(f"{name}.count")]

    def merge(self, name: str) -> list[pl.Expr]:
        """Add the sums."""
        parts = ("sum", "count") if self.or_null else ("sum",)
        return [pl.col(f"{name}.{part}").sum() for part in parts]

    def result(self, name: str) -> pl.Expr:
        """Give the sum."""
        total = pl.col(f"{name}.sum").fill_null(strategy="zero")
        return (pl.when(pl.col(f"{name}.count") > 0).then(total) if self.or_null else total).alias(name)

    def describe(self) -> str:
        """Write the aggregate as a user writes it."""
        return f"sum({self.label}{', or_null=True' if self.or_null else ''})"


@dataclass(frozen=True)
class Extreme(_OfColumn):
    """The smallest or the largest value."""

    largest: bool

    def needs(self) -> Need:
        """Values that have an order."""
        return Need("order", self.of)

    def partial(self, name: str) -> list[pl.Expr]:
        """Take the extreme of the values."""
        return [self._pick(self.of).alias(f"{name}.value")]

    def merge(self, name: str) -> list[pl.Expr]:
        """Take the extreme of the extremes."""
        return [self._pick(pl.col(f"{name}.value"))]

    def result(self, name: str) -> pl.Expr:
        """Give the value."""
        return pl.col(f"{name}.value").alias(name)

    def retracting(self) -> Aggregate:
        """Keep all values with their weights, since an extreme cannot be subtracted."""
        from headrace.windows.bags import bag_extreme

        return bag_extreme(self.of, self.label, largest=self.largest)

    def _pick(self, values: pl.Expr) -> pl.Expr:
        return values.max() if self.largest else values.min()

    def describe(self) -> str:
        """Write the aggregate as a user writes it."""
        return f"{'max' if self.largest else 'min'}({self.label})"


@dataclass(frozen=True)
class Mean(_OfColumn):
    """The arithmetic mean."""

    def needs(self) -> Need:
        """Numbers."""
        return Need("numbers", self.of)

    def partial(self, name: str) -> list[pl.Expr]:
        """Add the values up and count them."""
        if self.signed:
            return [
                (self.of * sign()).sum().cast(pl.Float64).alias(f"{name}.sum"),
                sign().filter(self.of.is_not_null()).sum().alias(f"{name}.count"),
            ]
        return [
            self.of.cast(pl.Float64).sum().alias(f"{name}.sum"),
            self.of.count().cast(pl.Int64).alias(f"{name}.count"),
        ]

    def merge(self, name: str) -> list[pl.Expr]:
        """Add sums and counts."""
        return [pl.col(f"{name}.sum").sum(), pl.col(f"{name}.count").sum()]

    def result(self, name: str) -> pl.Expr:
        """Divide."""
        count_ = pl.col(f"{name}.count")
        return pl.when(count_ > 0).then(pl.col(f"{name}.sum") / count_).alias(name)

    def describe(self) -> str:
        """Write the aggregate as a user writes it."""
        return f"mean({self.label})"


@dataclass(frozen=True)
class Variance(_OfColumn):
    """The variance (or its root), with `ddof` degrees of freedom taken off the count.

    Unsigned partials are (count, mean, sum of squared distances), which merge without losing digits. With retractions
    they are plain sums of powers, which can be subtracted but lose digits where the mean is large against the spread.
    """

    ddof: int = 1
    root: bool = False

    def needs(self) -> Need:
        """Numbers."""
        return Need("numbers", self.of)

    def partial(self, name: str) -> list[pl.Expr]:
        """Fold the values into three numbers."""
        values = self.of.cast(pl.Float64)
        if self.signed:
            return [
                sign().filter(values.is_not_null()).sum().alias(f"{name}.count"),
                (values * sign()).sum().alias(f"{name}.sum"),
                (values * values * sign()).sum().alias(f"{name}.squares"),
            ]
        return [
            values.count().cast(pl.Int64).alias(f"{name}.count"),
            values.mean().alias(f"{name}.mean"),
            ((values - values.mean()) ** 2).sum().alias(f"{name}.spread"),
        ]

    def merge(self, name: str) -> list[pl.Expr]:
        """Fold three numbers per part into three."""
        number = pl.col(f"{name}.count")
        if self.signed:
            return [number.sum(), pl.col(f"{name}.sum").sum(), pl.col(f"{name}.squares").sum()]
        mean_ = pl.col(f"{name}.mean")
        common = (number * mean_).sum() / number.sum()
        spread = pl.col(f"{name}.spread").sum() + (number * (mean_ - common) ** 2).sum()
        return [
            number.sum(),
            pl.when(number.sum() > 0).then(common).alias(f"{name}.mean"),
            spread.alias(f"{name}.spread"),
        ]

    def result(self, name: str) -> pl.Expr:
        """Divide, and take the root for a standard deviation."""
        number = pl.col(f"{name}.count")
        if self.signed:
            total = pl.col(f"{name}.sum")
            squares = pl.col(f"{name}.squares") - total * total / number
            spread = pl.when(squares < 0).then(0.0).otherwise(squares)
        else:
            spread = pl.col(f"{name}.spread")
        variance_ = pl.when(number > self.ddof).then(spread / (number - self.ddof))
        return (variance_.sqrt() if self.root else variance_).alias(name)

    def describe(self) -> str:
        """Write the aggregate as a user writes it."""
        return f"{'std' if self.root else 'variance'}({self.label}, ddof={self.ddof})"


@dataclass(frozen=True)
class ByTime(_OfColumn):
    """The value of the newest or the oldest row; of rows with the same time, the largest value."""

    by: pl.Expr = field(compare=False)
    newest: bool

    def partial(self, name: str) -> list[pl.Expr]:
        """Take the value at the extreme time, and that time."""
        return self._pick(name, self.of, self.by)

    def merge(self, name: str) -> list[pl.Expr]:
        """Take the value at the extreme of the times."""
        return self._pick(name, pl.col(f"{name}.value"), pl.col(f"{name}.time"))

    def result(self, name: str) -> pl.Expr:
        """Give the value."""
        return pl.col(f"{name}.value").alias(name)

    def retracting(self) -> Aggregate:
        """Keep all values with time and weight, since the newest cannot be subtracted."""
        from headrace.windows.bags import bag_by_time

        return bag_by_time(self.of, self.label, self.by, newest=self.newest)

    def columns(self) -> list[str]:
        """Name the columns of the value and of the time."""
        return [*self.of.meta.root_names(), *self.by.meta.root_names()]

    def _pick(self, name: str, value: pl.Expr, time: pl.Expr) -> list[pl.Expr]:
        if self.newest:
            # In the order of structs nulls come first, so a row without a value is never the newest.
            known = pl.when(value.is_not_null()).then(time)
            newest = value.max_by(pl.struct(known.alias("time"), value.alias("value")))
            return [newest.alias(f"{name}.value"), known.max().alias(f"{name}.time")]
        # Nulls come first in min_by too, and a tie should go to the larger value here as well: filter, then sort what
        # is left.
        at = time.filter(value.is_not_null()).min()
        there = value.filter((time == at) & value.is_not_null())
        return [there.sort().last().alias(f"{name}.value"), at.alias(f"{name}.time")]

    def describe(self) -> str:
        """Write the aggregate as a user writes it."""
        return f"{'latest' if self.newest else 'first'}({self.label})"


@dataclass(frozen=True)
class Histogram(_OfColumn):
    """How many values fall between each two edges; the first and the last bin are open."""

    edges: tuple[float, ...] = ()

    def needs(self) -> Need:
        """Numbers."""
        return Need("numbers", self.of)

    def partial(self, name: str) -> list[pl.Expr]:
        """Count per bin."""
        values = self.of.cast(pl.Float64)
        known = values.is_not_null() & values.is_not_nan()
        weight = sign() if self.signed else pl.lit(1, dtype=pl.Int64)
        folds = []
        for number, (low, high) in enumerate(zip((None, *self.edges), (*self.edges, None), strict=True)):
            inside = known
            if low is not None:
                inside = inside & (values >= low)
            if high is not None:
                inside = inside & (values < high)
            folds.append((inside.cast(pl.Int64) * weight).sum().alias(f"{name}.{number}"))
        return folds

    def merge(self, name: str) -> list[pl.Expr]:
        """Add the counts."""
        return [pl.col(f"{name}.{number}").sum() for number in range(len(self.edges) + 1)]

    def result(self, name: str) -> pl.Expr:
        """Give the counts as a list, one more than there are edges."""
        return pl.concat_list([pl.col(f"{name}.{n}").fill_null(0) for n in range(len(self.edges) + 1)]).alias(name)

    def describe(self) -> str:
        """Write the aggregate as a user writes it."""
        return f"histogram({self.label}, edges={list(self.edges)})"


def label_of(of: Column) -> str:
    """Name a column or an expression in a text."""
    return of if isinstance(of, str) else str(of)


def count(of: Column | None = None) -> Count:
    """Count the rows, or the values of a column that are not null.

    >>> rows = pl.DataFrame({"k": ["a", "a", "b"], "v": [1, None, 3]})
    >>> rows.group_by("k", maintain_order=True).agg(count("v").partial("n")).select("k", count("v").result("n")).rows()
    [('a', 1), ('b', 1)]
    """
    return Count() if of is None else Count(column(of), label_of(of))


def sum(of: Column, *, or_null: bool = False) -> Sum:  # noqa: A001 - read as headrace.windows.sum, like polars.sum
    """Add the values of a column up.

    Args:
        of: The column.
        or_null: Give null where there is no value, as SQL does, and not 0.

    >>> sum("v").describe()
    'sum(v)'
    """
    return Sum(column(of), label_of(of), or_null)


def min(of: Column) -> Extreme:  # noqa: A001
    """Take the smallest value of a column.

    >>> min("v").describe()
    'min(v)'
    """
    return Extreme(column(of), label_of(of), largest=False)


def max(of: Column) -> Extreme:  # noqa: A001
    """Take the largest value of a column.

    >>> max("v").describe()
    'max(v)'
    """
    return Extreme(column(of), label_of(of), largest=True)


def mean(of: Column) -> Mean:
    """Take the arithmetic mean of a column.

    >>> mean("v").describe()
    'mean(v)'
    """
    return Mean(column(of), label_of(of))


def variance(of: Column, *, ddof: int = 1) -> Variance:
    """Take the variance of a column.

    Args:
        of: The column.
        ddof: Degrees of freedom: 1 for a sample, 0 for a whole population.

    >>> variance("v").describe()
    'variance(v, ddof=1)'
    """
    return Variance(column(of), label_of(of), ddof=ddof)


def std(of: Column, *, ddof: int = 1) -> Variance:
    """Take the standard deviation of a column.

    >>> std("v").describe()
    'std(v, ddof=1)'
    """
    return Variance(column(of), label_of(of), ddof=ddof, root=True)


def first(of: Column, *, by: Column = EVENT_TIME) -> ByTime:
    """Take the value of the oldest row; of two at the same time, the larger value.

    Args:
        of: The column; rows where it is null are left out.
        by: What orders the rows: event time, unless told otherwise.

    >>> first("v").describe()
    'first(v)'
    """
    return ByTime(column(of), _by_label(of, by), column(by), newest=False)


def latest(of: Column, *, by: Column = EVENT_TIME) -> ByTime:
    """Take the value of the newest row; of two at the same time, the larger value.

    Args:
        of: The column; rows where it is null are left out.
        by: What orders the rows: event time, unless told otherwise.

    >>> latest("cell").describe()
    'latest(cell)'
    """
    return ByTime(column(of), _by_label(of, by), column(by), newest=True)


def histogram(of: Column, edges: list[float]) -> Histogram:
    """Count the values between each two edges: below the first, [first, second), ..., from the last on.

    >>> rows = pl.DataFrame({"v": [1, 5, 5, 20]})
    >>> rows.select(histogram("v", [5, 10]).partial("h")).select(histogram("v", [5, 10]).result("h")).item().to_list()
    [1, 2, 1]
    """
    if not edges or list(edges) != sorted(set(edges)):
        raise PlanError(
            f"histogram edges {edges} are not ascending", hint="Give one or more edges, each once, in order."
        )
    return Histogram(column(of), label_of(of), tuple(edges))


def _by_label(of: Column, by: Column) -> str:
    return label_of(of) if isinstance(by, str) and by == EVENT_TIME else f"{label_of(of)}, by={label_of(by)}"
