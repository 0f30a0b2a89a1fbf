from __future__ import annotations

import math
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import polars as pl
import pytest

from headrace.errors import BrokerError, PlanError
from headrace.events import Codec
from headrace.kafka import Connection, Topics, TopicSpec
from headrace_transit.schemas import StopEvent, VehiclePosition
from headrace_transit.simulator import Arrivals, Disorder, Fleet
from headrace_transit.simulator.feed import Feed, FeedReport, simulate
from headrace_transit.simulator.writers import EventWriter
from headrace_transit.topics import STOP_EVENTS, VEHICLE_POSITIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.dev import EmbeddedBroker
    from headrace.kafka.producer import Headers


class Clock:
    """A clock that stands still until somebody waits for it; `Wait` below moves it on."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Wait(threading.Event):
    """An event on which waiting takes no time, but moves the clock."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        self._clock.now += timeout or 0.0
        return self.is_set()


class Basket:
    """An outlet that keeps what it is given, with the time; sending takes as long as it is told."""

    def __init__(self, clock: Clock, *, seconds_per_event: float = 0.0) -> None:
        self.clock = clock
        self.seconds_per_event = seconds_per_event
        self.sent: list[tuple[float, str, str, bytes]] = []
        self.flushed = False
        self.headers: set[tuple[tuple[str, bytes | None], ...] | None] = set()

    def send_all(
        self, topic: str, keys: Sequence[str], values: Sequence[bytes], *, headers: Headers | None = None
    ) -> int:
        self.headers.add(headers if headers is None else tuple(headers))
        self.sent += [(self.clock.now, topic, key, value) for key, value in zip(keys, values, strict=True)]
        self.clock.now += len(keys) * self.seconds_per_event
        return len(keys)

    def flush(self, timeout: float | None = None) -> None:
        self.flushed = True

    def __len__(self) -> int:
        return 0

    def of(self, topic: str) -> list[bytes]:
        return [value for _, where, _, value in self.sent if where == topic]


def run(
    *, vehicles: int = 40, seconds: int = 5, speed: float = 1.0, disorder: Disorder | None = None, slow: float = 0.0
) -> tuple[Basket, list[FeedReport], Fleet]:
    clock = Clock()
    basket = Basket(clock, seconds_per_event=slow)
    fleet = Fleet(vehicles=vehicles, seed=4)
    reports: list[FeedReport] = []
    feed = Feed(Arrivals(fleet, disorder), EventWriter(basket), speed=speed, seconds=seconds, clock=clock)
    last = feed.run(Wait(clock), reports.append)
    assert reports[-1] == last
    assert basket.flushed
    return basket, reports, fleet


@pytest.mark.parametrize("speed", [0.5, 1.0, 7.0, 1000.0, math.inf])
def test_every_report_is_sent_once_at_any_speed(speed: float) -> None:
    basket, reports, fleet = run(speed=speed, disorder=Disorder(late_share=0.3, duplicate_share=0))
    found = Codec().decode(basket.of(VEHICLE_POSITIONS), types=[VehiclePosition]).frame
    expected = fleet.positions(0, seconds=5)
    keys = ["vehicle_id", "event_time"]
    assert found.select(expected.columns).sort(keys).equals(expected.sort(keys))
    stops = Codec().decode(basket.of(STOP_EVENTS), types=[StopEvent]).frame
    assert stops.height == sum(fleet.stop_events(second).height for second in range(5)) == reports[-1].stop_events
    assert reports[-1].positions == 200
    assert reports[-1].events == len(basket.sent)
    assert reports[-1].value_bytes == sum(len(value) for *_, value in basket.sent)


def test_reports_are_keyed_by_vehicle() -> None:
    basket, _, _ = run()
    found = Codec().decode([value for *_, value in basket.sent], types=[VehiclePosition, StopEvent]).frames
    names = {name for frame in found.values() for name in frame["vehicle_id"]}
    assert {key for _, _, key, _ in basket.sent} == names


@pytest.mark.parametrize("speed", [0.5, 1.0, 10.0])
def test_reports_leave_when_they_are_due(speed: float) -> None:
    basket, reports, fleet = run(speed=speed, seconds=20, disorder=Disorder(late_share=0.05))
    found = Codec().decode(basket.of(VEHICLE_POSITIONS), types=[VehiclePosition]).frame
    sent = [at - 1000.0 for at, topic, *_ in basket.sent if topic == VEHICLE_POSITIONS]
    for left, arrived in zip(sent, found["ingestion_time"], strict=True):
        due = min((arrived - fleet.start).total_seconds(), 20.0) / speed
        assert due - 0.001 <= left <= due + 0.051
    assert all(report.keeps_up for report in reports)
    assert reports[-1].event_time == fleet.start + timedelta(seconds=20)


def test_a_slow_outlet_makes_the_feed_late_but_loses_nothing() -> None:
    basket, reports, _ = run(seconds=10, slow=0.05)
    behind = [report.behind for report in reports]
    assert behind == sorted(behind)
    assert behind[-1] > 5
    assert not reports[-1].keeps_up
    assert reports[-1].positions >= 400
    assert basket.flushed


def test_as_fast_as_possible_is_never_behind() -> None:
    _, reports, _ = run(seconds=10, slow=0.05, speed=math.inf)
    assert {report.behind for report in reports} == {0.0}


def test_the_feed_stops_when_it_is_told_and_delivers_what_it_has_sent() -> None:
    clock = Clock()
    basket, stop = Basket(clock), Wait(clock)
    feed = Feed(Arrivals(Fleet(vehicles=10)), EventWriter(basket), clock=clock)

    def enough(report: FeedReport) -> None:
        if report.elapsed > 3:
            stop.set()

    last = feed.run(stop, enough)
    assert 3 < last.elapsed < 5
    assert 25 <= last.positions <= 45
    assert basket.flushed


def test_a_fleet_without_end_and_without_time_sends_nothing() -> None:
    basket, reports, _ = run(seconds=0)
    assert basket.sent == []
    assert reports[-1].events == 0


def test_reports_can_be_read_by_programs() -> None:
    _, reports, _ = run()
    report = reports[-1].to_dict()
    assert report["event"] == "feed"
    assert report["events"] == reports[-1].events
    assert datetime.fromisoformat(report["event_time"]) == reports[-1].event_time


def test_json_is_marked_and_binary_needs_no_mark() -> None:
    found = {}
    for encoding in ("binary", "json"):
        basket = Basket(Clock())
        writer = EventWriter(basket, encoding=encoding)
        Feed(Arrivals(Fleet(vehicles=5)), writer, speed=math.inf, seconds=2).run(threading.Event(), print)
        found[encoding] = (basket.headers, Codec().decode(basket.of(VEHICLE_POSITIONS), types=[VehiclePosition]).frame)
    assert found["binary"][0] == {None}
    assert found["json"][0] == {(("headrace-encoding", b"json"),)}
    assert found["json"][1].equals(found["binary"][1])


@pytest.mark.parametrize("speed", [0.0, -1.0, math.nan])
def test_a_speed_that_cannot_be_is_refused(speed: float) -> None:
    with pytest.raises(PlanError, match="speed"):
        Feed(Arrivals(Fleet(vehicles=1)), EventWriter(Basket(Clock())), speed=speed)


def test_speed_and_rate_together_are_refused() -> None:
    nowhere = Connection(bootstrap="127.0.0.1:1")
    with pytest.raises(PlanError, match="one of them"):
        simulate(Fleet(vehicles=1), nowhere, speed=2, rate=10)
    with pytest.raises(PlanError, match="above 0"):
        simulate(Fleet(vehicles=1), nowhere, rate=0)


def test_a_broker_that_is_not_there_is_named() -> None:
    with pytest.raises(BrokerError, match=r"127\.0\.0\.1:1"):
        simulate(Fleet(vehicles=1), Connection(bootstrap="127.0.0.1:1"), duration=1)


@pytest.mark.parametrize(("speed", "times"), [(1.0, 3), (math.inf, 40)])
def test_copies_are_other_vehicles_at_the_same_places_and_times(speed: float, times: int) -> None:
    clock = Clock()
    baskets = []
    for copies in (1, times):
        basket = Basket(clock)
        arrivals = Arrivals(Fleet(vehicles=6, seed=4), Disorder.hsl())
        feed = Feed(arrivals, EventWriter(basket, copies=copies), speed=speed, seconds=30, clock=clock)
        last = feed.run(Wait(clock), lambda _: None)
        assert last.events == len(basket.sent)
        baskets.append(basket)
    for topic, kind in ((VEHICLE_POSITIONS, VehiclePosition), (STOP_EVENTS, StopEvent)):
        one, many = (Codec().decode(basket.of(topic), types=[kind]).frame for basket in baskets)
        assert many.height == times * one.height > 0
        assert many["vehicle_id"].n_unique() == times * one["vehicle_id"].n_unique()
        assert many.select((pl.col("vehicle_id") == pl.format("{}/{}", "operator", "vehicle_number")).all()).item()
        identity = ["vehicle_id", "vehicle_number"]
        # Everything else is the same, so many times, at the same moments.
        keys = ["ingestion_time", "event_time", "line_number", "journey_number"]
        same, alone = (frame.drop(identity).sort(keys) for frame in (many, pl.concat([one] * times)))
        assert same.equals(alone)
        assert many["ingestion_time"].is_sorted()


@pytest.mark.parametrize("copies", [0, -3, 10**6])
def test_a_number_of_copies_that_cannot_be_is_refused(copies: int) -> None:
    with pytest.raises(PlanError, match="copies"):
        EventWriter(Basket(Clock()), copies=copies)


@pytest.mark.broker
def test_a_simulated_fleet_ends_up_in_kafka(broker: EmbeddedBroker) -> None:
    from confluent_kafka import Consumer

    fleet = Fleet(vehicles=50, seed=9, start=datetime(2026, 1, 1, tzinfo=UTC))
    topics = ("feed-test.position", "feed-test.stop")
    with pytest.raises(BrokerError, match=r"feed-test\.position"):
        simulate(fleet, broker.connection, duration=1, topics=topics)
    Topics(broker.connection).ensure([TopicSpec(name=topic) for topic in topics])
    last = simulate(fleet, broker.connection, speed=math.inf, duration=20, disorder=Disorder.none(), topics=topics)
    assert last.positions == 1000
    assert last.waiting == 0
    consumer = Consumer(broker.connection.client_config() | {"group.id": "feed-test", "auto.offset.reset": "earliest"})
    consumer.subscribe([topics[0]])
    values: list[bytes] = []
    partition_of: dict[bytes, set[int]] = {}
    while len(values) < 1000:
        for message in consumer.consume(1000, timeout=30) or pytest.fail("Kafka has fewer events than were sent"):
            partition_of.setdefault(message.key(), set()).add(message.partition())
            values.append(message.value())
    consumer.close()
    found = Codec().decode(values, types=[VehiclePosition]).frame
    expected = fleet.positions(0, seconds=20)
    keys = ["vehicle_id", "event_time"]
    assert found.select(expected.columns).sort(keys).equals(expected.sort(keys))
    assert {len(partitions) for partitions in partition_of.values()} == {1}
    # Within a vehicle the order is that of the events.
    for _, rows in found.group_by("vehicle_id"):
        assert rows["event_time"].is_sorted()
