"""`headrace simulate`: a made-up fleet that drives, and writes its events to Kafka.

The fleet is computed for any second of event time by itself, from the seed alone. Without `--start` event time is the
time of day, so that a second run finds the vehicles where a fleet that had never stopped would be.
"""

from __future__ import annotations

import math
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import terminal
from headrace.cli.connect import connect
from headrace.cli.moments import moment
from headrace.cli.options import Bootstrap, Globals, Json, UsageError
from headrace.cli.reports import Encoding
from headrace.cli.stopping import stop_on_signals

if TYPE_CHECKING:
    from headrace.config import Settings
    from headrace.transit.simulator.feed import FeedReport

_REPORT_SECONDS = 5.0


class _Reporter:
    """Passes the feed's reports on: every one as JSON, or a line now and then."""

    def __init__(self, *, json: bool) -> None:
        self._json = json
        self._shown = 0.0

    def __call__(self, report: FeedReport) -> None:
        if self._json:
            terminal.record(report.to_dict())
        elif report.elapsed - self._shown >= _REPORT_SECONDS:
            self._shown = report.elapsed
            behind = "" if report.keeps_up else f", {report.behind:.1f} s behind its clock"
            terminal.note(
                f"{report.event_time:%H:%M:%S} UTC: {report.positions:,} positions, "
                f"{report.stop_events:,} stop events, {report.rate:,.0f}/s{behind}"
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
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="WHERE",
            help="HFP messages to mqtt://HOST:PORT or into a file (.dump, .dump.gz), instead of events to Kafka.",
            show_default=False,
        ),
    ] = None,
    encoding: Annotated[
        Encoding, typer.Option("--encoding", help="How events are written: small, or readable.")
    ] = Encoding.BINARY,
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
    if to is not None:
        _send_messages(to, settings, start=start, seconds=seconds, fast=fast, json=json)
        return
    connection = connect(settings)

    from headrace.cli.topics import make_topics
    from headrace.transit.simulator import Fleet
    from headrace.transit.simulator.feed import simulate as feed

    make_topics(connection)
    begin = datetime.now(UTC) if start is None else moment(start, now=datetime.now(UTC), option="--start")
    # The first second of a fleet is that of a day, so that its vehicles are where they would be at this time of day.
    midnight = begin.replace(hour=0, minute=0, second=0, microsecond=0)
    size = _fleet_size(settings)
    fleet = Fleet(vehicles=size, seed=settings.simulator.seed, start=midnight)
    terminal.note(f"{size:,} vehicles drive from {begin:%Y-%m-%d %H:%M:%S} UTC; events go to {connection.bootstrap}")
    report = _Reporter(json=json)
    with stop_on_signals() as stop:
        last = feed(
            fleet,
            connection,
            speed=math.inf if fast else settings.simulator.speed_up,
            duration=seconds,
            first=int((begin - midnight).total_seconds()),
            encoding="json" if encoding is Encoding.JSON else "binary",
            stop=stop,
            report=report,
        )
    if not json:
        terminal.line(
            f"Sent {last.positions:,} positions and {last.stop_events:,} stop events in {last.elapsed:.1f} s."
        )
        terminal.note("See them: headrace tail input.vehicle-position")
    stop.finish()


def _send_messages(
    to: str, settings: Settings, *, start: str | None, seconds: int | None, fast: bool, json: bool
) -> None:
    """Send the fleet's reports as HFP messages to an MQTT broker or into a file."""
    from headrace.ingest.publisher import sink
    from headrace.transit.simulator_connector import SimulatorConnector, SimulatorSettings

    chosen = SimulatorSettings(
        vehicles=_fleet_size(settings),
        seed=settings.simulator.seed,
        start="" if start is None else moment(start, now=datetime.now(UTC), option="--start").isoformat(),
        seconds=seconds,
        speed=math.inf if fast else settings.simulator.speed_up,
    )
    connector = SimulatorConnector(chosen)
    began = shown = time.monotonic()
    count = 0
    with stop_on_signals() as stop, sink(to) as out, connector:
        terminal.note(f"{connector.check()}; HFP messages go to {out.place}")
        for batch in connector.batches(stop):
            out.write(batch.messages)
            count += len(batch.messages)
            now = time.monotonic()
            if now - shown >= _REPORT_SECONDS:
                out.flush()
                shown = now
                late = f", {connector.behind:.1f} s behind its clock" if connector.behind > 1 else ""
                if json:
                    terminal.record({"event": "messages", "messages": count, "behind": connector.behind})
                else:
                    terminal.note(f"{count:,} messages, {count / (now - began):,.0f}/s{late}")
        out.flush()
    elapsed = time.monotonic() - began
    if json:
        terminal.record({"event": "messages", "messages": count, "elapsed": elapsed, "to": out.place})
    else:
        terminal.line(f"Sent {count:,} HFP messages to {out.place} in {elapsed:.1f} s.")
        if "://" not in out.place:
            terminal.note(f"Send them again: headrace replay {out.place}")
    stop.finish()
