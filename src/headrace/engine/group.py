"""One stage on one key group: the clock of its sources, and its operator.

A key group keeps the watermark of every source partition, so every group knows the same time without asking anybody:
the runner sends each partition's observation to all groups. A turn goes: observations, watermark, operator.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import polars as pl

from headrace.engine.operator import Turn
from headrace.engine.state import record_from_bytes, record_to_bytes
from headrace.errors import StateError
from headrace.time.instants import BEGINNING, END
from headrace.time.watermarks import WatermarkTracker

if TYPE_CHECKING:
    from headrace.engine.operator import Operator, Outcome
    from headrace.engine.state import Segments
    from headrace.time.watermarks import WatermarkStrategy

_CLOCK = "clock"


@dataclass(frozen=True)
class Timekeeping:
    """How one input's event time advances.

    Args:
        strategy: How a partition's watermark follows from its events.
        idle_after: A partition without events for this long does not hold the others back.
        partitions: Those that are known to exist; each holds back until it brings events or is idle.
    """

    strategy: WatermarkStrategy
    idle_after: int | None = None
    partitions: tuple[str, ...] = ()


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
        rows: Rows as they are.
        partials: What `Operator.prepare` made of others.
        seen: What the source partitions showed, in order of arrival.
        now: Processing time by the heartbeat, or None where none came with this batch.
        first_now: What to take for processing time until there was a heartbeat.
        ended: No more rows will ever come, so event time goes to its end.
    """

    rows: list[pl.DataFrame] = field(default_factory=list)
    partials: list[pl.DataFrame] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    now: int | None = None
    first_now: int | None = None
    ended: bool = False


@dataclass(frozen=True)
class Departures:
    """What left one key group in one batch, and the time it has reached."""

    outcome: Outcome
    watermark: int
    now: int


class Group:
    """Runs one operator on one key group.

    Args:
        operator: What the stage does.
        inputs: How the time of each input advances; the index is `Seen.input`.
        schema: The columns of the rows.
        report: Keep a sketch of the lateness; one group of a stage is enough.
    """

    def __init__(
        self, operator: Operator, inputs: tuple[Timekeeping, ...], schema: pl.Schema, *, report: bool = False
    ) -> None:
        self._operator = operator
        self._inputs = inputs
        self._schema = schema
        self._report = report

    def turn(self, segments: Segments, arrivals: Arrivals) -> Departures:
        """Take one turn and keep what must be kept."""
        saved = self._load(segments)
        now: int = saved["now"]
        if arrivals.now is not None:
            now = max(now, arrivals.now)
        elif now == BEGINNING and arrivals.first_now is not None:
            now = arrivals.first_now
        watermark = self._advance(saved, arrivals, now)
        saved["now"] = now
        segments.put(_CLOCK, record_to_bytes(saved))
        rows = pl.concat(arrivals.rows) if arrivals.rows else self._schema.to_frame()
        partials = pl.concat(arrivals.partials) if arrivals.partials else None
        outcome = self._operator.turn(_Own(segments), Turn(rows, watermark, now, partials))
        return Departures(outcome, watermark if outcome.watermark is None else outcome.watermark, now)

    def _load(self, segments: Segments) -> dict[str, Any]:
        shape = self._operator.fingerprint()
        value = segments.get(_CLOCK)
        if value is None:
            return {"shape": shape, "now": BEGINNING, "watermark": BEGINNING, "inputs": [None] * len(self._inputs)}
        saved = record_from_bytes(value)
        if saved["shape"] != shape:
            before, after = saved["shape"], shape
            changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
            differences = "; ".join(f"{name} was {before.get(name)!r}, is {after.get(name)!r}" for name in changed)
            raise StateError(
                f"the saved state does not fit the job: {differences}",
                hint="Start the job afresh (--fresh), give the changed job another name, or undo the change.",
            )
        return saved

    def _advance(self, saved: dict[str, Any], arrivals: Arrivals, now: int) -> int:
        trackers = [
            WatermarkTracker(each.strategy, each.idle_after, keep_lateness=self._report, state=state)
            for each, state in zip(self._inputs, saved["inputs"], strict=True)
        ]
        for each, tracker in zip(self._inputs, trackers, strict=True):
            tracker.register(each.partitions, now)
        for seen in arrivals.seen:
            trackers[seen.input].observe(seen.partition, seen.observation, now)
        reached = END if arrivals.ended else min(tracker.advance(now) for tracker in trackers)
        saved["inputs"] = [tracker.state() for tracker in trackers]
        saved["watermark"] = max(saved["watermark"], reached)
        watermark: int = saved["watermark"]
        return watermark


class _Own:
    """The operator's own segments, apart from the engine's."""

    def __init__(self, segments: Segments) -> None:
        self._segments = segments

    def get(self, name: str) -> bytes | None:
        return self._segments.get(f"op/{name}")

    def put(self, name: str, value: bytes) -> None:
        self._segments.put(f"op/{name}", value)

    def delete(self, name: str) -> None:
        self._segments.delete(f"op/{name}")
