"""What is in the segments of an operator, as tables for people.

Segments hold frames, pages of rows by key, and records (`headrace.engine.state`, `headrace.engine.row_pages`). An
operator that says nothing of itself is shown by its frames and pages, under the names of their segments; numbers in
these names tell the parts of one table apart. Rows that something is due for have the columns `due` (event time) and
`due_by_clock` (processing time).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from headrace.engine.operator import Describing
from headrace.engine.row_pages import MARK as PAGE_MARK
from headrace.engine.row_pages import NEVER, Layouts
from headrace.engine.state import FRAME_MARK, MemorySegments, frame_from_bytes
from headrace.time.instants import INSTANT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy as np
    from numpy.typing import NDArray

    from headrace.engine.operator import Operator
    from headrace.engine.row_pages import Layout

DUE, DUE_BY_CLOCK = "due", "due_by_clock"
#: The years 1 to 9999: what a datetime can hold.
_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999


def state_tables(operator: Operator | None, content: Mapping[str, bytes]) -> dict[str, pl.DataFrame]:
    """Show the state of an operator on one key group; tables without rows are left out.

    Args:
        operator: What wrote it; None where that is not known.
        content: Its own segments.
    """
    if not content:
        return {}
    describing: object = operator
    copy = MemorySegments(dict(content))
    found = describing.state_tables(copy) if isinstance(describing, Describing) else tables_in(content)
    return {name: readable(frame) for name, frame in found.items() if frame.height}


def tables_in(content: Mapping[str, bytes]) -> dict[str, pl.DataFrame]:
    """Read the frames and pages among segments, those of one table together.

    >>> from headrace.engine.state import frame_to_bytes
    >>> rows = pl.DataFrame({"k": ["a"]})
    >>> {name: rows.height for name, rows in tables_in({"left/3/0": frame_to_bytes(rows), "index": b""}).items()}
    {'left': 1}
    """
    segments = MemorySegments(dict(content))
    parts: dict[str, list[pl.DataFrame]] = {}
    for name, value in sorted(content.items()):
        if value.startswith(FRAME_MARK):
            parts.setdefault(_table_name(name), []).append(frame_from_bytes(value))
        elif value.startswith(PAGE_MARK):
            layouts = _layouts_of(name, segments)
            if layouts is not None:
                parts.setdefault(_table_name(name), []).append(_page_rows(layouts.of_page(value), value))
    return {name: pl.concat(frames, how="diagonal_relaxed") for name, frames in parts.items()}


def readable(frame: pl.DataFrame) -> pl.DataFrame:
    """Name the columns that are not the user's (those with "#") so that they can be asked for in SQL.

    >>> readable(pl.DataFrame({"k": [1], "#matched": [True]})).columns
    ['k', '_matched']
    """
    names = {name: f"_{name[1:]}" for name in frame.columns if name.startswith("#") and f"_{name[1:]}" not in frame}
    return frame.rename(names)


def with_due_times(frame: pl.DataFrame, event: NDArray[np.int64], clock: NDArray[np.int64]) -> pl.DataFrame:
    """Say when something is due for rows, where that is the case for any."""
    for name, times in ((DUE, event), (DUE_BY_CLOCK, clock)):
        if (times != NEVER).any() and name not in frame.columns:
            frame = frame.with_columns(instants(pl.Series(name, times, dtype=pl.Int64)))
    return frame


def instants(times: pl.Series) -> pl.Series:
    """Turn microseconds into instants; null where no datetime can hold them, such as the end of a global window."""
    return times.set(~times.is_between(_FIRST, _LAST), None).cast(INSTANT)


def together(tables: Iterable[Mapping[str, pl.DataFrame]]) -> dict[str, pl.DataFrame]:
    """Put tables of the same name together."""
    parts: dict[str, list[pl.DataFrame]] = {}
    for each in tables:
        for name, frame in each.items():
            parts.setdefault(name, []).append(frame)
    return {name: pl.concat(frames, how="diagonal_relaxed") for name, frames in parts.items()}


def _page_rows(layout: Layout, page: bytes) -> pl.DataFrame:
    rows = layout.joined([page])
    return with_due_times(layout.decode(rows), rows.event, rows.clock)


def _table_name(segment: str) -> str:
    words = [word for word in segment.split("/") if not word.lstrip("-").isdigit()]
    return "_".join(words) or "rows"


def _layouts_of(page: str, segments: MemorySegments) -> Layouts | None:
    """Find the segment with the layouts of a page: below the name of its table, or beside it."""
    words = page.split("/")
    for length in range(len(words) - 1, -1, -1):
        before, last = "".join(f"{word}/" for word in words[:length]), words[length - 1] if length else ""
        beside = "".join(f"{word}/" for word in words[: max(length - 1, 0)])
        for name in (f"{before}layouts", f"{beside}{last.removesuffix('s')}_layouts"):
            if segments.get(name) is not None:
                return Layouts(segments, name)
    return None
