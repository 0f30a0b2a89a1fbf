"""The manifest of a savepoint: what it holds, where it was taken, and the checksum of each of its files."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from typing import Any

from headrace.errors import StateError

#: The version of the form. A reader refuses later ones and reads earlier ones.
FORMAT = 1


@dataclass(frozen=True)
class StepEntry:
    """The state of one step.

    Args:
        step: Its name.
        file: The file with its segments, relative to the savepoint.
        key_groups: How many key groups it is spread over.
        segments: How many segments there are.
        state_bytes: Their size before compression.
        file_bytes: The size of the file.
        sha256: The checksum of the file.
        watermark: How far its event time has come, in microseconds since the epoch; None before the first event.
        shape: What its operator says that the state depends on (`Operator.fingerprint`).
        columns: The columns of its rows, with their types.
    """

    step: str
    file: str
    key_groups: int
    segments: int
    state_bytes: int
    file_bytes: int
    sha256: str
    watermark: int | None = None
    shape: dict[str, str] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class JobEntry:
    """The state of one job.

    Args:
        job: Its name.
        sources: The topics that it reads.
        steps: Its steps.
        stopped: Where it reads on, if that is not where the query does: offsets by topic and partition, and why.
    """

    job: str
    sources: tuple[str, ...] = ()
    steps: tuple[StepEntry, ...] = ()
    stopped: dict[str, Any] | None = None


@dataclass(frozen=True)
class Manifest:
    """What a savepoint holds.

    Args:
        name: Its name.
        created: When it was taken, as text (ISO 8601, UTC).
        version: Of Headrace.
        query: The name of the query that it was taken from.
        checkpoint: Names the checkpoint that it was taken from (the token of its commits).
        key_groups: Key groups per step in that checkpoint.
        batches: How many batches were done.
        position: Up to where events are in the state: `offsets` by topic and partition, the time `now`.
        planned: The end of a batch that was planned and is not in the state; None where there was none.
        topics: Kafka's identities of the topics.
        jobs: The jobs.
        format: The version of the form.
    """

    name: str
    created: str
    version: str
    query: str = ""
    checkpoint: str = ""
    key_groups: int = 1
    batches: int = 0
    position: dict[str, Any] = field(default_factory=dict)
    planned: dict[str, Any] | None = None
    topics: dict[str, str] = field(default_factory=dict)
    jobs: tuple[JobEntry, ...] = ()
    format: int = FORMAT

    def job(self, name: str) -> JobEntry | None:
        """Find a job; None where the savepoint does not have it."""
        return next((each for each in self.jobs if each.job == name), None)

    @property
    def state_bytes(self) -> int:
        """The size of all segments before compression."""
        return sum(step.state_bytes for job in self.jobs for step in job.steps)

    @property
    def file_bytes(self) -> int:
        """The size of all files with state."""
        return sum(step.file_bytes for job in self.jobs for step in job.steps)

    def to_dict(self) -> dict[str, Any]:
        """Give it as JSON values."""
        return asdict(self)

    def to_text(self) -> str:
        """Give it as it is written, with a checksum of its own."""
        told = self.to_dict()
        return json.dumps({**told, "checksum": _checksum(told)}, indent=2) + "\n"

    @classmethod
    def from_text(cls, text: str, *, where: str) -> Manifest:
        """Read what `to_text` gave.

        Args:
            text: The manifest.
            where: Names it in messages.

        Raises:
            StateError: It is damaged, or of a later version.

        >>> manifest = Manifest("nightly", "2026-03-02T07:30:00+00:00", "0.1.0")
        >>> Manifest.from_text(manifest.to_text(), where="here") == manifest
        True
        """
        try:
            told = json.loads(text)
            version, checksum = told["format"], told.pop("checksum")
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise _damaged(where, str(problem)) from problem
        if not isinstance(version, int) or version > FORMAT:
            raise StateError(
                f"{where} has form {version}, and this version of Headrace reads forms up to {FORMAT}",
                hint="Read it with the version that wrote it, or a later one.",
            )
        if checksum != _checksum(told):
            raise _damaged(where, "its checksum is wrong, so it was changed or is incomplete")
        try:
            jobs = tuple(
                JobEntry(**{**job, "sources": tuple(job["sources"]), "steps": tuple(map(_step, job["steps"]))})
                for job in told.pop("jobs")
            )
            return cls(**told, jobs=jobs)
        except (KeyError, TypeError) as problem:
            raise _damaged(where, str(problem)) from problem


def _step(told: dict[str, Any]) -> StepEntry:
    entry = StepEntry(**told)
    if entry.file.startswith("/") or ".." in entry.file.split("/"):
        raise TypeError(f"it names a file outside of the savepoint: {entry.file}")
    return entry


def _checksum(told: dict[str, Any]) -> str:
    canonical = json.dumps(told, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _damaged(where: str, why: str) -> StateError:
    return StateError(
        f"{where} cannot be read: {why}",
        hint="The savepoint is damaged; take another one, or restore its files from a copy.",
    )
