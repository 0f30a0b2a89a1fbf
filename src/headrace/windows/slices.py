"""Slices: what aligned windows keep, in chunks, and blocks of slices for windows that span many.

A slice is a list of chunks, so that a turn appends what it brought and leaves the rest alone. When there are many, the
newest are merged, and larger ones with them only when as much has come since: what is rewritten follows what comes in,
not what is kept. A slice that further windows will read is merged into one chunk when the first one has read it.

A window of five minutes every five seconds is the merge of sixty slices; to merge all sixty each time would make a
firing cost sixty times what came in. So slices are also kept merged in blocks of 2, 4, 8, ...: a window is then at most
twice as many blocks as its number of slices has binary digits. A block is made when a window first needs it and serves
all windows that follow; a row that comes for one of its slices later is added to both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from headrace.engine.state import frame_from_bytes, frame_to_bytes, record_from_bytes, record_to_bytes
from headrace.errors import StateError
from headrace.time.instants import BEGINNING

if TYPE_CHECKING:
    from headrace.engine import Segments
    from headrace.windows.assigners import Aligned

_INDEX = "index"

#: Some chunks of a slice or block are merged into one when there are more than this.
MAX_CHUNKS = 8
#: A chunk is merged with those after it if it is at most so many times as large as all of them.
_RATIO = 2
#: Windows of fewer slices are merged slice by slice.
_SLICES_FOR_BLOCKS = 8

Merge = Callable[[list[pl.DataFrame]], pl.DataFrame]
Place = tuple[int, int]
"""A level (0 for slices, n for blocks of 2^n slices) and the time at which it starts."""


@dataclass
class Index:
    """What is known about the state without reading it: the chunks of each slice and block, by number.

    Args:
        watermark: Of the turn before.
        next_chunk: A number that no chunk has had.
        slices: The chunks of slices.
        blocks: The chunks of blocks.
        rows: How many rows a chunk has.
    """

    watermark: int
    next_chunk: int
    slices: dict[int, list[int]]
    blocks: dict[Place, list[int]]
    rows: dict[int, int]

    @classmethod
    def load(cls, state: Segments) -> Index:
        """Read it, or begin."""
        saved = state.get(_INDEX)
        if saved is None:
            return cls(watermark=BEGINNING, next_chunk=0, slices={}, blocks={}, rows={})
        record: dict[str, Any] = record_from_bytes(saved)
        slices = {int(start): chunks for start, chunks in record["slices"].items()}
        blocks = {(level, start): chunks for level, start, chunks in record.get("blocks", ())}
        rows = {int(chunk): rows for chunk, rows in record.get("rows", {}).items()}
        return cls(record["watermark"], record["next_chunk"], slices, blocks, rows)

    def save(self, state: Segments) -> None:
        """Keep it."""
        slices = {str(start): chunks for start, chunks in self.slices.items()}
        blocks = [[*place, chunks] for place, chunks in self.blocks.items()]
        record = {
            "watermark": self.watermark,
            "next_chunk": self.next_chunk,
            "slices": slices,
            "blocks": blocks,
            "rows": {str(chunk): rows for chunk, rows in self.rows.items()},
        }
        state.put(_INDEX, record_to_bytes(record))

    def least_keys(self) -> int:
        """Count the keys of each slice, as far as that is known without reading: those of its largest chunk.

        Other chunks of the slice may have further keys, until they are merged with it.
        """
        return sum(max((self.rows.get(chunk, 0) for chunk in chunks), default=0) for chunks in self.slices.values())

    def chunks(self, place: Place) -> list[int]:
        """Give the chunks of a slice or block, to be changed."""
        level, start = place
        return self.slices.setdefault(start, []) if level == 0 else self.blocks.setdefault(place, [])


class Slices:
    """The slices of one key group during one turn.

    Args:
        state: Where they are kept.
        assigner: The windows.
        merge: Makes one frame of partials of several.
    """

    def __init__(self, state: Segments, assigner: Aligned, merge: Merge) -> None:
        self.index = Index.load(state)
        self._state = state
        self._assigner = assigner
        self._merge = merge
        self._read: dict[Place, pl.DataFrame] = {}
        many = assigner.size // assigner.slice
        self._top = many.bit_length() - 1 if many >= _SLICES_FOR_BLOCKS else 0

    def add(self, start: int, content: pl.DataFrame) -> None:
        """Add partials to a slice, and to the blocks that hold it."""
        self._append((0, start), content)
        for level in range(1, self._top + 1):
            place = (level, self._aligned(level, start))
            if place in self.index.blocks:
                self._append(place, content)

    def chunks_of(self, start: int) -> list[pl.DataFrame]:
        """Read the chunks of a slice."""
        return [self._chunk((0, start), chunk) for chunk in self.index.slices.get(start, ())]

    def window(self, end: int) -> pl.DataFrame | None:
        """Merge what the window that ends there holds; None for nothing."""
        parts = [self._content(place) for place in self._cover(end - self._assigner.size, end)]
        if len(parts) <= 1:
            return parts[0] if parts else None
        return self._merge(parts)

    def forget(self) -> None:
        """Drop what no window needs any more: a block as soon as its first slice is gone."""
        index = self.index
        for start in [start for start in index.slices if self.last_end(start) <= index.watermark]:
            self._drop((0, start))
        for place in [place for place in index.blocks if self.last_end(place[1]) <= index.watermark]:
            self._drop(place)

    def save(self) -> None:
        """Keep the index."""
        self.index.save(self._state)

    def last_end(self, start: int) -> int:
        """Tell when the last window that holds a slice ends."""
        size, every, offset = self._assigner.size, self._assigner.every, self._assigner.offset
        return start - (start - offset) % every + size

    def _cover(self, start: int, end: int) -> list[Place]:
        """Cut a window into the largest blocks that lie in it; empty ones are left out, a slice alone needs none."""
        width = self._assigner.slice
        found: list[Place] = []
        at = start
        while at < end:
            level = next(
                level
                for level in range(self._top, -1, -1)
                if self._aligned(level, at) == at and at + (width << level) <= end
            )
            held = [each for each in range(at, at + (width << level), width) if each in self.index.slices]
            if len(held) > 1:
                found.append((level, at))
            else:
                found += [(0, each) for each in held]
            at += width << level
        return found

    def _aligned(self, level: int, start: int) -> int:
        return start - (start - self._assigner.offset) % (self._assigner.slice << level)

    def _content(self, place: Place) -> pl.DataFrame:
        if place not in self._read:
            level, start = place
            if level and place not in self.index.blocks:
                half = self._assigner.slice << (level - 1)
                parts = [self._content(part) for at in (start, start + half) for part in self._cover(at, at + half)]
                self._append(place, self._merge(parts) if len(parts) > 1 else parts[0])
            chunks = [self._chunk(place, chunk) for chunk in self.index.chunks(place)]
            # Tasks fold what they read, each for itself, so one chunk of a slice may hold a key twice.
            merged = chunks[0] if level and len(chunks) == 1 else self._merge(chunks)
            if len(chunks) > 1 and self._assigner.size > self._assigner.every:
                self._drop(place)
                self._put(place, merged)
            self._read[place] = merged
        return self._read[place]

    def _append(self, place: Place, content: pl.DataFrame) -> None:
        self._read.pop(place, None)
        chunks = self.index.chunks(place)
        if len(chunks) >= MAX_CHUNKS:
            first = self._first_to_merge(chunks, content.height)
            newest = chunks[first:]
            content = self._merge([*(self._chunk(place, chunk) for chunk in newest), content])
            self._delete(place, newest)
            del chunks[first:]
        self._put(place, content)

    def _first_to_merge(self, chunks: list[int], coming: int) -> int:
        """Tell from which chunk on to merge, so that a large one is not rewritten for the sake of a few rows."""
        first, total = len(chunks) - 1, coming
        total += self.index.rows.get(chunks[first], 0)
        while first and self.index.rows.get(chunks[first - 1], 0) <= _RATIO * total:
            first -= 1
            total += self.index.rows.get(chunks[first], 0)
        return first

    def _put(self, place: Place, content: pl.DataFrame) -> None:
        chunk = self.index.next_chunk
        self._state.put(_name(place, chunk), frame_to_bytes(content))
        self.index.chunks(place).append(chunk)
        self.index.rows[chunk] = content.height
        self.index.next_chunk += 1

    def _drop(self, place: Place) -> None:
        self._read.pop(place, None)
        level, start = place
        self._delete(place, self.index.slices.pop(start) if level == 0 else self.index.blocks.pop(place))

    def _delete(self, place: Place, chunks: list[int]) -> None:
        for chunk in chunks:
            self._state.delete(_name(place, chunk))
            self.index.rows.pop(chunk, None)

    def _chunk(self, place: Place, chunk: int) -> pl.DataFrame:
        value = self._state.get(_name(place, chunk))
        if value is None:
            raise StateError(
                f"chunk {_name(place, chunk)} of the saved slices is missing",
                hint="The checkpoint is incomplete; restore it, or start the job afresh.",
            )
        return frame_from_bytes(value)


def _name(place: Place, chunk: int) -> str:
    level, start = place
    return f"slice/{start}/{chunk}" if level == 0 else f"block/{level}/{start}/{chunk}"
