"""`headrace demo`: everything at once, on this machine, to look at.

The broker, a simulated fleet, the transit jobs on Spark and the live map, each in a process of its own
(`headrace.cli.stage`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.children import Child, headrace_command
from headrace.cli.gauges import Snapshot
from headrace.cli.jobs import complete_job, registry
from headrace.cli.options import Bootstrap, Globals, Json
from headrace.cli.progress import Steps
from headrace.cli.singleton import only_one
from headrace.cli.stage import CHILD_GRACE, Stage, forget, perform
from headrace.extras import require
from headrace_transit.settings import SimulatorSettings

if TYPE_CHECKING:
    from headrace.config import Settings
    from headrace.kafka import Connection

#: The job whose results the terminal shows; the map shows all of them.
JOB = "vehicle-distribution"
#: Left out unless it is asked for: it answers what emergency-stop-pattern answers, said in SQL.
_TWIN = "emergency-stop-sql"
#: Emergency stops per vehicle and hour: ten times as many as in life, so that one is seen within a minute.
_EMERGENCIES = 0.5
_BATCHES_WITHOUT_RESULTS = 20


def _is_warm(shown: Snapshot) -> bool:
    """Whether the slow first micro-batches are over: results came, or several batches with events but no result."""
    return bool(shown.busiest) or (shown.events > 0 and (shown.batch or 0) >= _BATCHES_WITHOUT_RESULTS)


def _simulate_words(settings: Settings, connection: Connection) -> list[str]:
    simulator = settings.section(SimulatorSettings)
    size = ["--vehicles", str(simulator.vehicles)] if simulator.rate is None else ["--rate", str(simulator.rate)]
    return [
        "simulate",
        *size,
        *("--speed-up", str(simulator.speed_up)),
        *("--seed", str(simulator.seed)),
        *("--emergencies", str(_EMERGENCIES)),
        # With the lateness of a real feed the view would be about late events.
        *("--lateness", "calm"),
        *("--bootstrap", connection.bootstrap),
    ]


def demo(
    ctx: typer.Context,
    vehicles: Annotated[
        int | None, typer.Option("--vehicles", metavar="N", help="How many vehicles drive.", show_default=False)
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option("--rate", metavar="N", help="Positions per second, instead of --vehicles.", show_default=False),
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--for",
            metavar="SECONDS",
            min=1,
            help="Stop by itself, so long after Spark has started.",
            show_default=False,
        ),
    ] = None,
    names: Annotated[
        list[str] | None,
        typer.Option(
            "--job",
            metavar="JOB",
            help="Run this job, as often as you like; all if left out.",
            autocompletion=complete_job,
            show_default=False,
        ),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget former demos instead of continuing.")] = False,
    master: Annotated[
        str | None,
        typer.Option("--master", metavar="URL", help="Where Spark runs, such as local[2].", show_default=False),
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", metavar="PORT", help="Port of the embedded broker.", show_default=False)
    ] = None,
    dashboard: Annotated[bool, typer.Option(help="Serve the live map.")] = True,
    bootstrap: Bootstrap = None,
    json: Json = False,
) -> None:
    """Start broker, simulated fleet, the jobs on Spark and the live map, and watch."""
    require("dashboard", "spark", by="`headrace demo`")
    options = Globals.of(ctx)
    settings = options.settings(
        broker__bootstrap=(bootstrap, "--bootstrap"),
        broker__port=(port, "--port"),
        simulator__vehicles=(vehicles, "--vehicles"),
        simulator__rate=(rate, "--rate"),
        spark__master=(master, "--master"),
    )
    known = registry(settings)
    jobs = known.find(names) if names else [job for job in known.every() if job.name != _TWIN]
    shown = next((job for job in jobs if job.name == JOB), jobs[0])
    with only_one(settings.paths.home / "demo.lock", what="a demo"):
        if fresh:
            forget(settings, jobs)
        stage = Stage(options, settings, jobs, [job.name for job in jobs], shown, fresh=fresh, places=True)

        def prepare(steps: Steps) -> Connection:
            connection = stage.open(steps)
            with steps.step(f"Starting {settings.section(SimulatorSettings).vehicles:,} simulated vehicles"):
                command = headrace_command(options, *_simulate_words(settings, connection))
                log = stage.logs / "simulate.log"
                stage.children.append(Child("the simulator", command, log=log, grace=CHILD_GRACE))
            stage.start_jobs(connection, steps, dashboard=dashboard, warm=_is_warm)
            return connection

        commands = [f"tail {shown.result_topic} -f", "tail input.vehicle-position", "topics"]
        perform(stage, prepare, commands=commands, seconds=seconds, json=json)
