"""Recognising a marker's result among all others.

A marker's event happens in a cell of its own (`headrace.observe.places`), and so does what a job makes of it: the
result's key or one of its columns is that cell. Each marker is given `STRIDE` cells in a row: one that its result is
recognised by, and a neighbour to go to, for jobs that look at movement.

A result topic carries thousands of other results a second, so what can be told from the record's key is not decoded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import h3

from headrace.events import Event, LateEvent, Result
from headrace.events.letters import Rejection
from headrace.observe.places import PLACES, RESOLUTION, is_marker, marker_number
from headrace.observe.tracker import Sighting

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from headrace.events import Codec
    from headrace.kafka import Record

#: Cells per marker.
STRIDE = 2
#: Marker numbers begin again after so many.
MARKERS = PLACES // STRIDE


@dataclass(frozen=True, slots=True)
class Recognised:
    """A record of a result topic that belongs to a marker."""

    marker: int
    sighting: Sighting


def first_place(marker: int) -> int:
    """Give the number of the place that a marker's result is recognised by.

    >>> first_place(0), first_place(21)
    (0, 42)
    """
    return marker % MARKERS * STRIDE


def marker_of(cell: int) -> int | None:
    """Give the marker whose result is in a cell; None if it is no marker's.

    >>> from headrace.observe.places import marker_cell
    >>> marker_of(marker_cell(first_place(21))), marker_of(marker_cell(43)), marker_of(617294884144414719)
    (21, None, None)
    """
    place = marker_number(cell)
    return None if place is None or place % STRIDE else place // STRIDE


def recognise(record: Record, codec: Codec, *, seen: int) -> Recognised | None:
    """Read a record of a result topic, if it belongs to a marker.

    Args:
        record: The record.
        codec: Reads its value.
        seen: When it was in hand.
    """
    keyed = _cell_of_key(record.key)
    if keyed is not None and marker_of(keyed) is None:
        return None
    event, result = _content(record.value, codec)
    if event is None or not isinstance(result, Result) or result.is_retraction:
        return None
    cell = keyed if keyed is not None else _cell_of_columns(result)
    marker = None if cell is None else marker_of(cell)
    if marker is None:
        return None
    due = result.window_end if result.HasField("window_end") else event.event_timestamp
    sighting = Sighting(result.idempotency_key, due.ToMicroseconds(), record.timestamp, seen)
    return Recognised(marker, sighting)


def recognise_late(record: Record, codec: Codec) -> int | None:
    """Give the marker whose event a record of a late topic tells of; None if it is no marker's."""
    _, late = _content(record.value, codec)
    if not isinstance(late, LateEvent) or not late.HasField("event"):
        return None
    payload = codec.payload(late.event)
    if isinstance(payload, Rejection):
        return None
    latitude, longitude = (getattr(payload, name, None) for name in ("latitude", "longitude"))
    if latitude is None or longitude is None or not is_marker(latitude, longitude):
        return None
    place = marker_number(h3.str_to_int(h3.latlng_to_cell(latitude, longitude, RESOLUTION)))
    # Here either cell will do: the event that came late may be the one in the second.
    return None if place is None else place // STRIDE


def _content(value: bytes | None, codec: Codec) -> tuple[Event | None, Message | None]:
    event = codec.read(value)
    if isinstance(event, Rejection):
        return None, None
    payload = codec.payload(event)
    return event, None if isinstance(payload, Rejection) else payload


def _cell_of_key(key: bytes | None) -> int | None:
    """Read a key that begins with a cell: a 60-bit number, in decimal."""
    first = b"" if key is None else key.partition(b"|")[0]
    return int(first) if 17 <= len(first) <= 19 and first.isdigit() else None


def _cell_of_columns(result: Result) -> int | None:
    return next((column.unsigned for column in result.columns if column.name == "cell"), None)
