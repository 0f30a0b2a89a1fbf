"""Events: the envelope around every record on Kafka, the types it may hold, and the codec between records and columns.

Start with `Codec`. `TypeRegistry` adds message types of your own; `Reason` lists why a record may be a dead letter; the
schemas themselves are in `headrace/events/schemas/*.proto`, and `docs/schemas.md` says how they may change.
"""

from __future__ import annotations

from typing import Any

from headrace.events.codec import Codec
from headrace.events.decoding import ENCODING_HEADER, Decoded, Encoding
from headrace.events.layout import Layout
from headrace.events.letters import Reason, Rejection, dead_letter
from headrace.events.registry import EventType, TypeRegistry
from headrace.events.schemas.envelope_pb2 import Event
from headrace.events.schemas.records_pb2 import Cells, Column, DeadLetter, LateEvent, Record, Result
from headrace.moved import moved_name

__all__ = [
    "Codec",
    "Decoded",
    "Encoding",
    "ENCODING_HEADER",
    "TypeRegistry",
    "EventType",
    "Layout",
    "Reason",
    "Rejection",
    "dead_letter",
    "Event",
    "Record",
    "Result",
    "Column",
    "Cells",
    "DeadLetter",
    "LateEvent",
]


def __getattr__(name: str) -> Any:
    return moved_name("headrace.events", name)
