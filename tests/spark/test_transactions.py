"""Transactions that Kafka ends at their time-out, and batches that are larger than one transaction."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from headrace.dev import EmbeddedBroker, ServerSettings
from headrace.errors import BrokerError
from headrace.inprocess import Runner
from headrace.kafka import COMMITS, Consumer, FencedError, Topics, TopicSpec, TransactionalProducer, commit_spec
from headrace.kafka.producer import ExpiredError, TimeoutTooLongError
from headrace.spark.output import task_writer as apart
from headrace.spark.output.delivery import Deliveries
from headrace.spark.output.sink import Author, ExactlyOnce, Outgoing
from headrace.spark.output.task_writer import Order, bring_out
from headrace.spark.output.tokens import Part, read_tokens
from headrace.spark.run import faults
from headrace.spark.run.progress import StateChange
from headrace.spark.run.supervisor import Restarts, may_pass
from headrace.spark.stages.slots import Slots
from headrace.stream import Job, Stream
from headrace.time import bounded
from headrace.time.instants import instant
from headrace.windows import count, tumbling
from headrace_transit.schemas import VehiclePosition
from headrace_transit.simulator import Fleet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.spark.conftest import Bench

    from headrace.kafka import Connection
    from headrace.spark.run.progress import RunEvent

pytestmark = pytest.mark.broker

START = datetime(2026, 3, 2, 7, 30, tzinfo=UTC)
POSITIONS = Stream.topic("input.transactions", VehiclePosition).watermark(bounded("1s"), idle_after="1min")
PER_VEHICLE = Job("per-vehicle", POSITIONS.key_by("vehicle_id").window(tumbling("5s")).aggregate(reports=count()))
QUICK = Restarts(pause=(0.1, 0.1))


class Crash(BaseException):
    """Stands for the end of the process: nothing in the code catches it."""


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A broker that looks twice a second which transactions are over their time, not every ten seconds."""
    settings = ServerSettings(
        data_dir=tmp_path_factory.mktemp("impatient"),
        properties={"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"},
    )
    with EmbeddedBroker(settings) as running:
        yield running


class Place:
    """A topic and its writers."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.name = f"transactions-{uuid.uuid4().hex[:8]}"
        Topics(connection).ensure([TopicSpec(name=self.name, partitions=2), commit_spec()])

    def sink(self, *, most: int = 2**20) -> ExactlyOnce:
        sink = ExactlyOnce(self.connection, Author(self.name, "c1", uuid.uuid4().hex), most=most)
        sink.open()
        return sink

    def records(self, *values: str) -> list[Outgoing]:
        written = [value.encode() for value in values]
        return [Outgoing(self.name, written, written)]

    def seen(self) -> Counter[str]:
        with Consumer(self.connection, [self.name]) as consumer:
            return Counter((record.value or b"").decode() for record in consumer)

    def part(self) -> Part | None:
        return read_tokens(self.connection, [self.name])[self.name].part


@pytest.fixture
def hurried(impatient: EmbeddedBroker) -> Place:
    return Place(replace(impatient.connection, transaction_timeout=1.0))


def arm(monkeypatch: pytest.MonkeyPatch, directory: Path, point: str, what: str) -> None:
    directory.mkdir(exist_ok=True)
    (directory / point).write_text(what)
    monkeypatch.setenv(faults.VARIABLE, str(directory))


def crash_at(monkeypatch: pytest.MonkeyPatch, point: str, *, times: int = 1, error: Callable[[], Any] = Crash) -> None:
    """Raise the n-th time that a point is reached."""
    left = [times]

    def reach(reached: str) -> None:
        if reached == point:
            left[0] -= 1
            if left[0] == 0:
                raise error()

    monkeypatch.setattr(faults, "reach", reach)


def test_a_pause_longer_than_the_time_out_is_no_second_run(
    hurried: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = hurried.sink()
    sink.write(0, hurried.records("a"))
    arm(monkeypatch, tmp_path / "faults", "before-commit", "sleep 4")
    with pytest.raises(ExpiredError, match="was open for longer than 1 s, and Kafka ended it") as caught:
        sink.write(1, hurried.records("b"))
    assert may_pass(caught.value), "the run is started again"
    assert "transaction_timeout_ms" in caught.value.hint
    again = hurried.sink()
    assert not again.committed(1)
    again.write(1, hurried.records("b"))
    assert hurried.seen() == Counter("ab")


def test_a_second_run_is_told_from_a_pause(hurried: Place) -> None:
    paused = hurried.sink()
    hurried.sink().write(0, hurried.records("a"))
    with pytest.raises(FencedError, match=r"another run of .* has begun") as caught:
        paused.write(0, hurried.records("a"))
    assert not may_pass(caught.value)
    assert hurried.seen() == Counter("a")


def test_what_is_sent_after_the_time_out_is_refused_as_fenced(hurried: Place) -> None:
    producer = TransactionalProducer(hurried.connection, transactional_id=f"late-{hurried.name}")
    producer.begin()
    producer.send(hurried.name, b"a")
    producer.flush()
    Topics(hurried.connection).await_stable(hurried.name, timeout=30)  # until Kafka has ended the transaction
    producer.send(hurried.name, b"b")
    with pytest.raises(FencedError, match="at the time-out"):
        producer.flush()
    producer.discard()
    assert hurried.seen() == Counter()


def test_a_time_out_that_the_broker_does_not_allow_is_named(broker: EmbeddedBroker) -> None:
    connection = replace(broker.connection, transaction_timeout=3600.0)
    with pytest.raises(TimeoutTooLongError, match=r"3600 s is longer than .*transaction\.max\.timeout\.ms") as caught:
        TransactionalProducer(connection, transactional_id="too-long").prepare()
    assert "broker.transaction_timeout_ms" in caught.value.hint
    assert not may_pass(caught.value)


def test_a_batch_in_parts_is_finished_after_a_crash_in_any_order(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(broker.connection)
    names = [f"record-{number:03}" for number in range(200)]
    first = place.sink(most=800)
    first.write(0, place.records("before"))
    with monkeypatch.context() as patched:
        crash_at(patched, "between-parts", times=2)
        with pytest.raises(Crash):
            first.write(1, place.records(*names))
    out = place.seen()
    assert 1 < len(out) < 200
    assert set(out.values()) == {1}

    second = place.sink(most=10_000_000)  # another size: what was begun is finished as it was begun
    assert second.committed(0)
    assert not second.committed(1)
    assert place.part() == Part(1, parts=5, done=2), "the token of the new run still says what is out"
    # The batch is repeated: the same records in another order, with another last digit.
    random.Random(4).shuffle(names)
    second.write(1, [Outgoing(place.name, [name.encode() for name in names], [f"{name} ".encode() for name in names])])
    found = Counter({name.strip(): 0 for name in place.seen()})
    for name, times in place.seen().items():
        found[name.strip()] += times
    assert found == Counter(["before", *names])
    assert place.part() is None
    assert place.sink().committed(1)


def test_records_of_one_key_stay_together_and_in_order() -> None:
    keys = [f"k{number % 7}".encode() for number in range(70)]
    values = [str(number).encode() for number in range(70)]
    parts = Outgoing("t", keys, values).divided(3)
    assert sum(map(len, parts)) == 70
    for part in parts:
        for key in set(part.keys):
            own = [value for each, value in zip(part.keys, part.values, strict=True) if each == key]
            assert own == [value for each, value in zip(keys, values, strict=True) if each == key]
    one_reason = Outgoing("t", [b"reason"] * 70, values, names=values)
    assert [len(part) > 0 for part in one_reason.divided(3)] == [True] * 3


def test_a_task_writes_in_parts_and_the_next_run_knows_that_it_has_begun(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(broker.connection)
    stream = POSITIONS.key_by("line").window(tumbling("5s")).aggregate(n=count())
    job = Job(place.name, stream, result_topic=place.name)
    names = [f"record-{number:03}" for number in range(100)]

    def opened() -> tuple[Deliveries, Order]:
        made = Deliveries(place.connection, [job], chosen=None, token="c1", partitions=1, apart_rows=0, most=400)
        made.open()
        return made, Order(place.connection, (), made.modes, 0, Slots(4, ()), made.query, "c1", made.run, made.most)

    _, order = opened()
    with monkeypatch.context() as patched:
        crash_at(patched, "between-parts")
        with pytest.raises(Crash):
            bring_out(order, "exactly_once", 0, 0, [place.name], place.records(*names))
    assert 0 < len(place.seen()) < 100
    apart._open.clear()
    deliveries, order = opened()
    deliveries._heavy.clear()
    assert deliveries.apart(0) == (place.name,), "it was begun by the tasks"
    assert deliveries.took_part(0, place.name)
    assert bring_out(order, "exactly_once", 0, 0, [place.name], place.records(*names))
    assert place.seen() == Counter(names)


def test_transactions_become_smaller_after_one_has_expired(
    hurried: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = POSITIONS.key_by("line").window(tumbling("5s")).aggregate(n=count())
    job = Job(hurried.name, stream, result_topic=hurried.name)
    deliveries = Deliveries(hurried.connection, [job], chosen=None, token="c1", partitions=1, apart_rows=None)
    before = deliveries.most
    deliveries.open()
    arm(monkeypatch, tmp_path / "faults", "before-commit", "sleep 4")
    with pytest.raises(ExpiredError):
        deliveries.write(0, {"exactly_once": hurried.records("a")})
    deliveries.close()
    assert deliveries.most < before


def reports(first: int, last: int) -> pl.DataFrame:
    fleet = Fleet(vehicles=60, seed=3, start=START, gps_loss=0.0)
    return fleet.positions(first, seconds=last - first).with_columns(ingestion_time=pl.col("event_time"))


def at(second: int) -> int:
    return instant(START + timedelta(seconds=second))


def answers(frame: pl.DataFrame) -> list[tuple[object, ...]]:
    return sorted(frame.select("window_end", "vehicle_id", "reports").rows(), key=str)


@pytest.mark.spark
@pytest.mark.slow
def test_a_run_that_was_paused_goes_on_by_itself(
    bench: Bench, impatient: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = replace(bench, broker=impatient)
    bench.prepare(PER_VEHICLE)
    bench.send_rows("input.transactions", rows := reports(0, 30), VehiclePosition, "vehicle_id")
    arm(monkeypatch, tmp_path / "faults", "before-commit", "sleep 6")
    told: list[RunEvent] = []
    connection = replace(impatient.connection, transaction_timeout=2.0)
    bench.run_to(PER_VEHICLE, watermark=at(26), connection=connection, restarts=QUICK, tell=told.append)
    restarts = [event.detail for event in told if isinstance(event, StateChange) and event.state == "restarting"]
    assert len(restarts) == 1
    assert "was open for longer than 2 s, and Kafka ended it" in restarts[0]
    assert answers(bench.read("analytics.per-vehicle")) == answers(Runner(PER_VEHICLE).step(rows).results)


@pytest.mark.spark
@pytest.mark.slow
def test_a_batch_larger_than_a_transaction_is_out_once_after_a_crash_between_its_parts(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job("in-parts", PER_VEHICLE.stream)
    bench.prepare(job)
    bench.send_rows("input.transactions", rows := reports(0, 30), VehiclePosition, "vehicle_id")
    with monkeypatch.context() as patched:
        crash_at(patched, "between-parts", times=2, error=lambda: BrokerError("crashed between two parts"))
        with pytest.raises(BrokerError, match="crashed between two parts"):
            bench.run_to(job, watermark=at(26), transaction_bytes=2_000, restarts=Restarts(most=0))
    expected = Runner(job).step(rows).results
    assert 0 < bench.count(job.result_topic) < expected.height
    bench.run_to(job, watermark=at(26))
    found = bench.read(job.result_topic)
    assert answers(found) == answers(expected)
    assert found.get_column("idempotency_key").is_unique().all()
    with Consumer(bench.broker.connection, [COMMITS]) as tokens:
        assert any(b'"parts":' in (record.value or b"") for record in tokens)
