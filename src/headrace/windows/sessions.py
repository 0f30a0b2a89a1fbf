"""Merging: windows of one key that overlap become one.

The rule of intervals [start, end): [0, 10) and [10, 20) touch but do not overlap, so they stay two, unless the assigner
says that touching windows merge. Overlap is passed on: of three windows in a row, the one in the middle joins the
others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from headrace.engine.operator import WINDOW_END, WINDOW_START

if TYPE_CHECKING:
    from collections.abc import Sequence


def merged_windows(windows: pl.DataFrame, keys: Sequence[str], *, touching: bool) -> pl.DataFrame:
    """Tell for each window which one it becomes part of: `#merged_start`, `#merged_end`.

    Args:
        windows: Keys, `window_start` and `window_end` as Int64, and `#closed`, which passes to the whole merged window.
        keys: The key columns.
        touching: Whether windows that only touch merge.

    >>> windows = pl.DataFrame({"window_start": [0, 5, 20], "window_end": [10, 15, 30], "#closed": [False] * 3})
    >>> merged_windows(windows, [], touching=False).select("#merged_start", "#merged_end").rows()
    [(0, 15), (0, 15), (20, 30)]
    """
    ordered = windows.sort(*keys, WINDOW_START, WINDOW_END)

    def per_key(expr: pl.Expr) -> pl.Expr:
        return expr.over(keys) if keys else expr

    start = pl.col(WINDOW_START)
    reached = per_key(pl.col(WINDOW_END).cum_max().shift(1))
    apart = start > reached if touching else start >= reached
    numbered = ordered.with_columns(per_key(apart.fill_null(value=True).cum_sum()).alias("#session"))
    group = [*keys, "#session"]
    return numbered.with_columns(
        start.min().over(group).alias("#merged_start"),
        pl.col(WINDOW_END).max().over(group).alias("#merged_end"),
        pl.col("#closed").any().over(group).alias("#closed"),
    ).drop("#session")


def add_window(
    live: Sequence[tuple[int, int]], window: tuple[int, int], *, touching: bool
) -> tuple[list[tuple[int, int]], tuple[int, int], bool]:
    """Add one window to the live ones of a key.

    Returns:
        The live windows after it, the window that the new one became part of, and whether live windows changed by
        merging.

    >>> add_window([(0, 4)], (3, 5), touching=False)
    ([(0, 5)], (0, 5), True)
    """
    frame = pl.DataFrame([*live, window], schema=[WINDOW_START, WINDOW_END], orient="row")
    merged = merged_windows(frame.with_columns(pl.lit(value=False).alias("#closed")), [], touching=touching)
    pairs = merged.select("#merged_start", "#merged_end").unique(maintain_order=True).rows()
    (result,) = [(s, e) for s, e in pairs if s <= window[0] and window[1] <= e]
    met = [known for known in live if result[0] <= known[0] and known[1] <= result[1]]
    return sorted(pairs), result, bool(met) and result not in live
