"""Dead letters: what could not be used, why, and where it came from.

Bad data is a value, not an exception. Everything that refuses a record says so with a `Reason`, and the record goes to
the dead-letter topic with the start of its bytes and its place on Kafka, so that it can be looked at and sent again.
Nothing vanishes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from headrace.events.columns import MAX_SECONDS, MICROS, MIN_SECONDS
from headrace.events.layout import Layout
from headrace.events.schemas.records_pb2 import DeadLetter

if TYPE_CHECKING:
    from collections.abc import Mapping

#: At most so many bytes of a value or key are kept in a dead letter.
KEPT_BYTES = 65_536
#: At most so many characters of a reason's text.
KEPT_TEXT = 500

#: Microseconds from the year 1 to the end of 9999.
SHOWABLE = (MIN_SECONDS * MICROS, (MAX_SECONDS + 1) * MICROS - 1)

#: The columns of dead letters, as `DeadLetter` has them.
SCHEMA: pl.Schema = Layout(DeadLetter.DESCRIPTOR).schema


class Reason(StrEnum):
    """Why a record is a dead letter."""

    EMPTY_VALUE = "empty_value"
    """The record has no value (a tombstone)."""
    TOO_LARGE = "too_large"
    """The value is longer than the codec reads."""
    UNKNOWN_ENCODING = "unknown_encoding"
    """The record's header names an encoding that is neither binary nor json."""
    MALFORMED = "malformed"
    """The value is no protobuf envelope."""
    MALFORMED_JSON = "malformed_json"
    """The value is no JSON, or its fields do not fit the envelope or the type."""
    MISSING_TIMESTAMP = "missing_timestamp"
    """The envelope has no event timestamp."""
    BAD_TIMESTAMP = "bad_timestamp"
    """A timestamp is before the year 1, after 9999, or has nanoseconds out of range."""
    MISSING_DETAILS = "missing_details"
    """The envelope has no details."""
    UNKNOWN_TYPE = "unknown_type"
    """The type of the details is not registered."""
    MALFORMED_DETAILS = "malformed_details"
    """The details are no message of the type they say."""
    WRONG_TYPE = "wrong_type"
    """A field of a record that others wrote has another type than its column."""
    NO_JSON_FORM = "no_json_form"
    """A tool was to show as JSON what JSON cannot say; never on a topic."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why one record cannot be used.

    Args:
        reason: The code.
        text: What was wrong with it, for a person.
        event_type: The type its envelope names, if it came that far.
    """

    reason: Reason
    text: str
    event_type: str | None = None


@dataclass(slots=True)
class Letters:
    """Collects the rejected rows of one batch."""

    entries: dict[int, Rejection] = field(default_factory=dict)

    def add(self, row: int, reason: Reason, text: str, event_type: str | None = None) -> None:
        """Reject a row; the first reason counts."""
        short = None if event_type is None else event_type[:KEPT_TEXT]
        self.entries.setdefault(row, Rejection(reason, text[:KEPT_TEXT], short))

    def frame(self, values: pa.Array, origin: dict[str, pa.Array], *, job: str | None) -> pl.DataFrame:
        """Make dead letters of the rejected rows, in the order of the batch."""
        positions = sorted(self.entries)
        rows = pa.array(positions, pa.int64())
        rejections = [self.entries[row] for row in positions]
        here = {name: column.take(rows) for name, column in origin.items()}
        value = pc.fill_null(values.take(rows), b"")
        key = here.get("key", pa.nulls(len(rows), pa.binary())).cast(pa.binary())
        return pl.DataFrame(
            {
                "reason": [str(rejection.reason) for rejection in rejections],
                "text": [rejection.text for rejection in rejections],
                "value": _series(pc.binary_slice(value, 0, KEPT_BYTES)),
                "value_size": _series(pc.binary_length(value)),
                "key": _series(pc.binary_slice(key, 0, KEPT_BYTES)),
                "key_size": _series(pc.fill_null(pc.binary_length(key), 0)),
                **{name: _series(here[name]) if name in here else None for name in ("topic", "partition", "offset")},
                "record_timestamp": _record_times(here["timestamp"]) if "timestamp" in here else None,
                "job": job,
                "event_type": [rejection.event_type for rejection in rejections],
            },
            schema=SCHEMA,
        )


def dead_letters(
    rejections: Mapping[int, Rejection], values: pa.Array, origin: dict[str, pa.Array] | None = None
) -> pl.DataFrame:
    """Make dead letters of what a format could not read, in the order of the records.

    Args:
        rejections: What could not be read, by position.
        values: The values of all records.
        origin: Their Kafka columns, as far as they are known: key, topic, partition, offset, timestamp.
    """
    letters = Letters()
    for position, rejection in rejections.items():
        letters.add(position, rejection.reason, rejection.text, rejection.event_type)
    return letters.frame(values, origin or {}, job=None)


def _series(column: pa.Array) -> pl.Series:
    return pl.Series(pl.from_arrow(column))


def _record_times(column: pa.Array) -> pl.Series:
    """Kafka's timestamps; a producer may send any number, so one that no calendar shows is left out."""
    times = _series(column)
    if isinstance(times.dtype, pl.Datetime):
        times = times.dt.cast_time_unit("us")
    micros = times.cast(pl.Int64).to_frame("t").select(pl.when(pl.col("t").is_between(*SHOWABLE)).then("t"))
    return micros.to_series().cast(pl.Datetime("us", "UTC"))


def dead_letter(
    rejection: Rejection,
    value: bytes | None,
    *,
    key: bytes | None = None,
    topic: str | None = None,
    partition: int | None = None,
    offset: int | None = None,
    timestamp: Any | None = None,
    job: str | None = None,
) -> dict[str, Any]:
    """One row of dead letters, with value and key cut to `KEPT_BYTES`.

    >>> row = dead_letter(Rejection(Reason.MALFORMED, "corrupt"), b"x" * 100_000, topic="input.vehicles")
    >>> row["reason"], len(row["value"]), row["value_size"]
    ('malformed', 65536, 100000)
    """
    return {
        "reason": str(rejection.reason),
        "text": rejection.text[:KEPT_TEXT],
        "value": (value or b"")[:KEPT_BYTES],
        "value_size": len(value or b""),
        "key": None if key is None else key[:KEPT_BYTES],
        "key_size": len(key or b""),
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "record_timestamp": timestamp,
        "job": job,
        "event_type": rejection.event_type,
    }
