"""One stage on one key group: the clock of its sources, and its operator.

A key group keeps the watermark of every source partition, so every group knows the same time without asking anybody:
the runner sends each partition's observation to all groups. A turn goes: observations, watermark, operator.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import polars as pl

from headrace.engine.compatibility import column_types, fit
from headrace.engine.limits import STATE_BYTES, STATE_KEYS
from headrace.engine.operator import InputTurn, Turn
from headrace.engine.state import record_from_bytes, record_to_bytes
from headrace.engine.tally import count
from headrace.errors import StateError
from headrace.time.instants import BEGINNING, END
from headrace.time.watermarks import WatermarkTracker

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.engine.limits import StateLimit
    from headrace.engine.operator import Operator, Outcome
    from headrace.engine.state import Segments
    from headrace.time.watermarks import AllIdle, PartitionReport, WatermarkStrategy

log = logging.getLogger(__name__)

#: The segment with the time that a group has come to; every turn reads it first, and writes it.
CLOCK = "clock"
#: Begins the names of the operator's own segments.
OWN = "op/"


@dataclass(frozen=True)
class Timekeeping:
    """How one input's event time advances.

    Args:
        strategy: How a partition's watermark follows from its events.
        idle_after: A partition without events for this long does not hold the others back.
        partitions: Those that are known to exist; each holds back until it brings events or is idle.
        name: The source; what is saved of its time is found again by it, also when inputs were added or reordered.
        input: Which input of the operator it leads to.
        all_idle: What its time does when no partition brings events.
    """

    strategy: WatermarkStrategy
    idle_after: int | None = None
    partitions: tuple[str, ...] = ()
    name: str = ""
    input: int = 0
    all_idle: AllIdle = "max"


@dataclass(frozen=True)
class Seen:
    """What one source partition showed in one batch."""

    input: int
    partition: str
    observation: dict[str, Any]


@dataclass
class Arrivals:
    """What reached one key group in one batch.

    Args:
        rows: Rows of the first input as they are.
        others: Rows of further inputs, by their number.
        partials: What `Operator.prepare` made of others.
        seen: What the source partitions showed, in order of arrival.
        now: Processing time by the heartbeat, or None where none came with this batch.
        steady: The time that idleness is measured by: a clock that nobody sets forward or back. None where the source
            has none; then idleness is measured by `now`, without the steps by which that goes back.
        first_now: What to take for processing time until there was a heartbeat.
        ended: No more rows will ever come, so event time goes to its end.
    """

    rows: list[pl.DataFrame] = field(default_factory=list)
    others: dict[int, list[pl.DataFrame]] = field(default_factory=dict)
    partials: list[pl.DataFrame] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    now: int | None = None
    steady: int | None = None
    first_now: int | None = None
    ended: bool = False

    def add(self, number: int, rows: pl.DataFrame) -> None:
        """Add rows of an input."""
        (self.rows if number == 0 else self.others.setdefault(number, [])).append(rows)


@dataclass(frozen=True)
class Departures:
    """What left one key group in one batch, and the time it has reached.

    Args:
        outcome: What the operator gave.
        watermark: What the next stage may rely on.
        now: Processing time.
        reached: The watermark of the turn, by which the next one judges its rows; `Operator.prepare` needs this one.
        partitions: Where each source partition stands, if the group was asked to report it.
        state_bytes: What the operator keeps on this key group, in bytes before compression.
    """

    outcome: Outcome
    watermark: int
    now: int
    reached: int
    partitions: tuple[PartitionReport, ...] = ()
    state_bytes: int = 0


class Group:
    """Runs one operator on one key group.

    Args:
        operator: What the stage does.
        inputs: How the time of each source, and of each stage before, advances; the index is `Seen.input`.
        schema: The columns of the rows.
        others: The columns of the rows of further inputs.
        report: Keep a sketch of the lateness; one group of a stage is enough.
        limit: How much state this key group may keep.
        step: Names the stage where its state is too large.
    """

    def __init__(
        self,
        operator: Operator,
        inputs: tuple[Timekeeping, ...],
        schema: pl.Schema,
        *,
        others: tuple[pl.Schema, ...] = (),
        report: bool = False,
        limit: StateLimit | None = None,
        step: str = "a step",
    ) -> None:
        self._operator = operator
        self._inputs = inputs
        self._schema = schema
        self._others = others
        self._report = report
        self._limit = limit
        self._step = step

    def turn(self, segments: Segments, arrivals: Arrivals) -> Departures:
        """Take one turn and keep what must be kept."""
        own = _Own(segments)
        saved = self._load(segments, own)
        before: int = saved["watermark"]
        now: int = saved["now"]
        if arrivals.now is not None:
            now = max(now, arrivals.now)
        elif now == BEGINNING and arrivals.first_now is not None:
            now = arrivals.first_now
        saved["now"] = now
        steady = _steady(saved, arrivals, now)
        if saved.get("since") is None and steady > BEGINNING:
            saved["since"] = steady
        marks_before = _marks(saved, 1 + len(self._others))
        watermark, partitions = self._advance(saved, arrivals, now, steady)
        rows = _together(arrivals.rows, self._schema)
        partials = pl.concat(arrivals.partials) if arrivals.partials else None
        inputs: tuple[InputTurn, ...] = ()
        if self._others:
            frames = [
                rows,
                *(_together(arrivals.others.get(n, []), schema) for n, schema in enumerate(self._others, 1)),
            ]
            inputs = tuple(map(InputTurn, frames, saved["marks"], marks_before))
        outcome = self._operator.turn(own, Turn(rows, watermark, now, partials, before, inputs))
        # A checkpoint of an earlier version does not say how much there was.
        saved["bytes"] = max(0, saved.get("bytes", 0) + own.growth)
        if self._limit is not None:
            self._check(self._limit, outcome.keys, saved["bytes"])
        segments.put(CLOCK, record_to_bytes(saved))
        onward = watermark if outcome.watermark is None else outcome.watermark
        return Departures(outcome, onward, now, watermark, partitions, saved["bytes"])

    def _check(self, limit: StateLimit, keys: int | None, size: int) -> None:
        fingerprint = self._operator.fingerprint()
        kind = fingerprint.get("operator") or fingerprint.get("window") or "stateful"
        step = f"{self._step} ({kind})"
        limit.check(step, keys, size)
        close = limit.nearly(keys, size)
        if close is not None:
            _warn(step, close.rpartition(" ")[2])
            log.debug("%s: %s in one key group", step, close)
        count(STATE_BYTES, size)
        if keys is not None:
            count(STATE_KEYS, keys)

    def now(self, segments: Segments) -> int | None:
        """Tell the processing time of the last turn, or None where there was none."""
        value = segments.get(CLOCK)
        now: int = BEGINNING if value is None else record_from_bytes(value)["now"]
        return now if now > BEGINNING else None

    def _load(self, segments: Segments, own: Segments) -> dict[str, Any]:
        shape, types = self._operator.fingerprint(), column_types(self._schema, self._others)
        value = segments.get(CLOCK)
        if value is None:
            return {"shape": shape, "types": types, "now": BEGINNING, "watermark": BEGINNING, "inputs": []}
        saved = record_from_bytes(value)
        known = saved.get("types", {})
        if saved["shape"] == shape and all(types.get(name, kind) == kind for name, kind in known.items()):
            saved["types"] = types
            return saved
        found = fit(self._operator, saved["shape"], known, types, state=own)
        if not found.fits:
            raise StateError(
                f"the saved state of {self._step} does not fit the job: {'; '.join(found.changes)}",
                hint="Undo the change, give the changed step another name (named) or forget its state (--reset-step); "
                "`headrace plan` says beforehand what fits.",
            )
        saved["shape"], saved["types"] = shape, types
        return saved

    def _advance(
        self, saved: dict[str, Any], arrivals: Arrivals, now: int, steady: int
    ) -> tuple[int, tuple[PartitionReport, ...]]:
        trackers = [
            WatermarkTracker(
                each.strategy, each.idle_after, all_idle=each.all_idle, keep_lateness=self._report, state=state
            )
            for each, state in zip(self._inputs, self._known_times(saved), strict=True)
        ]
        for each, tracker in zip(self._inputs, trackers, strict=True):
            tracker.register(each.partitions, steady)
        for seen in arrivals.seen:
            trackers[seen.input].observe(seen.partition, seen.observation, now, steady=steady)
        reached = [tracker.advance(steady) for tracker in trackers]
        states = [tracker.state() for tracker in trackers]
        saved["inputs"] = [[each.name, state] for each, state in zip(self._inputs, states, strict=True)]
        # What holds for the partitions of a source holds for sources: an idle one does not hold the others back.
        active = [
            (each.input, mark)
            for mark, each, tracker, state in zip(reached, self._inputs, trackers, states, strict=True)
            if not _all_idle(each, tracker, list(state["partitions"]), steady, saved.get("since"))
        ]
        candidate = END if arrivals.ended else min((mark for _, mark in active), default=max(reached))
        saved["watermark"] = max(saved["watermark"], candidate)
        if self._others:
            saved["marks"] = [
                max(mark, END if arrivals.ended else self._reached(number, active, reached))
                for number, mark in enumerate(_marks(saved, 1 + len(self._others)))
            ]
        reports = (report for tracker in trackers for report in tracker.report(steady)) if self._report else ()
        return saved["watermark"], tuple(reports)

    def _reached(self, number: int, active: list[tuple[int, int]], reached: list[int]) -> int:
        """Tell how far the time of one input has come: the least of what leads to it and is not idle."""
        mine = [mark for input_, mark in active if input_ == number]
        every = [mark for each, mark in zip(self._inputs, reached, strict=True) if each.input == number]
        return min(mine, default=max(every, default=BEGINNING))

    def _known_times(self, saved: dict[str, Any]) -> list[dict[str, Any] | None]:
        """Find what is saved of each input's time, by its name; inputs of one name are told apart by their order."""
        left: dict[str, list[dict[str, Any]]] = {}
        for name, state in saved["inputs"]:
            left.setdefault(name, []).append(state)
        return [left[each.name].pop(0) if left.get(each.name) else None for each in self._inputs]


def saved_clock(segments: Mapping[str, bytes]) -> dict[str, Any] | None:
    """Read how far the time of a key group has come, out of its saved segments; None where it had no turn yet.

    The record has at least `shape` (the fingerprint of the operator), `types` (of the columns), `watermark` and `now`.
    """
    value = segments.get(CLOCK)
    return None if value is None else record_from_bytes(value)


def _marks(saved: dict[str, Any], inputs: int) -> list[int]:
    """Read the watermark of each input after the turn before."""
    marks: list[int] = saved.get("marks", [])
    return [*marks, *[BEGINNING] * (inputs - len(marks))]


def _together(frames: list[pl.DataFrame], schema: pl.Schema) -> pl.DataFrame:
    """Put the rows of an input together: not every source sends what its rows were made of along with them."""
    return pl.concat(frames, how="diagonal") if frames else schema.to_frame()


def _steady(saved: dict[str, Any], arrivals: Arrivals, now: int) -> int:
    """Return the time that idleness is measured by, and keep in `saved` what the next turn needs for it.

    `saved["clock"]` is [steady time, the last heartbeat]. State that was written before there was a steady time has
    none; its partitions were active by processing time, from which steady time then goes on.
    """
    before, last = saved.get("clock") or (now, now)
    if arrivals.steady is not None:
        steady, last = arrivals.steady, arrivals.steady
    elif before == BEGINNING:
        steady, last = now, now
    elif arrivals.now is not None:
        steady, last = before + max(0, arrivals.now - last), arrivals.now
    else:
        steady = before
    saved["clock"] = [steady, last]
    return steady


def _all_idle(
    keeping: Timekeeping, tracker: WatermarkTracker, partitions: list[str], now: int, since: int | None
) -> bool:
    if partitions or keeping.idle_after is None:
        return bool(partitions) and all(tracker.is_idle(partition, now) for partition in partitions)
    # Nothing was ever seen of this input: it is as old as the stage.
    return since is not None and now - since >= keeping.idle_after


@cache
def _warn(step: str, what: str) -> None:
    """Say once per process and step that a bound is near: every turn would have to say it."""
    log.warning(
        "%s keeps more than 80 %% of the %s that it may in a key group; beyond the bound its job stops", step, what
    )


class _Own:
    """The operator's own segments, apart from the engine's. Counts by how much they grow.

    What a segment had before is known from reading it in the same turn. One that is put without being read is taken for
    new, so an operator reads what it overwrites.
    """

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self._sizes: dict[str, int] = {}
        #: Bytes that the turn has added; negative if it has removed more.
        self.growth = 0
        #: What a segment costs beside its bytes, in rows, where the store says so.
        self.call_cost: int | None = getattr(segments, "call_cost", None)

    def get(self, name: str) -> bytes | None:
        value = self._segments.get(f"{OWN}{name}")
        self._sizes[name] = 0 if value is None else len(value)
        return value

    def put(self, name: str, value: bytes) -> None:
        self.growth += len(value) - self._sizes.get(name, 0)
        self._sizes[name] = len(value)
        self._segments.put(f"{OWN}{name}", value)

    def delete(self, name: str) -> None:
        if name not in self._sizes:
            self.get(name)
        self.growth -= self._sizes[name]
        self._sizes[name] = 0
        self._segments.delete(f"{OWN}{name}")
