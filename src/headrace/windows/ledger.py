"""The books of a window operator: one row per open window and key, in buckets, with an index of what is due.

A bucket holds the windows that end in one stretch of time, so a turn reads and writes the buckets that its rows fall
into and those whose time has come. The index says for each bucket when that is; it is the only segment that every
turn reads. Windows that merge, or never end, share one bucket.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from headrace.engine.operator import WINDOW_END
from headrace.engine.state import frame_from_bytes, frame_to_bytes, record_from_bytes, record_to_bytes
from headrace.errors import StateError
from headrace.time.instants import BEGINNING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.engine import Segments

#: Columns of the books beside keys, window and partials. A user's column cannot start with "#".
NEW = "#new"
INDEX = "#index"
EARLIEST = "#earliest"
LATEST = "#latest"
CLOSED = "#closed"
TRIGGER = "#trigger"
TIMER = "#timer"
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
}

OWNER_START = "#owner_start"
OWNER_END = "#owner_end"

_VERSION = 1
_INDEX_SEGMENT = "index"
_MARK = b"HW1\n"


@dataclass
class Bucket:
    """What the index says about one bucket: how many windows, and when the next of them is due."""

    rows: int
    event: int | None
    clock: int | None


@dataclass
class Ledger:
    """The index, and the way to the buckets.

    Args:
        segments: Where state is kept.
        watermark: The watermark after the turn before; rows are judged by it.
        fired: How far event-time timers have been run; the same, unless a turn held them back.
        buckets: What is due where.
    """

    segments: Segments
    watermark: int = BEGINNING
    fired: int = BEGINNING
    buckets: dict[int, Bucket] = field(default_factory=dict)

    @classmethod
    def load(cls, segments: Segments) -> Ledger:
        """Read the index; a new operator starts with an empty one."""
        saved = segments.get(_INDEX_SEGMENT)
        if saved is None:
            return cls(segments)
        record = record_from_bytes(saved)
        if record.get("version") != _VERSION:
            raise StateError(
                f"the saved windows have version {record.get('version')}, this is {_VERSION}",
                hint="Start the job afresh, or with the version of Headrace that wrote them.",
            )
        buckets = {int(number): Bucket(*entry) for number, entry in record["buckets"].items()}
        return cls(segments, record["watermark"], record["fired"], buckets)

    def save(self) -> None:
        """Write the index."""
        record: dict[str, Any] = {
            "version": _VERSION,
            "watermark": self.watermark,
            "fired": self.fired,
            "buckets": {str(number): [b.rows, b.event, b.clock] for number, b in self.buckets.items()},
        }
        self.segments.put(_INDEX_SEGMENT, record_to_bytes(record))

    def due(self, watermark: int, now: int) -> set[int]:
        """Name the buckets in which something is due by the watermark or by the clock."""
        return {
            number
            for number, bucket in self.buckets.items()
            if (bucket.event is not None and bucket.event <= watermark)
            or (bucket.clock is not None and bucket.clock <= now)
        }

    def read(self, numbers: Iterable[int]) -> tuple[pl.DataFrame | None, pl.DataFrame | None]:
        """Read buckets: their windows, and the panes that may have to be taken back."""
        windows, panes = [], []
        for number in sorted(numbers):
            if number in self.buckets:
                value = self.segments.get(f"bucket/{number}")
                if value is None:
                    raise StateError(
                        f"bucket {number} of the saved windows is missing",
                        hint="The checkpoint is incomplete; restore it, or start the job afresh.",
                    )
                first, second = _unpack(value)
                windows.append(first)
                if second is not None:
                    panes.append(second)
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
        """Write buckets, and delete those that hold nothing any more.

        Args:
            numbers: The buckets that were read.
            windows: All windows of those buckets, and new ones.
            panes: The panes that may have to be taken back.
            width: Width of a bucket; None for one bucket.
            due: When the watermark has something to do for a window.
        """
        held: dict[int, pl.DataFrame] = {}
        owned: dict[int, pl.DataFrame] = {}
        if windows is not None and windows.height:
            held = _split(windows.with_columns(due.alias("#due")), WINDOW_END, width)
        if panes is not None and panes.height:
            owned = _split(panes, OWNER_END, width)
        for number, frame in held.items():
            self.buckets[number] = Bucket(frame.height, _least(frame, "#due"), _least(frame, TIMER))
            self.segments.put(f"bucket/{number}", _pack(frame.drop("#due"), owned.get(number)))
        for number in set(numbers) - set(held):
            if self.buckets.pop(number, None) is not None:
                self.segments.delete(f"bucket/{number}")


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


def _least(frame: pl.DataFrame, column: str) -> int | None:
    least = frame.get_column(column).min()
    return None if least is None else int(least)  # type: ignore[arg-type]


def _joined(frames: list[pl.DataFrame]) -> pl.DataFrame | None:
    if not frames:
        return None
    # A bucket may have been written before the job got another aggregate: then a column is missing in it.
    return frames[0] if len(frames) == 1 else pl.concat(frames, how="diagonal_relaxed")


def _pack(first: pl.DataFrame, second: pl.DataFrame | None) -> bytes:
    head = frame_to_bytes(first)
    tail = b"" if second is None else frame_to_bytes(second)
    return _MARK + struct.pack("<Q", len(head)) + head + tail


def _unpack(value: bytes) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    if value[:4] != _MARK:
        raise StateError(
            f"saved windows start with {value[:4]!r}, not with {_MARK!r}",
            hint="They were written by another version of Headrace; start the job afresh or with that version.",
        )
    (length,) = struct.unpack("<Q", value[4:12])
    tail = value[12 + length :]
    return frame_from_bytes(value[12 : 12 + length]), frame_from_bytes(tail) if tail else None
