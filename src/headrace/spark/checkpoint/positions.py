"""Positions: up to which offsets and which time a query has read.

A position is what the source notes in Spark's offset log at the end of a batch. Commit tokens carry it, so that a token
says what it covers and not only the number of a batch, which an older copy of a checkpoint gives to other events.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Per topic, per partition, the offset to read next.
Places = dict[str, dict[int, int]]


@dataclass(frozen=True)
class Position:
    """Where a batch ends.

    Args:
        offsets: Per topic and partition, the offset to read next.
        now: The time that was planned with the batch, in microseconds since the epoch.
        steady: The same by the clock that idleness is measured with, where it was noted.
    """

    offsets: Places
    now: int = 0
    steady: int | None = field(default=None, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Give it in the form of Spark's offset log."""
        offsets = {topic: {str(n): at for n, at in sorted(each.items())} for topic, each in self.offsets.items()}
        steady = {} if self.steady is None else {"steady": self.steady}
        return {"offsets": offsets, "now": self.now, **steady}

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> Position:
        """Read an entry of the offset log; those of old checkpoints hold the offsets alone.

        >>> Position.from_dict({"offsets": {"t": {"0": 7}}, "now": 5})
        Position(offsets={'t': {0: 7}}, now=5, steady=None)
        >>> Position.from_dict({"t": {"0": 7}})
        Position(offsets={'t': {0: 7}}, now=0, steady=None)
        """
        by_topic = told["offsets"] if "now" in told else told
        offsets = {topic: {int(n): int(at) for n, at in each.items()} for topic, each in by_topic.items()}
        if "now" not in told:
            return cls(offsets)
        return cls(offsets, int(told["now"]), None if told.get("steady") is None else int(told["steady"]))

    def at(self, topic: str, partition: int) -> int:
        """Tell the offset of a partition; one that it does not name is at its beginning."""
        return self.offsets.get(topic, {}).get(partition, 0)

    def places(self) -> Iterator[tuple[str, int, int]]:
        """Go through topics, partitions and offsets."""
        for topic, each in self.offsets.items():
            for partition, offset in each.items():
                yield topic, partition, offset

    def includes(self, other: Position) -> bool:
        """Tell whether everything up to another position lies before this one.

        >>> Position({"t": {0: 7, 1: 3}}, 5).includes(Position({"t": {0: 7, 1: 2}}, 5))
        True
        >>> Position({"t": {0: 7, 1: 3}}, 5).includes(Position({"t": {0: 6, 1: 4}}, 5))
        False
        """
        return other.now <= self.now and all(at <= self.at(topic, n) for topic, n, at in other.places())

    def matches(self, other: Position) -> bool:
        """Tell whether two positions are the same; a partition that one does not name is at its beginning.

        >>> Position({"t": {0: 7, 1: 0}}, 5).matches(Position({"t": {0: 7}}, 5))
        True
        """
        return self.includes(other) and other.includes(self)

    def events_since(self, other: Position) -> int:
        """Count the events between another position and this one.

        >>> Position({"t": {0: 7, 1: 3}}).events_since(Position({"t": {0: 5}}))
        5
        """
        return sum(max(0, at - other.at(topic, n)) for topic, n, at in self.places())


@dataclass(frozen=True)
class Span:
    """What a batch reads.

    Args:
        begin: Where the batch before it ended.
        end: Where it ends.
        absent: Jobs that take no part in it.
    """

    begin: Position
    end: Position
    absent: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Name the batch by where it ends, which is the same when it is repeated and which no other batch has."""
        told = self.end.to_dict()
        told.pop("steady", None)
        return hashlib.blake2b(json.dumps(told, sort_keys=True).encode(), digest_size=8).hexdigest()

    def within(self, position: Position) -> bool:
        """Tell whether a batch lies before a position as a whole, by the events that it reads.

        A batch without events lies where its time does.

        Raises:
            StateError: Only a part of the batch lies before it.

        >>> end = Position({"t": {0: 20, 1: 9}}, 5)
        >>> Span(Position({"t": {0: 10, 1: 9}}), end).within(Position({"t": {0: 20, 1: 4}}, 5))
        True
        >>> Span(Position({"t": {0: 10, 1: 9}}), end).within(Position({"t": {0: 10, 1: 9}}, 4))
        False
        """
        read = [(t, n, self.begin.at(t, n), at) for t, n, at in self.end.places() if at > self.begin.at(t, n)]
        if not read:
            return self.end.now <= position.now
        inside = [end <= position.at(topic, n) for topic, n, _, end in read]
        outside = [begin >= position.at(topic, n) for topic, n, begin, _ in read]
        if all(inside) or all(outside):
            return all(inside)
        partly = next(
            (topic, n, begin, end)
            for (topic, n, begin, end), within, beyond in zip(read, inside, outside, strict=True)
            if not within or not beyond
        )
        topic, n, begin, end = partly
        raise StateError(
            f"the results of a part of this batch are out: it reads {topic} partition {n} from {begin:,} to {end:,}, "
            f"and results are out up to {position.at(topic, n):,}",
            hint="The offset log of the checkpoint was changed. Restore the checkpoint from its newest copy, or start "
            "afresh (--fresh).",
        )
