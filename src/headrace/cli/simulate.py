"""`headrace simulate`: a made-up fleet that drives, and writes its events to Kafka.

The fleet is computed for any second of event time by itself, from the seed alone. Without `--start` event time is the
time of day, so that a second run finds the vehicles where a fleet that had never stopped would be.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli import terminal
from headrace.cli.connect import connect
from headrace.cli.moments import moment
from headrace.cli.options import Bootstrap, Globals, Json, UsageError
from headrace.cli.stopping import Stop, stop_on_signals
from headrace.errors import BrokerError

if TYPE_CHECKING:
    import polars as pl

    from headrace.broker import Connection
    from headrace.config import Settings
    from headrace.transit.simulator import Fleet

POSITIONS = "input.vehicle-position"
STOPS = "input.stop-event"
#: Events are sent in slices of this length, so that they reach Kafka as they happen and not once a second.
_SLICE = 0.1
_REPORT_SECONDS = 5.0


@dataclass
class Sent:
    """What was sent so far."""

    positions: int = 0
    stop_events: int = 0
    failed: int = 0
    event_time: str = ""


class Sender:
    """Writes frames of events to their topics.

    Args:
        connection: Where to.
    """

    def __init__(self, connection: Connection) -> None:
        from confluent_kafka import Producer

        from headrace.events.codec import Codec

        self.sent = Sent()
        self._bootstrap = connection.bootstrap
        self._codec = Codec()
        self._reason = ""
        self._producer: Any = Producer(
            connection.client_config(
                linger_ms=10, compression_type="lz4", enable_idempotence=True, message_timeout_ms=30_000
            )
        )

    def send(self, topic: str, frame: pl.DataFrame) -> None:
        """Write the rows of a frame, each with its vehicle as the key."""
        import polars as pl

        kind = "VehiclePosition" if topic == POSITIONS else "StopEvent"
        now = pl.lit(datetime.now(UTC)).cast(pl.Datetime("us", "UTC"))
        values = self._codec.encode(frame.with_columns(ingestion_time=now), kind)
        for key, value in zip(frame["vehicle_id"].to_list(), values.to_pylist(), strict=True):
            while True:
                try:
                    self._producer.produce(topic, key=key, value=value, on_delivery=self._delivered)
                    break
                except BufferError:  # librdkafka's queue is full: let it send
                    self._producer.poll(0.1)
        self._producer.poll(0)
        if topic == POSITIONS:
            self.sent.positions += frame.height
        else:
            self.sent.stop_events += frame.height
        self._raise_failure()

    def close(self, timeout: float = 5.0) -> None:
        """Wait until everything is written."""
        left = self._producer.flush(timeout)
        self._raise_failure()
        if left:
            raise BrokerError(
                f"{left} events could not be written to Kafka at {self._bootstrap} within {timeout:.0f} s",
                hint="Is the broker still running? See `headrace broker status`.",
            )

    def _delivered(self, error: Any, _message: Any) -> None:
        if error is not None:
            self.sent.failed += 1
            self._reason = error.str()

    def _raise_failure(self) -> None:
        if self.sent.failed:
            raise BrokerError(
                f"{self.sent.failed} events could not be written to Kafka at {self._bootstrap}: {self._reason}",
                hint="See `headrace broker status`; a topic that is missing is made by `headrace topics create`.",
            )


def slices(
    fleet: Fleet, first: int, count: int | None, *, fast: bool
) -> Iterator[tuple[datetime, dict[str, pl.DataFrame]]]:
    """Cut the events of a fleet into slices, in the order of event time.

    Args:
        fleet: Who drives.
        first: The first second.
        count: How many seconds, for ever if None.
        fast: One slice per second, for a run that does not wait for the clock.

    Yields:
        The end of the slice in event time, and its frames by topic.
    """
    import polars as pl

    pieces = 1 if fast else round(1 / _SLICE)
    second = first
    while count is None or second < first + count:
        frames = {
            topic: frame.sort("event_time")
            for topic, frame in ((POSITIONS, fleet.positions(second)), (STOPS, fleet.stop_events(second)))
        }
        begin = fleet.start + timedelta(seconds=second)
        for piece in range(pieces):
            since, until = (begin + timedelta(seconds=number / pieces) for number in (piece, piece + 1))
            inside = (pl.col("event_time") >= since) & (pl.col("event_time") < until)
            yield until, {topic: frame.filter(inside) for topic, frame in frames.items()}
        second += 1


def drive(
    fleet: Fleet, sender: Sender, stop: Stop, *, first: int, count: int | None, speed_up: float, fast: bool
) -> None:
    """Send the events of a fleet as its clock goes, until it is stopped or done."""
    began = time.monotonic()
    start = fleet.start + timedelta(seconds=first)
    reported = began
    for until, frames in slices(fleet, first, count, fast=fast):
        wait = 0.0 if fast else began + (until - start).total_seconds() / speed_up - time.monotonic()
        if stop.wait(wait) if wait > 0 else stop.is_set():
            return
        for topic, frame in frames.items():
            if frame.height:
                sender.send(topic, frame)
        sender.sent.event_time = until.isoformat()
        now = time.monotonic()
        if now - reported >= _REPORT_SECONDS:
            reported = now
            rate = (sender.sent.positions + sender.sent.stop_events) / (now - began)
            terminal.note(
                f"{until:%H:%M:%S} UTC: {sender.sent.positions:,} positions, {sender.sent.stop_events:,} stop events, "
                f"{rate:,.0f}/s"
            )


def _fleet_size(settings: Settings) -> int:
    if settings.simulator.rate is None:
        return settings.simulator.vehicles
    return max(1, round(settings.simulator.rate / settings.simulator.speed_up))


def simulate(
    ctx: typer.Context,
    vehicles: Annotated[
        int | None,
        typer.Option(
            "--vehicles", metavar="N", help="How many vehicles, one position a second each.", show_default=False
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option("--rate", metavar="N", help="Positions per second, instead of --vehicles.", show_default=False),
    ] = None,
    speed_up: Annotated[
        float | None,
        typer.Option(
            "--speed-up", metavar="X", help="Event time runs X times as fast as the clock.", show_default=False
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="Another seed, another fleet.", show_default=False)
    ] = None,
    start: Annotated[
        str | None,
        typer.Option("--start", metavar="TIME", help="Event time to begin at, instead of now.", show_default=False),
    ] = None,
    seconds: Annotated[
        int | None,
        typer.Option(
            "--for", metavar="SECONDS", min=1, help="Stop after so many seconds of event time.", show_default=False
        ),
    ] = None,
    fast: Annotated[bool, typer.Option("--fast", help="Do not wait for the clock; needs --for.")] = False,
    bootstrap: Bootstrap = None,
    json: Json = False,
) -> None:
    """Drive a simulated fleet and write its positions and stop events to Kafka, until Ctrl-C."""
    if vehicles is not None and rate is not None:
        raise UsageError("--vehicles and --rate contradict each other", hint="Give one of them.")
    if fast and seconds is None:
        raise UsageError("--fast needs --for SECONDS", hint="Without the clock nothing else would stop it.")
    settings = Globals.of(ctx).settings(
        broker__bootstrap=(bootstrap, "--bootstrap"),
        simulator__vehicles=(vehicles, "--vehicles"),
        simulator__rate=(rate, "--rate"),
        simulator__speed_up=(speed_up, "--speed-up"),
        simulator__seed=(seed, "--seed"),
    )
    connection = connect(settings)

    from headrace.cli.topics import make_topics
    from headrace.transit.simulator import Fleet

    make_topics(connection)
    begin = datetime.now(UTC) if start is None else moment(start, now=datetime.now(UTC), option="--start")
    midnight = begin.replace(hour=0, minute=0, second=0, microsecond=0)
    size = _fleet_size(settings)
    fleet = Fleet(vehicles=size, seed=settings.simulator.seed, start=midnight)
    sender = Sender(connection)
    terminal.note(f"{size:,} vehicles drive from {begin:%Y-%m-%d %H:%M:%S} UTC; events go to {connection.bootstrap}")
    with stop_on_signals() as stop:
        drive(
            fleet,
            sender,
            stop,
            first=int((begin - midnight).total_seconds()),
            count=seconds,
            speed_up=settings.simulator.speed_up,
            fast=fast,
        )
        sender.close()
    if json:
        terminal.document(asdict(sender.sent))
    else:
        terminal.line(f"Sent {sender.sent.positions:,} positions and {sender.sent.stop_events:,} stop events.")
        terminal.note(f"See them: headrace tail {POSITIONS}")
    stop.finish()
