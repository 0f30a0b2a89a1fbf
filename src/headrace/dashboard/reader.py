"""Reads the result topics into the boards, in a thread, and survives whatever happens to the broker.

It reads committed records only, without a consumer group, and begins a little in the past so that a page has something
to show at once. Records are decoded by the codec, a batch at a time; the thread takes the next ones when it is done
with these, so nothing piles up in between. When Kafka is gone it says so, tries again, and goes on from shortly before
the last record it saw: taking in a result twice changes nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from headrace.dashboard.cleaning import clean
from headrace.dashboard.result_decoder import ResultDecoder
from headrace.dashboard.samples import Rate, Samples
from headrace.dashboard.supervision import Part, Worker
from headrace.errors import BrokerError
from headrace.kafka import Topics
from headrace.kafka.consumer import Consumer
from headrace.time.duration import MILLISECOND, SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from headrace.dashboard.board import Board
    from headrace.kafka import Connection
    from headrace.kafka.consumer import Record

log = logging.getLogger(__name__)

BrokerState = Literal["connecting", "connected", "gone"]

#: How far back reading begins: at least so long, and at least the time to live of what is shown.
LOOK_BACK = 120 * SECOND
MOST_LOOK_BACK = 900 * SECOND
#: How far before the last record reading begins again after Kafka was gone.
_OVERLAP = 30 * SECOND
#: Seconds for which Kafka may be gone before we say so, and between two looks for missing topics.
_PATIENCE = 2.0
_LOOK_FOR_TOPICS = 3.0
_BATCH = 5_000
#: Seconds after which what was read is out of date, though Kafka may have nothing new.
_STALE = 10.0
#: What decoding or cleaning raises when a record holds something that nobody thought of.
_DATA_ERRORS = (ValueError, TypeError, ArithmeticError, LookupError, RecursionError, pl.exceptions.PolarsError)


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """Whether results can be read.

    Args:
        state: Where we are.
        since: Since when, in milliseconds.
        text: What is wrong and what to do, for people.
    """

    state: BrokerState
    since: int
    text: str = ""


class Arrivals:
    """What the reader has seen go by, in figures; filled by its thread, read by others."""

    def __init__(self, jobs: Iterable[str]) -> None:
        self.rates: dict[str, Rate] = {job: Rate() for job in jobs}
        self.latencies: dict[tuple[str, str], Samples] = defaultdict(Samples)
        self.refused: Counter[str] = Counter()
        self.last: dict[str, float] = {}
        self.lock = threading.Lock()

    def take(self, job: str, frame: pl.DataFrame, *, refused: int, since: int, now: float) -> None:
        """Note a batch of results.

        Args:
            job: Whose.
            frame: The decoded results.
            refused: How many records were no results of that job.
            since: Results that were written before this instant (microseconds) say nothing about latency.
            now: The reading of the monotonic clock.
        """
        read = time.time_ns() // 1000
        with self.lock:
            self.rates[job].add(frame.height, now=now)
            self.refused[job] += refused
            if frame.height:
                self.last[job] = now
            for name, values in _latencies(frame, since=since, read=read):
                self.latencies[job, name].add(values, now=now)


def _latencies(frame: pl.DataFrame, *, since: int, read: int) -> Iterable[tuple[str, Any]]:
    """The legs of the way that results have come, in milliseconds; only results that came on time and while we read."""
    wanted = ("kafka_timestamp", "window_end", "newest_event_time", "newest_ingestion_time")
    times = frame.filter(
        pl.col("kafka_timestamp").dt.epoch("us") >= since,
        pl.col("pane_timing").fill_null("on_time").is_in(["", "on_time"]),
        ~pl.col("is_retraction").fill_null(value=False),
    ).select(pl.col(name).dt.epoch("us").cast(pl.Float64) / 1000 for name in wanted)
    if not times.height:
        return
    written, end = times["kafka_timestamp"], times["window_end"]
    event, ingested = times["newest_event_time"], times["newest_ingestion_time"]
    legs = {
        "event to ingestion": ingested - event,
        "ingestion to result": written - ingested,
        "window end to result": written - end,
        "result to dashboard": read / 1000 - written,
    }
    for name, leg in legs.items():
        known = leg.drop_nulls()
        if known.len():
            yield name, known.to_numpy()


class Reader:
    """Keeps the boards current.

    Args:
        connection: Where Kafka is.
        boards: By job.
        changed: Is called, from the reader's thread, when a board or the status has changed.
    """

    def __init__(self, connection: Connection, boards: Mapping[str, Board], changed: Callable[[], None]) -> None:
        self._connection = connection
        self._boards = dict(boards)
        self._by_topic = {board.declaration.topic: board for board in boards.values()}
        self._decoder = ResultDecoder(board.declaration for board in boards.values())
        for name in self._decoder.unreadable:
            log.warning("the results of %s cannot be shown: only those in the envelope or in JSON can", name)
        self._changed = changed
        self._stop = threading.Event()
        lives = max((board.declaration.time_to_live for board in boards.values()), default=0)
        self._back = min(MOST_LOOK_BACK, max(LOOK_BACK, lives + LOOK_BACK))
        self._last: int | None = None
        self._status = BrokerStatus("connecting", _now())
        self._missing: frozenset[str] = frozenset()
        self.arrivals = Arrivals(self._boards)
        self.part = Part("results", "reader of results", stale_after=_STALE, expected=(BrokerError,))
        self._worker = Worker(self.part, self._follow, self._stop, on_failure=self._failed)

    def start(self) -> None:
        """Begin to read."""
        self._worker.start()

    def stop(self) -> None:
        """End reading."""
        self._stop.set()
        self._worker.join(timeout=5)

    @property
    def status(self) -> BrokerStatus:
        """Whether results can be read."""
        return self._status

    @property
    def missing(self) -> frozenset[str]:
        """The jobs whose result topic is not there."""
        return self._missing

    # ---------------------------------------------------------------- the thread

    def _failed(self, problem: BaseException) -> None:
        if isinstance(problem, BrokerError):
            self._tell("gone", str(problem))
        else:
            self._tell("gone", f"Reading results failed ({problem!r}): a defect of the dashboard. See its log.")

    def _follow(self) -> None:
        """Read the topics that there are, until Kafka is gone, a missing topic appears, or it is time to stop."""
        topics = self._present()
        self._well()
        if not topics:
            self._stop.wait(_LOOK_FOR_TOPICS)
            return
        connected = time.time_ns() // 1000
        start = connected - self._back if self._last is None else self._last - _OVERLAP
        look_again = time.monotonic() + _LOOK_FOR_TOPICS
        with Consumer(self._connection, topics, start=start, follow=True, patience=_PATIENCE) as consumer:
            while not self._stop.is_set():
                records = consumer.read(limit=_BATCH, timeout=0.2)
                if records:
                    self._take(records, since=connected)
                self._well()
                if self._missing and time.monotonic() >= look_again:
                    look_again = time.monotonic() + _LOOK_FOR_TOPICS
                    if len(self._present()) > len(topics):
                        return

    def _well(self) -> None:
        self.part.refresh()
        if not self.part.is_failing():
            self._tell("connected")

    def _present(self) -> list[str]:
        there = {topic.name for topic in Topics(self._connection).overview()}
        missing = frozenset(name for name, board in self._boards.items() if board.declaration.topic not in there)
        if missing != self._missing:
            self._missing = missing
            self._changed()
        return sorted(topic for topic in self._by_topic if topic in there)

    def _take(self, records: list[Record], *, since: int) -> None:
        self._last = max(self._last or 0, max(record.timestamp for record in records))
        by_topic: dict[str, list[Record]] = defaultdict(list)
        for record in records:
            by_topic[record.topic].append(record)
        for topic, held in by_topic.items():
            self._show(self._by_topic[topic], held, since=since)
        self._changed()

    def _show(self, board: Board, records: list[Record], *, since: int) -> None:
        job = board.declaration.job
        try:
            frame = self._decoder.decode(job, records)
            rows = clean(frame, board.declaration)
        except _DATA_ERRORS as problem:
            if len(records) > 1:
                # One of them is at fault: the others are shown.
                middle = len(records) // 2
                self._show(board, records[:middle], since=since)
                self._show(board, records[middle:], since=since)
                return
            if not self.arrivals.refused[job]:
                log.exception("a record of %s cannot be shown; it is skipped and counted", board.declaration.topic)
            else:
                log.debug("a record of %s cannot be shown: %r", board.declaration.topic, problem)
            with self.arrivals.lock:
                self.arrivals.refused[job] += 1
            return
        now = time.monotonic()
        self.arrivals.take(job, frame, refused=len(records) - frame.height, since=since, now=now)
        board.apply(rows, now=now)

    def _tell(self, state: BrokerState, text: str = "") -> None:
        if (state, text) != (self._status.state, self._status.text):
            since = self._status.since if state == self._status.state else _now()
            if state == "gone" and self._status.state != "gone":
                log.warning("results cannot be read: %s", text)
            elif state == "connected" and self._status.state == "gone":
                log.info("results can be read again")
            self._status = BrokerStatus(state, since, text)
            self._changed()


def _now() -> int:
    return time.time_ns() // (1000 * MILLISECOND)
