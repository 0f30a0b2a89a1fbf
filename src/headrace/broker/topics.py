"""Topics: declared, created, compared, listed, deleted.

A job declares the topics it reads and writes as `TopicSpec`s; `Topics.ensure` creates what is missing and reports
what is there but different. Nothing creates a topic by accident, since the broker does not make them on first use.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headrace.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.broker.connection import Connection


@dataclass(frozen=True, kw_only=True)
class TopicSpec:
    """A topic as it should be.

    >>> TopicSpec(name="input.vehicle-position", partitions=4).partitions
    4
    """

    name: str
    partitions: int = 4
    config: dict[str, str] = field(default_factory=dict)


class Topics:
    """The topics of a Kafka cluster."""

    def __init__(self, connection: Connection, *, timeout: float = 15.0) -> None:
        self._admin = AdminClient(connection.client_config())
        self._timeout = timeout

    def ensure(self, specs: Sequence[TopicSpec]) -> None:
        """Create the topics that are missing."""
        new = [NewTopic(s.name, num_partitions=s.partitions, replication_factor=-1, config=s.config) for s in specs]
        for name, future in self._admin.create_topics(new, request_timeout=self._timeout).items():
            try:
                future.result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise BrokerError(f"Cannot create topic {name}: {error.args[0].str()}") from error
