"""A checkpoint compared with its topics before anything runs: real Kafka where topics count, no Spark."""

from __future__ import annotations

import json
import shutil
import uuid
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from headrace.errors import StateError
from headrace.kafka import Topics, TopicSpec
from headrace.kafka.producer import Producer
from headrace.spark.checkpoint.continuity import (
    BEGINNING,
    accept_loss,
    begin_topics,
    check_sources,
    find_gaps,
    read_progress,
    remember_topics,
)
from headrace.spark.checkpoint.moving import batches_before
from headrace.spark.checkpoint.positions import Position

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.dev import EmbeddedBroker
    from headrace.spark.checkpoint.positions import Places

pytestmark = pytest.mark.broker


def _checkpoint(path: Path, offsets: Places) -> Path:
    """Write what Spark notes of a batch that is done."""
    for part in ("offsets", "commits"):
        (path / "spark" / part).mkdir(parents=True)
    told = json.dumps({"offsets": offsets, "now": 5, "steady": 5})
    (path / "spark" / "offsets" / "0").write_text(f"v1\n{{}}\n{told}")
    (path / "spark" / "commits" / "0").write_text("v1\n{}")
    return path


class Log:
    """Topics, and what happens to them while a job is away."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.connection = broker.connection
        self.topics = Topics(broker.connection)
        self.admin = AdminClient(broker.connection.client_config())

    def make(self, partitions: int = 1) -> str:
        name = f"input.gaps-{uuid.uuid4().hex[:8]}"
        self.topics.ensure([TopicSpec(name=name, partitions=partitions)])
        return name

    def send(self, topic: str, partition: int, count: int) -> None:
        with Producer(self.connection) as producer:
            for _ in range(count):
                producer.send(topic, b"x", partition=partition)

    def expire(self, topic: str, partition: int, until: int) -> None:
        for future in self.admin.delete_records([TopicPartition(topic, partition, until)]).values():
            future.result(10)

    def add_partition(self, topic: str, total: int) -> None:
        for future in self.admin.create_partitions([NewPartitions(topic, total)]).values():
            future.result(10)


@pytest.fixture
def log(broker: EmbeddedBroker) -> Log:
    return Log(broker)


def test_expired_events_of_a_partition_that_was_added_are_a_loss_that_can_be_accepted(log: Log, tmp_path: Path) -> None:
    topic = log.make()
    log.send(topic, 0, 5)
    checkpoint = _checkpoint(tmp_path / "checkpoint", {topic: {0: 5}})
    remember_topics(checkpoint, log.topics, {"job": [topic]})
    log.add_partition(topic, 2)
    log.send(topic, 1, 9)
    assert find_gaps(checkpoint, log.topics, [topic]) == [], "all of it is there"
    log.expire(topic, 1, 3)

    gaps = find_gaps(checkpoint, log.topics, [topic])
    assert [str(gap) for gap in gaps] == [
        f"{topic} partition 1: 3 events from 0 on have expired; it begins at 3 now",
    ]
    progress = read_progress(checkpoint)
    assert progress is not None
    accept_loss(gaps, progress)
    after = read_progress(checkpoint)
    assert after is not None
    assert after.next == {topic: {0: 5, 1: 3}}
    assert find_gaps(checkpoint, log.topics, [topic]) == []


@pytest.mark.parametrize("moved", [False, True], ids=["in Spark's log", "after a move of the state"])
def test_a_topic_that_was_never_read_has_lost_nothing_and_begins_where_it_is_told(
    log: Log, tmp_path: Path, *, moved: bool
) -> None:
    topic, added = log.make(), log.make()
    log.send(added, 0, 9)
    log.expire(added, 0, 4)
    checkpoint = _checkpoint(tmp_path / "checkpoint", {topic: {0: 0}})
    if moved:
        shutil.rmtree(checkpoint / "spark")
        beginning = {"offsets": {topic: {"0": 0}}, "now": 5, "steady": 5, "mark": "m", "batches": 3}
        (checkpoint / BEGINNING).write_text(json.dumps(beginning))
    assert find_gaps(checkpoint, log.topics, [topic, added]) == []
    progress = read_progress(checkpoint)
    assert progress is not None
    begin_topics(progress, {added: {0: 4}})
    after = read_progress(checkpoint)
    assert after is not None
    assert (after.position, after.steady, after.committed) == (
        Position({topic: {0: 0}, added: {0: 4}}, 5),
        5,
        progress.committed,
    )
    assert find_gaps(checkpoint, log.topics, [topic, added]) == []
    assert batches_before(checkpoint) == 3 * moved
    log.expire(added, 0, 6)
    assert [(gap.wanted, gap.earliest) for gap in find_gaps(checkpoint, log.topics, [topic, added])] == [(4, 6)]


def test_a_partition_that_a_renewed_topic_has_more_was_never_read(log: Log, tmp_path: Path) -> None:
    topic = log.make()
    checkpoint = _checkpoint(tmp_path / "checkpoint", {topic: {0: 0}})
    remember_topics(checkpoint, log.topics, {"job": [topic]})
    log.topics.delete([topic])
    log.topics.ensure([TopicSpec(name=topic, partitions=2)])
    gaps = find_gaps(checkpoint, log.topics, [topic])
    assert [(gap.partition, gap.renewed) for gap in gaps] == [(0, True)]


def test_a_job_that_moves_to_a_topic_that_another_job_reads_is_told_so(log: Log, tmp_path: Path) -> None:
    mine, shared = log.make(), log.make()
    checkpoint = _checkpoint(tmp_path / "checkpoint", {mine: {0: 0}, shared: {0: 0}})
    before = {"moves": [mine], "stays": [shared], "stays-too": [mine]}
    remember_topics(checkpoint, log.topics, before)
    check_sources(checkpoint, before)
    with pytest.raises(StateError) as caught:
        check_sources(checkpoint, {**before, "moves": [shared]})
    assert caught.value.message.startswith("the source of moves in ")
    told = f"its state is of events of {mine}, which it no longer reads; it reads {shared} now"
    assert told in caught.value.message
    with pytest.raises(StateError, match="the source of stays in ") as caught:
        check_sources(checkpoint, {**before, "stays": [shared, mine]})
    assert f"it reads {mine} now, of which the query has read events before, without this job" in str(caught.value)


def test_a_topic_that_nobody_has_read_may_be_added_to_a_job(log: Log, tmp_path: Path) -> None:
    mine, added = log.make(), log.make()
    checkpoint = _checkpoint(tmp_path / "checkpoint", {mine: {0: 0}})
    remember_topics(checkpoint, log.topics, {"job": [mine]})
    check_sources(checkpoint, {"job": [mine, added]})
    remember_topics(checkpoint, log.topics, {"job": [mine, added]})
    with pytest.raises(StateError, match=f"its state is of events of {added}"):
        check_sources(checkpoint, {"job": [mine]})


def test_a_checkpoint_that_does_not_say_which_job_reads_what_is_compared_as_a_whole(log: Log, tmp_path: Path) -> None:
    mine, other = log.make(), log.make()
    checkpoint = _checkpoint(tmp_path / "checkpoint", {mine: {0: 0}})
    (checkpoint / "topics.json").write_text(json.dumps({"topics": log.topics.ids([mine])}))
    check_sources(checkpoint, {"job": [mine]})
    with pytest.raises(StateError, match=f"its state is of events of {mine}"):
        check_sources(checkpoint, {"job": [other]})
