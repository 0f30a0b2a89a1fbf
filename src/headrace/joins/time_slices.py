"""Rows by time and key: what an interval join keeps of one side.

Time is cut into slices, and each slice is a table of rows by key in pages (`headrace.engine.keyed_state`). A turn reads
the pages of its keys in the slices that its rows can reach, and writes where something changed: mostly the newest
slice. A slice whose time is over is dropped as a whole, without being read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from headrace.engine.keyed_state import KeyedTable, TableIndex
from headrace.engine.resplit import resplit_table
from headrace.engine.row_pages import Layouts
from headrace.time.instants import BEGINNING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from headrace.engine.state import Segments

#: The slice that a row is kept in, beside its columns.
SLICE: Final = "#slice"
#: More slices than this are not begun: rows of a far future share the last one.
MAX_SLICES: Final = 64
#: Slices of the time that a row is kept for.
_SLICES: Final = 4
_SECOND: Final = 1_000_000


@dataclass
class _Slice:
    table: TableIndex
    low: int
    high: int


class TimeSlices:
    """The rows of one side, for one turn: `take` once, then `put` once, then `drop` and `record`.

    Args:
        segments: Where they are kept.
        name: What the names of the segments begin with.
        keys: The key columns.
        time: The column with the time of a row.
        span: How long a row is kept, in microseconds.
        saved: What `record` gave after the turn before; None at the beginning.
    """

    def __init__(
        self, segments: Segments, name: str, keys: Sequence[str], time: str, span: int, saved: list[Any] | None
    ) -> None:
        self._segments = segments
        self._name = name
        self._keys = tuple(keys)
        self._time = time
        self._width = max(span // _SLICES, _SECOND)
        self._layouts = Layouts(segments, f"{name}/layouts")
        self._held = {
            int(number): _Slice(TableIndex.of(table), low, high) for number, table, low, high in (saved or ())
        }
        self._tables: dict[int, KeyedTable] = {}
        self._taken: list[tuple[int, int]] = []

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return sum(each.table.rows for each in self._held.values())

    def take(self, hashes: NDArray[np.uint64], low: int, high: int, due: int) -> pl.DataFrame | None:
        """Take the rows of some keys in a stretch of time, and all that is due; None where there are none.

        Args:
            hashes: What `key_hashes` says of the keys. Rows of another key with the same hash come along.
            low: The beginning of the stretch.
            high: Its end, included. The slices are taken that meet the stretch, with rows outside of it.
            due: Rows due by this time are taken.
        """
        none = hashes[:0]
        frames = []
        for number, held in sorted(self._held.items()):
            near = len(hashes) > 0 and held.low <= high and held.high >= low
            if not near and not held.table.is_due(due, BEGINNING):
                continue
            table = self._table(number)
            found = table.take(hashes if near else none, watermark=due)
            if found is not None:
                self._taken.append((number, found.height))
                frames.append(found)
        return pl.concat(frames, how="diagonal_relaxed") if frames else None

    def put(
        self,
        stays: NDArray[np.bool_],
        changed: pl.DataFrame,
        places: NDArray[np.int64],
        fresh: pl.DataFrame,
        due: str | None,
    ) -> None:
        """Keep rows in place of those that were taken.

        Args:
            stays: Which of the rows that were taken remain as they are.
            changed: Rows that were taken and are kept in another form.
            places: Their places among the rows that were taken.
            fresh: Rows that are new.
            due: A column of both frames with the time at which a row is due, null for never; it is not kept.
        """
        slice_of = np.repeat([number for number, _ in self._taken], [height for _, height in self._taken])
        coming: dict[int, list[pl.DataFrame]] = {}
        if changed.height:
            of_changed = changed.with_columns(pl.Series(SLICE, slice_of[places].astype(np.int64)))
            for (number,), rows in of_changed.partition_by(SLICE, as_dict=True, include_key=False).items():
                coming.setdefault(int(number), []).append(rows)
        if fresh.height:
            of_fresh = fresh.with_columns((pl.col(self._time) // self._width).alias(SLICE))
            for (number,), rows in of_fresh.partition_by(
                SLICE, as_dict=True, include_key=False, maintain_order=True
            ).items():
                coming.setdefault(self._begun(int(number), rows), []).append(rows)
        start = 0
        for number, height in self._taken:
            own = stays[start : start + height]
            start += height
            if not own.all() or number in coming:
                self._put(number, coming.pop(number, []), own, due)
        for number, frames in coming.items():
            self._put(number, frames, None, due)
        self._taken = []

    def drop(self, before: int) -> None:
        """Forget the slices whose rows are all earlier than a time."""
        for number in [number for number, held in self._held.items() if held.high < before]:
            self._table(number).clear()
            del self._held[number]
        for number in [number for number, held in self._held.items() if not held.table.rows]:
            del self._held[number]
        if not self._held:
            self._layouts.forget()

    def record(self) -> list[Any]:
        """Give what is known of the slices in a form that fits into a record."""
        return [[number, held.table.record(), held.low, held.high] for number, held in sorted(self._held.items())]

    def _begun(self, number: int, rows: pl.DataFrame) -> int:
        """Tell the slice for new rows, and note their times."""
        low, high = rows.select(low=pl.col(self._time).min(), high=pl.col(self._time).max()).row(0)
        if number not in self._held and len(self._held) >= MAX_SLICES:
            number = min(self._held, key=lambda each: (abs(each - number), each))
        held = self._held.setdefault(number, _Slice(TableIndex(), low, high))
        held.low, held.high = min(held.low, low), max(held.high, high)
        return number

    def _put(self, number: int, frames: list[pl.DataFrame], stays: NDArray[np.bool_] | None, due: str | None) -> None:
        frame = pl.concat(frames, how="diagonal_relaxed") if frames else None
        times = None
        if frame is not None and due is not None:
            times, frame = frame.get_column(due), frame.drop(due)
        self._table(number).put(frame, times, stays=stays)

    def _table(self, number: int) -> KeyedTable:
        if number not in self._tables:
            name = f"{self._name}/{number}"
            self._tables[number] = KeyedTable(self._segments, name, self._keys, self._layouts, self._held[number].table)
        return self._tables[number]


def resplit_slices(
    old: Sequence[Segments], new: Sequence[Segments], name: str, keys: Sequence[str], saved: Sequence[list[Any] | None]
) -> list[list[Any]]:
    """Spread the rows of one side over other key groups, each slice by itself.

    Args:
        old: The segments of the key groups as they are.
        new: Those that shall be.
        name: What the names of the segments begin with.
        keys: The key columns, which also name the key group.
        saved: What `record` gave on the old key groups.

    Returns:
        The records of the new ones.
    """
    before = [{int(each[0]): each[1:] for each in record or ()} for record in saved]
    after: list[list[Any]] = [[] for _ in new]
    for number in sorted({number for slices in before for number in slices}):
        indexes = [TableIndex.of(slices[number][0] if number in slices else None) for slices in before]
        # What a slice of several key groups reaches over holds for each of its parts.
        low = min(slices[number][1] for slices in before if number in slices)
        high = max(slices[number][2] for slices in before if number in slices)
        tables = resplit_table(old, new, f"{name}/{number}", keys, indexes, layouts=f"{name}/layouts")
        for record, table in zip(after, tables, strict=True):
            if table.rows:
                record.append([number, table.record(), low, high])
    return after
