"""The contract of a sink: frames in, under a token.

A `Sink` is a description: a frozen dataclass that checks itself when it is built and can be pickled. `Sink.open` gives
a `SinkWriter`, which holds the connections and files of one run. The runner calls it for each micro-batch:

1. `last()` once, after `open`: the token of the newest batch that the sink holds.
2. `write(token, frames)` for each batch that this token does not cover, in the order of the batches. When it returns,
   the promise of the sink holds for the batch.
3. `close()` at the end of the run, also after a failure.

A crash can come at any point, and the runner then repeats the batch with the same token. What the sink makes of that is
its promise, which it names as its `delivery`:

- `exactly_once`: the frames and the token become visible together, in one transaction, one rename or one commit. A
  process that is killed during `write` leaves nothing visible, or all of it with the token.
- `at_least_once`: `write` returns when the frames have arrived. The sink keeps no token (`last` returns None), or it
  keeps the token after the frames. A repeated batch is written again; readers drop repetitions by `idempotency_key`.
- `at_most_once`: the token is stored first, the frames after it.

What `write` raises ends the run with a `SinkError`. The run is started again as after any other failure, and the batch
is repeated.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.errors import EnvironmentProblem, PlanError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import polars as pl

    from headrace.delivery import Delivery

#: What dead letters are called among the tables of a batch; no output of a job can have this name.
DEAD_LETTERS = "dead_letters"
LATE = "late"


class SinkError(EnvironmentProblem):
    """A sink could not be opened, or could not take a batch."""


@dataclass(frozen=True, slots=True)
class BatchToken:
    """Names a batch: the same for every repetition of it, different for every other batch of a checkpoint.

    Args:
        checkpoint: The identity of the checkpoint; another one counts its batches from 0 again.
        batch: The number of the batch. Numbers grow, with gaps.
        end: Per topic and partition, the offset after the last record that the batch read; empty for runs without
            Kafka. Two batches with the same number and different offsets are different batches: that happens where an
            older copy of a checkpoint is used again.
        now: The time that was planned with the batch, in microseconds since the epoch.
    """

    checkpoint: str
    batch: int
    end: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    now: int = 0

    @property
    def name(self) -> str:
        """A short text that can be part of a file name; sorted by it, the batches of a checkpoint are in order.

        >>> BatchToken("c1", 7, {"scans": {0: 12}}).name
        '0000000007-f9822149'
        """
        said = json.dumps([self.checkpoint, _plain(self.end), self.now], sort_keys=True)
        return f"{self.batch:010d}-{hashlib.blake2b(said.encode(), digest_size=4).hexdigest()}"

    def to_json(self) -> str:
        """Give the token as text, for a sink to keep beside its results."""
        said = {"checkpoint": self.checkpoint, "batch": self.batch, "end": _plain(self.end), "now": self.now}
        return json.dumps(said, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> BatchToken:
        """Read a token.

        >>> token = BatchToken("c1", 7, {"scans": {0: 12}}, now=5)
        >>> BatchToken.from_json(token.to_json()) == token
        True

        Raises:
            SinkError: The text is no token.
        """
        try:
            said = json.loads(text)
            end = {topic: {int(n): int(at) for n, at in each.items()} for topic, each in said["end"].items()}
            return cls(str(said["checkpoint"]), int(said["batch"]), end, int(said["now"]))
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise SinkError(
                f"{text[:100]!r} is no batch token: {problem}",
                hint="Something other than Headrace has changed what the sink keeps. Restore it, or remove its data.",
            ) from problem


@dataclass(frozen=True, slots=True)
class BatchFrames:
    """What a job gave in a batch.

    Args:
        results: Result rows by output: the job's own under the job's name, those of a further output under
            `<job>.<output>`. The columns are those of the stream, then `idempotency_key` (String). Outputs without
            rows may be missing.
        late: Rows that came after their windows had expired, or None. They have the columns that the job read of an
            event, and `window_start`, `window_end`, `lateness` and `watermark` as far as the step has them;
            `record_value` (Binary), `record_topic` and `record_format` (String) where the record as it was read is
            still known: topic and format are null for the envelope.
        dead_letters: Records that could not be read, and events that the job dismissed, with the columns of
            `DeadLetter` (docs/schemas.md), or None.
        job: The name of the job.
    """

    job: str
    results: Mapping[str, pl.DataFrame]
    late: pl.DataFrame | None = None
    dead_letters: pl.DataFrame | None = None

    def tables(self) -> Iterator[tuple[str, pl.DataFrame]]:
        """Go through all frames that have rows: `<job>`, `<job>.<output>`, `<job>.late`, `<job>.dead_letters`."""
        named = [
            *self.results.items(),
            (f"{self.job}.{LATE}", self.late),
            (f"{self.job}.{DEAD_LETTERS}", self.dead_letters),
        ]
        for name, frame in named:
            if frame is not None and frame.height:
                yield name, frame


class SinkWriter(ABC):
    """Takes the batches of one job in one run. Methods are called from one thread at a time."""

    @abstractmethod
    def last(self) -> BatchToken | None:
        """Tell the token of the newest batch that the sink holds; None for none, or where it keeps no tokens."""

    @abstractmethod
    def write(self, token: BatchToken, frames: BatchFrames) -> None:
        """Write a batch; when this returns, the promise holds for it.

        It is also called for batches without rows: the token then only says that time went on.

        Args:
            token: Names the batch; the same again if it is repeated.
            frames: What the job gave.
        """

    def close(self) -> None:  # noqa: B027 - most sinks have nothing to release
        """Release what is held. Everything that was written stays."""


class Sink(ABC):
    """Where the results of a job go besides its Kafka topics.

    Subclasses are frozen dataclasses that can be pickled. `headrace.testing.contracts.check_sink` runs what every sink
    must hold; docs/sinks.md shows how to write one.
    """

    #: What the sink is called in messages and in the registry.
    name: ClassVar[str]
    #: What it promises.
    delivery: ClassVar[Delivery]

    @abstractmethod
    def open(self, job: str) -> SinkWriter:
        """Get ready to write the batches of a job. A writer of an earlier run may still exist in another process.

        Args:
            job: The name of the job. Several jobs may write to equal sinks at the same time.
        """

    @property
    def text(self) -> str:
        """Describe the sink in a line of `explain()`."""
        return self.name


def check_sinks(job: str, sinks: Any) -> tuple[Sink, ...]:
    """See that all are sinks, each once.

    Raises:
        PlanError: One is not, or there twice.
    """
    several = (sinks,) if isinstance(sinks, Sink) else tuple(sinks)
    for sink in several:
        if not isinstance(sink, Sink):
            raise PlanError(
                f"job {job!r} has the sink {sink!r}, which is a {type(sink).__name__}",
                hint="Give sinks such as headrace.sinks.parquet(...), or subclasses of headrace.sinks.Sink.",
            )
    for number, sink in enumerate(several):
        if sink in several[:number]:
            raise PlanError(f"job {job!r} has the sink {sink.text} twice", hint="Name it once.")
    return several


def _plain(end: Mapping[str, Mapping[int, int]]) -> dict[str, dict[str, int]]:
    return {topic: {str(n): at for n, at in sorted(each.items())} for topic, each in sorted(end.items())}
