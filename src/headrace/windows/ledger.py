"""The books of a window operator: one row per open window and key, in buckets by the end of the window.

A bucket holds the windows that end in one stretch of time; windows that merge, or never end, share one bucket. Within
a bucket rows lie in pages by key (`headrace.engine.keyed_state`). So a turn reads and writes the pages of the windows
that its rows fall into, and of those whose time has come. The index says for each bucket when that is; it is the only
segment that every turn reads.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from headrace.engine.keyed_state import KeyedTable, TableIndex, hashes_of
from headrace.engine.operator import WINDOW_END
from headrace.engine.resplit import resplit_tables
from headrace.engine.row_pages import Layouts
from headrace.engine.state import frame_from_bytes, record_from_bytes, record_to_bytes
from headrace.errors import StateError
from headrace.time.instants import BEGINNING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from headrace.engine import Segments

#: Columns of the books beside keys, window and partials. A user's column cannot start with "#".
NEW = "#new"
INDEX = "#index"
EARLIEST = "#earliest"
LATEST = "#latest"
CLOSED = "#closed"
TRIGGER = "#trigger"
TIMER = "#timer"
EVENT_TIMER = "#event_timer"
#: Rows that came in this turn; only while a turn lasts.
ROWS = "#rows"

META = {
    NEW: pl.Int64,
    INDEX: pl.Int64,
    EARLIEST: pl.Int64,
    LATEST: pl.Int64,
    CLOSED: pl.Boolean,
    TRIGGER: pl.String,
    TIMER: pl.Int64,
    EVENT_TIMER: pl.Int64,
}

OWNER_START = "#owner_start"
OWNER_END = "#owner_end"
_DUE, _CLOCK = "#due", "#clock"

_VERSION = 2
#: The version before had one segment per bucket; it is read and written anew.
_ONE_SEGMENT_VERSION = 1
_INDEX_SEGMENT = "index"
_MARK = b"HW1\n"


@dataclass
class Bucket:
    """What the index says about one bucket: the table of its windows, and that of the panes they have shown."""

    windows: TableIndex = field(default_factory=TableIndex)
    panes: TableIndex = field(default_factory=TableIndex)


@dataclass
class Ledger:
    """The index, and the way to the buckets.

    Args:
        segments: Where state is kept.
        keys: The key columns.
        watermark: The watermark after the turn before; rows are judged by it.
        fired: How far event-time timers have been run; the same, unless a turn held them back.
        buckets: What is due where.
    """

    segments: Segments
    keys: tuple[str, ...]
    watermark: int = BEGINNING
    fired: int = BEGINNING
    buckets: dict[int, Bucket] = field(default_factory=dict)
    _tables: dict[tuple[str, int], KeyedTable] = field(default_factory=dict)
    _window_layouts: Layouts = field(init=False)
    _pane_layouts: Layouts = field(init=False)

    def __post_init__(self) -> None:
        self._window_layouts = Layouts(self.segments, "layouts")
        self._pane_layouts = Layouts(self.segments, "pane_layouts")

    @classmethod
    def load(cls, segments: Segments, keys: tuple[str, ...]) -> Ledger:
        """Read the index; a new operator starts with an empty one."""
        saved = segments.get(_INDEX_SEGMENT)
        if saved is None:
            return cls(segments, keys)
        record = record_from_bytes(saved)
        if record.get("version") not in (_VERSION, _ONE_SEGMENT_VERSION):
            raise StateError(
                f"the saved windows have version {record.get('version')}, this is {_VERSION}",
                hint="Start the job afresh, or with the version of Headrace that wrote them.",
            )
        ledger = cls(segments, keys, record["watermark"], record["fired"])
        if record["version"] == _ONE_SEGMENT_VERSION:
            ledger._convert({int(number): event for number, (_, event, _) in record["buckets"].items()})
        else:
            for number, (windows, panes) in record["buckets"].items():
                ledger.buckets[int(number)] = Bucket(TableIndex.of(windows), TableIndex.of(panes))
        return ledger

    def save(self) -> None:
        """Write the index."""
        record: dict[str, Any] = {
            "version": _VERSION,
            "watermark": self.watermark,
            "fired": self.fired,
            "buckets": {
                str(number): [bucket.windows.record(), bucket.panes.record() if bucket.panes.pages else None]
                for number, bucket in self.buckets.items()
            },
        }
        self.segments.put(_INDEX_SEGMENT, record_to_bytes(record))

    def count(self) -> int:
        """Count the windows that are open, a key's own each."""
        return sum(bucket.windows.rows for bucket in self.buckets.values())

    def due(self, watermark: int, now: int) -> set[int]:
        """Name the buckets in which something is due by the watermark or by the clock."""
        return {number for number, bucket in self.buckets.items() if bucket.windows.is_due(watermark, now)}

    def read(
        self,
        numbers: Iterable[int],
        hashes: NDArray[np.uint64] | None,
        watermark: int = BEGINNING,
        now: int = BEGINNING,
    ) -> tuple[pl.DataFrame | None, pl.DataFrame | None]:
        """Take windows out of buckets, and the panes of theirs that may have to be taken back.

        Args:
            numbers: The buckets.
            hashes: The keys whose windows are wanted; None for all.
            watermark: Windows with something due by this event time are wanted as well.
            now: Those due by this processing time, too.
        """
        windows, panes = [], []
        for number in sorted(numbers):
            bucket = self.buckets.get(number)
            if bucket is None:
                continue
            found = self._table("bucket", number).take(hashes, watermark=watermark, now=now)
            if found is not None:
                windows.append(found)
            if bucket.panes.pages:
                own = hashes
                if hashes is not None and found is not None:
                    own = np.concatenate([hashes, hashes_of([found], self.keys)])
                shown = self._table("panes", number).take(own)
                if shown is not None:
                    panes.append(shown)
        return _joined(windows), _joined(panes)

    def write(
        self,
        numbers: Iterable[int],
        windows: pl.DataFrame | None,
        panes: pl.DataFrame | None,
        *,
        width: int | None,
        due: pl.Expr,
    ) -> None:
        """Put windows into their buckets, and forget buckets that hold nothing any more.

        Args:
            numbers: The buckets that were read.
            windows: What became of the windows that were read, and new ones.
            panes: The panes that may have to be taken back.
            width: Width of a bucket; None for one bucket.
            due: When the watermark has something to do for a window.
        """
        held: dict[int, pl.DataFrame] = {}
        owned: dict[int, pl.DataFrame] = {}
        if windows is not None and windows.height:
            # A closed window has no timer any more.
            timer = pl.when(~pl.col(CLOSED)).then(pl.col(TIMER))
            held = _split(windows.with_columns(due.alias(_DUE), timer.alias(_CLOCK)), WINDOW_END, width)
        if panes is not None and panes.height:
            owned = _split(panes, OWNER_END, width)
        for number in sorted({*numbers, *held, *owned}):
            if number not in self.buckets and number not in held:
                continue
            bucket = self.buckets.setdefault(number, Bucket())
            frame = held.get(number)
            if frame is None:
                self._table("bucket", number).put(None)
            else:
                due_times, timers = frame.get_column(_DUE), frame.get_column(_CLOCK)
                self._table("bucket", number).put(frame.drop(_DUE, _CLOCK), due_times, timers)
            self._table("panes", number).put(owned.get(number))
            if bucket.windows.pages == 0 and bucket.panes.pages == 0:
                del self.buckets[number]
        if not self.buckets:
            self._window_layouts.forget()
        if not any(bucket.panes.pages for bucket in self.buckets.values()):
            self._pane_layouts.forget()

    def table(self, kind: str, number: int) -> KeyedTable:
        """Give the table of a bucket's windows ("bucket") or of the panes they have shown ("panes")."""
        return self._table(kind, number)

    def _table(self, kind: str, number: int) -> KeyedTable:
        if (kind, number) not in self._tables:
            bucket = self.buckets[number]
            index, layouts = (
                (bucket.windows, self._window_layouts) if kind == "bucket" else (bucket.panes, self._pane_layouts)
            )
            self._tables[kind, number] = KeyedTable(self.segments, f"{kind}/{number}", self.keys, layouts, index)
        return self._tables[kind, number]

    def _convert(self, due: dict[int, int | None]) -> None:
        """Read the buckets of the version before, and write them in pages."""
        for number, event in due.items():
            value = self.segments.get(f"bucket/{number}")
            if value is None:
                raise StateError(
                    f"bucket {number} of the saved windows is missing",
                    hint="The checkpoint is incomplete; restore it, or start the job afresh.",
                )
            windows, panes = _unpack(value)
            self.segments.delete(f"bucket/{number}")
            self.buckets[number] = Bucket()
            # Each window is due when the first of its bucket was; then it gets its own time.
            when = pl.repeat(event, windows.height, dtype=pl.Int64, eager=True)
            self._table("bucket", number).put(windows, when, windows.get_column(TIMER))
            if panes is not None:
                self._table("panes", number).put(panes)
        self._tables.clear()


def resplit_ledgers(old: Sequence[Segments], new: Sequence[Segments], keys: tuple[str, ...]) -> None:
    """Spread the books of some key groups over others.

    Args:
        old: The segments of the key groups as they are.
        new: Those that shall be; empty.
        keys: The key columns.
    """
    before = [Ledger.load(segments, keys) for segments in old]
    watermark, fired = min(each.watermark for each in before), min(each.fired for each in before)
    after = [Ledger(segments, keys, watermark, fired) for segments in new]
    for number in sorted({number for each in before for number in each.buckets}):
        for each in after:
            each.buckets[number] = Bucket()
        for kind in ("bucket", "panes"):
            held = [each.table(kind, number) for each in before if number in each.buckets]
            resplit_tables(held, [each.table(kind, number) for each in after], keys)
        for each in after:
            bucket = each.buckets[number]
            if bucket.windows.pages == 0 and bucket.panes.pages == 0:
                del each.buckets[number]
    for each in after:
        each.save()


def bucket_numbers(ends: pl.Series, width: int | None) -> set[int]:
    """Name the buckets that windows with these ends are in."""
    if ends.is_empty():
        return set()
    return {0} if width is None else set((ends // width).unique().to_list())


def _split(frame: pl.DataFrame, by: str, width: int | None) -> dict[int, pl.DataFrame]:
    if width is None:
        return {0: frame}
    numbered = frame.with_columns((pl.col(by) // width).alias("#bucket"))
    parts = numbered.partition_by("#bucket", as_dict=True, include_key=False, maintain_order=True)
    return {int(number): part for (number,), part in parts.items()}


def _joined(frames: list[pl.DataFrame]) -> pl.DataFrame | None:
    if not frames:
        return None
    # A bucket may have been written before the job got another aggregate: then a column is missing in it.
    return frames[0] if len(frames) == 1 else pl.concat(frames, how="diagonal_relaxed")


def _unpack(value: bytes) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """Read a bucket of the version before: its windows, and the panes they have shown."""
    if value[:4] != _MARK:
        raise StateError(
            f"saved windows start with {value[:4]!r}, not with {_MARK!r}",
            hint="They were written by another version of Headrace; start the job afresh or with that version.",
        )
    (length,) = struct.unpack("<Q", value[4:12])
    tail = value[12 + length :]
    return frame_from_bytes(value[12 : 12 + length]), frame_from_bytes(tail) if tail else None
