"""The topics of the application, declared in one place.

Input topics hold what happened, keyed by vehicle so that the events of a vehicle stay in order; each job has a topic
for its results and one for events that came too late for it; the commit topic is how results are written exactly once.

>>> [spec.name for spec in topics(["analytics.vehicle-distribution"])]  # doctest: +NORMALIZE_WHITESPACE
['input.vehicle-position', 'input.stop-event', 'input.dead-letter', 'analytics.vehicle-distribution',
 'analytics.vehicle-distribution.late', 'headrace.commits']
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.kafka import TopicSpec
from headrace.kafka.topics import commit_spec, dead_letter_spec, late_spec

if TYPE_CHECKING:
    from collections.abc import Iterable

VEHICLE_POSITIONS = "input.vehicle-position"
STOP_EVENTS = "input.stop-event"


def feed_topics() -> list[TopicSpec]:
    """Declare the topics that feeds of the application write to, as a plug-in does."""
    return input_topics()[:2]


def input_topics(*, partitions: int = 4) -> list[TopicSpec]:
    """Declare the topics that feeds write to.

    Args:
        partitions: A job reads with at most so many tasks at once.
    """
    return [
        TopicSpec(name=VEHICLE_POSITIONS, partitions=partitions, retention="6h"),
        TopicSpec(name=STOP_EVENTS, partitions=partitions, retention="6h"),
        dead_letter_spec(),
    ]


def topics(results: Iterable[str], *, further: Iterable[str] = (), partitions: int = 4) -> list[TopicSpec]:
    """Declare every topic that a set of jobs needs.

    Args:
        results: The result topics of the jobs.
        further: Those of their further outputs, which have no late events of their own.
        partitions: Of each input and result topic.
    """
    outputs = []
    for result in results:
        outputs += [TopicSpec(name=result, partitions=partitions, retention="24h"), late_spec(result)]
    outputs += [TopicSpec(name=result, partitions=partitions, retention="24h") for result in further]
    return [*input_topics(partitions=partitions), *outputs, commit_spec()]
