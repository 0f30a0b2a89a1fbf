"""Expressions after their names are resolved: what the evaluators work on.

The leaves tell where a value comes from:

- `ColumnValue`, `RowLabel`: a column, or the variable, of *the row at hand*;
- `Navigation`: finds a row of the match (`FIRST`, `LAST`, with an offset), steps from it by physical rows (`PREV`,
  `NEXT`), and evaluates its body there. A bare `A.price` is a navigation too: the last row mapped to A;
- `Aggregate`: evaluates its arguments on every row of the match that is mapped to its variables;
- `MatchNumber`, `Constant`.

Everything else is an `Operation`. Types are Polars types.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.cep.sql.lexer import Position

DataType: TypeAlias = pl.DataType

_STRING: Final = pl.String()
_INTEGER: Final = pl.Int64()


@dataclass(frozen=True, slots=True)
class Constant:
    """A value known when the query is built."""

    value: Any = field(hash=False)
    type: DataType


@dataclass(frozen=True, slots=True)
class ColumnValue:
    """A column of the row at hand."""

    name: str
    type: DataType


@dataclass(frozen=True, slots=True)
class RowLabel:
    """The variable to which the row at hand is mapped: CLASSIFIER()."""

    type: DataType = _STRING


@dataclass(frozen=True, slots=True)
class MatchNumber:
    """The number of the match within its partition, from 1."""

    type: DataType = _INTEGER


@dataclass(frozen=True, slots=True)
class Navigation:
    """The value of `body` at a row that is found from the match.

    Args:
        body: Evaluated at the row; null if there is no such row.
        labels: Only rows mapped to these count; None for all rows.
        first: Count from the first such row, not back from the last.
        offset: How many such rows further.
        final: Look at the whole match, not only up to the current row.
        shift: Physical rows to step from there; negative for PREV.
        type: Of the value.
    """

    body: Bound
    labels: frozenset[str] | None
    first: bool
    offset: int
    final: bool
    shift: int
    type: DataType


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregate over the rows mapped to `labels` (None: all), up to the current row or, if final, of all of them."""

    function: str
    arguments: tuple[Bound, ...]
    labels: frozenset[str] | None
    final: bool
    type: DataType


@dataclass(frozen=True, slots=True)
class Operation:
    """A function or operator applied to operands."""

    name: str
    operands: tuple[Bound, ...]
    type: DataType
    at: Position


Bound: TypeAlias = Constant | ColumnValue | RowLabel | MatchNumber | Navigation | Aggregate | Operation


def children(node: Bound) -> tuple[Bound, ...]:
    """The nodes directly inside of one."""
    match node:
        case Operation():
            return node.operands
        case Aggregate():
            return node.arguments
        case Navigation():
            return (node.body,)
        case _:
            return ()


def walk(node: Bound) -> Iterator[Bound]:
    """The node and all below it."""
    yield node
    for child in children(node):
        yield from walk(child)


def leaves(node: Bound) -> Iterator[Bound]:
    """What an expression outside of navigations is made from: navigations and aggregates whole, the match number."""
    if isinstance(node, Operation):
        for operand in node.operands:
            yield from leaves(operand)
    elif not isinstance(node, Constant):
        yield node
