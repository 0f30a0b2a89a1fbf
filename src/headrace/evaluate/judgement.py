"""Whether a trial says anything, and whether its volume was held.

A trial is **valid** if the load was the one that was asked for: the generator kept its schedule all the time, and no
part ended. Figures of a trial that is not valid are kept, shown as such, and counted nowhere.

A volume is **held** if the backlog in Kafka stays flat: the median of its last third is no more than a second of
events above that of its first third, and no window or marker is missing at the end. Single values go up and down with
every micro-batch; medians of thirds do not.

>>> judge_backlog([(second, 500.0 + 300 * (second % 2)) for second in range(60)], rate=700).held
True
>>> judge_backlog([(second, 100.0 * second) for second in range(60)], rate=700).held
False
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Seconds of events by which the backlog may rise.
RISE = 1.0
#: Seconds that the generator may be behind its schedule.
BEHIND = 1.0
#: Cores that somebody else may use before a trial is doubtful.
FOREIGN_CORES = 0.15
_FEWEST = 6


@dataclass(frozen=True)
class Backlog:
    """What the backlog did.

    Args:
        first: Median of the first third, in events.
        last: Median of the last third.
        most: The largest.
        held: Whether it stayed flat; None if there were too few values to say.
    """

    first: float
    last: float
    most: float
    held: bool | None

    def to_dict(self) -> dict[str, Any]:
        """Give it as JSON can hold it."""
        return {"first": self.first, "last": self.last, "most": self.most, "held": self.held}


def judge_backlog(series: Sequence[tuple[float, float]], *, rate: float) -> Backlog:
    """Say whether a backlog is flat.

    Args:
        series: Pairs of a time and a number of events, over the time measured.
        rate: Events a second that come in.
    """
    values = [value for _, value in sorted(series)]
    if len(values) < _FEWEST:
        return Backlog(0.0, 0.0, max(values, default=0.0), None)
    third = len(values) // 3
    first, last = statistics.median(values[:third]), statistics.median(values[-third:])
    return Backlog(first, last, max(values), last - first <= RISE * rate)


@dataclass(frozen=True)
class LoadKept:
    """Whether the generator did what was asked.

    Args:
        valid: Whether it kept its schedule.
        rate: Events a second that it sent.
        most_behind: Seconds that it was behind its schedule, at most.
        reasons: Why it is not valid, in words.
    """

    valid: bool
    rate: float
    most_behind: float
    reasons: tuple[str, ...] = ()


def judge_load(reports: Sequence[dict[str, Any]], *, begin: int, end: int, wanted: float) -> LoadKept:
    """Say whether the load was the one asked for.

    Args:
        reports: What the generator said, with `at`, `events` and `behind`.
        begin: Of the time measured, in microseconds.
        end: Of the time measured.
        wanted: Events a second.
    """
    within = [report for report in reports if begin <= report["at"] <= end]
    if len(within) < 2:
        return LoadKept(False, 0.0, 0.0, ("the load generator said nothing while it was measured",))
    seconds = (within[-1]["at"] - within[0]["at"]) / 1e6
    rate = (within[-1]["events"] - within[0]["events"]) / seconds
    behind = max(float(report["behind"]) for report in within)
    reasons = []
    if behind > BEHIND:
        reasons.append(f"the load generator fell {behind:.1f} s behind its schedule")
    if rate < 0.97 * wanted:
        reasons.append(f"the load generator sent {rate:,.0f} events/s instead of {wanted:,.0f}")
    return LoadKept(not reasons, rate, behind, tuple(reasons))
