"""What `headrace demo` and `headrace dev` share: broker, topics, jobs and page as guarded children, and a view of them.

The parent draws the view. Its children end with it, however it ends. The view reads the jobs' progress from their
standard output and the results from Kafka, as any other reader would.
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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Protocol

import typer
from rich.live import Live

from headrace.cli import terminal
from headrace.cli.broker import server_settings
from headrace.cli.children import Child, headrace_command, stop_all
from headrace.cli.connect import embedded, external, running_broker
from headrace.cli.gauges import Gauges, Snapshot
from headrace.cli.options import Globals
from headrace.cli.progress import Steps
from headrace.cli.run import checkpoint_of
from headrace.cli.view import screen, status_line, summary
from headrace.errors import ExitCode, HeadraceError

if TYPE_CHECKING:
    from headrace.config import Settings
    from headrace.dev import EmbeddedBroker
    from headrace.kafka import Connection
    from headrace.stream import Job

#: Everything has to be gone 10 s after Ctrl-C. The children end side by side and have this long to do so; the broker is
#: stopped after them, or when they have had most of their time.
CHILD_GRACE = 5.0
_BROKER_WAITS = 4.0
_BROKER_GRACE = 3.0
_REFRESH_SECONDS = 0.5
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


class Part(Protocol):
    """Something of this process that runs beside the children: a reader of results, a feed."""

    def check(self) -> None:
        """Raise what ended it."""
        ...

    def stop(self) -> None:
        """End it."""
        ...


@dataclass
class Stage:
    """What has been started so far, and how to end it.

    Args:
        options: The global options, for the children.
        settings: The settings.
        jobs: What runs.
        words: How the children are told which jobs.
        shown: The job whose results the terminal shows.
        fresh: Whether the jobs forget their checkpoint.
        places: Whether the keys of the shown job are map cells.
    """

    options: Globals
    settings: Settings
    jobs: list[Job]
    words: list[str]
    shown: Job
    fresh: bool = False
    places: bool = False
    gauges: Gauges = field(default_factory=Gauges)
    broker: EmbeddedBroker | None = None
    children: list[Child] = field(default_factory=list)
    jobs_process: Child | None = None
    parts: list[Part] = field(default_factory=list)
    url: str | None = None
    began: float = field(default_factory=time.monotonic)
    first_result: float | None = None

    @property
    def logs(self) -> Path:
        """Where the children write their logs."""
        return self.settings.log_directory

    def check(self) -> None:
        """See that everything still runs; raise what says why it does not."""
        if self.broker is not None:
            self.broker.check()
        if self.jobs_process is not None and self.jobs_process.is_done:
            terminal.note("The jobs were stopped; everything else stops, too.")
            raise _Ended(signal.SIGTERM)
        for running in (*self.children, *self.parts):
            running.check()

    def stop(self) -> None:
        """End everything, in order: who writes before who is written to."""
        for part in self.parts:
            part.stop()
        writers = threading.Thread(target=stop_all, args=(self.children,), name="stop children")
        writers.start()
        writers.join(_BROKER_WAITS)
        if self.broker is not None:
            self.broker.stop()
        writers.join()

    def open(self, steps: Steps) -> Connection:
        """See that Java and the jars are there, start or find Kafka, and make the topics."""
        from headrace.cli.topics import make_topics
        from headrace.dev import EMBEDDED_BROKER, JarCache, find_java

        with steps.step("Java and jars (a minute the first time)") as step:
            java = find_java()
            if not self.settings.broker.bootstrap:
                JarCache(self.settings.paths.jars, java=java).get(EMBEDDED_BROKER, progress=step.progress)
            step.done(f"Java {java.version}")
        connection = self._open_broker(steps)
        with steps.step("Creating topics") as step:
            made = make_topics(connection, self.jobs, self.settings)
            step.done(f"{len(made)} new" if made else "all there")
        return connection

    def _open_broker(self, steps: Steps) -> Connection:
        from headrace.dev import EmbeddedBroker, JarCache

        settings = self.settings
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
            self.broker = broker
            broker.start()
            wanted = settings.broker.port
            taken = "" if wanted in {0, broker.port} else f"; port {wanted} is taken by another program"
            step.done(f"{broker.bootstrap}{taken}")
        return embedded(settings, broker.bootstrap)

    def start_jobs(
        self, connection: Connection, steps: Steps, *, dashboard: bool, warm: Callable[[Snapshot], bool]
    ) -> None:
        """Start the jobs and the page, and wait until the slow first micro-batches are over."""
        from headrace.cli.results import ResultReader

        words = ["run", *self.words, "--json", "--bootstrap", connection.bootstrap]
        words += ["--master", self.settings.spark.master]
        if self.fresh:
            # On a broker that keeps its data, an earlier run may have written the same results.
            words += ["--fresh", "--take-over"]
        with steps.step("Starting Spark (20 to 40 s until the first result)") as step:
            command = headrace_command(self.options, *words)
            log = self.logs / "run.log"
            self.jobs_process = Child("the Spark job", command, log=log, on_line=self._heard, grace=CHILD_GRACE)
            self.children.append(self.jobs_process)
            self.parts.append(ResultReader(connection, self.shown, self.gauges, places=self.places))
            if dashboard:
                command = headrace_command(self.options, "dashboard", *self.words, "--json", "-b", connection.bootstrap)
                log = self.logs / "dashboard.log"
                self.children.append(
                    Child("the dashboard", command, log=log, on_line=self._heard_dashboard, grace=CHILD_GRACE)
                )
            while True:
                self.check()
                shown = self.gauges.snapshot(now=time.monotonic())
                step.progress(f"{shown.state}: {shown.detail}" if shown.detail else shown.state)
                if warm(shown):
                    break
                time.sleep(0.1)
            # Windows that ended while Spark was warming up would say how long that took, and nothing about latency.
            self.gauges.since = time.time_ns() // 1000
            step.done("first results are here" if shown.busiest else "reading")

    def _heard(self, text: str) -> None:
        """Take a line of the job's standard output."""
        try:
            report = json_module.loads(text)
        except ValueError:
            return
        if isinstance(report, dict):
            self.gauges.progress(report, now=time.monotonic())

    def _heard_dashboard(self, text: str) -> None:
        """Take a line of the dashboard's standard output: where it can be opened."""
        with contextlib.suppress(ValueError):
            told = json_module.loads(text)
            if isinstance(told, dict) and told.get("event") == "listening":
                self.url = str(told["url"])


def forget(settings: Settings, jobs: Sequence[Job]) -> None:
    """Remove what former runs left: the embedded broker's data and the jobs' checkpoint."""
    from headrace.dev import DataDirectory

    checkpoint = checkpoint_of(settings, jobs)
    doomed = [checkpoint] if settings.broker.bootstrap else [checkpoint, DataDirectory(settings.broker_directory).kafka]
    for path in doomed:
        shutil.rmtree(path, ignore_errors=True)


def program() -> str:
    """What to type for `headrace`: not everybody has the virtual environment on the PATH."""
    installed = Path(sys.executable).with_name("headrace")
    if shutil.which("headrace") or not installed.exists():
        return "headrace"
    return os.path.relpath(installed) if installed.is_relative_to(Path.cwd()) else str(installed)


def footer(stage: Stage, connection: Connection, commands: Sequence[str]) -> list[str]:
    """The lines below the view: how to stop, where things are, what to try in another terminal."""
    from headrace.config.sources import default_home

    settings = stage.settings
    # In the same directory every command finds the same broker, unless the home was moved.
    moved = settings.paths.home != default_home(Path.cwd(), os.environ)
    where = f" -b {connection.bootstrap}" if moved or settings.broker.bootstrap else ""
    tried = [f"{program()} {command}{where}" for command in commands]
    return [
        f"Ctrl-C stops everything. Kafka at {connection.bootstrap}, data and logs in {settings.paths.home}",
        *(f"{'' if number else 'In another terminal:':22}{text}" for number, text in enumerate(tried)),
    ]


def perform(
    stage: Stage,
    prepare: Callable[[Steps], Connection],
    *,
    commands: Sequence[str],
    seconds: float | None,
    json: bool,
) -> None:
    """Start everything, show it until the time is over or the user ends it, and leave nothing behind.

    Args:
        stage: What is started.
        prepare: Starts it.
        commands: What the view suggests to type in another terminal.
        seconds: How long to show it; None: until Ctrl-C.
        json: Whether figures are printed as JSON lines.
    """
    code = ExitCode.OK
    try:
        with _signals_end_it():
            with Steps() as steps:
                connection = prepare(steps)
            until = None if seconds is None else time.monotonic() + seconds
            _watch(stage, footer(stage, connection, commands), until=until, json=json)
    except _Ended as ended:
        code = ExitCode.INTERRUPTED if ended.number == signal.SIGINT else ExitCode.OK
    finally:
        _clean_up(stage)
    _say_goodbye(stage, json=json)
    if code is not ExitCode.OK:
        raise typer.Exit(int(code))


def _watch(stage: Stage, lines: list[str], *, until: float | None, json: bool) -> None:
    """Show the figures until the time is over or something ends."""
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
            if stage.first_result is None and (shown.busiest or shown.results):
                stage.first_result = now - stage.began
                if live is None and not json:
                    terminal.line(f"First result after {stage.first_result:.1f} s.")
            if live is None and stage.url and stage.url != told:
                told = stage.url
                if json:
                    terminal.record({"event": "dashboard", "url": told})
                else:
                    terminal.line(f"Open {told}")
            if live is not None:
                view = screen(shown, job=_title(stage), footer=lines, link=stage.url or "", places=stage.places)
                live.update(view, refresh=True)
            elif now - last_line >= _LINE_SECONDS:
                last_line = now
                if json:
                    terminal.record({"event": "status", **shown.to_dict()})
                else:
                    terminal.line(status_line(shown, places=stage.places))
            time.sleep(_REFRESH_SECONDS)


def _title(stage: Stage) -> str:
    others = len(stage.jobs) - 1
    return stage.shown.name + (f" and {others} more" if others else "")


def _say_goodbye(stage: Stage, *, json: bool) -> None:
    now = time.monotonic()
    shown = stage.gauges.snapshot(now=now)
    elapsed = now - stage.began
    if json:
        terminal.record(
            {"event": "summary", "elapsed": round(elapsed, 1), "first_result": stage.first_result, **shown.to_dict()}
        )
        return
    for text in summary(shown, elapsed=elapsed, first_result=stage.first_result, places=stage.places):
        terminal.line(text)


def _clean_up(stage: Stage) -> None:
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
