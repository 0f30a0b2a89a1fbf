"""The sinks of a query's jobs, besides Kafka: opened with the query, written after Kafka at the driver.

Kafka goes first: a driver that was replaced is fenced there, and never comes to the sinks. After a crash in between,
Spark repeats the batch, Kafka's token says that it is out there, and each sink that does not hold it gets it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.sinks.contract import BatchToken
from headrace.sinks.writers import SinkWriters
from headrace.spark.checkpoint.positions import Position, Span
from headrace.spark.run import faults

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.sinks.contract import BatchFrames
    from headrace.stream import Job


class JobSinks:
    """Writes batches to the sinks of the jobs that have any.

    Args:
        jobs: The jobs of the query.
        checkpoint: The identity of the checkpoint.
    """

    def __init__(self, jobs: Sequence[Job], checkpoint: str) -> None:
        self._checkpoint = checkpoint
        self._span: Span | None = None
        #: Batches that were done before Spark began to count them anew; the numbers of tokens must grow.
        self.batches_before = 0
        self._writers = {
            job.name: SinkWriters(job.name, job.sinks, covered=self._is_covered) for job in jobs if job.sinks
        }

    @property
    def jobs(self) -> frozenset[str]:
        """The names of the jobs that have sinks."""
        return frozenset(self._writers)

    def open(self) -> None:
        """Open all sinks.

        Raises:
            SinkError: One cannot be opened.
        """
        for writers in self._writers.values():
            writers.open()

    def ends(self) -> list[Position]:
        """Tell up to where the sinks hold the batches of this checkpoint."""
        return [
            _position(token)
            for writers in self._writers.values()
            for token in writers.last()
            if token.checkpoint == self._checkpoint
        ]

    def write(self, batch: int, span: Span, frames: Mapping[str, Callable[[], BatchFrames]]) -> None:
        """Write a batch to every sink that does not hold it.

        Args:
            batch: Its number.
            span: What it reads.
            frames: Makes what each job gave, by job.

        Raises:
            SinkError: A sink failed.
            StateError: A sink holds a part of the batch.
        """
        if not self._writers:
            return
        faults.reach("before-sinks")
        self._span = span
        token = BatchToken(self._checkpoint, self.batches_before + batch, span.end.offsets, span.end.now)
        for job, writers in self._writers.items():
            if job in frames and writers.lacks(token):
                writers.write(token, frames[job]())
        faults.reach("after-sinks")

    def close(self) -> None:
        """Close all sinks."""
        for writers in self._writers.values():
            writers.close()

    def _is_covered(self, token: BatchToken, last: BatchToken) -> bool:  # noqa: ARG002 - the span says more
        assert self._span is not None  # noqa: S101 - set by `write`
        return self._span.within(_position(last))


def _position(token: BatchToken) -> Position:
    return Position({topic: dict(each) for topic, each in token.end.items()}, token.now)
