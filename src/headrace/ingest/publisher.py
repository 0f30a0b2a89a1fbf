"""The way out for raw messages: to an MQTT broker, or into a file that a `Recording` reads.

`headrace simulate --to` uses it: a made-up fleet that speaks MQTT is a feed for tests of everything behind it.
"""

from __future__ import annotations

import ssl
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol, Self
from urllib.parse import unquote, urlsplit

from paho.mqtt.client import Client, MQTTv5
from paho.mqtt.enums import CallbackAPIVersion

from headrace.errors import BrokerError, ConfigError
from headrace.ingest.recorder import RecordingFile

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from headrace.ingest.message import RawMessage

#: Messages that may be under way without the broker's word.
_UNDER_WAY = 2000
_CONNECT = 10.0
#: Seconds for which a broker may be away.
_PATIENCE = 60.0


class MessageSink(Protocol):
    """Where raw messages go."""

    #: Where that is, for a person.
    place: str

    def write(self, messages: Sequence[RawMessage]) -> None:
        """Hand over messages; waits while there is no room."""
        ...

    def flush(self) -> None:
        """Wait until everything is safe."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def sink(url: str) -> MessageSink:
    """Find out where messages should go.

    Args:
        url: `mqtt://host:port`, `mqtts://user:password@host` with TLS, or the path or URL of a file (.dump, .dump.gz).

    Raises:
        ConfigError: It is neither.
    """
    scheme = urlsplit(url).scheme
    if scheme in ("mqtt", "mqtts"):
        return MqttPublisher(url)
    return FileSink(url)


class FileSink:
    """Writes messages to one file.

    Args:
        path: The file, or its URL.
    """

    def __init__(self, path: str) -> None:
        self.place = path
        self._path = path
        self._file: RecordingFile | None = None

    def write(self, messages: Sequence[RawMessage]) -> None:
        """Write messages; they are safe after the next `flush`.

        Raises:
            EnvironmentProblem: The disk does not take them.
        """
        file = self._opened()
        for message in messages:
            file.write(message)

    def flush(self) -> None:
        """Bring everything to the operating system."""
        self._opened().flush()

    def _opened(self) -> RecordingFile:
        if self._file is None:
            self._file = RecordingFile(self._path)
        return self._file

    def __enter__(self) -> Self:
        self._opened()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()


class MqttPublisher:
    """Publishes messages with QoS 1; what the broker did not confirm is sent again after a reconnect.

    Args:
        url: `mqtt://host:port`, or `mqtts://user:password@host:port` with TLS.
        client_id: Our name at the broker; empty: the broker chooses.

    Raises:
        ConfigError: The URL makes no sense.
    """

    def __init__(self, url: str, *, client_id: str = "") -> None:
        parts = urlsplit(url)
        secure = parts.scheme == "mqtts"
        try:
            port = parts.port or (8883 if secure else 1883)
        except ValueError as error:
            raise ConfigError(f"{url} has no port that can be", hint="Write mqtt://host:1883.") from error
        if not parts.hostname or parts.path.strip("/") or parts.query:
            raise ConfigError(f"{url} is no MQTT broker", hint="Write mqtt://host:1883; topics are the messages' own.")
        self._address = (parts.hostname, port)
        self.place = f"{parts.scheme}://{parts.hostname}:{port}"
        self._room = threading.Semaphore(_UNDER_WAY)
        self._under_way = 0
        self._lock = threading.Lock()
        client = self._client = Client(CallbackAPIVersion.VERSION2, client_id=client_id, protocol=MQTTv5)
        client.max_inflight_messages_set(_UNDER_WAY)
        client.reconnect_delay_set(1, 5)
        client.connect_timeout = _CONNECT
        client.on_publish = self._on_publish
        if parts.username:
            client.username_pw_set(unquote(parts.username), unquote(parts.password or ""))
        if secure:
            client.tls_set_context(ssl.create_default_context())

    def __enter__(self) -> Self:
        host, port = self._address
        try:
            self._client.connect(host, port)
        except OSError as error:
            raise BrokerError(
                f"cannot reach the MQTT broker at {host}:{port}: {error.strerror or error}", hint="Is it running there?"
            ) from error
        self._client.loop_start()
        return self

    def write(self, messages: Sequence[RawMessage]) -> None:
        """Publish messages; waits while too many are under way.

        Raises:
            BrokerError: The broker takes no more, for longer than a minute.
        """
        publish, room = self._client.publish, self._room
        for message in messages:
            if not room.acquire(timeout=_PATIENCE):
                raise self._silent()
            with self._lock:
                self._under_way += 1
            publish(message.topic, message.payload, qos=1)

    def flush(self) -> None:
        """Wait until the broker has confirmed everything.

        Raises:
            BrokerError: It does not, for longer than a minute.
        """
        deadline = time.monotonic() + _PATIENCE
        while self._under_way:
            if time.monotonic() > deadline:
                raise self._silent()
            time.sleep(0.005)

    def _on_publish(self, *_: Any) -> None:
        with self._lock:
            self._under_way -= 1
        self._room.release()

    def _silent(self) -> BrokerError:
        return BrokerError(
            f"the MQTT broker at {self.place} has not confirmed {self._under_way:,} messages within {_PATIENCE:g} s",
            hint="Is it running, and may we publish there?",
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.flush()
        finally:
            self._client.disconnect()
            self._client.loop_stop()
