"""Watermark strategies: how far a partition's time has come, judged from the events it carried.

A watermark W promises that no event with a timestamp below W is still expected. A *strategy* says how W follows from
the events of one source partition. It is a frozen description with two pure halves, because the work is spread over
machines:

- `observe(rows)` runs beside the data. It has no memory: it boils the rows of one partition and one batch down to a
  small JSON-able *observation* (how many, newest, oldest, and a sample of how late they were).
- `watermark(progress)` runs where the `WatermarkTracker` lives. It turns what was kept of all observations into W.

An event far in the future (a broken clock) would push W past everybody else's events and make them late. So a
strategy has bounds, `max_ahead` and `max_behind`, around the time of ingestion: rows outside are *absurd*, never
count for W, and belong into the dead letters (`absurd`).

A clock that is wrong by seconds is not absurd, but does the same harm. With `clock_tolerance` an event moves W by
min(event time, arrival + tolerance), where the arrival is its ingestion time. The event itself is taken as it is. An
event that is older than its arrival, as every event of a recording or of a backlog is, counts with its own time, so
the bound changes nothing there. What becomes of the event itself is said by `ahead`: it is taken, its time is clamped,
or it is a dead letter.

Where no arrival is known, `of="95%"` follows the clocks of most keys instead of the newest (`headrace.time.clocks`).
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import datasketches
import numpy as np
import polars as pl

from headrace.errors import PlanError
from headrace.time.clocks import front, key_times, merge_clocks, merge_key_times, offsets
from headrace.time.duration import DAY, micros, text
from headrace.time.instants import BEGINNING, END, INSTANT

if TYPE_CHECKING:
    from datetime import timedelta

    from numpy.typing import NDArray

Observation = dict[str, Any]
Progress = dict[str, Any]

INGESTION_TIME = "ingestion_time"

#: What becomes of an event whose time is further past its arrival than the tolerance.
Ahead: TypeAlias = Literal["take", "clamp", "dismiss"]
_SAMPLE = 64
_SKETCH_K = 200


def absurd(
    rows: pl.DataFrame, now: int | None = None, *, max_ahead: int | None = DAY, max_behind: int | None = 7300 * DAY
) -> pl.Expr:
    """Tell which rows have a timestamp that cannot be true: an expression over `rows`, true where it is absurd.

    A timestamp is measured against the row's `ingestion_time`, or against `now` where there is none. A null timestamp
    is absurd too. With neither an ingestion time nor `now`, only null is.

    Args:
        rows: The frame the expression is for; only its columns are looked at.
        now: Processing time in microseconds since the epoch.
        max_ahead: How far ahead of its ingestion an event may be; None for any.
        max_behind: How far behind its ingestion an event may be; None for any.

    >>> rows = pl.DataFrame({"event_time": [0, 5_000_000, 90_000_000_000]}).cast(pl.Datetime("us", "UTC"))
    >>> rows.select(absurd(rows, now=0)).to_series().to_list()
    [False, False, True]
    """
    time = pl.col("event_time").cast(pl.Int64)
    wrong = time.is_null()
    reference: pl.Expr | None = None
    if "ingestion_time" in rows.columns:
        reference = pl.col("ingestion_time").cast(INSTANT).cast(pl.Int64)
        if now is not None:
            reference = reference.fill_null(now)
    elif now is not None:
        reference = pl.lit(now, dtype=pl.Int64)
    if reference is not None:
        if max_ahead is not None:
            wrong = wrong | (time > reference + max_ahead).fill_null(value=False)
        if max_behind is not None:
            wrong = wrong | (time < reference - max_behind).fill_null(value=False)
    return wrong.alias("absurd")


@dataclass(frozen=True, kw_only=True)
class WatermarkStrategy:
    """What all strategies share: the bounds of sane timestamps, and what is observed.

    Args:
        max_ahead: How far ahead of its ingestion (or of processing time) an event may be, in microseconds; None for
            any.
        max_behind: How far behind, likewise.
        clock_tolerance: How far past its ingestion an event's time may move the watermark, in microseconds; None for
            any. A row without an ingestion time is not bounded.
        ahead: What becomes of an event that is further past its ingestion than `clock_tolerance`: "take" it as it is,
            "clamp" its time to its ingestion plus the tolerance, or "dismiss" it as a dead letter.
        clock: The column that says whose clock gave the time of a row; None if that is not known.
        of: The share of the keys whose clocks the watermark follows; None for the newest event of all.
    """

    max_ahead: int | None = DAY
    max_behind: int | None = 7300 * DAY
    clock_tolerance: int | None = None
    ahead: Ahead = "take"
    clock: str | None = None
    of: float | None = None

    def __post_init__(self) -> None:
        _check_clocks(self)

    def absurd(self, rows: pl.DataFrame, now: int | None = None) -> pl.Expr:
        """Tell which rows this strategy leaves out; see the function `absurd`."""
        return absurd(rows, now, max_ahead=self.max_ahead, max_behind=self.max_behind)

    def observe(self, rows: pl.DataFrame, now: int | None = None) -> Observation:
        """Boil the rows of one partition and batch, in the order of the source, down to an observation.

        Args:
            rows: Has `event_time`, maybe `ingestion_time`; may be empty.
            now: Processing time, for rows that have no ingestion time; see `absurd`.
        """
        if rows.is_empty():
            return {"rows": 0}
        absurd = rows.select(self.absurd(rows, now)).to_series()
        left_out = int(absurd.sum())
        sane = rows.filter(~absurd) if left_out else rows
        if sane.is_empty():
            return {"rows": 0, "absurd": left_out}
        time = sane.get_column("event_time").cast(INSTANT).to_physical().to_numpy()
        counted = self._counted(sane, time)
        if self.of is not None and self.clock is not None:
            keys = key_times(sane.get_column(self.clock), counted)
            # What is ahead of most clocks of the batch counts as they do, so that the others are not late by it.
            counted = np.minimum(counted, front(keys, self.of))
        newest = np.maximum.accumulate(counted)
        # A sample of (timestamp, newest before or at it): with the newest of earlier batches, which only the tracker
        # knows, it gives the lateness of each sampled row exactly.
        step = -(-len(time) // _SAMPLE)
        observation = {
            "rows": sane.height,
            "newest": int(newest[-1]),
            "oldest": int(time.min()),
            "sample": [list(pair) for pair in zip(time[::step].tolist(), newest[::step].tolist(), strict=True)],
            "latest_by": max(0, int((newest - time).max())),
        }
        if left_out:
            observation["absurd"] = left_out
        if ahead := int((self._counted(sane, time) < time).sum()):
            observation["ahead"] = ahead
        if self.of is not None and self.clock is not None:
            observation |= {"keys": keys, "of": self.of}
        if self.clock is not None and INGESTION_TIME in sane.columns:
            observation |= self._offsets(sane, self.clock)
        return observation | self._marks(sane, counted)

    def far_ahead(self) -> pl.Expr:
        """Tell which rows are further past their ingestion than the tolerance: an expression over rows with one."""
        return (pl.col("event_time").to_physical() > self._latest()).fill_null(value=False)

    def clamped(self) -> pl.Expr:
        """The time of an event, or its ingestion plus the tolerance if that is earlier."""
        return pl.min_horizontal(pl.col("event_time").to_physical(), self._latest()).cast(INSTANT).alias("event_time")

    def _latest(self) -> pl.Expr:
        return pl.col(INGESTION_TIME).cast(INSTANT).to_physical() + (self.clock_tolerance or 0)

    def _offsets(self, rows: pl.DataFrame, clock: str) -> Observation:
        """What is seen of clocks that are wrong."""
        arrival = rows.get_column(INGESTION_TIME).cast(INSTANT).to_physical()
        past = rows.get_column("event_time").cast(INSTANT).to_physical() - arrival
        clocks = offsets(rows.get_column(clock), past, tolerance=self.clock_tolerance or 0)
        return {} if clocks is None else {"clocks": clocks}

    def _newest(self, progress: Progress) -> int | None:
        """The time that the watermark follows: the newest, or that of most keys; None while nothing is known."""
        if self.of is not None and "keys" in progress:
            return front(progress["keys"], self.of)
        return int(progress["newest"]) if "newest" in progress else None

    def watermark(self, progress: Progress) -> int:
        """Return the watermark of a partition from what is kept about it; BEGINNING while nothing is known."""
        raise NotImplementedError

    def describe(self) -> str:
        """Say in a few words what the strategy does; also its fingerprint."""
        raise NotImplementedError

    def _counted(self, rows: pl.DataFrame, time: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the time that each row counts with: its own, or its arrival plus the tolerance if that is earlier."""
        if self.clock_tolerance is None or INGESTION_TIME not in rows.columns:
            return time
        arrival = rows.get_column(INGESTION_TIME).cast(INSTANT).to_physical()
        latest: NDArray[np.int64] = (arrival + self.clock_tolerance).fill_null(END).to_numpy()
        return np.minimum(time, latest)

    def _marks(
        self,
        rows: pl.DataFrame,  # noqa: ARG002 - for strategies that read marks from the rows
        counted: NDArray[np.int64],  # noqa: ARG002
    ) -> Observation:
        return {}

    def _with_tolerance(self, description: str) -> str:
        if self.of is not None:
            description += f" of {self.of:.3g} of the clocks by {self.clock}"
        if self.clock_tolerance is None:
            return description
        beyond = "" if self.ahead == "take" else f", {self.ahead} beyond"
        return f"{description}, clock tolerance {text(self.clock_tolerance)}{beyond}"


@dataclass(frozen=True, kw_only=True)
class Ascending(WatermarkStrategy):
    """Timestamps of a partition never go back: W is the newest one."""

    def watermark(self, progress: Progress) -> int:
        """Return the newest timestamp."""
        return int(progress.get("newest", BEGINNING))

    def describe(self) -> str:
        """Say in a few words what the strategy does."""
        return self._with_tolerance("ascending")


@dataclass(frozen=True, kw_only=True)
class Bounded(WatermarkStrategy):
    """Events are at most `delay` behind the newest one of their partition: W = newest - delay."""

    delay: int

    def watermark(self, progress: Progress) -> int:
        """Return the newest timestamp, or that of most keys, minus the delay."""
        newest = self._newest(progress)
        return BEGINNING if newest is None else newest - self.delay

    def describe(self) -> str:
        """Say in a few words what the strategy does."""
        return self._with_tolerance(f"bounded({text(self.delay)})")


@dataclass(frozen=True, kw_only=True)
class Percentile(WatermarkStrategy):
    """Hold back until a share `q` of the events is in: W = newest - q-quantile of the lateness seen (a KLL sketch)."""

    q: float
    initial: int = 0
    max_delay: int | None = None
    min_rows: int = 100

    def delay(self, progress: Progress) -> int:
        """Return the delay that the lateness seen so far calls for."""
        if progress.get("rows", 0) < self.min_rows:
            return self.initial
        delay = lateness_quantile(progress, self.q)
        return delay if self.max_delay is None else min(delay, self.max_delay)

    def watermark(self, progress: Progress) -> int:
        """Return the newest timestamp, or that of most keys, minus the learned delay."""
        newest = self._newest(progress)
        return BEGINNING if newest is None else newest - self.delay(progress)

    def describe(self) -> str:
        """Say in a few words what the strategy does."""
        return self._with_tolerance(f"percentile({self.q})")


@dataclass(frozen=True, kw_only=True)
class Punctuated(WatermarkStrategy):
    """Some events carry the watermark: where `mark` is true, W becomes that event's timestamp minus `delay`."""

    mark: pl.Expr = field(compare=False)
    delay: int = 0

    def _marks(self, rows: pl.DataFrame, counted: NDArray[np.int64]) -> Observation:
        marked = rows.select(pl.lit(pl.Series(counted)).alias("counted").filter(self.mark)).to_series().max()
        return {} if marked is None else {"mark": int(marked)}  # type: ignore[arg-type]

    def watermark(self, progress: Progress) -> int:
        """Return the timestamp of the newest mark minus the delay."""
        return int(progress["mark"]) - self.delay if "mark" in progress else BEGINNING

    def describe(self) -> str:
        """Say in a few words what the strategy does."""
        return self._with_tolerance(f"punctuated({self.mark})")


@dataclass(frozen=True, kw_only=True)
class Perfect(WatermarkStrategy):
    """The source knows: W is what it says, in a column of the rows or in an observation `{"watermark": W}`."""

    column: str | None = None

    def _marks(self, rows: pl.DataFrame, counted: NDArray[np.int64]) -> Observation:  # noqa: ARG002
        if self.column is None:
            return {}
        said = rows.get_column(self.column).cast(INSTANT).cast(pl.Int64).max()
        return {} if said is None else {"watermark": int(said)}  # type: ignore[arg-type]

    def watermark(self, progress: Progress) -> int:
        """Return what the source said last."""
        return int(progress.get("watermark", BEGINNING))

    def describe(self) -> str:
        """Say in a few words what the strategy does."""
        return "perfect()" if self.column is None else f"perfect({self.column})"


def ascending(
    *, max_ahead: str | timedelta | int | None = DAY, clock_tolerance: str | timedelta | int | None = None
) -> Ascending:
    """Timestamps of a partition never go back.

    Args:
        max_ahead: How far ahead of its ingestion an event may be; one beyond is a dead letter.
        clock_tolerance: How far past its ingestion an event's time may move the watermark; None: any time.

    >>> ascending().describe()
    'ascending'
    """
    return Ascending(max_ahead=_bound(max_ahead), clock_tolerance=_tolerance(clock_tolerance))


def bounded(
    delay: str | timedelta | int,
    *,
    of: str | float | None = None,
    clock: str | None = None,
    max_ahead: str | timedelta | int | None = DAY,
    clock_tolerance: str | timedelta | int | None = None,
    ahead: Ahead = "take",
) -> Bounded:
    """Events are at most `delay` behind the newest one of their partition, or behind the clocks of most keys.

    Args:
        delay: How far; also how long results wait.
        of: Follow the clocks of this share of the keys, such as "95%", and not the newest event: those that are
            furthest ahead do not count. Needs `clock`.
        clock: The column that says whose clock gave the time of a row. With it, keys whose clocks are wrong are
            reported (`headrace watermarks --clocks`).
        max_ahead: How far ahead of its ingestion an event may be; one beyond is a dead letter.
        clock_tolerance: How far past its ingestion an event's time may move the watermark; None: any time. Keep it
            well below `delay`: while a clock is wrong, only `delay - clock_tolerance` is left for events under way.
        ahead: What becomes of an event beyond the clock tolerance: "take" it as it is, "clamp" its time to its
            ingestion plus the tolerance, or "dismiss" it as a dead letter.

    >>> bounded("1s").watermark({"newest": 10_000_000})
    9000000
    """
    length = micros(delay, what="the delay of a bounded watermark")
    if length < 0:
        raise PlanError(f"a bounded watermark has the delay {text(length)}", hint="A delay is zero or more.")
    return Bounded(
        delay=length,
        max_ahead=_bound(max_ahead),
        clock_tolerance=_tolerance(clock_tolerance),
        ahead=ahead,
        clock=clock,
        of=_share(of),
    )


def percentile(
    q: float,
    *,
    initial: str | timedelta | int = "1s",
    max_delay: str | timedelta | int | None = None,
    min_rows: int = 100,
    of: str | float | None = None,
    clock: str | None = None,
    max_ahead: str | timedelta | int | None = DAY,
    clock_tolerance: str | timedelta | int | None = None,
    ahead: Ahead = "take",
) -> Percentile:
    """Hold back until the share `q` of the events is in, learning the delay from the lateness seen.

    Args:
        q: Share of the events that should not be late, between 0 and 1.
        initial: Delay until `min_rows` rows of a partition were seen.
        max_delay: Never wait longer than this.
        min_rows: Rows to see before the sketch is trusted.
        of: Follow the clocks of this share of the keys; see `bounded`.
        clock: The column that says whose clock gave the time of a row.
        max_ahead: How far ahead of its ingestion an event may be.
        clock_tolerance: How far past its ingestion an event's time may move the watermark; None: any time.
        ahead: What becomes of an event beyond the clock tolerance; see `bounded`.

    >>> percentile(0.99, initial="2s").watermark({"newest": 10_000_000, "rows": 3})
    8000000
    """
    if not 0 < q < 1:
        raise PlanError(f"a percentile watermark has q={q}", hint="Give a share between 0 and 1, such as 0.99.")
    return Percentile(
        q=q,
        initial=micros(initial, what="the initial delay"),
        max_delay=None if max_delay is None else micros(max_delay, what="max_delay"),
        min_rows=min_rows,
        max_ahead=_bound(max_ahead),
        clock_tolerance=_tolerance(clock_tolerance),
        ahead=ahead,
        clock=clock,
        of=_share(of),
    )


def punctuated(
    mark: pl.Expr,
    *,
    delay: str | timedelta | int = 0,
    max_ahead: str | timedelta | int | None = DAY,
    clock_tolerance: str | timedelta | int | None = None,
) -> Punctuated:
    """Events for which the expression `mark` is true carry the watermark.

    Args:
        mark: Which events.
        delay: How far behind the event's time the watermark stays.
        max_ahead: How far ahead of its ingestion an event may be.
        clock_tolerance: How far past its ingestion an event's time may move the watermark; None: any time.

    >>> rows = pl.DataFrame({"event_time": [5, 9], "flush": [True, False]}).cast({"event_time": INSTANT})
    >>> punctuated(pl.col("flush")).observe(rows)["mark"]
    5
    """
    return Punctuated(
        mark=mark,
        delay=micros(delay, what="the delay"),
        max_ahead=_bound(max_ahead),
        clock_tolerance=_tolerance(clock_tolerance),
    )


def perfect(column: str | None = None) -> Perfect:
    """The source knows its watermark: from a column, or handed to the tracker as `{"watermark": W}`.

    >>> perfect().watermark({"watermark": 7})
    7
    """
    return Perfect(column=column, max_ahead=None, max_behind=None)


def remember(progress: Progress, observation: Observation, *, sketch: bool = True) -> Progress:
    """Fold an observation into what is kept about a partition; pure.

    Args:
        progress: What is kept so far, `{}` at first.
        observation: What `observe` gave.
        sketch: Keep a sketch of the lateness too (about 2 kB); `percentile` needs it, a report shows it.
    """
    kept = dict(progress)
    kept["absurd"] = kept.get("absurd", 0) + observation.get("absurd", 0)
    if "ahead" in observation:
        kept["ahead"] = kept.get("ahead", 0) + observation["ahead"]
    for name in ("mark", "watermark"):
        if name in observation:
            kept[name] = max(kept.get(name, BEGINNING), observation[name])
    if not observation.get("rows"):
        return kept
    before = kept.get("newest", BEGINNING)
    if "keys" in observation:
        if kept.get("keys"):
            before = front(kept["keys"], observation["of"])
        kept["keys"] = merge_key_times(kept.get("keys", []), observation["keys"])
    if sketch and "clocks" in observation:
        kept["clocks"] = merge_clocks(kept.get("clocks", {}), observation["clocks"])
    kept["rows"] = kept.get("rows", 0) + observation["rows"]
    worst = max(observation["latest_by"], before - observation["oldest"], 0)
    kept["max_lateness"] = max(kept.get("max_lateness", 0), worst)
    kept["newest"] = max(kept.get("newest", BEGINNING), observation["newest"])
    if sketch:
        lateness = _sketch(kept)
        for time, newest in observation["sample"]:
            # A row that is ahead of its arrival may be ahead of what counts as the newest time.
            lateness.update(float(max(newest - time, before - time, 0)))
        kept["lateness"] = base64.b64encode(lateness.serialize()).decode()
    return kept


def lateness_quantile(progress: Progress, q: float) -> int:
    """Return how late the events of a partition were: the q-quantile, in microseconds, 0 where none were seen."""
    sketch = _sketch(progress)
    return 0 if sketch.is_empty() else round(sketch.get_quantile(q, inclusive=True))


def _sketch(progress: Progress) -> Any:
    if "lateness" in progress:
        return datasketches.kll_doubles_sketch.deserialize(base64.b64decode(progress["lateness"]))
    return datasketches.kll_doubles_sketch(_SKETCH_K)


def _bound(duration: str | timedelta | int | None) -> int | None:
    return None if duration is None else micros(duration, what="max_ahead")


def _tolerance(duration: str | timedelta | int | None) -> int | None:
    if duration is None:
        return None
    length = micros(duration, what="clock_tolerance")
    if length < 0:
        raise PlanError(f"clock_tolerance is {text(length)}", hint="Give zero or more, or None for no bound.")
    return length


def _share(of: str | float | None) -> float | None:
    if of is None:
        return None
    try:
        share = float(of[:-1]) / 100 if isinstance(of, str) and of.endswith("%") else float(of)
    except ValueError as problem:
        raise PlanError(f"of={of!r} is no share", hint='Write "95%" or 0.95.') from problem
    if not 0.5 <= share <= 0.99:
        raise PlanError(f"of={of!r} is not between 50% and 99%", hint='Write "95%", or leave it out for the newest.')
    return share


def _check_clocks(strategy: WatermarkStrategy) -> None:
    if strategy.ahead not in get_args(Ahead):
        raise PlanError(f"ahead={strategy.ahead!r}", hint=f"Choose one of {', '.join(get_args(Ahead))}.")
    if strategy.ahead != "take" and strategy.clock_tolerance is None:
        raise PlanError(
            f"ahead={strategy.ahead!r} without clock_tolerance", hint="Say how far past its arrival a time may be."
        )
    if strategy.of is not None and strategy.clock is None:
        raise PlanError("of= without clock=", hint='Name the column that says whose clock it is: clock="sensor".')
