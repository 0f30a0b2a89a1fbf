"""When results become visible: reads result topics as any reader would, and notes when each result was in hand.

What is told of a result is its `due` time, before which nobody could know it (the end of its window; the time of the
event that completed a pattern), and when it was `seen`. Their difference is the latency that a user notices. Results
are noted in groups, those of one due time that came in one read together: all rows of a window mostly come at once.

Two kinds of readers: one that waits for transactions to end (`read_committed`, which sees every result once, whatever
happens), and one that does not (which may see results that are taken back after a crash).
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import polars as pl
import pyarrow as pa

from headrace.errors import BrokerError
from headrace.events import Codec, Result
from headrace.kafka import Consumer
from headrace.observe.probe import ends, wall
from headrace.time.instants import INSTANT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.kafka import Connection, Record

ReaderKind = Literal["committed", "uncommitted"]

#: Columns of `ResultWatch.sightings`.
SCHEMA = pl.Schema({"job": pl.String(), "due": INSTANT, "seen": INSTANT, "rows": pl.Int64()})

_READ = 5_000
#: So many results may wait to be decoded.
_MOST = 200_000


class ResultWatch:
    """Reads result topics in a thread of its own, until it is closed.

    Args:
        connection: Where.
        topics: Result topics, and the job of each.
        kind: Whether to wait for transactions to end.
    """

    def __init__(self, connection: Connection, topics: Mapping[str, str], *, kind: ReaderKind = "committed") -> None:
        self._topics = dict(topics)
        self._codec = Codec()
        self._seen: Counter[tuple[str, int, int]] = Counter()
        self._waiting: dict[str, Waiting] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._problem: BrokerError | None = None
        names = list(topics)
        self._consumer = Consumer(
            connection, names, start=ends(connection, names), follow=True, committed=kind == "committed"
        )
        self._thread = threading.Thread(target=self._run, name=f"{kind} results", daemon=True)
        self._thread.start()

    def check(self) -> None:
        """Raise what ended the reading, if anything did."""
        if self._problem is not None:
            raise self._problem

    def close(self) -> None:
        """End it."""
        self._closing.set()
        self._thread.join(timeout=5)

    def sightings(self) -> pl.DataFrame:
        """Tell what was seen so far, with the columns of `SCHEMA`."""
        with self._lock:
            self._digest()
            rows = [(*key, count) for key, count in self._seen.items()]
        plain = pl.Schema({name: pl.Int64() if kind == INSTANT else kind for name, kind in SCHEMA.items()})
        return pl.DataFrame(rows, schema=plain, orient="row").cast(SCHEMA).sort("job", "due", "seen")

    def _run(self) -> None:
        try:
            with self._consumer as consumer:
                while not self._closing.is_set():
                    records = consumer.read(limit=_READ, timeout=0.2)
                    if records:
                        self._note(records, wall())
                    else:
                        with self._lock:
                            self._digest()
        except BrokerError as problem:
            self._problem = problem

    def _note(self, records: list[Record], now: int) -> None:
        """Keep what came and when; it is decoded when nothing comes, since what comes meanwhile would be seen late."""
        with self._lock:
            for record in records:
                if record.value is not None:
                    waiting = self._waiting.setdefault(record.topic, Waiting())
                    waiting.values.append(record.value)
                    waiting.seen.append(now)
            if sum(len(waiting.values) for waiting in self._waiting.values()) >= _MOST:
                self._digest()

    def _digest(self) -> None:
        for topic, waiting in self._waiting.items():
            for due, seen, rows in dues(waiting, self._codec):
                self._seen[self._topics[topic], due, seen] += rows
        self._waiting = {}


@dataclass
class Waiting:
    """Results of one topic, as they came, and when each was in hand."""

    values: list[bytes] = field(default_factory=list)
    seen: list[int] = field(default_factory=list)


def dues(waiting: Waiting, codec: Codec) -> list[tuple[int, int, int]]:
    """Count results by when they were due and seen; panes that revise an earlier answer are no first answers."""
    batch = pa.record_batch(
        {"value": pa.array(waiting.values, pa.binary()), "timestamp": pa.array(waiting.seen, pa.timestamp("us", "UTC"))}
    )
    columns = ["window_end", "pane_timing", "is_retraction"]
    frame = codec.decode(batch, types=[Result], columns=columns, keep=["timestamp"]).frame
    first = ~pl.col("is_retraction").fill_null(value=False) & pl.col("pane_timing").fill_null("").is_in(["", "on_time"])
    due = pl.coalesce("window_end", "event_time").dt.epoch("us")
    seen = pl.col("kafka_timestamp").dt.epoch("us")
    return frame.filter(first).group_by(due.alias("due"), seen.alias("seen")).len().rows()
