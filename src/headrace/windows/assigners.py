"""Windows: which stretch of time an event belongs to.

An *assigner* puts each row into zero or more windows [start, end). The kinds:

- **aligned** (`tumbling`, `sliding`): the same windows for every key, laid out from the epoch. An aligned assigner
  knows its *slice*, the greatest common divisor of size and slide: every window is a whole number of slices, so rows
  can be folded into slices once instead of into each of their windows.
- **merging** (`session`): a row opens a window [t, t + gap); windows of one key that overlap become one.
- **global**: one window without end, fired by triggers that do not wait for an end.
- **same window**: rows that come out of a window keep it.
- **sequential** (`count`, `delta`, `punctuation`, see `headrace.windows.sequences`): the rows themselves say where a
  window ends.
- **custom**: any class with the contract of `Assigner`; put it through `headrace.testing.check_assigner`.

All of them are frozen descriptions; the state is the window operator's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import gcd
from typing import TYPE_CHECKING, ClassVar

import polars as pl

from headrace.engine.operator import EVENT_TIME, WINDOW_END, WINDOW_START
from headrace.errors import PlanError
from headrace.time.duration import HOUR, MINUTE, micros, text
from headrace.time.instants import BEGINNING, END, INSTANT

if TYPE_CHECKING:
    from datetime import timedelta


class Assigner:
    """The contract of an assigner; subclass it (as a frozen dataclass) for windows of your own.

    `assign` must depend on each row alone: not on the order, nor on which rows come together. A row for which it
    gives no window, or a null one, is dismissed with a reason.
    """

    #: Whether windows of one key that overlap become one.
    merges: ClassVar[bool] = False
    #: Whether windows end; only those can be late, complete or expired.
    ends: ClassVar[bool] = True

    def assign(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows, each once per window, with `window_start` and `window_end` (Datetime us UTC) added."""
        raise NotImplementedError

    def describe(self) -> str:
        """Say in a few words what the windows are; also their fingerprint in saved state."""
        raise NotImplementedError

    @property
    def bucket(self) -> int:
        """Width of the buckets, by end of window, that state is kept in: about what one batch touches."""
        return HOUR

    @property
    def touching(self) -> bool:
        """Whether merging windows that only touch ([0, 5) and [5, 9)) become one."""
        return False


@dataclass(frozen=True)
class Aligned(Assigner):
    """Windows of one size that start every `every`, shifted by `offset`; all in microseconds."""

    size: int
    every: int
    offset: int = 0

    @property
    def slice(self) -> int:
        """The longest stretch that every window is a whole number of."""
        return gcd(self.size, self.every)

    @property
    def bucket(self) -> int:
        """Width of the state's buckets: one window."""
        return self.size

    def assign(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Put each row into the windows that contain its timestamp."""
        return self.spread(rows, pl.col(EVENT_TIME).cast(INSTANT).cast(pl.Int64))

    def spread(self, rows: pl.DataFrame, time: pl.Expr) -> pl.DataFrame:
        """Put each row into the windows that contain `time` (microseconds): rows of a slice by the slice's start."""
        last = time - (time - self.offset).mod(self.every)
        if self.size == self.every:
            start = last
            framed = rows.with_columns(start.alias(WINDOW_START))
        else:
            steps = -(-self.size // self.every)
            starts = pl.concat_list([last - step * self.every for step in range(steps)])
            framed = rows.with_columns(starts.alias(WINDOW_START), time.alias("#time")).explode(
                WINDOW_START, empty_as_null=True, keep_nulls=True
            )
            # Where the slide does not divide the size, the oldest candidate may end before the row.
            framed = framed.filter(pl.col("#time") < pl.col(WINDOW_START) + self.size).drop("#time")
        return framed.with_columns(
            pl.col(WINDOW_START).cast(INSTANT), (pl.col(WINDOW_START) + self.size).cast(INSTANT).alias(WINDOW_END)
        )

    def last_end(self, start: pl.Expr) -> pl.Expr:
        """When the last window ends that holds a slice with this start."""
        return start - (start - self.offset).mod(self.every) + self.size

    def holding(self, start: int) -> list[tuple[int, int]]:
        """List the windows that hold a slice with this start.

        >>> Sliding(size=30, every=10).holding(20)
        [(20, 50), (10, 40), (0, 30)]
        """
        last = start - (start - self.offset) % self.every
        return [(at, at + self.size) for at in range(last, start - self.size, -self.every)]

    def next_end(self, after: int) -> int:
        """Tell when the next window ends, later than a time in microseconds.

        >>> Sliding(size=30, every=5, offset=1).next_end(31), Sliding(size=30, every=5, offset=1).next_end(30)
        (36, 31)
        """
        return after + self.every - (after - self.size - self.offset) % self.every

    def describe(self) -> str:
        """Say in a few words what the windows are."""
        shift = f", offset {text(self.offset)}" if self.offset else ""
        if self.size == self.every:
            return f"tumbling({text(self.size)}{shift})"
        return f"sliding({text(self.size)} every {text(self.every)}{shift})"


@dataclass(frozen=True)
class Tumbling(Aligned):
    """Windows of one size, one after the other."""


@dataclass(frozen=True)
class Sliding(Aligned):
    """Windows of one size that overlap."""


@dataclass(frozen=True)
class Cumulative(Assigner):
    """Windows that begin every `size` and grow by `step` until they are as long; all in microseconds."""

    size: int
    step: int
    offset: int = 0

    @property
    def slice(self) -> int:
        """The longest stretch that every window is a whole number of."""
        return self.step

    @property
    def bucket(self) -> int:
        """Width of the state's buckets: the longest window."""
        return self.size

    def assign(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Put each row into the windows that contain its timestamp."""
        time = pl.col(EVENT_TIME).cast(INSTANT).cast(pl.Int64)
        start = time - (time - self.offset).mod(self.size)
        first = start + ((time - start) // self.step + 1) * self.step
        framed = rows.with_columns(
            start.alias(WINDOW_START), pl.int_ranges(first, start + self.size + 1, self.step).alias(WINDOW_END)
        ).explode(WINDOW_END, empty_as_null=True, keep_nulls=True)
        return framed.with_columns(pl.col(WINDOW_START, WINDOW_END).cast(INSTANT))

    def last_end(self, start: pl.Expr) -> pl.Expr:
        """When the last window ends that holds a slice with this start."""
        return start - (start - self.offset).mod(self.size) + self.size

    def holding(self, start: int) -> list[tuple[int, int]]:
        """List the windows that hold a slice with this start.

        >>> Cumulative(size=30, step=10).holding(10)
        [(0, 20), (0, 30)]
        """
        first = start - (start - self.offset) % self.size
        return [(first, end) for end in range(start + self.step, first + self.size + 1, self.step)]

    def describe(self) -> str:
        """Say in a few words what the windows are."""
        shift = f", offset {text(self.offset)}" if self.offset else ""
        return f"cumulative({text(self.size)} by {text(self.step)}{shift})"


@dataclass(frozen=True)
class Session(Assigner):
    """Windows that last until a key has been quiet for `gap`."""

    gap: int | None
    gap_of: pl.Expr | None = field(default=None, compare=False)
    touch: bool = False
    merges: ClassVar[bool] = True

    @property
    def touching(self) -> bool:
        """Whether an event exactly one gap later joins."""
        return self.touch

    def assign(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Open a window [t, t + gap) for each row."""
        time = pl.col(EVENT_TIME).cast(INSTANT).cast(pl.Int64)
        if self.gap_of is None:
            gap = pl.lit(self.gap, dtype=pl.Int64)
        else:
            kind = rows.select(self.gap_of.alias("gap")).schema["gap"]
            gap = self.gap_of.dt.total_microseconds() if isinstance(kind, pl.Duration) else self.gap_of.cast(pl.Int64)
            gap = pl.when(gap > 0).then(gap)
        return rows.with_columns(time.cast(INSTANT).alias(WINDOW_START), (time + gap).cast(INSTANT).alias(WINDOW_END))

    def describe(self) -> str:
        """Say in a few words what the windows are."""
        gap = text(self.gap) if self.gap is not None else str(self.gap_of)
        return f"session({gap}{', touching' if self.touch else ''})"


@dataclass(frozen=True)
class Global(Assigner):
    """One window per key, without end."""

    ends: ClassVar[bool] = False

    def assign(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Put each row into the one window."""
        return rows.with_columns(
            pl.lit(BEGINNING, dtype=pl.Int64).cast(INSTANT).alias(WINDOW_START),
            pl.lit(END, dtype=pl.Int64).cast(INSTANT).alias(WINDOW_END),
        )

    def describe(self) -> str:
        """Say in a few words what the windows are."""
        return "global"


@dataclass(frozen=True)
class SameWindow(Assigner):
    """Rows that come out of a window stay in it."""

    def assign(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Keep the window that the rows carry."""
        missing = {WINDOW_START, WINDOW_END} - set(rows.columns)
        if missing:
            raise PlanError(
                f"same_window() found no column {' and '.join(sorted(missing))}",
                hint="It follows a window step, whose results carry their window; use tumbling or sliding otherwise.",
            )
        return rows.with_columns(pl.col(WINDOW_START, WINDOW_END).cast(INSTANT))

    def describe(self) -> str:
        """Say in a few words what the windows are."""
        return "same_window"

    @property
    def bucket(self) -> int:
        """Width of the state's buckets."""
        return MINUTE


def tumbling(size: str | timedelta | int, *, offset: str | timedelta | int = 0) -> Tumbling:
    """Windows of one size, one after the other.

    Args:
        size: Length of a window.
        offset: Shift of the grid against the epoch, such as "2h" for days that start at 02:00.

    >>> tumbling("5s")
    Tumbling(size=5000000, every=5000000, offset=0)
    """
    length = _positive(size, "the size of a tumbling window")
    return Tumbling(length, length, micros(offset, what="offset") % length)


def sliding(size: str | timedelta | int, *, every: str | timedelta | int, offset: str | timedelta | int = 0) -> Sliding:
    """Windows of one size that start every so often and overlap.

    Args:
        size: Length of a window.
        every: Time between the starts of two windows, at most the size.
        offset: Shift of the grid against the epoch.

    >>> window = sliding("30s", every="20s")
    >>> window.slice
    10000000
    >>> rows = pl.DataFrame({"event_time": [25_000_000]}).cast(pl.Datetime("us", "UTC"))
    >>> window.assign(rows).get_column("window_start").dt.second().to_list()
    [20, 0]
    """
    length = _positive(size, "the size of a sliding window")
    step = _positive(every, "the slide of a sliding window")
    if step > length:
        raise PlanError(
            f"windows of {text(length)} every {text(step)} leave gaps between them",
            hint="Give a slide of at most the size; filter rows before the window if some should not count.",
        )
    return Sliding(length, step, micros(offset, what="offset") % step)


def cumulative(
    size: str | timedelta | int, *, step: str | timedelta | int, offset: str | timedelta | int = 0
) -> Cumulative:
    """Windows that begin together and grow: a day so far, at the end of each hour.

    Args:
        size: Length of the longest window; windows begin every `size`.
        step: By how much each window is longer than the one before; the size is a multiple of it.
        offset: Shift of the grid against the epoch.

    >>> rows = pl.DataFrame({"event_time": [25_000_000]}).cast(pl.Datetime("us", "UTC"))
    >>> cumulative("1min", step="20s").assign(rows).get_column("window_end").dt.epoch("s").to_list()
    [40, 60]
    """
    length = _positive(size, "the size of a cumulative window")
    width = _positive(step, "the step of a cumulative window")
    if length % width:
        raise PlanError(
            f"cumulative windows of {text(length)} in steps of {text(width)}",
            hint="The size must be a multiple of the step.",
        )
    return Cumulative(length, width, micros(offset, what="offset") % length)


def session(gap: str | timedelta | int | pl.Expr, *, touching: bool = False) -> Session:
    """Windows that last until a key has been quiet for `gap`.

    Args:
        gap: Length of the quiet time; or an expression that gives it per row, as a Duration or in microseconds.
        touching: Whether an event exactly one gap after the last one still joins; by the rule of intervals [start,
            end) it does not.

    >>> session("30s").describe()
    'session(30s)'
    """
    if isinstance(gap, pl.Expr):
        return Session(None, gap, touching)
    return Session(_positive(gap, "the gap of a session"), None, touching)


def global_() -> Global:
    """One window per key, without end; needs a trigger that does not wait for the end.

    >>> global_().describe()
    'global'
    """
    return Global()


def same_window() -> SameWindow:
    """The window that the rows already have from the step before: an aggregate of aggregates.

    >>> same_window().describe()
    'same_window'
    """
    return SameWindow()


def _positive(duration: str | timedelta | int, what: str) -> int:
    length = micros(duration, what=what)
    if length <= 0:
        raise PlanError(f"{what} is {text(length)}", hint="Give a time above zero.")
    return length
