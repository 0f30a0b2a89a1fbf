"""Back-pressure: how much one batch may read.

After an outage a topic holds more than one batch should read. A batch has a fixed cost of a few tenths of a second, so
large ones are far cheaper by the event; but one that is too large takes memory and keeps everybody waiting. The
`Throttle` therefore lets batches grow, or shrink, until one takes a target time, within a bound that memory sets.
Batches that read everything there is are not touched: a job that keeps up is never slowed down.

Records may be of any length, so a batch is bounded by bytes as well. `RecordSizes` learns from each batch how long the
records of each partition are; the source plans the next one by that, and looks at some records itself where it knows
nothing yet or reads a backlog (`headrace.spark.source.kafka_source`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: What the first batch may read: it also starts Java code and Python workers, so its time says nothing yet.
FIRST = 200_000
_LEAST = 1_000
_MOST = 4_000_000
#: On its way through a batch an event takes a few hundred bytes in several places; see docs/delivery.md.
_BYTES_PER_EVENT = 1_000
_SHARE_OF_MEMORY = 0.25
#: On its way through a batch a value is there in so many places at once: as read, decoded, in the exchange, in Java.
_COPIES = 6
_LEAST_BYTES, _MOST_BYTES = 64 << 20, 1 << 30
#: How much an estimate of the length of records may fall from one batch to the next; it rises at once.
_FALL = 0.5
#: How much the limit may change from one batch to the next.
_STEP = 2.0


def bound_by_memory() -> int:
    """Tell how many events a batch may read on this machine, whatever time it takes."""
    room = psutil.virtual_memory().available * _SHARE_OF_MEMORY
    return max(FIRST // 4, min(_MOST, int(room / _BYTES_PER_EVENT)))


def byte_bound_by_memory() -> int:
    """Tell how many bytes of records a batch may read on this machine."""
    room = psutil.virtual_memory().available * _SHARE_OF_MEMORY
    return max(_LEAST_BYTES, min(_MOST_BYTES, int(room / _COPIES)))


class RecordSizes:
    """How long the records of each partition are, by what batches have read.

    Args:
        known: What is known already, from a run before.

    >>> sizes = RecordSizes()
    >>> sizes.after([{"input.a/0": [10, 5_000]}, {"input.a/1": [1, 70]}])
    {'input.a/0': 500, 'input.a/1': 70}
    >>> sizes.after([{"input.a/0": [10, 1_000]}])
    {'input.a/0': 250, 'input.a/1': 70}
    """

    def __init__(self, known: Mapping[str, int] | None = None) -> None:
        self.known = dict(known or {})

    def after(self, read: Iterable[Mapping[str, list[int]]]) -> dict[str, int]:
        """Take note of a batch.

        Args:
            read: What its tasks read: records and bytes by partition.

        Returns:
            The bytes of a record, by partition.
        """
        for part in read:
            for place, (records, size) in part.items():
                if records:
                    lately = -(-size // records)
                    self.known[place] = max(lately, int(self.known.get(place, 0) * _FALL))
        return dict(self.known)


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
