"""Many raw messages at once, as columns: what a replay hands over by the ten thousand.

An object for every message costs more than everything else that is done with it. `Messages` keeps topics, payloads and
times in columns, and makes a `RawMessage` only of those that somebody asks for. To everybody else it is a sequence of
messages like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING, Self, TypeAlias, overload

import numpy as np

from headrace.ingest.message import RawMessage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Numbers: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.int64]]"

#: How many messages that come one by one are gathered.
BLOCK = 1000


class Messages(Sequence[RawMessage]):
    """A sequence of messages whose columns can be had.

    Args:
        topics: See `RawMessage`, for this and all others.
        payloads: Copies of a message share one object.
        arrivals: As numbers of 64 bits.
        shifts: None: nothing is moved.
        copies: None: there are no copies.

    >>> messages = Messages.of([RawMessage("/a", b"{}", 5), RawMessage("/b", b"{}", 7)])
    >>> messages.copied(2).moved(1)[3]
    RawMessage(topic='/b', payload=b'{}', arrival=8, shift=1, copy=1)
    """

    __slots__ = ("arrivals", "copies", "payloads", "shifts", "topics")

    def __init__(
        self,
        topics: Sequence[str],
        payloads: Sequence[bytes],
        arrivals: Numbers,
        shifts: Numbers | None = None,
        copies: Numbers | None = None,
    ) -> None:
        self.topics, self.payloads, self.arrivals = topics, payloads, arrivals
        self.shifts = np.zeros_like(arrivals) if shifts is None else shifts
        self.copies = np.zeros_like(arrivals) if copies is None else copies

    @classmethod
    def of(cls, messages: Sequence[RawMessage]) -> Messages:
        """Make columns of messages, unless they are in columns already."""
        if isinstance(messages, Messages):
            return messages
        if not messages:
            return cls((), (), np.zeros(0, np.int64))
        topics, payloads, *numbers = zip(*messages, strict=True)
        return cls(topics, payloads, *(np.array(column, np.int64) for column in numbers))

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Put parts, at least one, behind each other."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            list(chain.from_iterable(part.topics for part in parts)),
            list(chain.from_iterable(part.payloads for part in parts)),
            np.concatenate([part.arrivals for part in parts]),
            np.concatenate([part.shifts for part in parts]),
            np.concatenate([part.copies for part in parts]),
        )

    def __len__(self) -> int:
        return len(self.payloads)

    @overload
    def __getitem__(self, which: int) -> RawMessage: ...

    @overload
    def __getitem__(self, which: slice) -> Messages: ...

    def __getitem__(self, which: int | slice) -> RawMessage | Messages:
        times = self.arrivals[which], self.shifts[which], self.copies[which]
        if isinstance(which, slice):
            return Messages(self.topics[which], self.payloads[which], *times)
        return RawMessage(self.topics[which], self.payloads[which], *map(int, times))

    def __iter__(self) -> Iterator[RawMessage]:
        numbers = (column.tolist() for column in (self.arrivals, self.shifts, self.copies))
        return map(RawMessage, self.topics, self.payloads, *numbers)

    def taken(self, numbers: Numbers) -> Messages:
        """Some of them, by their numbers."""
        which = numbers.tolist()
        return Messages(
            [self.topics[number] for number in which],
            [self.payloads[number] for number in which],
            self.arrivals[numbers],
            self.shifts[numbers],
            self.copies[numbers],
        )

    def moved(self, by: int) -> Messages:
        """The same at another time, so many microseconds later."""
        return Messages(self.topics, self.payloads, self.arrivals + by, self.shifts + by, self.copies)

    def copied(self, times: int) -> Messages:
        """Each of them so many times, its copies behind it."""
        copies = np.tile(np.arange(times), len(self))
        copies[::times] = self.copies
        return Messages(
            list(chain.from_iterable(map(repeat, self.topics, repeat(times)))),
            list(chain.from_iterable(map(repeat, self.payloads, repeat(times)))),
            np.repeat(self.arrivals, times),
            np.repeat(self.shifts, times),
            copies,
        )

    def cut(self, size: int) -> Iterator[Messages]:
        """All of them, in parts of a size, the last one smaller."""
        return (self[start : start + size] for start in range(0, len(self), size))


def gathered(messages: Iterable[RawMessage]) -> Iterator[Messages]:
    """Messages that come one by one, some at a time."""
    rest = iter(messages)
    while block := list(islice(rest, BLOCK)):
        yield Messages.of(block)


def payloads_of(messages: Sequence[RawMessage]) -> Iterable[bytes]:
    """The payloads of messages; columns are not taken apart for them."""
    return messages.payloads if isinstance(messages, Messages) else (message.payload for message in messages)
