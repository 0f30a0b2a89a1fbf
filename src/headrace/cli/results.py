"""The view's own reader of results: a plain consumer of the result topic, as any dashboard would be."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from headrace.cli.gauges import Gauges, ResultRow
from headrace.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.broker import Connection
    from headrace.events.codec import Codec
    from headrace.events.schemas.records_pb2 import Result


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


class ResultReader:
    """Reads new results in a thread of its own and hands them to the gauges.

    Args:
        connection: Where.
        topic: The result topic.
        gauges: Who wants them.
        keys: The columns that are the key.
        places: Whether the key is a map cell.
    """

    def __init__(
        self,
        connection: Connection,
        topic: str,
        gauges: Gauges,
        *,
        keys: Sequence[str] = ("cell",),
        places: bool = True,
    ) -> None:
        self._keys = tuple(keys)
        self._places = places
        self._connection = connection
        self._topic = topic
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
        from headrace.broker.consumer import Consumer
        from headrace.events.codec import Codec

        codec = Codec()
        try:
            with Consumer(self._connection, [self._topic], start="end", follow=True) as consumer:
                while not self._stop.is_set():
                    records = consumer.read(timeout=0.2)
                    rows = (
                        row_of(codec, record.value, record.timestamp, keys=self._keys, places=self._places)
                        for record in records
                    )
                    self._gauges.results([row for row in rows if row is not None], now=time.monotonic())
        except BrokerError as problem:
            self._problem = problem
