"""Exact repeats: the same bytes on the same topic, again.

Sources that deliver at least once send some messages twice: after a lost acknowledgement, after a restart. `Duplicates`
remembers what came within a time of arrival, and no more than a number of messages, so that its memory is bounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import ConfigError
from headrace.time.duration import micros

if TYPE_CHECKING:
    from datetime import timedelta

    from headrace.ingest.message import RawMessage


class Duplicates:
    """Tells which messages were there before.

    Args:
        within: For how long, by arrival time, a message is remembered.
        capacity: How many are remembered at most; the oldest are forgotten first.

    >>> from headrace.ingest.message import RawMessage
    >>> duplicates = Duplicates(within="1s")
    >>> [duplicates.repeats(RawMessage("/a", b"x", at)) for at in (0, 999_999, 2_500_000)]
    [False, True, False]
    """

    def __init__(self, *, within: str | timedelta | int, capacity: int = 1_000_000) -> None:
        self._within = micros(within)
        if self._within <= 0 or capacity < 1:
            raise ConfigError(f"within is {within!r}, capacity {capacity}", hint="Both must be above 0.")
        self._capacity = capacity
        # Two 64-bit hashes, seeded anew in every process: nobody can aim for a collision.
        self._seen: dict[tuple[int, int, int], int] = {}

    def repeats(self, message: RawMessage) -> bool:
        """Whether a message was there before; it is remembered from now on."""
        key = (hash(message.topic), hash(message.payload), message.copy)
        before = self._seen.pop(key, None)
        self._seen[key] = message.arrival
        if len(self._seen) > self._capacity:
            del self._seen[next(iter(self._seen))]
        self._forget(message.arrival - self._within)
        return before is not None and message.arrival - before <= self._within

    def _forget(self, until: int) -> None:
        # Two at a time keep up with one that comes in.
        for _ in range(2):
            oldest = next(iter(self._seen))
            if self._seen[oldest] >= until:
                return
            del self._seen[oldest]

    def __len__(self) -> int:
        return len(self._seen)
