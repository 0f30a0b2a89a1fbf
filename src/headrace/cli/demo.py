"""`headrace demo`: everything at once, on this machine, to look at.

The parent draws the view. Its children (broker, simulator, jobs, dashboard) are guarded: they end with the parent,
however it ends. The view reads the jobs' progress from their standard output and the results from Kafka, as any other
reader would; the dashboard serves the live map.
"""

from __future__ import annotations

import contextlib
import json as json_module
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.live import Live

from headrace.cli import terminal
from headrace.cli.broker import server_settings
from headrace.cli.children import Child, headrace_command, stop_all
from headrace.cli.connect import embedded, external, running_broker
from headrace.cli.gauges import Gauges, Snapshot
from headrace.cli.jobs import complete_job, known_jobs, pick
from headrace.cli.options import Bootstrap, Globals, Json
from headrace.cli.progress import Steps
from headrace.cli.run import checkpoint_of
from headrace.cli.singleton import only_one
from headrace.cli.view import screen, status_line, summary
from headrace.errors import ExitCode, HeadraceError

if TYPE_CHECKING:
    from headrace.broker import Connection, EmbeddedBroker
    from headrace.config import Settings
    from headrace.stream import Job

#: The job whose results the terminal shows; the map shows all of them.
JOB = "vehicle-distribution"
#: Left out unless it is asked for: it answers what emergency-stop-pattern answers, said in SQL.
_TWIN = "emergency-stop-sql"
#: Emergency stops per vehicle and hour: ten times as many as in life, so that one is seen within a minute.
_EMERGENCIES = 0.5
#: Everything has to be gone 10 s after Ctrl-C. The job and the simulator end side by side and have this long to do so;
#: the broker is stopped after them, or when they have had most of their time.
_CHILD_GRACE = 5.0
_BROKER_WAITS = 4.0
_BROKER_GRACE = 3.0
_REFRESH_SECONDS = 0.5
_BATCHES_WITHOUT_RESULTS = 20
_LINE_SECONDS = 5.0


class _Ended(BaseException):
    """The user wants it to end; by which signal. Not an Exception, so that nothing on the way takes it for an error."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextmanager
def _signals_end_it() -> Iterator[None]:
    """Let Ctrl-C, `kill` and a closed terminal end the block, once; later ones must not disturb the cleaning up."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def handle(number: int, _frame: FrameType | None) -> None:
        for every in numbers:
            signal.signal(every, signal.SIG_IGN)
        raise _Ended(number)

    before = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass
class _Stage:
    """What the demo has started so far, and how to end it."""

    options: Globals
    settings: Settings
    jobs: list[Job]
    fresh: bool = False
    gauges: Gauges = field(default_factory=Gauges)
    broker: EmbeddedBroker | None = None
    children: list[Child] = field(default_factory=list)
    results: Any = None
    url: str | None = None
    began: float = field(default_factory=time.monotonic)
    first_result: float | None = None

    def check(self) -> None:
        """See that everything still runs; raise what says why it does not."""
        if self.broker is not None:
            self.broker.check()
        for child in self.children:
            child.check()
        if self.results is not None:
            self.results.check()

    def heard(self, text: str) -> None:
        """Take a line of the job's standard output."""
        try:
            report = json_module.loads(text)
        except ValueError:
            return
        if isinstance(report, dict):
            self.gauges.progress(report, now=time.monotonic())

    def heard_dashboard(self, text: str) -> None:
        """Take a line of the dashboard's standard output: where it can be opened."""
        with contextlib.suppress(ValueError):
            told = json_module.loads(text)
            if isinstance(told, dict) and told.get("event") == "listening":
                self.url = str(told["url"])

    @property
    def shown_job(self) -> str:
        """The job whose results the terminal shows."""
        names = [job.name for job in self.jobs]
        return JOB if JOB in names else names[0]

    def stop(self) -> None:
        """End everything, in order: who writes before who is written to."""
        if self.results is not None:
            self.results.stop()
        writers = threading.Thread(target=stop_all, args=(self.children,), name="stop children")
        writers.start()
        writers.join(_BROKER_WAITS)
        if self.broker is not None:
            self.broker.stop()
        writers.join()


def _forget(settings: Settings, jobs: list[Job]) -> None:
    """Remove what former demos left: the embedded broker's data and the jobs' checkpoint."""
    from headrace.broker import DataDirectory

    checkpoint = checkpoint_of(settings, jobs)
    doomed = [checkpoint] if settings.broker.bootstrap else [checkpoint, DataDirectory(settings.broker_directory).kafka]
    for path in doomed:
        shutil.rmtree(path, ignore_errors=True)


def _prepare_broker(stage: _Stage, steps: Steps) -> Connection:
    from headrace.broker import EmbeddedBroker, JarCache

    settings = stage.settings
    if settings.broker.bootstrap:
        with steps.step(f"Reaching Kafka at {settings.broker.bootstrap}"):
            connection = external(settings)
            connection.check()
            return connection
    running = running_broker(settings)
    if running is not None:
        with steps.step(f"Using the broker that runs at {running}"):
            connection = embedded(settings, running)
            connection.check()
            return connection
    with steps.step("Starting the Kafka broker (about 3 s)") as step:
        broker = EmbeddedBroker(
            server_settings(settings, stop_timeout=_BROKER_GRACE),
            cache=JarCache(settings.paths.jars),
            progress=step.progress,
        )
        stage.broker = broker
        broker.start()
        step.done(broker.bootstrap)
    return embedded(settings, broker.bootstrap)


def _prepare(stage: _Stage, steps: Steps, *, dashboard: bool) -> Connection:
    """Everything up to the first micro-batch."""
    from headrace.broker import EMBEDDED_BROKER, SPARK_CONNECTOR, JarCache, find_java
    from headrace.cli.results import ResultReader
    from headrace.cli.topics import make_topics

    settings = stage.settings
    with steps.step("Java and jars (a minute the first time)") as step:
        java = find_java()
        cache = JarCache(settings.paths.jars, java=java)
        for name in (SPARK_CONNECTOR, EMBEDDED_BROKER):
            cache.get(name, progress=step.progress)
        step.done(f"Java {java.version}")
    connection = _prepare_broker(stage, steps)
    with steps.step("Creating topics") as step:
        made = make_topics(connection, stage.jobs)
        step.done(f"{len(made)} new" if made else "all there")
    logs = settings.log_directory
    with steps.step(f"Starting {settings.simulator.vehicles:,} simulated vehicles"):
        command = headrace_command(stage.options, *_simulate_words(settings, connection))
        stage.children.append(Child("the simulator", command, log=logs / "simulate.log", grace=_CHILD_GRACE))
    names = [job.name for job in stage.jobs]
    words = ["run", *names, "--json", "--bootstrap", connection.bootstrap, "--master", settings.spark.master]
    if stage.fresh:
        # On a broker that keeps its data, an earlier demo may have written the same results.
        words += ["--fresh", "--take-over"]
    with steps.step("Starting Spark (20 to 40 s until the first result)") as step:
        command = headrace_command(stage.options, *words)
        job = Child("the Spark job", command, log=logs / "run.log", on_line=stage.heard, grace=_CHILD_GRACE)
        stage.children.append(job)
        stage.results = ResultReader(connection, f"analytics.{stage.shown_job}", stage.gauges)
        if dashboard:
            command = headrace_command(stage.options, "dashboard", *names, "--json", "-b", connection.bootstrap)
            page = Child(
                "the dashboard", command, log=logs / "dashboard.log", on_line=stage.heard_dashboard, grace=_CHILD_GRACE
            )
            stage.children.append(page)
        while True:
            stage.check()
            shown = stage.gauges.snapshot(now=time.monotonic())
            step.progress(f"{shown.state}: {shown.detail}" if shown.detail else shown.state)
            if _is_warm(shown):
                break
            time.sleep(0.1)
        # Windows that ended while Spark was warming up would say how long that took, and nothing about latency.
        stage.gauges.since = time.time_ns() // 1000
        step.done("first results are here" if shown.busiest else "reading")
    return connection


def _is_warm(shown: Snapshot) -> bool:
    """Whether the slow first micro-batches are over: results came, or several batches with events but no result."""
    return bool(shown.busiest) or (shown.events > 0 and (shown.batch or 0) >= _BATCHES_WITHOUT_RESULTS)


def _simulate_words(settings: Settings, connection: Connection) -> list[str]:
    simulator = settings.simulator
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


def _program() -> str:
    """What to type for `headrace`: not everybody has the virtual environment on the PATH."""
    installed = Path(sys.executable).with_name("headrace")
    if shutil.which("headrace") or not installed.exists():
        return "headrace"
    return os.path.relpath(installed) if installed.is_relative_to(Path.cwd()) else str(installed)


def _footer(stage: _Stage, connection: Connection) -> list[str]:
    from headrace.config.sources import default_home

    settings = stage.settings
    program = _program()
    # In the same directory every command finds the same broker, unless the home was moved.
    moved = settings.paths.home != default_home(Path.cwd(), os.environ)
    where = f" -b {connection.bootstrap}" if moved or settings.broker.bootstrap else ""
    return [
        f"Ctrl-C stops everything. Kafka at {connection.bootstrap}, data and logs in {settings.paths.home}",
        f"In another terminal:  {program} tail analytics.{stage.shown_job} -f{where}",
        f"                      {program} tail input.vehicle-position{where}",
        f"                      {program} topics{where}",
    ]


def _watch(stage: _Stage, connection: Connection, *, until: float | None, json: bool) -> None:
    """Show the figures until the time is over or something ends."""
    footer = _footer(stage, connection)
    last_line = 0.0
    told = ""
    with contextlib.ExitStack() as stack:
        live: Live | None = None
        if terminal.out.is_terminal and not json:
            live = stack.enter_context(Live(console=terminal.out, auto_refresh=False, transient=False))
        while until is None or time.monotonic() < until:
            stage.check()
            now = time.monotonic()
            shown = stage.gauges.snapshot(now=now)
            if stage.first_result is None and shown.busiest:
                stage.first_result = now - stage.began
                if live is None and not json:
                    terminal.line(f"First result after {stage.first_result:.1f} s.")
            if live is None and stage.url and stage.url != told and (json or stage.first_result):
                told = stage.url
                if json:
                    terminal.record({"event": "dashboard", "url": told})
                else:
                    terminal.line(f"Open {told}")
            if live is not None:
                live.update(screen(shown, job=_title(stage), footer=footer, link=stage.url or ""), refresh=True)
            elif now - last_line >= _LINE_SECONDS:
                last_line = now
                if json:
                    terminal.record({"event": "status", **shown.to_dict()})
                else:
                    terminal.line(status_line(shown))
            time.sleep(_REFRESH_SECONDS)


def _title(stage: _Stage) -> str:
    others = len(stage.jobs) - 1
    return stage.shown_job + (f" and {others} more" if others else "")


def _say_goodbye(stage: _Stage, *, json: bool) -> None:
    now = time.monotonic()
    shown = stage.gauges.snapshot(now=now)
    elapsed = now - stage.began
    if json:
        terminal.record(
            {"event": "summary", "elapsed": round(elapsed, 1), "first_result": stage.first_result, **shown.to_dict()}
        )
        return
    for text in summary(shown, elapsed=elapsed, first_result=stage.first_result):
        terminal.line(text)


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
    options = Globals.of(ctx)
    settings = options.settings(
        broker__bootstrap=(bootstrap, "--bootstrap"),
        broker__port=(port, "--port"),
        simulator__vehicles=(vehicles, "--vehicles"),
        simulator__rate=(rate, "--rate"),
        spark__master=(master, "--master"),
    )
    jobs = pick(names, settings) if names else [job for job in known_jobs(settings).values() if job.name != _TWIN]
    code = ExitCode.OK
    with only_one(settings.paths.home / "demo.lock", what="a demo"):
        if fresh:
            _forget(settings, jobs)
        stage = _Stage(options, settings, jobs, fresh=fresh)
        try:
            with _signals_end_it():
                with Steps() as steps:
                    connection = _prepare(stage, steps, dashboard=dashboard)
                until = None if seconds is None else time.monotonic() + seconds
                _watch(stage, connection, until=until, json=json)
        except _Ended as ended:
            code = ExitCode.INTERRUPTED if ended.number == signal.SIGINT else ExitCode.OK
        finally:
            _clean_up(stage)
        _say_goodbye(stage, json=json)
    if code is not ExitCode.OK:
        raise typer.Exit(int(code))


def _clean_up(stage: _Stage) -> None:
    """Stop everything; a second Ctrl-C must not leave half of it running."""
    if not stage.children and stage.broker is None:
        return
    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if main else None
    began = time.monotonic()
    terminal.note("Stopping ...")
    try:
        stage.stop()
    except HeadraceError as problem:
        terminal.error(problem)
    finally:
        if main:
            signal.signal(signal.SIGINT, before)
    terminal.note(f"Everything stopped after {time.monotonic() - began:.1f} s.")
