"""The latency report: what the markers of each job say, with how sure it is.

>>> import polars as pl
>>> from headrace.observe.tracker import Sighting, Tracker
>>> tracker = Tracker(patience=60_000_000)
>>> for number in range(40):
...     tracker.generated("cells", number, at=number * 1_000_000, sent=number * 1_000_000)
...     tracker.ingested("cells", number, at=number * 1_000_000 + 2_000)
...     answer = Sighting(str(number), due=0, written=number * 1_000_000 + 300_000, seen=number * 1_000_000 + 310_000)
...     tracker.seen("cells", number, answer)
>>> report = latency_report(tracker.outcomes(now=200_000_000))
>>> report["cells"].legs["total"].quantiles[0].value, report["cells"].count("lost")
(0.31, 0)
>>> report["cells"].warnings
['p99 of 40 values: its confidence interval needs 368']
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from headrace.observe.quantiles import Summary, summarise
from headrace.observe.tracker import LEGS, STATUSES, Status, with_legs

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

#: What each leg is, for reports.
LEG_TEXTS: Mapping[str, str] = {
    "total": "generated -> seen",
    "ingest": "generated -> acknowledged by Kafka",
    "process": "acknowledged -> result written",
    "deliver": "result written -> seen",
    "beyond": "result due (end of its window, time of its event) -> seen",
    "uncommitted": "result due -> seen by a reader that does not wait for the transaction",
    "slip": "generator behind its schedule",
}
#: Legs that have no value for a marker whose result never came: there it counts as infinite.
_ENDLESS = ("total", "beyond")
#: Seconds by which the generator may be late before the figures are doubtful.
SLIP = 0.1


@dataclass(frozen=True)
class JobLatency:
    """What the markers of one job say.

    Args:
        job: Whose.
        statuses: How many markers ended how.
        duplicates: Results that came more than once.
        legs: A summary of each leg that was seen, in seconds.
    """

    job: str
    statuses: Mapping[Status, int]
    duplicates: int
    legs: Mapping[str, Summary]

    def count(self, *statuses: Status) -> int:
        """How many markers ended so."""
        return sum(self.statuses.get(status, 0) for status in statuses)

    @property
    def markers(self) -> int:
        """How many markers have an outcome."""
        return self.count("seen", "overdue", "late", "lost")

    @property
    def warnings(self) -> list[str]:
        """What to know before believing the figures."""
        told = self.legs["total"].warnings if "total" in self.legs else ["no marker came back"]
        slip = self.legs.get("slip")
        if slip is not None and slip.quantiles and slip.quantiles[-1].value > SLIP:
            late = slip.quantiles[-1]
            told = [*told, f"the generator was late: {late.name} {late.value:.3f} s behind its schedule"]
        gone = self.count("lost", "late")
        if gone:
            told = [*told, f"{gone} of {self.markers} markers never came back; they count as infinite"]
        return told

    def to_dict(self) -> dict[str, Any]:
        """Give it as JSON can hold it."""
        return {
            "job": self.job,
            "markers": self.markers,
            "statuses": {status: self.statuses.get(status, 0) for status in STATUSES},
            "duplicates": self.duplicates,
            "legs": {name: summary.to_dict() for name, summary in self.legs.items()},
            "warnings": self.warnings,
        }


def latency_report(outcomes: pl.DataFrame) -> dict[str, JobLatency]:
    """Summarise what became of markers, per job.

    Args:
        outcomes: From `Tracker.outcomes`.
    """
    report = {}
    for (job,), frame in outcomes.group_by("job", maintain_order=True):
        statuses: dict[Status, int] = {status: frame.filter(pl.col("status") == status).height for status in STATUSES}
        gone = statuses["lost"] + statuses["late"]
        legs = {}
        for leg in LEGS:
            values = frame.get_column(leg).drop_nulls()
            if len(values):
                legs[leg] = summarise(values.to_numpy(), lost=gone if leg in _ENDLESS else 0)
        report[str(job)] = JobLatency(str(job), statuses, int(frame.get_column("duplicates").sum()), legs)
    return dict(sorted(report.items()))


def write_outcomes(outcomes: pl.DataFrame, path: Path) -> None:
    """Write what became of every marker to a file: Parquet if its name says so, CSV otherwise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        outcomes.write_parquet(path)
    else:
        outcomes.write_csv(path)


def read_outcomes(path: Path) -> pl.DataFrame:
    """Read such a file again."""
    if path.suffix == ".parquet":
        return pl.read_parquet(path)
    from headrace.observe.tracker import SCHEMA

    return with_legs(pl.read_csv(path, schema_overrides=dict(SCHEMA)).select(list(SCHEMA)))


def seconds(value: float) -> str:
    """Write a latency as people read it.

    >>> seconds(1.234), seconds(0.0123), seconds(float("inf")), seconds(float("nan"))
    ('1.23 s', '12 ms', 'never', '-')
    """
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return "never"
    return f"{value:.2f} s" if abs(value) >= 1 else f"{value * 1000:.0f} ms"
