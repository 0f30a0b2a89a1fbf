"""Who a checkpoint belongs to.

A checkpoint holds the state of certain jobs with a certain number of key groups. What it was made for is written
beside it, so that a job that does not fit is refused with the reason instead of reading state that means something
else.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import uuid
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from headrace.errors import EnvironmentProblem, StateError
from headrace.spark.checkpoint.durable_files import make_directory, write_durably

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from headrace.stream import Job

_FILE = "headrace.json"
_VERSION = 2


@dataclass(frozen=True)
class Identity:
    """What a checkpoint was made for.

    Args:
        token: Names this checkpoint among all; commit tokens on Kafka carry it.
        jobs: The jobs in their order, which numbers their key groups.
        key_groups: Key groups per job.
        state_partitions: Spark's state partitions.
        version: Of this file.
    """

    token: str
    jobs: tuple[str, ...]
    key_groups: int
    state_partitions: int
    version: int = _VERSION


@contextmanager
def claim(
    checkpoint: Path, jobs: Sequence[Job], *, key_groups: int, state_partitions: int, fresh: bool
) -> Iterator[Identity]:
    """Hold a checkpoint for these jobs, or make it; nobody else on this machine can hold it meanwhile.

    Args:
        checkpoint: Its directory.
        jobs: What is to run.
        key_groups: Key groups per job.
        state_partitions: Spark's state partitions.
        fresh: Forget what is there.
    """
    with _locked(checkpoint):
        yield _open(checkpoint, tuple(job.name for job in jobs), key_groups, state_partitions, fresh=fresh)


def _open(checkpoint: Path, names: tuple[str, ...], key_groups: int, state_partitions: int, *, fresh: bool) -> Identity:
    try:
        if fresh and checkpoint.exists():
            shutil.rmtree(checkpoint)
        make_directory(checkpoint)
        path = checkpoint / _FILE
        if path.exists():
            return _check(path, names, key_groups, state_partitions)
        identity = Identity(uuid.uuid4().hex, names, key_groups, state_partitions)
        write_durably(path, json.dumps(asdict(identity), indent=2) + "\n")
    except OSError as problem:
        if isinstance(problem, EnvironmentProblem):
            raise
        raise _unusable(checkpoint, problem) from problem
    return identity


@contextmanager
def _locked(checkpoint: Path) -> Iterator[None]:
    """Hold the lock of a checkpoint; the system lets go of it when the process ends, however it ends."""
    path = checkpoint.with_name(f"{checkpoint.name}.lock")
    try:
        make_directory(path.parent)
        file = path.open("a+", encoding="utf-8")
    except OSError as problem:
        raise _unusable(checkpoint, problem) from problem
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            who = file.read().strip() or "unknown"
            raise StateError(
                f"the checkpoint {checkpoint} is in use by process {who}",
                hint="Stop that one first, or name another checkpoint directory.",
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield


def _unusable(checkpoint: Path, problem: OSError) -> EnvironmentProblem:
    return EnvironmentProblem(
        f"cannot use the checkpoint directory {checkpoint}: {problem.strerror or problem}",
        hint="Name a directory that you can write to: --set spark.checkpoint_directory=DIR.",
    )


def _check(path: Path, names: tuple[str, ...], key_groups: int, state_partitions: int) -> Identity:
    try:
        record = json.loads(path.read_text())
        found = Identity(**{**record, "jobs": tuple(record["jobs"])})
    except (ValueError, TypeError, KeyError) as problem:
        raise StateError(
            f"{path} cannot be read: {problem}",
            hint="Start afresh (--fresh), which forgets the state in this directory.",
        ) from problem
    wanted = {"jobs": names, "key_groups": key_groups, "state_partitions": state_partitions, "version": _VERSION}
    different = [
        f"{name} was {getattr(found, name)!r}, is {value!r}"
        for name, value in wanted.items()
        if getattr(found, name) != value
    ]
    if different:
        raise StateError(
            f"the checkpoint {path.parent} was made for something else: {'; '.join(different)}",
            hint="Run it as it was, start afresh (--fresh), or name another checkpoint directory.",
        )
    return found
