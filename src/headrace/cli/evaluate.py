"""`headrace evaluate`: the whole pipeline at several volumes, measured, with a report.

The plan and the time it takes are printed first. What is done is kept: after Ctrl-C, or a power cut, the same command
goes on where it was. docs/evaluation.md says how to read the report.
"""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from headrace.cli import terminal
from headrace.cli.jobs import registry
from headrace.cli.latency import chosen_jobs, duration, measurable
from headrace.cli.options import Globals, Json, UsageError
from headrace.cli.stopping import stop_on_signals
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.evaluate.plan import Plan, Trial


def _volumes(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part.strip().removesuffix("x")) for part in text.split(",") if part.strip())
    except ValueError:
        raise UsageError(
            f"--volumes {text!r} are not numbers", hint="Give multiples of 700 events/s: 1,4,16."
        ) from None


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


class _Watcher:
    """Tells how an evaluation gets on: a bar with the remaining time on a terminal, lines elsewhere."""

    def __init__(self, plan: Plan, *, json: bool) -> None:
        self._plan = plan
        self._json = json
        self._left = plan.expected_total()
        self._until = time.monotonic() + self._left
        self._phase = ""
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        if terminal.err.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[told]}"))
            self._progress = Progress(*columns, console=terminal.err, transient=True)
            self._task = self._progress.add_task("starting", total=max(1.0, self._left), told="")
            self._progress.start()
            self._thread = threading.Thread(target=self._draw, name="progress", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """End the bar."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(timeout=2)
        if self._progress is not None:
            self._progress.stop()

    def _draw(self) -> None:
        while not self._closing.wait(0.5):
            left = max(0.0, self._until - time.monotonic())
            if self._progress is not None and self._task is not None:
                done = max(0.0, self._left - left)
                told = f"{self._phase}; about {_minutes(left)} left"
                self._progress.update(self._task, completed=done, total=max(1.0, self._left), told=told)

    def trial(self, trial: Trial, *, done: int, total: int, left: float) -> None:
        """A trial begins."""
        self._until = time.monotonic() + left
        self._left = max(self._left, left)
        name = f"{trial.volume:g} x ({trial.rate:,} events/s)"
        which = "search" if trial.searching else f"trial {done + 1} of {total}"
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, description=f"{which}: {name}")
        elif not self._json:
            terminal.note(f"{which}: {name}; about {_minutes(left)} left")

    def phase(self, what: str, seconds: float) -> None:
        """A trial enters a phase."""
        self._phase = what
        if self._progress is None and not self._json:
            terminal.note(f"  {what} (about {seconds:.0f} s)")

    def finished(self, record: dict[str, Any]) -> None:
        """A trial is done."""
        if self._json:
            terminal.record({"event": "trial", **record})
            return
        held = {True: "held", False: "NOT held", None: "held?"}[record["held"]]
        valid = "" if record["valid"] else f"  NOT VALID: {'; '.join(record['reasons'])}"
        terminal.note(f"  {record['volume']:g} x: {record['throughput']:,.0f} events/s processed, {held}{valid}")
        for job, kinds in record["latency"].items():
            committed = kinds["committed"]
            values = [committed[name]["value"] for name in ("p50", "p99")]
            told = " / ".join("never" if value is None else f"{value:.2f} s" for value in values)
            terminal.note(f"    {job}: visible {told} after it was due (p50 / p99, {committed['results']:,} results)")
        for warning in record["warnings"]:
            terminal.note(f"    {warning}", style="yellow")

    def failed(self, trial: Trial, problem: HeadraceError) -> None:
        """A trial failed."""
        terminal.note(f"  {trial.name} failed: {problem}", style="red")


def _announce(plan: Plan, directory: Path, done: int) -> None:
    from headrace.evaluate.plan import BASE, SEARCH_TRIALS

    volumes = ", ".join(f"{volume:g} x = {round(volume * BASE):,}/s" for volume in sorted(plan.volumes))
    trials = plan.trials()
    left = sum(plan.expected(trial) for trial in trials[done:]) + plan.expected_total()
    left -= sum(plan.expected(trial) for trial in trials)
    terminal.note(f"Jobs, all at once: {', '.join(plan.jobs)}")
    terminal.note(f"Volumes: {volumes} events")
    terminal.note(
        f"Trials: {len(trials)} of {plan.seconds:g} s, after {plan.warm_up:g} s of warming up"
        + (
            f", and about {SEARCH_TRIALS} of {plan.search_seconds:g} s to find the highest volume"
            if plan.search
            else ""
        )
    )
    terminal.note(f"Results compared with a batch: {'yes' if plan.parity else 'no'}; Spark on {plan.master}")
    if done:
        terminal.note(f"{done} trials are done already and are kept.")
    terminal.note(
        f"That takes about {_minutes(left)}. Everything goes to {directory}; Ctrl-C stops, the same command goes on."
    )


def evaluate(
    ctx: typer.Context,
    jobs: Annotated[
        list[str] | None,
        typer.Option("--jobs", "-j", metavar="JOB,...", help="Which jobs; all if not given.", show_default=False),
    ] = None,
    volumes: Annotated[str, typer.Option("--volumes", metavar="N,...", help="Multiples of 700 events/s.")] = "1,4,16",
    length: Annotated[str, typer.Option("--for", metavar="TIME", help="How long each trial is measured.")] = "2m",
    warm_up: Annotated[str, typer.Option("--warm-up", metavar="TIME", help="Load before that.")] = "30s",
    repetitions: Annotated[int, typer.Option("--repetitions", metavar="N", min=1, help="Trials per volume.")] = 3,
    highest: Annotated[
        bool, typer.Option("--highest", help="Also look for the highest volume that is held with a flat backlog.")
    ] = False,
    parity: Annotated[
        bool, typer.Option("--parity/--no-parity", help="Compare the results with a batch over the same input.")
    ] = True,
    uncommitted: Annotated[
        bool,
        typer.Option(
            "--uncommitted/--no-uncommitted", help="Also read as somebody who does not wait for transactions."
        ),
    ] = True,
    every: Annotated[str, typer.Option("--markers", metavar="TIME", help="Between two markers of a job.")] = "1s",
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Another seed, another load.")] = 1,
    master: Annotated[str, typer.Option("--master", metavar="URL", help="Where Spark runs.")] = "local[2]",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Where everything goes; evaluation in paths.home.", show_default=False
        ),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget what was measured before.")] = False,
    plan_only: Annotated[bool, typer.Option("--plan", help="Only print the plan and how long it takes.")] = False,
    json: Json = False,
) -> None:
    """Run the whole pipeline at several volumes, measure it, check the results, and write a report."""
    options = Globals.of(ctx)
    settings = options.settings()

    from headrace.evaluate.campaign import Campaign
    from headrace.evaluate.plan import Plan
    from headrace.evaluate.report import write_report
    from headrace.evaluate.subject import subject_of, with_markers
    from headrace.evaluate.trial import InterruptedTrialError
    from headrace.time.duration import SECOND

    known = registry(settings)
    chosen = chosen_jobs(jobs or [], known)
    chosen = chosen if jobs else with_markers(chosen, known)
    with measurable():
        subject = subject_of(chosen, known)
    plan = Plan(
        jobs=tuple(subject.jobs),
        volumes=_volumes(volumes),
        seconds=duration(length, "--for") / SECOND,
        warm_up=duration(warm_up, "--warm-up") / SECOND,
        repetitions=repetitions,
        marker_every=duration(every, "--markers"),
        search=highest,
        search_seconds=min(60.0, duration(length, "--for") / SECOND),
        parity=parity,
        uncommitted=uncommitted,
        master=master,
        settings=tuple(options.assignments),
        seed=seed,
    )
    directory = (output or settings.paths.home / "evaluation").absolute()
    if plan_only:
        _announce(plan, directory, 0)
        return
    if fresh:
        shutil.rmtree(directory, ignore_errors=True)
    with stop_on_signals() as stop:
        campaign = Campaign(plan, subject, directory)
        _announce(plan, directory, len(campaign.prepare()))
        watcher = _Watcher(plan, json=json)
        try:
            records = campaign.run(stop, watcher)
        except InterruptedTrialError:
            terminal.note(f"Stopped. The same command goes on; {len(campaign.records())} trials are done.")
            stop.finish()
            return
        finally:
            watcher.close()
    report = write_report(directory, records, failures=campaign.failures)
    if json:
        terminal.record({"event": "report", "report": str(report), "summary": str(directory / "summary.json")})
    else:
        terminal.line(f"Report: {report}")
        terminal.line(f"Figures: {directory / 'summary.json'}")
    if campaign.failures:
        terminal.note("Some trials failed; the same command tries them again.", style="yellow")
