"""`headrace why`: what became of the events of a key, and what its results wait for."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import terminal
from headrace.cli.connect import connect
from headrace.cli.job_state import checkpoint_holding, key_values
from headrace.cli.jobs import complete_job, pick
from headrace.cli.moments import moment
from headrace.cli.options import Bootstrap, Globals, Json
from headrace.cli.savepoint import savepoint_at

if TYPE_CHECKING:
    from headrace.config import Settings
    from headrace.savepoints import Savepoint
    from headrace.spark.checkpoint.past_batches import PastBatches
    from headrace.stream import Job
    from headrace.trace import Fact, Story


def why(
    ctx: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="JOB", autocompletion=complete_job, show_default=False, help="The job.")
    ],
    key: Annotated[
        str,
        typer.Option("--key", metavar="KEY", help="The key; several key columns: VALUE,VALUE.", show_default=False),
    ],
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="TIME", help="Only what is about this event time.", show_default=False),
    ] = None,
    back: Annotated[
        str | None,
        typer.Option(
            "--back",
            metavar="DURATION",
            help="Read the events that arrived so long before; as many as --limit lets if left out.",
            show_default=False,
        ),
    ] = None,
    savepoint: Annotated[
        str | None,
        typer.Option(
            "--savepoint",
            metavar="NAME",
            help="Begin with the state of a savepoint, at its offsets.",
            show_default=False,
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option("--checkpoint", metavar="DIR", help="The directory of the checkpoint.", show_default=False),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Read at most so many events.")] = 1_000_000,
    bootstrap: Bootstrap = None,
    json: Json = False,
) -> None:
    """Tell what became of the events of a key, step by step, what fired, and what has not fired and why."""
    from headrace.savepoints import read_savepoint

    settings = Globals.of(ctx).settings(broker__bootstrap=(bootstrap, "--bootstrap"))
    job = pick([name], settings)[0]
    directory = checkpoint.absolute() if checkpoint is not None else checkpoint_holding(settings, job.name)
    begun = None if savepoint is None else read_savepoint(savepoint_at(settings, savepoint))
    now = datetime.now(UTC)
    asked = None if at is None else moment(at, now=now, option="--at")
    story = _story(settings, job, directory, key, asked, back, begun, limit)
    if json:
        terminal.document(story.to_dict())
    else:
        terminal.line(story.text)


def _story(
    settings: Settings,
    job: Job,
    checkpoint: Path,
    key: str,
    at: datetime | None,
    back: str | None,
    begun: Savepoint | None,
    limit: int,
) -> Story:
    from dataclasses import replace

    from headrace import trace
    from headrace.errors import StateError
    from headrace.savepoints import snapshot_of
    from headrace.spark.checkpoint.past_batches import PastReader, recorded_batches
    from headrace.spark.checkpoint.positions import Position
    from headrace.time.duration import micros
    from headrace.time.instants import instant

    topics = list(dict.fromkeys(entry.source.name for entry in job.pipeline.entries))
    if begun is not None and job.name not in begun.states:
        raise StateError(
            f"the savepoint has no job {job.name!r}", hint=f"The jobs there are: {', '.join(begun.states)}."
        )
    start = None if begun is None else Position.from_dict(begun.manifest.position)
    recorded = recorded_batches(checkpoint)
    if start is not None:
        recorded = [(recorded[0][0] - 1, start), *(each for each in recorded if each[1].includes(start))]
    reader = PastReader(connect(settings), topics, limit=limit)
    moment_asked = instant(datetime.now(UTC) if at is None else at)
    past = reader.read(
        recorded, start=start, before=moment_asked, back=None if back is None else micros(back, what="--back")
    )
    story = trace.why(
        job,
        past.given,
        key=key_values(key),
        at=at,
        unread=past.unread or None,
        partitions=past.partitions,
        snapshot=None if begun is None else snapshot_of(begun.states[job.name]),
    )
    return replace(story, facts=(*story.facts, *_notes(job, checkpoint, past, exact=start is not None)))


def _notes(job: Job, checkpoint: Path, past: PastBatches, *, exact: bool) -> list[Fact]:
    """Tell what stands in the way of an answer: a query that does not run, events and batches that are not known."""
    from headrace.spark.checkpoint.identity import is_in_use
    from headrace.spark.run.isolation import StoppedJobs
    from headrace.trace import Fact

    notes = []
    stopped = StoppedJobs(checkpoint).read().get(job.name)
    if stopped is not None:
        text = f"{job.name} has taken no part in its query since {stopped.since}: {stopped.message}"
        notes.append(Fact("absent", text, data={"since": stopped.since, "message": stopped.message}))
    elif not is_in_use(checkpoint):
        notes.append(Fact("absent", f"No query of {job.name} runs on this machine now (headrace run {job.name})."))
    if past.shortened:
        text = "Earlier events were left out, so what was open before them is missing here (--back, --savepoint)."
        notes.append(Fact("unknown", text))
    if not exact:
        first = "no batch is" if past.exact is None else f"the batches before {past.exact:,} are not"
        text = f"In the checkpoint {first} noted any more: their events were put into batches by their arrival."
        notes.append(Fact("unknown", text, data={"first_exact_batch": past.exact}))
    return notes
