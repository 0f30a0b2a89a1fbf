"""Dates, timestamps and intervals: arithmetic and the functions on them.

Timestamps of a table are aware (UTC); a timestamp written in the query without a zone is taken as UTC when it meets
one.
"""

from __future__ import annotations

import calendar
import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from headrace.cep.sql.datatypes import DATE, DOUBLE, INTEGER, TIMESTAMP_UTC
from headrace.cep.sql.syntax import Months

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.cep.sql.bound import DataType

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND: Final = dt.timedelta(microseconds=1)


def add_months(value: Any, months: int) -> Any:
    """Steps by calendar months; the day is held back where the month is shorter.

    >>> add_months(dt.date(2024, 1, 31), 1)
    datetime.date(2024, 2, 29)
    """
    index = value.year * 12 + value.month - 1 + months
    year, month = divmod(index, 12)
    day = min(value.day, calendar.monthrange(year, month + 1)[1])
    return value.replace(year=year, month=month + 1, day=day)


def add(left: Any, right: Any) -> Any:
    """`+` on numbers, and on dates and intervals."""
    if isinstance(right, Months):
        return Months(left.count + right.count) if isinstance(left, Months) else add_months(left, right.count)
    if isinstance(left, Months):
        return add_months(right, left.count)
    return left + right


def subtract(left: Any, right: Any) -> Any:
    """`-` on numbers, and on dates and intervals."""
    if isinstance(right, Months):
        return Months(left.count - right.count) if isinstance(left, Months) else add_months(left, -right.count)
    return left - right


def aware(value: dt.date | dt.datetime) -> dt.datetime:
    """A date or a timestamp without a zone, read as UTC."""
    if not isinstance(value, dt.datetime):
        return dt.datetime(value.year, value.month, value.day, tzinfo=dt.UTC)
    return value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value


def micros(value: dt.date | dt.datetime) -> int:
    """Microseconds since the epoch."""
    return (aware(value) - _EPOCH) // _MICROSECOND


_FIELDS: Final[Mapping[str, Callable[[Any], int]]] = {
    "year": lambda value: value.year,
    "quarter": lambda value: (value.month + 2) // 3,
    "month": lambda value: value.month,
    "week": lambda value: value.isocalendar().week,
    "day": lambda value: value.days if isinstance(value, dt.timedelta) else value.day,
    "day_of_month": lambda value: value.day,
    "day_of_week": lambda value: value.isoweekday(),
    "dow": lambda value: value.isoweekday(),
    "day_of_year": lambda value: value.timetuple().tm_yday,
    "doy": lambda value: value.timetuple().tm_yday,
    "hour": lambda value: value.seconds // 3600 if isinstance(value, dt.timedelta) else getattr(value, "hour", 0),
    "minute": lambda value: (
        value.seconds // 60 % 60 if isinstance(value, dt.timedelta) else getattr(value, "minute", 0)
    ),
    "second": lambda value: value.seconds % 60 if isinstance(value, dt.timedelta) else getattr(value, "second", 0),
    "millisecond": lambda value: getattr(value, "microsecond", 0) // 1000,
    "epoch": lambda value: (
        value // dt.timedelta(seconds=1) if isinstance(value, dt.timedelta) else micros(value) // 1_000_000
    ),
}
EXTRACT_FIELDS: Final = frozenset(_FIELDS)

_UNITS: Final = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_MONTHS: Final = {"month": 1, "quarter": 3, "year": 12}


def _unit(name: str) -> str:
    unit = name.lower()
    return unit.removesuffix("s") if unit not in _UNITS and unit not in _MONTHS else unit


def extract(field: str, value: Any) -> int | None:
    """EXTRACT(field FROM value)."""
    read = _FIELDS.get(_unit(field)) or _FIELDS.get(field.lower())
    return None if read is None else read(value)


def date_diff(unit: str, start: Any, end: Any) -> int | None:
    """Whole units from start to end.

    >>> date_diff("minute", dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 1, 0, 1, 59))
    1
    """
    name = _unit(unit)
    if name in _MONTHS:
        months = (end.year - start.year) * 12 + end.month - start.month
        if months > 0 and add_months(start, months) > end:
            months -= 1
        elif months < 0 and add_months(start, months) < end:
            months += 1
        return _toward_zero(months, _MONTHS[name])
    if name not in _UNITS:
        return None
    return _toward_zero(micros(end) - micros(start), _UNITS[name])


def _toward_zero(amount: int, step: int) -> int:
    return amount // step if amount >= 0 else -(-amount // step)


def date_add(unit: str, amount: int, value: Any) -> Any:
    """Adds units to a date or timestamp."""
    name = _unit(unit)
    if name in _MONTHS:
        return add_months(value, amount * _MONTHS[name])
    return value + dt.timedelta(microseconds=amount * _UNITS[name]) if name in _UNITS else None


def date_trunc(unit: str, value: Any) -> Any:
    """Cuts a date or timestamp down to the begin of a unit."""
    name = _unit(unit)
    if name == "week":
        value -= dt.timedelta(days=value.weekday())
        name = "day"
    if isinstance(value, dt.datetime):
        clock = ["hour", "minute", "second", "microsecond"]
        if name == "millisecond":
            return value.replace(microsecond=value.microsecond // 1000 * 1000)
        keep = clock.index(name) + 1 if name in clock else 0
        cut: dict[str, Any] = dict.fromkeys(clock[keep:], 0)
        value = value.replace(**cut)
    if name in ("month", "quarter", "year"):
        month = {"month": value.month, "quarter": (value.month - 1) // 3 * 3 + 1, "year": 1}[name]
        value = value.replace(month=month, day=1)
    return value


def _field(name: str) -> tuple[Callable[..., Any], Callable[[Sequence[DataType]], DataType]]:
    return (lambda value: extract(name, value)), (lambda _: INTEGER)


def _from_unix(seconds: Any) -> dt.datetime:
    return _EPOCH + dt.timedelta(microseconds=int(Decimal(str(seconds)) * 1_000_000))


def _to_date(value: Any) -> dt.date:
    if isinstance(value, str):
        return dt.date.fromisoformat(value.strip())
    return value.date() if isinstance(value, dt.datetime) else value


def _last_type(types: Sequence[DataType]) -> DataType:
    return types[-1]


DATE_FUNCTIONS: Final[Mapping[str, tuple[Any, ...]]] = {
    **{name: _field(name) for name in _FIELDS if name != "epoch"},
    "day_of_week": _field("day_of_week"),
    "extract": (extract, lambda _: INTEGER, 2, 2),
    "date_diff": (date_diff, lambda _: INTEGER, 3, 3),
    "timestampdiff": (date_diff, lambda _: INTEGER, 3, 3),
    "date_add": (date_add, _last_type, 3, 3),
    "timestampadd": (date_add, _last_type, 3, 3),
    "date_trunc": (date_trunc, _last_type, 2, 2),
    "date": (_to_date, lambda _: DATE),
    "to_unixtime": (lambda value: micros(value) / 1_000_000, lambda _: DOUBLE),
    "from_unixtime": (_from_unix, lambda _: TIMESTAMP_UTC),
    "to_milliseconds": (lambda value: value // dt.timedelta(milliseconds=1), lambda _: INTEGER),
    "last_day_of_month": (
        lambda value: _to_date(value).replace(day=calendar.monthrange(value.year, value.month)[1]),
        lambda _: DATE,
    ),
}
"""By name: evaluator, result rule, fewest and most arguments."""

UNIT_WORDS: Final = frozenset({"timestampdiff", "timestampadd"})
"""Functions whose first argument is a bare unit word, not a column."""


def is_time(data_type: DataType) -> bool:
    """Whether values are points in time."""
    return isinstance(data_type, pl.Date | pl.Datetime)
