"""`headrace simulate`: a made-up fleet that drives, and writes its events to Kafka.

The fleet is computed for any second of event time by itself, from the seed alone. Without `--start` event time is the
time of day, so that a second run finds the vehicles where a fleet that had never stopped would be. With `--to` the same
reports leave as the HFP messages that vehicles would publish. The truth about emergency stops is written beside them.
"""

from __future__ import annotations

import math
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import terminal
from headrace.cli.connect import connect
from headrace.cli.moments import moment
from headrace.cli.options import Bootstrap, Globals, Json, UsageError
from headrace.cli.reports import Encoding
from headrace.cli.stopping import stop_on_signals
from headrace.errors import ConfigError
from headrace_transit import settings as settings_of

if TYPE_CHECKING:
    from headrace.config import Settings
    from headrace.kafka import Connection
    from headrace_transit.simulator.feed import FeedReport
    from headrace_transit.simulator_connector import SimulatorSettings

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


class Service(StrEnum):
    """How many vehicles are out."""

    FLAT = "flat"
    WEEKDAY = "weekday"


class Compression(StrEnum):
    """How batches to Kafka are compressed."""

    LZ4 = "lz4"
    NONE = "none"


class Lateness(StrEnum):
    """How reports arrive."""

    HSL = "hsl"
    HSL_ARCHIVE = "hsl-archive"
    CALM = "calm"
    NONE = "none"


def _fleet_size(settings: Settings, copies: int) -> int:
    chosen = settings.section(settings_of.SimulatorSettings)
    if chosen.rate is None:
        return chosen.vehicles
    return max(1, round(chosen.rate / chosen.speed_up / copies))


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
    copies: Annotated[
        int, typer.Option("--copies", metavar="N", min=1, help="N-fold load, by vehicles of other numbers.")
    ] = 1,
    service: Annotated[
        Service, typer.Option("--service", help="All vehicles at all times, or as many as at that time of a weekday.")
    ] = Service.FLAT,
    lateness: Annotated[
        Lateness, typer.Option("--lateness", help="How late, doubled and out of order reports arrive.")
    ] = Lateness.HSL,
    emergencies: Annotated[
        float, typer.Option("--emergencies", metavar="RATE", help="Emergency stops per tram or bus and hour, 0 to 1.")
    ] = 0.05,
    gps_loss: Annotated[
        float, typer.Option("--gps-loss", metavar="SHARE", help="Share of the time without a position.")
    ] = 0.002,
    gps_noise: Annotated[
        float, typer.Option("--gps-noise", metavar="METRES", help="How far reported positions are off.")
    ] = 2.0,
    wrong_clocks: Annotated[
        float, typer.Option("--wrong-clocks", metavar="SHARE", help="Share of the vehicles with wrong clocks.")
    ] = 0.0,
    truth: Annotated[
        Path | None,
        typer.Option(
            "--truth", metavar="FILE", help="Write what is true about emergency stops there.", show_default=False
        ),
    ] = None,
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
    compression: Annotated[
        Compression, typer.Option("--compression", help="Of batches to Kafka; none is faster, and larger.")
    ] = Compression.LZ4,
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

    from headrace_transit.simulator_connector import SimulatorSettings

    begin = datetime.now(UTC) if start is None else moment(start, now=datetime.now(UTC), option="--start")
    if truth is None and to is not None and "://" not in to:
        truth = beside(to)
    section = settings.section(settings_of.SimulatorSettings)
    try:
        chosen = SimulatorSettings(
            vehicles=_fleet_size(settings, copies),
            seed=section.seed,
            start="" if start is None else begin.isoformat(),
            seconds=seconds,
            speed=math.inf if fast else section.speed_up,
            service=service.value,
            disorder=lateness.value,
            copies=copies,
            emergency_rate=emergencies,
            gps_loss=gps_loss,
            gps_noise=gps_noise,
            wrong_clocks=wrong_clocks,
            truth="" if truth is None else str(truth),
        )
    except ConfigError as error:  # here it was typed, not configured
        raise UsageError(error.message, hint=error.hint) from error
    if to is not None:
        _send_messages(to, chosen, json=json)
    else:
        _send_events(chosen, connect(settings), begin, encoding=encoding, compression=compression, json=json)


def beside(path: str) -> Path:
    """Where the truth about a recording goes.

    >>> beside("runs/monday.dump.gz").as_posix()
    'runs/monday.truth.jsonl'
    """
    file = Path(path)
    return file.with_name(file.name.removesuffix(".gz").removesuffix(".dump") + ".truth.jsonl")


def _send_events(
    chosen: SimulatorSettings,
    connection: Connection,
    begin: datetime,
    *,
    encoding: Encoding,
    compression: Compression,
    json: bool,
) -> None:
    """Send the fleet's reports as events to Kafka."""
    from headrace.kafka import Topics
    from headrace_transit.simulator import TruthFile
    from headrace_transit.simulator.feed import simulate as feed
    from headrace_transit.topics import input_topics

    Topics(connection).ensure(input_topics())
    fleet, first = chosen.fleet(begin)
    size = f"{chosen.vehicles:,} vehicles" + (f" and {chosen.copies - 1:,} copies of each" if chosen.copies > 1 else "")
    terminal.note(f"{size} drive from {begin:%Y-%m-%d %H:%M:%S} UTC; events go to {connection.bootstrap}")
    with ExitStack() as stack:
        truth = None
        if chosen.truth:
            truth = stack.enter_context(TruthFile(chosen.truth, fleet, first=first, copies=chosen.copies))
        stop = stack.enter_context(stop_on_signals())
        last = feed(
            fleet,
            connection,
            speed=chosen.speed,
            duration=chosen.seconds,
            first=first,
            disorder=chosen.roads(),
            copies=chosen.copies,
            truth=truth,
            encoding="json" if encoding is Encoding.JSON else "binary",
            compression="none" if compression is Compression.NONE else "lz4",
            stop=stop,
            report=_Reporter(json=json),
        )
    if not json:
        terminal.line(
            f"Sent {last.positions:,} positions and {last.stop_events:,} stop events in {last.elapsed:.1f} s."
        )
        if truth is not None:
            terminal.note(f"{truth.stops:,} emergency stops are in {truth.path}")
        terminal.note("See them: headrace tail input.vehicle-position")
    stop.finish()


def _send_messages(to: str, chosen: SimulatorSettings, *, json: bool) -> None:
    """Send the fleet's reports as HFP messages to an MQTT broker or into a file."""
    from headrace.ingest.publisher import sink
    from headrace_transit.simulator_connector import SimulatorConnector

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
        if chosen.truth:
            terminal.note(f"What is true about emergency stops is in {chosen.truth}")
        if "://" not in out.place:
            terminal.note(f"Send them again: headrace replay {out.place}")
    stop.finish()
