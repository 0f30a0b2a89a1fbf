from __future__ import annotations

import shutil
import socket
import subprocess
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from paho.mqtt.client import Client, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion

from headrace.errors import BrokerError, ConfigError
from headrace.ingest import RawMessage, SourceError
from headrace.ingest.connectors.mqtt import MqttConnector, MqttSettings
from headrace.ingest.publisher import MqttPublisher

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.ingest.conftest import Mosquitto

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


def test_tls_checks_who_the_broker_is(secret: tuple[Mosquitto, str], tmp_path: Path) -> None:
    server, _ = secret
    with pytest.raises(SourceError, match="certificate"):
        MqttConnector(settings(server, tls=True)).check()
    with pytest.raises(SourceError):
        MqttConnector(settings(server, connect_timeout=2)).check()
    with pytest.raises(ConfigError, match="TLS files"):
        MqttConnector(settings(server, tls=True, tls_ca=str(tmp_path / "none.pem"))).check()


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


# ---------------------------------------------------------------- brokers and messages that are hard to bear


def test_a_broker_that_has_forgotten_us_is_a_gap(mosquitto: Mosquitto, publisher: Publisher) -> None:
    with MqttConnector(settings(mosquitto)) as connector:
        receive(connector, publisher.publish(0, 10))
        mosquitto.stop()
        mosquitto.forget()
        mosquitto.start()
        receive(connector, publisher.publish(10, 20))
        assert (connector.reconnects, connector.gaps) == (1, 1)
        mosquitto.stop()
        mosquitto.start()
        receive(connector, publisher.publish(20, 30))
        assert (connector.reconnects, connector.gaps) == (2, 1)


def test_two_ingesters_of_one_name_do_not_fight(mosquitto: Mosquitto) -> None:
    stop = threading.Event()
    problems = []

    def read(connector: MqttConnector) -> None:
        try:
            for _ in connector.batches(stop):
                pass
        except SourceError as error:
            problems.append(str(error))
            stop.set()

    with MqttConnector(settings(mosquitto)) as one, MqttConnector(settings(mosquitto)) as two:
        threads = [threading.Thread(target=read, args=(connector,)) for connector in (one, two)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert "another client that calls itself 'me'" in problems[0]


def test_a_broker_that_says_why_it_hangs_up() -> None:
    answers = [b"\x20\x03\x00\x00\x00", b"\x90\x04\x00\x01\x00\x01\xe0\x01\x8e"]
    taken = pytest.raises(SourceError, match="has given our session to another client")
    with scripted(answers) as port:
        connector = MqttConnector(MqttSettings(host="127.0.0.1", port=port, topics=("/a",)))
        with connector, taken:
            list(connector.batches(threading.Event()))


@contextmanager
def scripted(answers: list[bytes]) -> Iterator[int]:
    """A server that answers the first packets with these bytes, and waits."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with server.accept()[0] as client:
                for answer in answers:
                    client.recv(1000)
                    client.sendall(answer)
                client.recv(1000)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        thread.join()


def test_a_giant_message_is_cut_and_the_next_one_comes(mosquitto: Mosquitto, publisher: Publisher) -> None:
    with MqttConnector(settings(mosquitto, max_bytes=100)) as connector:
        publisher._client.publish("/a/big", b"x" * 20_000_000, qos=1)
        publisher.publish(0, 1)
        found: list[Any] = []
        for batch in connector.batches(threading.Event()):
            found += batch.messages
            connector.acknowledge([] if batch.token is None else [batch.token])
            if len(found) == 2:
                break
    assert {(message.topic, len(message.payload)) for message in found} == {("/a/big", 100), ("/a/0", 1)}


def test_a_broker_that_hangs_is_noticed(mosquitto: Mosquitto, publisher: Publisher) -> None:
    with MqttConnector(settings(mosquitto, keepalive=1, connect_timeout=0.5)) as connector:
        receive(connector, publisher.publish(0, 10))
        mosquitto.freeze()
        stop = threading.Event()
        for _ in connector.batches(stop):
            if not connector.connected:
                mosquitto.thaw()
                stop.set()
        assert not connector.connected
        connector.open()
        receive(connector, publisher.publish(10, 20))


def test_messages_without_a_session_or_an_acknowledgement(mosquitto: Mosquitto, publisher: Publisher) -> None:
    with MqttConnector(settings(mosquitto, qos=0, client_id="")) as connector:
        receive(connector, publisher.publish(0, 100))
        publisher.settle()
        assert connector._owed == 0
    with MqttConnector(settings(mosquitto, acknowledge="received")) as connector:
        before = publisher.publish(100, 200)
        receive(connector, before, acknowledge=False)
        assert connector._owed == 0
    with MqttConnector(settings(mosquitto)) as again:
        sent = publisher.publish(200, 210)
        found = set(receive(again, sent))
        # An acknowledgement that was on its way when the connection ended may be lost: its message comes again.
        assert sent <= found <= sent | before


def test_what_is_no_broker() -> None:
    silly = pytest.raises(SourceError, match=r"no MQTT|does not answer")
    with scripted([b"HTTP/1.1 400 Bad Request\r\n\r\n"]) as port, silly:
        MqttConnector(MqttSettings(host="127.0.0.1", port=port, topics=("/a",), connect_timeout=1)).check()


# ---------------------------------------------------------------- our own publisher


def test_the_publisher_outlives_a_restart_of_the_broker(mosquitto: Mosquitto) -> None:
    with MqttConnector(settings(mosquitto)) as connector:
        messages = [RawMessage(f"/a/{number}", b"%d" % number, 0) for number in range(6000)]
        with MqttPublisher(f"mqtt://127.0.0.1:{mosquitto.port}") as ours:
            ours.write(messages[:3000])
            mosquitto.stop()
            mosquitto.start()
            ours.write(messages[3000:])
            ours.flush()
            assert ours.reconnects >= 1
        receive(connector, {message.payload for message in messages})


def test_the_publisher_says_why_it_cannot(mosquitto: Mosquitto, tmp_path: Path) -> None:
    mosquitto.stop()
    with pytest.raises(BrokerError, match="cannot reach"), MqttPublisher(f"mqtt://127.0.0.1:{mosquitto.port}"):
        pass
    mosquitto.start()
    with MqttPublisher(f"mqtt://127.0.0.1:{mosquitto.port}", patience=0.2) as ours:
        mosquitto.freeze()
        ours.write([RawMessage("/a", b"", 0)])
        with pytest.raises(BrokerError, match="not confirmed 1 messages"):
            ours.flush()
        mosquitto.thaw()
    folder = tmp_path / "strict"
    folder.mkdir()
    strict = type(mosquitto)(folder, anonymous=False)
    strict.start()
    try:
        with pytest.raises(BrokerError, match="refuses us: not authorised"):
            MqttPublisher(f"mqtt://user:word@127.0.0.1:{strict.port}").__enter__()
    finally:
        strict.stop()
    for wrong in ("mqtt://", "mqtt://host:port", "mqtt://host/topic"):
        with pytest.raises(ConfigError):
            MqttPublisher(wrong)
