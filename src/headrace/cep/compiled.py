"""A compiled pattern: the program for the matching machine, and what its condition numbers mean.

A `Program` only counts conditions. Here each number has its meaning: a Polars expression, an iterative condition, or a
conjunction of other numbers. `Compiled.rows` computes them for a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from headrace.cep.conditions import Columns, Combined, Condition, Matched, MatchExpr, RowView, columns_of, masks_of
from headrace.cep.matcher import Rows
from headrace.cep.vectors import numbers_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from headrace.cep.matcher import PathCondition
    from headrace.cep.program import Program, Term
    from headrace.cep.skip import Skip
    from headrace.cep.vectors import Asked, Vector, VectorCondition


@dataclass(frozen=True, eq=False)
class Compiled:
    """A pattern that is ready to run: the program, and what its condition numbers mean.

    Args:
        program: For the matching machine.
        conditions: By number: a condition of the pattern, or a conjunction of other numbers.
        skip: What a match gives away.
    """

    program: Program
    conditions: tuple[Condition | Term, ...]
    skip: Skip

    def rows(
        self,
        frame: pl.DataFrame,
        times: NDArray[np.int64] | None,
        *,
        history: pl.DataFrame | None = None,
        order: NDArray[np.int64] | None = None,
    ) -> Rows:
        """Make rows ready for the machine: all masks at once, and functions for what depends on the match.

        Args:
            frame: The rows to match.
            times: The times of the rows of the history and the frame.
            history: Earlier rows of partial matches; they come before the frame, and may have fewer columns.
            order: Which rows of the frame to match, in their order; None for all as they are.
        """
        before = 0 if history is None else history.height
        masks: dict[int, NDArray[np.bool_]] = {}
        paths: dict[int, PathCondition] = {}
        plain = {n: c for n, c in enumerate(self.conditions) if isinstance(c, pl.Expr)}
        nothing = np.zeros(before, dtype=np.bool_)
        for number, found in zip(plain, masks_of(frame, list(plain.values())), strict=True):
            mask = found if order is None else found[order]
            masks[number] = np.concatenate([nothing, mask]) if before else mask
        if len(plain) == len(self.conditions):
            return Rows(before + (frame.height if order is None else len(order)), masks, paths, times)
        # What depends on the match is asked row by row, so these rows are wanted side by side.
        frame = frame if order is None else frame[order]
        columns = Columns(frame if history is None else pl.concat([history, frame.select(history.columns)]))
        numbers = self._numbers(columns.frame)
        vectors: dict[int, VectorCondition] = {}
        for number, condition in enumerate(self.conditions):
            if isinstance(condition, pl.Expr):
                continue
            if isinstance(condition, tuple):
                self._join(number, condition, masks, paths, before + frame.height)
            else:
                paths[number] = bind(condition, frame, columns, before)
                vector = bind_vector(condition, frame, numbers, before)
                if vector is not None:
                    vectors[number] = vector
        return Rows(before + frame.height, masks, paths, times, vectors=vectors, numbers=numbers)

    def _numbers(self, frame: pl.DataFrame) -> dict[str, Vector]:
        """The columns of numbers that iterative conditions read."""
        asked = [columns_of(c) for c in self.conditions if not isinstance(c, (pl.Expr, tuple))]
        names = {name for columns in asked for name in columns or () if name in frame.columns}
        found = {name: numbers_of(frame, name) for name in sorted(names)}
        return {name: vector for name, vector in found.items() if vector is not None}

    def columns_matched(self) -> frozenset[str] | None:
        """The columns of rows matched earlier that conditions read; None if that cannot be known."""
        needed: frozenset[str] = frozenset()
        for condition in self.conditions:
            if not isinstance(condition, (pl.Expr, tuple)):
                more = columns_of(condition)
                if more is None:
                    return None
                needed |= more
        return needed

    @staticmethod
    def _join(
        number: int, term: Term, masks: dict[int, NDArray[np.bool_]], paths: dict[int, PathCondition], count: int
    ) -> None:
        mask = np.ones(count, dtype=np.bool_)
        for part, wanted in term:
            if part in masks:
                mask &= masks[part] == wanted
        asks = [(paths[part], wanted) for part, wanted in term if part in paths]
        if not asks:
            masks[number] = mask
            return
        packed = mask.tobytes()
        paths[number] = lambda row, path: bool(packed[row]) and all(ask(row, path) is w for ask, w in asks)


def bind(condition: Condition, frame: pl.DataFrame, columns: Columns, before: int) -> PathCondition:
    """Make an iterative condition ready for a batch.

    Args:
        condition: What to ask.
        frame: The rows of the batch.
        columns: The values of the rows before the batch, then of the batch.
        before: How many rows there are before the batch.
    """
    if isinstance(condition, Combined):
        parts = [bind(part, frame, columns, before) for part in condition.parts]
        if condition.how == "and":
            return lambda row, path: all(part(row, path) for part in parts)
        return lambda row, path: any(part(row, path) for part in parts)
    if isinstance(condition, pl.Expr):
        mask = masks_of(frame, [condition])[0].tolist()
        return lambda row, _: mask[row - before]
    asked = condition
    return lambda row, path: bool(asked(RowView(columns, row), Matched(columns, path)))


def bind_vector(
    condition: Condition, frame: pl.DataFrame, numbers: Mapping[str, object], before: int
) -> VectorCondition | None:
    """Make an iterative condition ready to be asked for many rows and paths at once; None if that cannot be.

    Args:
        condition: What to ask.
        frame: The rows of the batch.
        numbers: The columns that hold numbers.
        before: How many rows there are before the batch.
    """
    if isinstance(condition, Combined):
        parts = [bind_vector(part, frame, numbers, before) for part in condition.parts]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        join = np.logical_and if condition.how == "and" else np.logical_or
        return lambda asked: join.reduce([part(asked) for part in known])
    if isinstance(condition, pl.Expr):
        mask = np.concatenate([np.zeros(before, dtype=np.bool_), masks_of(frame, [condition])[0]])
        return lambda asked: mask[asked.rows]
    if not isinstance(condition, MatchExpr) or condition.vector is None or not condition.columns <= numbers.keys():
        return None
    vector = condition.vector

    def holds(asked: Asked) -> NDArray[np.bool_]:
        values, known = vector(asked)
        return values.astype(np.bool_) & known

    return holds
