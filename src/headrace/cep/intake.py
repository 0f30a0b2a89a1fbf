"""What becomes of rows as they reach a pattern: most wait for the watermark, some are late, some have no time.

A pattern is about the order of rows, and that is final only behind the watermark. So a row that comes when the
watermark has passed it already cannot be put into its place any more: it is late. With time by key the order of a
key's rows is final up to the key's own mark (`headrace.engine.key_clocks`), the newest row of a key included: one of
the same time that comes later has its place after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from headrace.engine.operator import EVENT_TIME, ORIGINAL
from headrace.time.instants import BEGINNING, INSTANT

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from headrace.engine.key_clocks import KeyClocks, Marks
    from headrace.engine.state import Segments


@dataclass(frozen=True, slots=True)
class Sorted:
    """Rows, parted.

    Args:
        rows: The rows at hand, in the order they came.
        ready: Which of them are behind the watermark, as a mask. Most rows are looked at through a few columns only,
            so they are not copied here.
        waiting: Rows that the watermark has not passed.
        late: Rows that came too late, with `lateness` and `watermark`; None for none.
        dismissed: Rows without an event time, with `reason`; None for none.
        marks: How far the keys have come that rows came of, with time by key.
    """

    rows: pl.DataFrame
    ready: NDArray[np.bool_]
    waiting: pl.DataFrame
    late: pl.DataFrame | None = None
    dismissed: pl.DataFrame | None = None
    marks: Marks | None = None

    def ready_rows(self) -> pl.DataFrame:
        """The rows behind the watermark."""
        return self.rows if self.ready.all() else self.rows.filter(self.ready)


def sort_out(
    rows: pl.DataFrame,
    pending: pl.DataFrame | None,
    *,
    before: int | None,
    watermark: int,
    note: Callable[[pl.DataFrame], Marks] | None = None,
) -> Sorted:
    """Part the rows of a turn, together with those that waited.

    Args:
        rows: What came.
        pending: What waited, from the turn before.
        before: The watermark of the turn before, which decides what is late; None in the first turn.
        watermark: The watermark of this turn.
        note: Takes note of new rows, and tells how far their keys have come; None without time by key.
    """
    dismissed = late = marks = None
    if rows.height and rows[EVENT_TIME].null_count():
        dismissed = rows.filter(pl.col(EVENT_TIME).is_null()).with_columns(reason=pl.lit("it has no event time"))
        rows = rows.filter(pl.col(EVENT_TIME).is_not_null())
    if note is not None:
        marks = note(rows)
    if rows.height and (before is not None or marks is not None):
        passed = marks.before_each(rows) if marks is not None else pl.lit(before, dtype=pl.Int64)
        behind = pl.col(EVENT_TIME).to_physical() < passed
        is_late = rows.select(behind.alias("late")).to_series()
        if is_late.any():
            found = rows.with_columns(passed.cast(INSTANT).alias("watermark")).filter(is_late)
            lateness = (pl.col("watermark") - pl.col(EVENT_TIME)).alias("lateness")
            late = found.with_columns(lateness).select(*rows.columns, "lateness", "watermark")
            rows = rows.filter(~is_late)
    # Only a late row is told in full.
    rows = rows.drop(ORIGINAL, strict=False)
    if pending is not None:
        rows = pl.concat([pending, rows], rechunk=False) if rows.height else pending
    ready = _ready(rows, marks, watermark)
    waiting = rows if not ready.any() else rows[:0] if ready.all() else rows.filter(~ready)
    return Sorted(rows, ready, waiting, late, dismissed, marks)


def noting(
    clocks: KeyClocks | None, state: Segments, record: dict[str, Any], *, before: int | None, watermark: int
) -> Callable[[pl.DataFrame], Marks] | None:
    """Give what takes note of new rows in a turn; None without time by key.

    Args:
        clocks: How far each key has come.
        state: Where that is kept.
        record: What the operator saves of its own.
        before: The watermark of the turn before; None in the first turn.
        watermark: The watermark of this turn.
    """
    if clocks is None:
        return None
    earlier = BEGINNING if before is None else before
    return lambda rows: clocks.advance(state, record, rows, before=earlier, watermark=watermark)


def _ready(rows: pl.DataFrame, marks: Marks | None, watermark: int) -> NDArray[np.bool_]:
    """Tell which rows have their final place."""
    times = rows[EVENT_TIME].to_physical().to_numpy()
    ready: NDArray[np.bool_] = times < watermark
    if marks is None or ready.all():
        return ready
    # The mark of a key is the time of one of its rows, less the tolerance; what is as old has its place.
    of_key = marks.after_each(rows).to_numpy()
    return ready | ((times <= of_key) & (of_key > watermark))
