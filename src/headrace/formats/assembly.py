"""The last step of every decoding: event time, ingestion time, and the columns that were asked for.

A format reads all its columns into a frame. What is the same for all of them is done here: a missing value or one that
is too long is rejected before anything reads it, the event time is taken from a column, a header or Kafka's timestamp,
and a row without a usable time is rejected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa

from headrace.errors import SchemaError
from headrace.events.letters import KEPT_TEXT, SHOWABLE, Reason, Rejection
from headrace.events.reader import value_lengths
from headrace.formats.format import DecodedRecords
from headrace.formats.headers import header_texts
from headrace.formats.times import field_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from headrace.formats.format import Records
    from headrace.formats.times import EventTime

EVENT_TIME = "event_time"
INGESTION_TIME = "ingestion_time"
#: Longer values are rejected without being read. Kafka's own default limit is 1 MiB.
MAX_VALUE_BYTES = 16 * 1024 * 1024

_INSTANT = pl.Datetime("us", "UTC")
_INSTANTS = field_time("t", "us")


def check_names(schema: pl.Schema) -> None:
    """Refuse columns that have a name that every stream uses itself.

    Raises:
        SchemaError: There is one.
    """
    if taken := sorted({EVENT_TIME, INGESTION_TIME} & set(schema.names())):
        raise SchemaError(
            f"the schema has a column {taken[0]!r}, a name that every stream has itself",
            hint="Give the column another name.",
        )


def check_time(time: EventTime, schema: pl.Schema) -> None:
    """Refuse a time in a column that is missing or cannot be a time.

    Raises:
        SchemaError: It is so.
    """
    check_names(schema)
    if time.place != "field":
        return
    (column,) = time.path
    if column not in schema:
        raise SchemaError(
            f"the time column {column!r} is not in the schema",
            hint=f"Columns are: {', '.join(schema.names()) or 'none'}.",
        )
    dtype = schema[column]
    if dtype.is_numeric() and not time.is_epoch:
        raise SchemaError(
            f"the time column {column!r} is {dtype}: its unit is not known",
            hint='Say what it counts: time_format="ms".',
        )
    if not dtype.is_numeric() and not isinstance(dtype, (pl.Datetime, pl.Date, pl.String)):
        raise SchemaError(
            f"the time column {column!r} is {dtype}, which is no time",
            hint="Declare it as pl.Datetime, as text, or as a number.",
        )


def readable(
    records: Records, *, nulls: bool = False
) -> tuple[pa.BinaryArray, NDArray[np.int64] | None, dict[int, Rejection]]:
    """Leave out the values that are missing or too long.

    Args:
        records: The records.
        nulls: Whether a record without a value may pass.

    Returns:
        The other values, their positions (None: all of them), and the rejections.
    """
    values = records.values
    refused = value_lengths(values) > MAX_VALUE_BYTES
    rejections = {
        row: Rejection(Reason.TOO_LARGE, f"{len(values[row].as_buffer()):,} bytes, the limit is {MAX_VALUE_BYTES:,}")
        for row in np.flatnonzero(refused).tolist()
    }
    if values.null_count and not nulls:
        missing = values.is_null().to_numpy(zero_copy_only=False)
        refused = refused | missing
        for row in np.flatnonzero(missing).tolist():
            rejections[row] = Rejection(Reason.EMPTY_VALUE, "the record has no value")
    if not refused.any():
        return values, None, rejections
    positions = np.flatnonzero(~refused)
    return values.take(pa.array(positions)), positions, rejections


def compose(outer: NDArray[np.int64] | None, inner: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
    """Positions of positions; None means all."""
    if outer is None or inner is None:
        return inner if outer is None else outer
    return outer[inner]


def malformed(text: str) -> Rejection:
    """Reject a record whose bytes do not fit the format."""
    return Rejection(Reason.MALFORMED, text[:KEPT_TEXT])


def assemble(
    frame: pl.DataFrame,
    positions: NDArray[np.int64] | None,
    rejections: dict[int, Rejection],
    records: Records,
    time: EventTime,
    columns: Sequence[str] | None,
) -> DecodedRecords:
    """Add the times to the columns of a format, and keep those that were asked for.

    Args:
        frame: All columns that decide about rejections, one row per record that could be read.
        positions: The positions of the rows among the records; None means all.
        rejections: What could not be read so far.
        records: The records.
        time: Where the event time is.
        columns: The columns to keep; None means all.
    """
    arrived = kafka_times(records, positions, frame.height)
    raw = _raw_times(time, frame, records, positions, arrived)
    event_time = time.micros(raw) if time.place != "timestamp" else _INSTANTS.micros(raw)
    usable = event_time.is_not_null().to_numpy()
    if not usable.all():
        for row in np.flatnonzero(~usable).tolist():
            rejections[row if positions is None else int(positions[row])] = time.rejection(raw[row])
        fine = np.flatnonzero(usable)
        frame, event_time, arrived = frame[fine], event_time.gather(fine), arrived.gather(fine)
        positions = compose(positions, fine)
    # A producer may send any number as a timestamp; one that no calendar shows is no ingestion time.
    shown = pl.select(pl.when(arrived.is_between(*SHOWABLE)).then(arrived)).to_series()
    times = pl.DataFrame(
        {EVENT_TIME: event_time.cast(pl.Int64).cast(_INSTANT), INGESTION_TIME: shown.cast(pl.Int64).cast(_INSTANT)}
    )
    kept = frame.columns if columns is None else list(columns)
    return DecodedRecords(times.hstack(frame.select(kept)) if kept else times, positions, rejections)


def _raw_times(
    time: EventTime, frame: pl.DataFrame, records: Records, positions: NDArray[np.int64] | None, arrived: pl.Series
) -> pl.Series:
    if time.place == "timestamp":
        return arrived
    if time.place == "field":
        column = frame.get_column(time.path[0])
        for name in time.path[1:]:
            column = column.struct.field(name)
        return column
    texts, _ = header_texts(records.headers, time.path[0], len(records))
    return texts if positions is None else texts.gather(positions)


def kafka_times(records: Records, positions: NDArray[np.int64] | None, rows: int) -> pl.Series:
    """Give Kafka's timestamps of some records in microseconds, whatever they are; null where there is none."""
    if records.timestamps is None:
        return pl.Series([None] * rows, dtype=pl.Int64)
    column = records.timestamps if positions is None else records.timestamps.take(pa.array(positions))
    return pl.Series(pl.from_arrow(column.cast(pa.timestamp("us", "UTC")).view(pa.int64())))


def strings(values: pa.BinaryArray) -> tuple[pa.StringArray, NDArray[np.int64] | None, list[int]]:
    """Read values as UTF-8.

    Returns:
        The texts of the values that are UTF-8, their positions (None: all), and the positions of the others.
    """
    try:
        return values.cast(pa.string()), None, []
    except pa.ArrowInvalid:
        pass
    wrong = [row for row, value in enumerate(values.to_pylist()) if value is not None and not _is_utf8(value)]
    positions = np.setdiff1d(np.arange(len(values)), np.array(wrong, np.int64))
    return values.take(pa.array(positions)).cast(pa.string()), positions, wrong


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
