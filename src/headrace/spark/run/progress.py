"""What a running query says of itself: events that a terminal view, a log or a program can follow."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from headrace.time.instants import moment

State = Literal["starting", "warming", "running", "restarting", "stopping", "stopped", "failed"]


@dataclass(frozen=True)
class StateChange:
    """The query entered a state.

    >>> StateChange("warming", "first batch").to_dict()
    {'event': 'state', 'state': 'warming', 'detail': 'first batch'}
    """

    state: State
    detail: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Give the event as JSON values."""
        return {"event": "state", "state": self.state, "detail": self.detail}


@dataclass(frozen=True)
class JobFigures:
    """What one job did in a batch.

    Args:
        events: Events that it took in.
        results: Result rows written.
        late: Late events written.
        dead_letters: Dead letters by reason, of rows that the job could not use.
        partitions: Where each source partition stands, as `headrace.time.watermarks.PartitionReport` has it.
    """

    events: int = 0
    results: int = 0
    late: int = 0
    dead_letters: dict[str, int] = field(default_factory=dict)
    partitions: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class BatchDone:
    """One micro-batch is out.

    Args:
        batch: Its number.
        rows_in: Events read.
        results: Result rows written.
        late: Late events written.
        dead_letters: Dead letters written.
        duration_ms: How long the batch took before this one; Spark tells only when a batch is over. None at first.
        watermark: The least watermark of the jobs, in microseconds, or None while there is none.
        backlog: Events that are in Kafka and not yet read, or None while it is not known.
        limit: The most events that the next batch may read.
        watermarks: The watermark of each job, in microseconds.
        state_rows: Entries in the state store, or None while that is not known.
        state_bytes: Memory of the state store, likewise.
        phases: Milliseconds that each part of the batch before this one took, in Spark's words.
        counters: What the steps of each job have counted in this batch: rows that a filter dropped, events that were
            enriched or not.
        batch_id: Names the batch by what it has read; the same when it is repeated, and in the log.
        seconds: How long it took from its plan to its commit.
        jobs: What each job did.
        unreadable: Dead letters by reason, of records that no job could read.
        backlogs: Events not yet read, by topic and partition.
    """

    batch: int
    rows_in: int
    results: int
    late: int
    dead_letters: int
    duration_ms: int | None
    watermark: int | None
    backlog: int | None
    limit: int | None = None
    watermarks: dict[str, int] = field(default_factory=dict)
    state_rows: int | None = None
    state_bytes: int | None = None
    phases: dict[str, int] = field(default_factory=dict)
    counters: dict[str, dict[str, int]] = field(default_factory=dict)
    batch_id: str = ""
    seconds: float = 0.0
    jobs: dict[str, JobFigures] = field(default_factory=dict)
    unreadable: dict[str, int] = field(default_factory=dict)
    backlogs: dict[tuple[str, int], int] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Give the event as JSON values, without what is told per job and partition: metrics have that."""
        least = None if self.watermark is None else moment(self.watermark)
        lag = None if least is None else round((datetime.now(UTC) - least).total_seconds() * 1000)
        return {
            "event": "progress",
            "batch": self.batch,
            "batch_id": self.batch_id,
            "rows_in": self.rows_in,
            "results": self.results,
            "late": self.late,
            "dead_letters": self.dead_letters,
            "duration_ms": self.duration_ms,
            "watermark": None if least is None else least.isoformat(),
            "watermark_lag_ms": lag,
            "backlog": self.backlog,
            "limit": self.limit,
            "watermarks": {job: at.isoformat() for job, mark in self.watermarks.items() if (at := moment(mark))},
            "state_rows": self.state_rows,
            "state_bytes": self.state_bytes,
            "phases": self.phases,
            "counters": self.counters,
        }


@dataclass(frozen=True)
class JobChange:
    """One job of the query goes another way than the others.

    Args:
        job: Its name.
        state: "stopped": its own code failed, and the others go on without it; "catching_up": it takes in what came
            while it was stopped; "returned": it takes part again.
        detail: Why, or how far.

    >>> JobChange("counts", "stopped", "KeyError: 'line'").to_dict()["state"]
    'stopped'
    """

    job: str
    state: Literal["stopped", "catching_up", "returned"]
    detail: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Give the event as JSON values."""
        return {"event": "job", "job": self.job, "state": self.state, "detail": self.detail}


@dataclass(frozen=True)
class DeadLetterAlarm:
    """Most of the input becomes dead letters, or no longer does.

    Args:
        active: Whether it does.
        share: Of the recent records, 0 to 1.
        records: How many recent records that is a share of.
        reason: Why the first of them was refused.
        sample: The start of that record, with control characters escaped.
    """

    active: bool
    share: float
    records: int
    reason: str
    sample: str

    @property
    def text(self) -> str:
        """What is to be said about it."""
        told = f"{100 * self.share:.0f} % of the last {self.records:,} records became dead letters"
        if not self.active:
            return f"{told}: no longer most of them."
        return f"{told}. The first reason: {self.reason}. Sample: {self.sample}"

    def to_dict(self) -> dict[str, Any]:
        """Give the event as JSON values."""
        return {
            "event": "dead_letters",
            "state": "most" if self.active else "cleared",
            "share": round(self.share, 4),
            "records": self.records,
            "reason": self.reason,
            "sample": self.sample,
            "text": self.text,
        }


RunEvent = StateChange | BatchDone | JobChange | DeadLetterAlarm
