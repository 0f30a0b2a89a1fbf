"""Conditions of a pattern's elements.

A condition on the row alone is a Polars expression; it is computed for all rows of a batch at once. A condition on what
was matched so far, an **iterative** condition, is either a function of the row and of the `Matched` rows before it, or
an expression made of `matched(...)` and `current(...)`:

    lambda row, so_far: so_far.sum("rising", "price") + row["price"] < 100
    matched("rising").sum("price") + current("price") < 100
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeGuard

import numpy as np
import polars as pl
from polars.exceptions import PolarsError

from headrace.cep.vectors import constant, divided, inverted, joined
from headrace.engine.frames import looks_around
from headrace.errors import PlanError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.cep.matcher import Path
    from headrace.cep.vectors import VectorFunction


class Columns:
    """The values of a batch by column, turned into Python values when first asked for."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self.frame = frame
        self._values: dict[str, list[Any]] = {}

    def __getitem__(self, column: str) -> list[Any]:
        values = self._values.get(column)
        if values is None:
            if column not in self.frame.columns:
                raise unknown_column(column, self.frame.columns)
            values = self._values[column] = self.frame[column].to_list()
        return values


class RowView(Mapping[str, Any]):
    """One row, by column name.

    >>> RowView(Columns(pl.DataFrame({"speed": [3, 5]})), 1)["speed"]
    5
    """

    __slots__ = ("columns", "row")

    def __init__(self, columns: Columns, row: int) -> None:
        self.columns = columns
        self.row = row

    def __getitem__(self, column: str) -> Any:
        return self.columns[column][self.row]

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns.frame.columns)

    def __len__(self) -> int:
        return self.columns.frame.width


class Matched:
    """The rows matched so far, by the name of the element that matched them.

    Empty elements give 0 for `count` and `sum`, and None for the others.

    >>> from headrace.cep.matcher import Path
    >>> columns = Columns(pl.DataFrame({"price": [3.0, 5.0, 4.0]}))
    >>> so_far = Matched(columns, Path.EMPTY.add("a", 0).add("b", 1))
    >>> so_far.sum("a", "price"), so_far.last("b", "price"), so_far.count("c"), so_far.max("c", "price")
    (3.0, 5.0, 0, None)
    """

    __slots__ = ("_columns", "_path")

    def __init__(self, columns: Columns, path: Path) -> None:
        self._columns = columns
        self._path = path

    def rows(self, name: str) -> list[RowView]:
        """The rows of an element, oldest first."""
        return [RowView(self._columns, row) for row in self._path.rows(name)]

    def values(self, name: str, column: str) -> list[Any]:
        """The values of a column in the rows of an element, oldest first, without nulls."""
        values = self._columns[column]
        return [value for row in self._path.rows(name) if (value := values[row]) is not None]

    def count(self, name: str) -> int:
        """How many rows an element has matched."""
        return int(self._fact("count", name, "") or 0)

    def sum(self, name: str, column: str) -> Any:
        """The sum over the rows of an element."""
        return self._fact("sum", name, column) or 0

    def mean(self, name: str, column: str) -> float | None:
        """The mean over the rows of an element."""
        known = self._fact("known", name, column)
        return self._fact("sum", name, column) / known if known else None

    def min(self, name: str, column: str) -> Any:
        """The smallest value in the rows of an element."""
        return self._fact("min", name, column)

    def max(self, name: str, column: str) -> Any:
        """The largest value in the rows of an element."""
        return self._fact("max", name, column)

    def first(self, name: str, column: str) -> Any:
        """The value in the oldest row of an element."""
        row = self._fact("first", name, "")
        return None if row is None else self._columns[column][row]

    def last(self, name: str, column: str) -> Any:
        """The value in the newest row of an element."""
        row = self._fact("last", name, "")
        return None if row is None else self._columns[column][row]

    def _fact(self, kind: str, name: str, column: str) -> Any:
        """What is known along the path; each of its links notes it, so a path that grows is not walked again."""
        asked = (kind, name, column)
        unknown: list[Path] = []
        link: Path | None = self._path
        while link is not None and link.parent is not None and (link.memo is None or asked not in link.memo):
            unknown.append(link)
            link = link.parent
        value = None if link is None or link.parent is None else link.memo[asked]
        for link in reversed(unknown):
            if link.label == name:
                value = self._after(kind, column, value, link.row)
            if link.memo is None:
                link.memo = {}
            link.memo[asked] = value
        return value

    def _after(self, kind: str, column: str, value: Any, row: int) -> Any:
        """What is known after one more row of the element."""
        if kind == "count":
            return (value or 0) + 1
        if kind in ("first", "last"):
            return row if value is None or kind == "last" else value
        new = self._columns[column][row]
        if new is None:
            return value
        if kind == "known":
            return (value or 0) + 1
        if value is None:
            return 0 + new if kind == "sum" else new
        return value + new if kind == "sum" else min(value, new) if kind == "min" else max(value, new)


Iterative: TypeAlias = Callable[[RowView, Matched], object]


def _quotient(one: Any, other: Any) -> Any:
    return one / other if other else None


class MatchExpr:
    """An expression over the current row and the rows matched so far; made by `matched` and `current`.

    A comparison or calculation with None is None, and None does not match.
    """

    def __init__(
        self,
        evaluate: Callable[[RowView, Matched], Any],
        text: str,
        names: frozenset[str] = frozenset(),
        columns: frozenset[str] = frozenset(),
        vector: VectorFunction | None = None,
    ) -> None:
        self._evaluate = evaluate
        self._text = text
        self.names = names
        self.columns = columns
        #: The same for many rows and paths at once, if it can be had.
        self.vector = vector

    def __call__(self, row: RowView, so_far: Matched) -> Any:
        """The value for a row and the rows matched before it."""
        return self._evaluate(row, so_far)

    def __repr__(self) -> str:
        return self._text

    def _with(self, sign: str, apply: Callable[[Any, Any], Any], other: object, *, swap: bool = False) -> MatchExpr:
        if isinstance(other, pl.Expr):
            raise PlanError(
                f"{self!r} {sign} a Polars expression cannot be computed while matching",
                hint='Use current("column") for a value of the current row.',
            )
        left, right = (other, self) if swap else (self, other)

        def evaluate(row: RowView, so_far: Matched) -> Any:
            one = left(row, so_far) if isinstance(left, MatchExpr) else left
            two = right(row, so_far) if isinstance(right, MatchExpr) else right
            return None if one is None or two is None else apply(one, two)

        text = f"({left!r} {sign} {right!r})"
        vector = _joined(sign, apply, left, right)
        if not isinstance(other, MatchExpr):
            return MatchExpr(evaluate, text, self.names, self.columns, vector)
        return MatchExpr(evaluate, text, self.names | other.names, self.columns | other.columns, vector)

    def __add__(self, other: object) -> MatchExpr:
        return self._with("+", operator.add, other)

    def __radd__(self, other: object) -> MatchExpr:
        return self._with("+", operator.add, other, swap=True)

    def __sub__(self, other: object) -> MatchExpr:
        return self._with("-", operator.sub, other)

    def __rsub__(self, other: object) -> MatchExpr:
        return self._with("-", operator.sub, other, swap=True)

    def __mul__(self, other: object) -> MatchExpr:
        return self._with("*", operator.mul, other)

    def __rmul__(self, other: object) -> MatchExpr:
        return self._with("*", operator.mul, other, swap=True)

    def __truediv__(self, other: object) -> MatchExpr:
        return self._with("/", _quotient, other)

    def __rtruediv__(self, other: object) -> MatchExpr:
        return self._with("/", _quotient, other, swap=True)

    def __lt__(self, other: object) -> MatchExpr:
        return self._with("<", operator.lt, other)

    def __le__(self, other: object) -> MatchExpr:
        return self._with("<=", operator.le, other)

    def __gt__(self, other: object) -> MatchExpr:
        return self._with(">", operator.gt, other)

    def __ge__(self, other: object) -> MatchExpr:
        return self._with(">=", operator.ge, other)

    def __eq__(self, other: object) -> MatchExpr:  # type: ignore[override]
        return self._with("==", operator.eq, other)

    def __ne__(self, other: object) -> MatchExpr:  # type: ignore[override]
        return self._with("!=", operator.ne, other)

    __hash__ = object.__hash__

    def __and__(self, other: object) -> MatchExpr:
        return self._with("&", lambda a, b: bool(a) and bool(b), other)

    def __or__(self, other: object) -> MatchExpr:
        return self._with("|", lambda a, b: bool(a) or bool(b), other)

    def __invert__(self) -> MatchExpr:
        vector = None if self.vector is None else inverted(self.vector)
        return MatchExpr(lambda row, so_far: not self(row, so_far), f"~{self!r}", self.names, self.columns, vector)

    def __bool__(self) -> bool:
        raise PlanError(
            f"{self!r} has no truth value while the pattern is built", hint="Use & and | instead of and, or."
        )


def _joined(sign: str, apply: Callable[[Any, Any], Any], one: object, other: object) -> VectorFunction | None:
    """Two parts joined, for many rows and paths at once; None where a part is no number."""
    parts: list[VectorFunction] = []
    for part in (one, other):
        vector = part.vector if isinstance(part, MatchExpr) else constant(part) if _is_number(part) else None
        if vector is None:
            return None
        parts.append(vector)
    if sign == "/":
        return divided(*parts)
    return joined({"&": np.logical_and, "|": np.logical_or}.get(sign, apply), *parts)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, bool | int | float) and (not isinstance(value, int) or abs(value) < 2**53)


def current(column: str) -> MatchExpr:
    """The value of a column in the row that is asked about."""
    return MatchExpr(
        lambda row, _: row[column],
        f"current({column!r})",
        columns=frozenset({column}),
        vector=lambda asked: asked.current(column),
    )


@dataclass(frozen=True, slots=True)
class matched:  # noqa: N801  reads as a function: matched("rising").sum("price")
    """The rows that an element has matched so far, as part of a condition.

    >>> matched("rising").sum("price") + current("price") < 100
    ((matched('rising').sum('price') + current('price')) < 100)
    """

    name: str

    def _of(self, what: str, column: str) -> MatchExpr:
        return MatchExpr(
            lambda _, so_far: getattr(so_far, what)(self.name, column),
            f"matched({self.name!r}).{what}({column!r})",
            frozenset({self.name}),
            frozenset({column}),
            lambda asked: asked.fact(what, self.name, column),
        )

    def count(self) -> MatchExpr:
        """How many rows there are."""
        return MatchExpr(
            lambda _, so_far: so_far.count(self.name),
            f"matched({self.name!r}).count()",
            frozenset({self.name}),
            vector=lambda asked: asked.fact("count", self.name, ""),
        )

    def sum(self, column: str) -> MatchExpr:
        """The sum of a column; 0 for no rows."""
        return self._of("sum", column)

    def mean(self, column: str) -> MatchExpr:
        """The mean of a column."""
        return self._of("mean", column)

    def min(self, column: str) -> MatchExpr:
        """The smallest value of a column."""
        return self._of("min", column)

    def max(self, column: str) -> MatchExpr:
        """The largest value of a column."""
        return self._of("max", column)

    def first(self, column: str) -> MatchExpr:
        """The value of a column in the oldest row."""
        return self._of("first", column)

    def last(self, column: str) -> MatchExpr:
        """The value of a column in the newest row."""
        return self._of("last", column)


@dataclass(frozen=True)
class Combined:
    """Conditions joined by and / or, where at least one is iterative."""

    how: Literal["and", "or"]
    parts: tuple[Condition, ...]


Condition: TypeAlias = "pl.Expr | Iterative | MatchExpr | Combined"


def is_iterative(condition: Condition) -> bool:
    """Whether a condition depends on what was matched so far."""
    if isinstance(condition, Combined):
        return any(is_iterative(part) for part in condition.parts)
    return not isinstance(condition, pl.Expr)


def combine(how: Literal["and", "or"], one: Condition | None, other: Condition) -> Condition:
    """Join two conditions; expressions on the row alone stay one expression."""
    if one is None:
        return other
    if isinstance(one, pl.Expr) and isinstance(other, pl.Expr):
        return one & other if how == "and" else one | other
    return Combined(how, (one, other))


def check_condition(condition: object, what: str) -> Condition:
    """Refuse what is no condition."""
    if isinstance(condition, bool):
        return pl.lit(condition)
    if isinstance(condition, pl.Expr) and (other := looks_around(condition)) is not None:
        raise PlanError(
            f"the condition of {what} looks at other rows: {other}",
            hint="In a stream these need not be there. Ask for rows matched before with "
            'matched("name").last("column"), for the row before with MATCH_RECOGNIZE and PREV.',
        )
    if isinstance(condition, (pl.Expr, MatchExpr, Combined)) or callable(condition):
        return condition
    raise PlanError(
        f"the condition of {what} is {condition!r}",
        hint='Give a Polars expression such as col("speed") > 10, or a function of the row and the match so far.',
    )


def never_holds(condition: Condition) -> bool:
    """Whether a condition is a constant that is not true."""
    if not isinstance(condition, pl.Expr) or condition.meta.root_names():
        return False
    try:
        value = pl.select(condition).item()
    except (PolarsError, ValueError):
        return False  # it depends on the rows after all, as a selector or a function of the user's own
    return value is None or value is False


def masks_of(frame: pl.DataFrame, conditions: Sequence[pl.Expr]) -> list[NDArray[np.bool_]]:
    """Compute conditions on the row alone for all rows at once; null does not match."""
    if not conditions:
        return []
    for condition in conditions:
        for column in condition.meta.root_names():
            if column not in frame.columns:
                raise unknown_column(column, frame.columns)
    # A literal has one row of its own: the frame's length must come from the frame.
    wide = frame.select(
        pl.int_range(pl.len()).alias("#"),
        *(condition.fill_null(False).alias(str(number)) for number, condition in enumerate(conditions)),
    )
    masks = []
    for number, condition in enumerate(conditions):
        values = wide[str(number)]
        if values.dtype != pl.Boolean:
            raise PlanError(f"condition {condition} gives {values.dtype}, not true or false")
        masks.append(values.to_numpy().astype(np.bool_, copy=False))
    return masks


def names_of(condition: Condition | None) -> frozenset[str]:
    """The elements whose rows a condition asks for, as far as that is known."""
    if isinstance(condition, Combined):
        return frozenset().union(*(names_of(part) for part in condition.parts))
    return condition.names if isinstance(condition, MatchExpr) else frozenset()


def columns_of(condition: Condition) -> frozenset[str] | None:
    """The columns of rows matched earlier that an iterative condition reads; None if that cannot be known."""
    if isinstance(condition, pl.Expr):
        return frozenset()
    if isinstance(condition, MatchExpr):
        return condition.columns
    if isinstance(condition, Combined):
        parts = [columns_of(part) for part in condition.parts]
        return None if any(part is None for part in parts) else frozenset().union(*(part or () for part in parts))
    return None


def rows_read(conditions: Sequence[Condition]) -> set[str] | None:
    """The columns of a row that conditions read, of the row at hand and of earlier ones; None if that is not known."""
    read: set[str] = set()
    for condition in conditions:
        if isinstance(condition, Combined):
            more: set[str] | frozenset[str] | None = rows_read(condition.parts)
        elif isinstance(condition, pl.Expr):
            # An expression that chooses columns by a pattern or a type reads who knows what.
            more = None if condition.meta.has_multiple_outputs() else set(condition.meta.root_names())
        else:
            more = columns_of(condition)
        if more is None:
            return None
        read |= more
    return read


def unknown_column(column: str, columns: Sequence[str]) -> PlanError:
    """The error for a column that the rows do not have."""
    return PlanError(f"the rows have no column {column!r}", hint=f"They have: {', '.join(columns)}.")
