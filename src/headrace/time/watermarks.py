"""The watermark of a whole source, from the watermarks of its partitions.

Partitions move at their own speed, so each has a watermark of its own (see `headrace.time.strategies`), and the
watermark of the source is the minimum over those that are *active*. The rules of the tracker:

- **Monotone.** Neither a partition's watermark nor the source's ever goes back, also across restarts (the state is
  JSON).
- **A known partition holds back.** A partition that was registered but has not shown an event stands at BEGINNING.
- **Idle partitions do not.** A partition without events for `idle_after` of processing time leaves the minimum, and
  comes back with its next event. Its older events are then late if the others have gone on.
- **All idle:** the watermark goes to the *maximum* of the partitions and stays there: no partition holds another
  back, and none is expected to bring more. `all_idle="hold"` keeps the minimum; `all_idle="clock"` lets the watermark
  go on with the clock from there, so that the last windows fire without a further event, at the risk that events
  after an outage are late.
- **Absurd timestamps are left out** by the strategy, and once more here: what is more than `max_ahead` past `now`
  does not move a watermark.
- **Idleness is measured by a steady clock** where the caller has one: `now` may be set forward or back while a
  partition is silent. Without one, a clock that is set back restarts the silence of the partitions that were active
  after that time; it does not keep them active until the clock has caught up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from headrace.errors import PlanError, StateError
from headrace.time.clocks import clock_report
from headrace.time.duration import micros
from headrace.time.instants import BEGINNING
from headrace.time.strategies import (
    Observation,
    Percentile,
    WatermarkStrategy,
    absurd,
    ascending,
    bounded,
    lateness_quantile,
    percentile,
    perfect,
    punctuated,
    remember,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta

AllIdle = Literal["max", "hold", "clock"]

_VERSION = 1


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """Where one partition stands.

    Args:
        partition: Its name.
        watermark: Its own watermark, microseconds since the epoch.
        newest: Its newest timestamp, or None.
        idle: Whether it is left out of the minimum.
        holds_back: Whether it is the one that keeps the source's watermark where it is.
        behind: How far it is behind the furthest partition, in microseconds.
        rows: Events seen.
        absurd: Events left out for an absurd timestamp.
        lateness: Lateness seen (microseconds behind the newest event before it) at p50, p90, p99, p999 and max.
        recommended_delay: A delay that would have kept the wanted share of the events on time.
        ahead: Events that were further past their ingestion than the strategy's `clock_tolerance`.
        clocks: What was seen of the clocks of keys (`headrace.time.clocks`); None if the strategy does not know them.
    """

    partition: str
    watermark: int
    newest: int | None
    idle: bool
    holds_back: bool
    behind: int
    rows: int
    absurd: int
    lateness: dict[str, int]
    recommended_delay: int
    ahead: int = 0
    clocks: dict[str, Any] | None = None


class WatermarkTracker:
    """Keeps the watermark of every partition of a source, and their minimum.

    Args:
        strategy: How a partition's watermark follows from its events.
        idle_after: A partition without events for this long is idle; None means never.
        all_idle: What happens when every partition is idle; see the module.
        keep_lateness: Keep a sketch of the lateness per partition for reports; percentile strategies always do.
        state: What `state()` of an earlier tracker gave, to go on from.

    >>> tracker = WatermarkTracker(bounded("1s"), idle_after="30s")
    >>> tracker.observe("a", {"rows": 1, "newest": 9_000_000, "oldest": 9_000_000, "sample": [], "latest_by": 0}, now=0)
    >>> tracker.observe("b", {"rows": 1, "newest": 5_000_000, "oldest": 5_000_000, "sample": [], "latest_by": 0}, now=0)
    >>> tracker.advance(now=0)
    4000000
    >>> [report.partition for report in tracker.report(now=0) if report.holds_back]
    ['b']
    """

    def __init__(
        self,
        strategy: WatermarkStrategy,
        idle_after: str | timedelta | int | None = None,
        *,
        all_idle: AllIdle = "max",
        keep_lateness: bool = True,
        state: dict[str, Any] | None = None,
    ) -> None:
        self.strategy = strategy
        self.idle_after = None if idle_after is None else micros(idle_after, what="idle_after")
        if self.idle_after is not None and self.idle_after <= 0:
            raise PlanError(f"idle_after is {idle_after!r}", hint="Give a time above zero, or None for never.")
        self.all_idle = all_idle
        self._sketch = keep_lateness or isinstance(strategy, Percentile)
        state = state or {"version": _VERSION, "watermark": BEGINNING, "partitions": {}}
        if state.get("version") != _VERSION:
            raise StateError(
                f"the saved watermark has version {state.get('version')}, this is {_VERSION}",
                hint="Start the job afresh, or with the version of Headrace that wrote it.",
            )
        self._watermark: int = state["watermark"]
        self._partitions: dict[str, dict[str, Any]] = {name: dict(entry) for name, entry in state["partitions"].items()}

    @property
    def watermark(self) -> int:
        """The watermark as the last `advance` left it."""
        return self._watermark

    def state(self) -> dict[str, Any]:
        """Return all that must be kept to go on later, as JSON values."""
        return {
            "version": _VERSION,
            "watermark": self._watermark,
            "partitions": {name: dict(entry) for name, entry in self._partitions.items()},
        }

    def register(self, partitions: Iterable[str], now: int) -> None:
        """Make partitions known before their first event, so that they hold the watermark back until they are idle."""
        for partition in partitions:
            self._partitions.setdefault(partition, {"watermark": BEGINNING, "active_at": now, "seen": {}})

    def observe(self, partition: str, observation: Observation, now: int, *, steady: int | None = None) -> None:
        """Take in what a strategy observed in one partition; an empty observation only makes the partition known.

        Args:
            partition: Name of the source partition, unique in the source.
            observation: From `strategy.observe`, or `{"watermark": W}` from a source that knows.
            now: Processing time of the batch.
            steady: The same by the clock that idleness is measured with; `now` if not given.
        """
        clock = now if steady is None else steady
        self.register([partition], clock)
        entry = self._partitions[partition]
        # Second line of defence: `observe` runs where the clock may be wrong or no ingestion time is known.
        ahead = self.strategy.max_ahead
        newest = observation.get("newest")
        if ahead is not None and newest is not None and BEGINNING < now < newest - ahead:
            observation = {"rows": 0, "absurd": observation.get("absurd", 0) + observation["rows"]}
        seen = remember(entry["seen"], observation, sketch=self._sketch)
        entry["seen"] = seen
        entry["watermark"] = max(entry["watermark"], self.strategy.watermark(seen))
        if observation.get("rows") or "watermark" in observation:
            entry["active_at"] = clock

    def is_idle(self, partition: str, now: int) -> bool:
        """Tell whether a partition has been without events for too long."""
        return self.idle_after is not None and now - self._partitions[partition]["active_at"] >= self.idle_after

    def advance(self, now: int) -> int:
        """Return the watermark of the source; it never goes back.

        Args:
            now: The time that idleness is measured by: what `observe` was given as `steady`, else processing time.
        """
        if not self._partitions:
            return self._watermark
        for entry in self._partitions.values():
            # Rows came before anybody had said what time it is: they are as old as the first time that is known.
            # A time in the future was read from a clock that has been set back since.
            entry["active_at"] = now if entry["active_at"] == BEGINNING else min(entry["active_at"], now)
        active = [entry["watermark"] for name, entry in self._partitions.items() if not self.is_idle(name, now)]
        candidate = min(active) if active else self._when_all_idle(now)
        self._watermark = max(self._watermark, candidate)
        return self._watermark

    def report(self, now: int, *, share: float = 0.999) -> list[PartitionReport]:
        """Say where each partition stands, which one holds the others back, and what delay their lateness calls for.

        Args:
            now: Processing time.
            share: The share of the events that the recommended delay keeps on time.
        """
        active = {name: entry["watermark"] for name, entry in self._partitions.items() if not self.is_idle(name, now)}
        lowest = min(active.values(), default=None)
        furthest = max((entry["watermark"] for entry in self._partitions.values()), default=BEGINNING)
        reports = []
        for name, entry in sorted(self._partitions.items()):
            seen = entry["seen"]
            lateness = {label: lateness_quantile(seen, q) for label, q in _LEVELS.items()}
            lateness["max"] = seen.get("max_lateness", 0)
            reports.append(
                PartitionReport(
                    partition=name,
                    watermark=entry["watermark"],
                    newest=seen.get("newest"),
                    idle=name not in active,
                    holds_back=name in active and entry["watermark"] == lowest < max(active.values()),
                    behind=furthest - entry["watermark"],
                    rows=seen.get("rows", 0),
                    absurd=seen.get("absurd", 0),
                    lateness=lateness,
                    recommended_delay=lateness_quantile(seen, share),
                    ahead=seen.get("ahead", 0),
                    clocks=clock_report(seen.get("clocks", {})),
                )
            )
        return reports

    def recommended_delay(self, *, share: float = 0.999) -> int:
        """Return the delay that would have kept `share` of the events of every partition on time, in microseconds."""
        return max((lateness_quantile(entry["seen"], share) for entry in self._partitions.values()), default=0)

    def _when_all_idle(self, now: int) -> int:
        marks: list[int] = [entry["watermark"] for entry in self._partitions.values()]
        if self.all_idle == "hold":
            return min(marks)
        candidate = max(marks)
        if self.all_idle == "clock" and candidate > BEGINNING and self.idle_after is not None:
            quiet_since: int = max(entry["active_at"] for entry in self._partitions.values()) + self.idle_after
            candidate += now - quiet_since
        return candidate


_LEVELS = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}


__all__ = [
    "AllIdle",
    "PartitionReport",
    "WatermarkStrategy",
    "WatermarkTracker",
    "absurd",
    "ascending",
    "bounded",
    "percentile",
    "perfect",
    "punctuated",
]
