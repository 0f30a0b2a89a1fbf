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
    from collections.abc import Callable, Collection, Iterator, Sequence
    from pathlib import Path

    from headrace.stream import Job

#: The file that says what a checkpoint holds.
FILE = "headrace.json"
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

    def fitted(
        self,
        jobs: Sequence[Job],
        *,
        state_partitions: int,
        key_groups: int | None = None,
        reset: Collection[str] = (),
    ) -> Identity:
        """Tell what the checkpoint is to hold for these jobs from now on.

        Where Spark's plan has another shape than before, or state is dropped or spread anew, it is marked with another
        move.

        Args:
            jobs: What is to run.
            state_partitions: Spark's state partitions.
            key_groups: Key groups per step; as before if not given.
            reset: Names of steps that begin without state.
        """
        groups = self.key_groups if key_groups is None else key_groups
        dropped = {(each.job, each.step) for each in self.dropped(jobs, reset)}
        steps, levels = _steps(self, jobs, dropped), _levels(jobs)
        before = {(each.job, each.step): each.level for each in self.steps}
        changed = [each for each in steps if before.get((each.job, each.step), -1) not in (-1, each.level)]
        shape = (levels, state_partitions, groups)
        if not changed and not dropped and shape == (self.levels, self.state_partitions, self.key_groups):
            return replace(self, steps=steps)
        running = {job.name for job in jobs}
        return replace(
            self,
            steps=tuple(each if each.job in running else replace(each, level=-1) for each in steps),
            levels=levels,
            state_partitions=state_partitions,
            key_groups=groups,
            moved=uuid.uuid4().hex,
        )

    def dropped(self, jobs: Sequence[Job], reset: Collection[str]) -> tuple[StepSlot, ...]:
        """Tell the steps whose state is forgotten: those that their job no longer has, and those that are reset."""
        steps = {job.name: job.steps for job in jobs}
        return tuple(
            each
            for each in self.steps
            if each.job in steps and (each.step not in steps[each.job] or each.step in reset)
        )

    def kept_slots(self, after: Identity) -> set[tuple[str, str]]:
        """Tell the steps, by job and name, whose state is carried over to what is held afterwards."""
        return {place for place, slot in self.slots.items() if after.slots.get(place) == slot}


def _levels(jobs: Sequence[Job]) -> int:
    return max(job.pipeline.levels for job in jobs)


def _steps(identity: Identity, jobs: Sequence[Job], dropped: Collection[tuple[str, str]] = ()) -> tuple[StepSlot, ...]:
    """Give the steps of jobs their slots; those that are known keep theirs, unless their state is dropped."""
    known = {place: each for each in identity.steps if (place := (each.job, each.step)) not in dropped}
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
    write_durably(checkpoint / FILE, json.dumps(asdict(identity), indent=2) + "\n")


@contextmanager
def claim(
    checkpoint: Path,
    jobs: Sequence[Job],
    *,
    key_groups: int,
    state_partitions: int,
    fresh: bool,
    reset: Collection[str] = (),
    restore: Callable[[Path], None] | None = None,
) -> Iterator[Identity]:
    """Hold a checkpoint for these jobs, or make it; nobody else on this machine can hold it meanwhile.

    What is given is what the checkpoint holds: `Identity.fitted` tells what has to change for these jobs.

    Args:
        checkpoint: Its directory.
        jobs: What is to run.
        key_groups: Key groups per job.
        state_partitions: Spark's state partitions.
        fresh: Forget what is there.
        reset: Names of steps that begin without state.
        restore: Fills the directory of a new checkpoint; refuses to where there is one already.
    """
    with locked(checkpoint):
        yield _open(checkpoint, jobs, key_groups, state_partitions, fresh=fresh, reset=reset, restore=restore)


def _open(
    checkpoint: Path,
    jobs: Sequence[Job],
    key_groups: int,
    state_partitions: int,
    *,
    fresh: bool,
    reset: Collection[str],
    restore: Callable[[Path], None] | None,
) -> Identity:
    try:
        if fresh and checkpoint.exists():
            shutil.rmtree(checkpoint)
        make_directory(checkpoint)
        path = checkpoint / FILE
        if restore is not None:
            restore(checkpoint)
        if path.exists():
            return _check(path, jobs, reset)
        identity = Identity.fresh(jobs, key_groups=key_groups, state_partitions=state_partitions)
        note(checkpoint, identity)
    except OSError as problem:
        if isinstance(problem, EnvironmentProblem):
            raise
        raise _unusable(checkpoint, problem) from problem
    return identity


def is_in_use(checkpoint: Path) -> bool:
    """Tell whether a process of this machine holds a checkpoint."""
    path = checkpoint.with_name(f"{checkpoint.name}.lock")
    if not path.exists():
        return False
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@contextmanager
def locked(checkpoint: Path) -> Iterator[None]:
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


def _check(path: Path, jobs: Sequence[Job], reset: Collection[str]) -> Identity:
    found = read_identity(path)
    names = [job.name for job in jobs]
    if not {*names} & {*found.jobs}:
        raise StateError(
            f"the checkpoint {path.parent} is of {', '.join(found.jobs)}, and none of them is run now, but "
            f"{', '.join(names)}",
            hint="Jobs may be added to those of a checkpoint and taken out, not all at once: name another checkpoint "
            "directory, or start afresh (--fresh).",
        )
    unknown = {*reset} - {each.step for each in found.steps}
    if unknown:
        raise StateError(
            f"the checkpoint {path.parent} has no state of {_listed(sorted(unknown))}, which is to be reset",
            hint=f"Its steps are {_listed(sorted({each.step for each in found.steps}))}.",
        )
    for job in jobs:
        check_gone(f"the checkpoint {path.parent}", job, [e.step for e in found.steps if e.job == job.name], reset)
    return found


def check_gone(where: str, job: Job, known: Sequence[str], reset: Collection[str]) -> None:
    """Refuse a job that lacks a step and has others instead: it may be the same step by another name.

    Args:
        where: Names what has the state.
        job: The job.
        known: The steps that it has state of.
        reset: Names of steps whose state may be forgotten.

    Raises:
        StateError: State would be forgotten that may still be wanted.
    """
    gone = [step for step in known if step not in job.steps and step not in reset]
    fresh = [step for step in job.steps if step not in known]
    if gone and fresh:
        raise StateError(
            f"{where} has the state of {_listed(gone)} of job {job.name!r}, which the job no longer has, and has "
            f"{_listed(fresh)} instead; its steps are {_listed(job.steps)}",
            hint='Name a step that is the same as before: .named("...") right after it. If its state is to be '
            f"forgotten: {' '.join(f'--reset-step {step}' for step in gone)}.",
        )


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
