"""Moments as people type them: `14:30`, `2026-03-01T08:00`, `5m ago`, `start`.

A moment without a zone is UTC, as every time that Headrace prints.
"""

from __future__ import annotations

from datetime import UTC, datetime, time

from headrace.cli.options import UsageError
from headrace.errors import PlanError

_HINT = 'Give a time such as "14:30", "2026-03-01T08:00:00Z", "5m ago", "start" or "now".'


def moment(text: str, *, now: datetime, option: str = "--from") -> datetime:
    """Understand a moment.

    Args:
        text: What the user typed.
        now: What time it is, aware.
        option: The option it was given with, for the error.

    Raises:
        UsageError: It is no moment, or one in the future.

    >>> noon = datetime(2026, 3, 1, 12, tzinfo=UTC)
    >>> moment("5m ago", now=noon).isoformat(), moment("11:30", now=noon).isoformat()
    ('2026-03-01T11:55:00+00:00', '2026-03-01T11:30:00+00:00')
    >>> moment("2026-02-28T14:00:00+02:00", now=noon).isoformat()
    '2026-02-28T12:00:00+00:00'
    """
    words = text.strip().lower()
    if words == "now":
        return now
    if words in {"start", "beginning", "earliest"}:
        return datetime.fromtimestamp(0, UTC)
    if words.endswith("ago"):
        from headrace.time.duration import micros

        try:
            ago = micros(words.removesuffix("ago").strip(), what=option)
            return datetime.fromtimestamp(now.timestamp() - ago / 1e6, UTC)
        except (PlanError, OverflowError, OSError, ValueError):
            raise UsageError(f"{option} {text!r} is not a time", hint=_HINT) from None
    found = _absolute(text.strip(), now)
    if found is None:
        raise UsageError(f"{option} {text!r} is not a time", hint=_HINT)
    if found > now:
        raise UsageError(
            f"{option} {text!r} is in the future: it is {now:%Y-%m-%d %H:%M:%S} UTC",
            hint="A time without a zone is UTC; add one, such as 14:30+02:00.",
        )
    return found


def _absolute(text: str, now: datetime) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        try:
            of_day = time.fromisoformat(text)
        except ValueError:
            return None
        found = datetime.combine(now.astimezone(of_day.tzinfo or UTC).date(), of_day)
    try:
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except OverflowError:
        return None
