"""`headrace latency`: how long the running jobs take, from the making of an event to its result in a reader's hand.

Markers are sent to the running pipeline beside its usual load (`headrace.observe`), and the report tells per job the
total and each leg, with confidence intervals. docs/latency.md explains what is measured, and how exactly.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from headrace.cli import terminal
from headrace.cli.connect import connect
from headrace.cli.jobs import registry
from headrace.cli.options import Bootstrap, Globals, Json, UsageError
from headrace.cli.stopping import stop_on_signals
from headrace.errors import JobError, PlanError

if TYPE_CHECKING:
    from headrace.observe.latency import JobLatency
    from headrace.observe.quantiles import Quantile
    from headrace.registry import Registry
    from headrace.stream import Job

_LINE_SECONDS = 5.0


def chosen_jobs(words: Sequence[str], known: Registry) -> list[Job]:
    """The jobs named by `--jobs`, which may be given several times and hold several names with commas; all if none.

    Raises:
        UsageError: None is named, and there is none.
    """
    names = [name.strip() for word in words for name in word.split(",") if name.strip()]
    jobs = known.find(names) if names else known.every()
    if not jobs:
        raise UsageError("there is no job to measure", hint="Run it in a project with jobs: headrace jobs lists them.")
    return jobs


@contextmanager
def measurable() -> Iterator[None]:
    """Turn the choice of a job that cannot be measured into wrong usage."""
    try:
        yield
    except PlanError as problem:
        raise UsageError(problem.message, hint=problem.hint) from None


def duration(text: str, option: str) -> int:
    """Understand a duration that was typed.

    Raises:
        UsageError: It is none, or not above 0.
    """
    from headrace.time.duration import micros

    try:
        found = micros(text, what=option)
    except PlanError as problem:
        raise UsageError(problem.message, hint=problem.hint) from None
    if found <= 0:
        raise UsageError(f"{option} is {text}", hint="Give a time above 0, such as 1s or 10m.")
    return found


@contextmanager
def bar(title: str, seconds: float) -> Iterator[None]:
    """Show how far something is whose length is known, on standard error: a bar, or a line now and then."""
    began = time.monotonic()
    done = threading.Event()

    def lines() -> None:
        while not done.wait(_LINE_SECONDS):
            left = max(0.0, seconds - (time.monotonic() - began))
            terminal.note(f"{title}: {left:.0f} s left")

    def draw() -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
        with Progress(*columns, console=terminal.err, transient=True) as progress:
            task = progress.add_task(title, total=seconds)
            while not done.wait(0.2):
                progress.update(task, completed=min(seconds, time.monotonic() - began))

    thread = threading.Thread(target=draw if terminal.err.is_terminal else lines, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join(timeout=2)


def figure(quantile: Quantile) -> str:
    """A percentile with its confidence interval, in words."""
    from headrace.observe.latency import seconds

    value = seconds(quantile.value)
    if quantile.warning:
        return f"{value} (?)"
    return f"{value} ({seconds(quantile.low)} .. {seconds(quantile.high)})"


def show(report: dict[str, JobLatency]) -> None:
    """Print the report as tables."""
    from headrace.observe.latency import LEG_TEXTS, seconds
    from headrace.observe.tracker import STATUSES

    rows = []
    for job, latency in report.items():
        for leg, summary in latency.legs.items():
            if leg == "slip":
                continue  # there is a warning if it matters
            figures = [figure(quantile) for quantile in summary.quantiles]
            rows.append((job, leg, *figures, seconds(summary.most), str(summary.count)))
    terminal.rows(("job", "leg", "p50 (95 % within)", "p90", "p99", "max", "markers"), rows)
    terminal.line()
    terminal.rows(
        ("job", *STATUSES, "duplicates"),
        [
            (job, *(str(latency.count(status)) for status in STATUSES), str(latency.duplicates))
            for job, latency in report.items()
        ],
    )
    used = {leg for latency in report.values() for leg in latency.legs}
    terminal.line()
    for leg, text in LEG_TEXTS.items():
        if leg in used and leg != "slip":
            terminal.note(f"{leg}: {text}")
    for job, latency in report.items():
        for warning in latency.warnings:
            terminal.note(f"{job}: {warning}", style="yellow")


def _came_back(report: dict[str, JobLatency], strangers: int) -> None:
    silent = [job for job, latency in report.items() if not latency.count("seen", "overdue")]
    if silent and len(silent) == len(report):
        raise JobError(
            f"no marker came back from {', '.join(silent)}",
            hint="Do these jobs run on this Kafka, with events coming in? `headrace run` starts them; "
            "a job whose topic is silent holds its results back.",
        )
    for job in silent:
        terminal.note(f"{job}: no marker came back. Does it run? headrace run {job}", style="yellow")
    if strangers:
        terminal.note(f"{strangers} results of markers that somebody else sends were left alone.")


def _wanted_patience(every: int, patience: str) -> int:
    from headrace.time.duration import text as duration_text

    found = duration(patience, "--patience")
    if found < every:
        raise UsageError(
            f"--patience {patience} is shorter than --every {duration_text(every)}", hint="Give it a few seconds more."
        )
    return found


def latency(
    ctx: typer.Context,
    jobs: Annotated[
        list[str] | None,
        typer.Option("--jobs", "-j", metavar="JOB,...", help="Which jobs; all if not given.", show_default=False),
    ] = None,
    every: Annotated[str, typer.Option("--every", metavar="TIME", help="Between two markers of a job.")] = "1s",
    length: Annotated[str, typer.Option("--for", metavar="TIME", help="How long to send markers.")] = "1m",
    patience: Annotated[
        str, typer.Option("--patience", metavar="TIME", help="A marker without a result for so long is lost.")
    ] = "30s",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write every marker to this .csv or .parquet.", show_default=False
        ),
    ] = None,
    uncommitted: Annotated[
        bool, typer.Option("--uncommitted", help="Also read as somebody who does not wait for transactions.")
    ] = False,
    bootstrap: Bootstrap = None,
    json: Json = False,
) -> None:
    """Measure how long running jobs take, by markers that are sent beside the usual load."""
    between, span = duration(every, "--every"), duration(length, "--for")
    waits = _wanted_patience(between, patience)
    settings = Globals.of(ctx).settings(broker__bootstrap=(bootstrap, "--bootstrap"))

    from headrace.evaluate.subject import markers_of, with_markers

    known = registry(settings)
    chosen = chosen_jobs(jobs or [], known)
    chosen = chosen if jobs else with_markers(chosen, known)
    with measurable():
        markers = markers_of(chosen, known)
    connection = connect(settings)

    from headrace.observe.latency import latency_report, write_outcomes
    from headrace.observe.probe import Probe, wall
    from headrace.observe.tracker import Tracker
    from headrace.time.duration import SECOND
    from headrace.time.duration import text as duration_text

    tracker = Tracker(patience=waits)
    recipes = [markers[job.name].recipe(job.name, settings) for job in chosen]
    with (
        stop_on_signals() as stop,
        Probe(connection, recipes, tracker, every=between, uncommitted=uncommitted, types=known.types) as probe,
    ):
        names = ", ".join(job.name for job in chosen)
        terminal.note(
            f"A marker every {duration_text(between)} for {duration_text(span)} to {names}; Ctrl-C ends early."
        )
        with bar("Sending markers", span / SECOND):
            probe.run(span, stop)
        with bar("Waiting for the last results", waits / SECOND):
            # After Ctrl-C nobody wants to wait for what is still on its way; it is told as pending.
            probe.drain(stop, longest=waits)
        outcomes = tracker.outcomes(now=wall())
    report = latency_report(outcomes)
    if output is not None:
        write_outcomes(outcomes, output)
    _tell(report, outcomes_file=output, json=json)
    _came_back(report, tracker.strangers)
    stop.finish()


def _tell(report: dict[str, JobLatency], *, outcomes_file: Path | None, json: bool) -> None:
    if json:
        told: dict[str, Any] = {"jobs": [latency.to_dict() for latency in report.values()]}
        terminal.document(told | ({} if outcomes_file is None else {"output": str(outcomes_file)}))
        return
    show(report)
    if outcomes_file is not None:
        terminal.note(f"Every marker: {outcomes_file}")
