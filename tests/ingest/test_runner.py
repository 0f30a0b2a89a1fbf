from __future__ import annotations

import json
import math
import threading
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from headrace.errors import BrokerError, ConfigError
from headrace.events import Codec, DeadLetter
from headrace.ingest import Batch, Connector, RawMessage
from headrace.ingest.connectors.replay import ReplayConnector, ReplaySettings
from headrace.ingest.duplicates import Duplicates
from headrace.ingest.recording import Recording, format_line
from headrace.ingest.replay import ReplayPlan
from headrace.ingest.runner import Ingestion, RunnerSettings
from headrace_transit.hfp import HfpProcessor
from headrace_transit.schemas import StopEvent, VehiclePosition
from headrace_transit.topics import STOP_EVENTS, VEHICLE_POSITIONS, input_topics

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from headrace.dev import EmbeddedBroker
    from headrace.kafka.producer import Headers

ARRIVAL = 1_707_841_980_000_000


def hfp(number: int, *, vehicle: int = 1, event: str = "VP", payload: bytes | None = None) -> RawMessage:
    body = {event: {"tst": "2024-02-13T16:33:00.000Z", "odo": number, "lat": 60.2, "long": 24.9}}
    topic = f"/hfp/v2/journey/ongoing/{event.lower()}/bus/0018/{vehicle:05}"
    return RawMessage(topic, json.dumps(body).encode() if payload is None else payload, ARRIVAL + number * 1000)


@dataclass(frozen=True)
class ListSettings:
    batches: tuple[tuple[RawMessage, ...], ...]


class ListConnector(Connector[ListSettings]):
    """Hands over what it is given, and notes what the runner says."""

    name = "list"
    Settings = ListSettings

    def __init__(self, settings: ListSettings) -> None:
        super().__init__(settings)
        self.log: list[str] = []

    def check(self) -> str:
        return "fine"

    def open(self) -> None:
        self.log.append("open")

    def batches(self, stop: threading.Event) -> Iterator[Batch]:
        for number, messages in enumerate(self.settings.batches):
            yield Batch(messages, number)
            yield Batch(())
            if stop.is_set():
                return

    def acknowledge(self, tokens: Sequence[object]) -> None:
        self.log.append(f"acknowledge {tokens}")

    def close(self) -> None:
        self.log.append("close")


class Basket:
    """An outlet that keeps what it is given; from some record on it fails to deliver."""

    def __init__(self, log: list[str], *, fails: bool = False) -> None:
        self.sent: list[tuple[str, bytes, str | bytes | None, Headers | None]] = []
        self.log, self.fails = log, fails

    def send_all(
        self,
        topic: str,
        values: Sequence[bytes],
        *,
        keys: Sequence[str | bytes | None] | None = None,
        headers: Headers | None = None,
    ) -> int:
        for number, value in enumerate(values):
            self.sent.append((topic, value, None if keys is None else keys[number], headers))
        return len(values)

    def poll(self, timeout: float = 0.0) -> None:
        pass

    def flush(self, timeout: float | None = None) -> None:
        if self.fails:
            raise BrokerError("gone")
        self.log.append(f"flush {len(self.sent)}")

    def __len__(self) -> int:
        return 0


def ingest(*batches: Sequence[RawMessage], fails: bool = False, **options: object) -> tuple[Basket, Ingestion]:
    connector = ListConnector(ListSettings(tuple(map(tuple, batches))))
    basket = Basket(connector.log, fails=fails)
    settings = RunnerSettings(feed="test", **options)  # type: ignore[arg-type]
    ingestion = Ingestion(connector, HfpProcessor(), basket, settings=settings)
    ingestion.run(threading.Event())
    return basket, ingestion


def test_a_batch_is_acknowledged_only_when_it_is_safe() -> None:
    basket, _ = ingest([hfp(1), hfp(2)], [hfp(3)])
    expected = ["open", "flush 2", "acknowledge [0]", "flush 3", "acknowledge [1]", "flush 3", "close"]
    assert basket.log == expected


def test_what_kafka_does_not_take_is_not_acknowledged() -> None:
    connector = ListConnector(ListSettings(((hfp(1),),)))
    with pytest.raises(BrokerError):
        Ingestion(connector, HfpProcessor(), Basket([], fails=True)).run(threading.Event())
    assert connector.log == ["open", "close"]


def test_every_message_is_an_event_or_a_dead_letter() -> None:
    batch = [hfp(1), hfp(2, payload=b"\xff"), hfp(3, event="DEP"), hfp(4, event="VJA"), hfp(5, payload=b"")]
    basket, ingestion = ingest(batch)
    assert [topic for topic, *_ in basket.sent] == [VEHICLE_POSITIONS, STOP_EVENTS, *["input.dead-letter"] * 3]
    letters = Codec().decode([value for topic, value, *_ in basket.sent if "dead" in topic], types=[DeadLetter]).frame
    assert letters["reason"].to_list() == ["not_utf8", "other_event", "empty_value"]
    assert letters["value"].to_list() == [b"\xff", batch[3].payload, b""]
    assert letters["topic"].to_list() == [batch[n].topic for n in (1, 3, 4)]
    assert letters["record_timestamp"].dt.timestamp("us").to_list() == [batch[n].arrival for n in (1, 3, 4)]
    report = ingestion.tally.report("test", waiting=0, elapsed=1, rate=1)
    assert (report.messages, report.events, report.dead_letters) == (5, 2, 3)
    assert report.dismissed == {"not_utf8": 1, "other_event": 1, "empty_value": 1}
    assert report.lag_max == pytest.approx(0.003)
    assert json.loads(json.dumps(report.to_dict()))["events"] == 2


def test_silent_causes_are_counted_only() -> None:
    basket, ingestion = ingest([hfp(1, event="VJA"), hfp(2, payload=b"")], silent=frozenset({"other_event"}))
    assert len(basket.sent) == 1
    assert ingestion.tally.dismissed == {"other_event": 1, "empty_value": 1}
    with pytest.raises(ConfigError, match="nonsense"):
        RunnerSettings(silent=frozenset({"nonsense"}))


def test_exact_repeats_can_be_left_out() -> None:
    again = hfp(1)._replace(arrival=ARRIVAL + 5000)
    basket, ingestion = ingest([hfp(1), hfp(2)], [again, hfp(3)], deduplicate="10s", silent=frozenset({"duplicate"}))
    assert len(basket.sent) == 3
    assert ingestion.tally.dismissed == {"duplicate": 1}


def test_memory_of_repeats_is_bounded() -> None:
    duplicates = Duplicates(within="1s", capacity=10)
    for number in range(100):
        assert not duplicates.repeats(RawMessage("/a", str(number).encode(), number))
    assert len(duplicates) == 10
    later = Duplicates(within="1s")
    for number in range(100):
        later.repeats(RawMessage("/a", str(number).encode(), number * 1_000_000))
    assert len(later) <= 2


def test_json_events_are_marked() -> None:
    basket, _ = ingest([hfp(1), hfp(2, payload=b"")], encoding="json")
    assert all(value[:1] == b"{" and headers for _, value, _, headers in basket.sent)


@pytest.mark.broker
def test_what_is_in_the_file_is_in_kafka_in_order(broker: EmbeddedBroker, tmp_path: Path) -> None:
    from headrace.kafka import Consumer, Producer, Topics

    Topics(broker.connection).ensure(input_topics())
    feed = f"replay-{tmp_path.name}"
    sent = [
        hfp(number, vehicle=number * 7919 % 50, event="DEP" if number % 10 == 0 else "VP") for number in range(5000)
    ]
    sent += [hfp(5000 + number, payload=b"\xff") for number in range(20)]
    path = tmp_path / "feed.dump"
    path.write_bytes(b"".join(map(format_line, sent)))
    assert list(Recording(path)) == sent
    # Vehicles of this test alone: a broker is shared.
    plan = ReplayPlan(copies=2, times="keep")
    starts = {topic: _ends(broker, topic) for topic in (VEHICLE_POSITIONS, STOP_EVENTS, "input.dead-letter")}
    connector = ReplayConnector(ReplaySettings(paths=(str(path),), speed=math.inf, plan=plan))
    with Producer(broker.connection) as producer:
        report = Ingestion(connector, HfpProcessor(), producer, settings=RunnerSettings(feed=feed)).run(
            threading.Event()
        )
    assert (report.messages, report.events, report.dead_letters) == (10_040, 10_000, 40)
    for topic, kind, event in ((VEHICLE_POSITIONS, VehiclePosition, "/vp/"), (STOP_EVENTS, StopEvent, "/dep/")):
        with Consumer(broker.connection, [topic], start=starts[topic]) as consumer:
            records = list(consumer)
        frame = Codec().decode([record.value for record in records], types=[kind]).frame
        assert [record.key for record in records] == [name.encode() for name in frame["vehicle_id"]]
        found: dict[str, list[float]] = defaultdict(list)
        for name, odometer in frame.select("vehicle_id", "odometer").iter_rows():
            found[name].append(odometer)
        expected: dict[str, list[float]] = defaultdict(list)
        for message in sent[:5000]:
            if event in message.topic:
                body = json.loads(message.payload)[event.strip("/").upper()]
                for copy in range(2):
                    expected[f"18/{int(message.topic[-5:]) + copy * 100_000}"].append(body["odo"])
        assert found == expected
    with Consumer(broker.connection, ["input.dead-letter"], start=starts["input.dead-letter"]) as consumer:
        letters = Codec().decode([record.value for record in consumer], types=[DeadLetter]).frame
    assert letters.filter(job=feed)["reason"].to_list() == ["not_utf8"] * 40


def _ends(broker: EmbeddedBroker, topic: str) -> dict[tuple[str, int], int]:
    from confluent_kafka import Consumer as Client
    from confluent_kafka import TopicPartition

    client = Client({"bootstrap.servers": broker.connection.bootstrap, "group.id": "ends"})
    try:
        partitions = client.list_topics(topic, timeout=10).topics[topic].partitions
        return {(topic, n): client.get_watermark_offsets(TopicPartition(topic, n), timeout=10)[1] for n in partitions}
    finally:
        client.close()
