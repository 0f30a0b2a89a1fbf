"""Instants: whole microseconds since the epoch inside, aware datetimes at the edges.

`BEGINNING` and `END` stand for "before everything" and "after everything". They are far outside of what a datetime can
hold, yet small enough that a duration can be added to them without leaving 64 bits.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl

#: The watermark before anything was seen.
BEGINNING = -(2**61)
#: The watermark of a source that has ended, and the end of the global window.
END = 2**61

#: The type of every instant in a frame.
INSTANT = pl.Datetime("us", "UTC")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def instant(value: datetime | int) -> int:
    """Turn an aware datetime into microseconds since the epoch; an int is taken as it is.

    >>> instant(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)), instant(7)
    (1000000, 7)
    """
    if isinstance(value, int):
        return value
    return (value - _EPOCH) // timedelta(microseconds=1)


def moment(value: int) -> datetime | None:
    """Turn microseconds since the epoch into an aware datetime, or None where no datetime can hold it.

    >>> moment(1_000_000)
    datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.timezone.utc)
    >>> moment(END) is None
    True
    """
    try:
        return _EPOCH + timedelta(microseconds=value)
    except OverflowError:
        return None
