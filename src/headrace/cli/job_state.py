"""Where a job's checkpoint is, and its state, of a query that runs or one that is stopped."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.cli.options import UsageError
from headrace.cli.savepoint import savepoint_at, taken

if TYPE_CHECKING:
    from headrace.config import Settings
    from headrace.savepoints import Savepoint


def checkpoint_holding(settings: Settings, job: str) -> Path:
    """Find the checkpoint that a job is in: that of a query that runs, or else the one that was written last.

    Raises:
        StateError: There is none.
    """
    from headrace.errors import StateError
    from headrace.spark.checkpoint.identity import FILE, is_in_use, read_identity

    found = []
    directory = settings.checkpoint_directory
    for path in sorted(directory.iterdir()) if directory.is_dir() else ():
        if (path / FILE).exists() and job in read_identity(path / FILE).jobs:
            commits = path / "spark" / "commits"
            newest = commits if commits.exists() else path / FILE
            found.append((is_in_use(path), newest.stat().st_mtime, path))
    if not found:
        raise StateError(
            f"there is no checkpoint of job {job!r} in {directory}",
            hint=f"It has not run yet: headrace run {job}. Or name the directory with --checkpoint DIR.",
        )
    return max(found)[2].absolute()


def read_job_state(
    settings: Settings, job: str, *, checkpoint: Path | None, savepoint: str | None, timeout: float
) -> tuple[Savepoint, str]:
    """Read the state of a job, and tell where it was.

    Args:
        settings: Say where checkpoints and savepoints are.
        job: Its name.
        checkpoint: The directory of the checkpoint; None: the one that the job is in.
        savepoint: A savepoint to read instead.
        timeout: How many seconds to wait for a query that runs.

    Raises:
        StateError: There is no state of it.
    """
    from headrace.errors import StateError
    from headrace.savepoints import read_savepoint

    if savepoint is not None and checkpoint is not None:
        raise UsageError("--savepoint and --checkpoint exclude each other", hint="Give one of them.")
    if savepoint is not None:
        found, where = read_savepoint(savepoint_at(settings, savepoint)), f"savepoint {savepoint}"
    else:
        directory = checkpoint.absolute() if checkpoint is not None else checkpoint_holding(settings, job)
        found, where = _of_checkpoint(settings, directory, timeout), str(directory)
    if job not in found.states:
        raise StateError(
            f"there is no state of job {job!r} in {where}", hint=f"The jobs there are: {', '.join(found.states)}."
        )
    return found, where


def _of_checkpoint(settings: Settings, directory: Path, timeout: float) -> Savepoint:
    """Read the state of all jobs of a checkpoint, by a savepoint that is deleted again."""
    from headrace.savepoints import read_savepoint
    from headrace.spark.checkpoint.identity import is_in_use

    with tempfile.TemporaryDirectory(prefix="headrace-state-") as place:
        where = str(Path(place) / "state")
        if is_in_use(directory):
            from headrace.spark.checkpoint.requests import Request, ask

            ask(directory, Request("savepoint", where, "state"), alive=lambda: is_in_use(directory), patience=timeout)
        else:
            taken(settings, directory, where, "state")
        return read_savepoint(where)


def key_values(text: str) -> tuple[Any, ...]:
    """Take a key apart: one text for each key column, `null` for a key that is null.

    >>> key_values("depot-1,7"), key_values('"a,b"')
    (('depot-1', '7'), ('a,b',))
    """
    import csv

    return tuple(None if value == "null" else value for value in next(csv.reader([text], skipinitialspace=True)))
