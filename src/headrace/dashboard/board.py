"""What is shown of one job now, and what changed since any version of it.

The policies:

- A result replaces what is shown for its key only if its event time is the same or newer.
- A value expires: its time to live after the end of its window, or after its event time where there is no window.
- A retraction removes the value of the window it takes back; one of an older window changes nothing.

**The job's own clock.** "Expired" is decided by the job's time, the newest end of a window (or event time) among its
results, not by the clock of this machine. So a value leaves when the next window is shown and it is not in it, nothing
flickers while a batch is late, and a recording of 2020 is shown like a live stream. Two exceptions. A new time counts
only a moment (`SETTLING`) after it was first seen, because the results of one window arrive in pieces. And when a job
falls silent for longer than `PATIENCE`, the wall clock moves on in its place, so that the last values do not stay for
ever.

**Versions.** Every change of what is shown has a number. The first is the time of the start, in milliseconds, so that
numbers of an earlier process are always smaller. An entry knows the version it was changed in, and the board keeps its
entries in that order: the difference to a recent version costs what changed, not what is shown.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.dashboard.history import History
from headrace.time.duration import MILLISECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from headrace.dashboard.cleaning import Rows
    from headrace.dashboard.declaration import Declaration

#: Seconds until a new event time counts: the results of one window come in several fetches from several partitions.
SETTLING = 1.0
#: Seconds for which a job may be silent before the wall clock takes the place of its own.
PATIENCE = 5.0
#: Entries shown of one job, at most; the ones that were changed longest ago give way.
MOST_ENTRIES = 100_000
#: Removed keys that are remembered for those who come back.
MOST_REMOVED = 100_000
#: Milliseconds that a result may be ahead of both this machine's clock and the job's: beyond, it cannot be true.
MOST_AHEAD = 3_600_000
#: Milliseconds that a result may be ahead of both clocks, or of the job's own clock, without being confirmed: so many
#: results in a row have to agree before it counts. One wrong time must not expire everything that is shown.
DOUBTFUL_AHEAD = 300_000
DOUBTFUL_JUMP = 3_600_000
CONFIRMATIONS = 3


@dataclass(slots=True)
class Entry:
    """What is shown for one key."""

    version: int
    times: tuple[int | None, int | None, int, int]  # window start, window end, event time, expires at
    published: int
    places: tuple[Any, ...]
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Overview:
    """A board in figures."""

    entries: int
    version: int
    newest: int | None
    heard: float | None
    counts: dict[str, int]
    history_points: int
    history_bytes: int


@dataclass(slots=True)
class _Clock:
    """A job's own time, in milliseconds; `heard` is the reading of the monotonic clock when it last moved on."""

    settled: int | None = None
    newest: int | None = None
    heard: float = 0.0
    waiting: deque[tuple[float, int]] = field(default_factory=deque)

    def hear(self, instant: int, now: float) -> None:
        if self.newest is None or instant > self.newest:
            self.newest, self.heard = instant, now
            # Of the times that come together only the newest will ever count; each of a backlog's results may be newer.
            if self.waiting and self.waiting[-1][0] == now + SETTLING:
                self.waiting.pop()
            self.waiting.append((now + SETTLING, instant))

    def read(self, now: float) -> int | None:
        while self.waiting and self.waiting[0][0] <= now:
            self.settled = self.waiting.popleft()[1]
        if self.settled is None or self.newest is None:
            return None
        silent = now - self.heard - PATIENCE
        return self.settled if silent <= 0 else max(self.settled, self.newest + int(silent * 1000))


class Board:
    """What is shown of a job. Safe to use from several threads.

    Args:
        declaration: The job.
        most: Entries, at most.
        wall: The clock of this machine in milliseconds, for tests.
    """

    def __init__(
        self,
        declaration: Declaration,
        *,
        most: int = MOST_ENTRIES,
        wall: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.declaration = declaration
        self._most = most
        self._wall = wall
        self._lives = declaration.time_to_live // MILLISECOND
        self._place_names = _place_names(declaration)
        self._value_names = tuple(column.name for column in declaration.value_columns)
        self._entries: dict[str, Entry] = {}
        self._removed: dict[str, int] = {}
        self._version = wall()
        self._oldest_known = self._version
        self._clock = _Clock()
        self._first_expiry: int | None = None
        self._doubtful = 0
        self._counts: Counter[str] = Counter()
        self._history = History(() if declaration.display.each else declaration.number_columns)
        self._lock = threading.Lock()

    @property
    def version(self) -> int:
        """The number of the newest change."""
        return self._version

    # ---------------------------------------------------------------- results come in

    def apply(self, rows: Rows, *, now: float) -> None:
        """Take results in, in the order in which they were written.

        Args:
            rows: What came.
            now: The reading of the monotonic clock.
        """
        with self._lock:
            self._counts["unplaced"] += rows.unplaced
            self._counts["markers"] += rows.markers
            clock = self._clock.read(now)
            version = self._version + 1
            changed = False
            places = [rows.places[name] for name in self._place_names]
            values = [rows.values[name] for name in self._value_names]
            kept: list[int] = []
            for row, key in enumerate(rows.key):
                if self._is_absurd(rows.event_time[row], rows.window_end[row], now):
                    self._counts["absurd"] += 1
                    continue
                if not rows.retraction[row]:
                    kept.append(row)
                changed |= self._take(rows, row, key, places, values, clock, version, now)
            self._keep_history(rows, kept)
            if changed:
                self._version = version
                self._keep_bounds()

    def _take(
        self,
        rows: Rows,
        row: int,
        key: str,
        places: list[list[Any]],
        values: list[list[Any]],
        clock: int | None,
        version: int,
        now: float,
    ) -> bool:
        event_time, window_end = rows.event_time[row], rows.window_end[row]
        instant = event_time if window_end is None else window_end
        self._clock.hear(instant, now)
        shown = self._entries.get(key)
        if rows.retraction[row]:
            self._counts["retractions"] += 1
            if shown is None or shown.times[:2] != (rows.window_start[row], window_end):
                return False
            self._remove(key, version)
            return True
        if shown is not None and event_time < shown.times[2]:
            self._counts["older"] += 1
            return False
        expires = instant + self._lives
        if clock is not None and expires <= clock:
            self._counts["expired_on_arrival"] += 1
            return False
        self._counts["shown"] += 1
        # Out and in again: the entries stay in the order of their versions.
        self._entries.pop(key, None)
        self._removed.pop(key, None)
        self._entries[key] = Entry(
            version,
            (rows.window_start[row], window_end, event_time, expires),
            rows.published[row],
            tuple(column[row] for column in places),
            tuple(column[row] for column in values),
        )
        if self._first_expiry is None or expires < self._first_expiry:
            self._first_expiry = expires
        return True

    def _is_absurd(self, event_time: int | None, window_end: int | None, now: float) -> bool:
        """Whether the time of a result cannot be true, or is not confirmed yet by the results around it."""
        if event_time is None:
            return True
        instant = event_time if window_end is None else window_end
        newest = self._clock.newest
        ahead = instant - max(self._wall(), newest or 0)
        if ahead > MOST_AHEAD:
            return True
        # A job that was silent goes on where the clock is by now.
        silent = 0 if newest is None else int(1000 * max(0.0, now - self._clock.heard))
        jumps = newest is not None and instant > newest + silent + DOUBTFUL_JUMP
        if ahead <= DOUBTFUL_AHEAD and not jumps:
            self._doubtful = 0
            return False
        self._doubtful += 1
        return self._doubtful < CONFIRMATIONS

    def hear(self, instant: int, *, now: float) -> None:
        """Let the job's clock know that its time has come so far without a result: its watermark, in milliseconds."""
        with self._lock:
            if instant <= max(self._wall(), self._clock.newest or 0) + MOST_AHEAD:
                self._clock.hear(instant, now)

    def expire(self, *, now: float) -> None:
        """Remove what has expired."""
        with self._lock:
            clock = self._clock.read(now)
            if clock is None or self._first_expiry is None or clock < self._first_expiry:
                return
            gone = [key for key, entry in self._entries.items() if entry.times[3] <= clock]
            if gone:
                self._version += 1
                self._counts["expired"] += len(gone)
                for key in gone:
                    self._remove(key, self._version)
            self._first_expiry = min((entry.times[3] for entry in self._entries.values()), default=None)

    def _keep_history(self, rows: Rows, kept: list[int]) -> None:
        everything = len(kept) == len(rows.key)
        columns = {name: rows.values[name] for name in self.declaration.number_columns if name in rows.values}
        self._history.add(
            rows.key if everything else [rows.key[row] for row in kept],
            event_time=rows.event_time if everything else [rows.event_time[row] for row in kept],
            window_end=rows.window_end if everything else [rows.window_end[row] for row in kept],
            values=columns if everything else {n: [column[row] for row in kept] for n, column in columns.items()},
        )

    def _remove(self, key: str, version: int) -> None:
        self._entries.pop(key, None)
        self._removed.pop(key, None)
        self._removed[key] = version

    def _keep_bounds(self) -> None:
        surplus = len(self._entries) - self._most
        if surplus > 0:
            self._counts["crowded_out"] += surplus
            for key in list(self._entries)[:surplus]:
                self._remove(key, self._version)
        while len(self._removed) > MOST_REMOVED:
            key = next(iter(self._removed))
            self._oldest_known = self._removed.pop(key)

    # ---------------------------------------------------------------- and go out

    def overview(self) -> Overview:
        """Look at the figures."""
        with self._lock:
            newest = self._clock.newest
            return Overview(
                entries=len(self._entries),
                version=self._version,
                newest=newest,
                heard=None if newest is None else self._clock.heard,
                counts=dict(self._counts),
                history_points=len(self._history),
                history_bytes=self._history.bytes,
            )

    def snapshot(self) -> dict[str, Any]:
        """All that is shown, as the protocol has it."""
        with self._lock:
            return {
                "job": self.declaration.job,
                "version": self._version,
                "groups": self._groups(self._entries.items()),
            }

    def changes(self, base: int) -> dict[str, Any] | None:
        """What changed after a version; None if that is no longer known, then take the snapshot."""
        with self._lock:
            if not self._oldest_known <= base <= self._version:
                return None
            fresh = list(_newer(self._entries, base, lambda entry: entry.version))
            fresh.reverse()
            removed = [key for key, _ in _newer(self._removed, base, lambda version: version)]
            return {
                "job": self.declaration.job,
                "base": base,
                "version": self._version,
                "groups": self._groups(fresh),
                "removed": removed,
            }

    def entries(self) -> tuple[int, list[dict[str, Any]]]:
        """The version and every entry as an object of its own, for REST."""
        with self._lock:
            version, held = self._version, list(self._entries.items())
        return version, [self._object(key, entry) for key, entry in held]

    def history(self, key: str) -> list[dict[str, Any]]:
        """What a key was worth in the last hour."""
        with self._lock:
            return self._history.of(key)

    def _groups(self, entries: Iterable[tuple[str, Entry]]) -> list[dict[str, Any]]:
        """Entries by the times they share, in columns."""
        together: dict[tuple[int | None, int | None, int, int], list[tuple[str, Entry]]] = {}
        for key, entry in entries:
            together.setdefault(entry.times, []).append((key, entry))
        return [self._group(times, members) for times, members in together.items()]

    def _group(
        self, times: tuple[int | None, int | None, int, int], members: list[tuple[str, Entry]]
    ) -> dict[str, Any]:
        group: dict[str, Any] = {
            "window_start": times[0],
            "window_end": times[1],
            "event_time": times[2],
            "expires_at": times[3],
            "published": max(entry.published for _, entry in members),
            "key": [key for key, _ in members],
        }
        for position, name in enumerate(self._place_names):
            if not (name == "cell" and self.declaration.keyed_by_cell):
                group[name] = [entry.places[position] for _, entry in members]
        group["values"] = {
            name: [entry.values[position] for _, entry in members] for position, name in enumerate(self._value_names)
        }
        return group

    def _object(self, key: str, entry: Entry) -> dict[str, Any]:
        start, end, event_time, expires = entry.times
        places = dict(zip(self._place_names, entry.places, strict=True))
        return {
            "key": key,
            "cell": places.get("cell"),
            "target": places.get("target"),
            "latitude": places.get("latitude"),
            "longitude": places.get("longitude"),
            "window_start": start,
            "window_end": end,
            "event_time": event_time,
            "expires_at": expires,
            "published": entry.published,
            "values": dict(zip(self._value_names, entry.values, strict=True)),
        }


def _place_names(declaration: Declaration) -> tuple[str, ...]:
    display = declaration.display
    columns = {
        "cell": display.cell,
        "target": display.target,
        "latitude": display.latitude,
        "longitude": display.longitude,
    }
    return tuple(name for name, column in columns.items() if column is not None)


def _newer(held: dict[str, Any], base: int, version: Callable[[Any], int]) -> Iterator[tuple[str, Any]]:
    """The members that are newer than a version, newest first; they are kept in the order of their versions."""
    for key in reversed(held):
        item = held[key]
        if version(item) <= base:
            return
        yield key, item
