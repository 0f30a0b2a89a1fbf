"""Processors: from raw messages to typed events, or to reasons why not.

A processor looks at a batch of raw messages and answers for every single one of them: it is part of a frame of events,
or it is dismissed with a cause. It never raises because of what a message says. Batches, not messages, are its unit,
since columns are much faster than objects; the answer for a message does not depend on the others in its batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl
    from google.protobuf.message import Message

    from headrace.ingest.message import RawMessage


class Cause(StrEnum):
    """Why a message does not become an event; codes that `headrace.events.Reason` has, too, mean the same."""

    EMPTY = "empty_value"
    """The payload has no bytes."""
    TOO_LARGE = "too_large"
    """The payload is longer than the processor reads."""
    NOT_UTF8 = "not_utf8"
    """The payload is no text."""
    MALFORMED = "malformed_json"
    """The payload is text, but not what the format asks for."""
    MALFORMED_ROW = "malformed_csv"
    """The payload is text, but not a row of as many cells as there are columns."""
    UNKNOWN_TOPIC = "unknown_topic"
    """The topic is not one the processor understands."""
    UNKNOWN_EVENT = "unknown_event"
    """The format has no such kind of event."""
    OTHER_EVENT = "other_event"
    """A known kind of event that no input topic takes."""
    MISSING_FIELD = "missing_field"
    """A field is missing without which there is no event."""
    BAD_VALUE = "bad_value"
    """A field has the wrong type, or a value that cannot be."""
    NO_POSITION = "no_position"
    """The message has no position, and the settings ask for one."""
    CLOCK_AHEAD = "clock_ahead"
    """The event time is further after the arrival than the settings allow."""
    CLOCK_BEHIND = "clock_behind"
    """The event time is further before the arrival than the settings allow."""
    FILTERED = "filtered"
    """A good message that the mapping's `where` leaves out; it is counted, and never a dead letter."""
    DUPLICATE = "duplicate"
    """The same message came before, within the time for which repeats are looked for."""


@dataclass(frozen=True, slots=True)
class Dismissal:
    """Why one message is not an event.

    Args:
        cause: The code, for counting.
        text: What was wrong with it, for a person.
    """

    cause: Cause
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFrame:
    """Events of one type, on their way to one topic.

    Args:
        topic: The input topic on Kafka.
        type: The message type of the events.
        frame: `event_time`, `ingestion_time` and columns of the type, in the order of the messages.
        keys: The Kafka key of each event, texts; events with the same key stay in order. None: there are no keys.
    """

    topic: str
    type: type[Message]
    frame: pl.DataFrame
    keys: pl.Series | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Processed:
    """The answer to a batch; every message is in exactly one of both.

    Args:
        events: Frames of events, at most one for each topic and type.
        dismissed: Number of the message in the batch to the reason why it is no event, in ascending order.
        cleared: Field name to how many of its values were left out, where the settings allow that.
    """

    events: tuple[EventFrame, ...]
    dismissed: Mapping[int, Dismissal] = field(default_factory=dict)
    cleared: Mapping[str, int] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many events there are."""
        return sum(part.frame.height for part in self.events)


class Processor(ABC):
    """Turns raw messages into events.

    Args:
        settings: How; an instance of the class's `Settings`. A class without `Settings` takes none.
    """

    #: What a configuration calls it.
    name: ClassVar[str]
    #: The frozen dataclass of its settings, if it has any.
    Settings: ClassVar[type | None] = None
    #: Whether its settings name message types; it is then made with `types=`, a `TypeRegistry`, too.
    names_types: ClassVar[bool] = False
    #: The topics it may write to.
    topics: tuple[str, ...]

    @abstractmethod
    def process(self, messages: Sequence[RawMessage]) -> Processed:
        """Look at a batch; nothing in it raises.

        Args:
            messages: The messages.
        """
