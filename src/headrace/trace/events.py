"""Events as they are given to be traced: rows or records, each with a number that it keeps on its way."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa

from headrace.engine.operator import EVENT_TIME, ORIGINAL
from headrace.errors import PlanError
from headrace.formats import Records
from headrace.stream.plan import TopicSource
from headrace.trace.story import Event, Fact

if TYPE_CHECKING:
    from headrace.stream.plan import Source

#: Rows of one partition, or for a topic its records, or their values alone.
Rows: TypeAlias = pl.DataFrame | Records | Sequence[bytes | None]
#: What one batch brings: of the only source; or by source; or by source and partition.
Brought: TypeAlias = Rows | Mapping[str, Rows | Mapping[str, Rows]] | None


@dataclass(frozen=True)
class Given:
    """One batch.

    Args:
        rows: What it brings.
        now: Its processing time, in microseconds since the epoch.
        number: What the batch is called; counted from 0 if not given.
    """

    rows: Brought = None
    now: int | None = None
    number: int | None = None


@dataclass
class Events:
    """The places of events by number; an `Event` is made of one only when somebody asks for it."""

    _chunks: list[tuple[str, str, list[int], list[int | None]]] = field(default_factory=list)
    _begins: list[int] = field(default_factory=list)
    _count: int = 0

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: int) -> Event:
        chunk = bisect_right(self._begins, number) - 1
        source, partition, offsets, times = self._chunks[chunk]
        place = number - self._begins[chunk]
        return Event(source, partition, offsets[place], times[place])

    def add(self, source: str, partition: str, offsets: list[int], times: list[int | None]) -> None:
        """Number further events."""
        if offsets:
            self._chunks.append((source, partition, offsets, times))
            self._begins.append(self._count)
            self._count += len(offsets)


@dataclass
class Log:
    """Numbers the events as they are read, and knows their places."""

    events: Events = field(default_factory=Events)
    _next: dict[tuple[str, str], int] = field(default_factory=dict)

    def frames(
        self, source: Source, parts: Mapping[str, Rows], now: int | None, words: Sequence[str]
    ) -> tuple[dict[str, pl.DataFrame], list[Fact]]:
        """Read what a batch brings of a source.

        Args:
            source: The source.
            parts: Its rows or records, by partition.
            now: Kafka's timestamp of values that are given alone.
            words: What a record that cannot be read must contain to be told.

        Returns:
            The rows of each partition, with the number of the event as `original_value`; and what could not be read.
        """
        frames: dict[str, pl.DataFrame] = {}
        facts: list[Fact] = []
        for partition, given in parts.items():
            if isinstance(given, pl.DataFrame):
                offsets = self._offsets(source.name, partition, given.height, None)
                frame, kept = given, np.arange(given.height)
            else:
                if not isinstance(source, TopicSource):
                    raise PlanError(f"records for {source.text}, which is no topic", hint="Give a frame.")
                records = given if isinstance(given, Records) else _records(given, now)
                offsets = self._offsets(source.name, partition, len(records), records.offsets)
                decoded = source.format.decode(records)
                frame = decoded.frame
                kept = np.arange(len(records)) if decoded.positions is None else decoded.positions
                facts += [
                    Fact(
                        "dead_letter",
                        f"{capital(event.text)} could not be read and went to the dead letters: "
                        f"{rejection.reason} ({rejection.text}).",
                        event=event,
                        data={"reason": str(rejection.reason), "text": rejection.text},
                    )
                    for place, rejection in sorted(decoded.rejections.items())
                    if _mentions(records, place, words)
                    for event in [Event(source.name, partition, offsets[place])]
                ]
            frames[partition] = self._numbered(source, partition, frame, [offsets[place] for place in kept.tolist()])
        return frames, facts

    def event(self, number: bytes) -> Event:
        """Give an event by what stands in `original_value`."""
        return self.events[int(number)]

    def _numbered(self, source: Source, partition: str, frame: pl.DataFrame, offsets: list[int]) -> pl.DataFrame:
        missing = [name for name in source.schema if name not in frame.columns]
        if missing:
            raise PlanError(
                f"the rows for {source.name!r} lack {', '.join(missing)}",
                hint=f"They need the columns {', '.join(source.schema)}.",
            )
        rows = frame.select([pl.col(name).cast(kind) for name, kind in source.schema.items()])
        first = len(self.events)
        self.events.add(source.name, partition, offsets, rows.get_column(EVENT_TIME).to_physical().to_list())
        numbers = pl.int_range(first, first + rows.height, dtype=pl.Int64, eager=True)
        return rows.with_columns(numbers.cast(pl.String).cast(pl.Binary).alias(ORIGINAL))

    def _offsets(self, source: str, partition: str, count: int, known: pa.Array | None) -> list[int]:
        first = self._next.get((source, partition), 0)
        self._next[source, partition] = first + count
        return list(range(first, first + count)) if known is None else known.to_pylist()


def _records(values: Sequence[bytes | None], now: int | None) -> Records:
    times = pa.array([now] * len(values), pa.timestamp("us", "UTC"))
    return Records(pa.array(values, pa.binary()), timestamps=times)


def _mentions(records: Records, place: int, words: Sequence[str]) -> bool:
    """Whether a record that cannot be read may be of a key: its bytes contain the values of it."""
    parts = (records.values[place].as_py(), None if records.keys is None else records.keys[place].as_py())
    content = b"".join(part for part in parts if part is not None)
    return all(word.encode() in content for word in words)


def capital(text: str) -> str:
    """Begin a sentence."""
    return text[:1].upper() + text[1:]
