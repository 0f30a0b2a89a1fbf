"""Time by key: how far each key's own event time has come.

Order mostly matters within a key, and the rows of one key mostly come in order. So a key's rows are complete up to its
newest time less a tolerance, or up to the watermark of the source less some patience, whichever is later: the **mark**
of the key. The watermark serves keys that have fallen silent, and a key of which nothing is known.

Marks lie in pages by key (`headrace.engine.keyed_state`). A mark that the watermark has passed says nothing any more
and is forgotten, so there are as many as keys that were active within the watermark's delay and the patience. A turn
reads and writes those of its rows, and those that the watermark has passed since.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from headrace.engine.keyed_state import KeyedTable, TableIndex, hashes_of
from headrace.engine.operator import EVENT_TIME
from headrace.engine.resplit import resplit_tables
from headrace.engine.row_pages import Layouts
from headrace.time.instants import BEGINNING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.engine.state import Segments
    from headrace.time.key_time import KeyTime

_BEFORE, _AFTER, _MARK = "#before", "#after", "#mark"
_TABLE, _LAYOUTS = "marks", "mark_layouts"


@dataclass(frozen=True, slots=True)
class Marks:
    """The marks of the keys that a turn brings rows of; all other keys stand where the watermark does.

    Args:
        keys: The key columns.
        frame: Those columns, and the mark of each key before and after the turn's rows.
        before: The watermark before the turn.
        watermark: The watermark after it.
    """

    keys: list[str]
    frame: pl.DataFrame
    before: int
    watermark: int

    def before_each(self, rows: pl.DataFrame) -> pl.Series:
        """Give the mark, before the turn, of the key of each row."""
        return self._of(rows, _BEFORE, self.before)

    def after_each(self, rows: pl.DataFrame) -> pl.Series:
        """Give the mark, after the turn, of the key of each row."""
        return self._of(rows, _AFTER, self.watermark)

    def _of(self, rows: pl.DataFrame, column: str, least: int) -> pl.Series:
        if not self.keys:
            mark = self.frame.get_column(column)[0] if self.frame.height else least
            return pl.repeat(max(mark, least), rows.height, dtype=pl.Int64, eager=True)
        known = self.frame.select(*self.keys, column)
        found = rows.select(self.keys).join(known, on=self.keys, how="left", maintain_order="left", nulls_equal=True)
        return found.get_column(column).fill_null(least).clip(lower_bound=least)


class KeyClocks:
    """Keeps the marks of one operator's keys on one key group.

    Args:
        keys: The key columns.
        time: What is promised of the order within a key.

    >>> from headrace.engine.state import MemorySegments
    >>> from headrace.time.instants import INSTANT
    >>> from headrace.time.key_time import KeyTime
    >>> clocks, state, record = KeyClocks(["bus"], KeyTime(tolerance=2)), MemorySegments(), {}
    >>> rows = pl.DataFrame({"bus": ["a", "b", "a"], "event_time": [10, 3, 7]}).cast({"event_time": INSTANT})
    >>> marks = clocks.advance(state, record, rows, before=0, watermark=5)
    >>> marks.after_each(rows).to_list(), marks.before_each(rows).to_list()
    ([8, 5, 8], [0, 0, 0])
    """

    def __init__(self, keys: Sequence[str], time: KeyTime) -> None:
        self.keys = list(keys)
        self.time = time

    def advance(
        self, state: Segments, record: dict[str, Any], rows: pl.DataFrame, *, before: int, watermark: int
    ) -> Marks:
        """Take note of the times of new rows.

        Args:
            state: Where the marks are kept.
            record: What the operator saves of its own; the index of the marks is read from it and put into it.
            rows: New rows; their times are not null.
            before: The time that every key had come to before the turn (`KeyTime.floor`).
            watermark: The same after it.
        """
        index = TableIndex.of(record.pop(_TABLE, None))
        layouts = Layouts(state, _LAYOUTS)
        newest = pl.col(EVENT_TIME).to_physical().max() - self.time.tolerance
        shown = rows.group_by(self.keys).agg(newest.alias(_AFTER)) if self.keys else rows.select(newest.alias(_AFTER))
        shown = shown.drop_nulls(_AFTER)
        table = KeyedTable(state, _TABLE, self.keys, layouts, index)
        if shown.height or index.is_due(watermark, BEGINNING):
            known = table.take(hashes_of([shown], self.keys), watermark=watermark)
            marks = _joined(shown, known, self.keys, before)
            others = (
                None
                if known is None or not self.keys
                else known.join(shown, on=self.keys, how="anti", nulls_equal=True)
            )
            kept = marks.select(*self.keys, pl.col(_AFTER).alias(_MARK))
            if others is not None and others.height:
                kept = pl.concat([kept, others.select(kept.columns)])
            kept = kept.filter(pl.col(_MARK) > watermark)
            table.put(kept, kept.get_column(_MARK))
            if index.pages == 0:
                layouts.forget()
        else:
            marks = shown.with_columns(pl.lit(before, dtype=pl.Int64).alias(_BEFORE))
        if index.pages:
            record[_TABLE] = index.record()
        return Marks(self.keys, marks, before, watermark)

    def resplit(
        self, old: Sequence[Segments], records: Sequence[dict[str, Any]], new: Sequence[Segments]
    ) -> list[dict[str, Any]]:
        """Spread the marks over other key groups.

        Args:
            old: Where they are kept.
            records: What the operator saved of its own there.
            new: Where they shall be kept.

        Returns:
            What is to be saved with the operator's own in each new key group.
        """
        before = [
            self._table(state, TableIndex.of(record.get(_TABLE))) for state, record in zip(old, records, strict=True)
        ]
        after = [self._table(state, TableIndex()) for state in new]
        resplit_tables(before, after, self.keys)
        return [{_TABLE: table.index.record()} if table.index.pages else {} for table in after]

    def _table(self, state: Segments, index: TableIndex) -> KeyedTable:
        return KeyedTable(state, _TABLE, self.keys, Layouts(state, _LAYOUTS), index)


def index_of(record: dict[str, Any]) -> dict[str, Any]:
    """Give the part of an operator's record that finds the marks again."""
    return {name: record[name] for name in (_TABLE,) if name in record}


def _joined(shown: pl.DataFrame, known: pl.DataFrame | None, keys: list[str], before: int) -> pl.DataFrame:
    """Give each key that rows came of its mark before and after them."""
    if known is None:
        marks = shown.with_columns(pl.lit(before, dtype=pl.Int64).alias(_BEFORE))
    elif keys:
        marks = shown.join(known.rename({_MARK: _BEFORE}), on=keys, how="left", nulls_equal=True)
    else:
        marks = shown.with_columns(known.get_column(_MARK).alias(_BEFORE))
    return marks.with_columns(pl.col(_BEFORE).fill_null(before)).with_columns(
        pl.max_horizontal(_AFTER, _BEFORE).alias(_AFTER)
    )
