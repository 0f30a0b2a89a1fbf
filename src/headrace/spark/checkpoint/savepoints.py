"""Savepoints of a query: taken out of its checkpoint, and made a checkpoint again.

A checkpoint that is made of a savepoint is in the form of one whose state was just moved
(`headrace.spark.checkpoint.moving`): the state is in files, and the first batch brings it in. It keeps the name of the
checkpoint that the savepoint was taken from, which its commit tokens carry, so a start compares it with what is out.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from headrace import __version__
from headrace.errors import StateError
from headrace.savepoints import JobEntry, Manifest, Savepoint, write_savepoint
from headrace.savepoints.durable_files import write_durably
from headrace.spark.checkpoint.continuity import (
    noted_sources,
    noted_topics,
    read_position,
    read_progress,
    write_topics,
)
from headrace.spark.checkpoint.identity import FILE, Identity, StepSlot, read_identity
from headrace.spark.checkpoint.moving import batches_before, complete, put_aside, put_down
from headrace.spark.checkpoint.saved_state import saved_state
from headrace.spark.checkpoint.step_notes import note_saved
from headrace.spark.run.isolation import StoppedJob, StoppedJobs
from headrace.spark.stages.stage_turn import RETURN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from headrace.savepoints.state import State
    from headrace.spark.checkpoint.positions import Position

_ORIGIN = "savepoint.json"


@dataclass(frozen=True)
class Fork:
    """A job that goes on under another name, beside the one that the savepoint was taken from.

    Args:
        job: The name in the savepoint.
        name: The new name.
    """

    job: str
    name: str


def take_savepoint(
    spark: SparkSession, checkpoint: Path, identity: Identity, place: str | Path, name: str, *, running: bool = False
) -> Manifest:
    """Write the state of all jobs of a checkpoint to a savepoint.

    Args:
        spark: A session.
        checkpoint: The query's checkpoint.
        identity: What it holds.
        place: Where to write it.
        name: What it is called.
        running: Whether the query goes on meanwhile; the savepoint is of the last batch that is done.

    Raises:
        StateError: There is nothing to save yet, or a job has not caught up.
    """
    progress = read_progress(checkpoint)
    if progress is None:
        raise StateError(f"the checkpoint {checkpoint} has done no batch yet", hint="There is nothing to save: wait.")
    position: Position | None = progress.position
    planned = None if running else progress.planned
    states: dict[str, State] = {}
    if progress.committed >= 0:
        position = read_position(checkpoint, progress.committed)
        states = saved_state(spark, checkpoint, identity, batch=progress.committed if running else None)
    if position is None:
        raise StateError(
            f"the log of {checkpoint} no longer holds batch {progress.committed}", hint="Take the savepoint again."
        )
    states = {job: states.get(job) or put_aside(checkpoint, identity, job) for job in identity.jobs}
    stopped = _stopped(checkpoint, states)
    sources = noted_sources(checkpoint)
    manifest = Manifest(
        name=name,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        version=__version__,
        query=identity.query,
        checkpoint=identity.token,
        key_groups=identity.key_groups,
        state_partitions=identity.state_partitions,
        batches=batches_before(checkpoint) + progress.committed + 1,
        position=position.to_dict(),
        planned=None if planned is None else planned.to_dict(),
        topics=noted_topics(checkpoint),
        jobs=tuple(
            JobEntry(
                job,
                tuple(dict.fromkeys(sources.get(job, ()))),
                stopped=None if job not in stopped else asdict(stopped[job]),
            )
            for job in states
        ),
    )
    return write_savepoint(place, manifest, states)


def _stopped(checkpoint: Path, states: Mapping[str, State]) -> dict[str, StoppedJob]:
    """Tell which jobs take no part; those that have come back since are told by their state."""
    known = StoppedJobs(checkpoint)
    found = {}
    for job, stopped in known.read().items():
        marks = [parts.get(RETURN, b"") for parts in states.get(job, {}).values()]
        if any(mark.startswith(stopped.mark.encode()) for mark in marks):
            continue
        if any(known.directory(job).glob("*.json")):
            raise StateError(
                f"job {job!r} has not caught up: its state is in two places",
                hint="Start the query until it tells that the job has returned, and take the savepoint then.",
            )
        found[job] = stopped
    return found


def restorer(read: Callable[[], Savepoint], fork: Fork | None = None) -> Callable[[Path], None]:
    """Make what fills the directory of a checkpoint from a savepoint.

    Args:
        read: Reads it; called where the checkpoint is not made yet.
        fork: Go on with one of its jobs under another name.
    """

    def restore(checkpoint: Path) -> None:
        savepoint = read()
        origin = checkpoint / _ORIGIN
        told = {"name": savepoint.manifest.name, "created": savepoint.manifest.created, "fork": fork and asdict(fork)}
        if (checkpoint / FILE).exists():
            progress = read_progress(checkpoint)
            same = origin.exists() and json.loads(origin.read_text("utf-8")) == told
            if same and progress is not None and progress.committed < 0:
                return  # a start from the same savepoint that did not come to its first batch
            raise StateError(
                f"there is a checkpoint in {checkpoint} already",
                hint="Without --from-savepoint the run goes on with it; --fresh --from-savepoint replaces it.",
            )
        restore_savepoint(checkpoint, savepoint, fork)
        write_durably(origin, json.dumps(told))

    return restore


def restore_savepoint(checkpoint: Path, savepoint: Savepoint, fork: Fork | None = None) -> Identity:
    """Make a checkpoint of a savepoint.

    Args:
        checkpoint: The directory; there is no checkpoint in it.
        savepoint: The savepoint.
        fork: Go on with one of its jobs under another name, with a checkpoint of its own.
    """
    manifest, states = savepoint.manifest, dict(savepoint.states)
    jobs = {entry.job: entry for entry in manifest.jobs}
    planned: dict[str, Any] = {} if manifest.planned is None else {"planned": manifest.planned}
    token, query = manifest.checkpoint, manifest.query
    if fork is not None:
        if fork.job not in jobs:
            raise StateError(
                f"savepoint {manifest.name!r} has no job {fork.job!r}", hint=f"It has {', '.join(jobs) or 'none'}."
            )
        jobs, states = {fork.name: jobs[fork.job]}, {fork.name: states[fork.job]}
        # Nothing of the batch that was planned is out under the new name.
        token, query, planned = uuid.uuid4().hex, fork.name, {}
    steps = [(job, step.step) for job, entry in jobs.items() for step in entry.steps]
    identity = Identity(
        token=token,
        query=query,
        key_groups=manifest.key_groups,
        state_partitions=manifest.state_partitions,
        levels=0,
        steps=tuple(StepSlot(job, step, slot, -1) for slot, (job, step) in enumerate(steps)),
        moved=uuid.uuid4().hex,
    )
    known = StoppedJobs(checkpoint)
    for job, entry in jobs.items():
        if entry.stopped is not None:
            stopped = StoppedJob(**entry.stopped)
            places = {topic: {int(n): at for n, at in each.items()} for topic, each in stopped.places.items()}
            known.add(replace(stopped, job=job, places=places))
    write_topics(checkpoint, manifest.topics, {job: entry.sources for job, entry in jobs.items()})
    note_saved(checkpoint, [replace(entry, job=job) for job, entry in jobs.items()])
    put_down(checkpoint, identity, states, {**manifest.position, **planned, "batches": manifest.batches})
    complete(checkpoint, identity)
    return identity


def identity_of(checkpoint: Path) -> Identity:
    """Read what a checkpoint holds.

    Raises:
        StateError: There is none.
    """
    path = checkpoint / FILE
    if not path.exists():
        raise StateError(
            f"there is no checkpoint in {checkpoint}",
            hint="Name the jobs as they are run together, or the directory with --checkpoint.",
        )
    return read_identity(path)
