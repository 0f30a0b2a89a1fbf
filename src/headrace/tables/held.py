"""What an operator of tables keeps between turns: rows by key, in pages, and the little beside them.

Every operator here keeps one table of rows (`headrace.engine.keyed_state`). A turn opens it, takes the rows of the
keys that it needs, and puts back what became of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.engine.keyed_state import KeyedTable, TableIndex, hashes_of
from headrace.engine.resplit import resplit_table
from headrace.engine.row_pages import Layouts
from headrace.engine.state import record_from_bytes, record_to_bytes
from headrace.time.instants import BEGINNING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import polars as pl

    from headrace.engine import Segments

_INDEX, _ROWS = "index", "rows"


@dataclass
class Held:
    """The rows that an operator keeps on one key group.

    Args:
        state: Where they are.
        keys: The columns they are found by.
        index: Where the pages are.
        beside: Small values that the operator keeps, such as how far it has counted.

    >>> import polars as pl
    >>> from headrace.engine import MemorySegments
    >>> state = MemorySegments()
    >>> held = Held.of(state, ("k",))
    >>> held.take(pl.DataFrame({"k": ["a"]})) is None
    True
    >>> held.put(pl.DataFrame({"k": ["a"], "n": [1]}))
    >>> held.save()
    >>> Held.of(state, ("k",)).take(pl.DataFrame({"k": ["a"]})).rows()
    [('a', 1)]
    """

    state: Segments
    keys: tuple[str, ...]
    index: TableIndex = field(default_factory=TableIndex)
    beside: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._layouts = Layouts(self.state)
        self._table: KeyedTable | None = None

    @classmethod
    def of(cls, state: Segments, keys: Sequence[str]) -> Held:
        """Find what the turn before saved."""
        saved = state.get(_INDEX)
        if saved is None:
            return cls(state, tuple(keys))
        record = record_from_bytes(saved)
        return cls(state, tuple(keys), TableIndex.of(record.pop(_ROWS)), record)

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.index.rows

    def is_due(self, watermark: int, now: int = BEGINNING) -> bool:
        """Tell whether the time of any row is over."""
        return self.index.is_due(watermark, now)

    def take(
        self, wanted: pl.DataFrame | None, *, watermark: int = BEGINNING, now: int = BEGINNING
    ) -> pl.DataFrame | None:
        """Take out the rows of some keys and the rows that are due; None where there are none.

        Args:
            wanted: Rows with the keys; None for no key.
            watermark: Rows due by this event time are taken.
            now: Rows due by this processing time are taken.

        Rows of another key with the same hash come along; all must be put back.
        """
        self._table = KeyedTable(self.state, _ROWS, self.keys, self._layouts, self.index)
        return self._table.take(hashes_of([wanted], self.keys), watermark=watermark, now=now)

    def take_all(self) -> pl.DataFrame | None:
        """Take out all rows; None where there are none."""
        self._table = KeyedTable(self.state, _ROWS, self.keys, self._layouts, self.index)
        return self._table.take(None)

    def put(self, rows: pl.DataFrame | None, event: pl.Series | None = None, clock: pl.Series | None = None) -> None:
        """Keep rows in place of those that were taken; of due times null means never."""
        if self._table is None:
            self._table = KeyedTable(self.state, _ROWS, self.keys, self._layouts, self.index)
        self._table.put(rows, event, clock)
        self._table = None
        if self.index.pages == 0:
            self._layouts.forget()

    def save(self) -> None:
        """Save where the rows are."""
        self.state.put(_INDEX, record_to_bytes({**self.beside, _ROWS: self.index.record()}))


def resplit_held(
    old: Sequence[Segments],
    new: Sequence[Segments],
    keys: Sequence[str],
    route: Sequence[str],
    *,
    change: Callable[[int, pl.DataFrame], pl.DataFrame] | None = None,
) -> list[Held]:
    """Spread what an operator keeps over other key groups; the caller adds the small values, and saves.

    Args:
        old: The segments of the key groups as they are.
        new: Those that shall be.
        keys: The columns that rows are found by.
        route: The columns that name the key group of a row.
        change: Changes the rows of an old key group, given its number.
    """
    before = [Held.of(state, keys) for state in old]
    tables = resplit_table(old, new, _ROWS, keys, [held.index for held in before], route=route, change=change)
    return [Held(state, tuple(keys), index) for state, index in zip(new, tables, strict=True)]


def of_keys(rows: pl.DataFrame, wanted: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Choose the rows whose key is among others; null is a key."""
    if not keys:
        return rows if wanted.height else rows.clear()
    return rows.join(wanted.select(keys).unique(), on=list(keys), how="semi", nulls_equal=True, maintain_order="left")


def not_of_keys(rows: pl.DataFrame, wanted: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Choose the rows whose key is not among others; null is a key."""
    if not keys:
        return rows.clear() if wanted.height else rows
    return rows.join(wanted.select(keys).unique(), on=list(keys), how="anti", nulls_equal=True, maintain_order="left")
