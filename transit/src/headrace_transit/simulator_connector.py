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

import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import polars as pl

from headrace.errors import ConfigError, PlanError
from headrace.ingest.connector import Connector
from headrace.ingest.message import RawMessage
from headrace.ingest.messages import gathered
from headrace.ingest.pacing import Pacer
from headrace_transit.hfp_writer import written
from headrace_transit.simulator.arrivals import Arrivals
from headrace_transit.simulator.disorder import Disorder
from headrace_transit.simulator.fleet import Fleet
from headrace_transit.simulator.truth import TruthFile
from headrace_transit.simulator.writers import checked_copies, copy_of

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator

    from headrace.ingest.message import Batch
    from headrace_transit.simulator.arrivals import Arrived

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
        service: "flat": all vehicles are always out; "weekday": as many as at that time of a working day.
        disorder: How messages arrive late, twice and out of order: "hsl", as measured; "hsl-archive", with an
            archive's repeats; "calm", a little; "none".
        wrong_clocks: Share of the vehicles whose clocks are wrong, by 1 s to 10 min.
        stop_events: Whether events at stops are sent, too.
        elsewhere: Whether events of traffic lights and drivers are sent, too.
        copies: How often each message is sent, by other vehicles.
        emergency_rate: Emergency stops per tram or bus and hour, 0 to 1.
        gps_loss: Share of the time that a vehicle does not know where it is.
        gps_noise: Metres by which the reported position errs.
        truth: A file for the truth about emergency stops; empty: none.
        batch_size: How many messages are handed over at once at most.

    Raises:
        ConfigError: A value makes no sense.
    """

    vehicles: int = 300
    seed: int = 1
    start: str = ""
    seconds: int | None = None
    speed: float = 1.0
    service: str = "flat"
    disorder: str = "hsl"
    wrong_clocks: float = 0.0
    stop_events: bool = True
    elsewhere: bool = True
    copies: int = 1
    emergency_rate: float = 0.05
    gps_loss: float = 0.002
    gps_noise: float = 2.0
    truth: str = ""
    batch_size: int = 5000

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ConfigError(f"batch_size is {self.batch_size}", hint="Give 1 or more.")
        if not self.speed > 0:
            raise ConfigError(f"speed is {self.speed}", hint="Give a number above 0; 1 is that of the clock.")
        if self.seconds is not None and self.seconds < 1:
            raise ConfigError(f"seconds is {self.seconds}", hint="Give 1 or more, or leave it out.")
        if self.speed == float("inf") and self.seconds is None:
            raise ConfigError("speed inf needs seconds", hint="Without the clock nothing else would stop it.")
        self.begin(_EPOCH)
        try:
            self.roads()
            checked_copies(self.copies)
            Fleet.check(**self._of_fleet(), start=_EPOCH)
        except PlanError as error:
            raise ConfigError(error.message, hint=error.hint) from error

    def roads(self) -> Disorder:
        """How messages travel, and by which clocks."""
        return replace(Disorder.named(self.disorder), wrong_clocks=self.wrong_clocks)

    def _of_fleet(self) -> dict[str, Any]:
        names = ("vehicles", "service", "emergency_rate", "gps_loss", "gps_noise")
        return {name: getattr(self, name) for name in names}

    def begin(self, now: datetime) -> datetime:
        """The event time of the first second."""
        if not self.start:
            return now
        try:
            found = datetime.fromisoformat(self.start)
        except ValueError as error:
            raise ConfigError(f"start is {self.start!r}", hint="Give a time such as 2026-05-01T06:00:00Z.") from error
        return found if found.tzinfo else found.replace(tzinfo=UTC)

    def fleet(self, begin: datetime) -> tuple[Fleet, int]:
        """Make the fleet.

        Args:
            begin: The event time to begin at.

        Returns:
            The fleet, and the second of its time at which it begins: its first second is that of a day, so that
            vehicles are where they would be at this time of day.
        """
        midnight = begin.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        return Fleet(seed=self.seed, start=midnight, **self._of_fleet()), int((begin - midnight).total_seconds())


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
        yield from self._pacer.batches(gathered(self.messages()), stop)

    def messages(self) -> Iterator[RawMessage]:
        """All messages, in the order of their arrival.

        Raises:
            EnvironmentProblem: The file for the truth cannot be written.
        """
        settings = self.settings
        fleet, first = settings.fleet(settings.begin(_EPOCH + timedelta(microseconds=self._wall())))
        arrivals = Arrivals(
            fleet,
            settings.roads(),
            first=first,
            stop_events=settings.stop_events,
            elsewhere=settings.elsewhere,
        )
        # Many seconds at once are cheaper, but a feed that keeps the clock must not wait for them.
        at_once = max(1, int(min(settings.speed, _MOST_AT_ONCE // (settings.vehicles * settings.copies))))
        with ExitStack() as stack:
            truth = None
            if settings.truth:
                truth = stack.enter_context(TruthFile(settings.truth, fleet, first=first, copies=settings.copies))
            while settings.seconds is None or arrivals.second - first < settings.seconds:
                left = at_once if settings.seconds is None else first + settings.seconds - arrivals.second
                arrived = arrivals.take(min(at_once, left))
                if truth is not None:
                    truth.until(arrivals.second)
                yield from self._merged(arrived)
        yield from self._merged(arrivals.rest())

    def _merged(self, arrived: Arrived) -> Iterator[RawMessage]:
        """Write all kinds of reports and their copies, in the order of arrival."""
        copies = range(self.settings.copies)
        frames = [written(copy_of(frame, copy)) for frame in arrived.frames if frame.height for copy in copies]
        if not frames:
            return iter(())
        ordered = pl.concat(frames).sort("arrival", maintain_order=True)
        return map(RawMessage, *(ordered[name].to_list() for name in ("topic", "payload", "arrival")))

    @property
    def behind(self) -> float:
        """Seconds by which the fleet is behind its schedule."""
        return self._pacer.behind

    def close(self) -> None:
        """Nothing is held."""
