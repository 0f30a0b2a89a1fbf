"""Alignment: recordings of different hours or days, each moved so that all begin together.

What a stream is about happens in **event time**, so that is what is aligned: a message that was 20 seconds late in its
recording is 20 seconds late among the others, too. Only a processor can tell when the event of a message happened, and
the first message of a recording may be any: late, broken, or of a sender whose clock is wrong. So the processor reads
the first thousand messages of each recording, and the usual lateness of their events, the median, is taken off the
first arrival: that is the event time at which the recording begins.

Arrivals can be aligned instead: then the first messages of all recordings arrive at the same moment, whatever they say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import polars as pl

from headrace.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.ingest.message import RawMessage
    from headrace.ingest.processor import Processor

AlignOn = Literal["event_time", "arrival"]

#: So many messages of a recording are read to see how late they usually are.
SAMPLE = 1000


def beginning(head: Sequence[RawMessage], on: AlignOn, *, name: str, processor: Processor | None) -> int:
    """When a recording begins, in microseconds since the epoch.

    Args:
        head: Its first messages, at least one.
        on: Whether that is an event time or an arrival.
        name: The recording's name, for errors.
        processor: Reads event times; not needed for arrivals.

    Raises:
        ConfigError: Nobody can tell when the events happened.
    """
    if on == "arrival":
        return head[0].arrival
    if processor is None:
        raise ConfigError(
            "recordings are to be aligned on event time, and there is no processor that reads it",
            hint='Give one, or align them on arrivals: align_on = "arrival".',
        )
    late = _usual_lateness(head, processor)
    if late is None:
        raise ConfigError(
            f"{name} cannot be aligned: none of its first {len(head):,} messages is an event",
            hint=f"Is {processor.name} the right processor? Arrivals need none: --align-on arrival, or align_on.",
        )
    return head[0].arrival - late


def _usual_lateness(messages: Sequence[RawMessage], processor: Processor) -> int | None:
    late = (pl.col("ingestion_time") - pl.col("event_time")).dt.total_microseconds()
    parts = [part.frame.select(late.alias("late")) for part in processor.process(messages).events]
    if not parts:
        return None
    usual = pl.concat(parts).get_column("late").quantile(0.5, "nearest")
    return None if usual is None else int(usual)
