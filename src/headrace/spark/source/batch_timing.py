"""Punctuality: a batch is there when windows become complete, not half a batch later.

Batches follow each other, each a few tenths of a second long. Windows become complete when the watermark passes their
end, at a moment that a running stream lets one foresee: event time goes as fast as time does, and the watermark is
behind it by what it was behind in the batches before. A batch that is planned a moment too early leaves the windows to
the next one, which can begin only when it is done. So batches are spread such that one begins at that moment, and the
results come up to a whole batch sooner (docs/adr/0021). Nothing but the bounds of batches depends on it: results do
not.

Held back is only who keeps up: while batches are long compared with the windows, or event time does not run like a
clock (a backlog, a replay at another speed, a source that comes in bursts), nobody waits.
"""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import TYPE_CHECKING

from headrace.time.instants import BEGINNING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.stream.pipeline import Pipeline

#: How many batches the forecast looks back on, and the fewest that it needs.
_MEMORY = 12
_LEAST = 4
#: A watermark whose distance from the clock differs by more than this, in microseconds, follows no clock.
_STEADY = 300_000
#: Windows that become complete so soon after others, in microseconds, share their batch.
_TOGETHER = 150_000
#: Of the time from one end of a window to the next, waiting and its batch may take one part in so many.
_SHARE = 6
#: What Spark needs from the end of a batch to the next, in microseconds.
_BETWEEN = 80_000
#: The watermark must be past the end, and clocks have ticks, in microseconds.
_PAST = 2_000


class Punctuality:
    """Foresees when windows will be complete.

    Args:
        pipelines: The jobs' pipelines, by name.
        cadence: Microseconds from the beginning of a batch to that of the next at least.
    """

    def __init__(self, pipelines: Mapping[str, Pipeline], *, cadence: int = 0) -> None:
        self._pipelines = pipelines
        self._cadence = cadence
        self._behind: dict[str, deque[int]] = {name: deque(maxlen=_MEMORY) for name in pipelines}
        self._took: deque[int] = deque(maxlen=_MEMORY)

    def after(self, watermarks: Mapping[str, int], *, now: int, took: int) -> tuple[int | None, int]:
        """Take note of a batch.

        Args:
            watermarks: Each job's watermark after it.
            now: When it was planned, in microseconds since the epoch.
            took: How long it took, in microseconds.

        Returns:
            When windows will be complete next, None where that cannot be told; and the time from one batch to the
            next.
        """
        self._took.append(took)
        step = max(int(median(self._took)) + _BETWEEN, self._cadence)
        found = [
            (due, every)
            for name, watermark in watermarks.items()
            if (foreseen := self._foreseen(name, watermark, now)) is not None
            for due, every in [foreseen]
            if step * _SHARE <= every
        ]
        if not found:
            return None, step
        first = min(due for due, _ in found)
        return max(due for due, _ in found if due - first <= _TOGETHER), step

    def _foreseen(self, name: str, watermark: int, now: int) -> tuple[int, int] | None:
        """Tell when a job's next windows will be complete, and how long after each other such moments are."""
        windows = self._pipelines[name].windows
        if windows is None or watermark <= BEGINNING:
            return None
        behind = self._behind[name]
        behind.append(now - watermark)
        if len(behind) < _LEAST or max(behind) - min(behind) > _STEADY:
            return None
        # The longest of them is left out: one batch that was held up should not keep a dozen waiting.
        return windows.next_end(watermark) + sorted(behind)[-2] + _PAST, windows.every
