"""`headrace replay`: recorded messages into Kafka, as if they came in now.

The arrival gaps of the recording are kept, so its lateness and disorder are the real ones; `--speed` divides them,
`--fast` does not wait at all. `--copies` multiplies the load with vehicles of other numbers.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Annotated

import typer

from headrace.cli import terminal
from headrace.cli.connect import connect
from headrace.cli.monitoring import MetricsPort
from headrace.cli.options import Bootstrap, Globals, Json, UsageError
from headrace.cli.reports import Encoding, Reporter, serve_metrics, summary
from headrace.cli.stopping import stop_on_signals
from headrace.errors import PlanError


class AlignOn(StrEnum):
    """What coincides in recordings that are aligned."""

    EVENT_TIME = "event-time"
    ARRIVAL = "arrival"


def replay(
    ctx: typer.Context,
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="Recordings or their URLs: .dump, .gz, .bz2, .xz, .zst.")
    ],
    speed: Annotated[float, typer.Option("--speed", metavar="X", help="X times as fast as it was recorded.")] = 1.0,
    fast: Annotated[bool, typer.Option("--fast", help="As fast as possible.")] = False,
    offset: Annotated[str, typer.Option("--offset", metavar="TIME", help="Leave out so much of the start.")] = "0s",
    length: Annotated[
        str | None,
        typer.Option("--length", metavar="TIME", help="Replay so much of the recording.", show_default=False),
    ] = None,
    loop: Annotated[bool, typer.Option("--loop", help="Begin again at the end, until Ctrl-C.")] = False,
    keep_times: Annotated[
        bool, typer.Option("--keep-times", help="Leave event times as recorded, instead of moving them to now.")
    ] = False,
    align: Annotated[
        bool, typer.Option("--align", help="Let recordings of different times begin together, in event time.")
    ] = False,
    align_on: Annotated[
        AlignOn | None,
        typer.Option("--align-on", help="The same, on event time or on arrivals.", show_default=False),
    ] = None,
    copies: Annotated[
        int, typer.Option("--copies", metavar="N", min=1, help="N-fold load, by vehicles of other numbers.")
    ] = 1,
    deduplicate: Annotated[
        str | None,
        typer.Option("--deduplicate", metavar="TIME", help="Leave out repeats within a time.", show_default=False),
    ] = None,
    encoding: Annotated[
        Encoding, typer.Option("--encoding", help="How events are written: small, or readable.")
    ] = Encoding.BINARY,
    metrics_port: MetricsPort = None,
    bootstrap: Bootstrap = None,
    json: Json = False,
) -> None:
    """Send recorded HFP messages to Kafka as positions, stop events and dead letters."""
    if fast and speed != 1.0:
        raise UsageError("--fast and --speed contradict each other", hint="Give one of them.")
    settings = Globals.of(ctx).settings(broker__bootstrap=(bootstrap, "--bootstrap"))

    from headrace.ingest.connectors.replay import ReplayConnector, ReplaySettings
    from headrace.ingest.replay import ReplayPlan
    from headrace.ingest.runner import Ingestion, RunnerSettings
    from headrace.kafka import Producer, Topics
    from headrace_transit.hfp import HfpProcessor
    from headrace_transit.topics import input_topics

    try:
        plan = ReplayPlan(
            offset=offset,
            length=length,
            loops=None if loop else 1,
            times="keep" if keep_times else "now",
            align=align or align_on is not None,
            align_on="arrival" if align_on is AlignOn.ARRIVAL else "event_time",
            copies=copies,
        )
        delivery = RunnerSettings(feed="replay", deduplicate=deduplicate, encoding=encoding.value)
    except PlanError as error:  # a duration that is none; here it was typed, not planned
        raise UsageError(error.message, hint=error.hint) from error
    chosen = ReplaySettings(paths=tuple(files), speed=math.inf if fast else speed, plan=plan)
    connector = ReplayConnector(chosen)
    found = connector.check()
    connection = connect(settings)
    Topics(connection).ensure(input_topics())
    terminal.note(f"Replaying {found}; events go to {connection.bootstrap}")
    metrics, serving = serve_metrics(metrics_port, [delivery.feed])
    with (
        serving,
        stop_on_signals() as stop,
        Producer(connection, client_id="headrace-replay") as producer,
        Reporter(json=json, metrics=metrics) as reporter,
    ):
        last = Ingestion(connector, HfpProcessor(), producer, settings=delivery).run(stop, reporter)
    for recording in connector.recordings:
        if recording.torn:
            terminal.note(f"{recording.path} has a torn end: its writer was killed, or the copy is not complete.")
        if recording.bad_count:
            lines = ", ".join(map(str, recording.bad_lines[:5]))
            terminal.note(f"{recording.path} has {recording.bad_count:,} lines that are no messages: {lines}, ...")
    if not json:
        terminal.line(f"Replayed {summary(last)} in {last.elapsed:.1f} s.")
        terminal.note("See them: headrace tail input.vehicle-position")
    stop.finish()
