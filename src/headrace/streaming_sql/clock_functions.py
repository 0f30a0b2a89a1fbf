"""Functions of the clock, and of time zones.

The clock is read when rows are computed: all rows of a batch see the same time. A row that is taken back later is
computed anew where nothing keeps it, so of rows that may be taken back a stored time is better.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import polars as pl

from headrace.streaming_sql.casts import timestamp_of_text
from headrace.streaming_sql.functions import ArgumentError, Table, text_constant
from headrace.streaming_sql.values import BIGINT, DATE, STRING, TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.streaming_sql.values import Bound, DataType


def add_clock_functions(table: Table) -> None:
    """Add them to the table."""
    group = "times"
    for name in ("CURRENT_TIMESTAMP", "LOCALTIMESTAMP", "NOW", "CURRENT_ROW_TIMESTAMP"):
        _add(table, name, "The time of now, in UTC.", f"{name}() > TIMESTAMP '2026-01-01 00:00:00'", TIMESTAMP, _utc)
    for name in ("CURRENT_TIME", "LOCALTIME"):
        _add(table, name, "The time of day of now, in UTC.", f"{name}() IS NOT NULL", pl.Time(), lambda: _utc().time())
    _add(
        table,
        "CURRENT_DATE",
        "The day of today, in UTC.",
        "CURRENT_DATE() > DATE '2026-01-01'",
        DATE,
        lambda: _utc().date(),
    )
    table.add(
        "CONVERT_TZ(text, from, to)",
        group,
        "A time as text, brought from one time zone to another.",
        ("CONVERT_TZ('1970-01-01 00:00:00', 'UTC', 'America/Los_Angeles')", "'1969-12-31 16:00:00'"),
        STRING,
        _converted,
        "text",
    )


def _utc() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def _add(table: Table, name: str, does: str, example: str, dtype: DataType, read: Callable[[], object]) -> None:
    def build(arguments: Sequence[Bound]) -> pl.Expr:
        del arguments
        return pl.lit(0, dtype=BIGINT).map_batches(
            lambda values: pl.Series(values.name, [read()] * len(values), dtype=dtype),
            return_dtype=dtype,
            is_elementwise=True,
        )

    table.add(f"{name}()", "times", does, (example, "True"), dtype, build)


def _converted(arguments: Sequence[Bound]) -> pl.Expr:
    source, target = (_zone(argument) for argument in arguments[1:])
    moment = timestamp_of_text(arguments[0].expr, strict=False).dt.replace_time_zone(None)
    placed = moment.dt.replace_time_zone(source, ambiguous="earliest", non_existent="null")
    return placed.dt.convert_time_zone(target).dt.strftime("%Y-%m-%d %H:%M:%S")


def _zone(argument: Bound) -> str:
    name = text_constant(argument, "the time zone")
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ArgumentError(f"unknown time zone {name!r}", "Write it as 'UTC' or 'Europe/Vienna'.") from None
    return name
