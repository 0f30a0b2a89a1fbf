"""The quick way to read HFP payloads: many at once, straight into columns.

Nearly every payload is exactly what the format promises. Arrow reads such payloads as lines of JSON of a fixed schema,
three times as fast as one object at a time. It is strict: if any value of the batch is of another type, out of range,
doubled, or not quite JSON, `read` gives None, and the caller halves the batch or reads the payloads one by one
(`hfp_fields`), which says what was wrong with which. Both ways give the same columns for payloads that this one takes.
"""

from __future__ import annotations

import polars as pl
import pyarrow as pa
import pyarrow.json as arrow_json

from headrace.events.letters import SHOWABLE
from headrace.ingest.fields import INSTANT, INT32

_FLOATS = {"latitude": "lat", "longitude": "long", "speed": "spd", "acceleration": "acc", "odometer": "odo"}
_INTEGERS = {
    "heading": "hdg", "occupancy": "occu", "line_number": "line", "journey_number": "jrn", "trip_operator": "oper",
    "sequence": "seq",
}  # fmt: skip
_TEXTS = {
    "line": "desi", "route": "route", "operating_day": "oday", "trip_start": "start", "location_source": "loc",
    "label": "label",
}  # fmt: skip
_TIMES = {"scheduled_arrival": "ttarr", "scheduled_departure": "ttdep"}


#: The fields that are read, in the order in which vehicles write them: what comes as expected is found faster.
_ORDER = (
    "desi", "dir", "oper", "tst", "spd", "hdg", "lat", "long", "acc", "dl", "odo", "drst", "oday", "jrn", "line",
    "start", "loc", "stop", "route", "occu", "ttarr", "ttdep", "seq", "label",
)  # fmt: skip
#: So many bytes are read in one go; if there are more, on all cores.
_BLOCK = 1 << 19
#: In year 0, which Arrow has and others do not, it may be year 1 already in UTC.
_SHOWABLE = (SHOWABLE[0] + 86_400_000_000, SHOWABLE[1])


def _schema(*, stops: bool) -> pa.Schema:
    types = {
        **dict.fromkeys(_FLOATS.values(), pa.float64()),
        **dict.fromkeys((*_INTEGERS.values(), "dl", "drst"), pa.int32()),
        **dict.fromkeys((*_TEXTS.values(), "dir"), pa.string()),
        **dict.fromkeys(("tst", *(_TIMES.values() if stops else ())), pa.timestamp("us", "UTC")),
        "stop": pa.int64(),
    }
    return pa.schema([(key, types[key]) for key in _ORDER if key in types])


_PARSE = {
    stops: arrow_json.ParseOptions(explicit_schema=_schema(stops=stops), unexpected_field_behavior="ignore")
    for stops in (False, True)
}


def _columns(*, stops: bool) -> list[pl.Expr]:
    return [
        pl.col("tst").cast(pl.Int64).alias("event_time"),
        *(pl.col(key).alias(name) for name, key in (_FLOATS | _TEXTS | _INTEGERS).items()),
        (-pl.col("dl")).alias("delay"),
        pl.col("drst").cast(pl.Boolean).alias("doors_open"),
        pl.col("dir").cast(pl.Int32, strict=False).alias("direction"),
        pl.col("stop").cast(pl.String).alias("stop"),
        *(pl.col(key).cast(INSTANT).alias(name) for name, key in _TIMES.items() if stops),
    ]


def _checks(*, stops: bool) -> list[pl.Expr]:
    """Conditions that all rows must meet; null meets all but the first."""
    return [
        pl.col("tst").is_not_null().all(),
        *(
            pl.col(key).cast(pl.Int64).is_between(*_SHOWABLE).all()
            for key in ("tst", *(_TIMES.values() if stops else ()))
        ),
        *(pl.col(key).is_finite().all() for key in _FLOATS.values()),
        *((pl.col(key) >= -INT32).all() for key in (*_INTEGERS.values(), "dl")),
        pl.col("lat").is_between(-90, 90).all(),
        pl.col("long").is_between(-180, 180).all(),
        pl.col("dir").is_in(["1", "2"]).all(),
        pl.col("drst").is_between(0, 1).all(),
    ]


_FIT = "\0fit"
_COLUMNS = {
    stops: [*_columns(stops=stops), pl.all_horizontal(_checks(stops=stops)).alias(_FIT)] for stops in (False, True)
}


def read(bodies: list[bytes], *, stops: bool) -> pl.DataFrame | None:
    """Read the bodies of HFP payloads as columns, or give None if one of them is not plain enough.

    Args:
        bodies: What stands between `{"VP":` and the last brace; each begins and ends with a brace.
        stops: Whether they are of events at stops, with times of the timetable.

    >>> frame = read([b'{"tst":"2020-09-21T03:00:00.963Z","spd":0.57,"dl":-8}'], stops=False)
    >>> frame.select("speed", "delay", "line").row(0)
    (0.57, 8, None)
    >>> read([b'{"tst":"2020-09-21T03:00:00.963Z","spd":"fast"}'], stops=False) is None
    True
    """
    joined = b"\n".join(bodies)
    # Escapes may hide half of a character, and Arrow does not look whether bytes are UTF-8.
    if b"\\" in joined or not _is_utf8(joined):
        return None
    options = arrow_json.ReadOptions(use_threads=len(joined) > _BLOCK, block_size=_BLOCK)
    try:
        table = arrow_json.read_json(pa.BufferReader(joined), read_options=options, parse_options=_PARSE[stops])
    except pa.ArrowInvalid:
        return None
    # Each body gives at least one row, so that as many rows as bodies means one each.
    if table.num_rows != len(bodies):
        return None
    raw = pl.from_arrow(table)
    assert isinstance(raw, pl.DataFrame)  # noqa: S101  a table never becomes a Series
    found = raw.select(_COLUMNS[stops])
    return found if found.drop_in_place(_FIT).all() else None


def _is_utf8(content: bytes) -> bool:
    if content.isascii():
        return True
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True
