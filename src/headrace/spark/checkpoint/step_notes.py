"""What the state of a checkpoint depends on, in a file beside it: so that a plan needs no Spark to compare.

`steps.json` has the fingerprint and the columns of each step, as they were when the query was last started. What
decides is the same in the state itself, which every turn compares.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from headrace.engine.compatibility import column_types
from headrace.errors import StateError
from headrace.savepoints.durable_files import write_durably
from headrace.savepoints.manifest import JobEntry, StepEntry
from headrace.spark.checkpoint.identity import FILE, read_identity

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from headrace.spark.checkpoint.identity import Identity
    from headrace.stream import Job

_FILE = "steps.json"


def note_steps(checkpoint: Path, identity: Identity, jobs: Sequence[Job]) -> None:
    """Note what the state of jobs that are about to run depends on; what is known of other jobs stays.

    Args:
        checkpoint: The directory of the query.
        identity: What it holds.
        jobs: What is about to run.
    """
    known = {entry.job: entry for entry in noted_steps(checkpoint)}
    for job in jobs:
        steps = tuple(
            _entry(
                stage.step,
                identity.key_groups,
                stage.operator.fingerprint(),
                column_types(stage.schema, [each.schema for each in stage.inputs[1:]]),
            )
            for stage in job.pipeline.stages
        )
        known[job.name] = JobEntry(job.name, tuple(dict.fromkeys(job.sources)), steps)
    told = [asdict(entry) for name, entry in known.items() if name in identity.jobs]
    write_durably(checkpoint / _FILE, json.dumps(told, indent=2) + "\n")


def note_saved(checkpoint: Path, entries: Sequence[JobEntry]) -> None:
    """Note what the state of a checkpoint depends on that is made of a savepoint."""
    write_durably(checkpoint / _FILE, json.dumps([asdict(entry) for entry in entries], indent=2) + "\n")


def read_steps(checkpoint: Path) -> tuple[JobEntry, ...]:
    """Read what the state of a checkpoint depends on.

    Raises:
        StateError: There is no checkpoint, or it does not say.
    """
    path = checkpoint / FILE
    if not path.exists():
        raise StateError(
            f"there is no checkpoint in {checkpoint}",
            hint="Name a savepoint or a directory with --against; a job that was never run has nothing to compare.",
        )
    identity, noted = read_identity(path), {entry.job: entry for entry in noted_steps(checkpoint)}
    lacking = [job for job in identity.jobs if job not in noted]
    if lacking:
        raise StateError(
            f"the checkpoint {checkpoint} does not say what the state of {', '.join(lacking)} depends on",
            hint="It was last run by an earlier version. Compare with a savepoint: headrace savepoint create.",
        )
    return tuple(noted[job] for job in identity.jobs)


def _entry(step: str, groups: int, shape: dict[str, str], columns: dict[str, str]) -> StepEntry:
    return StepEntry(step, "", groups, 0, 0, 0, "", None, shape, columns)


def noted_steps(checkpoint: Path) -> list[JobEntry]:
    """Read what is noted; nothing where the checkpoint was last run by an earlier version."""
    try:
        told = json.loads((checkpoint / _FILE).read_text("utf-8"))
        return [
            JobEntry(each["job"], tuple(each["sources"]), tuple(StepEntry(**step) for step in each["steps"]))
            for each in told
        ]
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError) as problem:
        raise StateError(
            f"{checkpoint / _FILE} cannot be read: {problem}", hint="Remove it; the next start writes it anew."
        ) from problem
