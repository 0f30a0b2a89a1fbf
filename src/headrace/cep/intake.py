"""What becomes of rows as they reach a pattern: most wait for the watermark, some are late, some have no time.

A pattern is about the order of rows, and that is final only behind the watermark. So a row that comes when the
watermark has passed it already cannot be put into its place any more: it is late.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from headrace.engine.operator import EVENT_TIME, ORIGINAL
from headrace.time.instants import INSTANT


@dataclass(frozen=True, slots=True)
class Sorted:
    """Rows, parted.

    Args:
        ready: Rows behind the watermark, in event-time order; those of one time in the order they came.
        waiting: Rows that the watermark has not passed.
        late: Rows that came too late, with `lateness` and `watermark`; None for none.
        dismissed: Rows without an event time, with `reason`; None for none.
    """

    ready: pl.DataFrame
    waiting: pl.DataFrame
    late: pl.DataFrame | None = None
    dismissed: pl.DataFrame | None = None


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
        instant = pl.lit(before).cast(INSTANT)
        is_late = pl.col(EVENT_TIME) < instant
        found = rows.filter(is_late)
        if found.height:
            late = found.with_columns(lateness=instant - pl.col(EVENT_TIME), watermark=instant)
            rows = rows.filter(~is_late)
    # Only a late row is told in full.
    rows = rows.drop(ORIGINAL, strict=False)
    if pending is not None:
        rows = pl.concat([pending, rows]) if rows.height else pending
    is_ready = pl.col(EVENT_TIME) < pl.lit(watermark).cast(INSTANT)
    ready = rows.filter(is_ready).sort(EVENT_TIME, maintain_order=True)
    waiting = rows.filter(~is_ready) if ready.height else rows
    return Sorted(ready, waiting, late, dismissed)
