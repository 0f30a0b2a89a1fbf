"""Ranges of offsets come whole, in order, and end where they should, whatever lies between the records."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from headrace.dev.ports import free_port
from headrace.errors import BrokerError, StateError
from headrace.kafka import Connection, Producer, Topics, TopicSpec, TransactionalProducer
from headrace.kafka.ranges import LogEnds, Range, RangeReader, shared_reader

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.dev import EmbeddedBroker

pytestmark = pytest.mark.broker


@pytest.fixture
def topic(broker: EmbeddedBroker, topic_name: Callable[[], str]) -> str:
    name = topic_name()
    Topics(broker.connection).ensure([TopicSpec(name=name, partitions=2)])
    return name


def fill(connection: Connection, topic: str, count: int) -> dict[tuple[str, int], int]:
    with Producer(connection) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, key=b"%d" % number)
    log = LogEnds(connection)
    return log.ends(log.partitions([topic]))


def read(reader: RangeReader, *ranges: Range, rows: int = 100_000) -> dict[int, tuple[list[int], list[bytes | None]]]:
    found: dict[int, tuple[list[int], list[bytes | None]]] = {}
    for chunk in reader.read(ranges, rows=rows):
        offsets, values = found.setdefault(chunk.partition, ([], []))
        offsets += chunk.offsets.to_pylist()
        values += chunk.values.to_pylist()
    return found


def test_ranges_are_read_whole_and_in_order_again_and_again(broker: EmbeddedBroker, topic: str) -> None:
    ends = fill(broker.connection, topic, 30_000)
    reader = shared_reader(broker.connection)
    assert reader is shared_reader(broker.connection)
    for rows in (100_000, 700):
        found = read(reader, *(Range(*place, 0, end) for place, end in ends.items()), rows=rows)
        for (_, partition), end in ends.items():
            offsets, values = found[partition]
            assert offsets == list(range(end))
            numbers = [int(value or b"") for value in values]
            assert numbers == sorted(numbers)
        assert sum(len(values) for _, values in found.values()) == 30_000
    # A part in the middle, then one before it, then nothing: the client is told anew each time.
    assert read(reader, Range(topic, 0, 5_000, 5_010))[0][0] == list(range(5_000, 5_010))
    assert read(reader, Range(topic, 1, 17, 20), Range(topic, 0, 3, 3))[1][0] == [17, 18, 19]
    assert read(reader, Range(topic, 0, 9, 9)) == {}
    assert read(reader) == {}


def test_what_was_given_up_is_left_out_and_a_range_may_end_with_it(broker: EmbeddedBroker, topic: str) -> None:
    with TransactionalProducer(broker.connection, transactional_id=f"{topic}-tx") as producer:
        for round_ in range(6):
            producer.begin()
            producer.send(topic, b"%d" % round_, partition=0)
            producer.send(topic, None, partition=0)
            producer.flush()
            if round_ % 2:
                producer.abort()
            else:
                producer.commit()
    log = LogEnds(broker.connection)
    ends = log.ends(log.partitions([topic]))
    assert ends[topic, 0] == 18  # two records and a mark for each transaction
    reader = RangeReader(broker.connection, patience=20)
    offsets, values = read(reader, Range(topic, 0, 0, 18))[0]
    assert values == [b"0", None, b"2", None, b"4", None]
    assert offsets == [0, 1, 6, 7, 12, 13]
    assert read(reader, Range(topic, 0, 3, 6)) == {}  # given up as a whole
    assert read(reader, Range(topic, 0, 7, 13))[0] == ([7, 12], [None, b"4"])


def test_an_open_transaction_ends_what_can_be_read(broker: EmbeddedBroker, topic: str) -> None:
    log = LogEnds(broker.connection)
    with TransactionalProducer(broker.connection, transactional_id=f"{topic}-open") as producer:
        producer.begin()
        producer.send(topic, b"not yet", partition=0)
        producer.flush()
        assert log.ends([(topic, 0)]) == {(topic, 0): 0}
        producer.commit()
    # Kafka says that it is committed, and then tells the partitions.
    deadline = time.monotonic() + 30
    while (ends := log.ends([(topic, 0)])) == {(topic, 0): 0} and time.monotonic() < deadline:
        time.sleep(0.05)
    assert ends == {(topic, 0): 2}


def test_offsets_that_have_expired_are_named(broker: EmbeddedBroker, topic: str) -> None:
    ends = fill(broker.connection, topic, 100)
    admin = AdminClient(broker.connection.client_config())
    for future in admin.delete_records([TopicPartition(topic, 0, 20)]).values():
        future.result()
    assert LogEnds(broker.connection).begins([(topic, 0)]) == {(topic, 0): 20}
    with pytest.raises(StateError, match=f"{topic} partition 0: offset 0 is not there any more"):
        read(RangeReader(broker.connection), Range(topic, 0, 0, ends[topic, 0]))


def test_a_place_in_time(broker: EmbeddedBroker, topic: str) -> None:
    fill(broker.connection, topic, 10)
    log = LogEnds(broker.connection)
    places = log.partitions([topic])
    assert log.at(places, 0) == log.begins(places)
    assert log.at(places, (time.time_ns() // 1_000) + 3_600_000_000) == log.ends(places)


def test_what_is_not_there_is_said() -> None:
    nowhere = Connection(bootstrap=f"127.0.0.1:{free_port()}")
    with pytest.raises(BrokerError, match="Cannot reach Kafka"):
        LogEnds(nowhere, timeout=1).partitions(["a"])


def test_a_missing_topic_is_named(broker: EmbeddedBroker) -> None:
    with pytest.raises(BrokerError, match="a topic is missing: no-such-topic"):
        LogEnds(broker.connection).partitions(["no-such-topic"])
