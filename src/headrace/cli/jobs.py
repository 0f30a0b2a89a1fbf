"""`headrace jobs`: what can be run."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import terminal
from headrace.cli.options import Json, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.config import Settings
    from headrace.stream import Job


def known_jobs(settings: Settings | None = None) -> dict[str, Job]:
    """All jobs by name, in the order of their names."""
    from headrace.transit.jobs import all_jobs

    return dict(sorted(all_jobs(settings).items()))


def pick(names: Iterable[str], settings: Settings | None = None) -> list[Job]:
    """The jobs of these names, each once.

    Raises:
        UsageError: There is no job of that name.
    """
    known = known_jobs(settings)
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            guess = f"Did you mean {close[0]}? " if close else ""
            raise UsageError(f"there is no job {name!r}", hint=f"{guess}Jobs: {', '.join(known)}.")
    return [known[name] for name in dict.fromkeys(names)]


def pick_placed(words: Iterable[str], settings: Settings | None = None) -> list[Job]:
    """The jobs that words name, each once: by name, or by where they are (`jobs.py:late`, `parcels.jobs`).

    Raises:
        HeadraceError: There is no such job, file or module, or it cannot be imported.
    """
    from headrace.config import Settings
    from headrace.registry import is_job_file, load_jobs

    found: dict[str, Job] = {}
    for word in words:
        placed = is_job_file(word)
        for job in load_jobs(word, settings or Settings()).chosen if placed else pick([word], settings):
            if found.setdefault(job.name, job) is not job:
                raise UsageError(f"two different jobs are named {job.name!r}", hint="Give one of them another name.")
    return list(found.values())


def complete_job(incomplete: str) -> list[tuple[str, str]]:
    """Names and descriptions for the shell's completion."""
    return [(name, job.description) for name, job in known_jobs().items() if name.startswith(incomplete)]


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
    if name is not None:
        found = pick_placed([name])
        if json:
            shown = [{**_facts(job), "plan": job.explain()} for job in found]
            terminal.document(shown[0] if len(shown) == 1 else shown)
            return
        for job in found:
            terminal.line(job.explain())
            if job.name == name:
                terminal.note(f"Run it: headrace run {name}    See its results: headrace tail {job.result_topic}")
        return
    known = known_jobs()
    if json:
        terminal.document([_facts(job) for job in known.values()])
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
            for job in known.values()
        ],
    )
