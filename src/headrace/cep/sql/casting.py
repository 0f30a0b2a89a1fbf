"""CAST on Python values."""

from __future__ import annotations

import datetime as dt
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Any

import polars as pl

from headrace.cep.sql.datatypes import element, is_string
from headrace.cep.sql.dates import aware
from headrace.cep.sql.functions import as_text
from headrace.cep.sql.literals import parse_timestamp

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.cep.sql.bound import DataType


def caster(target: DataType, limit: int | None) -> Callable[[Any], Any]:
    """The function that brings a value to a type; it raises ValueError, TypeError or ArithmeticError where it cannot.

    >>> caster(pl.Int64(), None)("12"), caster(pl.String(), 3)("headrace")
    (12, 'hea')
    """
    if is_string(target):
        return as_text if limit is None else lambda value: as_text(value)[:limit]
    if target.is_integer():
        low, high = _bounds(target)
        return lambda value: _integer(value, low, high)
    if target.is_float():
        return float
    if isinstance(target, pl.Decimal):
        step = Decimal(1).scaleb(-target.scale)
        return lambda value: Decimal(str(value)).quantize(step, rounding=ROUND_HALF_UP)
    if isinstance(target, pl.Boolean):
        return _boolean
    if isinstance(target, pl.Date):
        return _date
    if isinstance(target, pl.Datetime):
        return _zoned if target.time_zone else _unzoned
    if isinstance(target, pl.List):
        inner = caster(element(target), None)
        return lambda value: [None if item is None else inner(item) for item in value]
    if isinstance(target, pl.Time):
        return lambda value: value.time() if isinstance(value, dt.datetime) else dt.time.fromisoformat(str(value))
    return lambda value: value


def _bounds(target: DataType) -> tuple[int, int]:
    sizes: dict[DataType, int] = {pl.Int8(): 8, pl.Int16(): 16, pl.Int32(): 32}
    bits = sizes.get(target, 64)
    return -(2 ** (bits - 1)), 2 ** (bits - 1) - 1


def _integer(value: Any, low: int, high: int) -> int:
    if isinstance(value, str):
        number = int(value.strip())
    elif isinstance(value, int):
        number = int(value)
    else:
        number = int(Decimal(str(value)).to_integral_value(rounding=ROUND_HALF_UP))
    if not low <= number <= high:
        raise ValueError(f"{number} is out of range")
    return number


def _boolean(value: Any) -> bool:
    if isinstance(value, str):
        text = value.strip().lower()
        if text in ("true", "t", "1"):
            return True
        if text in ("false", "f", "0"):
            return False
        raise ValueError(f"{value!r} is neither true nor false")
    return bool(value)


def _date(value: Any) -> dt.date:
    if isinstance(value, str):
        return dt.date.fromisoformat(value.strip())
    return value.date() if isinstance(value, dt.datetime) else value


def _moment(value: Any) -> dt.datetime:
    if isinstance(value, str):
        return parse_timestamp(value)
    if isinstance(value, dt.datetime):
        return value
    return dt.datetime(value.year, value.month, value.day)  # noqa: DTZ001


def _zoned(value: Any) -> dt.datetime:
    return aware(_moment(value)).astimezone(dt.UTC)


def _unzoned(value: Any) -> dt.datetime:
    moment = _moment(value)
    return moment if moment.tzinfo is None else moment.astimezone(dt.UTC).replace(tzinfo=None)
