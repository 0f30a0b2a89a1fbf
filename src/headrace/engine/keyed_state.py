"""Rows by key, in pages, so that a turn reads and writes the pages of its keys and not the whole state.

A table holds rows that belong to keys: open windows, the newest row of each key, what has passed. A row lies in the
page that the hash of its key names. Pages hold some 16 rows, and there are more pages the more rows there are: one
page more splits an existing one (linear hashing), so the table grows and shrinks without being written anew. A small
table is a single page.

A row may have due times. `take` gives the rows of the keys that are asked for, and the rows that are due; `put` gives
back what became of them. In between all other rows of the pages stay in their binary form. A page is written only if
one of its rows changed, as far as the owner of the table says which did.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from headrace.engine.due_pages import DuePages
from headrace.engine.keygroups import key_hashes
from headrace.engine.row_pages import NEVER, PREFIX, Layouts, PagedRows, stacked
from headrace.errors import StateError
from headrace.time.instants import BEGINNING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from headrace.engine.row_pages import Layout
    from headrace.engine.state import Segments

#: A table of so many rows or fewer is one page.
SINGLE_PAGE_ROWS = 2_048
#: Rows of a page where a turn brings few of the keys, and at most where it brings many.
PAGE_ROWS = 16
LARGE_PAGE_ROWS = 4_096
#: What a page costs beside its rows, in rows, where segments do not say (`call_cost`).
PAGE_COST = 64
_MANY_ROWS = 1_024


@dataclass
class TableIndex:
    """What the owner of a table saves of it.

    Args:
        pages: How many pages there are.
        rows: How many rows.
        page_rows: How many rows a page should have.
        due: The least due times of each block of pages.
    """

    pages: int = 0
    rows: int = 0
    page_rows: int = field(default_factory=lambda: PAGE_ROWS)
    due: list[list[int]] = field(default_factory=list)

    @classmethod
    def of(cls, record: Sequence[Any] | None) -> TableIndex:
        """Read what `record` gave; None for a new table."""
        if record is None:
            return cls()
        pages, rows, page_rows, due = record
        return cls(pages, rows, page_rows, [[NEVER if time is None else time for time in least] for least in due])

    def record(self) -> list[Any]:
        """Give the index in a form that fits into a record."""
        due = [[None if time == NEVER else time for time in least] for least in self.due]
        return [self.pages, self.rows, self.page_rows, due]

    def is_due(self, watermark: int, now: int) -> bool:
        """Tell whether anything is due."""
        return any(event <= watermark or clock <= now for event, clock in self.due)


class KeyedTable:
    """Rows by key for one turn: `take` once, then `put` once.

    Args:
        segments: Where the pages are kept.
        name: What their names begin with.
        keys: The key columns.
        layouts: The layouts of the pages.
        index: What the owner saved of the table; changed by `put`.
        patience: How long after its event time a due row may stay in a page that nobody reads. Rows that are only to be
            forgotten then go many at a time.

    >>> from headrace.engine import MemorySegments
    >>> segments = MemorySegments()
    >>> table = KeyedTable(segments, "open", ("k",), Layouts(segments), TableIndex())
    >>> table.put(pl.DataFrame({"k": ["a", "b"], "n": [1, 2]}))
    >>> again = KeyedTable(segments, "open", ("k",), Layouts(segments), table.index)
    >>> again.take(key_hashes(pl.DataFrame({"k": ["b"]}), ("k",))).rows()
    [('b', 2)]
    """

    def __init__(
        self,
        segments: Segments,
        name: str,
        keys: Sequence[str],
        layouts: Layouts,
        index: TableIndex,
        *,
        patience: int = 0,
    ) -> None:
        self.index = index
        self._segments = segments
        self._name = name
        self._keys = tuple(keys)
        self._layouts = layouts
        self._patience = patience
        self._due = DuePages(segments, f"{name}/due", index.due, index.pages)
        self._read: set[int] = set()
        self._rest: dict[int, list[PagedRows]] = {}
        #: The rows that `take` gave, in the order of its frame.
        self._taken: list[tuple[int, PagedRows]] = []
        self._rows_read = 0
        self._asked = 0

    def take(
        self, hashes: NDArray[np.uint64] | None, *, watermark: int = BEGINNING, now: int = BEGINNING
    ) -> pl.DataFrame | None:
        """Take out the rows of some keys, and those that are due; None where there are none.

        Args:
            hashes: What `key_hashes` says of the keys; None for all rows. Rows of another key with the same hash
                come along.
            watermark: Rows due by this event time are taken.
            now: Rows due by this processing time are taken.
        """
        index = self.index
        if index.pages == 0:
            return None
        wanted = None if hashes is None else np.unique(hashes)
        if wanted is None:
            pages = np.arange(index.pages, dtype=np.int64)
        else:
            self._asked = len(wanted)
            own = np.unique(_pages_of(wanted, index.pages))
            pages = np.union1d(own, self._due.due(watermark, now)) if index.is_due(watermark, now) else own
        taken = []
        for layout, rows in self._pages(pages):
            chosen = np.ones(rows.height, dtype=bool)
            if wanted is not None:
                chosen = (rows.event <= watermark) | (rows.clock <= now) | _among(rows.hashes, wanted)
            places = np.flatnonzero(chosen)
            self._rest.setdefault(layout.number, []).append(rows.chosen(np.flatnonzero(~chosen)))
            if len(places):
                found = rows.chosen(places)
                self._taken.append((layout.number, found))
                taken.append(layout.decode(found))
        if not taken:
            return None
        return taken[0] if len(taken) == 1 else pl.concat(taken, how="diagonal_relaxed")

    def all_rows(self) -> tuple[pl.DataFrame, pl.Series, pl.Series] | None:
        """Read all rows, and when each is due by event time and by processing time; None where there are none.

        A `put` after it replaces all of them.
        """
        parts = self._pages(np.arange(self.index.pages, dtype=np.int64))
        if not sum(rows.height for _, rows in parts):
            return None
        self._taken += [(layout.number, rows) for layout, rows in parts]
        frame = pl.concat([layout.decode(rows) for layout, rows in parts], how="diagonal_relaxed")
        event, clock = (
            pl.Series(np.concatenate([getattr(rows, name) for _, rows in parts])) for name in ("event", "clock")
        )
        return frame, event, clock

    def put(
        self,
        frame: pl.DataFrame | None,
        event: pl.Series | None = None,
        clock: pl.Series | None = None,
        *,
        stays: NDArray[np.bool_] | None = None,
    ) -> None:
        """Keep rows in place of those that were taken.

        Args:
            frame: The rows; None or no rows where all that was taken is to be forgotten.
            event: When each row is due by event time; null for never.
            clock: When each row is due by processing time; null for never.
            stays: Which of the rows that were taken remain as they are, beside those of `frame`; None for none of them.
        """
        fresh = 0 if frame is None else frame.height
        if not fresh and not self._read:
            return
        changed = self._return_unchanged(stays)
        layout = self._layout(frame)
        coming = None
        if frame is not None and fresh:
            hashes = key_hashes(frame, self._keys)
            coming = layout.encode(_fitted(frame, layout), hashes, _times(event, fresh), _times(clock, fresh))
            changed = np.concatenate([changed, hashes])
        pages = self._arranged(coming, fresh)
        self.index.rows += fresh + self._rows_left() - self._rows_read
        written = self._pages_to_write(changed, pages)
        if len(written) or pages != self.index.pages:
            self._write(layout, self._all_rows(layout, coming), pages, written)
        self._read, self._rest, self._taken, self._rows_read = set(), {}, [], 0

    def clear(self) -> None:
        """Forget all rows, without reading them."""
        for page in range(self.index.pages):
            self._segments.delete(f"{self._name}/{page}")
        if self._due.least:
            none = np.zeros(0, dtype=np.int64)
            self._due.save(none, none, none, 0)
        self.index.pages, self.index.rows, self.index.due = 0, 0, self._due.least
        self._read, self._rest, self._taken, self._rows_read = set(), {}, [], 0

    def _return_unchanged(self, stays: NDArray[np.bool_] | None) -> NDArray[np.uint64]:
        """Put rows that stay as they are back to the rest of their pages; returns the hashes of the others."""
        changed = [np.zeros(0, dtype=np.uint64)]
        place = 0
        for number, rows in self._taken:
            if stays is None:
                changed.append(rows.hashes)
                continue
            own = stays[place : place + rows.height]
            place += rows.height
            changed.append(rows.hashes[~own])
            if own.any():
                self._rest.setdefault(number, []).append(rows if own.all() else rows.chosen(np.flatnonzero(own)))
        return np.concatenate(changed)

    def _pages_to_write(self, changed: NDArray[np.uint64], pages: int) -> NDArray[np.int64]:
        """Name the pages that differ from what was read, in ascending order.

        Args:
            changed: The hashes of rows that come, change or go.
            pages: How many pages there shall be.
        """
        before = self.index.pages
        if pages == 0:
            return np.zeros(0, dtype=np.int64)
        parts = [_pages_of(changed, pages)]
        if pages > before:
            # Every page exists, also one without a row, so that one that is missing is noticed.
            added = np.arange(before, pages, dtype=np.uint64)
            parts += [added.astype(np.int64), *([_pages_of(added, before)] if before else [])]
        elif pages < before:
            parts.append(_pages_of(np.arange(pages, before, dtype=np.uint64), pages))
        return np.unique(np.concatenate(parts))

    def _layout(self, frame: pl.DataFrame | None) -> Layout:
        """Choose the layout for all rows that are in hand; nearly always it is the one that they have."""
        schemas = [self._layouts.known[number].schema for number in self._rest]
        if frame is not None and frame.height:
            schemas.append(frame.schema)
        if all(schema == schemas[0] for schema in schemas):
            return self._layouts.fitting(schemas[0])
        return self._layouts.fitting(
            pl.concat([schema.to_frame() for schema in schemas], how="diagonal_relaxed").schema
        )

    def _arranged(self, coming: PagedRows | None, fresh: int) -> int:
        """Decide how many pages there shall be, and read those that must be written anew for it."""
        index = self.index
        total = index.rows - self._rows_read + self._rows_left() + fresh
        touched = max(len(self._read), min(fresh, index.pages), 4) + fresh // PAGE_ROWS
        page_cost = getattr(self._segments, "call_cost", None) or PAGE_COST
        index.page_rows = _page_rows(index, total, self._asked, page_cost)
        pages = _wanted_pages(total, index, touched)
        # Pages that are left without any row anywhere need not be read to be forgotten.
        moved = set(range(pages, index.pages)) if total else set()
        if index.pages and total:
            grown = np.arange(index.pages, pages, dtype=np.uint64)
            moved |= set(_pages_of(grown, index.pages).tolist())
            if coming is not None:
                moved |= set(np.unique(_pages_of(coming.hashes, index.pages)).tolist())
            if pages < index.pages:
                moved |= set(_pages_of(np.arange(pages, index.pages, dtype=np.uint64), pages).tolist())
        for layout, rows in self._pages(np.array(sorted(moved - self._read), dtype=np.int64)):
            self._rest.setdefault(layout.number, []).append(rows)
        return pages

    def _rows_left(self) -> int:
        """Count the rows of the pages that were read, without those that come."""
        return sum(part.height for parts in self._rest.values() for part in parts)

    def _pages(self, pages: NDArray[np.int64]) -> list[tuple[Layout, PagedRows]]:
        """Read pages, all of one layout together."""
        numbers = pages.tolist()
        get, name = self._segments.get, self._name
        values = [get(f"{name}/{page}") for page in numbers]
        if None in values:
            raise StateError(
                f"page {name}/{numbers[values.index(None)]} of the saved rows is missing",
                hint="The checkpoint is incomplete; restore it, or start the job afresh.",
            )
        found: dict[bytes, list[bytes]] = {}
        for value in values:
            if value is not None:
                found.setdefault(value[:PREFIX], []).append(value)
        self._read.update(numbers)
        parts = []
        for same in found.values():
            layout = self._layouts.of_page(same[0])
            parts.append((layout, layout.joined(same)))
        self._rows_read += sum(rows.height for _, rows in parts)
        return parts

    def _all_rows(self, layout: Layout, coming: PagedRows | None) -> PagedRows:
        """Bring the rows that stay, and those that come, into one layout."""
        parts: list[PagedRows] = []
        for number, rest in self._rest.items():
            rows = stacked(rest)
            if number != layout.number:
                frame = _fitted(self._layouts.known[number].decode(rows), layout)
                rows = layout.encode(frame, rows.hashes, rows.event, rows.clock)
            parts.append(rows)
        if coming is not None:
            parts.append(coming)
        empty = np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        return stacked(parts) if parts else layout.encode(layout.schema.to_frame(), *empty)

    def _write(self, layout: Layout, rows: PagedRows, pages: int, written: NDArray[np.int64]) -> None:
        index = self.index
        for page in range(pages, index.pages):
            self._segments.delete(f"{self._name}/{page}")
        numbers = _pages_of(rows.hashes, pages) if pages else np.zeros(0, dtype=np.int64)
        if len(written) < len(self._read):
            # Rows of pages that remain as they are need not be sorted.
            chosen = np.flatnonzero(_among(numbers, written))
            order = chosen[np.argsort(numbers[chosen], kind="stable")]
        else:
            order = np.argsort(numbers, kind="stable")
        rows, numbers = rows.chosen(order), numbers[order]
        starts, ends = np.searchsorted(numbers, written, "left"), np.searchsorted(numbers, written, "right")
        for page, value in zip(written.tolist(), layout.cut(rows, starts.tolist(), ends.tolist()), strict=True):
            self._segments.put(f"{self._name}/{page}", value)
        event = _least(rows.event, starts, ends)
        event = np.where(event > NEVER - self._patience, NEVER, event + self._patience)
        self._due.save(written, event, _least(rows.clock, starts, ends), pages)
        index.pages, index.due = pages, self._due.least


def _fitted(frame: pl.DataFrame, layout: Layout) -> pl.DataFrame:
    """Give a frame the columns of a layout, in its order and types; null where it has none."""
    if frame.schema == layout.schema:
        return frame
    kinds = layout.schema
    missing = [pl.lit(None, dtype=kind).alias(name) for name, kind in kinds.items() if name not in frame.columns]
    return frame.with_columns(missing).select(*kinds).cast(layout.schema)


def hashes_of(frames: Sequence[pl.DataFrame | None], keys: Sequence[str]) -> NDArray[np.uint64]:
    """Hash the keys of several frames, each key once at least."""
    found = [np.zeros(0, dtype=np.uint64)]
    for frame in frames:
        if frame is not None and frame.height:
            # Where a batch is large, its keys repeat, and a hash costs more than finding that out.
            few = frame.select(keys).unique() if keys and frame.height > _MANY_ROWS else frame
            found.append(np.unique(key_hashes(few, keys)))
    return np.concatenate(found)


def _pages_of(hashes: NDArray[np.uint64], pages: int) -> NDArray[np.int64]:
    """Tell the page of each hash: its lowest bits, and one bit less where there are not yet so many pages."""
    if pages <= 1:
        return np.zeros(len(hashes), dtype=np.int64)
    bits = pages.bit_length()
    found = (hashes & np.uint64((1 << bits) - 1)).astype(np.int64)
    np.bitwise_and(found, (1 << (bits - 1)) - 1, out=found, where=found >= pages)
    return found


def _wanted_pages(rows: int, index: TableIndex, touched: int) -> int:
    """Tell how many pages there shall be; no more of them are split or joined than the turn touches anyway."""
    if rows == 0:
        return 0
    if rows <= SINGLE_PAGE_ROWS and index.pages <= max(touched, 1):
        return 1 if index.pages <= 1 or rows <= SINGLE_PAGE_ROWS // 2 else index.pages
    wanted = -(-rows // index.page_rows)
    if wanted >= index.pages:
        # Rows that come need their pages at once; a smaller size of page is reached little by little.
        return wanted if index.pages <= 1 else min(wanted, index.pages + touched)
    if wanted > index.pages // 2:
        return index.pages
    return max(wanted, index.pages - touched, 1)


def _page_rows(index: TableIndex, rows: int, keys: int, page_cost: int) -> int:
    """Choose the size of pages: small ones where a turn brings few keys, large ones where it needs most pages anyway.

    A turn's cost is that of the pages it touches: something for each page and something for each row in it.
    """
    if rows <= SINGLE_PAGE_ROWS or not keys:
        return index.page_rows

    def cost(page_rows: int) -> float:
        pages = max(rows / page_rows, 1.0)
        return pages * (1 - exp(-keys / pages)) * (page_cost + page_rows)

    sizes = [PAGE_ROWS]
    while sizes[-1] < LARGE_PAGE_ROWS:
        sizes.append(sizes[-1] * 4)
    best = min(sizes, key=cost)
    # Not for a small gain: moving rows costs something, too.
    return best if 1.5 * cost(best) < cost(index.page_rows) else index.page_rows


def _among(values: NDArray[Any], wanted: NDArray[Any]) -> NDArray[np.bool_]:
    if len(wanted) == 0:
        return np.zeros(len(values), dtype=bool)
    places = np.minimum(np.searchsorted(wanted, values), len(wanted) - 1)
    found: NDArray[np.bool_] = wanted[places] == values
    return found


def _times(times: pl.Series | None, rows: int) -> NDArray[np.int64]:
    if times is None:
        return np.full(rows, NEVER, dtype=np.int64)
    return times.cast(pl.Int64).fill_null(NEVER).to_numpy()


def _least(times: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Give the least time of each stretch of rows, NEVER for one without rows."""
    least = np.full(len(starts), NEVER, dtype=np.int64)
    some = ends > starts
    if some.any():
        least[some] = np.minimum.reduceat(times, starts[some])
    return least
