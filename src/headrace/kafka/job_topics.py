"""The topics of jobs, derived from the jobs.

What a job writes is its own: its results, its late events, its further outputs, beside what all jobs share. What it
reads belongs to others; how such a topic should be is said by a plug-in (`headrace.topics`), or by whoever makes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import BrokerError
from headrace.kafka.topics import TopicSpec, commit_spec, dead_letter_spec, late_spec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.kafka.topics import Topics
    from headrace.stream import Job

#: How long results are kept.
_RETENTION = "24h"


def written_topics(jobs: Iterable[Job], *, partitions: int = 4) -> list[TopicSpec]:
    """Declare the topics that jobs write to.

    Args:
        jobs: The jobs.
        partitions: Of each result topic.
    """
    specs: dict[str, TopicSpec] = {}
    for job in jobs:
        for name in job.result_topics:
            specs[name] = TopicSpec(name=name, partitions=partitions, retention=_RETENTION)
        for name in ("", *job.outputs):
            if job.upsert_key(name):
                topic = job.output_topic(name) if name else job.result_topic
                specs[topic] = TopicSpec(name=topic, partitions=partitions, cleanup="compact")
        specs[job.late_topic] = late_spec(job.result_topic)
    return [*specs.values(), dead_letter_spec(), commit_spec()]


def read_topics(jobs: Iterable[Job], declared: Mapping[str, TopicSpec], *, partitions: int = 4) -> list[TopicSpec]:
    """Declare the topics that jobs read, where no other job of them writes it.

    Args:
        jobs: The jobs.
        declared: The source topics that plug-ins declare, by name.
        partitions: Of those that no plug-in declares.
    """
    jobs = list(jobs)
    written = {name for job in jobs for name in job.result_topics}
    names = dict.fromkeys(name for job in jobs for name in job.sources if name not in written)
    return [declared.get(name) or TopicSpec(name=name, partitions=partitions) for name in names]


def ensure_topics(topics: Topics, jobs: Sequence[Job], declared: Mapping[str, TopicSpec]) -> tuple[str, ...]:
    """Create the topics that jobs need and that are missing: what they write, and sources that a plug-in declares.

    Args:
        topics: The topics of a Kafka.
        jobs: What is to run.
        declared: The source topics that plug-ins declare, by name.

    Returns:
        What was created.

    Raises:
        BrokerError: A topic that somebody else has to write is not there.
    """
    written = written_topics(jobs)
    own = {spec.name for spec in written}
    sources = {name: job.name for job in jobs for name in job.sources if name not in own}
    missing = topics.missing([*own, *sources])
    if not missing:
        return ()
    absent = [name for name in missing if name in sources and name not in declared]
    if absent:
        raise BrokerError(
            f"there is no topic {absent[0]}, which the job {sources[absent[0]]} reads",
            hint=f"Start what writes to it, or create it: headrace topics create {absent[0]}",
        )
    return topics.ensure([*written, *(declared[name] for name in sources if name in declared)]).created
