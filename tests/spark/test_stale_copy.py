"""A start that has to be refused ends no run that is healthy, and writes nothing again. Real Kafka, no Spark."""

from __future__ import annotations

import json
import threading
import uuid
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from headrace.errors import PlanError, StateError
from headrace.kafka import Consumer, FencedError, Topics, TopicSpec, commit_spec
from headrace.kafka.topics import dead_letter_spec, late_spec
from headrace.spark.checkpoint.identity import claim
from headrace.spark.checkpoint.positions import Position, Span
from headrace.spark.output import task_writer as apart
from headrace.spark.output.delivery import Deliveries
from headrace.spark.output.sink import Outgoing
from headrace.spark.output.task_writer import Order, bring_out
from headrace.spark.run import runner
from headrace.spark.run.runner import RunOptions, run_jobs
from headrace.spark.stages.slots import Slots
from headrace.stream import Job, Stream
from headrace.time import bounded
from headrace.windows import count, tumbling
from headrace_transit.schemas import VehiclePosition

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.dev import EmbeddedBroker
    from headrace.spark.run.progress import RunEvent
    from headrace.stream import Delivery

pytestmark = pytest.mark.broker


class SparkStartedError(Exception):
    """A start that was not refused."""


class Query:
    """A query that runs elsewhere, and a copy of its checkpoint from which it is started here."""

    def __init__(self, broker: EmbeddedBroker, path: Path) -> None:
        self.connection = broker.connection
        self.path = path
        name = f"copied-{uuid.uuid4().hex[:8]}"
        self.topic = f"input.{name}"
        stream = Stream.topic(self.topic, VehiclePosition).watermark(bounded("1s")).key_by("line")
        self.job = Job(name, stream.window(tumbling("5s")).aggregate(n=count()))
        inputs = [TopicSpec(name=self.topic), TopicSpec(name=self.job.result_topic), late_spec(self.job.result_topic)]
        Topics(self.connection).ensure([*inputs, dead_letter_spec(), commit_spec()])
        with claim(path, [self.job], key_groups=2, state_partitions=2, fresh=False) as identity:
            self.token = identity.token
        for part in ("offsets", "commits"):
            (path / "spark" / part).mkdir(parents=True)
        (path / "beginning.json").write_text(json.dumps(_at(0).to_dict() | {"offsets": {self.topic: {"0": 0}}}))

    def note(self, batch: int, *, done: bool) -> None:
        """Let the copy have a batch that is planned, or done."""
        end = self.span(batch).end.to_dict()
        (self.path / "spark" / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{json.dumps(end)}")
        if done:
            (self.path / "spark" / "commits" / str(batch)).write_text("v1\n{}")

    def span(self, batch: int) -> Span:
        begin, end = _at(batch), _at(batch + 1)
        return Span(Position({self.topic: {0: 0}}, begin.now), Position({self.topic: {0: 0}}, end.now))

    def running(self, mode: Delivery = "exactly_once", **options: Any) -> Deliveries:
        settings = {"apart_rows": None, **options}
        running = Deliveries(
            self.connection, [self.job], chosen=mode, token=self.token, partitions=2, path="/original", **settings
        )
        running.open()
        return running

    def write(self, running: Deliveries, batch: int, value: str, mode: Delivery = "exactly_once") -> None:
        records = [Outgoing(self.job.result_topic, [value.encode()], [value.encode()])]
        running.write(batch, {mode: records}, self.span(batch))

    def start_copy(self, **options: Any) -> None:
        told: list[RunEvent] = []
        settings = RunOptions(connection=self.connection, checkpoint=self.path, jars=[], **options)
        run_jobs([self.job], settings, told.append, threading.Event())

    def seen(self) -> Counter[str]:
        with Consumer(self.connection, [self.job.result_topic]) as consumer:
            return Counter((record.value or b"").decode() for record in consumer)


def _at(batch: int) -> Position:
    return Position({}, 1_000 * batch)


@pytest.fixture
def query(broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Query:
    def start(*_: object, **__: object) -> None:
        raise SparkStartedError

    monkeypatch.setattr(runner, "start_session", start)
    return Query(broker, tmp_path / "checkpoint")


def test_a_stale_copy_of_a_checkpoint_is_refused_and_the_run_goes_on(query: Query) -> None:
    running = query.running()
    query.write(running, 0, "a")
    query.note(0, done=True)
    query.write(running, 1, "b")
    query.write(running, 2, "c")
    with pytest.raises(StateError, match="older than its results"):
        query.start_copy()
    query.write(running, 3, "d")
    running.close()
    assert query.seen() == Counter("abcd")


def test_a_stale_copy_that_cannot_be_gone_on_with_ends_no_run_either(query: Query) -> None:
    running = query.running()
    query.write(running, 0, "a")
    query.note(0, done=True)
    ahead = Span(query.span(1).begin, Position({query.topic: {0: 7}}, 2_000))
    running.write(1, {}, ahead)  # of seven events that the topic no longer holds
    with pytest.raises(StateError, match="it was cut off or made anew"):
        query.start_copy(accept_old_checkpoint=True)
    query.write(running, 2, "b")
    running.close()
    assert query.seen() == Counter("ab")


def test_a_checkpoint_that_fits_its_results_starts(query: Query) -> None:
    running = query.running()
    query.write(running, 0, "a")
    query.note(0, done=True)
    query.write(running, 1, "b")
    query.note(1, done=False)
    running.close()
    with pytest.raises(SparkStartedError):
        query.start_copy()


@pytest.mark.parametrize(("before", "now"), [("exactly_once", "at_most_once"), ("at_most_once", "exactly_once")])
def test_another_promise_does_not_write_again_what_is_out(query: Query, before: Delivery, now: Delivery) -> None:
    running = query.running(before)
    query.write(running, 0, "a", before)
    query.note(0, done=False)  # it was killed between the sink and Spark's commit log
    running.close()
    with pytest.raises(StateError) as caught:
        query.start_copy(delivery=now)
    assert f"went out under {before}" in caught.value.message
    assert f"--delivery {before}" in caught.value.hint
    with pytest.raises(SparkStartedError):
        query.start_copy(delivery=before)
    query.note(0, done=True)
    with pytest.raises(SparkStartedError):
        query.start_copy(delivery=now)


def test_a_batch_under_way_may_be_repeated_at_least_once_but_an_older_copy_is_refused(query: Query) -> None:
    running = query.running()
    query.write(running, 0, "a")
    query.note(0, done=False)
    running.close()
    with pytest.raises(SparkStartedError):
        query.start_copy(delivery="at_least_once")
    again = query.running()
    query.write(again, 1, "b")
    again.close()
    with pytest.raises(StateError, match="older than its results"):
        query.start_copy(delivery="at_least_once")


def test_a_run_with_another_promise_is_fenced(query: Query) -> None:
    running = query.running()
    query.write(running, 0, "a")
    query.note(0, done=True)
    with pytest.raises(SparkStartedError):
        query.start_copy(delivery="at_most_once")
    with pytest.raises(FencedError):
        query.write(running, 1, "b")
    assert query.seen() == Counter("a")


@pytest.mark.parametrize("now", ["exactly_once", "at_most_once"])
def test_tasks_that_have_written_a_part_of_a_batch_count_though_none_is_written_by_tasks_now(
    query: Query, now: Delivery
) -> None:
    running = query.running(apart_rows=0)
    query.write(running, 0, "a")
    query.note(0, done=True)
    order = Order(
        query.connection, (), running.modes, 0, Slots(4, ()), running.query, query.token, running.run, running.most
    )
    name = query.job.name
    records = [Outgoing(query.job.result_topic, [b"b"], [b"b"])]
    assert bring_out(order, "exactly_once", 0, 1, [name], records, query.span(1))
    apart._open.clear()
    running.close()
    query.note(1, done=False)
    if now == "exactly_once":
        again = query.running(apart_rows=None)
        assert again.apart(1, query.span(1)) == (name,)
        again.close()
    else:
        with pytest.raises(StateError, match="went out under exactly_once"):
            query.start_copy(delivery=now, apart_rows=None)


@pytest.mark.parametrize("size", [0, -1])
def test_a_transaction_that_may_hold_nothing_is_refused(query: Query, size: int) -> None:
    with pytest.raises(PlanError, match="transaction_bytes") as caught:
        query.start_copy(transaction_bytes=size)
    assert "1 or more" in caught.value.hint
