"""Topics are created as declared, compared, listed and deleted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, ResourceType

from headrace.dev.ports import free_port
from headrace.errors import BrokerError, ConfigError, PlanError, StateError
from headrace.kafka import Connection, Producer, Topics, TopicSpec, commit_spec, dead_letter_spec, late_spec
from headrace.kafka.topics import FOREVER, TopicDifference

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.dev import EmbeddedBroker
    from headrace.kafka.topics import CleanupPolicy


@pytest.mark.parametrize(
    "settings",
    [
        {"name": ""},
        {"name": "with space"},
        {"name": ".."},
        {"name": "x" * 250},
        {"name": "ä"},
        {"name": "a", "partitions": 0},
        {"name": "a", "retention": "10us"},
        {"name": "a", "replication": 0},
        {"name": "a", "min_insync_replicas": 0},
    ],
)
def test_a_declaration_that_kafka_would_refuse_is_refused_at_once(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        TopicSpec(**settings)


def test_a_retention_that_is_no_duration_is_named() -> None:
    with pytest.raises(PlanError, match="retention of topic a"):
        TopicSpec(name="a", retention="soon")


def test_declarations_in_kafkas_words() -> None:
    assert TopicSpec(name="a").config() == {"cleanup.policy": "delete"}
    assert TopicSpec(name="a", retention=FOREVER).config()["retention.ms"] == "-1"
    assert TopicSpec(name="a", retention="2h", max_message_bytes=5, compression="zstd").config() == {
        "cleanup.policy": "delete",
        "retention.ms": "7200000",
        "segment.ms": "7200000",
        "max.message.bytes": "5",
        "compression.type": "zstd",
    }
    assert commit_spec().config()["cleanup.policy"] == "compact"
    assert late_spec("analytics.cells").name == "analytics.cells.late"
    assert dead_letter_spec().name == "input.dead-letter"


@pytest.mark.broker
def test_topics_are_created_once_and_listed_with_their_offsets(
    broker: EmbeddedBroker, topic_name: Callable[[], str]
) -> None:
    topics = Topics(broker.connection)
    one, two = topic_name(), topic_name()
    specs = [TopicSpec(name=one, partitions=3, retention="1h"), TopicSpec(name=two, partitions=1, cleanup="compact")]
    assert topics.ensure(specs).created == (one, two)
    again = topics.ensure(specs, strict=True)
    assert (again.created, again.existing, again.differences) == ((), (one, two), ())

    with Producer(broker.connection) as producer:
        for number in range(5):
            producer.send(one, b"x", partition=number % 2)
    listed = {info.name: info for info in topics.overview()}
    assert [(p.partition, p.earliest, p.latest) for p in listed[one].partitions] == [(0, 0, 3), (1, 0, 2), (2, 0, 0)]
    assert (listed[one].count, listed[two].count) == (5, 0)
    assert not any(name.startswith("__") for name in listed)
    assert topics.get(one).config["retention.ms"] == "3600000"


@pytest.mark.broker
def test_a_topic_that_differs_is_reported_and_left_alone(broker: EmbeddedBroker, topic_name: Callable[[], str]) -> None:
    topics = Topics(broker.connection)
    name = topic_name()
    topics.ensure([TopicSpec(name=name, partitions=2, retention="1h")])
    wanted = TopicSpec(name=name, partitions=6, retention="1h", compression="zstd")
    found = topics.ensure([wanted])
    assert found.differences == (
        TopicDifference(topic=name, setting="partitions", declared="6", actual="2"),
        TopicDifference(topic=name, setting="compression.type", declared="zstd", actual="producer"),
    )
    with pytest.raises(BrokerError, match=f"opic {name} has partitions 2, but 6 is declared") as caught:
        topics.ensure([wanted], strict=True)
    assert "delete the topic" in caught.value.hint
    assert len(topics.get(name).partitions) == 2


@pytest.mark.broker
def test_deleted_topics_are_gone_and_can_be_made_anew(broker: EmbeddedBroker, topic_name: Callable[[], str]) -> None:
    topics = Topics(broker.connection)
    spec = TopicSpec(name=topic_name(), partitions=2)
    topics.ensure([spec])
    topics.delete([spec.name])
    with pytest.raises(BrokerError, match=f"There is no topic {spec.name}"):
        topics.get(spec.name)
    assert topics.ensure([spec]).created == (spec.name,)


@pytest.mark.broker
def test_a_missing_topic_is_named_with_what_is_like_it(broker: EmbeddedBroker, topic_name: Callable[[], str]) -> None:
    topics = Topics(broker.connection)
    name = topic_name()
    topics.ensure([TopicSpec(name=name)])
    topics.require([name])
    with pytest.raises(BrokerError, match=f"There is no topic {name}s") as caught:
        topics.require([name, name + "s"])
    assert f"Did you mean {name}" in caught.value.hint
    with pytest.raises(BrokerError, match="no topic"):
        topics.delete([name + "s"])


@pytest.mark.broker
def test_what_the_broker_refuses_is_said(broker: EmbeddedBroker, topic_name: Callable[[], str]) -> None:
    with pytest.raises(BrokerError, match="Cannot create topic") as caught:
        Topics(broker.connection).ensure([TopicSpec(name=topic_name(), replication=3)])
    assert "replication" in caught.value.hint


@pytest.mark.broker
def test_copies_are_set_for_all_topics_of_a_connection(broker: EmbeddedBroker, topic_name: Callable[[], str]) -> None:
    ours = replace(broker.connection, replication=1, min_insync_replicas=1)
    name = topic_name()
    Topics(ours).ensure([TopicSpec(name=name)])
    found = Topics(ours).get(name)
    assert found.replication == 1
    assert _set_on_topic(broker.connection, name)["min.insync.replicas"] == "1"

    unset = topic_name()
    Topics(broker.connection).ensure([TopicSpec(name=unset)])
    assert Topics(broker.connection).get(unset).replication == 1, "as many as there are brokers"
    assert "min.insync.replicas" not in _set_on_topic(broker.connection, unset)

    declared = topic_name()
    Topics(replace(broker.connection, replication=2)).ensure([TopicSpec(name=declared, replication=1)])
    assert Topics(broker.connection).get(declared).replication == 1, "what a topic declares wins"


@pytest.mark.broker
def test_more_copies_than_brokers_are_refused(broker: EmbeddedBroker, topic_name: Callable[[], str]) -> None:
    name = topic_name()
    with pytest.raises(BrokerError, match=f"Cannot create topic {name} with 2 copies: .* has 1 broker[.]") as caught:
        Topics(replace(broker.connection, replication=2)).ensure([TopicSpec(name=name)])
    assert "broker.replication" in caught.value.hint
    with pytest.raises(ConfigError, match="1 copy, of which 2 must have each record") as refused:
        Topics(replace(broker.connection, min_insync_replicas=2)).ensure([TopicSpec(name=name)])
    assert "broker.min_insync_replicas" in refused.value.hint
    assert Topics(broker.connection).missing([name]) == [name]


@pytest.mark.broker
def test_a_topic_with_fewer_copies_than_set_is_reported(broker: EmbeddedBroker, topic_name: Callable[[], str]) -> None:
    name = topic_name()
    Topics(broker.connection).ensure([TopicSpec(name=name)])
    done = Topics(replace(broker.connection, replication=3, min_insync_replicas=2)).ensure([TopicSpec(name=name)])
    assert {(each.setting, each.declared, each.actual) for each in done.differences} == {
        ("replication", "3", "1"),
        ("min.insync.replicas", "2", "1"),
    }


@pytest.mark.broker
@pytest.mark.parametrize("cleanup", ["delete", "compact,delete"])
def test_a_topic_whose_records_expire_is_not_compacted(
    broker: EmbeddedBroker, topic_name: Callable[[], str], cleanup: CleanupPolicy
) -> None:
    topics = Topics(broker.connection)
    kept, expiring = topic_name(), topic_name()
    topics.ensure([commit_spec(name=kept), TopicSpec(name=expiring, cleanup=cleanup)])
    topics.require_compacted(kept)
    with pytest.raises(StateError, match=f"{expiring} is not compacted .cleanup.policy is {cleanup}") as caught:
        topics.require_compacted(expiring)
    assert f"--entity-name {expiring} --add-config cleanup.policy=compact" in caught.value.hint


def _set_on_topic(connection: Connection, name: str) -> dict[str, str]:
    """Read the settings that a topic has of its own, not from the broker."""
    resource = ConfigResource(ResourceType.TOPIC, name)
    admin = AdminClient(connection.client_config())
    (found,) = admin.describe_configs([resource]).values()
    dynamic = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return {key: entry.value for key, entry in found.result(15).items() if entry.source == dynamic}


def test_without_a_broker_every_question_says_so() -> None:
    topics = Topics(Connection(bootstrap=f"127.0.0.1:{free_port()}"), timeout=0.5)
    with pytest.raises(BrokerError, match="Cannot reach Kafka"):
        topics.overview()
    with pytest.raises(BrokerError, match="Cannot reach Kafka"):
        topics.ensure([TopicSpec(name="a")])
