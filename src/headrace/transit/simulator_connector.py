"""The simulator as a connector: a made-up fleet that sends HFP messages, for people who have no feed.

    [[feed]]
    name = "fleet"
    connector = "simulator"
    processor = "hfp"
    simulator = {vehicles = 500, seed = 7}

Everything behind it is that of a live feed: the processor, deduplication, dead letters, recording. Who wants hundreds
of thousands of events a second takes `headrace simulate`, which writes events to Kafka without the detour of messages.
"""

from __future__ import annotations

import heapq
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from headrace.errors import ConfigError
from headrace.ingest.connector import Connector
from headrace.ingest.pacing import Pacer
from headrace.transit.hfp_writer import write
from headrace.transit.simulator.arrivals import Arrivals, Disorder
from headrace.transit.simulator.fleet import Fleet

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator

    from headrace.ingest.message import Batch, RawMessage

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_AT_ONCE = 50_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatorSettings:
    """Which fleet, and when.

    Args:
        vehicles: How many; each reports once a second.
        seed: Another seed, another fleet.
        start: The event time to begin at, as ISO text; empty: now.
        seconds: How many seconds of event time to send; None: until it is stopped.
        speed: Seconds of event time per second; `inf` for as fast as can be, which needs `seconds`.
        disorder: Whether messages arrive late, twice and out of order, as real ones do.
        stop_events: Whether arrivals and departures at stops are sent, too.
        batch_size: How many messages are handed over at once at most.

    Raises:
        ConfigError: A number makes no sense.
    """

    vehicles: int = 300
    seed: int = 1
    start: str = ""
    seconds: int | None = None
    speed: float = 1.0
    disorder: bool = True
    stop_events: bool = True
    batch_size: int = 5000

    def __post_init__(self) -> None:
        if self.vehicles < 1 or self.batch_size < 1:
            raise ConfigError(f"vehicles is {self.vehicles}, batch_size {self.batch_size}", hint="Give 1 or more.")
        if not self.speed > 0:
            raise ConfigError(f"speed is {self.speed}", hint="Give a number above 0; 1 is that of the clock.")
        if self.seconds is not None and self.seconds < 1:
            raise ConfigError(f"seconds is {self.seconds}", hint="Give 1 or more, or leave it out.")
        if self.speed == float("inf") and self.seconds is None:
            raise ConfigError("speed inf needs seconds", hint="Without the clock nothing else would stop it.")
        self.begin(_EPOCH)

    def begin(self, now: datetime) -> datetime:
        """The event time of the first second."""
        if not self.start:
            return now
        try:
            found = datetime.fromisoformat(self.start)
        except ValueError as error:
            raise ConfigError(f"start is {self.start!r}", hint="Give a time such as 2026-05-01T06:00:00Z.") from error
        return found if found.tzinfo else found.replace(tzinfo=UTC)


class SimulatorConnector(Connector[SimulatorSettings]):
    """Sends the messages of a made-up fleet.

    Args:
        settings: Which, and when.
        clock: Seconds that never go back.
        wall: Microseconds since the epoch.
    """

    name = "simulator"
    Settings = SimulatorSettings

    def __init__(
        self,
        settings: SimulatorSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        super().__init__(settings)
        self._wall = wall
        self._pacer = Pacer(speed=settings.speed, batch_size=settings.batch_size, clock=clock)

    def check(self) -> str:
        """Say what would drive."""
        settings = self.settings
        begin = settings.begin(datetime.now(UTC))
        return f"{settings.vehicles:,} made-up vehicles drive from {begin:%Y-%m-%d %H:%M:%S} UTC on"

    def open(self) -> None:
        """Nothing to reach."""

    def batches(self, stop: threading.Event) -> Iterator[Batch]:
        """Hand over what is due.

        Args:
            stop: Ends it.
        """
        yield from self._pacer.batches(self.messages(), stop)

    def messages(self) -> Iterator[RawMessage]:
        """All messages, in the order of their arrival."""
        settings = self.settings
        begin = settings.begin(_EPOCH + timedelta(microseconds=self._wall()))
        # The first second of a fleet is that of a day: its vehicles are where they would be at this time of day.
        midnight = begin.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        fleet = Fleet(vehicles=settings.vehicles, seed=settings.seed, start=midnight)
        disorder = None if settings.disorder else Disorder.none()
        first = int((begin - midnight).total_seconds())
        arrivals = Arrivals(fleet, disorder, first=first, stop_events=settings.stop_events)
        at_once = max(1, min(10 if settings.speed > 1 else 1, _MOST_AT_ONCE // settings.vehicles))
        while settings.seconds is None or arrivals.second - first < settings.seconds:
            left = at_once if settings.seconds is None else first + settings.seconds - arrivals.second
            yield from _merged(arrivals, min(at_once, left))
        yield from _merged(arrivals, None)

    @property
    def behind(self) -> float:
        """Seconds by which the fleet is behind its schedule."""
        return self._pacer.behind

    def close(self) -> None:
        """Nothing is held."""


def _merged(arrivals: Arrivals, seconds: int | None) -> Iterator[RawMessage]:
    """Positions and stop events of some seconds, or all that is still on its way, in the order of arrival."""
    arrived = arrivals.rest() if seconds is None else arrivals.take(seconds)
    streams = [write(frame) for frame in (arrived.positions, arrived.stop_events) if frame.height]
    return heapq.merge(*streams, key=lambda message: message.arrival)
