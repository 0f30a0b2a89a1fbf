"""Fields: the values of one field in a batch of messages, read as a column.

A batch nearly always holds what its format promises. So a column is first looked at as a whole (which Python types are
in it?) and made at once; only if something does not fit, it is read value by value, to find out which and why. Both
ways give the same column for values that fit: what becomes of a message does not depend on the others in its batch.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import NoneType
from typing import TYPE_CHECKING, Any

import polars as pl
from polars.exceptions import PolarsError

from headrace.events.letters import SHOWABLE

if TYPE_CHECKING:
    from collections.abc import Callable

INSTANT = pl.Datetime("us", "UTC")
INT32 = 2**31 - 1
#: What making a column of unfit values may raise; a `UnicodeEncodeError` (half a surrogate pair) is a ValueError.
UNFIT = (OverflowError, TypeError, ValueError, PolarsError)

#: How nearly everybody writes a time.
ISO = "%Y-%m-%dT%H:%M:%S%.fZ"
#: Polars takes more than that for such a time: digits left out, spaces, a second 60.
_ISO_SHAPE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-5][0-9](\.[0-9]{1,9})?Z$"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Values = list[Any]


@dataclass(frozen=True, slots=True)
class Reader:
    """How the values of a field become a column.

    Args:
        dtype: The column's type.
        whole: Makes the column at once, or gives None (or raises what `UNFIT` lists) if a value may not fit.
        single: Reads one value that is not null; raises ValueError.
    """

    dtype: Any
    whole: Callable[[Values], pl.Series | None]
    single: Callable[[Any], Any]

    def read(self, values: Values) -> tuple[pl.Series, dict[int, str]]:
        """Make a column, with a null for every value that does not fit, and say which these are.

        >>> NUMBER.read([1, 2.5, None, "x"])[1]
        {3: "'x' is not a number"}
        """
        with contextlib.suppress(*UNFIT):
            series = self.whole(values)
            if series is not None:
                return series, {}
        wrong: dict[int, str] = {}
        found: Values = []
        for row, value in enumerate(values):
            try:
                found.append(None if value is None else self.single(value))
            except ValueError as error:
                wrong[row] = str(error)
                found.append(None)
        return pl.Series(found, dtype=self.dtype), wrong


def safe_texts(values: Values) -> pl.Series:
    """A column of texts that come from a topic; what cannot be written as UTF-8 becomes a question mark."""
    with contextlib.suppress(*UNFIT):
        return pl.Series(values, dtype=pl.String)
    return pl.Series([v and v.encode("utf-8", "replace").decode() for v in values], dtype=pl.String)


# ---------------------------------------------------------------- numbers


def numbers(values: Values) -> pl.Series | None:
    """A column of numbers, if all are."""
    if not set(map(type, values)) <= {float, int, NoneType}:
        return None
    series = pl.Series(values, dtype=pl.Float64, strict=False)
    nulls = sum(value is None for value in values)
    return series if series.null_count() == nulls and series.is_finite().all() else None


def number(value: Any) -> float:
    """One number."""
    if type(value) not in (float, int):
        raise ValueError(f"{show(value)} is not a number")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found):
        raise ValueError("the number is too large")
    return found


def between(least: float, most: float) -> Reader:
    """Read numbers of a range, such as degrees."""

    def all_of(values: Values) -> pl.Series | None:
        series = numbers(values)
        return series if series is not None and series.is_between(least, most).all() else None

    def one(value: Any) -> float:
        found = number(value)
        if not least <= found <= most:
            raise ValueError(f"{found!r} is not between {least:g} and {most:g}")
        return found

    return Reader(pl.Float64, all_of, one)


def integers(values: Values) -> pl.Series | None:
    """A column of whole numbers of 32 bits, if all are."""
    if not set(map(type, values)) <= {int, NoneType}:
        return None
    series = pl.Series(values, dtype=pl.Int64)
    return series.cast(pl.Int32) if series.is_between(-INT32, INT32).all() else None


def integer(value: Any, least: int = -INT32, most: int = INT32) -> int:
    """One whole number of a range."""
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int:
        raise ValueError(f"{show(value)} is not a whole number")
    if not least <= value <= most:
        raise ValueError("the number is too large")
    return int(value)


def flags(values: Values) -> pl.Series | None:
    """A column of truths from 0 and 1, if all are."""
    if set(map(type, values)) <= {bool, NoneType}:
        return pl.Series(values, dtype=pl.Boolean)
    series = integers(values)
    return series.cast(pl.Boolean) if series is not None and series.is_between(0, 1).all() else None


def flag(value: Any) -> bool:
    """One truth."""
    if type(value) in (int, bool) and value in (0, 1):
        return bool(value)
    raise ValueError(f"{show(value)} is neither 0 nor 1")


# ---------------------------------------------------------------- texts and times


def texts(values: Values) -> pl.Series | None:
    """A column of texts, if all are texts or all are whole numbers."""
    kinds = set(map(type, values))
    if kinds <= {str, NoneType}:
        return pl.Series(values, dtype=pl.String)
    if kinds <= {int, NoneType}:
        return pl.Series(values, dtype=pl.Int64).cast(pl.String)
    return None


def text(value: Any) -> str:
    """One text; a whole number will do."""
    if type(value) is int:
        return str(integer(value, -(2**63), 2**63 - 1))
    if type(value) is not str:
        raise ValueError(f"{show(value)} is not a text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("the text holds half of a character") from None
    return value


def iso_times(values: Values) -> pl.Series | None:
    """Microseconds since the epoch of times as `2020-09-21T03:00:00.963Z`, if all are."""
    if not set(map(type, values)) <= {str, NoneType}:
        return None
    series = pl.Series(values, dtype=pl.String)
    if not series.str.contains(_ISO_SHAPE).all():
        return None
    times = series.str.to_datetime(ISO, time_unit="us", strict=False).cast(pl.Int64)
    fit = times.null_count() == series.null_count() and times.is_between(*SHOWABLE).all()
    return times if fit else None


def iso_time(value: Any, zone: Any = UTC) -> int:
    """Microseconds since the epoch of one time; one that does not say its zone is of `zone`."""
    if type(value) is not str:
        raise ValueError(f"{show(value)} is not a time")
    try:
        found = datetime.fromisoformat(value)
        if found.tzinfo is None:
            found = found.replace(tzinfo=zone)
        return (found - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError):
        raise ValueError(f"{show(value)} is not a time") from None


def _instants(values: Values) -> pl.Series | None:
    found = iso_times(values)
    return None if found is None else found.cast(INSTANT)


def _instant(value: Any) -> datetime:
    try:
        return _EPOCH + timedelta(microseconds=iso_time(value))
    except OverflowError:  # its zone takes it out of the years that there are
        raise ValueError(f"{show(value)} is not a time") from None


def show(value: Any) -> str:
    """A value in a message to a person."""
    if isinstance(value, (dict, list)):
        return f"a JSON {'object' if isinstance(value, dict) else 'array'}"
    # Python does not show numbers of thousands of digits.
    found = ascii(value) if type(value) is not int or abs(value) < 10**18 else "a huge number"
    return found if len(found) <= 60 else f"{found[:60]}..."


NUMBER = Reader(pl.Float64, numbers, number)
INTEGER = Reader(pl.Int32, integers, integer)
FLAG = Reader(pl.Boolean, flags, flag)
TEXT = Reader(pl.String, texts, text)
TIME = Reader(INSTANT, _instants, _instant)
