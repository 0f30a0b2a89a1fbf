"""Back-pressure: how much one batch may read.

After an outage a topic holds more than one batch should read. A batch has a fixed cost of a few tenths of a second, so
large ones are far cheaper by the event; but one that is too large takes memory and keeps everybody waiting. The
`Throttle` therefore lets batches grow, or shrink, until one takes a target time, within a bound that memory sets.
Batches that read everything there is are not touched: a job that keeps up is never slowed down.
"""

from __future__ import annotations

import psutil

#: What the first batch may read: it also starts Java code and Python workers, so its time says nothing yet.
FIRST = 200_000
_LEAST = 1_000
_MOST = 4_000_000
#: On its way through a batch an event takes a few hundred bytes in several places; see docs/delivery.md.
_BYTES_PER_EVENT = 1_000
_SHARE_OF_MEMORY = 0.25
#: How much the limit may change from one batch to the next.
_STEP = 2.0


def bound_by_memory() -> int:
    """Tell how many events a batch may read on this machine, whatever time it takes."""
    room = psutil.virtual_memory().available * _SHARE_OF_MEMORY
    return max(FIRST // 4, min(_MOST, int(room / _BYTES_PER_EVENT)))


class Throttle:
    """Finds the number of events that a batch handles in a target time.

    Args:
        target: Seconds that a batch may take while there is a backlog.
        most: The most events that a batch may ever read.
        first: The limit to begin with.

    >>> throttle = Throttle(target=2.0, most=1_000_000, first=100_000)
    >>> throttle.after(rows=100_000, backlog=900_000, seconds=9.0)  # the first batch starts everything
    100000
    >>> throttle.after(rows=100_000, backlog=800_000, seconds=0.5)
    200000
    >>> throttle.after(rows=200_000, backlog=600_000, seconds=4.0)
    100000
    >>> throttle.after(rows=700, backlog=0, seconds=0.4)  # it keeps up: nothing to learn
    100000
    """

    def __init__(self, *, target: float, most: int, first: int = FIRST) -> None:
        self._target = target
        self._most = max(1, most)
        self.limit = min(first, self._most)
        self._warm = False

    def after(self, *, rows: int, backlog: int | None, seconds: float) -> int:
        """Take note of a batch.

        Args:
            rows: Events that the batch gave to the jobs; it may have read more, of types that nobody asked for.
            backlog: Events that were left when the batch was planned or the one before it was, None if not known.
            seconds: How long the batch took.

        Returns:
            The limit for the next one.
        """
        warm, self._warm = self._warm, True
        full = rows >= 0.8 * self.limit or (backlog or 0) >= self.limit
        if warm and full and seconds > 0:
            factor = min(_STEP, max(1 / _STEP, self._target / seconds))
            self.limit = max(min(_LEAST, self._most), min(self._most, int(self.limit * factor)))
        return self.limit
