"""One job's failure is its own: it stops, and the others of its query go on.

All jobs of a set share one query. When code of one of them raises, the error names the job (`blamed`); if it comes back
in the same batch after a restart, the job is left out from that batch on and noted here, in a file beside the
checkpoint: where it would read next, and why it stopped. Its key groups get nothing any more, so its state stays as it
was before the batch that it failed in. The next start lets it catch up from there (`headrace.spark.run.catchup`).
"""

from __future__ import annotations

import json
import uuid
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from headrace.errors import FailedJobError, HeadraceError, JobError, StateError
from headrace.savepoints.durable_files import write_durably

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from headrace.spark.checkpoint.positions import Places

_FILE = "stopped.json"


@contextmanager
def blamed(job: str) -> Iterator[None]:
    """Let what a job's own code raises carry the job's name; what is wrong with Kafka or the state stays as it is.

    >>> with blamed("counts"):
    ...     1 / 0
    Traceback (most recent call last):
    ...
    headrace.errors.FailedJobError: job 'counts' failed: ZeroDivisionError: division by zero
    """
    try:
        yield
    except FailedJobError:
        raise
    except JobError as problem:
        raise FailedJobError(job, problem.message, hint=problem.hint) from problem
    except HeadraceError:
        raise
    except Exception as problem:  # a function of the user may raise anything
        lines = str(problem).splitlines()
        told = f"{type(problem).__name__}: {lines[0]}" if lines else type(problem).__name__
        raise FailedJobError(job, told) from problem


@dataclass(frozen=True)
class StoppedJob:
    """A job that was left out of its query.

    Args:
        job: Its name.
        places: What it would read next: per topic and partition, the offset.
        message: Why it stopped.
        since: When, as text.
        mark: Names this stop among all; what the job is given when it comes back carries it.
    """

    job: str
    places: Places
    message: str
    since: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)


@dataclass(frozen=True)
class StoppedJobs:
    """The jobs of a checkpoint that are left out, in a file.

    Args:
        checkpoint: Its directory.
    """

    checkpoint: Path

    def read(self) -> dict[str, StoppedJob]:
        """Give the jobs that are left out, by name.

        Raises:
            StateError: The file cannot be read.
        """
        path = self.checkpoint / _FILE
        try:
            told = json.loads(path.read_text("utf-8"))
            return {name: _stopped(record) for name, record in told.items()}
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise StateError(
                f"{path} cannot be read: {problem}",
                hint="It says which jobs of the checkpoint stopped and where; restore it, or start afresh (--fresh).",
            ) from problem

    def add(self, stopped: StoppedJob) -> None:
        """Note that a job is left out."""
        self._write({**self.read(), stopped.job: stopped})

    def remove(self, job: str) -> None:
        """Note that a job takes part again."""
        known = self.read()
        if known.pop(job, None) is not None:
            self._write(known)

    def directory(self, job: str) -> Path:
        """Where a job that catches up keeps how far it has come."""
        return self.checkpoint / "stopped" / job

    def _write(self, jobs: Mapping[str, StoppedJob]) -> None:
        told = {name: asdict(each) for name, each in jobs.items()}
        write_durably(self.checkpoint / _FILE, json.dumps(told, indent=2) + "\n")


@dataclass(frozen=True)
class Return:
    """What a job brings along that takes part again after a stop.

    Args:
        batch: The first batch that it takes part in.
        mark: Names what it brings, so that it is unpacked once.
        segments: Its state, by step and key group.
        gone: Names of segments that it no longer has, by step and key group.
    """

    batch: int
    mark: str
    segments: dict[tuple[str, int], dict[str, bytes]] = field(repr=False)
    gone: dict[tuple[str, int], list[str]] = field(repr=False)


@dataclass(frozen=True)
class Attendance:
    """Who takes part in the batches of a query.

    Args:
        absent: Jobs that are left out.
        returning: Jobs that take part again, and what they bring along.
    """

    absent: frozenset[str] = frozenset()
    returning: dict[str, Return] = field(default_factory=dict)

    def takes_part(self, job: str, batch: int | None) -> bool:
        """Tell whether a job takes part in a batch.

        Args:
            job: Its name.
            batch: The batch's number; None where there is only one.
        """
        if job in self.absent:
            return False
        back = self.returning.get(job)
        return back is None or batch is None or batch >= back.batch


def _stopped(record: dict[str, object]) -> StoppedJob:
    places = {
        topic: {int(number): int(offset) for number, offset in each.items()}
        for topic, each in record["places"].items()  # type: ignore[attr-defined]
    }
    return StoppedJob(str(record["job"]), places, str(record["message"]), str(record["since"]), str(record["mark"]))
