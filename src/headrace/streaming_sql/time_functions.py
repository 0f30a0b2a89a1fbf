"""Functions of dates and timestamps. All times are UTC."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Final

import polars as pl

from headrace.cep.sql.dates import date_diff
from headrace.streaming_sql.casts import timestamp_of_text
from headrace.streaming_sql.date_formats import strftime_of
from headrace.streaming_sql.functions import ArgumentError, Table, first_type, text_constant
from headrace.streaming_sql.intervals import MICROS, MONTHS, unit_of
from headrace.streaming_sql.values import BIGINT, DATE, STRING, TIMESTAMP, coerced, is_time, spoken

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.streaming_sql.values import Bound, DataType

_FIELDS: Final[dict[str, Callable[[pl.Expr], pl.Expr]]] = {
    "YEAR": lambda e: e.dt.year(),
    "ISOYEAR": lambda e: e.dt.iso_year(),
    "QUARTER": lambda e: e.dt.quarter(),
    "MONTH": lambda e: e.dt.month(),
    "WEEK": lambda e: e.dt.week(),
    "DAY": lambda e: e.dt.day(),
    "DAYOFMONTH": lambda e: e.dt.day(),
    "DOW": lambda e: e.dt.weekday() % 7 + 1,
    "DAYOFWEEK": lambda e: e.dt.weekday() % 7 + 1,
    "ISODOW": lambda e: e.dt.weekday(),
    "DOY": lambda e: e.dt.ordinal_day(),
    "DAYOFYEAR": lambda e: e.dt.ordinal_day(),
    "HOUR": lambda e: e.dt.hour(),
    "MINUTE": lambda e: e.dt.minute(),
    "SECOND": lambda e: e.dt.second(),
    "MILLISECOND": lambda e: e.dt.millisecond(),
    "MICROSECOND": lambda e: e.dt.microsecond(),
    "EPOCH": lambda e: e.dt.epoch("s"),
}
_TRUNCATED: Final = {
    "YEAR": "1y",
    "QUARTER": "1q",
    "MONTH": "1mo",
    "WEEK": "1w",
    "DAY": "1d",
    "HOUR": "1h",
    "MINUTE": "1m",
    "SECOND": "1s",
    "MILLISECOND": "1ms",
}


_FIRST: Final = dt.datetime(1, 1, 1, tzinfo=dt.UTC)
_LAST: Final = dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC)
_MONTHS_OF_CALENDAR: Final = 12 * 9999


def add_time_functions(table: Table) -> None:
    """Add them to the table."""
    _parts(table)
    _steps(table)
    _texts(table)


def _parts(table: Table) -> None:
    group = "times"
    moment = "TIMESTAMP '2026-03-01 10:20:30'"
    gives = {
        "YEAR": 2026,
        "QUARTER": 1,
        "MONTH": 3,
        "WEEK": 9,
        "DAYOFMONTH": 1,
        "DAYOFWEEK": 1,
        "DAYOFYEAR": 60,
        "HOUR": 10,
        "MINUTE": 20,
        "SECOND": 30,
    }
    for name, value in gives.items():
        does = "The day of the week; 1 is Sunday." if name == "DAYOFWEEK" else f"The {name.lower()} of a time."
        table.add(f"{name}(time)", group, does, (f"{name}({moment})", str(value)), BIGINT, _field(name), "timestamp")
    table.add(
        "EXTRACT(unit FROM time)",
        group,
        "A part of a time; EPOCH is the seconds since 1970.",
        (f"EXTRACT(MINUTE FROM {moment})", "20"),
        BIGINT,
        _extract,
    )


def _steps(table: Table) -> None:
    group = "times"
    moment = "TIMESTAMP '2026-03-01 10:20:30'"
    table.add(
        "TIMESTAMPADD(unit, n, time)",
        group,
        "n units later.",
        (f"DATE_FORMAT(TIMESTAMPADD(HOUR, 2, {moment}), 'HH:mm')", "'12:20'"),
        _added_type,
        _add,
        "text",
        "number",
        "timestamp",
    )
    table.add(
        "TIMESTAMPDIFF(unit, start, end)",
        group,
        "Whole units from start to end.",
        (f"TIMESTAMPDIFF(MINUTE, {moment}, TIMESTAMP '2026-03-01 10:25:00')", "4"),
        BIGINT,
        _difference,
        "text",
        "timestamp",
        "timestamp",
    )
    table.add(
        "DATE_TRUNC(unit, time)",
        group,
        "The beginning of the unit that a time is in.",
        (f"DATE_FORMAT(DATE_TRUNC('HOUR', {moment}), 'HH:mm')", "'10:00'"),
        lambda a: a[1].dtype,
        _truncated,
        "text",
        "timestamp",
    )
    table.add(
        "FLOOR_TIME(time, unit)",
        "",
        "FLOOR(time TO unit).",
        ("", ""),
        first_type,
        lambda a: _truncated([a[1], a[0]]),
        "timestamp",
        "text",
    )
    table.add("CEIL_TIME(time, unit)", "", "CEIL(time TO unit).", ("", ""), first_type, _ceiled, "timestamp", "text")


def _texts(table: Table) -> None:
    group = "times"
    moment = "TIMESTAMP '2026-03-01 10:20:30'"
    table.add(
        "DATE_FORMAT(time, pattern)",
        group,
        "As a text; the pattern has the letters of Java, such as yyyy.",
        (f"DATE_FORMAT({moment}, 'yyyy-MM-dd HH:mm')", "'2026-03-01 10:20'"),
        STRING,
        _formatted,
        "timestamp or text",
        "text",
    )
    table.add(
        "TO_TIMESTAMP(text, pattern)",
        group,
        "Read from a text; null if it is no time.",
        ("YEAR(TO_TIMESTAMP('01/03/2026', 'dd/MM/yyyy'))", "2026"),
        TIMESTAMP,
        _to_timestamp,
        "text",
        "text",
        optional=1,
    )
    table.add(
        "TO_TIMESTAMP_LTZ(n, precision)",
        group,
        "From seconds (0) or milliseconds (3) since 1970.",
        ("YEAR(TO_TIMESTAMP_LTZ(0, 3))", "1970"),
        TIMESTAMP,
        _from_number,
        "number",
        "integer",
        optional=1,
    )
    table.add(
        "TO_DATE(text, pattern)",
        group,
        "A date read from a text; null if it is none.",
        ("YEAR(TO_DATE('2026-03-01'))", "2026"),
        DATE,
        _to_date,
        "text",
        "text",
        optional=1,
    )
    table.add(
        "UNIX_TIMESTAMP(time)",
        group,
        "Seconds since 1970.",
        ("UNIX_TIMESTAMP('1970-01-01 00:01:00')", "60"),
        BIGINT,
        lambda a: _moment(a[0]).dt.epoch("s"),
        "timestamp or text",
    )
    table.add(
        "FROM_UNIXTIME(seconds, pattern)",
        group,
        "Seconds since 1970 as a text.",
        ("FROM_UNIXTIME(60)", "'1970-01-01 00:01:00'"),
        STRING,
        _from_unix,
        "number",
        "text",
        optional=1,
    )


def _moment(bound: Bound) -> pl.Expr:
    if is_time(bound.dtype):
        return coerced(bound, TIMESTAMP)
    return timestamp_of_text(bound.expr, strict=False)


def _field(name: str) -> Callable[[Sequence[Bound]], pl.Expr]:
    return lambda arguments: _FIELDS[name](coerced(arguments[0], TIMESTAMP)).cast(BIGINT)


def _extract(arguments: Sequence[Bound]) -> pl.Expr:
    unit = unit_of(text_constant(arguments[0], "the unit"))
    value = arguments[1]
    if isinstance(value.dtype, pl.Duration):
        if unit not in MICROS:
            raise ArgumentError(f"EXTRACT({unit} FROM an interval)", "Use DAY, HOUR, MINUTE or SECOND.")
        micros = value.expr.dt.total_microseconds()
        return micros // MICROS[unit] % {"HOUR": 24, "MINUTE": 60, "SECOND": 60}.get(unit, 2**62)
    if unit not in _FIELDS:
        raise ArgumentError(f"unknown unit {unit}", f"Known are {', '.join(_FIELDS)}.")
    if not is_time(value.dtype) and not isinstance(value.dtype, pl.Null):
        raise ArgumentError(f"EXTRACT({unit} FROM {spoken(value.dtype)})", "It takes a time.")
    return _FIELDS[unit](_moment(value)).cast(BIGINT)


def _known_unit(argument: Bound) -> str:
    unit = unit_of(text_constant(argument, "the unit"))
    if unit not in MICROS and unit not in MONTHS:
        raise ArgumentError(f"unknown unit {unit}", f"Known are {', '.join([*MICROS, *MONTHS])}.")
    return unit


def _added_type(arguments: Sequence[Bound]) -> DataType:
    unit = _known_unit(arguments[0])
    dtype = arguments[2].dtype
    return TIMESTAMP if unit in MICROS and MICROS[unit] < MICROS["DAY"] else dtype


def _add(arguments: Sequence[Bound]) -> pl.Expr:
    unit, amount = _known_unit(arguments[0]), arguments[1].expr
    value = coerced(arguments[2], _added_type(arguments))
    if unit in MONTHS:
        months = (amount * MONTHS[unit]).cast(BIGINT)
        months = pl.when(months.abs() <= _MONTHS_OF_CALENDAR).then(months).cast(STRING)
        return within_calendar(value.dt.offset_by(pl.concat_str([months, pl.lit("mo")])), _added_type(arguments))
    step = (amount * MICROS[unit]).cast(BIGINT).cast(pl.Duration("us"))
    return within_calendar(value + step, _added_type(arguments))


def within_calendar(moment: pl.Expr, dtype: DataType = TIMESTAMP) -> pl.Expr:
    """Make null of a time before the year 1 or after 9999, which no sink can write."""
    if isinstance(dtype, pl.Date):
        return pl.when(moment.is_between(pl.lit(_FIRST.date()), pl.lit(_LAST.date()))).then(moment)
    return pl.when(moment.is_between(pl.lit(_FIRST, dtype=TIMESTAMP), pl.lit(_LAST, dtype=TIMESTAMP))).then(moment)


def _difference(arguments: Sequence[Bound]) -> pl.Expr:
    unit = _known_unit(arguments[0])
    start, end = (coerced(argument, TIMESTAMP) for argument in arguments[1:])
    if unit in MICROS:
        micros = (end - start).dt.total_microseconds()
        whole = micros.abs() // MICROS[unit]
        return pl.when(micros < 0).then(-whole).otherwise(whole)
    pair = pl.struct(start.alias("start"), end.alias("end"))

    def months(rows: pl.Series) -> pl.Series:
        found = [
            None if row["start"] is None or row["end"] is None else date_diff(unit, row["start"], row["end"])
            for row in rows
        ]
        return pl.Series(rows.name, found, dtype=BIGINT)

    return pair.map_batches(months, return_dtype=BIGINT, is_elementwise=True)


def _truncated(arguments: Sequence[Bound]) -> pl.Expr:
    unit = unit_of(text_constant(arguments[0], "the unit"))
    if unit not in _TRUNCATED:
        raise ArgumentError(f"unknown unit {unit}", f"Known are {', '.join(_TRUNCATED)}.")
    value = arguments[1]
    if isinstance(value.dtype, pl.Date) and unit in ("HOUR", "MINUTE", "SECOND", "MILLISECOND"):
        return value.expr
    return value.expr.dt.truncate(_TRUNCATED[unit])


def _ceiled(arguments: Sequence[Bound]) -> pl.Expr:
    value = arguments[0].expr
    low = _truncated([arguments[1], arguments[0]])
    unit = unit_of(text_constant(arguments[1], "the unit"))
    return pl.when(low == value).then(value).otherwise(low.dt.offset_by(_TRUNCATED[unit]))


def _pattern(argument: Bound) -> str:
    pattern = text_constant(argument, "the pattern")
    found = strftime_of(pattern)
    if found is None:
        raise ArgumentError(f"the pattern {pattern!r} has a letter that is not known", "Such as 'yyyy-MM-dd HH:mm:ss'.")
    return found


def _formatted(arguments: Sequence[Bound]) -> pl.Expr:
    return _moment(arguments[0]).dt.strftime(_pattern(arguments[1]))


def _to_timestamp(arguments: Sequence[Bound]) -> pl.Expr:
    text = arguments[0].expr
    if len(arguments) == 1:
        return timestamp_of_text(text, strict=False)
    pattern = _pattern(arguments[1]).replace(".%3f", "%.3f").replace(".%6f", "%.6f")
    if not any(code in pattern for code in ("%H", "%-H", "%I", "%-I")):
        return text.str.to_date(pattern, strict=False).cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
    return text.str.to_datetime(pattern, strict=False, time_unit="us").dt.replace_time_zone("UTC")


def _to_date(arguments: Sequence[Bound]) -> pl.Expr:
    pattern = _pattern(arguments[1]) if len(arguments) > 1 else "%Y-%m-%d"
    return arguments[0].expr.str.to_date(pattern, strict=False)


def _from_number(arguments: Sequence[Bound]) -> pl.Expr:
    precision = arguments[1].value if len(arguments) > 1 else 3
    if precision not in (0, 3, 6):
        raise ArgumentError("the precision must be 0, 3 or 6")
    factor = {0: 1_000_000, 3: 1_000, 6: 1}[precision]
    return within_calendar((arguments[0].expr * factor).cast(BIGINT).cast(TIMESTAMP))


def _from_unix(arguments: Sequence[Bound]) -> pl.Expr:
    pattern = _pattern(arguments[1]) if len(arguments) > 1 else "%Y-%m-%d %H:%M:%S"
    return within_calendar((arguments[0].expr.cast(BIGINT) * 1_000_000).cast(TIMESTAMP)).dt.strftime(pattern)
