"""The batches of a query, read again from Kafka: which events each had, and what time it was.

Spark's offset log says where the last hundred batches or so ended, and which time was planned with each. What was read
before that is cut into batches by its arrival; so for these it is an estimate which events were late.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from headrace.errors import StateError
from headrace.formats import Records
from headrace.kafka.ranges import LogEnds, Range, RangeReader
from headrace.spark.checkpoint.continuity import read_position, read_progress
from headrace.trace import Given

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from headrace.formats import RecordPart
    from headrace.kafka import Connection
    from headrace.kafka.ranges import Place
    from headrace.spark.checkpoint.positions import Position

#: Events that came before the batches that are noted are put into so many batches at most.
_CUTS = 500
_SECOND = 1_000_000
_PARTS: frozenset[RecordPart] = frozenset({"key", "headers", "timestamp"})
#: What is looked at of the time before a moment, where more would be too much, the longest first.
_STRETCHES = tuple(minutes * 60 * _SECOND for minutes in (7 * 24 * 60, 24 * 60, 6 * 60, 60, 10, 1))


@dataclass(frozen=True)
class PastBatches:
    """What a query has read, batch by batch.

    Args:
        given: The batches.
        unread: What Kafka has beyond them, by topic and partition.
        partitions: How many partitions each topic has.
        since: Where the events begin, per topic and partition.
        exact: The number of the first batch whose end is noted; None where none is.
        shortened: Whether Kafka has earlier events that were left out.
    """

    given: list[Given]
    unread: dict[str, dict[str, Records]]
    partitions: dict[str, int]
    since: dict[Place, int]
    exact: int | None
    shortened: bool


def recorded_batches(checkpoint: Path) -> list[tuple[int, Position]]:
    """Tell where the batches ended that are done and still noted, the oldest first.

    Raises:
        StateError: The checkpoint has done none, or cannot be read.
    """
    progress = read_progress(checkpoint)
    if progress is None:
        raise StateError(
            f"the query of {checkpoint} has done no batch yet", hint="Wait for its first batch (headrace run --json)."
        )
    names = (checkpoint / "spark" / "offsets").glob("[0-9]*")
    numbers = sorted(int(path.name) for path in names if path.name.isdigit())
    found = [(number, read_position(checkpoint, number)) for number in numbers if number <= progress.committed]
    return [(number, end) for number, end in found if end is not None] or [(-1, progress.position)]


class PastReader:
    """Reads the batches of a query again.

    Args:
        connection: The Kafka.
        topics: What the job reads.
        limit: At most so many events; earlier ones are left out.
    """

    def __init__(self, connection: Connection, topics: Sequence[str], *, limit: int) -> None:
        self._reader = RangeReader(connection)
        self._log = LogEnds(connection)
        self._topics = list(topics)
        self._limit = limit

    def read(
        self, recorded: Sequence[tuple[int, Position]], *, start: Position | None, before: int, back: int | None
    ) -> PastBatches:
        """Read them.

        Args:
            recorded: Where batches ended.
            start: Where to begin; None: as early as the limit lets.
            before: The moment that is asked about, in microseconds since the epoch.
            back: How much of the time before that is looked at; None: as much as the limit lets.

        Raises:
            StateError: That would be too many events.
        """
        places = self._log.partitions(self._topics)
        begins, ends = self._log.begins(places), self._log.ends(places)
        first = begins
        if start is not None:
            first = {place: max(begins[place], start.at(*place)) for place in places}
        elif back is not None:
            first = self._since(places, begins, before - back)
        elif _events(begins, ends) > self._limit:
            first = self._shortened(places, begins, ends, before)
        if _events(first, ends) > self._limit:
            raise StateError(
                f"that would be {_events(first, ends):,} events, more than {self._limit:,}",
                hint="Look at less: --back 10m; or begin with a --savepoint; or raise --limit.",
            )
        records = {place: self._records(place, first[place], ends[place]) for place in places}
        last = recorded[-1][1]
        read = {place: _between(held, first[place], last.at(*place)) for place, held in records.items()}
        rest = {place: _between(held, last.at(*place), ends[place]) for place, held in records.items()}
        counts: dict[str, int] = {}
        for topic, _ in places:
            counts[topic] = counts.get(topic, 0) + 1
        return PastBatches(
            list(_batches(read, recorded, first)),
            _by_topic(rest),
            counts,
            first,
            recorded[1][0] if len(recorded) > 1 else None,
            start is None and first != begins,
        )

    def _since(self, places: Sequence[Place], begins: Mapping[Place, int], time: int) -> dict[Place, int]:
        found = self._log.at(places, max(0, time))
        return {place: max(begins[place], found[place]) for place in places}

    def _shortened(
        self, places: Sequence[Place], begins: Mapping[Place, int], ends: Mapping[Place, int], before: int
    ) -> dict[Place, int]:
        """Take the longest stretch of time before a moment that has not too many events."""
        for stretch in _STRETCHES:
            found = self._since(places, begins, before - stretch)
            if _events(found, ends) <= self._limit:
                return found
        return found

    def _records(self, place: Place, start: int, end: int) -> Records:
        topic, partition = place
        chunks = list(self._reader.read([Range(topic, partition, start, end)], parts={topic: _PARTS}))
        if not chunks:
            none = pa.array([], pa.int64())
            return Records(pa.array([], pa.binary()), timestamps=none.cast(pa.timestamp("us", "UTC")), offsets=none)

        def column(name: str) -> pa.Array:
            return pa.concat_arrays([getattr(chunk, name) for chunk in chunks])

        values = column("values")
        numbers = pa.array(np.full(len(values), partition, np.int32))
        return Records(values, column("keys"), column("headers"), column("timestamps"), numbers, column("offsets"))


def _batches(
    records: Mapping[Place, Records], recorded: Sequence[tuple[int, Position]], first: Mapping[Place, int]
) -> Iterator[Given]:
    """Cut events into the batches that they were in."""
    number, end = recorded[0]
    early = {place: _between(held, first[place], end.at(*place)) for place, held in records.items()}
    yield from _by_arrival(early, end.now, number)
    for (_, begin), (number, end) in pairwise(recorded):
        part = {place: _between(held, begin.at(*place), end.at(*place)) for place, held in records.items()}
        yield Given(_by_topic(part), now=end.now, number=number)


def _by_arrival(records: Mapping[Place, Records], now: int, number: int) -> Iterator[Given]:
    """Cut events whose batches are not noted any more into batches by Kafka's timestamps."""
    times = {place: _arrivals(held) for place, held in records.items()}
    every = np.concatenate(list(times.values()) or [np.zeros(0, np.int64)])
    if not len(every):
        return
    low, high = int(every.min()), int(every.max())
    width = max(_SECOND, (high - low) // _CUTS + 1)
    cuts = list(range(low + width, high + width + 1, width))
    for earlier, cut in enumerate(cuts, number - len(cuts) + 1):
        part = {}
        for place, held in records.items():
            # Within a partition the order counts: what stands behind an event cannot have been read before it.
            mine = np.flatnonzero((times[place] < cut) & (times[place] >= cut - width))
            part[place] = held.take(mine.astype(np.int64))
        if any(len(each) for each in part.values()):
            yield Given(_by_topic(part), now=min(cut, now) if now else cut, number=earlier)


def _arrivals(records: Records) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Give when each event arrived, at least when the one before it in its partition did."""
    if records.timestamps is None or not len(records):
        return np.zeros(len(records), np.int64)
    micros = records.timestamps.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return np.maximum.accumulate(micros)


def _between(records: Records, start: int, end: int) -> Records:
    if records.offsets is None or not len(records):
        return records
    offsets = records.offsets.to_numpy()
    low, high = np.searchsorted(offsets, [start, end])
    return records.take(np.arange(low, max(low, high), dtype=np.int64))


def _by_topic(records: Mapping[Place, Records]) -> dict[str, dict[str, Records]]:
    found: dict[str, dict[str, Records]] = {}
    for (topic, partition), held in records.items():
        if len(held):
            found.setdefault(topic, {})[f"{topic}/{partition}"] = held
    return found


def _events(first: Mapping[Place, int], ends: Mapping[Place, int]) -> int:
    return sum(max(0, ends[place] - offset) for place, offset in first.items())
