"""The fields of an HFP payload, read as columns.

A batch nearly always holds what the format promises. So a column is first looked at as a whole (which Python types are
in it?) and made at once; only if something does not fit, it is read value by value, to find out which and why.
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
from headrace.ingest.processor import Cause, Dismissal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ISO = "%Y-%m-%dT%H:%M:%S%.fZ"
_INSTANT = pl.Datetime("us", "UTC")
_INT32 = 2**31 - 1
#: What making a column of unfit values may raise; a `UnicodeEncodeError` (half a surrogate pair) is a ValueError.
_UNFIT = (OverflowError, TypeError, ValueError, PolarsError)

Values = list[Any]


@dataclass(frozen=True, slots=True)
class Column:
    """How one field becomes one column.

    Args:
        name: The column.
        key: The field in the payload.
        dtype: The column's type.
        whole: Makes the column at once, or gives None (or raises what `_UNFIT` lists) if a value may not fit.
        single: Reads one value that is not null; raises ValueError.
    """

    name: str
    key: str
    dtype: Any
    whole: Callable[[Values], pl.Series | None]
    single: Callable[[Any], Any]


def read(column: Column, bodies: Sequence[Mapping[str, Any]]) -> tuple[pl.Series, dict[int, str]]:
    """Make a column, with a null for every value that does not fit, and say which these are."""
    key = column.key
    values = [body.get(key) for body in bodies]
    with contextlib.suppress(*_UNFIT):
        series = column.whole(values)
        if series is not None:
            return series, {}
    wrong: dict[int, str] = {}
    read_values: Values = []
    for row, value in enumerate(values):
        try:
            read_values.append(None if value is None else column.single(value))
        except ValueError as error:
            wrong[row] = str(error)
            read_values.append(None)
    return pl.Series(read_values, dtype=column.dtype), wrong


def event_times(bodies: Sequence[Mapping[str, Any]], bad: dict[int, Dismissal]) -> pl.Series:
    """Microseconds since the epoch of `tst`, or of `tsi` (whole seconds) where that is missing.

    A row without either is noted in `bad`, and has 0 here.
    """
    values = [body.get("tst") for body in bodies]
    if set(map(type, values)) == {str}:
        with contextlib.suppress(*_UNFIT):
            times = pl.Series(values, dtype=pl.String).str.to_datetime(_ISO, time_unit="us", strict=False)
            if not times.null_count() and _writable(times):
                return times.cast(pl.Int64)
    found = []
    for row, (value, body) in enumerate(zip(values, bodies, strict=True)):
        at = 0
        try:
            if value is not None:
                at = _instant(value)
            elif body.get("tsi") is not None:
                at = _whole(body["tsi"], 253_402_300_799) * 1_000_000
            else:
                bad[row] = Dismissal(Cause.MISSING_FIELD, "tst: the message has no time")
        except ValueError as error:
            bad[row] = Dismissal(Cause.BAD_VALUE, f"{'tsi' if value is None else 'tst'}: {error}")
        found.append(at)
    return pl.Series(found, dtype=pl.Int64)


def texts(values: Values) -> pl.Series:
    """A column of texts that come from a topic; what cannot be written as UTF-8 becomes a question mark."""
    with contextlib.suppress(*_UNFIT):
        return pl.Series(values, dtype=pl.String)
    return pl.Series([v and v.encode("utf-8", "replace").decode() for v in values], dtype=pl.String)


# ---------------------------------------------------------------- numbers


def _numbers(values: Values) -> pl.Series | None:
    if not set(map(type, values)) <= {float, int, NoneType}:
        return None
    series = pl.Series(values, dtype=pl.Float64, strict=False)
    nulls = sum(value is None for value in values)
    return series if series.null_count() == nulls and series.is_finite().all() else None


def _number(value: Any) -> float:
    if type(value) not in (float, int):
        raise ValueError(f"{_show(value)} is not a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError("the number is too large")
    return number


def _degrees(limit: int) -> tuple[Callable[[Values], pl.Series | None], Callable[[Any], float]]:
    def whole(values: Values) -> pl.Series | None:
        series = _numbers(values)
        return series if series is not None and series.is_between(-limit, limit).all() else None

    def single(value: Any) -> float:
        number = _number(value)
        if not -limit <= number <= limit:
            raise ValueError(f"{number!r} is not between -{limit} and {limit}")
        return number

    return whole, single


def _integers(values: Values) -> pl.Series | None:
    if not set(map(type, values)) <= {int, NoneType}:
        return None
    series = pl.Series(values, dtype=pl.Int64)
    return series.cast(pl.Int32) if series.is_between(-_INT32, _INT32).all() else None


def _whole(value: Any, limit: int = _INT32) -> int:
    if type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is not int:
        raise ValueError(f"{_show(value)} is not a whole number")
    if not -limit <= value <= limit:
        raise ValueError("the number is too large")
    return int(value)


def _delays(values: Values) -> pl.Series | None:
    series = _integers(values)
    return None if series is None else -series


def _directions(values: Values) -> pl.Series | None:
    return pl.Series(values, dtype=pl.String).cast(pl.Int32) if set(values) <= {"1", "2", None} else None


def _direction(value: Any) -> int:
    if type(value) in (int, str) and str(value) in ("1", "2"):
        return int(value)
    raise ValueError(f"{_show(value)} is neither 1 nor 2")


def _flags(values: Values) -> pl.Series | None:
    series = _integers(values)
    return series.cast(pl.Boolean) if series is not None and series.is_between(0, 1).all() else None


def _flag(value: Any) -> bool:
    if type(value) in (int, bool) and value in (0, 1):
        return bool(value)
    raise ValueError(f"{_show(value)} is neither 0 nor 1")


# ---------------------------------------------------------------- texts and times


def _texts(values: Values) -> pl.Series | None:
    kinds = set(map(type, values))
    if kinds <= {str, NoneType}:
        return pl.Series(values, dtype=pl.String)
    if kinds <= {int, NoneType}:
        return pl.Series(values, dtype=pl.Int64).cast(pl.String)
    return None


def _text(value: Any) -> str:
    if type(value) is int:
        return str(_whole(value, 2**63 - 1))
    if type(value) is not str:
        raise ValueError(f"{_show(value)} is not a text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError("the text holds half of a character") from None
    return value


def _times(values: Values) -> pl.Series | None:
    if not set(map(type, values)) <= {str, NoneType}:
        return None
    series = pl.Series(values, dtype=pl.String)
    times = series.str.to_datetime(_ISO, time_unit="us", strict=False)
    fit = times.null_count() == series.null_count() and _writable(times)
    return times.cast(pl.Int64).cast(_INSTANT) if fit else None


def _writable(times: pl.Series) -> bool:
    """Whether all times are of the years that Python and protobuf can write."""
    return bool(times.cast(pl.Int64).is_between(*SHOWABLE).all())


def _instant(value: Any) -> int:
    """Microseconds since the epoch; without a zone a time is UTC, as HFP's are."""
    if type(value) is not str:
        raise ValueError(f"{_show(value)} is not a time")
    try:
        read_time = datetime.fromisoformat(value)
        if read_time.tzinfo is None:
            read_time = read_time.replace(tzinfo=UTC)
        return (read_time - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, OverflowError):
        raise ValueError(f"{_show(value)} is not a time") from None


def _time(value: Any) -> datetime:
    return _EPOCH + timedelta(microseconds=_instant(value))


def _show(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return f"a JSON {'object' if isinstance(value, dict) else 'array'}"
    # Python does not show numbers of thousands of digits.
    text = ascii(value) if type(value) is not int or abs(value) < 10**18 else "a huge number"
    return text if len(text) <= 60 else f"{text[:60]}..."


_LATITUDE, _LONGITUDE = _degrees(90), _degrees(180)

#: Of every event.
COLUMNS = (
    Column("latitude", "lat", pl.Float64, *_LATITUDE),
    Column("longitude", "long", pl.Float64, *_LONGITUDE),
    Column("speed", "spd", pl.Float64, _numbers, _number),
    Column("heading", "hdg", pl.Int32, _integers, _whole),
    Column("acceleration", "acc", pl.Float64, _numbers, _number),
    Column("delay", "dl", pl.Int32, _delays, lambda value: -_whole(value)),
    Column("odometer", "odo", pl.Float64, _numbers, _number),
    Column("doors_open", "drst", pl.Boolean, _flags, _flag),
    Column("line", "desi", pl.String, _texts, _text),
    Column("route", "route", pl.String, _texts, _text),
    Column("direction", "dir", pl.Int32, _directions, _direction),
    Column("operating_day", "oday", pl.String, _texts, _text),
    Column("trip_start", "start", pl.String, _texts, _text),
    Column("stop", "stop", pl.String, _texts, _text),
    Column("occupancy", "occu", pl.Int32, _integers, _whole),
    Column("location_source", "loc", pl.String, _texts, _text),
    Column("line_number", "line", pl.Int32, _integers, _whole),
    Column("journey_number", "jrn", pl.Int32, _integers, _whole),
    Column("trip_operator", "oper", pl.Int32, _integers, _whole),
    Column("sequence", "seq", pl.Int32, _integers, _whole),
    Column("label", "label", pl.String, _texts, _text),
)
#: Of events at stops.
STOP_COLUMNS = (
    Column("scheduled_arrival", "ttarr", _INSTANT, _times, _time),
    Column("scheduled_departure", "ttdep", _INSTANT, _times, _time),
)
