"""`why`: run a job again over events, and tell what became of those of a key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.savepoints.rescale import rescaled
from headrace.savepoints.state import snapshot_of, state_of
from headrace.stream import Job
from headrace.stream.pipeline import Pipeline, compile_plan
from headrace.time.instants import instant
from headrace.trace.events import Brought, Given
from headrace.trace.run import TracedRun
from headrace.trace.story import Fact, Story, around

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from headrace.savepoints.state import Snapshot
    from headrace.stream.stream import Stream


def why(
    job: Job | Stream | Pipeline,
    batches: Brought | Sequence[Given],
    *,
    key: Any,
    at: datetime | int | None = None,
    unread: Brought = None,
    partitions: Mapping[str, int] | None = None,
    snapshot: Snapshot | None = None,
) -> Story:
    """Tell what a job does with the events of a key, and why.

    The answer is about the batches that are given: what is late, and when windows fire, depends on them.

    Args:
        job: The job, or a stream.
        batches: The batches in their order; or the rows of one, as `Runner.step` takes them.
        key: The value of the key column, or a tuple of those of several; a text matches what looks like it.
        at: Tell only what is about this event time.
        unread: Events that have not been read yet.
        partitions: How many partitions each source has, where that is known: one that is silent holds time back.
        snapshot: The state to begin with, as `Runner.snapshot` gives it.

    >>> import polars as pl
    >>> from headrace.stream import Stream
    >>> from headrace.time import bounded
    >>> from headrace.windows import count, tumbling
    >>> doors = Stream.rows("doors", {"door": pl.String, "open": pl.Boolean}).watermark(bounded("2s"))
    >>> opened = doors.filter(pl.col("open")).key_by("door").window(tumbling("10s")).aggregate(n=count())
    >>> rows = pl.DataFrame({"door": ["a"], "open": [False], "event_time": [0]})
    >>> story = why(opened, rows.cast({"event_time": pl.Datetime("us", "UTC")}), key="a")
    >>> story.facts[0].kind, story.facts[0].data["open"]
    ('filtered', False)
    """
    pipeline, name = _pipeline(job)
    values = key if isinstance(key, tuple) else (key,)
    state = None
    if snapshot is not None:
        state = snapshot_of(rescaled(pipeline, state_of(snapshot), 1))
    run = TracedRun(pipeline, values, partitions=partitions, snapshot=state)
    for given in _given(batches):
        run.batch(given)
    run.end()
    if unread is not None:
        run.unread(Given(unread))
    facts = run.facts
    if not any(fact.event is not None or fact.kind in ("waits", "given") for fact in facts):
        shown = ", ".join("null" if value is None else str(value) for value in values)
        facts = [*facts, Fact("nothing", f"No event with the key {shown} came in these batches.")]
    moment = None if at is None else instant(at)
    return Story(name, values, tuple(facts if moment is None else around(facts, moment)), moment)


def _given(batches: Brought | Sequence[Given]) -> list[Given]:
    if isinstance(batches, (list, tuple)) and all(isinstance(each, Given) for each in batches):
        return list(batches)
    return [Given(batches)]  # type: ignore[arg-type]


def _pipeline(job: Job | Stream | Pipeline) -> tuple[Pipeline, str]:
    if isinstance(job, Pipeline):
        return job, ""
    if isinstance(job, Job):
        return job.pipeline, job.name
    return compile_plan(job.node, job.schema, prune=False), ""
