"""Offsets for other people's tools.

Spark keeps a query's offsets in its checkpoint, where Kafka's own tools do not look. They are therefore also committed
to a consumer group per job, `headrace.<job>`, after the batch they belong to is noted. Nothing is ever read back from
there: the checkpoint alone says where a query continues.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from headrace.spark.source.kafka_source import offsets_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Future

    from headrace.kafka import Connection
    from headrace.stream import Job

log = logging.getLogger(__name__)

_EVERY = 1.0
_TIMEOUT = 5.0


def group_of(job: str) -> str:
    """Name the consumer group that shows a job's offsets.

    >>> group_of("vehicle-distribution")
    'headrace.vehicle-distribution'
    """
    return f"headrace.{job}"


class OffsetMirror:
    """Commits the offsets of a query to its jobs' consumer groups, at most once a second."""

    def __init__(self, connection: Connection, jobs: Sequence[Job]) -> None:
        self._admin = AdminClient(connection.client_config())
        self._topics = {job.name: set(job.sources) for job in jobs}
        self._written = 0.0
        self._asked: list[Future[Any]] = []

    def show(self, progress: Any) -> None:
        """Commit what a query's progress says it has read, unless that was done a moment ago."""
        if progress is not None and time.monotonic() - self._written >= _EVERY:
            self._commit(progress)

    def finish(self, progress: Any) -> None:
        """Commit the last offsets and wait until they are there."""
        if progress is not None:
            self._commit(progress)
        for future in self._asked:
            try:
                future.result(_TIMEOUT)
            except (KafkaException, TimeoutError) as problem:
                # Only a view for people; the query itself does not depend on it.
                log.warning("offsets were not committed to a consumer group: %s", problem)

    def _commit(self, progress: Any) -> None:
        self._written = time.monotonic()
        read = offsets_of(progress)
        self._asked = []
        for job, topics in self._topics.items():
            places = [TopicPartition(topic, partition, offset) for topic, partition, offset in read if topic in topics]
            if places:
                request = ConsumerGroupTopicPartitions(group_of(job), places)
                self._asked += self._admin.alter_consumer_group_offsets([request]).values()
