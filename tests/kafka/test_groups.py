"""How far a consumer group has come."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition

from headrace.kafka.groups import GroupOffsets
from headrace.kafka.topics import Topics, TopicSpec

if TYPE_CHECKING:
    from headrace.dev import EmbeddedBroker

pytestmark = pytest.mark.broker


def test_offsets_are_told_of_partitions_that_have_one_and_of_groups_that_exist(broker: EmbeddedBroker) -> None:
    Topics(broker.connection).ensure([TopicSpec(name="groups", partitions=2)])
    reader = Consumer(broker.connection.client_config() | {"group.id": "groups.readers"})
    reader.commit(offsets=[TopicPartition("groups", 1, 7)], asynchronous=False)
    reader.close()
    for group, found in (("groups.readers", {("groups", 1): 7}), ("groups.nobody", {})):
        offsets = GroupOffsets(broker.connection, group)
        assert offsets.committed([("groups", 0), ("groups", 1)], timeout=30.0) == found
        offsets.close()
