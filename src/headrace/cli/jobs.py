"""`headrace jobs`: what can be run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import terminal
from headrace.cli.options import Globals, Json
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.config import Settings
    from headrace.registry import Registry
    from headrace.stream import Job


def registry(settings: Settings | None = None) -> Registry:
    """What can be added, as these settings lead to it; without settings by the installed packages alone."""
    from headrace.config import Settings
    from headrace.registry import Registry

    return Registry(settings or Settings())


def known_jobs(settings: Settings | None = None) -> dict[str, Job]:
    """All jobs by name, in the order of their names."""
    return registry(settings).jobs


def pick(words: Iterable[str], settings: Settings | None = None) -> list[Job]:
    """The jobs that words name, each once: by name, or by where they are (`jobs.py:late`, `parcels.jobs`).

    Raises:
        HeadraceError: There is no such job, file or module, or it cannot be imported.
    """
    return registry(settings).find(words)


def note_doubts(jobs: Iterable[Job]) -> None:
    """Point out what jobs say and their author hardly meant, on standard error."""
    from headrace.stream.doubts import doubts

    for job in jobs:
        streams = (job.stream, *(output.stream for output in job.outputs.values()))
        for doubt in dict.fromkeys(doubt for stream in streams for doubt in doubts(stream)):
            terminal.note(f"{job.name}: {doubt}", style="yellow")


def complete_job(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Names and descriptions for the shell's completion."""
    try:
        known = known_jobs(Globals.of(ctx).settings())
    except HeadraceError:
        return []
    return [(name, job.description) for name, job in known.items() if name.startswith(incomplete)]


def _facts(job: Job) -> dict[str, object]:
    return {
        "name": job.name,
        "description": job.description,
        "windows": job.windows,
        "sources": list(job.sources),
        "result_topic": job.result_topic,
        "late_topic": job.late_topic,
        "outputs": {name: job.output_topic(name) for name in job.outputs},
        "delivery": job.delivery,
    }


def jobs(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[JOB]",
            help="Explain this one, or those of a file or module: jobs.py:late.",
            autocompletion=complete_job,
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """List the jobs with their windows and topics, or explain one."""
    known = registry(Globals.of(ctx).settings())
    if name is not None:
        found = known.find([name])
        if json:
            shown = [{**_facts(job), "plan": job.explain()} for job in found]
            terminal.document(shown[0] if len(shown) == 1 else shown)
            return
        for job in found:
            terminal.line(job.explain())
        note_doubts(found)
        terminal.note(f"Run it: headrace run {name}    See its results: headrace tail {found[0].result_topic}")
        return
    if known.failed_jobs and not known.jobs:
        known.every()  # raises why there is none
    listed = known.jobs.values()
    for plugin in known.failed_jobs:
        terminal.note(f"{plugin.place} of {plugin.origin} is left out: {plugin.problem}", style="yellow")
    if json:
        terminal.document([_facts(job) for job in listed])
        return
    if not listed:
        terminal.note(
            "There are no jobs here. `headrace new NAME` writes a project with one; `headrace plugins` tells more."
        )
        return
    terminal.rows(
        ("job", "windows", "reads", "writes", "delivery", "what"),
        [
            (
                job.name,
                job.windows or "-",
                ", ".join(job.sources),
                ", ".join(job.result_topics),
                job.delivery.replace("_", " "),
                job.description,
            )
            for job in listed
        ],
    )
