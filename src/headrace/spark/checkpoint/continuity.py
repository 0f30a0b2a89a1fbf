"""Continuity: whether Kafka still holds what a checkpoint wants to read next.

A checkpoint says where each partition of a topic was read up to. If the job was away for longer than the topic keeps
its records, or the topic was deleted and made anew, going on would skip events, or read others for them. So before a
query starts its checkpoint is compared with its topics, by offsets and by the identity that Kafka gives to a topic;
where they do not fit, nothing is run and the loss is named. `accept_loss` goes on with what is left, on request.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from headrace.errors import StateError
from headrace.savepoints.durable_files import sync_directory, write_durably
from headrace.spark.checkpoint.positions import Places, Position, Span

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from headrace.kafka import Topics

_FILE = "topics.json"
#: Where a query began that has not done a batch yet.
BEGINNING = "beginning.json"


@dataclass(frozen=True)
class Gap:
    """A partition that does not hold what is to be read next.

    Args:
        topic: Its topic.
        partition: Its number.
        wanted: The offset to read next.
        earliest: The first offset that is there.
        latest: The offset after the last.
        renewed: Whether the topic is another one than the checkpoint knew.
    """

    topic: str
    partition: int
    wanted: int
    earliest: int
    latest: int
    renewed: bool

    def __str__(self) -> str:
        where = f"{self.topic} partition {self.partition}"
        if self.renewed:
            return f"{where}: read up to {self.wanted:,} of a topic that was deleted and made anew since"
        if self.wanted < self.earliest:
            gone = self.earliest - self.wanted
            return f"{where}: {gone:,} events from {self.wanted:,} on have expired; it begins at {self.earliest:,} now"
        return f"{where}: read up to {self.wanted:,}, but it ends at {self.latest:,}: it was cut off or made anew"


@dataclass(frozen=True)
class Progress:
    """What Spark's checkpoint says.

    Args:
        directory: Spark's part of the checkpoint.
        committed: The last batch that is done, -1 for none.
        next: Where each partition is to be read next.
        now: The time that was planned with that batch.
        planned: Where the batch after it ends, if Spark has planned one.
        steady: The time that idleness is measured by, planned with that batch.
    """

    directory: Path
    committed: int
    next: Places
    now: int = 0
    planned: Position | None = None
    steady: int | None = None

    @property
    def position(self) -> Position:
        """Where the last batch that is done ended."""
        return Position(self.next, self.now, self.steady)


def read_progress(checkpoint: Path) -> Progress | None:
    """Read how far a checkpoint has come; None if it has not begun.

    Raises:
        StateError: It cannot be read.
    """
    directory = checkpoint / "spark"
    done = _numbers(directory / "commits")
    try:
        last = done[-1] if done else -1
        following = directory / "offsets" / str(last + 1)
        planned = _noted(following) if following.exists() else None
        if done:
            end = _noted(directory / "offsets" / str(last))
            return Progress(directory, last, end.offsets, end.now, planned, end.steady)
        if (begun := checkpoint / BEGINNING).exists():
            noted = json.loads(begun.read_text("utf-8"))
            first = Position.from_dict(noted)
            # After a move of the state the batch that was under way comes again as it was planned before.
            if planned is None and "planned" in noted:
                planned = Position.from_dict(noted["planned"])
            return Progress(directory, -1, first.offsets, first.now, planned, first.steady)
    except (OSError, ValueError, KeyError) as problem:
        raise StateError(
            f"the checkpoint {checkpoint} is damaged: {problem}",
            hint="Start afresh (--fresh), which forgets its state, or restore the directory from a copy.",
        ) from problem
    return None


def read_span(checkpoint: Path, batch: int) -> Span:
    """Read what a batch that Spark has planned reads.

    Raises:
        StateError: The checkpoint does not say.
    """
    offsets = checkpoint / "spark" / "offsets"
    try:
        end = _noted(offsets / str(batch))
        if batch:
            return Span(_noted(offsets / str(batch - 1)), end)
        return Span(Position.from_dict(json.loads((checkpoint / BEGINNING).read_text("utf-8"))), end)
    except (OSError, ValueError, KeyError) as problem:
        raise StateError(
            f"the checkpoint {checkpoint} is damaged: {problem}",
            hint="Start afresh (--fresh), which forgets its state, or restore the directory from a copy.",
        ) from problem


def check_sources(checkpoint: Path, sources: Mapping[str, Sequence[str]]) -> None:
    """See that each job still reads the topics that it has read, and none that the query has read without it.

    Args:
        checkpoint: The directory of the query.
        sources: The topics that each job reads.

    Raises:
        StateError: A job reads others.
    """
    progress = read_progress(checkpoint)
    if progress is None:
        return
    noted = noted_sources(checkpoint)
    if not noted:  # an earlier version: only the topics of all jobs together are known
        sources, noted = {"": sorted({*chain(*sources.values())})}, {"": list(progress.next)}
    for job, names in sources.items():
        before = noted.get(job, names)
        left_out, added = sorted({*before} - {*names}), sorted({*names} - {*before})
        missed = [name for name in added if name in progress.next]
        if left_out:
            what = f"its state is of events of {', '.join(left_out)}, which it no longer reads; it reads "
            what += f"{', '.join(added or names)} now"
        elif missed:
            what = f"it reads {', '.join(missed)} now, of which the query has read events before, without this job"
        else:
            continue
        raise StateError(
            f"the source of {job or 'the job'} in {checkpoint} has changed: {what}",
            hint=f"Let it read {', '.join(before)} again; or start afresh (--fresh), which forgets the state and "
            "begins anew; or give the job another name or checkpoint directory, which keeps the old state. Nothing was "
            "changed so far.",
        )


def read_position(checkpoint: Path, batch: int) -> Position | None:
    """Read where a batch ends; None if the log does not hold it (any more)."""
    path = checkpoint / "spark" / "offsets" / str(batch)
    try:
        return _noted(path) if path.exists() else None
    except (OSError, ValueError, KeyError):
        return None


def find_gaps(checkpoint: Path, topics: Topics, names: Sequence[str]) -> list[Gap]:
    """Compare a checkpoint with its topics.

    Args:
        checkpoint: The job's directory.
        topics: The Kafka that it reads.
        names: The topics that it reads.
    """
    progress = read_progress(checkpoint)
    if progress is None:
        return []
    known, current = noted_topics(checkpoint), topics.ids(names)
    gaps = []
    for name in names:
        if name not in progress.next:
            continue  # nobody has read it: it begins where a new query would (`begin_topics`)
        renewed = name in known and known[name] != current[name]
        held = {partition.partition: partition for partition in topics.held(name).partitions}
        read = progress.next.get(name, {})
        # A partition that was added since then is read from its beginning.
        for number, wanted in sorted((dict.fromkeys(held, 0) | read).items()):
            there = held.get(number)
            earliest, latest = (there.earliest, there.latest) if there is not None else (0, 0)
            another = renewed and number in read
            if wanted >= 0 and (another or not earliest <= wanted <= latest):
                gaps.append(Gap(name, number, wanted, earliest, latest, another))
    return gaps


def refuse(checkpoint: Path, gaps: Sequence[Gap]) -> StateError:
    """Say what is lost, and what there is to choose."""
    told = "; ".join(str(gap) for gap in gaps[:5])
    more = f"; and {len(gaps) - 5} partitions more" if len(gaps) > 5 else ""
    return StateError(
        f"Kafka no longer holds what the job in {checkpoint} wants to read next: {told}{more}",
        hint="Choose: --accept-loss keeps the state and goes on with the oldest events that are there; --fresh forgets "
        "the state, too, and begins anew. Nothing was changed so far.",
    )


def begin_topics(progress: Progress, begins: Places) -> None:
    """Note where topics begin that a checkpoint has not read before, as if its last batch had ended there.

    Args:
        progress: How far the checkpoint has come; a batch that it has planned is planned anew.
        begins: Where they begin.
    """
    forget_plan(progress)
    _go_on_at(progress, {**progress.next, **begins})


def accept_loss(gaps: Sequence[Gap], progress: Progress) -> None:
    """Let a checkpoint go on at the oldest events that are there.

    Args:
        gaps: What is lost.
        progress: How far the checkpoint has come.
    """
    begun = progress.directory.parent / BEGINNING
    noted = json.loads(begun.read_text("utf-8")) if begun.exists() else {}
    if progress.committed < 0 and "mark" not in noted:
        # Not one batch is done: there is no state to keep.
        shutil.rmtree(progress.directory, ignore_errors=True)
        begun.unlink(missing_ok=True)
        return
    forget_plan(progress)
    places = {topic: dict(partitions) for topic, partitions in progress.next.items()}
    for gap in gaps:
        places.setdefault(gap.topic, {})[gap.partition] = gap.earliest
    _go_on_at(progress, places)


def _go_on_at(progress: Progress, places: Places) -> None:
    """Let the next batch begin at other places."""
    if progress.committed < 0:
        begun = progress.directory.parent / BEGINNING
        noted = json.loads(begun.read_text("utf-8"))
        noted.pop("planned", None)
        # Spark must not know of a batch that began elsewhere.
        shutil.rmtree(progress.directory, ignore_errors=True)
        write_durably(begun, json.dumps({**noted, **replace(progress.position, offsets=places).to_dict()}))
        return
    path = progress.directory / "offsets" / str(progress.committed)
    lines = path.read_text("utf-8").split("\n")
    for at, line in enumerate(lines[2:], start=2):
        if line.startswith("{"):
            lines[at] = _rewritten(line, places)
    _remove_checksum(path)
    write_durably(path, "\n".join(lines))


def forget_plan(progress: Progress) -> None:
    """Remove batches that were planned and not done, so that Spark plans them anew."""
    offsets = progress.directory / "offsets"
    for number in _numbers(offsets):
        if number > progress.committed:
            (offsets / str(number)).unlink(missing_ok=True)
            _remove_checksum(offsets / str(number))
    if offsets.is_dir():
        sync_directory(offsets)


def remember_topics(checkpoint: Path, topics: Topics, sources: Mapping[str, Sequence[str]]) -> None:
    """Note which topics these are and which job reads them, for the next start.

    Args:
        checkpoint: The directory of the query.
        topics: The Kafka that it reads.
        sources: The topics that each job reads.
    """
    ids = topics.ids(sorted({*chain(*sources.values())}))
    # What jobs have read that are not run now is kept: they may come back.
    told = {
        "topics": {**noted_topics(checkpoint), **ids},
        "jobs": {**noted_sources(checkpoint), **{job: sorted(names) for job, names in sources.items()}},
    }
    if _remembered(checkpoint) != told:
        write_durably(checkpoint / _FILE, json.dumps(told, indent=2) + "\n")


def write_topics(checkpoint: Path, ids: Mapping[str, str], sources: Mapping[str, Sequence[str]]) -> None:
    """Note the topics of a checkpoint that is made anew, and which job reads which."""
    told = {"topics": dict(ids), "jobs": {job: sorted(names) for job, names in sources.items()}}
    write_durably(checkpoint / _FILE, json.dumps(told, indent=2) + "\n")


def noted_topics(checkpoint: Path) -> dict[str, str]:
    """Tell Kafka's identities of the topics that a checkpoint has read, by name."""
    known: dict[str, str] = _remembered(checkpoint).get("topics", {})
    return known


def noted_sources(checkpoint: Path) -> dict[str, list[str]]:
    """Tell the topics that each job has read; empty where an earlier version did not note them."""
    noted: dict[str, list[str]] = _remembered(checkpoint).get("jobs", {})
    return noted


def _remembered(checkpoint: Path) -> dict[str, Any]:
    try:
        told: dict[str, Any] = json.loads((checkpoint / _FILE).read_text("utf-8"))
        _ = told["topics"]
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError) as problem:
        raise StateError(
            f"{checkpoint / _FILE} cannot be read: {problem}", hint="Remove it; the next start writes it anew."
        ) from problem
    return told


def _numbers(directory: Path) -> list[int]:
    if not directory.is_dir():
        return []
    return sorted(int(path.name) for path in directory.iterdir() if path.name.isdigit())


def _noted(path: Path) -> Position:
    """Read the Kafka source's line of an entry of Spark's offset log: version, metadata, then one line per source."""
    for line in path.read_text("utf-8").split("\n")[2:]:
        if line.startswith("{"):
            return Position.from_dict(json.loads(line))
    raise ValueError(f"{path} names no Kafka offsets")


def _rewritten(text: str, places: Places) -> str:
    told = json.loads(text)
    fresh = {**told, "offsets": places} if "now" in told else places
    return json.dumps(fresh, separators=(",", ":"))


def _remove_checksum(path: Path) -> None:
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
