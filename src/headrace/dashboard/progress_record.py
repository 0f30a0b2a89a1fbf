"""Reads records of the topic `headrace.progress`. Anybody who may write there can write anything.

A record is taken as a whole or not at all. One that has a field of a wrong type, a number that is not finite or beyond
2^53, or a time far ahead of the clock, is malformed: it is counted and skipped, and what was known before stays, with
its age. Fields that are missing have a default, and fields that are not known are ignored, so that runs of another
version can be followed.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from headrace.dashboard.cleaning import MAX_SAFE_INTEGER, plain_text
from headrace.time.instants import instant

#: Bytes of a record, names in a list, and milliseconds that its time may be ahead of the clock.
MOST_BYTES = 1_000_000
MOST_NAMES = 1_000
MOST_AHEAD = 3_600_000

TOTALS = ("rows_in", "results", "late", "dead_letters")


class MalformedRecordError(ValueError):
    """A record of the progress topic does not say what it should."""


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """That most of the input of a query becomes dead letters.

    Args:
        share: Of the recent records, 0 to 1.
        records: How many recent records that is a share of.
        reason: Why the first of them was refused.
        sample: The start of that record.
    """

    share: float
    records: int
    reason: str
    sample: str


@dataclass(frozen=True, slots=True)
class ProgressRecord:
    """What a run says of itself. Times are in milliseconds."""

    query: str
    jobs: tuple[str, ...] = ()
    state: str = "unknown"
    detail: str = ""
    started: int = 0
    at: int = 0
    restarts: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    totals: dict[str, int] = field(default_factory=dict)
    batch: int | None = None
    batch_ms: int | None = None
    limit: int | None = None
    state_rows: int | None = None
    state_bytes: int | None = None
    phases: dict[str, int] = field(default_factory=dict)
    watermarks: dict[str, int] = field(default_factory=dict)
    dead_letters: DeadLetters | None = None
    counters: dict[str, dict[str, int]] = field(default_factory=dict)


def read_progress_record(value: bytes | None, *, wall: int) -> ProgressRecord:
    """Read a record.

    Args:
        value: Its bytes.
        wall: The clock of this machine, in milliseconds.

    Raises:
        MalformedRecordError: It is no progress record; the message says why.

    >>> read_progress_record(b'{"query": "speeds", "state": "running"}', wall=0).state
    'running'
    >>> read_progress_record(b'{"query": "speeds", "restarts": NaN}', wall=0)
    Traceback (most recent call last):
    headrace.dashboard.progress_record.MalformedRecordError: restarts is not a whole number
    """
    told = _object(_json(value), "the record")
    query = _text(told, "query")
    if not query:
        raise MalformedRecordError("query is missing")
    batch = _object(told.get("batch") or {}, "batch")
    totals = _object(told.get("totals") or {}, "totals")
    at = _whole(told, "at") or 0
    if at > wall + MOST_AHEAD:
        raise MalformedRecordError("at is far ahead of the clock")
    return ProgressRecord(
        query=query,
        jobs=tuple(_names(told.get("jobs") or [], "jobs")),
        state=_text(told, "state") or "unknown",
        detail=_text(told, "detail"),
        started=_whole(told, "started") or 0,
        at=at,
        restarts=_whole(told, "restarts") or 0,
        failed=_texts(told, "failed_jobs"),
        totals={name: _whole(totals, name) or 0 for name in TOTALS},
        batch=_whole(batch, "batch"),
        batch_ms=_whole(batch, "duration_ms"),
        limit=_whole(batch, "limit"),
        state_rows=_whole(batch, "state_rows"),
        state_bytes=_whole(batch, "state_bytes"),
        phases=_wholes(batch, "phases"),
        watermarks={job: _milliseconds(text, "watermarks") for job, text in _texts(batch, "watermarks").items()},
        dead_letters=_dead_letters(told.get("mostly_dead_letters")),
        counters=_counters(batch),
    )


def _json(value: bytes | None) -> object:
    if not value:
        raise MalformedRecordError("the record is empty")
    if len(value) > MOST_BYTES:
        raise MalformedRecordError(f"the record has {len(value):,} bytes")
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as problem:
        raise MalformedRecordError("the record is not JSON, or is nested too deeply") from problem


def _object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise MalformedRecordError(f"{what} is not an object")
    if len(value) > MOST_NAMES:
        raise MalformedRecordError(f"{what} has {len(value):,} fields")
    return value


def _text(told: dict[str, Any], name: str) -> str:
    value = told.get(name)
    if value is not None and not isinstance(value, str):
        raise MalformedRecordError(f"{name} is not a text")
    return plain_text(value or "")


def _whole(told: dict[str, Any], name: str) -> int | None:
    value = told.get(name)
    if value is None:
        return None
    # Not every JSON library writes 5 as 5: a float without a fraction is a whole number, too.
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise MalformedRecordError(f"{name} is not a whole number")
    if not 0 <= value <= MAX_SAFE_INTEGER:
        raise MalformedRecordError(f"{name} is negative or too large")
    return value


def _names(value: object, what: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise MalformedRecordError(f"{what} is not a list of names")
    if len(value) > MOST_NAMES:
        raise MalformedRecordError(f"{what} has {len(value):,} names")
    return [plain_text(name) for name in value]


def _texts(told: dict[str, Any], what: str) -> dict[str, str]:
    held = _object(told.get(what) or {}, what)
    return {plain_text(name): _text(held, name) for name in held}


def _wholes(told: dict[str, Any], what: str) -> dict[str, int]:
    held = _object(told.get(what) or {}, what)
    return {plain_text(name): _whole(held, name) or 0 for name in held}


def _counters(batch: dict[str, Any]) -> dict[str, dict[str, int]]:
    held = _object(batch.get("counters") or {}, "counters")
    return {plain_text(job): _wholes(held, job) for job in held}


def _milliseconds(text: str, what: str) -> int:
    try:
        return instant(datetime.fromisoformat(text)) // 1000
    except (ValueError, TypeError, OverflowError) as problem:
        raise MalformedRecordError(f"{what} has something that is not a time") from problem


def _dead_letters(value: object) -> DeadLetters | None:
    if value is None:
        return None
    told = _object(value, "mostly_dead_letters")
    share = told.get("share")
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise MalformedRecordError("share is not a number from 0 to 1")
    return DeadLetters(float(share), _whole(told, "records") or 0, _text(told, "reason"), _text(told, "sample"))
