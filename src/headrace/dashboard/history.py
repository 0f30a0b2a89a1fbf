"""The last hour of every key of a job, bounded: rings of columns, not lists of objects.

A point is a key's number, an event time, a window end and the shown numbers: 20 bytes and 8 per number. Points are
appended for a whole batch at once; the history of one key is found by comparing one integer column, which takes a
millisecond for a million points. When the ring is full, the oldest points give way, so an hour is a promise only up to
`most` points.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

HOUR_MS = 3_600_000
#: Points kept per job, at most: an hour of 1,400 cells at 5 s.
MOST_POINTS = 1_000_000
_FIRST_SIZE = 4096
_NO_WINDOW = np.iinfo(np.int64).min


class History:
    """What the keys of one job were worth, for a while.

    Args:
        columns: The number columns that are kept.
        most: How many points at most.
        span: How many milliseconds of event time at most.

    >>> history = History(["vehicles"])
    >>> history.add(["a", "b"], event_time=[5, 5], window_end=[6, None], values={"vehicles": [3, None]})
    >>> history.of("a")
    [{'event_time': 5, 'window_end': 6, 'values': {'vehicles': 3.0}}]
    """

    def __init__(self, columns: Sequence[str], *, most: int = MOST_POINTS, span: int = HOUR_MS) -> None:
        self._columns = tuple(columns)
        self._most = most
        self._span = span
        self._numbers: dict[str, int] = {}
        self._next_number = 0
        self._resize(min(_FIRST_SIZE, most))
        self._start = 0
        self._count = 0
        self._newest = _NO_WINDOW
        self._swept = _NO_WINDOW

    def __len__(self) -> int:
        return self._count

    @property
    def bytes(self) -> int:
        """How much memory the columns take."""
        return self._key.nbytes + self._time.nbytes + self._end.nbytes + self._values.nbytes

    def add(
        self,
        keys: Sequence[str],
        *,
        event_time: Sequence[int],
        window_end: Sequence[int | None],
        values: Mapping[str, Sequence[Any]],
    ) -> None:
        """Append points; those of one key in the order in which they count."""
        keys, event_time, window_end = keys[-self._most :], event_time[-self._most :], window_end[-self._most :]
        count = len(keys)
        if not count or not self._columns:
            return
        self._newest = max(self._newest, *event_time)
        self._make_room(count)
        places = (self._start + self._count + np.arange(count)) % len(self._key)
        self._key[places] = [self._number(key) for key in keys]
        self._time[places] = event_time
        self._end[places] = [_NO_WINDOW if end is None else end for end in window_end]
        for row, name in enumerate(self._columns):
            column = values.get(name, ())[-count:]
            self._values[row, places] = [_real(value) for value in column] if column else np.nan
        self._count += count
        self._forget_numbers()

    def of(self, key: str) -> list[dict[str, Any]]:
        """The points of a key, oldest first; the last one wins where a window was revised."""
        number = self._numbers.get(key)
        if number is None or not self._count:
            return []
        order = self._order()
        mine = order[self._key[order] == number]
        newest = int(self._time[mine].max(initial=np.iinfo(np.int64).min))
        points: dict[int, dict[str, Any]] = {}
        for place in mine[self._time[mine] > newest - self._span]:
            time, end = int(self._time[place]), int(self._end[place])
            values = {
                name: None if np.isnan(value) else float(value)
                for name, value in zip(self._columns, self._values[:, place], strict=True)
            }
            points[time] = {
                "event_time": time,
                "window_end": None if end == _NO_WINDOW else end,
                "values": values,
            }
        return [points[time] for time in sorted(points)]

    # ---------------------------------------------------------------- the ring

    def _order(self) -> NDArray[np.int64]:
        return np.asarray((self._start + np.arange(self._count)) % len(self._key), dtype=np.int64)

    def _resize(self, size: int) -> None:
        self._key = np.zeros(size, dtype=np.int32)
        self._time = np.zeros(size, dtype=np.int64)
        self._end = np.zeros(size, dtype=np.int64)
        self._values = np.full((len(self._columns), size), np.nan)

    def _make_room(self, count: int) -> None:
        self._drop_old()
        needed = self._count + count
        if needed > len(self._key) and len(self._key) < self._most:
            order = self._order()
            kept = (self._key[order], self._time[order], self._end[order], self._values[:, order])
            self._resize(min(self._most, max(needed, 2 * len(self._key))))
            held = slice(0, self._count)
            self._key[held], self._time[held], self._end[held], self._values[:, held] = kept
            self._start = 0
        surplus = self._count + count - len(self._key)
        if surplus > 0:
            self._start = (self._start + surplus) % len(self._key)
            self._count -= surplus

    def _drop_old(self) -> None:
        """Let go of what is older than the span, now and then; points come nearly in the order of their time."""
        if not self._count or self._newest - self._swept < self._span // 60:
            return
        self._swept = self._newest
        old = self._time[self._order()] <= self._newest - self._span
        fresh = int(np.argmin(old)) if not old.all() else self._count
        self._start = (self._start + fresh) % len(self._key)
        self._count -= fresh

    # ---------------------------------------------------------------- numbers for keys

    def _number(self, key: str) -> int:
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = self._next_number
            self._next_number += 1
        return number

    def _forget_numbers(self) -> None:
        """Keys without points must not gather for ever."""
        if len(self._numbers) <= 2 * self._count + 1024:
            return
        live = np.unique(self._key[self._order()])
        renumbered = {int(number): position for position, number in enumerate(live)}
        self._numbers = {key: renumbered[number] for key, number in self._numbers.items() if number in renumbered}
        order = self._order()
        self._key[order] = np.searchsorted(live, self._key[order])
        self._next_number = len(renumbered)


def _real(value: object) -> float:
    # A whole number beyond 2^53 is text by now; as a curve its first 15 digits are enough.
    return float(value) if isinstance(value, int | float | str) else float("nan")
