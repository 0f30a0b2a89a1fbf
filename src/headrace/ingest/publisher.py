"""The way out for raw messages: to an MQTT broker, or into a file that a `Recording` reads.

`headrace simulate --to` uses it: a made-up fleet that speaks MQTT is a feed for tests of everything behind it.
"""

from __future__ import annotations

import ssl
import time
from typing import TYPE_CHECKING, Protocol, Self
from urllib.parse import unquote, urlsplit

from headrace.errors import BrokerError, ConfigError
from headrace.ingest import mqtt_wire as wire
from headrace.ingest.message import RawMessage
from headrace.ingest.mqtt_link import Link, LinkLostError
from headrace.ingest.recorder import RecordingFile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

#: Messages that may be under way without the broker's word.
_UNDER_WAY = 2000
_CONNECT = 10.0


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


def _unwanted(topic: str, payload: bytes) -> RawMessage:
    return RawMessage(topic, payload, 0)  # a publisher has no subscription


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
        patience: Seconds for which the broker may be away.

    Raises:
        ConfigError: The URL makes no sense.
    """

    def __init__(self, url: str, *, patience: float = 60.0) -> None:
        parts = urlsplit(url)
        self._secure = parts.scheme == "mqtts"
        try:
            port = parts.port or (8883 if self._secure else 1883)
        except ValueError as error:
            raise ConfigError(f"{url} has no port that can be", hint="Write mqtt://host:1883.") from error
        if not parts.hostname or parts.path.strip("/") or parts.query:
            raise ConfigError(f"{url} is no MQTT broker", hint="Write mqtt://host:1883; topics are the messages' own.")
        self.place = f"{parts.scheme}://{parts.hostname}:{port}"
        #: How often the connection had to be made again.
        self.reconnects = 0
        self._address = (parts.hostname, port)
        self._username = unquote(parts.username) if parts.username else None
        self._password = unquote(parts.password) if parts.password else None
        self._patience = patience
        self._link: Link | None = None
        self._window = _UNDER_WAY
        self._number = 0
        #: Messages that the broker has not confirmed, by their numbers, oldest first.
        self._open: dict[int, bytes] = {}

    def __enter__(self) -> Self:
        try:
            self._connect()
        except BrokerError:
            raise
        except OSError as error:
            why = getattr(error, "strerror", None) or error
            raise BrokerError(f"cannot reach the MQTT broker at {self.place}: {why}", hint="Is it there?") from error
        return self

    def write(self, messages: Sequence[RawMessage]) -> None:
        """Publish messages; waits while too many are under way.

        Raises:
            BrokerError: The broker refuses one, or is away for too long.
        """
        done = 0
        while done < len(messages):
            room = self._window - len(self._open)
            if room > 0:
                some = messages[done : done + room]
                done += len(some)
                self._send(b"".join(map(self._packet, some)))
            self._hear(wait=len(self._open) >= self._window)

    def flush(self) -> None:
        """Wait until the broker has confirmed everything.

        Raises:
            BrokerError: It refuses a message, or is away for too long.
        """
        while self._open:
            self._hear(wait=True)

    def _send(self, content: bytes) -> None:
        self._carefully(lambda link: link.send(content))

    def _packet(self, message: RawMessage) -> bytes:
        number = self._number
        while True:
            number = number % 65_535 + 1
            if number not in self._open:
                break
        self._number = number
        packet = self._open[number] = wire.publish("5", message.topic, message.payload, number=number)
        return packet

    def _hear(self, *, wait: bool) -> None:
        """Read what the broker confirms."""
        before, deadline = len(self._open), time.monotonic() + self._patience
        while True:
            self._carefully(lambda link: link.read(0.1 if wait else 0.0))
            assert self._link is not None  # noqa: S101  _carefully has made it
            parser = self._link.parser
            for number in parser.arrived:
                self._open.pop(number, None)
            parser.arrived.clear()
            for answer in parser.answers:
                if isinstance(answer, wire.Refused):
                    raise BrokerError(f"the MQTT broker at {self.place} refuses a message: {answer.text}")
            if not wait or len(self._open) < before or not self._open:
                return
            if time.monotonic() > deadline:
                raise self._silent()

    def _carefully(self, step: Callable[[Link], object]) -> None:
        """Do something with the link; if it is lost, make another and send again what was not confirmed."""
        if self._link is not None:
            try:
                step(self._link)
            except LinkLostError:
                pass
            else:
                return
        deadline, delay = time.monotonic() + self._patience, 0.1
        while True:
            try:
                self._connect()
            except BrokerError:
                raise
            except OSError as error:
                if time.monotonic() > deadline:
                    raise self._silent() from error
                time.sleep(delay)
                delay = min(delay * 2, 2.0)
            else:
                self.reconnects += 1
                return

    def _connect(self) -> None:
        """Connect, and send what is not confirmed.

        Raises:
            OSError: The broker cannot be reached.
            BrokerError: It refuses us.
        """
        self._hang_up()
        tls = ssl.create_default_context() if self._secure else None
        link = Link(self._address, "5", tls=tls, timeout=_CONNECT, limit=0, make=_unwanted)
        try:
            link.send(
                wire.connect(
                    "5", client_id="", keep=False, keepalive=0, username=self._username, password=self._password
                )
            )
            deadline = time.monotonic() + _CONNECT
            while not link.parser.answers:
                if time.monotonic() > deadline:
                    raise LinkLostError("the broker does not answer")
                link.read(0.1)
            answer = link.parser.answers.pop(0)
            if not isinstance(answer, wire.Connected) or answer.code:
                text = getattr(answer, "text", "it does not answer as a broker")
                raise BrokerError(
                    f"the MQTT broker at {self.place} refuses us: {text}", hint="Check user and password."
                )
            self._window = min(_UNDER_WAY, answer.receive_maximum)
            link.send(b"".join(self._open.values()))
        except BaseException:
            link.close()
            raise
        self._link = link

    def _silent(self) -> BrokerError:
        return BrokerError(
            f"the MQTT broker at {self.place} has not confirmed {len(self._open):,} messages for {self._patience:g} s",
            hint="Is it running, and may we publish there?",
        )

    def _hang_up(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.flush()
        finally:
            if self._link is not None:
                self._link.close(wire.disconnect("5"))
