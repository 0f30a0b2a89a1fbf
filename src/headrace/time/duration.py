"""Durations as people write them: "1s", "5 min", "250ms", a timedelta, or whole microseconds."""

from __future__ import annotations

import re
from datetime import timedelta

from headrace.errors import PlanError

MICROSECOND = 1
MILLISECOND = 1_000
SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

_UNITS = {
    "us": MICROSECOND,
    "ms": MILLISECOND,
    "s": SECOND,
    "sec": SECOND,
    "min": MINUTE,
    "m": MINUTE,
    "h": HOUR,
    "d": DAY,
}
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*")


def micros(duration: str | timedelta | int, *, what: str = "duration") -> int:
    """Turn a duration into whole microseconds.

    Args:
        duration: "30s", "5min", "1h 30m", "250ms", "10us", a timedelta, or an int of microseconds.
        what: What the duration is for, named in the error.

    >>> micros("1s"), micros("1h 30m"), micros(timedelta(milliseconds=5)), micros(7)
    (1000000, 5400000000, 5000, 7)
    """
    if isinstance(duration, timedelta):
        return duration // timedelta(microseconds=1)
    if isinstance(duration, int) and not isinstance(duration, bool):
        return duration
    if isinstance(duration, str):
        position, total = 0, 0.0
        for part in _PART.finditer(duration):
            if part.start() != position or part[2] not in _UNITS:
                break
            total += float(part[1]) * _UNITS[part[2]]
            position = part.end()
        if position == len(duration) and duration.strip():
            return round(total)
    raise PlanError(
        f"{what} {duration!r} is not a duration",
        hint=f'Write a number and a unit, such as "30s" or "1h 30m"; units: {", ".join(_UNITS)}.',
    )


def text(duration: int) -> str:
    """Write microseconds as people read them.

    >>> text(5_000_000), text(90_000_000), text(1_500), text(0)
    ('5s', '1min 30s', '1ms 500us', '0s')
    """
    if duration < 0:
        return f"-{text(-duration)}"
    parts = []
    for name, unit in (
        ("d", DAY),
        ("h", HOUR),
        ("min", MINUTE),
        ("s", SECOND),
        ("ms", MILLISECOND),
        ("us", MICROSECOND),
    ):
        count, duration = divmod(duration, unit)
        if count:
            parts.append(f"{count}{name}")
    return " ".join(parts) or "0s"
