"""Producers deliver or complain; consumers read what is committed, from where they are told."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from headrace.dev import EmbeddedBroker, ServerSettings
from headrace.dev.ports import free_port
from headrace.errors import BrokerError
from headrace.kafka import Connection, Consumer, FencedError, Producer, Record, Topics, TopicSpec, TransactionalProducer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NOWHERE = f"127.0.0.1:{free_port()}"
pytestmark = pytest.mark.broker


@pytest.fixture
def topic(broker: EmbeddedBroker, topic_name: Callable[[], str]) -> str:
    name = topic_name()
    Topics(broker.connection).ensure([TopicSpec(name=name, partitions=2)])
    return name


def values(connection: Connection, topic: str, **options: object) -> list[bytes | None]:
    with Consumer(connection, [topic], **options) as consumer:  # type: ignore[arg-type]
        return [record.value for record in consumer]


def test_a_record_comes_back_whole(broker: EmbeddedBroker, topic: str) -> None:
    with Producer(broker.connection) as producer:
        producer.send(
            topic,
            b"value",
            key=b"key",
            headers=[("a", b"1"), ("b", None), ("a", b"2")],
            timestamp=1_700_000_000_123_456,
        )
        producer.send(topic, None, key=b"key")
    with Consumer(broker.connection, [topic]) as consumer:
        first, second = list(consumer)
    assert first == Record(
        topic=topic,
        partition=first.partition,
        offset=0,
        timestamp=1_700_000_000_123_000,
        key=b"key",
        value=b"value",
        headers=(("a", b"1"), ("b", None), ("a", b"2")),
    )
    assert (first.header("a"), first.header("b"), first.header("c")) == (b"2", None, None)
    assert (second.value, second.headers, second.partition) == (None, (), first.partition)


def test_nothing_is_lost_when_the_buffer_is_full(broker: EmbeddedBroker, topic: str) -> None:
    count, size = 4000, 100_000  # 400 MB through a buffer of 128 MB
    block = os.urandom(1000) * (size // 1000)
    with Producer(broker.connection, compression="zstd", linger=0.0) as producer:
        for number in range(count):
            producer.send(topic, number.to_bytes(4, "big") + block)
    read = 0
    with Consumer(broker.connection, [topic]) as consumer:
        numbers = set()
        for record in consumer:
            assert record.value is not None
            numbers.add(int.from_bytes(record.value[:4], "big"))
            read += 1
    assert (read, numbers) == (count, set(range(count)))


def test_reading_can_start_at_the_beginning_the_end_a_time_or_an_offset(broker: EmbeddedBroker, topic: str) -> None:
    second = 1_000_000
    with Producer(broker.connection) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number, partition=0, timestamp=(1_700_000_000 + number) * second)
    connection = broker.connection
    assert values(connection, topic) == [b"%d" % n for n in range(10)]
    assert values(connection, topic, start="end") == []
    assert values(connection, topic, start=1_700_000_007 * second) == [b"7", b"8", b"9"]
    assert values(connection, topic, start=1_700_000_007 * second + 1) == [b"8", b"9"]
    assert values(connection, topic, start=1_800_000_000 * second) == []
    assert values(connection, topic, start={(topic, 0): 8}) == [b"8", b"9"]


def test_where_reading_starts_is_settled_before_anything_else_is_written(
    broker: EmbeddedBroker, topic_name: Callable[[], str]
) -> None:
    """The client would look for the end when it begins to fetch, and skip what is written until then."""
    name = topic_name()
    Topics(broker.connection).ensure([TopicSpec(name=name, partitions=1)])
    for start in ("end", time.time_ns() // 1000):
        with Consumer(broker.connection, [name], start=start) as consumer:
            assert consumer.positions == {(name, 0): 0}
    with Producer(broker.connection) as producer:
        producer.send(name, b"a")
    for start in ("end", time.time_ns() // 1000 + 60_000_000):
        with Consumer(broker.connection, [name], start=start) as consumer:
            assert consumer.positions == {(name, 0): 1}


def test_a_topic_that_was_just_created_can_be_read_from_its_end(
    broker: EmbeddedBroker, topic_name: Callable[[], str]
) -> None:
    """Right after it was created, a partition has no leader for some milliseconds."""
    for _ in range(4):
        name = topic_name()
        Topics(broker.connection).ensure([TopicSpec(name=name, partitions=24)])
        with Consumer(broker.connection, [name], start="end") as consumer:
            assert consumer.positions == {(name, partition): 0 for partition in range(24)}


def test_following_waits_for_more(broker: EmbeddedBroker, topic: str) -> None:
    with Producer(broker.connection) as producer:
        producer.send(topic, b"old")
    with Consumer(broker.connection, [topic], follow=True) as consumer:
        assert [record.value for record in consumer.read(timeout=10)] == [b"old"]
        assert consumer.read(timeout=0.1) == []
        assert not consumer.done
        with Producer(broker.connection) as producer:
            producer.send(topic, b"new")
        assert [record.value for record in consumer.read(timeout=10)] == [b"new"]


def test_reading_to_the_end_ends_while_others_go_on_writing(broker: EmbeddedBroker, topic: str) -> None:
    stop = threading.Event()

    def write() -> None:
        with Producer(broker.connection, linger=0.0) as producer:
            while not stop.is_set():
                producer.send(topic, b"x")
                producer.poll()
                time.sleep(0.001)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        while not (read := values(broker.connection, topic)):
            pass
    finally:
        stop.set()
        writer.join()
    assert set(read) == {b"x"}


def test_a_missing_topic_is_named(broker: EmbeddedBroker, topic: str) -> None:
    with pytest.raises(BrokerError, match=f"There is no topic {topic}x") as caught:
        Consumer(broker.connection, [topic + "x"])
    assert f"Did you mean {topic}" in caught.value.hint
    producer = Producer(broker.connection)
    producer.send(topic + "x", b"lost")
    with pytest.raises(BrokerError, match=f"There is no topic {topic}x"):
        producer.flush()
    producer.discard()


def test_a_partition_that_is_not_there_is_an_error(broker: EmbeddedBroker, topic: str) -> None:
    producer = Producer(broker.connection)
    producer.send(topic, b"x", partition=17)
    with pytest.raises(BrokerError, match="has no such partition"):
        producer.flush()
    producer.discard()


def test_a_record_that_is_too_large_is_an_error(broker: EmbeddedBroker, topic_name: Callable[[], str]) -> None:
    name = topic_name()
    Topics(broker.connection).ensure([TopicSpec(name=name, max_message_bytes=1000)])
    producer = Producer(broker.connection)
    producer.send(name, os.urandom(5000))
    with pytest.raises(BrokerError, match=f"too large for topic {name}") as caught:
        producer.flush()
    assert "max_message_bytes" in caught.value.hint
    producer.discard()


def test_an_offset_that_is_gone_is_an_error(broker: EmbeddedBroker, topic: str) -> None:
    with pytest.raises(BrokerError, match="not there"):
        values(broker.connection, topic, start={(topic, 0): 4711})


def test_only_committed_records_are_seen(broker: EmbeddedBroker, topic: str) -> None:
    producer = TransactionalProducer(broker.connection, transactional_id=f"{topic}-1")
    with producer.transaction():
        producer.send(topic, b"committed")

    def fail() -> None:
        with producer.transaction():
            producer.send(topic, b"given up")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    producer.begin()
    producer.send(topic, b"open")
    producer.flush()
    assert values(broker.connection, topic) == [b"committed"]
    assert set(values(broker.connection, topic, committed=False)) >= {b"committed", b"open"}
    producer.commit()
    producer.close()
    assert set(values(broker.connection, topic)) == {b"committed", b"open"}


def test_a_transaction_is_atomic_over_topics(broker: EmbeddedBroker, topic_name: Callable[[], str]) -> None:
    names = [topic_name(), topic_name()]
    Topics(broker.connection).ensure([TopicSpec(name=name, partitions=3) for name in names])
    with TransactionalProducer(broker.connection, transactional_id=names[0]) as producer:
        for batch in range(5):
            with producer.transaction():
                for name in names:
                    for part in range(3):
                        producer.send(name, b"%d" % batch, partition=part)
    for name in names:
        assert Counter(values(broker.connection, name)) == {b"%d" % n: 3 for n in range(5)}


def test_one_that_is_fenced_while_it_sends_says_so(broker: EmbeddedBroker, topic: str) -> None:
    first = TransactionalProducer(broker.connection, transactional_id=f"{topic}-busy")
    first.begin()
    first.send_all(topic, [b"before"] * 1_000)
    first.flush()
    second = TransactionalProducer(broker.connection, transactional_id=f"{topic}-busy")
    second.prepare()

    def send_on() -> None:
        for _ in range(50):
            first.send_all(topic, [b"too late" * 30] * 20_000)

    with pytest.raises(FencedError, match="taken over"):
        send_on()
    first.discard()
    second.discard()


def test_a_second_producer_with_the_same_id_fences_the_first(broker: EmbeddedBroker, topic: str) -> None:
    zombie = TransactionalProducer(broker.connection, transactional_id=topic)
    zombie.begin()
    zombie.send(topic, b"zombie")
    zombie.flush()
    heir = TransactionalProducer(broker.connection, transactional_id=topic)
    with heir.transaction():
        heir.send(topic, b"heir")
    with pytest.raises(FencedError, match="taken over"):
        zombie.commit()
    with pytest.raises(FencedError):
        zombie.begin()
    zombie.discard()
    heir.close()
    assert values(broker.connection, topic) == [b"heir"]


def test_without_a_broker_a_producer_and_a_consumer_say_so() -> None:
    nowhere = Connection(bootstrap=NOWHERE)
    with pytest.raises(BrokerError, match="Cannot reach Kafka"):
        Consumer(nowhere, ["a"])
    producer = Producer(nowhere, delivery_timeout=1)
    producer.send("a", b"x")
    with pytest.raises(BrokerError, match=f"did not arrive within 1 s. Cannot reach Kafka at {NOWHERE}"):
        producer.flush()
    producer.discard()
    transactional = TransactionalProducer(nowhere, transactional_id="a", timeout=1)
    with pytest.raises(BrokerError, match="Cannot reach Kafka"):
        transactional.begin()
    transactional.discard()


def test_a_broker_that_goes_away_is_noticed_and_welcome_back(tmp_path: Path, topic_name: Callable[[], str]) -> None:
    name = topic_name()
    settings = ServerSettings(data_dir=tmp_path / "data", port=free_port())
    with EmbeddedBroker(settings) as broker:
        connection = broker.connection
        Topics(connection).ensure([TopicSpec(name=name, partitions=1)])
        consumer = Consumer(connection, [name], follow=True, patience=0.5)
        patient = Consumer(connection, [name], follow=True, patience=120)
        producer = Producer(connection, delivery_timeout=4)
        producer.send(name, b"before")
        producer.flush()
        for reader in (consumer, patient):
            assert [record.value for record in reader.read(timeout=10)] == [b"before"]
    with pytest.raises(BrokerError, match="Cannot reach Kafka"):
        list(consumer)
    producer.send(name, b"lost")
    with pytest.raises(BrokerError, match="did not arrive within"):
        producer.flush()
    assert patient.read(timeout=0.1) == []
    with EmbeddedBroker(settings):
        producer.send(name, b"after")
        producer.flush(30)
        # The failed record may have been given up only on our side; what matters is that the new one is there.
        assert b"after" in [record.value for record in patient.read(timeout=30)]
        producer.close()
        consumer.close()
        patient.close()
