"""Pacing: messages that leave when they are due.

The gaps between arrivals are kept, divided by the speed. Pacing follows a schedule, not a stopwatch: if the machine is
slow for a while, messages fall behind and catch up; time is not stretched. With an infinite speed nobody waits.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from headrace.ingest.message import Batch
from headrace.ingest.messages import Messages

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Iterator

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

    def batches(self, blocks: Iterable[Messages], stop: threading.Event) -> Iterator[Batch]:
        """Hand over what is due.

        Args:
            blocks: Messages in the order of their arrivals, which say when they are due.
            stop: Ends it.
        """
        batch: list[Messages] = []
        room = self._batch_size
        first: int | None = None
        began = now = 0.0
        for block in blocks:
            if first is None:
                first, began = int(block.arrivals[0]), self._clock()
                now = began
            due = began + (block.arrivals - first) / 1e6 / self._speed
            start = 0
            while start < len(block):
                if due[start] > now:
                    now = self._clock()
                if due[start] > now:
                    if batch:
                        yield Batch(Messages.joined(batch))
                        batch, room = [], self._batch_size
                    yield from self._wait(float(due[start]), stop)
                    now = self._clock()
                if stop.is_set():
                    break
                later = np.flatnonzero(due[start + 1 : start + room] > now)
                end = start + 1 + int(later[0]) if later.size else min(start + room, len(block))
                self.behind = max(0.0, now - float(due[end - 1]))
                batch.append(block[start:end])
                room -= end - start
                start = end
                if not room:
                    yield Batch(Messages.joined(batch))
                    batch, room = [], self._batch_size
            if stop.is_set():
                break
        if batch:
            yield Batch(Messages.joined(batch))

    def _wait(self, due: float, stop: threading.Event) -> Iterator[Batch]:
        """Wait until a moment; the runner hears of us now and then."""
        while not stop.is_set():
            ahead = due - self._clock()
            if ahead <= 0:
                return
            stop.wait(min(ahead, _LOOK))
            if ahead > _LOOK:
                yield Batch(())
