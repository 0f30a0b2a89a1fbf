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
from typing import TYPE_CHECKING, Literal

import polars as pl

from headrace.broker import Consumer
from headrace.errors import BrokerError
from headrace.events import Codec, Result
from headrace.observe.probe import ends, wall
from headrace.time.instants import INSTANT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.broker import Connection, Record

ReaderKind = Literal["committed", "uncommitted"]

#: Columns of `ResultWatch.sightings`.
SCHEMA = pl.Schema({"job": pl.String(), "due": INSTANT, "seen": INSTANT, "rows": pl.Int64()})

_READ = 5_000


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
        except BrokerError as problem:
            self._problem = problem

    def _note(self, records: list[Record], now: int) -> None:
        found: Counter[tuple[str, int, int]] = Counter()
        by_topic: dict[str, list[bytes | None]] = {}
        for record in records:
            by_topic.setdefault(record.topic, []).append(record.value)
        for topic, values in by_topic.items():
            for due, rows in dues(values, self._codec).items():
                found[self._topics[topic], due, now] += rows
        with self._lock:
            self._seen.update(found)


def dues(values: list[bytes | None], codec: Codec) -> Counter[int]:
    """Count results by when they were due; panes that revise an earlier answer are not first answers and left out."""
    frame = codec.decode(values, types=[Result], columns=["window_end", "pane_timing", "is_retraction"]).frame
    first = ~pl.col("is_retraction").fill_null(value=False) & pl.col("pane_timing").fill_null("").is_in(["", "on_time"])
    due = pl.coalesce("window_end", "event_time").dt.epoch("us")
    counted = frame.filter(first).group_by(due.alias("due")).len()
    return Counter(dict(counted.rows()))
