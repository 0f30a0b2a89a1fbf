"""A compiled pattern: the program for the matching machine, and what its condition numbers mean.

A `Program` only counts conditions. Here each number has its meaning: a Polars expression, an iterative condition, or a
conjunction of other numbers. `Compiled.rows` computes them for a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from headrace.cep.conditions import Columns, Condition, bind, columns_of, masks_of
from headrace.cep.matcher import Rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.cep.matcher import PathCondition
    from headrace.cep.program import Program, Term
    from headrace.cep.skip import Skip


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
        for number, condition in enumerate(self.conditions):
            if isinstance(condition, pl.Expr):
                continue
            if isinstance(condition, tuple):
                self._join(number, condition, masks, paths, before + frame.height)
            else:
                paths[number] = bind(condition, frame, columns, before)
        return Rows(before + frame.height, masks, paths, times)

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
