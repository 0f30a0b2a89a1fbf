"""Reading and writing savepoints.

A savepoint is a folder: `savepoint.json`, the manifest, and one Arrow file per step. The manifest is written last, so a
folder without one is no savepoint, and it has the checksum of each file.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headrace.engine.group import saved_clock
from headrace.errors import StateError
from headrace.savepoints.manifest import JobEntry, Manifest, StepEntry
from headrace.savepoints.state import State, segments_of, step_from_bytes, step_to_bytes, steps_of
from headrace.savepoints.storage import below, storage_at
from headrace.time.instants import BEGINNING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from headrace.savepoints.storage import Storage

MANIFEST = "savepoint.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True)
class Savepoint:
    """A savepoint in memory.

    Args:
        manifest: What it holds.
        states: The state of each job.
    """

    manifest: Manifest
    states: Mapping[str, State]


@dataclass(frozen=True)
class Finding:
    """What is wrong with a file of a savepoint.

    Args:
        file: Which one.
        problem: What is wrong with it.
    """

    file: str
    problem: str


def write_savepoint(place: str | Path, manifest: Manifest, states: Mapping[str, State]) -> Manifest:
    """Write a savepoint; it is there as a whole or not at all.

    Args:
        place: The folder: a path or a URL.
        manifest: What it says beside the steps; its jobs may have sources and where they stopped.
        states: The state of each job.

    Returns:
        The manifest as it was written, with the steps.

    Raises:
        StateError: There is a savepoint already.
    """
    storage = storage_at(place)
    if storage.read(MANIFEST) is not None:
        raise StateError(
            f"there is a savepoint at {place} already", hint="Give it another name, or delete that one first."
        )
    known = {entry.job: entry for entry in manifest.jobs}
    jobs = []
    for number, (job, state) in enumerate(states.items()):
        steps = []
        for place_of_step, step in enumerate(steps_of(state)):
            name = f"state/{number}-{_plain(job)}/{place_of_step}-{_plain(step)}.arrow"
            steps.append(_write_step(storage, name, step, segments_of(state, step)))
        jobs.append(replace(known.get(job, JobEntry(job)), steps=tuple(steps)))
    written = replace(manifest, jobs=tuple(jobs))
    storage.write(MANIFEST, written.to_text().encode())
    return written


def _write_step(storage: Storage, name: str, step: str, groups: list[dict[str, bytes]]) -> StepEntry:
    content = step_to_bytes(groups)
    storage.write(name, content)
    clocks: list[dict[str, Any]] = [clock for parts in groups if (clock := saved_clock(parts)) is not None]
    watermark = min((clock["watermark"] for clock in clocks), default=BEGINNING)
    return StepEntry(
        step=step,
        file=name,
        key_groups=len(groups),
        segments=sum(map(len, groups)),
        state_bytes=sum(len(value) for parts in groups for value in parts.values()),
        file_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        watermark=watermark if watermark > BEGINNING else None,
        shape=clocks[0]["shape"] if clocks else {},
        columns=clocks[0].get("types", {}) if clocks else {},
    )


def read_manifest(place: str | Path) -> Manifest:
    """Read what a savepoint holds.

    Raises:
        StateError: There is none, it is damaged, or of a later version.
    """
    text = storage_at(place).read(MANIFEST)
    if text is None:
        raise StateError(
            f"there is no savepoint at {place}",
            hint="`headrace savepoint list` shows those that there are; one that was interrupted has no manifest.",
        )
    return Manifest.from_text(text.decode("utf-8", "replace"), where=str(below(place, MANIFEST)))


def read_savepoint(place: str | Path) -> Savepoint:
    """Read a savepoint with the state of all jobs, and check it on the way.

    Raises:
        StateError: It is not there, damaged or incomplete.
    """
    manifest, storage = read_manifest(place), storage_at(place)
    states: dict[str, State] = {}
    for job in manifest.jobs:
        state = states.setdefault(job.job, {})
        for step in job.steps:
            content = storage.read(step.file)
            problem = _problem(step, content)
            if problem or content is None:
                raise StateError(
                    f"{below(place, step.file)} of savepoint {manifest.name!r} {problem}",
                    hint="The savepoint is damaged; take another one, or restore its files from a copy.",
                )
            groups = step_from_bytes(content, step.key_groups, where=str(below(place, step.file)))
            state |= {(step.step, group): parts for group, parts in enumerate(groups)}
    return Savepoint(manifest, states)


def verify(place: str | Path) -> list[Finding]:
    """Check all files of a savepoint against its manifest; nothing is found where all is well.

    Raises:
        StateError: There is no manifest that can be read.
    """
    manifest, storage = read_manifest(place), storage_at(place)
    found = []
    for job in manifest.jobs:
        for step in job.steps:
            content = storage.read(step.file)
            problem = _problem(step, content)
            if not problem and content is not None:
                try:
                    step_from_bytes(content, step.key_groups, where=step.file)
                except StateError as damaged:
                    problem = damaged.message
            if problem:
                found.append(Finding(step.file, problem))
    return found


def _problem(step: StepEntry, content: bytes | None) -> str:
    if content is None:
        return "is missing"
    if len(content) != step.file_bytes:
        return f"has {len(content):,} bytes and should have {step.file_bytes:,}"
    if hashlib.sha256(content).hexdigest() != step.sha256:
        return "has another checksum than the manifest says: it was changed"
    return ""


def list_savepoints(place: str | Path) -> list[tuple[str, Manifest | StateError]]:
    """Find the savepoints right below a place, by name, the oldest first; those that cannot be read come last."""
    found: list[tuple[str, Manifest | StateError]] = []
    for name in storage_at(place).folders():
        try:
            found.append((name, read_manifest(below(place, name))))
        except StateError as problem:
            found.append((name, problem))
    return sorted(found, key=lambda each: (isinstance(each[1], StateError), getattr(each[1], "created", ""), each[0]))


def delete_savepoint(place: str | Path) -> None:
    """Delete a savepoint.

    Raises:
        StateError: There is none: a folder without a manifest is left alone.
    """
    storage = storage_at(place)
    if storage.read(MANIFEST) is None:
        raise StateError(f"there is no savepoint at {place}", hint="`headrace savepoint list` shows those that are.")
    storage.remove()


def check_name(name: str) -> str:
    """Refuse a name that is no name of a folder.

    >>> check_name("before-upgrade")
    'before-upgrade'
    """
    if not _NAME.fullmatch(name):
        raise StateError(
            f"a savepoint cannot be called {name!r}", hint="Use letters, digits, '.', '_' and '-', 100 at most."
        )
    return name


def _plain(name: str) -> str:
    """A part of a file name; the number before it tells names apart that look alike then."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)[:60]
