from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from paho.mqtt.client import Client, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion

from headrace.errors import ConfigError
from headrace.ingest import SourceError
from headrace.ingest.connectors.mqtt import MqttConnector, MqttSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.ingest.conftest import Mosquitto

    from headrace.broker import EmbeddedBroker

PATIENCE = 30.0


def settings(server: Mosquitto, **options: Any) -> MqttSettings:
    return MqttSettings(**{"host": "127.0.0.1", "port": server.port, "topics": ("/a/#",), "client_id": "me", **options})


class Publisher:
    """Publishes with QoS 1 from a thread of its own, and knows when the broker has everything."""

    def __init__(self, server: Mosquitto) -> None:
        self._client = Client(CallbackAPIVersion.VERSION2, client_id="publisher", protocol=MQTTv5)
        self._client.max_inflight_messages_set(100)
        self._client.reconnect_delay_set(1, 1)
        self._client.connect("127.0.0.1", server.port)
        self._client.loop_start()
        self._sent: list[Any] = []

    def publish(self, first: int, last: int) -> set[bytes]:
        payloads = [b"%d" % number for number in range(first, last)]
        for payload in payloads:
            self._sent.append(self._client.publish(f"/a/{payload.decode()}", payload, qos=1))
        return set(payloads)

    def settle(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while not all(info.is_published() for info in self._sent):
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


@pytest.fixture
def publisher(mosquitto: Mosquitto) -> Iterator[Publisher]:
    made = Publisher(mosquitto)
    yield made
    made.close()


def receive(connector: MqttConnector, wanted: set[bytes], *, acknowledge: bool = True) -> list[bytes]:
    """Read until all that is wanted is there, as the runner does."""
    stop = threading.Event()
    found: list[bytes] = []
    missing = set(wanted)
    deadline = time.monotonic() + PATIENCE
    for batch in connector.batches(stop):
        payloads = [message.payload for message in batch.messages]
        assert all(message.topic == f"/a/{message.payload.decode()}" for message in batch.messages)
        found += payloads
        missing -= set(payloads)
        if acknowledge and batch.token is not None:
            connector.acknowledge([batch.token])
        if not missing:
            stop.set()
        assert time.monotonic() < deadline, f"{len(missing)} messages are missing"
    return found


@pytest.mark.parametrize("protocol", ["3.1.1", "5"])
def test_everything_published_arrives_once(mosquitto: Mosquitto, publisher: Publisher, protocol: str) -> None:
    with MqttConnector(settings(mosquitto, protocol=protocol)) as connector:
        sent = publisher.publish(0, 3000)
        found = receive(connector, sent)
    assert sorted(found) == sorted(sent)


@pytest.mark.parametrize("protocol", ["3.1.1", "5"])
def test_what_is_published_while_we_are_away_waits(mosquitto: Mosquitto, publisher: Publisher, protocol: str) -> None:
    with MqttConnector(settings(mosquitto, protocol=protocol)):
        pass
    sent = publisher.publish(0, 500)
    publisher.settle()
    with MqttConnector(settings(mosquitto, protocol=protocol)) as connector:
        assert sorted(receive(connector, sent)) == sorted(sent)


@pytest.mark.parametrize("protocol", ["3.1.1", "5"])
def test_a_backlog_comes_in_batches(mosquitto: Mosquitto, publisher: Publisher, protocol: str) -> None:
    options = {"protocol": protocol, "batch_size": 10}
    with MqttConnector(settings(mosquitto, **options)):
        pass
    sent = publisher.publish(0, 500)
    publisher.settle()
    found: set[bytes] = set()
    with MqttConnector(settings(mosquitto, **options)) as connector:
        for batch in connector.batches(threading.Event()):
            assert len(batch.messages) <= 10
            found |= {message.payload for message in batch.messages}
            connector.acknowledge([] if batch.token is None else [batch.token])
            if found == sent:
                break


def test_a_broker_that_refuses_us(mosquitto: Mosquitto, tmp_path: Path) -> None:
    folder = tmp_path / "strict"
    folder.mkdir()
    strict = type(mosquitto)(folder, anonymous=False)
    strict.start()
    try:
        with pytest.raises(SourceError, match="refuses us"):
            MqttConnector(settings(strict)).check()
    finally:
        strict.stop()


def test_what_was_not_acknowledged_comes_again(mosquitto: Mosquitto, publisher: Publisher) -> None:
    with MqttConnector(settings(mosquitto)) as connector:
        safe = publisher.publish(0, 200)
        receive(connector, safe)
        lost = publisher.publish(200, 400)
        receive(connector, lost, acknowledge=False)
    with MqttConnector(settings(mosquitto)) as connector:
        more = publisher.publish(400, 401)
        assert sorted(receive(connector, lost | more)) == sorted(lost | more)


def test_the_broker_may_go_and_come_back(mosquitto: Mosquitto, publisher: Publisher) -> None:
    with MqttConnector(settings(mosquitto)) as connector:
        before = publisher.publish(0, 300)
        publisher.settle()
        early = receive(connector, {b"0"}, acknowledge=False)
        mosquitto.stop()
        during = publisher.publish(300, 600)
        mosquitto.start()
        found = receive(connector, (before | during) - set(early))
        assert connector.reconnects >= 1
    assert set(early) | set(found) == before | during
    # What was not acknowledged before the broker went away was sent again: at least once.
    assert set(early) <= set(found)


def test_an_acknowledgement_of_another_connection_is_not_sent(mosquitto: Mosquitto, publisher: Publisher) -> None:
    with MqttConnector(settings(mosquitto)) as connector:
        sent = publisher.publish(0, 10)
        stop = threading.Event()
        tokens = []
        for batch in connector.batches(stop):
            tokens += [] if batch.token is None else [batch.token]
            if sum(len(token[1]) for token in tokens) == 10:  # type: ignore[index]
                break
        mosquitto.stop()
        mosquitto.start()
        receive(connector, {b"0"}, acknowledge=False)
        connector.acknowledge(tokens)
    with MqttConnector(settings(mosquitto)) as connector:
        assert set(receive(connector, sent)) == sent


def test_ingesters_share_the_load_and_one_may_die(mosquitto: Mosquitto, publisher: Publisher) -> None:
    one, two, one_again = (
        MqttConnector(settings(mosquitto, client_id=name, share="ingest")) for name in ("one", "two", "one")
    )
    with two:
        with one:
            sent = publisher.publish(0, 1000)
            publisher.settle()
            taken: set[bytes] = set()
            stop = threading.Event()
            for batch in one.batches(stop):
                taken |= {message.payload for message in batch.messages}
                if len(taken) >= 100:
                    stop.set()
        # One is gone, and has acknowledged nothing: all of its part waits for it.
        with one_again:
            rest = receive(one_again, taken)
            more = publisher.publish(1000, 1001)
            publisher.settle()
            found = receive(two, sent - set(rest)) if sent - set(rest) else []
            last = {*found, *rest}
            if not more <= last:
                last |= set(_drain(one_again)) | set(_drain(two))
    assert 100 <= len(taken) < 1000
    assert last == sent | more


def _drain(connector: MqttConnector) -> list[bytes]:
    """What is there now, and nothing if nothing is."""
    found = []
    for batch in connector.batches(threading.Event()):
        if not batch.messages:
            break
        found += [message.payload for message in batch.messages]
    return found


def test_the_check_leaves_no_session(mosquitto: Mosquitto, publisher: Publisher) -> None:
    connector = MqttConnector(settings(mosquitto))
    assert "/a/#" in connector.check()
    publisher.publish(0, 5)
    publisher.settle()
    with connector:
        sent = publisher.publish(5, 10)
        assert sorted(receive(connector, sent)) == sorted(sent)


def test_a_broker_that_is_not_there(mosquitto: Mosquitto) -> None:
    mosquitto.stop()
    with pytest.raises(SourceError, match="cannot reach"):
        MqttConnector(settings(mosquitto)).check()


@pytest.fixture
def secret(mosquitto: Mosquitto, tmp_path: Path) -> Iterator[tuple[Mosquitto, str]]:
    """A broker that speaks TLS only, and the file with its certificate."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed, to make a certificate")
    folder = tmp_path / "tls"
    folder.mkdir()
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=broker"]
    files = ["-keyout", key, "-out", certificate, "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([openssl, *words, *files], check=True, capture_output=True)
    server = type(mosquitto)(folder, f"certfile {certificate}", f"keyfile {key}")
    server.start()
    yield server, str(certificate)
    server.stop()


def test_tls(secret: tuple[Mosquitto, str]) -> None:
    server, certificate = secret
    sender = Client(CallbackAPIVersion.VERSION2, protocol=MQTTv5)
    sender.tls_set(certificate)
    with MqttConnector(settings(server, tls=True, tls_ca=certificate)) as connector:
        sender.connect("127.0.0.1", server.port)
        sender.loop_start()
        payloads = {b"%d" % number for number in range(2000)}
        for payload in payloads:
            sender.publish(f"/a/{payload.decode()}", payload, qos=1)
        assert sorted(receive(connector, payloads)) == sorted(payloads)
        sender.disconnect()
        sender.loop_stop()


# paho leaves its socket to the garbage collector when the handshake fails.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_tls_checks_who_the_broker_is(secret: tuple[Mosquitto, str], tmp_path: Path) -> None:
    server, _ = secret
    with pytest.raises(SourceError, match="certificate"):
        MqttConnector(settings(server, tls=True)).check()
    with pytest.raises(SourceError):
        MqttConnector(settings(server, connect_timeout=2)).check()
    with pytest.raises(ConfigError, match="TLS files"):
        MqttConnector(settings(server, tls=True, tls_ca=str(tmp_path / "none.pem"))).check()
    gc.collect()


@pytest.mark.parametrize(
    "wrong",
    [{"topics": ()}, {"protocol": "4"}, {"qos": 2}, {"share": "x", "protocol": "3.1.1"}, {"receive_maximum": 0},
     {"tls_ca": "x"}, {"batch_size": 0}],
)  # fmt: skip
def test_settings_that_make_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        MqttSettings(**{"host": "h", "topics": ("/a",), **wrong})


def test_the_password_is_not_shown() -> None:
    assert "secret" not in repr(MqttSettings(host="h", topics=("/a",), username="u", password="secret"))


# ---------------------------------------------------------------- all the way to Kafka

INGESTER = """
import sys, threading
from headrace.broker import Connection, Producer
from headrace.ingest.connectors.mqtt import MqttConnector, MqttSettings
from headrace.ingest.runner import Ingestion, RunnerSettings
from headrace.transit.hfp import HfpProcessor, HfpSettings
port, bootstrap, name, share = sys.argv[1:]
settings = MqttSettings(
    host="127.0.0.1", port=int(port), topics=("/hfp/#",), client_id=name, share=share,
    receive_maximum=200, batch_size=50,
)
with Producer(Connection(bootstrap=bootstrap)) as producer:
    ingestion = Ingestion(
        MqttConnector(settings), HfpProcessor(HfpSettings(max_behind=None)), producer,
        settings=RunnerSettings(confirm_messages=100),
    )
    print("ready", flush=True)
    ingestion.run(threading.Event())
"""


@pytest.mark.broker
def test_an_ingester_of_two_may_be_killed_at_any_moment(mosquitto: Mosquitto, broker: EmbeddedBroker) -> None:
    from headrace.broker import Consumer, Topics
    from headrace.events import Codec, VehiclePosition
    from headrace.transit.topics import VEHICLE_POSITIONS, input_topics

    Topics(broker.connection).ensure(input_topics())
    operator = 7301  # of this test alone: the broker is shared
    address = (str(mosquitto.port), broker.connection.bootstrap)
    running = {name: start_ingester(*address, name, "group") for name in ("one", "two")}
    client = Client(CallbackAPIVersion.VERSION2, client_id="fleet", protocol=MQTTv5)
    client.max_inflight_messages_set(50)
    client.connect("127.0.0.1", mosquitto.port)
    client.loop_start()
    try:
        for name in running:
            wait_for_subscription(mosquitto, name)
        sent = []
        for number in range(6000):
            body = b'{"VP":{"tst":"2024-02-13T16:33:00.000Z","odo":%d}}' % number
            sent.append(client.publish(f"/hfp/v2/journey/ongoing/vp/bus/{operator}/00001", body, qos=1))
            if number in (1500, 3000, 4500):
                sent[-1].wait_for_publish(PATIENCE)
                running["one"].kill()
                running["one"].wait(20)
                running["one"] = start_ingester(*address, "one", "group")
        sent[-1].wait_for_publish(PATIENCE)
        with Consumer(broker.connection, [VEHICLE_POSITIONS], follow=True) as consumer:
            found: list[float] = []
            deadline = time.monotonic() + 2 * PATIENCE
            while len(set(found)) < 6000:
                assert time.monotonic() < deadline, f"{6000 - len(set(found))} events are missing"
                values = [record.value for record in consumer.read(timeout=0.5)]
                frame = Codec().decode(values, types=[VehiclePosition]).frame
                found += frame.filter(operator=operator)["odometer"].to_list()
    finally:
        client.disconnect()
        client.loop_stop()
        for process in running.values():
            process.kill()
            process.wait(20)
    assert set(found) == set(map(float, range(6000)))


def start_ingester(*words: str) -> subprocess.Popen[bytes]:
    source = Path(__file__).resolve().parents[2] / "src"
    return subprocess.Popen([sys.executable, "-c", INGESTER, *words], env=os.environ | {"PYTHONPATH": str(source)})


def wait_for_subscription(server: Mosquitto, name: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while f" {name} 1 $share/" not in server.log():
        assert time.monotonic() < deadline
        time.sleep(0.05)
