"""Stateless steps, traced: the same steps on the same rows, with what each step dropped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from headrace.engine.operator import ORIGINAL
from headrace.errors import HeadraceError
from headrace.stream.steps import Filter, apply_steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.stream.steps import Step


@dataclass(frozen=True)
class Dropped:
    """Rows that a step dropped.

    Args:
        step: The step.
        rows: The rows as they reached it.
        rest: The steps that would have followed.
    """

    step: Step
    rows: pl.DataFrame
    rest: tuple[Step, ...]

    def with_keys(self, keys: Sequence[str]) -> pl.DataFrame | None:
        """Give the rows with the key columns that they would have had; None where that cannot be known."""
        following = tuple(step for step in self.rest if not isinstance(step, Filter))
        made = any(key in step.gives for step in following for key in keys)
        if all(key in self.rows.columns for key in keys) and not made:
            return self.rows
        try:
            after = apply_each(following, self.rows)[0]
        except HeadraceError:
            return self.rows if all(key in self.rows.columns for key in keys) else None
        return after if all(key in after.columns for key in keys) else None


def apply_each(steps: Sequence[Step], frame: pl.DataFrame) -> tuple[pl.DataFrame, list[Dropped]]:
    """Run steps one after the other, keeping the number of each event.

    Returns:
        What is left, and what each step dropped.
    """
    dropped: list[Dropped] = []
    for place, step in enumerate(steps):
        after = _apply(step, frame)
        gone = ~frame.get_column(ORIGINAL).is_in(after.get_column(ORIGINAL).implode())
        if gone.any():
            dropped.append(Dropped(step, frame.filter(gone), tuple(steps[place + 1 :])))
        frame = after
    return frame, dropped


def _apply(step: Step, frame: pl.DataFrame) -> pl.DataFrame:
    after = apply_steps((step,), frame)
    if ORIGINAL in after.columns:
        return after
    # A function of the user that gives only some columns: row by row, so that each keeps its number.
    parts = []
    for number in range(frame.height):
        row = frame[number : number + 1]
        parts.append(apply_steps((step,), row).with_columns(pl.lit(row.item(0, ORIGINAL)).alias(ORIGINAL)))
    return pl.concat(parts) if parts else after.with_columns(pl.lit(None, pl.Binary).alias(ORIGINAL))
