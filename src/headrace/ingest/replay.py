"""Replay: recorded messages in the order of their arrival, moved in time, repeated, multiplied.

What makes a recording worth more than invented data is its disorder: what came late, twice, or not at all. So a replay
follows the **arrivals**. Time is moved for all messages alike: the lateness of a message, the time between its event
and its arrival, stays what it was.

- Several recordings are merged as they were: what happened at the same time then does so now. `align` moves those of
  different hours or days so that they begin together, in event time (`headrace.ingest.alignment`); the gaps between the
  arrivals of each stay.
- `times="now"` moves everything so that the first message arrives now; "keep" leaves the old times.
- A loop moves each round behind the one before, event times included, so that time never jumps back.
- `copies` multiplies the load: each message is sent so many times at the same moment, as others (a processor
  changes the identity, see `RawMessage.copy`); places and times stay the same.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass
from datetime import timedelta  # noqa: TC003 - the reader of feeds.toml needs the types of the fields
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import ConfigDict, with_config

from headrace.errors import ConfigError
from headrace.ingest.alignment import SAMPLE, AlignOn, beginning
from headrace.ingest.message import RawMessage
from headrace.ingest.messages import gathered
from headrace.ingest.recording import Recording
from headrace.time.duration import micros

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from headrace.ingest.messages import Messages
    from headrace.ingest.processor import Processor

#: Between the last message of a round and the first of the next, in microseconds.
ROUND_GAP = 1_000_000
#: So many messages are made at once when each is copied.
_WITH_COPIES = 5000

Times = Literal["keep", "now"]


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan:
    """What is sent, and in which order; not yet how fast.

    Args:
        offset: Time after the first arrival at which the replay begins.
        length: Time from there on that is replayed; None: to the end.
        loops: How often all of it is sent; None: for ever.
        times: "keep" the recorded times, or move them so that the first message arrives "now".
        align: Whether recordings that began at different times are moved to begin together, at the time of the first.
        align_on: What then coincides: "event_time", so that lateness counts as it did, or "arrival".
        copies: How often each message is sent.

    Raises:
        ConfigError: A number makes no sense.

    >>> plan = ReplayPlan(loops=2, copies=2)
    >>> messages = plan.messages([[RawMessage("/a", b"{}", 0), RawMessage("/b", b"{}", 5)]], now=0)
    >>> [(m.topic, m.arrival, m.copy) for m in messages][:5]
    [('/a', 0, 0), ('/a', 0, 1), ('/b', 5, 0), ('/b', 5, 1), ('/a', 1000005, 0)]
    """

    offset: str | timedelta | int = 0
    length: str | timedelta | int | None = None
    loops: int | None = 1
    times: Times = "keep"
    align: bool = False
    align_on: AlignOn = "event_time"
    copies: int = 1

    def __post_init__(self) -> None:
        if self.copies < 1:
            raise ConfigError(f"copies is {self.copies}", hint="1 sends every message once.")
        if self.loops is not None and self.loops < 1:
            raise ConfigError(f"loops is {self.loops}", hint="1 sends everything once; leave it out to never end.")
        if self.times not in ("keep", "now"):
            raise ConfigError(f"times is {self.times!r}", hint="Give keep or now.")
        if self.align_on not in ("event_time", "arrival"):
            raise ConfigError(f"align_on is {self.align_on!r}", hint="Give event_time or arrival.")
        if micros(self.offset) < 0 or (self.length is not None and micros(self.length) <= 0):
            raise ConfigError(f"offset is {self.offset!r}, length {self.length!r}", hint="Give times that lie ahead.")

    def messages(
        self, recordings: Sequence[Iterable[RawMessage]], *, now: int, processor: Processor | None = None
    ) -> Iterator[RawMessage]:
        """All messages in the order in which they are due, one by one; see `blocks`."""
        return itertools.chain.from_iterable(self.blocks(recordings, now=now, processor=processor))

    def blocks(
        self, recordings: Sequence[Iterable[RawMessage]], *, now: int, processor: Processor | None = None
    ) -> Iterator[Messages]:
        """All messages in the order in which they are due, many at a time; their arrivals say when.

        Args:
            recordings: Where they come from, each in the order of arrival; read once for every round.
            now: The moment to which `times="now"` moves the first arrival.
            processor: Knows the event times of messages; needed to align several recordings on them.

        Raises:
            ConfigError: Recordings cannot be aligned.
        """
        shift: int | None = None
        span = 0
        for _ in itertools.count() if self.loops is None else range(self.loops):
            begin = end = None
            for block in self._round(recordings, processor):
                if begin is None or end is None:
                    begin = end = int(block.arrivals[0])
                    if shift is None:
                        shift = now - begin if self.times == "now" else 0
                    else:
                        shift += span
                end = max(end, int(block.arrivals.max()))
                sent = block.moved(shift) if shift else block
                # Copies must not fill the memory, however many there are.
                parts = sent.cut(max(1, _WITH_COPIES // self.copies)) if self.copies > 1 else (sent,)
                yield from (part.copied(self.copies) if self.copies > 1 else part for part in parts)
            if begin is None or end is None:
                return
            span = end - begin + ROUND_GAP

    def _round(self, recordings: Sequence[Iterable[RawMessage]], processor: Processor | None) -> Iterator[Messages]:
        """The messages of one round, merged and cut, at their recorded times."""
        if len(recordings) == 1 and isinstance(recordings[0], Recording):
            blocks = recordings[0].blocks()
        else:
            blocks = gathered(self._merged(recordings, processor))
        begin: int | None = None
        for block in blocks:
            arrivals = block.arrivals
            if begin is None:
                begin = int(arrivals[0]) + micros(self.offset)
            inside = arrivals >= begin
            behind = np.zeros_like(inside) if self.length is None else arrivals >= begin + micros(self.length)
            ended = bool(behind.any())
            if ended:
                inside[behind.argmax() :] = False
            if inside.all():
                yield block
            elif inside.any():
                yield block.taken(np.flatnonzero(inside))
            if ended:
                return

    def _merged(self, recordings: Sequence[Iterable[RawMessage]], processor: Processor | None) -> Iterator[RawMessage]:
        """The messages of all recordings by arrival, those of the others moved to the first if they are aligned."""
        streams: list[Iterator[RawMessage]] = []
        start: int | None = None
        for recording in recordings:
            messages = iter(recording)
            if not self.align or len(recordings) == 1:
                streams.append(messages)
                continue
            head = list(itertools.islice(messages, SAMPLE))
            if not head:
                continue
            name = getattr(recording, "path", "a recording")
            begins = beginning(head, self.align_on, name=name, processor=processor)
            start = begins if start is None else start
            whole = itertools.chain(head, messages)
            streams.append(map(_moved, whole, itertools.repeat(start - begins)) if start != begins else whole)
        return heapq.merge(*streams, key=_arrival)


def _arrival(message: RawMessage) -> int:
    return message.arrival


def _moved(message: RawMessage, by: int) -> RawMessage:
    return RawMessage(message.topic, message.payload, message.arrival + by, message.shift + by, message.copy)
