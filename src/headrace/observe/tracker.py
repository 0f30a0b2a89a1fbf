"""Pairs latency markers with their results.

A marker has four instants, and the legs between them:

    t1 generated   when it was due to be made, by the schedule of whoever makes markers
    t2 ingested    when Kafka had acknowledged it                                        ingest  = t2 - t1
    t3 written     when its result was written, by Kafka's timestamp of the record       process = t3 - t2
    t4 seen        when a reader of results had it in hand                               deliver = t4 - t3
                                                                                         total   = t4 - t1

t1 is the time of the schedule, not that at which the program got round to it: a generator that stalls would otherwise
leave out just the moments in which things are slow (coordinated omission). A result of a window cannot come before its
window ends, so beside the total there is `beyond = t4 - due`, where `due` is the end of the window, or the time of the
event that completed a pattern.

What becomes of a marker:

- `seen`: its result came. An event in a sliding window takes part in several results; the first one counts.
- `overdue`: its result came later than `patience`; it counts in the figures all the same.
- `late`: the job refused its event as late. `lost`: nothing came within `patience`. Both count as never.
- `pending`: nothing came yet, and it is too early to say.

A result that came twice (the same idempotency key) is a duplicate.

The tracker is told what happens, in any order and from any thread; it has no clock of its own.

>>> tracker = Tracker(patience=10_000_000)
>>> tracker.generated("cells", 1, at=0, sent=200)
>>> tracker.ingested("cells", 1, at=3_000)
>>> tracker.seen("cells", 1, Sighting("a", due=5_000_000, written=5_400_000, seen=5_450_000))
>>> tracker.outcomes(now=20_000_000).select("status", "total", "beyond").row(0)
('seen', 5.45, 0.45)
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Literal

import polars as pl

from headrace.errors import PlanError
from headrace.time.duration import SECOND
from headrace.time.instants import INSTANT

Status = Literal["seen", "overdue", "late", "lost", "pending"]
STATUSES: tuple[Status, ...] = ("seen", "overdue", "late", "lost", "pending")

#: How long a result may take before its marker counts as lost, unless told otherwise.
PATIENCE = 60 * SECOND

#: Columns of `Tracker.outcomes`: what is known of each marker, then the legs in seconds.
SCHEMA = pl.Schema(
    {
        "job": pl.String(),
        "marker": pl.Int64(),
        "status": pl.String(),
        "generated": INSTANT,
        "sent": INSTANT,
        "ingested": INSTANT,
        "due": INSTANT,
        "written": INSTANT,
        "seen": INSTANT,
        "seen_uncommitted": INSTANT,
        "results": pl.Int64(),
        "duplicates": pl.Int64(),
    }
)
LEGS = ("total", "ingest", "process", "deliver", "beyond", "uncommitted", "slip")


@dataclass(frozen=True, slots=True)
class Sighting:
    """A result that belongs to a marker.

    Args:
        result: What no other result has: its idempotency key.
        due: The earliest instant at which it could be known: the end of its window, or the time of its event.
        written: Kafka's timestamp of the record.
        seen: When it was in hand. Instants are microseconds since the epoch.
    """

    result: str
    due: int
    written: int
    seen: int


@dataclass(slots=True)
class _Marker:
    generated: int
    sent: int
    ingested: int | None = None
    first: Sighting | None = None
    uncommitted: int | None = None
    late: bool = False
    results: set[str] = field(default_factory=set)
    duplicates: int = 0

    def status(self, now: int, patience: int) -> Status:
        if self.first is not None:
            return "seen" if self.first.seen - self.generated <= patience else "overdue"
        if self.late:
            return "late"
        return "lost" if now - self.generated > patience else "pending"


class Tracker:
    """Knows every marker, and what became of it.

    Args:
        patience: Microseconds after which a marker without a result is lost.
    """

    def __init__(self, *, patience: int = PATIENCE) -> None:
        if patience <= 0:
            raise PlanError(f"a patience of {patience} us", hint="Give the time that a result may take, above 0.")
        self.patience = patience
        self._markers: dict[tuple[str, int], _Marker] = {}
        self._strangers = 0
        self._lock = threading.Lock()

    @property
    def strangers(self) -> int:
        """Results of markers that this tracker did not make: another one is at work on the same topics."""
        return self._strangers

    def generated(self, job: str, marker: int, *, at: int, sent: int) -> None:
        """A marker was made.

        Args:
            job: For which job.
            marker: Its number, which no other marker of the job has.
            at: When it was due (t1).
            sent: When it was really handed to the producer.

        Raises:
            PlanError: There is such a marker already.
        """
        with self._lock:
            if (job, marker) in self._markers:
                raise PlanError(f"marker {marker} of {job} was made twice", hint="Give every marker a new number.")
            self._markers[job, marker] = _Marker(at, sent)

    def ingested(self, job: str, marker: int, *, at: int) -> None:
        """Kafka has acknowledged a marker (t2)."""
        with self._lock:
            found = self._find(job, marker)
            if found is not None and found.ingested is None:
                found.ingested = at

    def seen(self, job: str, marker: int, sighting: Sighting) -> None:
        """A reader of committed results has one that belongs to a marker (t3, t4)."""
        with self._lock:
            found = self._find(job, marker)
            if found is None:
                return
            if sighting.result in found.results:
                found.duplicates += 1
                return
            found.results.add(sighting.result)
            if found.first is None:
                found.first = sighting

    def seen_uncommitted(self, job: str, marker: int, *, at: int) -> None:
        """A reader that does not wait for the transaction's end has a marker's result."""
        with self._lock:
            found = self._find(job, marker)
            if found is not None and found.uncommitted is None:
                found.uncommitted = at

    def refused(self, job: str, marker: int) -> None:
        """The job wrote a marker's event to its late topic."""
        with self._lock:
            found = self._find(job, marker)
            if found is not None:
                found.late = True

    def _find(self, job: str, marker: int) -> _Marker | None:
        found = self._markers.get((job, marker))
        if found is None:
            self._strangers += 1
        return found

    def waiting(self, *, now: int) -> int:
        """How many markers have no outcome yet."""
        with self._lock:
            return sum(marker.status(now, self.patience) == "pending" for marker in self._markers.values())

    def outcomes(self, *, now: int) -> pl.DataFrame:
        """Tell what became of every marker by now.

        Returns:
            A frame with the columns of `SCHEMA`, and the legs in seconds, null where an end of them is not known:
            `total`, `ingest`, `process`, `deliver`, `beyond` (see the module), `uncommitted` (from `due` to a reader
            that does not wait for transactions), `slip` (how late the generator was).
        """
        with self._lock:
            rows = [
                (
                    job,
                    number,
                    marker.status(now, self.patience),
                    marker.generated,
                    marker.sent,
                    marker.ingested,
                    *((marker.first.due, marker.first.written, marker.first.seen) if marker.first else (None,) * 3),
                    marker.uncommitted,
                    len(marker.results),
                    marker.duplicates,
                )
                for (job, number), marker in self._markers.items()
            ]
        plain = pl.Schema({name: pl.Int64() if kind == INSTANT else kind for name, kind in SCHEMA.items()})
        frame = pl.DataFrame(rows, schema=plain, orient="row").cast(SCHEMA)
        return with_legs(frame).sort("generated", "job")


def with_legs(outcomes: pl.DataFrame) -> pl.DataFrame:
    """Add the legs, in seconds, to a frame with the columns of `SCHEMA`."""

    def seconds(end: str, begin: str) -> pl.Expr:
        return (pl.col(end) - pl.col(begin)).dt.total_microseconds() / SECOND

    return outcomes.with_columns(
        total=seconds("seen", "generated"),
        ingest=seconds("ingested", "generated"),
        process=seconds("written", "ingested"),
        deliver=seconds("seen", "written"),
        beyond=seconds("seen", "due"),
        uncommitted=seconds("seen_uncommitted", "due"),
        slip=seconds("sent", "generated"),
    )
