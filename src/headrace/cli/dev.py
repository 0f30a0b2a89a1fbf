"""`headrace dev`: a project at work on this machine: broker, topics, sample data, jobs on Spark, live page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import terminal
from headrace.cli.gauges import Snapshot
from headrace.cli.jobs import complete_job, note_doubts, registry
from headrace.cli.options import Bootstrap, Globals, Json
from headrace.cli.progress import Steps
from headrace.cli.samples import DIRECTORY, Sample, SampleFeed, find_samples
from headrace.cli.singleton import only_one
from headrace.cli.stage import Stage, forget, perform

if TYPE_CHECKING:
    from headrace.config import Settings
    from headrace.kafka import Connection
    from headrace.stream import Job


def _is_warm(shown: Snapshot) -> bool:
    """Whether the first micro-batch is out; there may be nobody who writes events."""
    return shown.state == "running" or bool(shown.busiest)


def dev(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[JOB]...", help="Run these; all of the project if left out.", autocompletion=complete_job
        ),
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
    fresh: Annotated[bool, typer.Option("--fresh", help="Forget what was before instead of continuing.")] = False,
    sample: Annotated[
        bool | None,
        typer.Option(
            help=f"Send the sample data of {DIRECTORY}/TOPIC.jsonl; by default only to the embedded broker.",
            show_default=False,
        ),
    ] = None,
    master: Annotated[
        str | None,
        typer.Option("--master", metavar="URL", help="Where Spark runs, such as local[2].", show_default=False),
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", metavar="PORT", help="Port of the embedded broker.", show_default=False)
    ] = None,
    dashboard: Annotated[bool, typer.Option(help="Serve the live page.")] = True,
    bootstrap: Bootstrap = None,
    json: Json = False,
) -> None:
    """Start broker, topics, sample data, the project's jobs on Spark and the live page, and watch."""
    options = Globals.of(ctx)
    settings = options.settings(
        broker__bootstrap=(bootstrap, "--bootstrap"),
        broker__port=(port, "--port"),
        spark__master=(master, "--master"),
    )
    known = registry(settings)
    jobs = known.find(words) if words else known.every()
    names = list(words) if words else [job.name for job in jobs]
    with only_one(settings.paths.home / "demo.lock", what="a project"):
        if fresh:
            forget(settings, jobs)
        samples = _samples(settings, jobs, wanted=sample)  # a line that is wrong is told before anything starts
        shown = _shown(jobs)
        stage = Stage(options, settings, jobs, names, shown, fresh=fresh)

        def prepare(steps: Steps) -> Connection:
            connection = stage.open(steps)
            if samples:
                topics = ", ".join(each.topic for each in samples)
                with steps.step(f"Sending sample data to {topics}"):
                    stage.parts.append(SampleFeed(connection, samples))
            stage.start_jobs(connection, steps, dashboard=dashboard, warm=_is_warm)
            return connection

        note_doubts(jobs)
        commands = [f"tail {shown.result_topic} -f", *(f"tail {topic}" for topic in shown.sources[:1]), "topics"]
        perform(stage, prepare, commands=commands, seconds=seconds, json=json)


def _shown(jobs: list[Job]) -> Job:
    """Choose whose results the terminal shows: the first job with windows, which it can sort by."""
    return next((job for job in jobs if "window_end" in job.pipeline.schema), jobs[0])


def _samples(settings: Settings, jobs: list[Job], *, wanted: bool | None) -> list[Sample]:
    """The sample data to send; nobody wants them in a Kafka that others use, unless they say so."""
    if wanted is False or (wanted is None and settings.broker.bootstrap):
        return []
    found = find_samples(settings.project, jobs)
    if not found and not settings.broker.bootstrap:
        topics = ", ".join(dict.fromkeys(topic for job in jobs for topic in job.sources))
        terminal.note(f"There is no sample data in {settings.project / DIRECTORY}; send your own events to {topics}.")
    return found
