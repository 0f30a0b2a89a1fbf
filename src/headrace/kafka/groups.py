"""Consumer groups: how far one has come.

An admin client can tell that, too, but librdkafka may crash the whole process if it asks while the group's coordinator
has only just come up: it then looks for the group that its client belongs to, and an admin client has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import Consumer as Client
from confluent_kafka import KafkaException, TopicPartition

from headrace.kafka.connection import ErrorWatch, kafka_error

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.kafka.connection import Connection


class GroupOffsets:
    """Asks for the offsets of a group, without joining it.

    Args:
        connection: Where.
        group: Its name.
    """

    def __init__(self, connection: Connection, group: str) -> None:
        self._watch = ErrorWatch(connection)
        own = {"group.id": group, "enable.auto.commit": False, "error_cb": self._watch}
        self._client = Client(connection.client_config() | own)

    def committed(self, places: Iterable[tuple[str, int]], *, timeout: float) -> dict[tuple[str, int], int]:
        """Tell the committed offsets of partitions; those that have none are left out.

        Raises:
            BrokerError: The group cannot be seen.
        """
        self._client.poll(0)  # hears what the client says of its connection, which would pile up
        try:
            held = self._client.committed([TopicPartition(*place) for place in places], timeout=timeout)
        except KafkaException as problem:
            raise self._watch.explain(kafka_error(problem)) from problem
        return {
            (place.topic, place.partition): place.offset for place in held if place.error is None and place.offset >= 0
        }

    def close(self) -> None:
        """Let go of the connection."""
        self._client.close()
