"""Which pages have something due, and when.

Each page has the least due time of its rows, by event time and by processing time. These times are kept in blocks of
1,024 pages. What the owner saves with its index is only the least of each block, so a turn reads the blocks in which
something is due and those of the pages that it writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from headrace.engine.row_pages import NEVER
from headrace.errors import StateError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.engine.state import Segments

#: Pages of a block.
BLOCK = 1_024

Least = list[int]


class DuePages:
    """The due times of the pages of one table.

    Args:
        segments: Where the blocks are kept.
        name: What their names begin with.
        least: The least times of each block, by event time and by processing time, as `least` gave them.
        pages: How many pages there are. One page alone needs no block.
    """

    def __init__(self, segments: Segments, name: str, least: list[Least], pages: int) -> None:
        self.least = least
        self._segments = segments
        self._name = name
        self._pages = pages
        self._blocks: dict[int, NDArray[np.int64]] = {}

    def due(self, watermark: int, now: int) -> NDArray[np.int64]:
        """Name the pages in which something is due."""
        found = [np.zeros(0, dtype=np.int64)]
        for number, (event, clock) in enumerate(self.least):
            if event <= watermark or clock <= now:
                block = self._block(number)
                found.append(number * BLOCK + np.flatnonzero((block[0] <= watermark) | (block[1] <= now)))
        return np.concatenate(found)

    def save(self, pages: NDArray[np.int64], event: NDArray[np.int64], clock: NDArray[np.int64], total: int) -> None:
        """Keep the times of some pages, in ascending order, of a table that now has `total` pages."""
        blocks = -(-total // BLOCK)
        shrunk = set(range(total // BLOCK, len(self.least))) if total < self._pages else set()
        grown = {0} if self._pages <= 1 < total else set()
        numbers = sorted({*(pages // BLOCK).tolist(), *shrunk, *grown})
        lows = np.searchsorted(pages, np.array(numbers, dtype=np.int64) * BLOCK).tolist()
        for number, low, high in zip(numbers, lows, [*lows[1:], len(pages)], strict=True):
            if number >= blocks:
                if self._pages > 1 and min(self.least[number]) < NEVER:
                    self._segments.delete(f"{self._name}/{number}")
                continue
            before = self._block(number)
            block = before.copy()
            here = pages[low:high] - number * BLOCK
            block[0, here] = event[low:high]
            block[1, here] = clock[low:high]
            if total < (number + 1) * BLOCK:
                block[:, total - number * BLOCK :] = NEVER
            least = block.min(axis=1).tolist()
            if number < len(self.least):
                self.least[number] = least
            else:
                self.least.append(least)
            self._write(number, before, block, total)
        del self.least[blocks:]
        self._pages = total

    def _write(self, number: int, before: NDArray[np.int64], block: NDArray[np.int64], total: int) -> None:
        name = f"{self._name}/{number}"
        self._blocks[number] = block
        if total == 1 or self.least[number] == [NEVER, NEVER]:
            if self._pages > 1 and (before < NEVER).any():
                self._segments.delete(name)
        elif self._pages <= 1 or (before != block).any():
            # Most jobs have no timers of processing time: then the second half is left out.
            kept = block[:1] if self.least[number][1] == NEVER else block
            self._segments.put(name, kept.astype("<i8", copy=False).tobytes())

    def _block(self, number: int) -> NDArray[np.int64]:
        if number not in self._blocks:
            block = np.full((2, BLOCK), NEVER, dtype=np.int64)
            known = number < len(self.least) and min(self.least[number]) < NEVER
            if known and self._pages <= 1:
                block[:, 0] = self.least[number]
            elif known:
                value = self._segments.get(f"{self._name}/{number}")
                if value is None:
                    raise StateError(
                        f"block {self._name}/{number} of due times is missing",
                        hint="The checkpoint is incomplete; restore it, or start the job afresh.",
                    )
                kept = np.frombuffer(value, dtype="<i8").reshape(-1, BLOCK)
                block[: len(kept)] = kept
            self._blocks[number] = block
        return self._blocks[number]
