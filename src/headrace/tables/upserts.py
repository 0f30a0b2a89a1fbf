"""From upserts and deletes to the rows that are taken back and added.

An upsert replaces the row of its key, a delete removes it; neither says what was there before. The operator keeps the
newest row of each key, so that it can take it back. What it gives in a turn is the net change: a row that is replaced
twice in a turn is taken back once.

Which of two rows of a key replaces the other is decided by the order in which they arrive; with `versioned` by event
time, and of equal times by the order in which they arrive. A deleted key is then remembered, since an older row may
still come, until the watermark is `retention` past the delete.

The rows lie in pages by key (`headrace.engine.keyed_state`): a turn reads and writes the pages of its keys.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

from headrace.engine.changelog import changes, marked, newest_rows
from headrace.engine.keyed_state import KeyedTable, TableIndex, hashes_of
from headrace.engine.operator import EVENT_TIME, IS_RETRACTION, Outcome
from headrace.engine.resplit import resplit_table
from headrace.engine.row_pages import Layouts
from headrace.engine.state import record_from_bytes, record_to_bytes
from headrace.formats.tombstones import IS_DELETE
from headrace.time.duration import text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.engine import Segments, Turn

__all__ = ["IS_DELETE", "LatestRowsOperator", "UpsertOperator"]

_INDEX, _ROWS = "index", "rows"
_GONE, _ORDER, _NEW, _KEPT = "#gone", "#order", "#new", "#kept"


@dataclass(frozen=True)
class UpsertOperator:
    """Gives the changes of a table that upserts and deletes make.

    Args:
        keys: The key of the table.
        columns: The columns of its rows, the key and the event time among them.
        versioned: Whether the row with the latest event time counts, and not the last to arrive.
        retention: How long a delete is remembered, in microseconds of event time; None: for ever.

    >>> from headrace.engine import MemorySegments, Turn
    >>> state, operator = MemorySegments(), UpsertOperator(("k",), ("k", "v", "event_time"))
    >>> def turn(*rows):
    ...     frame = pl.DataFrame(rows, schema={"k": pl.String, "v": pl.Int64, "is_delete": pl.Boolean}, orient="row")
    ...     frame = frame.with_columns(event_time=pl.lit(0).cast(pl.Datetime("us", "UTC")))
    ...     return operator.turn(state, Turn(frame, watermark=0, now=0)).rows.drop("event_time").rows()
    >>> turn(("a", 1, False), ("a", 2, False))
    [('a', 2, False)]
    >>> turn(("a", 3, False))
    [('a', 2, True), ('a', 3, False)]
    >>> turn(("a", None, True))
    [('a', 3, True)]
    """

    keys: tuple[str, ...]
    columns: tuple[str, ...]
    versioned: bool = False
    retention: int | None = None

    def prepare(self, rows: pl.DataFrame, watermark: int | None) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Rows go to their key group as they are: which one is the newest is known only there."""
        del watermark
        return rows, None

    def schema(self, rows: pl.Schema) -> pl.Schema:
        """The columns of the table, and whether a row is taken back."""
        return pl.Schema({**{name: rows[name] for name in self.columns}, IS_RETRACTION: pl.Boolean()})

    def fingerprint(self) -> dict[str, str]:
        """Name the key, and which row counts."""
        told = {"operator": "upserts", "keys": ",".join(self.keys), "versioned": str(self.versioned)}
        return told if self.retention is None else {**told, "retention": text(self.retention)}

    def turn(self, state: Segments, turn: Turn) -> Outcome:
        """Replace rows by newer ones of their keys."""
        index = _Index.of(state)
        found = None
        if turn.rows.height or index.rows.is_due(turn.watermark, -1):
            found = self._replace(state, index, turn)
            index.save(state)
        return Outcome(rows=found, keys=index.rows.rows)

    def resplit(self, old: Sequence[Segments], new: Sequence[Segments]) -> None:
        """Spread the rows over other key groups."""
        indexes = [_Index.of(state).rows for state in old]
        for state, rows in zip(new, resplit_table(old, new, _ROWS, self.keys, indexes), strict=True):
            _Index(rows).save(state)

    def _replace(self, state: Segments, index: _Index, turn: Turn) -> pl.DataFrame | None:
        layouts = Layouts(state)
        table = KeyedTable(state, _ROWS, self.keys, layouts, index.rows)
        gone = pl.col(IS_DELETE).fill_null(value=False) if IS_DELETE in turn.rows.columns else pl.lit(value=False)
        arrived = turn.rows.select(*self.columns, gone.alias(_GONE), pl.lit(value=True).alias(_NEW))
        held = table.take(hashes_of([arrived], self.keys), watermark=turn.watermark)
        if held is None:
            held = arrived.clear().drop(_NEW)
        both = pl.concat([held.select(*self.columns, _GONE, pl.lit(value=False).alias(_NEW)), arrived])
        both = both.with_row_index(_ORDER)
        # Rows that came along with the same hash, or are due, are a key like others here.
        order = [EVENT_TIME, _ORDER] if self.versioned else [_ORDER]
        newest = both.sort(order, nulls_last=False).unique(list(self.keys), keep="last", maintain_order=True)
        touched = newest.join(arrived.select(self.keys).unique(), on=list(self.keys), how="semi", nulls_equal=True)
        old = both.filter(~pl.col(_NEW) & ~pl.col(_GONE))
        old = old.join(touched, on=list(self.keys), how="semi", nulls_equal=True)
        self._keep(table, newest, turn.watermark)
        if index.rows.pages == 0:
            layouts.forget()
        columns = list(self.columns)
        found = changes(old.select(columns), touched.filter(~pl.col(_GONE)).select(columns))
        return found if found.height else None

    def _keep(self, table: KeyedTable, newest: pl.DataFrame, watermark: int) -> None:
        if not self.versioned:
            table.put(newest.filter(~pl.col(_GONE)).select(*self.columns, _GONE))
            return
        kept = newest.select(*self.columns, _GONE)
        if self.retention is None:
            table.put(kept)
            return
        forgotten = pl.col(EVENT_TIME).to_physical() + self.retention
        kept = kept.filter(~pl.col(_GONE) | (forgotten > watermark))
        table.put(kept, kept.select(pl.when(pl.col(_GONE)).then(forgotten)).to_series())


@dataclass(frozen=True)
class LatestRowsOperator:
    """Gives the changes of a table as upserts and deletes: one row per key and turn.

    Args:
        keys: The key of the table, of which each value has one row at most.
        columns: The columns of its rows.
    """

    keys: tuple[str, ...]
    columns: tuple[str, ...]

    def prepare(self, rows: pl.DataFrame, watermark: int | None) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Rows go to their key group as they are."""
        del watermark
        return rows, None

    def schema(self, rows: pl.Schema) -> pl.Schema:
        """The columns of the table, and whether the key is deleted."""
        return pl.Schema({**{name: rows[name] for name in self.columns}, IS_DELETE: pl.Boolean()})

    def fingerprint(self) -> dict[str, str]:
        """It keeps nothing."""
        return {"operator": "latest-rows"}

    def turn(self, state: Segments, turn: Turn) -> Outcome:
        """Give the row that was added of each key, or else the delete."""
        del state
        if turn.rows.is_empty():
            return Outcome()
        rows = turn.rows if IS_RETRACTION in turn.rows.columns else marked(turn.rows, retraction=False)
        last = newest_rows(rows, self.keys)
        return Outcome(rows=last.select(*self.columns, pl.col(IS_RETRACTION).alias(IS_DELETE)))

    def resplit(self, old: Sequence[Segments], new: Sequence[Segments]) -> None:
        """There is nothing to spread."""


@dataclass
class _Index:
    """Where the rows are."""

    rows: TableIndex = field(default_factory=TableIndex)

    @classmethod
    def of(cls, state: Segments) -> _Index:
        saved = state.get(_INDEX)
        return cls() if saved is None else cls(TableIndex.of(record_from_bytes(saved)[_ROWS]))

    def save(self, state: Segments) -> None:
        state.put(_INDEX, record_to_bytes({_ROWS: self.rows.record()}))
