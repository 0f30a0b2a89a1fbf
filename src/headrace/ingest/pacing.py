"""Pacing: messages that leave when they are due.

The gaps between arrivals are kept, divided by the speed. Pacing follows a schedule, not a stopwatch: if the machine is
slow for a while, messages fall behind and catch up; time is not stretched. With an infinite speed nobody waits.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from headrace.ingest.message import Batch

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Iterator

    from headrace.ingest.message import RawMessage

#: The longest wait between two looks at the clock, in seconds.
_LOOK = 0.25


class Pacer:
    """Hands over messages in batches, each when its first message is due.

    Args:
        speed: Seconds of arrivals per second; `math.inf` for as fast as can be.
        batch_size: How many messages are handed over at once at most.
        clock: Seconds that never go back.
    """

    def __init__(
        self, *, speed: float = 1.0, batch_size: int = 5000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        #: Seconds by which the messages are behind their schedule.
        self.behind = 0.0
        self._speed, self._batch_size, self._clock = speed, batch_size, clock

    def batches(self, messages: Iterable[RawMessage], stop: threading.Event) -> Iterator[Batch]:
        """Hand over what is due.

        Args:
            messages: In the order of their arrivals, which say when they are due.
            stop: Ends it.
        """
        if math.isinf(self._speed):
            yield from self._at_once(messages, stop)
            return
        batch: list[RawMessage] = []
        first: int | None = None
        began = now = 0.0
        for message in messages:
            if first is None:
                first, began = message.arrival, self._clock()
                now = began
            due = began + (message.arrival - first) / 1e6 / self._speed
            if due > now:
                now = self._clock()
            if due > now:
                if batch:
                    yield Batch(batch)
                    batch = []
                yield from self._wait(due, stop)
                now = self._clock()
            self.behind = max(0.0, now - due)
            batch.append(message)
            if len(batch) >= self._batch_size:
                yield Batch(batch)
                batch = []
            if stop.is_set():
                break
        if batch:
            yield Batch(batch)

    def _at_once(self, messages: Iterable[RawMessage], stop: threading.Event) -> Iterator[Batch]:
        batch: list[RawMessage] = []
        size = self._batch_size
        for message in messages:
            batch.append(message)
            if len(batch) >= size:
                yield Batch(batch)
                batch = []
                if stop.is_set():
                    return
        if batch:
            yield Batch(batch)

    def _wait(self, due: float, stop: threading.Event) -> Iterator[Batch]:
        """Wait until a moment; the runner hears of us now and then."""
        while not stop.is_set():
            ahead = due - self._clock()
            if ahead <= 0:
                return
            stop.wait(min(ahead, _LOOK))
            if ahead > _LOOK:
                yield Batch(())
