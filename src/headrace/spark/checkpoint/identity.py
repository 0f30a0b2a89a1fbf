"""What a checkpoint holds: the state of which steps of which jobs, and where.

State is found by names: the job, its step, and the key group. The file keeps the slot and the level for each, by which
Spark knows a step (`headrace.spark.stages.slots`). So jobs may be put in another order, added and taken out, and steps
may move to another level; what does not fit is refused with the reason instead of being read as something else.
docs/checkpoints.md describes the whole directory.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import uuid
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from headrace.errors import EnvironmentProblem, StateError
from headrace.savepoints.durable_files import make_directory, write_durably

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from headrace.stream import Job

_FILE = "headrace.json"
_VERSION = 3


@dataclass(frozen=True)
class StepSlot:
    """Where the state of a step is.

    Args:
        job: The job.
        step: The name of its step.
        slot: The number that Spark knows it by; never given to another step.
        level: Which of Spark's stateful operators holds it; -1: none, it was put aside when state moved.
    """

    job: str
    step: str
    slot: int
    level: int


@dataclass(frozen=True)
class Identity:
    """What a checkpoint holds.

    Args:
        token: Names this checkpoint among all; commit tokens on Kafka carry it.
        query: Names the query, on Kafka too; it stays when jobs come and go.
        key_groups: Key groups per step.
        state_partitions: Spark's state partitions.
        levels: How many stateful operators Spark's plan has.
        steps: Where the state of each step is, those of jobs that are not run now among them.
        moved: Marks the last move of the state to another plan of Spark's; empty where there was none.
        version: Of this layout.
    """

    token: str
    query: str
    key_groups: int
    state_partitions: int
    levels: int
    steps: tuple[StepSlot, ...]
    moved: str = ""
    version: int = _VERSION

    @property
    def jobs(self) -> tuple[str, ...]:
        """The jobs that it has state of."""
        return tuple(dict.fromkeys(each.job for each in self.steps))

    @property
    def slots(self) -> dict[tuple[str, str], int]:
        """The slots by job and step."""
        return {(each.job, each.step): each.slot for each in self.steps}

    @classmethod
    def fresh(cls, jobs: Sequence[Job], *, key_groups: int, state_partitions: int) -> Identity:
        """Make one for jobs that begin."""
        names = "+".join(job.name for job in jobs)
        empty = cls(uuid.uuid4().hex, names, key_groups, state_partitions, 0, ())
        return replace(empty, steps=_steps(empty, jobs), levels=_levels(jobs))

    def fitted(self, jobs: Sequence[Job], *, state_partitions: int) -> Identity:
        """Tell what the checkpoint is to hold for these jobs from now on.

        Where Spark's plan has another shape than before, it is marked with another move.
        """
        steps, levels = _steps(self, jobs), _levels(jobs)
        before = {(each.job, each.step): each.level for each in self.steps}
        changed = [each for each in steps if before.get((each.job, each.step), -1) not in (-1, each.level)]
        moves = bool(changed) or levels != self.levels or state_partitions != self.state_partitions
        if not moves:
            return replace(self, steps=steps)
        running = {job.name for job in jobs}
        steps = tuple(each if each.job in running else replace(each, level=-1) for each in steps)
        return replace(self, steps=steps, levels=levels, state_partitions=state_partitions, moved=uuid.uuid4().hex)


def _levels(jobs: Sequence[Job]) -> int:
    return max(job.pipeline.levels for job in jobs)


def _steps(identity: Identity, jobs: Sequence[Job]) -> tuple[StepSlot, ...]:
    """Give the steps of jobs their slots; those that are known keep theirs."""
    known = {(each.job, each.step): each for each in identity.steps}
    following = 1 + max((each.slot for each in identity.steps), default=-1)
    for job in jobs:
        for stage in job.pipeline.stages:
            place = (job.name, stage.step)
            if place in known:
                known[place] = replace(known[place], level=stage.level)
            else:
                known[place] = StepSlot(*place, following, stage.level)
                following += 1
    return tuple(known.values())


def note(checkpoint: Path, identity: Identity) -> None:
    """Write what a checkpoint holds."""
    write_durably(checkpoint / _FILE, json.dumps(asdict(identity), indent=2) + "\n")


@contextmanager
def claim(
    checkpoint: Path, jobs: Sequence[Job], *, key_groups: int, state_partitions: int, fresh: bool
) -> Iterator[Identity]:
    """Hold a checkpoint for these jobs, or make it; nobody else on this machine can hold it meanwhile.

    What is given is what the checkpoint holds: `Identity.fitted` tells what has to change for these jobs.

    Args:
        checkpoint: Its directory.
        jobs: What is to run.
        key_groups: Key groups per job.
        state_partitions: Spark's state partitions.
        fresh: Forget what is there.
    """
    with _locked(checkpoint):
        yield _open(checkpoint, jobs, key_groups, state_partitions, fresh=fresh)


def _open(checkpoint: Path, jobs: Sequence[Job], key_groups: int, state_partitions: int, *, fresh: bool) -> Identity:
    try:
        if fresh and checkpoint.exists():
            shutil.rmtree(checkpoint)
        make_directory(checkpoint)
        path = checkpoint / _FILE
        if path.exists():
            return _check(path, jobs, key_groups)
        identity = Identity.fresh(jobs, key_groups=key_groups, state_partitions=state_partitions)
        note(checkpoint, identity)
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


def _check(path: Path, jobs: Sequence[Job], key_groups: int) -> Identity:
    found = read_identity(path)
    if found.key_groups != key_groups:
        raise StateError(
            f"the checkpoint {path.parent} was made for {found.key_groups} key groups, and there are {key_groups} now",
            hint=f"Keys are spread over key groups for good: run it with --set spark.key_groups={found.key_groups}, "
            "start afresh (--fresh), or name another checkpoint directory.",
        )
    names = [job.name for job in jobs]
    if not {*names} & {*found.jobs}:
        raise StateError(
            f"the checkpoint {path.parent} is of {', '.join(found.jobs)}, and none of them is run now, but "
            f"{', '.join(names)}",
            hint="Jobs may be added to those of a checkpoint and taken out, not all at once: name another checkpoint "
            "directory, or start afresh (--fresh).",
        )
    for job in jobs:
        steps = job.steps
        gone = [each.step for each in found.steps if each.job == job.name and each.step not in steps]
        if gone:
            fresh = [step for step in steps if (job.name, step) not in found.slots]
            new = f", and has {_listed(fresh)} instead" if fresh else ""
            raise StateError(
                f"the checkpoint {path.parent} has the state of {_listed(gone)} of job {job.name!r}, which the job no "
                f"longer has{new}; its steps are {_listed(steps)}",
                hint='Name a step that is the same as before: .named("...") right after it. If its state is to be '
                "forgotten, give the job another name, or start afresh (--fresh).",
            )
    return found


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names))


def read_identity(path: Path) -> Identity:
    """Read what a checkpoint holds.

    Raises:
        StateError: It cannot be read, or another version wrote it.
    """
    try:
        record = json.loads(path.read_text("utf-8"))
        version = record["version"]
        if version == _VERSION:
            return Identity(**{**record, "steps": tuple(StepSlot(**each) for each in record["steps"])})
    except (ValueError, TypeError, KeyError, AttributeError) as problem:
        raise StateError(
            f"{path} cannot be read: {problem}",
            hint="Start afresh (--fresh), which forgets the state in this directory.",
        ) from problem
    raise StateError(
        f"the checkpoint {path.parent} has layout {version}, and this version of Headrace reads layout {_VERSION}",
        hint="Layouts 1 and 2 kept state by the numbers of jobs and cannot be carried over. Run it with the version "
        "that wrote it, or start afresh (--fresh); --from now begins at the newest events. Results that are out are "
        "written again unless you do so."
        if version in (1, 2)
        else "Run it with the version that wrote it.",
    )
