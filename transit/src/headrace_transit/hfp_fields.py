"""The fields of an HFP payload, and the columns that they become."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from headrace.ingest import fields
from headrace.ingest.fields import FLAG, INTEGER, NUMBER, TEXT, TIME, Reader, Values
from headrace.ingest.processor import Cause, Dismissal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Column(NamedTuple):
    """How one field becomes one column.

    Args:
        name: The column.
        key: The field in the payload.
        reader: How it is read.
    """

    name: str
    key: str
    reader: Reader


def event_times(bodies: Sequence[Mapping[str, Any]], bad: dict[int, Dismissal]) -> pl.Series:
    """Microseconds since the epoch of `tst`, or of `tsi` (whole seconds) where that is missing.

    A row without either is noted in `bad`, and has 0 here.
    """
    values = [body.get("tst") for body in bodies]
    with contextlib.suppress(*fields.UNFIT):
        times = fields.iso_times(values)
        if times is not None and not times.null_count():
            return times
    found = []
    for row, (value, body) in enumerate(zip(values, bodies, strict=True)):
        at = 0
        try:
            if value is not None:
                at = fields.iso_time(value)
            elif body.get("tsi") is not None:
                at = fields.integer(body["tsi"], -62_135_596_800, 253_402_300_799) * 1_000_000
            else:
                bad[row] = Dismissal(Cause.MISSING_FIELD, "tst: the message has no time")
        except ValueError as error:
            bad[row] = Dismissal(Cause.BAD_VALUE, f"{'tsi' if value is None else 'tst'}: {error}")
        found.append(at)
    return pl.Series(found, dtype=pl.Int64)


def _delays(values: Values) -> pl.Series | None:
    series = fields.integers(values)
    return None if series is None else -series


def _directions(values: Values) -> pl.Series | None:
    return pl.Series(values, dtype=pl.String).cast(pl.Int32) if set(values) <= {"1", "2", None} else None


def _direction(value: Any) -> int:
    if type(value) in (int, str) and str(value) in ("1", "2"):
        return int(value)
    raise ValueError(f"{fields.show(value)} is neither 1 nor 2")


_DELAY = Reader(pl.Int32, _delays, lambda value: -fields.integer(value))
_DIRECTION = Reader(pl.Int32, _directions, _direction)

#: Of every event.
COLUMNS = (
    Column("latitude", "lat", fields.between(-90, 90)),
    Column("longitude", "long", fields.between(-180, 180)),
    Column("speed", "spd", NUMBER),
    Column("heading", "hdg", INTEGER),
    Column("acceleration", "acc", NUMBER),
    Column("delay", "dl", _DELAY),
    Column("odometer", "odo", NUMBER),
    Column("doors_open", "drst", FLAG),
    Column("line", "desi", TEXT),
    Column("route", "route", TEXT),
    Column("direction", "dir", _DIRECTION),
    Column("operating_day", "oday", TEXT),
    Column("trip_start", "start", TEXT),
    Column("stop", "stop", TEXT),
    Column("occupancy", "occu", INTEGER),
    Column("location_source", "loc", TEXT),
    Column("line_number", "line", INTEGER),
    Column("journey_number", "jrn", INTEGER),
    Column("trip_operator", "oper", INTEGER),
    Column("sequence", "seq", INTEGER),
    Column("label", "label", TEXT),
)
#: Of events at stops.
STOP_COLUMNS = (
    Column("scheduled_arrival", "ttarr", TIME),
    Column("scheduled_departure", "ttdep", TIME),
)
