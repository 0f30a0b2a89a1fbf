"""Intervals: `INTERVAL '5' SECOND`, `INTERVAL '1:30' MINUTE TO SECOND`, `INTERVAL '2' MONTH`."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal, InvalidOperation
from typing import Final

from sqlglot import exp

from headrace.cep.sql.syntax import Months

MICROS: Final = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}
MONTHS: Final = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_ORDER: Final = ("DAY", "HOUR", "MINUTE", "SECOND")


def unit_of(name: str) -> str:
    """Give a unit of time in the singular and in upper case.

    >>> unit_of("seconds")
    'SECOND'
    """
    unit = name.upper()
    return unit if unit in MICROS or unit in MONTHS else unit.removesuffix("S")


def interval_of(node: exp.Expr) -> dt.timedelta | Months | None:
    """Read an interval; None if it cannot be read.

    >>> interval_of(exp.Interval(this=exp.Literal.string("5"), unit=exp.var("SECOND")))
    datetime.timedelta(seconds=5)
    """
    sign = 1
    while isinstance(node, exp.Neg | exp.Paren):
        sign = -sign if isinstance(node, exp.Neg) else sign
        node = node.this
    if not isinstance(node, exp.Interval):
        return None
    literal, unit = node.this, node.args.get("unit")
    if isinstance(literal, exp.Neg):
        sign, literal = -sign, literal.this
    if not isinstance(literal, exp.Literal):
        return None
    written = str(literal.this).strip()
    if isinstance(unit, exp.IntervalSpan):
        return _span(written, unit.this.name, unit.expression.name, sign)
    if unit is None:
        words = re.fullmatch(r"([+-]?[\d.]+)\s+([A-Za-z]+)", written)
        if words is None:
            return None
        written, name = words.groups()
    else:
        name = unit.name
    try:
        number = Decimal(written) * sign
    except InvalidOperation:
        return None
    return _amount(number, unit_of(name))


def _amount(number: Decimal, unit: str) -> dt.timedelta | Months | None:
    if unit in MONTHS:
        return Months(int(number) * MONTHS[unit]) if number == int(number) else None
    if unit not in MICROS:
        return None
    try:
        return dt.timedelta(microseconds=int(number * MICROS[unit]))
    except OverflowError:
        return None


def _span(written: str, first: str, last: str, sign: int) -> dt.timedelta | Months | None:
    if written.startswith("-"):
        sign, written = -sign, written[1:]
    first, last = unit_of(first), unit_of(last)
    numbers = [part for part in re.split(r"[\s:-]+", written.strip()) if part]
    if first == "YEAR" and last == "MONTH" and len(numbers) == 2:
        return Months(sign * (int(numbers[0]) * 12 + int(numbers[1])))
    if first not in _ORDER or last not in _ORDER:
        return None
    units = _ORDER[_ORDER.index(first) : _ORDER.index(last) + 1]
    if len(units) != len(numbers):
        return None
    try:
        micros = sum(int(Decimal(number) * MICROS[unit]) for number, unit in zip(numbers, units, strict=True))
        return dt.timedelta(microseconds=sign * micros)
    except (InvalidOperation, OverflowError):
        return None
