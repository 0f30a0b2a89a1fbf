"""Results of runs without a checkpoint to sinks: those of the runner in this process, and of closed ranges on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import polars as pl

from headrace.errors import PlanError
from headrace.sinks.contract import BatchToken
from headrace.sinks.writers import SinkWriters
from headrace.stream.sink_frames import sink_frames

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headrace.stream import Job

    Frames = pl.DataFrame | Sequence[pl.DataFrame] | None


class Gives(Protocol):
    """What a step of `Runner`, or a job of `headrace.spark.run.batch.run_batch`, gave."""

    @property
    def ways(self) -> Sequence[pl.DataFrame]:
        """Results, by way out in the order of the pipeline."""
        ...

    @property
    def late(self) -> Frames:
        """Late rows."""
        ...

    @property
    def dismissed(self) -> Frames:
        """Rows that could not be used."""
        ...

    @property
    def dead(self) -> Frames:
        """Records that could not be read."""
        ...


def write_to_sinks(job: Job, batches: Iterable[Gives], *, run: str) -> None:
    """Write what a job gave to its sinks, batch by batch.

    A sink that promises exactly once recognizes batches by the name of the run and their place in it: when the same run
    is repeated after a crash, what it holds is passed over.

    Args:
        job: The job; its sinks are opened and closed.
        batches: What its steps gave, in their order.
        run: Names the run. Another run over the same data has the same name if its results shall be there once.

    >>> from datetime import datetime, UTC
    >>> from headrace import Job, Stream, bounded
    >>> from headrace.inprocess import Runner
    >>> from headrace.sinks import memory
    >>> sink = memory()
    >>> stream = Stream.rows("doors", {"door": pl.String}).watermark(bounded("0s")).deduplicate("door", within="1h")
    >>> job = Job("doors", stream, sinks=[sink])
    >>> rows = pl.DataFrame({"door": ["a", "a", "b"], "event_time": [datetime(2026, 1, 1, tzinfo=UTC)] * 3})
    >>> runner = Runner(job)
    >>> write_to_sinks(job, [runner.step(rows), runner.finish()], run="2026-01-01")
    >>> sink.table("doors")["door"].to_list()
    ['a', 'b']

    Raises:
        PlanError: The job has no sinks.
        SinkError: A sink failed.
    """
    if not job.sinks:
        raise PlanError(f"job {job.name!r} has no sinks", hint="Give it some: Job(..., sinks=[parquet(...)]).")
    with SinkWriters(job.name, job.sinks) as writers:
        for number, batch in enumerate(batches):
            frames = sink_frames(
                job,
                zip(job.pipeline.outputs, batch.ways, strict=True),
                late=_several(batch.late),
                dismissed=_several(batch.dismissed),
                dead=_several(batch.dead),
                batch=f"run {run}/{number}",
            )
            writers.write(BatchToken(f"run {run}", number), frames)


def _several(frames: Frames) -> Sequence[pl.DataFrame]:
    if frames is None:
        return ()
    return (frames,) if isinstance(frames, pl.DataFrame) else frames
