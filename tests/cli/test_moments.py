"""Moments as people type them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.cli.moments import moment
from headrace.cli.options import UsageError

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("now", NOON),
        ("start", datetime(1970, 1, 1, tzinfo=UTC)),
        ("5m ago", NOON - timedelta(minutes=5)),
        ("1h 30m ago", NOON - timedelta(minutes=90)),
        (" 250ms AGO ", NOON - timedelta(milliseconds=250)),
        ("11:30", NOON - timedelta(minutes=30)),
        ("11:30:15+02:00", datetime(2026, 3, 1, 9, 30, 15, tzinfo=UTC)),
        ("2026-02-28", datetime(2026, 2, 28, tzinfo=UTC)),
        ("2026-02-28T23:00:00-01:00", datetime(2026, 3, 1, tzinfo=UTC)),
        ("2026-03-01T11:59:59.5Z", NOON - timedelta(milliseconds=500)),
    ],
)
def test_understood(text: str, expected: datetime) -> None:
    assert moment(text, now=NOON) == expected


@pytest.mark.parametrize("text", ["", "soon", "5 ago", "ago", "25:00", "2026-02-30", "12:01", "2030-01-01"])
def test_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--from") as caught:
        moment(text, now=NOON)
    assert caught.value.hint


@settings(deadline=None, max_examples=200)
@given(text=st.text(max_size=20) | st.from_regex(r"[0-9T:+\-Z. ]{1,25}( ago)?", fullmatch=True))
def test_any_text_is_a_past_moment_or_refused(text: str) -> None:
    try:
        found = moment(text, now=NOON)
    except UsageError:
        return
    assert found.utcoffset() == timedelta(0)
    assert found <= NOON
