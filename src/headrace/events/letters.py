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

from headrace.events.layout import Layout
from headrace.events.schemas.records_pb2 import DeadLetter

if TYPE_CHECKING:
    import pyarrow as pa

#: At most so many bytes of a value or key are kept in a dead letter.
KEPT_BYTES = 65_536
#: At most so many characters of a reason's text.
KEPT_TEXT = 500

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
        self.entries.setdefault(row, Rejection(reason, text[:KEPT_TEXT], event_type))

    def frame(self, values: pa.Array, origin: dict[str, pa.Array], *, job: str | None) -> pl.DataFrame:
        """Make dead letters of the rejected rows, in the order of the batch."""
        rows = [
            dead_letter(
                rejection,
                values[row].as_py(),
                job=job,
                **{name: column[row].as_py() for name, column in origin.items()},
            )
            for row, rejection in sorted(self.entries.items())
        ]
        return pl.DataFrame(rows, schema=SCHEMA, orient="row")


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
