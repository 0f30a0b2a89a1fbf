"""Conditions on what was matched so far, for many partial matches at once.

`matched("braking").mean("acceleration")` is asked with a row and a path. Asked for one path it walks along it; asked
for thousands of paths of many keys that would be slow. Here each node of the paths' tree (see `headrace.cep.columnar`)
has **facts**: how many rows of an element lead to it, their sum, the first and the last of them, and so on. The facts
of new nodes follow from their parents' with one array operation for all of them, and a condition is then plain
arithmetic on arrays.

This works for expressions made of `matched` and `current` over columns of numbers; anything else is asked one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import polars as pl
    from numpy.typing import NDArray

    Ints: TypeAlias = NDArray[np.int64]
    Bools: TypeAlias = NDArray[np.bool_]
    #: Values, and where there is one.
    Vector: TypeAlias = tuple[NDArray[Any], Bools]

_LARGE: Final = 2**40

FactKind: TypeAlias = Literal["count", "known", "sum", "min", "max", "first", "last"]


@dataclass(frozen=True, slots=True)
class Fact:
    """What is known of the rows of an element along a path; a column is named for all kinds but count."""

    kind: FactKind
    name: str
    column: str = ""


def numbers_of(frame: pl.DataFrame, column: str) -> Vector | None:
    """A column as numbers, and where it has one; None if it holds no numbers, or some that compare oddly."""
    series = frame[column]
    if not (series.dtype.is_integer() or series.dtype.is_float()):
        return None
    if series.dtype.is_float() and bool(series.is_nan().any()):
        return None
    if series.dtype.is_integer() and bool((series.abs() >= _LARGE).any()):
        return None  # a sum of very many of them might not fit
    known = series.is_not_null().to_numpy()
    wide = np.float64 if series.dtype.is_float() else np.int64
    return series.fill_null(0).to_numpy().astype(wide), known


class Facts:
    """Facts of all nodes.

    Args:
        labels: The number of each element.
        columns: The numbers of all rows, by column.
    """

    def __init__(self, labels: Mapping[str, int], columns: Mapping[str, Vector]) -> None:
        self._labels = labels
        self.columns = columns
        self._facts: dict[Fact, Vector] = {}
        # The path without rows stands in front: a node's place is its number plus one.
        self._parent: Ints = np.zeros(1, dtype=np.int64)
        self._label: Ints = np.full(1, -1, dtype=np.int64)
        self._row: Ints = np.zeros(1, dtype=np.int64)
        self._count = 1

    def add(self, parent: Ints, label: Ints, row: Ints) -> None:
        """Add nodes whose parents are there already."""
        begin, end = self._count, self._count + len(parent)
        self._reserve(end)
        self._parent[begin:end], self._label[begin:end], self._row[begin:end] = parent + 1, label, row
        self._count = end
        new = np.arange(begin, end)
        # One fact may need another, which is then computed for all nodes.
        for fact in tuple(self._facts):
            self._compute(fact, new)

    def add_all(self, parent: Ints, label: Ints, row: Ints) -> None:
        """Add nodes whose parents may be among them."""
        begin, end = self._count, self._count + len(parent)
        self._reserve(end)
        self._parent[begin:end], self._label[begin:end], self._row[begin:end] = parent + 1, label, row
        self._count = end

    def of(self, fact: Fact, nodes: Ints) -> Vector:
        """A fact at some nodes; -1 stands for the path without rows."""
        found = self._facts.get(fact)
        if found is None:
            wide = np.int64 if fact.kind in ("count", "known") else self.columns[fact.column][0].dtype
            empty = fact.kind in ("count", "known", "sum")
            values, known = np.zeros(len(self._parent), dtype=wide), np.zeros(len(self._parent), dtype=np.bool_)
            known[0] = empty
            found = self._facts[fact] = (values, known)
            for level in self._levels():
                self._compute(fact, level)
        return found[0][nodes + 1], found[1][nodes + 1]

    def _levels(self) -> list[Ints]:
        """All nodes, those with shorter paths before those with longer ones."""
        levels: list[Ints] = []
        known = np.zeros(self._count, dtype=np.bool_)
        known[0] = True
        left = np.arange(1, self._count)
        while len(left):
            ready = known[self._parent[left]]
            levels.append(left[ready])
            known[left[ready]] = True
            left = left[~ready]
        return levels

    def _reserve(self, size: int) -> None:
        if size <= len(self._parent):
            return
        room = max(2 * size, 1024)

        def grown(old: NDArray[Any]) -> NDArray[Any]:
            new = np.zeros(room, dtype=old.dtype)
            new[: len(old)] = old
            return new

        self._parent, self._label, self._row = grown(self._parent), grown(self._label), grown(self._row)
        self._facts = {fact: (grown(values), grown(known)) for fact, (values, known) in self._facts.items()}

    def _compute(self, fact: Fact, nodes: Ints) -> None:
        values, known = self._facts[fact]
        parent = self._parent[nodes]
        mine = self._label[nodes] == self._labels.get(fact.name, -2)
        before, was_known = values[parent], known[parent]
        if fact.kind == "count":
            values[nodes], known[nodes] = before + mine, True
            return
        column, filled = self.columns[fact.column]
        value, there = column[self._row[nodes]], filled[self._row[nodes]]
        counted = mine & there
        match fact.kind:
            case "known":
                values[nodes], known[nodes] = before + counted, True
            case "sum":
                values[nodes], known[nodes] = before + np.where(counted, value, 0), True
            case "min" | "max":
                better = np.minimum(before, value) if fact.kind == "min" else np.maximum(before, value)
                values[nodes] = np.where(counted, np.where(was_known, better, value), before)
                known[nodes] = was_known | counted
            case "last":
                values[nodes], known[nodes] = np.where(mine, value, before), np.where(mine, there, was_known)
            case "first":
                # The first row counts also if its value is null: whether there was one tells the count.
                begun = self.of(Fact("count", fact.name), parent - 1)[0] > 0
                values[nodes] = np.where(mine & ~begun, value, before)
                known[nodes] = np.where(mine & ~begun, there, was_known)


@dataclass(frozen=True, slots=True)
class Asked:
    """Many questions at once: a row, and the node before it, for each.

    Args:
        facts: What is known of nodes.
        rows: The rows at hand.
        nodes: The ends of the paths before them; -1 for none.
    """

    facts: Facts
    rows: Ints
    nodes: Ints

    def current(self, column: str) -> Vector:
        """The values of the rows at hand."""
        values, known = self.facts.columns[column]
        return values[self.rows], known[self.rows]

    def fact(self, kind: str, name: str, column: str) -> Vector:
        """What is known of the paths."""
        if kind != "mean":
            return self.facts.of(Fact(kind, name, column), self.nodes)  # type: ignore[arg-type]
        total, _ = self.facts.of(Fact("sum", name, column), self.nodes)
        number, _ = self.facts.of(Fact("known", name, column), self.nodes)
        return total / np.maximum(number, 1), number > 0


#: An expression for many questions at once.
VectorFunction: TypeAlias = "Callable[[Asked], Vector]"

#: A condition for many questions at once; null does not hold.
VectorCondition: TypeAlias = "Callable[[Asked], Bools]"


def constant(value: float) -> VectorFunction:
    """The same value for all."""

    def give(asked: Asked) -> Vector:
        return np.full(len(asked.rows), value), np.ones(len(asked.rows), dtype=np.bool_)

    return give


def joined(apply: Callable[[Any, Any], Any], one: VectorFunction, other: VectorFunction) -> VectorFunction:
    """Two values joined by an operator; null if either is."""

    def give(asked: Asked) -> Vector:
        (left, there), (right, here) = one(asked), other(asked)
        return apply(left, right), there & here

    return give


def divided(one: VectorFunction, other: VectorFunction) -> VectorFunction:
    """A quotient; null where the divisor is 0."""

    def give(asked: Asked) -> Vector:
        (left, there), (right, here) = one(asked), other(asked)
        nothing = right == 0
        return left / np.where(nothing, 1, right), there & here & ~nothing

    return give


def inverted(one: VectorFunction) -> VectorFunction:
    """What is not true: false, or null."""

    def give(asked: Asked) -> Vector:
        values, known = one(asked)
        return ~(values.astype(np.bool_) & known), np.ones(len(known), dtype=np.bool_)

    return give
