"""The rights that a query needs on a secured Kafka: no more than these."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.kafka.rights import Right
from headrace.kafka.topics import COMMITS, DEAD_LETTERS
from headrace.spark.output.committed_offsets import group_of
from headrace.spark.output.ownership import owner_id
from headrace.spark.run.publishing import PROGRESS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.stream import Job


def rights_of(jobs: Sequence[Job], *, query: str | None = None) -> list[Right]:
    """List what a query with these jobs must be allowed.

    Args:
        jobs: What is to run.
        query: The name of the query: that of its first jobs, which it keeps when jobs come and go. The names of these
            jobs if not given.
    """
    rights = []
    for job in jobs:
        rights += [Right("topic", topic, "read", why="the events") for topic in job.sources]
        rights += [Right("topic", topic, "write", why="the results") for topic in job.result_topics]
        rights.append(Right("topic", job.late_topic, "write", why="events that came too late"))
        rights.append(Right("group", group_of(job.name), "read", why="to show its lag to others", optional=True))
    rights.append(Right("topic", DEAD_LETTERS, "write", why="what cannot be read"))
    rights += [Right("topic", COMMITS, operation, why="which batches are out") for operation in ("read", "write")]
    together = "+".join(sorted(job.name for job in jobs))
    query = query or together
    alone = len(jobs) == 1 and query == together
    # The driver, the tasks that write apart and a job that catches up alone have an id each; all begin alike.
    why = "results exactly or at most once" + ("" if alone else ", also of a job that catches up")
    rights.append(Right("transactional-id", f"headrace.{query}", "write", prefixed=True, why=why))
    if not alone:
        # A query of one job has the right by the beginning of the name.
        rights += [
            Right("transactional-id", owner_id(job.name), "write", why="to be the one that writes its results")
            for job in jobs
        ]
    rights.append(Right("topic", PROGRESS, "write", why="to show how it is doing", optional=True))
    return list(dict.fromkeys(rights))
