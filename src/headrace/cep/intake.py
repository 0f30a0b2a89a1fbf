"""What becomes of rows as they reach a pattern: most wait for the watermark, some are late, some have no time.

A pattern is about the order of rows, and that is final only behind the watermark. So a row that comes when the
watermark has passed it already cannot be put into its place any more: it is late.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from headrace.engine.operator import EVENT_TIME, ORIGINAL
from headrace.time.instants import INSTANT

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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
    """

    rows: pl.DataFrame
    ready: NDArray[np.bool_]
    waiting: pl.DataFrame
    late: pl.DataFrame | None = None
    dismissed: pl.DataFrame | None = None

    def ready_rows(self) -> pl.DataFrame:
        """The rows behind the watermark."""
        return self.rows if self.ready.all() else self.rows.filter(self.ready)


def sort_out(rows: pl.DataFrame, pending: pl.DataFrame | None, *, before: int | None, watermark: int) -> Sorted:
    """Part the rows of a turn, together with those that waited.

    Args:
        rows: What came.
        pending: What waited, from the turn before.
        before: The watermark of the turn before, which decides what is late; None in the first turn.
        watermark: The watermark of this turn.
    """
    dismissed = late = None
    if rows.height and rows[EVENT_TIME].null_count():
        dismissed = rows.filter(pl.col(EVENT_TIME).is_null()).with_columns(reason=pl.lit("it has no event time"))
        rows = rows.filter(pl.col(EVENT_TIME).is_not_null())
    if rows.height and before is not None:
        is_late = rows[EVENT_TIME].to_physical() < before
        if is_late.any():
            instant = pl.lit(before).cast(INSTANT)
            found = rows.filter(is_late)
            late = found.with_columns(lateness=instant - pl.col(EVENT_TIME), watermark=instant)
            rows = rows.filter(~is_late)
    # Only a late row is told in full.
    rows = rows.drop(ORIGINAL, strict=False)
    if pending is not None:
        # Rows that wait may be from before a column became wider.
        rows = pl.concat([pending, rows], how="vertical_relaxed", rechunk=False)
    ready = rows[EVENT_TIME].to_physical().to_numpy() < watermark
    waiting = rows if not ready.any() else rows[:0] if ready.all() else rows.filter(~ready)
    return Sorted(rows, ready, waiting, late, dismissed)
