"""Rows by stretch of time, in chunks: what a window join keeps of one side.

Nothing is looked for before a window closes, and then all of it is read. So a turn appends what came to the stretch it
belongs to, and small chunks are merged when there are many.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import polars as pl

from headrace.engine.keygroups import split_by_group
from headrace.engine.state import frame_from_bytes, frame_to_bytes
from headrace.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.engine.state import Segments

#: More chunks of a stretch than this are merged.
MAX_CHUNKS: Final = 8
#: A chunk is merged with those after it if it is at most so many times as large as all of them.
_RATIO: Final = 2

#: A stretch of time: its start, and when the last window that holds it ends.
Stretch: TypeAlias = tuple[int, int]


@dataclass
class _Chunk:
    number: int
    rows: int


class Chunks:
    """The rows of one side.

    Args:
        segments: Where they are kept.
        name: What the names of the segments begin with.
        saved: What `record` gave; None at the beginning.
    """

    def __init__(self, segments: Segments, name: str, saved: list[Any] | None) -> None:
        self._segments = segments
        self._name = name
        self._next: int = saved[0] if saved else 0
        self._held: dict[Stretch, list[_Chunk]] = {
            (start, end): [_Chunk(*each) for each in chunks] for start, end, chunks in (saved[1] if saved else ())
        }

    @property
    def stretches(self) -> list[Stretch]:
        """Where there are rows."""
        return list(self._held)

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return sum(chunk.rows for chunks in self._held.values() for chunk in chunks)

    def add(self, stretch: Stretch, rows: pl.DataFrame) -> None:
        """Keep rows of a stretch."""
        chunks = self._held.setdefault(stretch, [])
        if len(chunks) >= MAX_CHUNKS:
            first = self._first_to_merge(chunks, rows.height)
            rows = pl.concat([*(self._read(stretch, chunk) for chunk in chunks[first:]), rows], how="vertical_relaxed")
            self._delete(stretch, chunks[first:])
            del chunks[first:]
        self._segments.put(self._segment(stretch, self._next), frame_to_bytes(rows))
        chunks.append(_Chunk(self._next, rows.height))
        self._next += 1

    def of(self, stretches: list[Stretch]) -> pl.DataFrame | None:
        """Read the rows of some stretches; None where there are none."""
        frames = [self._read(stretch, chunk) for stretch in stretches for chunk in self._held.get(stretch, ())]
        return pl.concat(frames, how="vertical_relaxed") if frames else None

    def drop(self, watermark: int) -> None:
        """Forget the stretches whose last window has ended."""
        for stretch in [stretch for stretch in self._held if stretch[1] <= watermark]:
            self._delete(stretch, self._held.pop(stretch))

    def record(self) -> list[Any]:
        """Give what is known of the chunks in a form that fits into a record."""
        held = [
            [start, end, [[chunk.number, chunk.rows] for chunk in chunks]]
            for (start, end), chunks in sorted(self._held.items())
        ]
        return [self._next, held]

    def _first_to_merge(self, chunks: list[_Chunk], coming: int) -> int:
        first = len(chunks) - 1
        total = coming + chunks[first].rows
        while first and chunks[first - 1].rows <= _RATIO * total:
            first -= 1
            total += chunks[first].rows
        return first

    def _read(self, stretch: Stretch, chunk: _Chunk) -> pl.DataFrame:
        value = self._segments.get(self._segment(stretch, chunk.number))
        if value is None:
            raise StateError(
                f"chunk {self._segment(stretch, chunk.number)} of the rows of a join is missing",
                hint="The checkpoint is incomplete; restore it, or start the job afresh.",
            )
        return frame_from_bytes(value)

    def _delete(self, stretch: Stretch, chunks: list[_Chunk]) -> None:
        for chunk in chunks:
            self._segments.delete(self._segment(stretch, chunk.number))

    def _segment(self, stretch: Stretch, number: int) -> str:
        return f"{self._name}/{stretch[0]}/{stretch[1]}/{number}"


def resplit_chunks(
    old: Sequence[Segments], new: Sequence[Segments], name: str, keys: Sequence[str], saved: Sequence[list[Any] | None]
) -> list[list[Any]]:
    """Spread rows over other key groups, each stretch by itself.

    Args:
        old: The segments of the key groups as they are.
        new: Those that shall be.
        name: What the names of the segments begin with.
        keys: The columns that name the key group.
        saved: What `record` gave on the old key groups.

    Returns:
        The records of the new ones.
    """
    before = [Chunks(segments, name, record) for segments, record in zip(old, saved, strict=True)]
    after = [Chunks(segments, name, None) for segments in new]
    for stretch in sorted({stretch for chunks in before for stretch in chunks.stretches}):
        parts = [part for chunks in before if (part := chunks.of([stretch])) is not None]
        for number, rows in split_by_group(pl.concat(parts, how="vertical_relaxed"), keys, len(new)).items():
            after[number].add(stretch, rows)
    return [chunks.record() for chunks in after]
