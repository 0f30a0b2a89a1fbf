"""`headrace broker`: an embedded Kafka that stays until it is stopped."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import terminal
from headrace.cli.connect import running_state
from headrace.cli.options import Globals, Json
from headrace.cli.progress import Steps
from headrace.errors import ConfigError, ExitCode

if TYPE_CHECKING:
    from headrace.config import Settings
    from headrace.dev import ServerSettings

app = typer.Typer(no_args_is_help=True, help="Start, look at and stop the embedded Kafka broker.")

DataDir = Annotated[
    Path | None, typer.Option("--data-dir", metavar="DIR", help="Where the broker keeps its data.", show_default=False)
]


def server_settings(settings: Settings, *, stop_timeout: float = 10.0) -> ServerSettings:
    """How the embedded broker runs by these settings.

    A port that the user chose is used or refused; the default one gives way to a free one when it is taken.
    """
    from headrace.dev import ServerSettings
    from headrace.dev.ports import check_port
    from headrace.errors import EnvironmentProblem

    port: int | None = settings.broker.port or None
    if port is not None and settings.origin("broker.port").kind == "default":
        try:
            check_port(port, purpose="the broker")
        except EnvironmentProblem:
            port = None
    return ServerSettings(
        data_dir=settings.broker_directory, port=port, memory=settings.broker.memory, stop_timeout=stop_timeout
    )


@app.command()
def start(
    ctx: typer.Context,
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="PORT", help="Port on 127.0.0.1; 0 for any free one.", show_default=False),
    ] = None,
    data_dir: DataDir = None,
    memory: Annotated[
        str | None, typer.Option("--memory", metavar="SIZE", help="Its heap, such as 512m.", show_default=False)
    ] = None,
    json: Json = False,
) -> None:
    """Start the embedded broker in the background; it stays until `headrace broker stop`."""
    from headrace.dev import JarCache, detached

    settings = Globals.of(ctx).settings(
        broker__port=(port, "--port"),
        broker__data_directory=(data_dir, "--data-dir"),
        broker__memory=(memory, "--memory"),
    )
    if settings.broker.bootstrap:
        raise ConfigError(
            f"broker.bootstrap is {settings.broker.bootstrap!r} ({settings.origin('broker.bootstrap')}): no command "
            "would use an embedded broker",
            hint="Remove that setting to work with the embedded broker.",
        )
    running = running_state(settings)
    already = running is not None
    if running is None:
        with Steps() as steps, steps.step("Starting the broker") as step:
            running = detached.start(
                server_settings(settings), cache=JarCache(settings.paths.jars), progress=step.progress
            )
            step.done(running.bootstrap)
    if json:
        terminal.document(
            {
                "bootstrap": running.bootstrap,
                "pid": running.pid,
                "data": str(settings.broker_directory),
                "already": already,
            }
        )
        return
    verb = "already runs" if already else "runs"
    terminal.line(f"Kafka {running.kafka_version} {verb} at {running.bootstrap} (process {running.pid})")
    terminal.line(f"Data in {settings.broker_directory}")
    terminal.note("Next: headrace topics create    Stop it: headrace broker stop")


@app.command()
def status(ctx: typer.Context, data_dir: DataDir = None, json: Json = False) -> None:
    """Say whether the embedded broker runs; exit code 5 if it does not run or does not answer."""
    from headrace.dev import detached

    settings = Globals.of(ctx).settings(broker__data_directory=(data_dir, "--data-dir"))
    found = detached.status(settings.broker_directory)
    state = found.state if found.running else None
    if json:
        facts = {} if state is None else {"bootstrap": state.bootstrap, "pid": state.pid, "since": state.started_at}
        terminal.document(
            {"running": found.running, "answers": found.answers, "data": str(found.data.path), "text": str(found)}
            | facts
        )
    else:
        terminal.line(f"Embedded broker: {found}")
        terminal.line(f"Data in {found.data.path}, log in {found.data.log_file}")
        if not found.running:
            terminal.note("Start one: headrace broker start")
    if not found.answers:
        raise typer.Exit(int(ExitCode.BROKER))


@app.command()
def stop(ctx: typer.Context, data_dir: DataDir = None, json: Json = False) -> None:
    """Stop the embedded broker that `headrace broker start` started. Its data stays."""
    from headrace.dev import detached

    settings = Globals.of(ctx).settings(broker__data_directory=(data_dir, "--data-dir"))
    began = time.monotonic()
    stopped = detached.stop(settings.broker_directory)
    if json:
        terminal.document({"stopped": bool(stopped)})
    elif stopped:
        terminal.line(f"Stopped after {time.monotonic() - began:.1f} s. Its data stays in {settings.broker_directory}.")
    else:
        terminal.line(f"No broker runs in {settings.broker_directory}.")
