"""The view's own reader of results: a plain consumer of the result topic, as any dashboard would be."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from headrace.cli.gauges import Gauges, ResultRow
from headrace.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.events.codec import Codec
    from headrace.events.schemas.records_pb2 import Result
    from headrace.formats import Format
    from headrace.kafka import Connection
    from headrace.kafka.consumer import Record
    from headrace.stream import Job


def row_of(
    codec: Codec, value: bytes | None, published: int, *, keys: Sequence[str] = ("cell",), places: bool = True
) -> ResultRow | None:
    """A record of a result topic as the view needs it; None for what is no windowed result.

    Args:
        codec: Reads the value.
        value: The record's value.
        published: Kafka's timestamp of it, in microseconds.
        keys: The columns that are the key, and no figures.
        places: Whether the key is a map cell.
    """
    from headrace.events.letters import Rejection
    from headrace.events.schemas.records_pb2 import Result

    event = codec.read(value)
    payload = event if isinstance(event, Rejection) else codec.payload(event)
    if not isinstance(payload, Result) or not payload.HasField("window_end") or payload.is_retraction:
        return None
    return ResultRow(
        key=_cell(payload.key) if places else payload.key,
        count=_count(payload, keys),
        window_end=payload.window_end.ToMicroseconds(),
        published=published,
        on_time=payload.pane_timing in {"", "on_time"},
    )


def _cell(key: str) -> str:
    # A cell is a 64-bit number inside; people and maps know it by its hexadecimal text.
    return f"{int(key):x}" if key.isdigit() and len(key) > 15 else key


def _count(result: Result, keys: Sequence[str]) -> int:
    for column in result.columns:
        kind = column.WhichOneof("value")
        if column.name not in keys and kind in {"integer", "unsigned"}:
            return int(getattr(column, kind))
    return 0


def plain_rows(reader: Format, records: list[Record], keys: Sequence[str]) -> list[ResultRow]:
    """Results that a job writes as JSON, as the view needs them; records that are no windowed results are left out."""
    from headrace.dashboard.plain_results import read_plain

    frame = read_plain(reader, records)
    figure = next((name for name, kind in reader.schema.items() if name not in keys and kind.is_integer()), None)
    return [
        ResultRow(
            key=", ".join(str(row[name]) for name in keys if name in row) or row["key"] or "",
            count=row[figure] or 0 if figure else 0,
            window_end=round(row["window_end"].timestamp() * 1e6),
            published=round(row["kafka_timestamp"].timestamp() * 1e6),
            on_time=row["pane_timing"] in {None, "", "on_time"},
        )
        for row in frame.iter_rows(named=True)
        if row["window_end"] is not None and not row["is_retraction"]
    ]


class ResultReader:
    """Reads new results in a thread of its own and hands them to the gauges.

    Args:
        connection: Where.
        job: Whose results.
        gauges: Who wants them.
        places: Whether the key is a map cell.
    """

    def __init__(self, connection: Connection, job: Job, gauges: Gauges, *, places: bool = True) -> None:
        self._job = job
        self._places = places
        self._connection = connection
        self._gauges = gauges
        self._stop = threading.Event()
        self._problem: BrokerError | None = None
        self._thread = threading.Thread(target=self._read, name="results", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise what ended the reading."""
        if self._problem is not None:
            raise self._problem

    def stop(self) -> None:
        """End it."""
        self._stop.set()
        self._thread.join(timeout=2)

    def _read(self) -> None:
        from headrace.kafka.consumer import Consumer

        rows_of = self._rows_of()
        try:
            with Consumer(self._connection, [self._job.result_topic], start="end", follow=True) as consumer:
                while not self._stop.is_set():
                    self._gauges.results(rows_of(consumer.read(timeout=0.2)), now=time.monotonic())
        except BrokerError as problem:
            self._problem = problem

    def _rows_of(self) -> Callable[[list[Record]], list[ResultRow]]:
        """How records become rows, by the format in which the job writes."""
        pipeline = self._job.pipeline
        keys = pipeline.result_keys
        if self._job.format is not None:
            from headrace.dashboard.plain_results import plain_reader

            plain = plain_reader(self._job.format, pipeline.schema)
            # Results of other formats are on their topic, and not in this view.
            return lambda records: [] if plain is None or not records else plain_rows(plain, records, keys)
        from headrace.events.codec import Codec

        codec = Codec()

        def enveloped(records: list[Record]) -> list[ResultRow]:
            rows = (row_of(codec, each.value, each.timestamp, keys=keys, places=self._places) for each in records)
            return [row for row in rows if row is not None]

        return enveloped
