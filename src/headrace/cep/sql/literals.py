"""Literals: numbers, dates, timestamps and intervals as they are written in SQL."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from headrace.cep.sql.lexer import problem
from headrace.cep.sql.syntax import LiteralValue, Months

if TYPE_CHECKING:
    from headrace.cep.sql.lexer import Position, Token

UNIT_MICROSECONDS: Final = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}
UNIT_MONTHS: Final = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
TYPED_LITERALS: Final = frozenset(
    {"DATE", "TIMESTAMP", "TIME", "DECIMAL", "VARCHAR", "BIGINT", "INTEGER", "DOUBLE", "REAL"}
)


def number(token: Token) -> int | float | Decimal:
    """The value of a number token."""
    text = token.value
    if text.isdigit():
        return int(text)
    # As in Trino: 1.0 is exact, 1e0 is approximate.
    return float(text) if "e" in text.lower() else Decimal(text)


def typed_literal(kind: str, token: Token) -> LiteralValue:
    """The value of a literal such as DATE '2024-01-31'."""
    text = token.value
    try:
        match kind:
            case "DATE":
                return LiteralValue(dt.date.fromisoformat(text.strip()), token.at)
            case "TIMESTAMP":
                return LiteralValue(parse_timestamp(text), token.at)
            case "TIME":
                return LiteralValue(dt.time.fromisoformat(text.strip()), token.at)
            case "DECIMAL":
                return LiteralValue(Decimal(text), token.at)
            case "VARCHAR":
                return LiteralValue(text, token.at)
            case "BIGINT" | "INTEGER":
                return LiteralValue(int(text), token.at)
            case _:
                return LiteralValue(float(text), token.at)
    except (ValueError, ArithmeticError):
        raise problem(f"{text!r} is not a valid {kind}", token.at) from None


def parse_timestamp(text: str) -> dt.datetime:
    """Reads a timestamp as people and engines write it: with a space or a T, with or without fractions and zone.

    >>> parse_timestamp("2020-10-10 00:00:01.5 UTC")
    datetime.datetime(2020, 10, 10, 0, 0, 1, 500000, tzinfo=datetime.timezone.utc)
    """
    cleaned = text.strip()
    if cleaned.upper().endswith(" UTC"):
        cleaned = cleaned[:-4] + "+00:00"
    return dt.datetime.fromisoformat(cleaned)


def interval(amount: str, unit: str, sign: int, at: Position) -> dt.timedelta | Months:
    """An interval of one unit, such as INTERVAL '10' SECOND."""
    try:
        if unit in UNIT_MONTHS:
            if "-" in amount.strip("-"):
                years, months = amount.split("-")
                return Months(sign * (int(years) * 12 + int(months)))
            return Months(sign * int(amount) * UNIT_MONTHS[unit])
        return dt.timedelta(microseconds=int(Decimal(amount) * UNIT_MICROSECONDS[unit]) * sign)
    except (ValueError, ArithmeticError):
        raise problem(f"{amount!r} is not a number of {unit.lower()}s", at) from None


def interval_fields(amount: Token, first: str, last: str, sign: int) -> dt.timedelta | Months:
    """Reads the parts of `'1 12:30:00' DAY TO SECOND` from the largest unit down."""
    if first in UNIT_MONTHS:
        return interval(amount.value, first, sign, amount.at)
    units = ["DAY", "HOUR", "MINUTE", "SECOND"]
    if first not in units or last not in units:
        raise problem(f"an interval cannot run from {first} to {last}", amount.at)
    parts = amount.value.strip().replace(":", " ").split()
    wanted = units[units.index(first) : units.index(last) + 1]
    if len(parts) != len(wanted):
        raise problem(f"{amount.value!r} does not have the fields {first} to {last}", amount.at)
    total = dt.timedelta()
    for part, unit in zip(parts, wanted, strict=True):
        piece = interval(part, unit, sign, amount.at)
        if isinstance(piece, dt.timedelta):
            total += piece
    return total
