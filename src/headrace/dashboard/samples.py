"""Rates and percentiles of the last little while, in bounded memory."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class Rate:
    """Things per second, over the last few seconds.

    >>> rate = Rate(seconds=10)
    >>> for second in range(1, 21):
    ...     rate.add(50, now=float(second))
    >>> rate.per_second(now=20.0), rate.per_second(now=60.0)
    (50.0, 0.0)
    """

    def __init__(self, seconds: float = 10.0) -> None:
        self._seconds = seconds
        self._began: float | None = None
        self._counts: deque[tuple[int, int]] = deque()
        self.total = 0

    def add(self, count: int, *, now: float) -> None:
        """Count things that happened now."""
        if self._began is None:
            self._began = now
        self.total += count
        # One entry per half second at most, however often this is called.
        slot = int(now * 2)
        if self._counts and self._counts[-1][0] == slot:
            self._counts[-1] = (slot, self._counts[-1][1] + count)
        else:
            self._counts.append((slot, count))
        self._forget(now)

    def per_second(self, *, now: float) -> float:
        """How many there were in a second, on average; over a shorter time in the beginning."""
        if self._began is None:
            return 0.0
        self._forget(now)
        span = min(self._seconds, max(now - self._began, 1.0))
        return sum(count for _, count in self._counts) / span

    def _forget(self, now: float) -> None:
        while self._counts and self._counts[0][0] <= (now - self._seconds) * 2:
            self._counts.popleft()


class Samples:
    """The newest values of something, for percentiles: those of the last minute, and not more than `most`.

    >>> samples = Samples()
    >>> samples.add([10.0, 20.0, 30.0, 40.0], now=1.0)
    >>> samples.quantiles((0.5, 0.99), now=2.0), samples.quantiles((0.5,), now=99.0)
    ([20.0, 40.0], None)
    """

    def __init__(self, *, seconds: float = 60.0, most: int = 5_000) -> None:
        self._seconds = seconds
        self._most = most
        self._parts: deque[tuple[float, NDArray[np.float64]]] = deque()
        self._held = 0

    def add(self, values: Sequence[float] | NDArray[np.float64], *, now: float) -> None:
        """Take values that were measured now."""
        part = np.asarray(values, dtype=np.float64)
        part = part[np.isfinite(part)]
        if len(part) > self._most // 10:
            # A sample of a large part is as good, and leaves room for the others.
            part = part[:: len(part) // (self._most // 10) + 1]
        if len(part):
            self._parts.append((now, part))
            self._held += len(part)
        self._forget(now)

    def count(self, *, now: float) -> int:
        """How many values there are."""
        self._forget(now)
        return self._held

    def quantiles(self, wanted: Sequence[float], *, now: float) -> list[float] | None:
        """The quantiles, each a value that was measured; None without any."""
        self._forget(now)
        if not self._held:
            return None
        ordered = np.sort(np.concatenate([part for _, part in self._parts]))
        return [float(ordered[max(0, int(np.ceil(q * len(ordered))) - 1)]) for q in wanted]

    def _forget(self, now: float) -> None:
        while self._parts and (self._held > self._most or self._parts[0][0] <= now - self._seconds):
            self._held -= len(self._parts.popleft()[1])
