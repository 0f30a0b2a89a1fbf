"""`headrace run`: run jobs on Spark until they are stopped.

With `--json` standard output carries one JSON object per line, as `headrace.spark.run.progress` describes them: states
(starting, warming, running, stopping, stopped, failed) and the progress of every micro-batch. Without it, a line of
figures is shown.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from headrace.cli import terminal
from headrace.cli.connect import connect
from headrace.cli.gauges import Gauges
from headrace.cli.jobs import complete_job, note_doubts, registry
from headrace.cli.monitoring import LOOPBACK, LogFormatOption, LogLevelOption, MetricsHost, MetricsPort, serve
from headrace.cli.options import Bootstrap, Globals, Json, UsageError
from headrace.cli.stopping import Stop, stop_on_signals
from headrace.cli.view import HOW_TO_LOOK, count, status_line
from headrace.errors import JobError
from headrace.logs import LogFormat, LogLevel, configure_logs

if TYPE_CHECKING:
    from headrace.config import Settings
    from headrace.registry import Registry
    from headrace.spark.run.progress import RunEvent
    from headrace.stream import Job

_REPORT_SECONDS = 5.0


class Start(StrEnum):
    """Where a job without a checkpoint begins to read."""

    START = "start"
    NOW = "now"


class Delivery(StrEnum):
    """What readers of results may rely on."""

    EXACTLY_ONCE = "exactly_once"
    AT_LEAST_ONCE = "at_least_once"
    AT_MOST_ONCE = "at_most_once"


def checkpoint_of(settings: Settings, jobs: Sequence[Job]) -> Path:
    """The checkpoint directory of a set of jobs: their names, or a short name for a long list."""
    names = "+".join(sorted(job.name for job in jobs))
    if len(names) > 100:
        import hashlib

        names = f"{len(jobs)}-jobs-{hashlib.sha256(names.encode()).hexdigest()[:12]}"
    return settings.checkpoint_directory / names


@contextmanager
def quiet_spark(log: Path) -> Iterator[None]:
    """Send what Spark and its Java say on standard error to a file of bounded size, and keep the terminal for us."""
    from headrace.dev.logs import BoundedLog

    kept = os.dup(sys.stderr.fileno())
    bounded = BoundedLog(log)
    with os.fdopen(kept, "w") as ours:
        before = terminal.err.file
        terminal.err.file = ours
        os.dup2(bounded.fileno(), sys.stderr.fileno())
        # Java ends after this process: the log is complete when both have.
        bounded.release()
        try:
            yield
        finally:
            sys.stderr.flush()
            os.dup2(kept, sys.stderr.fileno())
            terminal.err.file = before
            bounded.close(timeout=0.2)


class _Reporter:
    """Passes the job's events on: as JSON, or as a line of figures now and then."""

    def __init__(self, *, json: bool) -> None:
        self._json = json
        self._gauges = Gauges()
        self._shown = 0.0
        #: Jobs whose own code failed, and why.
        self.stopped: dict[str, str] = {}

    def __call__(self, event: RunEvent) -> None:
        report: dict[str, Any] = event.to_dict()
        if report.get("event") == "job":
            self._follow(report)
        if self._json:
            terminal.record(report)
            return
        if report.get("event") == "job":
            colour = {"stopped": "red", "catching_up": "yellow"}.get(report["state"], "green")
            told = f"job {report['job']}: {report['state'].replace('_', ' ')}: {report['detail']}"
            terminal.err.print(Text(told, style=colour))
            return
        now = time.monotonic()
        self._gauges.progress(report, now=now)
        if report.get("event") == "dead_letters":
            is_most = report["state"] == "most"
            told = f"MOST INPUT IS REFUSED. {report['text']}\n{HOW_TO_LOOK}" if is_most else report["text"]
            terminal.err.print(Text(told, style="bold red" if is_most else "green"))
            return
        is_state = report.get("event") == "state"
        if is_state or now - self._shown >= _REPORT_SECONDS:
            self._shown = now
            shown = self._gauges.snapshot(now=now)
            detail = f": {shown.detail}" if shown.detail else ""
            terminal.note(f"{shown.state}{detail}" if is_state else status_line(shown, results=False))

    def _follow(self, report: dict[str, Any]) -> None:
        self.stopped.pop(report["job"], None)
        if report["state"] == "stopped":
            self.stopped[report["job"]] = report["detail"]

    def summary(self) -> str:
        """What was done, in one line."""
        shown = self._gauges.snapshot(now=time.monotonic())
        figures = (
            f"{count(shown.events)} events in, {count(shown.results)} results out, "
            f"{count(shown.dead_letters)} dead letters, {count(shown.late)} late."
        )
        return f"{figures} Most input was refused at the end. {shown.alarm}" if shown.alarm else figures


def run_in_thread(work: Any, stop: Stop) -> None:
    """Run in a thread of its own, since pyspark would take over Ctrl-C in the main one."""
    problems: list[BaseException] = []

    def target() -> None:
        try:
            work()
        except BaseException as problem:  # noqa: BLE001 - it is raised again below, in the main thread
            problems.append(problem)

    thread = threading.Thread(target=target, name="jobs", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(0.2)
    except KeyboardInterrupt:
        stop.set()
        raise
    if problems:
        raise problems[0]


def _renamed(jobs: Sequence[Job], name: str | None, topic: str | None) -> Job:
    """Give a job another name and result topic, so that it can run beside itself."""
    if name is None or len(jobs) != 1:
        raise UsageError(
            "--as NAME gives one job another name, and --to its result topic",
            hint="Write: headrace run JOB --as NAME [--to TOPIC] [--from-savepoint SAVEPOINT].",
        )
    job = jobs[0]
    if job.sinks:
        raise UsageError(
            f"{job.name} writes to {', '.join(sink.text for sink in job.sinks)} as well, where both would write",
            hint="Take the sinks out of the job that goes on beside it.",
        )
    return replace(job, name=name, result_topic=topic or f"analytics.{name}")


def _watch(settings: Settings, words: Sequence[str]) -> None:
    """Run the same command line without `--watch` in a child, and start it again when a file changes."""
    from headrace.cli.watching import FileWatch, run_again
    from headrace.registry import is_job_file

    places = [word.partition(":")[0] for word in words if is_job_file(word)]
    folders = [Path(place).absolute().parent for place in places if place.endswith((".py", ".sql"))]
    command = [sys.executable, "-m", "headrace.cli", *(word for word in sys.argv[1:] if word != "--watch")]
    with stop_on_signals() as stop:
        run_again(command, FileWatch([settings.project, *folders]), stop)
    stop.finish()


@dataclass(frozen=True)
class RunFlags:
    """What `headrace run` is told besides the settings.

    Args:
        fresh: Forget the checkpoint.
        accept_loss: Go on where Kafka no longer holds what is to be read next.
        accept_old_checkpoint: Go on with a checkpoint that is older than its results.
        take_over: Write results that another checkpoint has written so far.
        from_now: Begin at the end of the topics where there is no checkpoint.
        reset_steps: Names of steps that begin without state.
        restore: Fills the directory of a checkpoint that is not there yet.
        metrics_port: Where metrics are served; None: nowhere.
        metrics_host: On which address.
        log_format: How the log is written.
        log_level: The least level of our own records.
    """

    fresh: bool = False
    accept_loss: bool = False
    accept_old_checkpoint: bool = False
    take_over: bool = False
    from_now: bool = False
    reset_steps: tuple[str, ...] = ()
    restore: Callable[[Path], None] | None = None
    metrics_port: int | None = None
    metrics_host: str = LOOPBACK
    log_format: LogFormat = "text"
    log_level: LogLevel = "warning"


def run_chosen(
    settings: Settings, chosen: Sequence[Job], known: Registry, flags: RunFlags, *, json: bool = False
) -> None:
    """Run jobs on Spark, all in one query, until they are stopped.

    Args:
        settings: The settings.
        chosen: The jobs.
        known: What can be added; it says which topics there are besides those of the jobs.
        flags: What else the user said.
        json: Whether to report in JSON.

    Raises:
        HeadraceError: They cannot be run, or one has failed.
    """
    from headrace.dev import find_java
    from headrace.engine.limits import StateLimit
    from headrace.kafka import Topics
    from headrace.kafka.job_topics import ensure_topics
    from headrace.kafka.rights import check_rights
    from headrace.spark.run.metrics import RunMetrics
    from headrace.spark.run.publishing import ProgressTopic
    from headrace.spark.run.rights import rights_of
    from headrace.spark.run.runner import RunOptions, run_jobs
    from headrace.spark.run.supervisor import Restarts
    from headrace.spark.session.session import read_conf

    connection = connect(settings)
    find_java()  # its error says how to install one; Spark's own does not
    needed = rights_of(chosen)
    check_rights(connection, needed)
    # Where nothing is missing, nothing is asked for: whoever runs a job need not be allowed to make topics.
    ensure_topics(Topics(connection), chosen, known.things("topics"))
    options = RunOptions(
        connection=connection,
        master=settings.spark.master,
        checkpoint=checkpoint_of(settings, chosen),
        key_groups=settings.spark.key_groups,
        state_partitions=settings.spark.state_partitions,
        cadence_ms=settings.spark.cadence_ms,
        driver_memory=settings.spark.driver_memory,
        state_memory_mb=settings.spark.state_memory_mb,
        max_events_per_batch=settings.spark.max_events_per_batch,
        max_bytes_per_batch=settings.spark.max_bytes_per_batch,
        target_batch_ms=settings.spark.target_batch_ms,
        encoding=settings.spark.result_encoding,
        delivery=settings.spark.delivery,
        apart_rows=settings.spark.apart_rows,
        transaction_bytes=settings.spark.transaction_mb * 1024 * 1024,
        state_limit=StateLimit(settings.spark.max_state_keys, settings.spark.max_state_bytes),
        restarts=Restarts(most=settings.spark.restarts),
        accept_loss=flags.accept_loss,
        accept_old_checkpoint=flags.accept_old_checkpoint,
        take_over=flags.take_over,
        reset_steps=flags.reset_steps,
        restore=flags.restore,
        python=settings.spark.executor_python or None,
        ship=settings.paths.home / "environment" if settings.spark.ship_environment else None,
        settings=read_conf(settings.spark.conf) if settings.spark.conf is not None else {},
        starting="latest" if flags.from_now else "earliest",
        fresh=flags.fresh,
        log_format=flags.log_format,
    )
    report = _Reporter(json=json)
    metrics = RunMetrics(options.checkpoint.name, [job.name for job in chosen])
    log = settings.log_directory / "run.log"
    terminal.note(f"Running {', '.join(job.name for job in chosen)} on {settings.spark.master}; Ctrl-C stops.")
    note_doubts(chosen)
    with (
        stop_on_signals() as stop,
        contextlib.nullcontext() if json else quiet_spark(log),
        ProgressTopic(connection, query=options.checkpoint.name, jobs=chosen) as published,
        serve(flags.metrics_port, flags.metrics_host, metrics, metrics),
    ):
        configure_logs(flags.log_format, flags.log_level)

        def tell(event: RunEvent) -> None:
            metrics(event)
            report(event)
            published(event)

        run_in_thread(lambda: run_jobs(chosen, options, tell, stop), stop)
    if not json:
        terminal.line(report.summary())
        for job in chosen:
            terminal.note(f"Results: headrace tail {job.result_topic}")
    if report.stopped:
        raise JobError(
            f"{', '.join(report.stopped)} failed and did not take part any more; the other jobs went on",
            hint="Mend it and start again: it takes in what it has missed. The reason is above, and in the log.",
        )
    stop.finish()


def run(
    ctx: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="JOB...",
            help="Names, files or modules: late, jobs.py, jobs.py:late, late.sql, parcels.jobs:late.",
            autocompletion=complete_job,
            show_default=False,
        ),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Run all jobs.")] = False,
    master: Annotated[
        str | None,
        typer.Option("--master", metavar="URL", help="Where Spark runs, such as local[2].", show_default=False),
    ] = None,
    bootstrap: Bootstrap = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget the checkpoint: offsets and state.")] = False,
    delivery: Annotated[
        Delivery | None,
        typer.Option(help="What readers may rely on after a crash; as each job says if left out.", show_default=False),
    ] = None,
    accept_loss: Annotated[
        bool,
        typer.Option("--accept-loss", help="Go on where Kafka no longer holds what is to be read next."),
    ] = False,
    accept_old_checkpoint: Annotated[
        bool,
        typer.Option(
            "--accept-old-checkpoint",
            help="Go on with a checkpoint that is older than its results; what is out is not written again.",
        ),
    ] = False,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over", help="Write results that another checkpoint has written so far; its query is stopped."
        ),
    ] = False,
    from_savepoint: Annotated[
        str | None,
        typer.Option(
            "--from-savepoint",
            metavar="NAME",
            help="Begin with the state of a savepoint: its name, path or URL.",
            show_default=False,
        ),
    ] = None,
    other_name: Annotated[
        str | None,
        typer.Option(
            "--as", metavar="NAME", help="Run the one job under another name, beside itself.", show_default=False
        ),
    ] = None,
    other_topic: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="TOPIC", help="With --as: write its results there; analytics.NAME.", show_default=False
        ),
    ] = None,
    reset_step: Annotated[
        list[str] | None,
        typer.Option(
            "--reset-step", metavar="STEP", help="Forget the state of a step; may be repeated.", show_default=False
        ),
    ] = None,
    begin: Annotated[
        Start, typer.Option("--from", help="Where to begin without a checkpoint: at the start of the topics, or now.")
    ] = Start.START,
    watch: Annotated[
        bool, typer.Option("--watch", help="Start again when a file of the project changes; for development.")
    ] = False,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = LOOPBACK,
    log_format: LogFormatOption = "text",
    log_level: LogLevelOption = "warning",
    json: Json = False,
) -> None:
    """Run jobs on Spark, all in one query, until Ctrl-C. A second run continues where the first one stopped."""
    settings = Globals.of(ctx).settings(
        broker__bootstrap=(bootstrap, "--bootstrap"),
        spark__master=(master, "--master"),
        spark__delivery=(None if delivery is None else delivery.value, "--delivery"),
    )
    known = registry(settings)
    if watch and every != bool(names):
        _watch(settings, names or [])
        return
    if every == bool(names):
        listed = ", ".join(known.jobs) or "none"
        raise UsageError("name the jobs to run, or give --all", hint=f"Jobs: {listed}. See `headrace jobs`.")
    chosen = known.every() if every else known.find(names or [])
    restore = None
    if from_savepoint is not None:
        from headrace.cli.savepoint import savepoint_at
        from headrace.savepoints import read_savepoint
        from headrace.spark.checkpoint.savepoints import Fork, restorer

        place, original = savepoint_at(settings, from_savepoint), chosen[0].name
        fork = None if other_name is None else Fork(original, other_name)
        restore = restorer(lambda: read_savepoint(place), fork)
    if other_name is not None or other_topic is not None:
        chosen = [_renamed(chosen, other_name, other_topic)]
    flags = RunFlags(
        fresh=fresh,
        accept_loss=accept_loss,
        accept_old_checkpoint=accept_old_checkpoint,
        take_over=take_over,
        from_now=begin is Start.NOW,
        reset_steps=tuple(reset_step or ()),
        restore=restore,
        metrics_port=metrics_port,
        metrics_host=metrics_host,
        log_format=log_format,
        log_level=log_level,
    )
    run_chosen(settings, chosen, known, flags, json=json)
