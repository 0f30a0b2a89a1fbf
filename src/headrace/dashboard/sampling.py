"""The newest rows on an edge of a job's graph, for somebody who wants to see what goes by.

Reading is bounded whoever asks and how often: one topic is read at a time, a few records of each partition and a few
megabytes in all, and what was read a second ago is not read again. It leaves no trace in Kafka: no consumer group, no
offsets. Rows behind stateless steps are made by running the steps on the rows that were read.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from headrace.dashboard.cleaning import plain_text, safe_rows
from headrace.dashboard.job_graph import NoRows, ResultRows, SourceRows
from headrace.dashboard.result_decoder import ResultDecoder
from headrace.engine.operator import EVENT_TIME, INGESTION_TIME, ORIGINAL
from headrace.errors import HeadraceError
from headrace.events import Codec, LateEvent, Layout
from headrace.formats import Records
from headrace.kafka import Topics
from headrace.kafka.consumer import Consumer
from headrace.stream.steps import apply_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headrace.dashboard.declaration import Declaration
    from headrace.dashboard.job_graph import EdgeLine, EdgeRows
    from headrace.events import TypeRegistry
    from headrace.kafka import Connection
    from headrace.kafka.consumer import Record

log = logging.getLogger(__name__)

#: Rows that are shown, and columns of each.
MOST_ROWS = 20
MOST_COLUMNS = 40
#: Offsets of a partition that are looked at; the marks of transactions take offsets, too. And further back, once.
_BACK, _FURTHER_BACK = 40, 400
#: Records and bytes of one look.
_MOST_RECORDS = 2_000
_MOST_BYTES = 4_000_000
#: Seconds for which a look is good, for which it may take, and for which another one is waited for.
_FRESH = 1.0
_PATIENCE = 4.0
_WAIT = 5.0
#: Looks that are remembered.
_MOST_LOOKS = 100

_TIMES = pa.timestamp("us", "UTC")
_HEADERS = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
_LATE = ("key", "window_end", "lateness", "watermark", "record_value")
#: What decoding or a step raises when a record holds something that nobody thought of.
_DATA_ERRORS = (ValueError, TypeError, ArithmeticError, LookupError, RecursionError, pl.exceptions.PolarsError)


class SamplerBusyError(HeadraceError):
    """Other topics are being read; ask again."""


@dataclass(frozen=True, slots=True)
class _Look:
    records: list[Record]
    made: float


class Sampler:
    """Shows the newest rows of edges. Safe to use from several threads.

    Args:
        connection: Where Kafka is.
        declarations: The jobs and their further outputs.
    """

    def __init__(
        self, connection: Connection, declarations: Iterable[Declaration], types: TypeRegistry | None = None
    ) -> None:
        self._connection = connection
        self._results = ResultDecoder(declarations)
        self._codec = Codec(types)
        self._lock = threading.Lock()
        self._looks: dict[str, _Look] = {}

    def sample(self, edge: EdgeLine) -> dict[str, Any]:
        """The newest rows of an edge as the protocol has them, newest first.

        Raises:
            BrokerError: Kafka cannot be read.
            SamplerBusyError: Too much is asked for at the same time.
        """
        rows = edge.rows
        if isinstance(rows, NoRows):
            return _answer(edge.id, rows.reason)
        if not self._lock.acquire(timeout=_WAIT):
            raise SamplerBusyError("Other rows are being read", hint="Ask again in a few seconds.")
        try:
            topic = rows.source.topic if isinstance(rows, SourceRows) else rows.topic
            records = self._newest(topic)
            if records is None:
                return _answer(edge.id, f"There is no topic {topic} yet.")
            if not records:
                return _answer(edge.id, f"The topic {topic} holds no records at its end.")
            return self._shown(edge.id, rows, topic, records)
        finally:
            self._lock.release()

    def _shown(self, edge: str, rows: EdgeRows, topic: str, records: list[Record]) -> dict[str, Any]:
        try:
            frame, text = self._decode(rows, records)
        except HeadraceError as problem:
            return _answer(edge, f"The rows cannot be shown: {problem.message}")
        except _DATA_ERRORS as problem:
            log.debug("a sample of %s cannot be shown: %r", topic, problem)
            return _answer(edge, f"The rows cannot be shown: {type(problem).__name__}: {problem}")
        frame = frame.select(name for name in frame.columns[:MOST_COLUMNS] if name != ORIGINAL)
        columns, values = safe_rows(frame.reverse().head(MOST_ROWS))
        at = max(record.timestamp for record in records) // 1000
        return {"edge": edge, "text": plain_text(text), "columns": columns, "rows": values, "at": at}

    # ---------------------------------------------------------------- reading

    def _newest(self, topic: str) -> list[Record] | None:
        """The newest records of a topic, oldest first; None if there is no such topic."""
        look = self._looks.get(topic)
        if look is None or time.monotonic() - look.made >= _FRESH:
            topics = Topics(self._connection, timeout=_PATIENCE)
            if topics.missing([topic]):
                return None
            records = self._read(topics, topic, _BACK) or self._read(topics, topic, _FURTHER_BACK)
            self._looks.pop(topic, None)
            self._looks[topic] = look = _Look(records, time.monotonic())
            while len(self._looks) > _MOST_LOOKS:
                self._looks.pop(next(iter(self._looks)))
        return look.records

    def _read(self, topics: Topics, topic: str, back: int) -> list[Record]:
        ends = {partition.partition: partition for partition in topics.held(topic).partitions}
        start = {(topic, each.partition): max(each.earliest, each.latest - back) for each in ends.values()}
        if all(start[topic, each.partition] >= each.latest for each in ends.values()):
            return []
        deadline = time.monotonic() + _PATIENCE
        records: list[Record] = []
        size = 0
        with Consumer(self._connection, [topic], start=start, patience=_PATIENCE) as consumer:
            while not consumer.done and time.monotonic() < deadline and size < _MOST_BYTES:
                for record in consumer.read(limit=_MOST_RECORDS, timeout=0.5):
                    size += len(record.value or b"")
                    records.append(record)
                if len(records) >= _MOST_RECORDS:
                    break
        records.sort(key=lambda record: (record.timestamp, record.partition, record.offset))
        return records[-MOST_ROWS:]

    # ---------------------------------------------------------------- decoding

    def _decode(self, rows: EdgeRows, records: list[Record]) -> tuple[pl.DataFrame, str]:
        if isinstance(rows, SourceRows):
            return _source_rows(rows, records)
        if isinstance(rows, ResultRows):
            if rows.name in self._results.unreadable:
                return (
                    pl.DataFrame(),
                    "Results in this format cannot be shown; only those in the envelope or in JSON can.",
                )
            frame = self._results.decode(rows.name, records)
            internal = [name for name in frame.columns if name in _INTERNAL or frame.get_column(name).is_null().all()]
            return frame.drop(internal), _told(frame.height, len(records), rows.topic)
        return self._late(records)

    def _late(self, records: list[Record]) -> tuple[pl.DataFrame, str]:
        schema = Layout(LateEvent.DESCRIPTOR).schema
        batch = pa.table({"value": pa.array([record.value for record in records], pa.binary())})
        decoded = self._codec.decode(batch, types=[LateEvent], columns=pl.Schema({n: schema[n] for n in _LATE}))
        frame = decoded.frame.select(EVENT_TIME, *_LATE)
        as_text = [None if value is None else value.decode(errors="replace") for value in frame["record_value"]]
        frame = frame.with_columns(pl.Series("record", as_text, pl.String)).drop("record_value")
        if frame["record"].is_null().all():
            frame = frame.drop("record")
        return frame, _told(frame.height, len(records), records[0].topic)


_INTERNAL = {
    "key",
    "idempotency_key",
    "pane_index",
    "pane_timing",
    "newest_event_time",
    "newest_ingestion_time",
    "kafka_timestamp",
    INGESTION_TIME,
}


def _source_rows(rows: SourceRows, records: list[Record]) -> tuple[pl.DataFrame, str]:
    """Read a source, and run its stateless steps."""
    decoded = rows.source.format.decode(_columns(records))
    frame = decoded.frame
    text = _told(frame.height, len(records), rows.source.topic)
    if decoded.rejections:
        first = next(iter(decoded.rejections.values()))
        text += f" {len(decoded.rejections)} cannot be read and become dead letters: {first.text}"
    if rows.steps:
        before = frame.height
        frame = apply_steps(rows.steps, frame)
        text += f" The steps before this edge make {frame.height} rows of these {before}."
    return frame, text


def _told(shown: int, read: int, topic: str) -> str:
    count = f"The newest {shown}" if shown == read else f"{shown} of the newest {read}"
    return f"{count} records of {topic}, newest first."


def _columns(records: list[Record]) -> Records:
    """Kafka records as a format reads them."""
    each: Callable[[str], list[Any]] = lambda name: [getattr(record, name) for record in records]  # noqa: E731
    headers = [[{"key": name, "value": value} for name, value in record.headers] for record in records]
    return Records(
        pa.array(each("value"), pa.binary()),
        keys=pa.array(each("key"), pa.binary()),
        headers=pa.array(headers, _HEADERS),
        timestamps=pa.array(each("timestamp"), _TIMES),
        partitions=pa.array(each("partition"), pa.int32()),
        offsets=pa.array(each("offset"), pa.int64()),
    )


def _answer(edge: str, text: str) -> dict[str, Any]:
    return {"edge": edge, "text": plain_text(text), "columns": [], "rows": [], "at": None}
