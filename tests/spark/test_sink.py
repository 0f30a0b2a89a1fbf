"""The sinks keep their promises over crashes, zombies and other people's open transactions; real Kafka, no Spark."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from headrace.kafka import COMMITS, Consumer, FencedError, Topics, TopicSpec, TransactionalProducer, commit_spec
from headrace.spark.output import task_writer as apart
from headrace.spark.output.delivery import Deliveries, author_name
from headrace.spark.output.sink import Author, ExactlyOnce, Outgoing, Sink, make_sink
from headrace.spark.output.task_writer import Order, bring_out
from headrace.spark.stages.slots import Slots
from headrace.stream import Job, Stream
from headrace.time import bounded
from headrace.windows import count, tumbling

if TYPE_CHECKING:
    from headrace.dev import EmbeddedBroker
    from headrace.kafka import Connection
    from headrace.stream import Delivery

pytestmark = pytest.mark.broker


class Place:
    """A topic, and a writer whose crashes are played."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self.connection: Connection = broker.connection
        self.name = f"sink-{uuid.uuid4().hex[:8]}"
        Topics(self.connection).ensure([TopicSpec(name=self.name, partitions=2), commit_spec()])

    def sink(self, delivery: Delivery = "exactly_once", *, checkpoint: str = "c1", opened: bool = True) -> Any:
        sink: Sink = make_sink(delivery, self.connection, Author(self.name, checkpoint, uuid.uuid4().hex))
        if opened:
            sink.open()
        return sink

    def records(self, *values: str) -> list[Outgoing]:
        written = [value.encode() for value in values]
        return [Outgoing(self.name, written, written)]

    def seen(self, *, committed: bool = True) -> Counter[str]:
        with Consumer(self.connection, [self.name], committed=committed) as consumer:
            return Counter((record.value or b"").decode() for record in consumer)


@pytest.fixture
def place(broker: EmbeddedBroker) -> Place:
    return Place(broker)


def test_a_batch_that_is_out_is_known_after_a_crash(place: Place) -> None:
    first = place.sink()
    assert not first.committed(0)
    assert first.write(0, place.records("a", "b")) == 2
    second = place.sink()  # the first was never closed: it crashed
    assert second.committed(0)
    assert not second.committed(1)
    assert not place.sink(checkpoint="c2").committed(0), "another checkpoint counts from the beginning"


def test_a_crash_within_a_transaction_leaves_nothing(place: Place) -> None:
    def interrupted() -> Any:
        yield from place.records("a", "b")
        raise KeyboardInterrupt

    sink = place.sink()
    with pytest.raises(KeyboardInterrupt):
        sink.write(0, interrupted())
    second = place.sink()
    assert not second.committed(0)
    second.write(0, place.records("a", "b"))
    assert place.seen() == Counter("ab")


def test_a_zombie_is_fenced(place: Place) -> None:
    zombie = place.sink()
    zombie.write(0, place.records("a"))
    place.sink().write(1, place.records("b"))
    with pytest.raises(FencedError):
        zombie.write(1, place.records("b"))
    assert place.seen() == Counter("ab")


def test_an_open_transaction_of_somebody_else_does_not_hide_our_token(place: Place) -> None:
    other = TransactionalProducer(place.connection, transactional_id=f"other-{place.name}")
    sink = place.sink()
    other.begin()
    other.send(COMMITS, b"{}", key=b"somebody else")
    other.flush()
    sink.write(0, place.records("a"))
    sink.close()
    # Until the other transaction ends, readers of committed records do not see what came after it, our token too.
    timer = threading.Timer(1.0, other.abort)
    timer.start()
    try:
        assert place.sink().committed(0)
    finally:
        timer.join()
        other.discard()


def test_at_least_once_repeats_and_at_most_once_loses(place: Place) -> None:
    least = place.sink("at_least_once")
    least.write(0, place.records("a"))
    again = place.sink("at_least_once")
    assert not again.committed(0)
    again.write(0, place.records("a"))
    assert place.seen(committed=False)["a"] == 2

    def interrupted() -> Any:
        yield from place.records("b")
        raise KeyboardInterrupt

    most = place.sink("at_most_once")
    with pytest.raises(KeyboardInterrupt):
        most.write(0, interrupted())
    assert place.sink("at_most_once").committed(0), "it counts as out, whatever became of it"


class TestApart:
    """Tasks of state partitions write for themselves."""

    def order(self, place: Place, deliveries: Deliveries) -> Order:
        modes = deliveries.modes
        return Order(place.connection, (), modes, 0, Slots(4, ()), deliveries.query, "c1", deliveries.run)

    def deliveries(self, place: Place) -> Deliveries:
        stream = (
            Stream.topic("input.apart", _message()).watermark(bounded("1s")).key_by("line").window(tumbling("5s"))
        ).aggregate(n=count())
        job = Job(place.name, stream, result_topic=place.name)
        made = Deliveries(place.connection, [job], chosen=None, token="c1", partitions=2, apart_rows=0)
        made.open()
        return made

    def bring_out(self, place: Place, order: Order, batch: int, *values: str, partition: int = 0) -> bool:
        jobs = [place.name]
        return bring_out(order, "exactly_once", partition, batch, jobs, place.records(*values))

    def test_a_partition_changes_hands_between_workers(self, place: Place) -> None:
        order = self.order(place, self.deliveries(place))
        assert self.bring_out(place, order, 0, "a")
        worker, apart._open = apart._open, {}  # the next batch goes to another worker
        try:
            assert self.bring_out(place, order, 1, "b")
            assert not self.bring_out(place, order, 1, "b"), "a second attempt at the same task"
        finally:
            apart._open = worker
        assert self.bring_out(place, order, 2, "c"), "the first worker takes its id back"
        assert place.seen() == Counter("abc")

    def test_what_partitions_have_begun_is_finished_in_the_same_way(self, place: Place) -> None:
        first = self.deliveries(place)
        order = self.order(place, first)
        assert first.apart(0) == (place.name,)
        self.bring_out(place, order, 0, "a", partition=0)
        # The driver crashes before the other partition is out; the next run would not write apart by itself.
        second = self.deliveries(place)
        second._heavy.clear()
        assert second.apart(0) == (place.name,)
        assert second.apart(1) == ()
        order = self.order(place, second)
        assert not self.bring_out(place, order, 0, "a", partition=0)
        assert self.bring_out(place, order, 0, "b", partition=1)
        second.write(0, {})
        third = self.deliveries(place)
        assert third.committed("exactly_once", 0)
        assert third.apart(0) == (), "it is out as a whole"
        assert place.seen() == Counter("ab")

    def test_a_task_of_an_earlier_run_writes_no_more(self, place: Place) -> None:
        old = self.order(place, self.deliveries(place))
        self.bring_out(place, old, 0, "a")
        self.deliveries(place)
        with pytest.raises(FencedError, match="another run"):
            self.bring_out(place, old, 1, "b")
        apart._open.clear()
        with pytest.raises(FencedError, match="another run"):
            self.bring_out(place, old, 1, "b")
        assert place.seen() == Counter("a")

    def test_a_task_of_an_earlier_run_does_not_take_its_id_from_the_later_one(self, place: Place) -> None:
        old = self.order(place, self.deliveries(place))
        self.bring_out(place, old, 0, "a")
        zombie, apart._open = apart._open, {}
        new = self.order(place, self.deliveries(place))
        self.bring_out(place, new, 1, "b")
        worker, apart._open = apart._open, zombie
        with pytest.raises(FencedError, match="another run"):
            self.bring_out(place, old, 1, "never")
        apart._open = worker
        kept = dict(worker)
        assert self.bring_out(place, new, 2, "c")
        assert apart._open == kept, "nobody was fenced"
        assert place.seen() == Counter("abc")

    def test_an_open_transaction_of_a_killed_task_holds_nobody_up(
        self, place: Place, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        order = self.order(place, self.deliveries(place))
        self.bring_out(place, order, 0, "a")
        name = author_name(place.name, "exactly_once", 0)
        killed = TransactionalProducer(place.connection, transactional_id=f"headrace.{name}")
        killed.begin()
        killed.send(COMMITS, b"{}", key=name.encode())
        killed.flush()
        # Kafka would end it after a minute: to wait for that is not allowed here.
        patient = Topics.await_stable
        monkeypatch.setattr(Topics, "await_stable", lambda topics, name, **_: patient(topics, name, timeout=5.0))
        begun = self.deliveries(place)
        assert begun.apart(0) == (place.name,), "the token that was committed is seen"
        killed.discard()

    def test_a_partition_writes_under_a_name_of_its_own(self) -> None:
        assert author_name("a+b", "exactly_once", 1) == "a+b#1"


def test_a_sink_that_is_not_open_says_so(place: Place) -> None:
    from headrace.errors import BrokerError

    for delivery in ("exactly_once", "at_least_once", "at_most_once"):
        with pytest.raises(BrokerError, match="not open"):
            place.sink(delivery, opened=False).write(0, [])
    assert isinstance(place.sink(), ExactlyOnce)


def _message() -> Any:
    from headrace_transit.schemas import VehiclePosition

    return VehiclePosition
