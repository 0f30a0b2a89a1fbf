"""The open sinks of one job: each batch goes to those that do not hold it yet."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from headrace.errors import HeadraceError
from headrace.sinks.contract import SinkError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Self

    from headrace.sinks.contract import BatchFrames, BatchToken, Sink, SinkWriter

log = logging.getLogger(__name__)


def is_covered(token: BatchToken, last: BatchToken) -> bool:
    """Tell whether a batch is among those up to another one, by their numbers."""
    return token.batch <= last.batch


class SinkWriters:
    """Writes the batches of a job to its sinks.

    Args:
        job: The name of the job.
        sinks: Its sinks.
        covered: Tells whether a sink that holds a token of the same checkpoint holds a batch as well.
    """

    def __init__(
        self,
        job: str,
        sinks: Sequence[Sink],
        *,
        covered: Callable[[BatchToken, BatchToken], bool] = is_covered,
    ) -> None:
        self._job = job
        self._sinks = tuple(sinks)
        self._covered = covered
        self._open: list[tuple[Sink, SinkWriter]] = []
        self._last: list[BatchToken | None] = []

    def open(self) -> None:
        """Open all sinks, and ask each which batch was its last.

        Raises:
            SinkError: One cannot be opened.
        """
        self.close()
        try:
            for sink in self._sinks:
                try:
                    writer = sink.open(self._job)
                    self._open.append((sink, writer))
                    self._last.append(writer.last())
                except Exception as problem:
                    raise self._error(sink, "cannot be opened", problem) from problem
        except SinkError:
            self.close()
            raise

    def last(self) -> list[BatchToken]:
        """Give the tokens that the sinks held when they were opened."""
        return [token for token in self._last if token is not None]

    def lacks(self, token: BatchToken) -> bool:
        """Tell whether some sink does not hold a batch."""
        return any(not self._holds(place, token) for place in range(len(self._open)))

    def _holds(self, place: int, token: BatchToken) -> bool:
        last = self._last[place]
        return last is not None and last.checkpoint == token.checkpoint and self._covered(token, last)

    def write(self, token: BatchToken, frames: BatchFrames) -> None:
        """Write a batch to all sinks that do not hold it.

        Raises:
            SinkError: A sink failed. Those before it hold the batch.
        """
        for place, (sink, writer) in enumerate(self._open):
            if self._holds(place, token):
                continue
            try:
                writer.write(token, frames)
            except Exception as problem:
                raise self._error(sink, f"failed on batch {token.batch}", problem) from problem

    def close(self) -> None:
        """Close all sinks; what goes wrong is logged, since everything that was written stays."""
        for sink, writer in self._open:
            try:
                writer.close()
            except Exception:
                log.warning("sink %s of job %s did not close", sink.text, self._job, exc_info=True)
        self._open, self._last = [], []

    def _error(self, sink: Sink, what: str, problem: Exception) -> SinkError:
        """Name the sink that failed: whatever its code raises."""
        told = problem.message if isinstance(problem, HeadraceError) else f"{type(problem).__name__}: {problem}"
        hint = problem.hint if isinstance(problem, HeadraceError) else "The batch is repeated after a restart."
        return SinkError(f"sink {sink.text} of job {self._job!r} {what}: {told}", hint=hint)

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
