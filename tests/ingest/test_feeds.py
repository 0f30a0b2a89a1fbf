from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Self

import pytest

from headrace.errors import BrokerError, ConfigError, EnvironmentProblem
from headrace.ingest import Connector, RawMessage
from headrace.ingest.connectors.mqtt import MqttConnector
from headrace.ingest.connectors.replay import ReplayConnector
from headrace.ingest.feeds import Feed, load
from headrace.ingest.recording import format_line
from headrace.ingest.supervisor import Restart, supervise
from headrace_transit.hfp import HfpProcessor

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CONNECTORS: dict[str, type[Connector[Any]]] = {"mqtt": MqttConnector, "replay": ReplayConnector}

GOOD = """
[[feed]]
name = "hsl"
connector = "mqtt"
processor = "hfp"
delivery = {deduplicate = "2m", silent = ["other_event"]}
hfp = {max_ahead = "1m", bad_fields = "clear"}
mqtt = {host = "mqtt.example", tls = true, topics = ["/hfp/v2/journey/ongoing/vp/#"], client_id = "me"}

[[feed]]
connector = "replay"
processor = "hfp"
replay = {paths = ["a.dump", "b.dump.gz"], speed = 16, plan = {copies = 4, times = "now"}}
"""


def read(path: Path, text: str) -> list[Feed]:
    file = path / "feeds.toml"
    file.write_text(text)
    return load(file, connectors=CONNECTORS, processors={"hfp": HfpProcessor})


def test_a_file_of_feeds(tmp_path: Path) -> None:
    hsl, replay = read(tmp_path, GOOD)
    assert (hsl.name, hsl.connector, hsl.connector_settings.address) == ("hsl", MqttConnector, ("mqtt.example", 8883))
    assert hsl.connector_settings.topics == ("/hfp/v2/journey/ongoing/vp/#",)
    assert (hsl.delivery.deduplicate, hsl.delivery.silent, hsl.delivery.feed) == ("2m", {"other_event"}, "hsl")
    assert hsl.processor_settings.bad_fields == "clear"
    assert isinstance(hsl.make_processor(), HfpProcessor)
    assert (replay.name, replay.connector_settings.speed, replay.connector_settings.plan.copies) == ("replay", 16.0, 4)
    assert isinstance(replay.make_connector(), ReplayConnector)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no feeds"),
        ("x = 1", "'x'"),
        ("[[feed]]", "no connector"),
        ("[[feed]]\nconnector='smoke'", "'smoke'"),
        ("[[feed]]\nconnector='mqtt'\nprocessor='hfp'", "host"),
        ("[[feed]]\nconnector='mqtt'\nprocessor='hfp'\nmqtt={host='h',topics=['a'],prot=1}", "'prot'"),
        ("[[feed]]\nconnector='mqtt'\nprocessor='hfp'\nmqtt={host='h',topics=['a'],port='x'}", "port"),
        ("[[feed]]\nconnector='mqtt'\nprocessor='hfp'\nmqtt={host='h',topics=[]}", "no topic is named"),
        ("[[feed]]\nconnector='replay'\nprocessor='hfp'\nreplay=1", "not a table"),
        ("[[feed]]\nconnector='replay'\nprocessor='hfp'\nreplay={paths=['a']}\ncolour=1", "'colour'"),
        (GOOD.replace('name = "hsl"', 'name = "replay"'), "two feeds"),
        (GOOD.replace('"2m"', '"soon"'), "soon"),
        ("[[", "not TOML"),
    ],
)
def test_files_that_are_wrong(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read(tmp_path, text)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentProblem):
        load(tmp_path / "none.toml", connectors=CONNECTORS, processors={})


class Basket:
    """An outlet that fails a number of times before it works."""

    def __init__(self, failures: list[int]) -> None:
        self.failures = failures
        self.sent = 0

    def __enter__(self) -> Self:
        if self.failures and self.failures.pop():
            raise BrokerError("Kafka is away")
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def send_all(self, topic: str, values: Sequence[bytes], **_: object) -> int:
        self.sent += len(values)
        return len(values)

    def poll(self, timeout: float = 0.0) -> None:
        pass

    def flush(self, timeout: float | None = None) -> None:
        pass

    def __len__(self) -> int:
        return 0


def test_wrong_settings_are_not_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "empty.dump"
    path.touch()
    feeds = read(tmp_path, f"[[feed]]\nconnector='replay'\nprocessor='hfp'\nreplay={{paths=['{path}']}}")
    with pytest.raises(ConfigError, match="no recorded message"):
        supervise(feeds, lambda: Basket([]), stop=threading.Event())


def test_a_failed_feed_is_started_again_with_longer_pauses(tmp_path: Path) -> None:
    path = tmp_path / "a.dump"
    path.write_bytes(b"".join(format_line(RawMessage("/x", b"{}", n)) for n in range(9)))
    feeds = read(tmp_path, f"[[feed]]\nconnector='replay'\nprocessor='hfp'\nreplay={{paths=['{path}']}}")
    restarts: list[Restart] = []
    reports = []
    basket = Basket([0, 1, 1, 1])
    supervise(
        feeds,
        lambda: basket,
        stop=threading.Event(),
        report=reports.append,
        restarted=restarts.append,
        pause=(0.001, 0.003),
    )
    assert [(what.count, what.pause) for what in restarts] == [(1, 0.001), (2, 0.002), (3, 0.003)]
    assert reports[-1].dismissed == {"unknown_topic": 9}
    assert basket.sent == 9
