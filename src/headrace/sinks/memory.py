"""A sink that keeps frames in memory, for tests of jobs."""

from __future__ import annotations

import threading
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import polars as pl

from headrace.sinks.contract import Sink, SinkWriter

if TYPE_CHECKING:
    from headrace.delivery import Delivery
    from headrace.sinks.contract import BatchFrames, BatchToken


@dataclass(frozen=True, slots=True)
class MemorySink(Sink):
    """Keeps all tables of a job in this process; a run in the same process continues them. See `memory`.

    Args:
        key: Names what is kept; equal sinks share it.
    """

    name: ClassVar[str] = "memory"
    delivery: ClassVar[Delivery] = "exactly_once"
    key: str = field(default_factory=lambda: uuid.uuid4().hex)

    def open(self, job: str) -> SinkWriter:
        """Continue what is kept for the job."""
        return _MemoryWriter(_store(self.key, job))

    def tables(self, job: str | None = None) -> dict[str, pl.DataFrame]:
        """Give everything that was written, by table: `<job>`, `<job>.<output>`, `<job>.late`, `<job>.dead_letters`.

        Args:
            job: The job; may be left out where the sink has only one.
        """
        with _lock:
            kept = [store for (key, name), store in _stores.items() if key == self.key and job in (None, name)]
            return {name: pl.concat(frames, how="diagonal") for store in kept for name, frames in store.frames.items()}

    def table(self, name: str) -> pl.DataFrame:
        """Give one table; a frame without columns if nothing was written to it."""
        return self.tables().get(name, pl.DataFrame())

    def tokens(self, job: str) -> list[BatchToken]:
        """Give the tokens of the batches that a job wrote, in their order."""
        with _lock:
            return list(_store(self.key, job).tokens)


def memory() -> MemorySink:
    """Keep results in this process, to look at them in a test.

    >>> from headrace.sinks import BatchFrames, BatchToken
    >>> sink = memory()
    >>> writer = sink.open("counts")
    >>> writer.write(BatchToken("c1", 0), BatchFrames("counts", {"counts": pl.DataFrame({"n": [1, 2]})}))
    >>> sink.table("counts")["n"].to_list()
    [1, 2]
    """
    return MemorySink()


@dataclass
class _Store:
    frames: dict[str, list[pl.DataFrame]] = field(default_factory=dict)
    tokens: list[BatchToken] = field(default_factory=list)


_lock = threading.RLock()
_stores: dict[tuple[str, str], _Store] = {}


def _store(key: str, job: str) -> _Store:
    with _lock:
        return _stores.setdefault((key, job), _Store())


class _MemoryWriter(SinkWriter):
    def __init__(self, store: _Store) -> None:
        self._store = store

    def last(self) -> BatchToken | None:
        return self._store.tokens[-1] if self._store.tokens else None

    def write(self, token: BatchToken, frames: BatchFrames) -> None:
        with _lock:
            if token in self._store.tokens:
                return
            for name, frame in frames.tables():
                self._store.frames.setdefault(name, []).append(frame)
            self._store.tokens.append(token)
