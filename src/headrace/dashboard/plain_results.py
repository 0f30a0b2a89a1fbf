"""Results that a job writes as plain JSON, read for the boards as results in the envelope are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa

from headrace.errors import SchemaError
from headrace.formats import Records, json
from headrace.formats.format import IDEMPOTENCY_HEADER
from headrace.formats.json import JsonFormat

if TYPE_CHECKING:
    from headrace.formats import Format
    from headrace.kafka.consumer import Record

_INSTANT = pl.Datetime("us", "UTC")
_TIMES = pa.timestamp("us", "UTC")
#: What a result has beside the columns of its job; a job may have left some of them out.
_FIXED: dict[str, pl.DataType] = {
    "window_start": _INSTANT,
    "window_end": _INSTANT,
    "pane_timing": pl.String(),
    "is_retraction": pl.Boolean(),
}


def plain_reader(written: Format, schema: pl.Schema) -> Format | None:
    """Make the format that reads what a job writes; None if results of its format cannot be shown.

    Args:
        written: The format of the job's results.
        schema: The columns that are shown. One that is not read from JSON is left out.
    """
    if not isinstance(written, JsonFormat):
        return None
    columns = {name: kind for name, kind in schema.items() if _is_readable(name, kind)}
    return json({**columns, **_FIXED}, time="event_time")


def read_plain(reader: Format, records: list[Record]) -> pl.DataFrame:
    """Read results with the columns that results in the envelope have; records that are none are left out."""
    times = pa.array([record.timestamp for record in records], _TIMES)
    decoded = reader.decode(Records(pa.array([record.value for record in records], pa.binary()), timestamps=times))
    places = range(len(records)) if decoded.positions is None else decoded.positions.tolist()
    read = [records[place] for place in places]
    return decoded.frame.with_columns(
        pl.Series("key", [_text(record.key) for record in read], pl.String),
        pl.Series("idempotency_key", [_text(record.header(IDEMPOTENCY_HEADER)) for record in read], pl.String),
        pl.Series("kafka_timestamp", [record.timestamp for record in read], pl.Int64).cast(_INSTANT),
        pl.lit(None, _INSTANT).alias("newest_event_time"),
        pl.lit(None, _INSTANT).alias("newest_ingestion_time"),
    )


def _is_readable(name: str, kind: pl.DataType) -> bool:
    try:
        json({name: kind})
    except SchemaError:
        return False
    return True


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode(errors="replace")
