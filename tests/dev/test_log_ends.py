"""Where partitions end, also while a broker comes up that does not know it yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.errors import BrokerError
from headrace.kafka.producer import Producer
from headrace.kafka.ranges import LogEnds
from headrace.kafka.topics import Topics, TopicSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka.admin import OffsetSpec

    from headrace.dev import EmbeddedBroker
    from headrace.kafka.ranges import Place

pytestmark = pytest.mark.broker

#: What a client tells when a broker has answered without an offset.
UNKNOWN = -1001


class _Unsure(LogEnds):
    """Asks a real broker, whose first answers it does not hear."""

    unheard = 2

    def _ask(self, places: Sequence[Place], spec: OffsetSpec) -> dict[Place, int]:
        found = super()._ask(places, spec)
        self.unheard -= 1
        return found if self.unheard < 0 else dict.fromkeys(found, UNKNOWN)


def test_an_end_that_the_broker_does_not_know_is_asked_for_again(broker: EmbeddedBroker) -> None:
    Topics(broker.connection).ensure([TopicSpec(name="log-ends", partitions=1)])
    with Producer(broker.connection) as producer:
        producer.send("log-ends", b"x")
    ends = _Unsure(broker.connection)
    assert ends.ends([("log-ends", 0)]) == {("log-ends", 0): 1}
    ends.unheard = 2
    assert ends.begins([("log-ends", 0)]) == {("log-ends", 0): 0}


def test_a_broker_that_never_knows_is_an_error_that_names_the_partition(broker: EmbeddedBroker) -> None:
    Topics(broker.connection).ensure([TopicSpec(name="log-ends", partitions=1)])
    ends = _Unsure(broker.connection, timeout=1.0)
    ends.unheard = 1_000_000
    with pytest.raises(BrokerError, match="log-ends partition 0"):
        ends.ends([("log-ends", 0)])
