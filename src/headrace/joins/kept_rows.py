"""Rows by key for one turn: a table in pages together with its index in a record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from headrace.engine.keyed_state import KeyedTable, TableIndex, hashes_of
from headrace.engine.resplit import resplit_table
from headrace.engine.row_pages import Layouts
from headrace.time.instants import BEGINNING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from headrace.engine.state import Segments


class KeptRows:
    """The rows of one side, for one turn: `take` once, then `put` once.

    Args:
        segments: Where they are kept.
        name: What the names of the segments begin with.
        keys: The key columns.
        saved: What `record` gave; None at the beginning.
    """

    def __init__(self, segments: Segments, name: str, keys: Sequence[str], saved: list[Any] | None) -> None:
        self._keys = tuple(keys)
        self._index = TableIndex.of(saved)
        self._layouts = Layouts(segments, f"{name}/layouts")
        self._table = KeyedTable(segments, name, self._keys, self._layouts, self._index)

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self._index.rows

    def take(
        self, frames: Sequence[tuple[pl.DataFrame, Sequence[str]]], like: pl.DataFrame, *, due: int = BEGINNING
    ) -> pl.DataFrame:
        """Take the rows of the keys of some frames, and those that are due; some rows of other keys may come along.

        Args:
            frames: Frames, and their key columns in the order of the table's.
            like: Tells the columns.
            due: Rows due by this time are taken.
        """
        named = [
            frame.select(pl.col(own).alias(name) for own, name in zip(keys, self._keys, strict=True))
            for frame, keys in frames
            if frame.height
        ]
        if not self._keys:
            hashes: NDArray[np.uint64] = np.zeros(1 if any(frame.height for frame, _ in frames) else 0, dtype=np.uint64)
        else:
            hashes = hashes_of(named, self._keys)
        if not len(hashes) and not self._index.is_due(due, BEGINNING):
            return like.clear()
        found = self._table.take(hashes, watermark=due)
        return like.clear() if found is None else found.select(like.columns)

    def put(self, stays: NDArray[np.bool_], rows: pl.DataFrame, due: pl.Series | None = None) -> None:
        """Keep rows in place of those that were taken.

        Args:
            stays: Which of the rows that were taken remain as they are.
            rows: What is kept beside them.
            due: When each of these is due; null for never.
        """
        self._table.put(rows if rows.height else None, due if rows.height else None, stays=stays)
        if self._index.pages == 0:
            self._layouts.forget()

    def record(self) -> list[Any]:
        """Give the index in a form that fits into a record."""
        return self._index.record()


def resplit_kept(
    old: Sequence[Segments],
    new: Sequence[Segments],
    name: str,
    keys: Sequence[str],
    saved: Sequence[list[Any] | None],
    *,
    route: Sequence[str] | None = None,
) -> list[list[Any]]:
    """Spread kept rows over other key groups, with the times at which they are due.

    Args:
        old: The segments of the key groups as they are.
        new: Those that shall be.
        name: What the names of the segments begin with.
        keys: The key columns.
        saved: What `record` gave on the old key groups.
        route: The columns that name the key group, if these are not the key columns.

    Returns:
        The records of the new ones.
    """
    indexes = [TableIndex.of(record) for record in saved]
    tables = resplit_table(old, new, name, keys, indexes, layouts=f"{name}/layouts", route=route)
    return [table.record() for table in tables]


def key_numbers(
    left: pl.DataFrame, left_keys: Sequence[str], right: pl.DataFrame, right_keys: Sequence[str], name: str
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Give the rows of two frames a number by key, the same for equal keys; null is a key like others.

    Args:
        left: A frame.
        left_keys: Its key columns.
        right: Another frame.
        right_keys: Its key columns.
        name: What the number is called.
    """
    if not left_keys:
        return tuple(frame.with_columns(pl.lit(0, dtype=pl.Int64).alias(name)) for frame in (left, right))  # type: ignore[return-value]
    plain = [f"#{place}" for place in range(len(left_keys))]
    parts = [
        frame.select(pl.col(key).alias(each) for key, each in zip(keys, plain, strict=True))
        for frame, keys in ((left, left_keys), (right, right_keys))
    ]
    both = pl.concat(parts, how="vertical_relaxed")
    numbers = both.select(pl.struct(plain).rank("dense").cast(pl.Int64).alias(name)).to_series()
    return left.with_columns(numbers[: left.height]), right.with_columns(numbers[left.height :])
