"""Panes: the results of a window, one per firing.

A window that fires more than once gives several panes. Each says which it is: its `index` (0, 1, ... per window), its
`timing` (*early*: before the watermark passed the end of the window; *on_time*: because it did; *late*: after), and
whether it `is_last`. How panes relate is the *mode*:

- `delta`: each pane holds what came since the pane before (discarding). The sum of all deltas is the whole.
- `value`: each pane holds all of the window so far (accumulating). The last value is the whole.
- `value_and_retraction`: as `value`, and before it the pane before is taken back: the same row again, with
  `is_retraction`. Adding values and subtracting retractions gives the whole at any time, also in a further aggregate.

When two sessions become one, the merged window is another window: its panes count from 0, and with
`value_and_retraction` the last panes of both are taken back when it fires.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import polars as pl

from headrace.engine.operator import (
    EVENT_TIME,
    IS_RETRACTION,
    PANE_INDEX,
    PANE_IS_LAST,
    PANE_MODE,
    PANE_TIMING,
    WINDOW_END,
    WINDOW_START,
)
from headrace.time.instants import BEGINNING, END, INSTANT

if TYPE_CHECKING:
    from collections.abc import Sequence

Mode = Literal["delta", "value", "value_and_retraction"]
Timing = Literal["early", "on_time", "late"]
Firing = Literal["always", "if_non_empty"]
Closing = Literal["always", "if_non_empty", "never"]
Timestamp = Literal["end_of_window", "earliest", "latest"]

#: The columns that every result row has after its key and its values.
PANE_COLUMNS = (
    EVENT_TIME,
    WINDOW_START,
    WINDOW_END,
    PANE_INDEX,
    PANE_TIMING,
    PANE_IS_LAST,
    PANE_MODE,
    IS_RETRACTION,
)


@dataclass(frozen=True, kw_only=True)
class Panes:
    """How a window step makes panes.

    Args:
        mode: How the panes of a window relate; see the module.
        timestamp: The event time of a result: the last instant of its window, or the earliest or latest of the rows
            that came since the pane before and were not behind the watermark (the last instant of the window if there
            are none).
        on_time: Whether the pane at the end of the window comes even if nothing came since the pane before.
        closing: What happens when a window expires: a last pane if something came since the pane before, always, or
            never.
        keep_earliest: Let early panes of a window share one earliest timestamp instead of starting over with each pane.
    """

    mode: Mode = "value"
    timestamp: Timestamp = "end_of_window"
    on_time: Firing = "always"
    closing: Closing = "if_non_empty"
    keep_earliest: bool = False


def pane_rows(
    results: pl.DataFrame,
    *,
    keys: Sequence[str],
    names: Sequence[str],
    mode: Mode,
) -> pl.DataFrame:
    """Give result rows their public columns and types.

    Args:
        results: Has the keys, the values, `window_start`, `window_end`, `event_time` and `pane_index` as Int64, and
            `pane_timing`, `pane_is_last`.
        keys: The key columns.
        names: The value columns.
        mode: The mode of the panes.
    """
    start, end = pl.col(WINDOW_START), pl.col(WINDOW_END)
    return results.select(
        *keys,
        *names,
        pl.col(EVENT_TIME).cast(INSTANT),
        # The global window has no bounds to show.
        pl.when(start > BEGINNING).then(start).cast(INSTANT).alias(WINDOW_START),
        pl.when(end < END).then(end).cast(INSTANT).alias(WINDOW_END),
        pl.col(PANE_INDEX).cast(pl.Int64),
        pl.col(PANE_TIMING).cast(pl.String),
        pl.col(PANE_IS_LAST).cast(pl.Boolean),
        pl.lit(mode).alias(PANE_MODE),
        pl.lit(value=False).alias(IS_RETRACTION),
    )
