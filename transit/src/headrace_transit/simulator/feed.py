"""The simulated feed: a fleet's reports, sent when they are due.

The feed follows a **schedule**, not a stopwatch: a report is due at the moment of its arrival in the fleet's time,
divided by the speed. If the machine is slow for a while, the feed falls behind, says by how much, and catches up; it
does not thin out the load or stretch time. With an infinite speed reports leave as fast as they can be made.

Reports are computed and written some seconds of the fleet's time at once; those that arrive later wait, written
already, in memory. The envelope's ingestion time is the time of arrival on the fleet's clock: the moment at which a
real feed would have been handed the report, also when the whole thing runs faster than time or late.
"""

from __future__ import annotations

import math
import threading
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl

from headrace.errors import PlanError
from headrace.kafka import Topics
from headrace_transit.simulator.arrivals import Arrivals
from headrace_transit.simulator.outlet import KafkaOutlet
from headrace_transit.simulator.writers import EventWriter
from headrace_transit.topics import STOP_EVENTS, VEHICLE_POSITIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.events import Encoding
    from headrace.kafka import Connection
    from headrace.kafka.producer import Compression
    from headrace_transit.simulator.disorder import Disorder
    from headrace_transit.simulator.fleet import Fleet
    from headrace_transit.simulator.truth import TruthFile

#: Wall seconds between two deliveries, and between two reports to the caller.
TICK = 0.05
REPORT_EVERY = 1.0
#: A feed that is behind its schedule by more than this says so.
TOLERANCE = 1.0
_STOP_PATIENCE = 5.0
_CHUNK_EVENTS = 50_000
_CHUNK_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class FeedReport:
    """How the feed is doing.

    Args:
        events: Events handed over since the beginning.
        positions: Those of them that are positions.
        stop_events: Those that are events at stops.
        value_bytes: Size of their values together.
        waiting: Events handed over but not yet acknowledged.
        event_time: Where the fleet's clock stands.
        elapsed: Wall seconds since the beginning.
        rate: Events per wall second since the report before.
        behind: Seconds by which the feed is behind its schedule; 0 while it keeps it.
    """

    events: int
    positions: int
    stop_events: int
    value_bytes: int
    waiting: int
    event_time: datetime
    elapsed: float
    rate: float
    behind: float

    @property
    def keeps_up(self) -> bool:
        """Whether the feed keeps its schedule."""
        return self.behind <= TOLERANCE

    def to_dict(self) -> dict[str, Any]:
        """Give the report as JSON can hold it."""
        return {"event": "feed", **asdict(self), "event_time": self.event_time.isoformat(), "keeps_up": self.keeps_up}


class Delivery(NamedTuple):
    """Packets that are due, and where they go."""

    destination: int
    packets: pl.DataFrame


class _Chunk(NamedTuple):
    """Some seconds of the feed, ready to be sent; times in microseconds since the fleet's start."""

    begin: int
    end: int
    parts: tuple[pl.DataFrame, ...]


class Feed:
    """Sends a fleet's reports when they are due.

    Args:
        arrivals: The reports.
        writer: What they become, and where they go.
        speed: Seconds of the fleet's time per wall second; infinite means as fast as possible.
        seconds: How many seconds of the fleet's time to send; None means until it is stopped.
        truth: Where the truth about emergency stops goes.
        clock: Wall seconds; a test may bring its own.
        origin: The clock's value at which the fleet's first second is due; None means when it begins.
    """

    def __init__(
        self,
        arrivals: Arrivals,
        writer: EventWriter,
        *,
        speed: float = 1.0,
        seconds: int | None = None,
        truth: TruthFile | None = None,
        clock: Callable[[], float] = time.monotonic,
        origin: float | None = None,
    ) -> None:
        if not speed > 0:
            raise PlanError(f"speed is {speed}", hint="Give a number above 0, or infinity for as fast as possible.")
        if seconds is not None and seconds < 0:
            raise PlanError(f"a duration of {seconds} s", hint="Give 0 or more.")
        self._arrivals = arrivals
        self._writer = writer
        self._speed = speed
        self._first = arrivals.second
        self._last = None if seconds is None else arrivals.second + seconds
        self._truth = truth
        self._clock = clock
        self._origin = origin
        fleet = arrivals.fleet
        self._start_micros = (fleet.start - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        wanted = 1 if math.isinf(speed) else math.ceil(speed * _CHUNK_SECONDS)
        most = max(1, _CHUNK_EVENTS // fleet.vehicles)
        self._chunk_seconds = most if math.isinf(speed) else min(wanted, most)
        self._held: list[pl.DataFrame] = []
        self._counts = [0, 0]
        self._bytes = 0
        self._behind = 0.0
        self._sent_until = self._first * 1_000_000

    def run(self, stop: threading.Event, report: Callable[[FeedReport], None]) -> FeedReport:
        """Send until `stop` is set or everything is sent; what was handed over is delivered before this returns.

        Args:
            stop: Set it to end the feed.
            report: Called about once a second, and once at the end.

        Returns:
            The last report.
        """
        began = self._clock()
        reported, events_then = began, 0
        for deliveries in self.deliveries(stop):
            for destination, packets in deliveries:
                sent = self._writer.send(destination, packets)
                self._counts[destination] += sent
                self._bytes += int(packets["value"].head(sent).bin.size().sum())
            now = self._clock()
            if now - reported >= REPORT_EVERY:
                report(self._report(now - began, (self._events - events_then) / (now - reported)))
                reported, events_then = now, self._events
        # Whoever stops the feed does not want to wait long for a broker that is gone.
        self._writer.outlet.flush(_STOP_PATIENCE if stop.is_set() else None)
        elapsed = self._clock() - began
        last = self._report(elapsed, self._events / elapsed if elapsed > 0 else 0.0)
        report(last)
        return last

    def deliveries(self, stop: threading.Event) -> Iterator[list[Delivery]]:
        """Wait until packets are due and give them, until `stop` is set or everything is sent.

        Args:
            stop: Set it to end the feed.
        """
        if self._origin is None:
            self._origin = self._clock()
        chunk = self._prepare()
        while chunk is not None and not stop.is_set():
            following: _Chunk | None = None
            for number, until in enumerate(self._ticks(chunk)):
                if not self._wait(until, stop):
                    break
                yield self._due(chunk, until)
                if number == 0:
                    # Made while nothing is due, so that the chunk's own events leave on time.
                    following = self._prepare()
            chunk = following

    @property
    def _events(self) -> int:
        return sum(self._counts)

    def _prepare(self) -> _Chunk | None:
        """Compute and write the next seconds; None when there are none."""
        begin = self._arrivals.second
        seconds = self._chunk_seconds
        if self._last is not None:
            seconds = min(seconds, self._last - begin)
            if seconds <= 0 and not any(frame.height for frame in self._held):
                return None
        if seconds > 0:
            parts = self._arrived(self._writer.packets(self._arrivals.sent(seconds)), begin + seconds)
            if self._truth is not None:
                self._truth.until(begin + seconds)
        else:
            # What arrives after the last second is sent with it: a bounded feed sends all that happened in its time.
            parts, self._held = self._held, []
        end = self._arrivals.second
        parts = [frame.sort("arrival", maintain_order=True) for frame in parts]
        return _Chunk(begin * 1_000_000, end * 1_000_000, tuple(parts))

    def _arrived(self, new: list[pl.DataFrame], second: int) -> list[pl.DataFrame]:
        """Take what arrives before a second; the rest is held."""
        here = pl.col("arrival") < self._start_micros + second * 1_000_000
        before = self._held or [frame.clear() for frame in new]
        self._held = [
            pl.concat([old.filter(~here), frame.filter(~here)]) for old, frame in zip(before, new, strict=True)
        ]
        return [pl.concat([old.filter(here), frame.filter(here)]) for old, frame in zip(before, new, strict=True)]

    def _ticks(self, chunk: _Chunk) -> list[int]:
        """Cut a chunk into deliveries; the last one takes all that is left."""
        if math.isinf(self._speed) or chunk.end == chunk.begin:
            return [chunk.end]
        count = max(1, round((chunk.end - chunk.begin) / 1e6 / self._speed / TICK))
        return [chunk.begin + (chunk.end - chunk.begin) * (tick + 1) // count for tick in range(count)]

    def _wait(self, until: int, stop: threading.Event) -> bool:
        """Wait until a moment of the fleet's time is due; False if the feed is to stop."""
        assert self._origin is not None  # noqa: S101  deliveries() sets it
        due = self._origin + (until / 1e6 - self._first) / self._speed if not math.isinf(self._speed) else -math.inf
        while not stop.is_set():
            ahead = due - self._clock()
            if ahead <= 0:
                self._behind = 0.0 if math.isinf(ahead) or -ahead < TICK else -ahead
                return True
            stop.wait(ahead)
        return False

    def _due(self, chunk: _Chunk, until: int) -> list[Delivery]:
        deliveries = []
        for destination, packets in enumerate(chunk.parts):
            if self._sent_until <= chunk.begin and until >= chunk.end:
                deliveries.append(Delivery(destination, packets))
                continue
            edges = [self._start_micros + edge for edge in (self._sent_until, until)]
            begin, end = (int(edge) for edge in np.searchsorted(packets["arrival"].to_numpy(), edges))
            begin = 0 if self._sent_until <= chunk.begin else begin
            end = packets.height if until >= chunk.end else end
            deliveries.append(Delivery(destination, packets[begin:end]))
        self._sent_until = until
        return [delivery for delivery in deliveries if delivery.packets.height]

    def _report(self, elapsed: float, rate: float) -> FeedReport:
        positions, stop_events = self._counts
        return FeedReport(
            events=self._events,
            positions=positions,
            stop_events=stop_events,
            value_bytes=self._bytes,
            waiting=len(self._writer.outlet),
            event_time=self._arrivals.fleet.start + timedelta(microseconds=self._sent_until),
            elapsed=elapsed,
            rate=rate,
            behind=self._behind,
        )


def simulate(
    fleet: Fleet,
    connection: Connection,
    *,
    speed: float = 1.0,
    duration: float | None = None,
    rate: float | None = None,
    first: int = 0,
    disorder: Disorder | None = None,
    stop_events: bool = True,
    copies: int = 1,
    truth: TruthFile | None = None,
    topics: tuple[str, str] = (VEHICLE_POSITIONS, STOP_EVENTS),
    encoding: Encoding = "binary",
    compression: Compression = "lz4",
    stop: threading.Event | None = None,
    report: Callable[[FeedReport], None] = lambda _: None,
) -> FeedReport:
    """Send a fleet's reports to Kafka.

    A feed at speed 1 whose first second is about now is tied to the clock on the wall: event times are true times.

    Args:
        fleet: Who reports.
        connection: Where Kafka is. The topics (see `headrace_transit.topics`) have to exist.
        speed: Seconds of the fleet's time per second; `math.inf` sends as fast as possible.
        duration: Seconds of the fleet's time to send; None means until `stop` is set.
        rate: Positions per second to aim at, instead of a speed.
        first: The second of the fleet's time to begin with.
        disorder: How late, doubled and out of order reports arrive; None means the usual small dose.
        stop_events: Whether events at stops are sent, too.
        copies: How many times each report is sent, by other vehicles.
        truth: Where the truth about emergency stops goes.
        topics: Where positions and stop events go.
        encoding: "binary" or "json".
        compression: How batches are compressed on their way and on the broker's disk.
        stop: Set it (from another thread, or a signal handler) to end the feed.
        report: Called about once a second, and once at the end.

    Returns:
        The last report.

    Raises:
        BrokerError: Kafka cannot be reached, or did not take some events.
    """
    if rate is not None:
        if speed != 1.0:
            raise PlanError(f"both a speed ({speed}) and a rate ({rate}) are given", hint="Give one of them.")
        if not rate > 0:
            raise PlanError(f"rate is {rate}", hint="Give events per second, above 0.")
        speed = rate / fleet.vehicles
    stop = stop or threading.Event()
    connection.check()
    Topics(connection).require(topics if stop_events else topics[:1])
    with KafkaOutlet(connection, stop=stop, compression=compression) as outlet:
        feed = Feed(
            Arrivals(fleet, disorder, first=first, stop_events=stop_events),
            EventWriter(outlet, topics=topics, encoding=encoding, copies=copies),
            speed=speed,
            seconds=None if duration is None else math.ceil(duration),
            truth=truth,
            origin=origin(fleet, first, speed),
        )
        return feed.run(stop, report)


def origin(fleet: Fleet, first: int, speed: float) -> float | None:
    """Give the moment on the monotonic clock at which the first second begins, if that is about now."""
    ahead = fleet.start.timestamp() + first - time.time()
    return time.monotonic() + ahead if speed == 1.0 and abs(ahead) < 60 else None
