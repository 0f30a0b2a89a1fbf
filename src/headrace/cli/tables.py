"""What `headrace sql` reads: `--table NAME=FILE` or `--table NAME=topic:TOPIC[:TYPE]`.

A file is a table by itself. A topic is one by its events: those that it holds now (`TopicReader.frame`), or those that
come (`TopicReader.stream`). Which type they have is told by the user or seen in the topic's last records.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from headrace.cli.options import UsageError
from headrace.cli.stopping import Stop
from headrace.cli.tail import Reader
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import polars as pl

    from headrace.events import Codec
    from headrace.events.registry import EventType
    from headrace.kafka import Connection
    from headrace.kafka.consumer import Record, Start
    from headrace.stream import Stream

_TOPIC = "topic:"
_HINT = "Write --table NAME=FILE or --table NAME=topic:TOPIC, such as --table positions=positions.csv."
#: Records that are looked at to learn the type and the columns of a topic's events.
_SAMPLE = 200
_CHUNK = 50_000


@dataclass(frozen=True, slots=True)
class FileTable:
    """A table that is a file.

    Args:
        name: What the query calls it.
        path: Where it is.
    """

    name: str
    path: Path

    def frame(self) -> pl.DataFrame:
        """Read it.

        Raises:
            UsageError: It is not there, or cannot be read.
        """
        return _read(self.path)


@dataclass(frozen=True, slots=True)
class TopicTable:
    """A table that is a topic.

    Args:
        name: What the query calls it.
        topic: The topic.
        kind: The type of its events; None to see it in the topic.
    """

    name: str
    topic: str
    kind: str | None = None


def table_of(given: str) -> FileTable | TopicTable:
    """Understand what stands behind `--table`.

    >>> table_of("p=topic:input.vehicle-position:VehiclePosition")
    TopicTable(name='p', topic='input.vehicle-position', kind='VehiclePosition')
    >>> table_of("p=positions.csv").name
    'p'
    """
    name, equals, source = given.partition("=")
    if not equals or not name or not source or source == _TOPIC:
        raise UsageError(f"--table {given}", hint=_HINT)
    if not source.startswith(_TOPIC):
        return FileTable(name, Path(source))
    topic, _, kind = source.removeprefix(_TOPIC).partition(":")
    return TopicTable(name, topic, kind or None)


def _read(path: Path) -> pl.DataFrame:
    import polars as pl
    from polars.exceptions import PolarsError

    kinds = "Give the path of a .csv, .parquet, .json or .jsonl file; a topic is named as topic:NAME."
    if not path.is_file():
        raise UsageError(f"there is no file {path}", hint=kinds)
    kind = path.suffix.lower()
    try:
        if kind == ".csv":
            return pl.read_csv(path, try_parse_dates=True, infer_schema_length=10_000)
        if kind == ".parquet":
            return pl.read_parquet(path)
        if kind in (".json", ".jsonl", ".ndjson"):
            lines = kind != ".json" or not _is_array(path)
            return pl.read_ndjson(path, infer_schema_length=None) if lines else pl.read_json(path)
    except PolarsError as error:
        first = str(error).strip().split("\n")[0]
        raise UsageError(f"{path} cannot be read: {first}", hint=f"Is it really a {kind} file?") from error
    raise UsageError(f"{path} has the ending {kind or '(none)'}", hint=kinds)


def _is_array(path: Path) -> bool:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(100).lstrip().startswith("[")


@dataclass(frozen=True)
class Events:
    """What a topic holds, as a table.

    Args:
        frame: Its events.
        dead: How many records were no events.
        ignored: How many events were of another type.
    """

    frame: pl.DataFrame
    dead: int = 0
    ignored: int = 0


class TopicReader:
    """Makes tables of topics.

    Args:
        connection: Where they are.
        codec: Reads their values.
    """

    def __init__(self, connection: Connection, codec: Codec) -> None:
        self.connection = connection
        self.codec = codec

    def frame(
        self, table: TopicTable, start: Start, stop: threading.Event, told: Callable[[int], None] | None = None
    ) -> Events:
        """Read what a topic holds from a place on, up to what it holds now.

        Args:
            table: The topic.
            start: Where to begin.
            stop: Ends it early.
            told: Is told how many records were read so far.

        Raises:
            UsageError: Its events are of several types, or it holds none.
        """
        import polars as pl

        from headrace.kafka.consumer import Consumer

        kind = self._kind(table)[0]
        parts: list[pl.DataFrame] = []
        dead = ignored = 0

        def decode(records: Sequence[Record]) -> None:
            nonlocal dead, ignored
            decoded = self.codec.decode([record.value for record in records], types=[kind])
            parts.append(decoded.frame)
            dead += decoded.dead.height
            ignored += sum(decoded.ignored.values())

        read, waiting = 0, cast("list[Record]", [])
        with Consumer(self.connection, [table.topic], start=start) as consumer:
            while not consumer.done and not stop.is_set():
                waiting += consumer.read(limit=10_000, timeout=0.5)
                if len(waiting) >= _CHUNK:
                    read += len(waiting)
                    decode(waiting)
                    waiting = []
                    if told is not None:
                        told(read)
        decode(waiting)
        # The columns of open types may differ from record to record.
        return Events(pl.concat(parts, how="diagonal_relaxed"), dead, ignored)

    def stream(self, table: TopicTable, *, disorder: str, idle_after: str) -> Stream:
        """Make a stream of a topic.

        Args:
            table: The topic.
            disorder: How late events may be.
            idle_after: A partition without events for this long does not hold the others back.
        """
        from headrace.stream import Stream
        from headrace.time import bounded

        kind, sample = self._kind(table)
        schema: dict[str, Any] | None = None
        if _is_open(kind):
            if sample is None or sample.is_empty():
                raise UsageError(
                    f"topic {table.topic} holds no {kind.name} that would tell its columns",
                    hint="Begin when there are some.",
                )
            schema = {name: dtype for name, dtype in sample.schema.items() if name not in _TIMES}
        stream = Stream.topic(table.topic, kind.message_class, schema=schema)
        return stream.watermark(bounded(disorder), idle_after=idle_after)

    def _kind(self, table: TopicTable) -> tuple[EventType, pl.DataFrame | None]:
        """The type of a topic's events, and some of them where they had to be looked at."""
        known = None
        if table.kind is not None:
            try:
                known = self.codec.registry.get(table.kind)
            except HeadraceError as problem:
                raise UsageError(f"--table {table.name}: {problem.message}", hint=problem.hint) from problem
            if not _is_open(known):
                return known, None
        recent, _ = Reader(self.connection, table.topic, Stop()).last(_SAMPLE)
        decoded = self.codec.decode([record.value for record in recent])
        found = {name: frame for name, frame in decoded.frames.items() if frame.height}
        if known is not None:
            return known, found.get(known.name)
        if not found:
            what = "is empty" if not recent else f"holds no events: {decoded.dead['text'][0]}"
            raise UsageError(
                f"topic {table.topic} {what}",
                hint=f"If there will be some, name their type: --table {table.name}=topic:{table.topic}:TYPE.",
            )
        if len(found) > 1:
            raise UsageError(
                f"topic {table.topic} holds events of several types: {', '.join(sorted(found))}",
                hint=f"Choose one: --table {table.name}=topic:{table.topic}:{min(found).rpartition('.')[2]}.",
            )
        name, frame = next(iter(found.items()))
        return self.codec.registry.get(name), frame


_TIMES = ("event_time", "ingestion_time")


def _is_open(kind: EventType) -> bool:
    from headrace.events.layout import is_open

    return is_open(kind.descriptor)
