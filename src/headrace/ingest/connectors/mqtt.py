"""The MQTT connector: messages from a broker, none of them lost.

With QoS 1 and a client id of its own, the broker keeps a **session** for us: what is published while we are away waits
there, and what we have not acknowledged comes again. We acknowledge a message only when its event is safe in Kafka, so
that an ingester can be killed at any moment: it loses nothing, and repeats at most what was under way.

Several ingesters with the same `share` split the messages among them (shared subscriptions, MQTT 5). When one is gone,
new messages go to the others. What it had not acknowledged stays in its session until an ingester with its client id
comes back (mosquitto does not hand it to the others, some brokers do): restart it within `session_expiry`. Events of
one sender may pass through two ingesters; their order is kept only within one.

There is no thread: the network is read when the runner asks for more (`headrace.ingest.mqtt_link`). While Kafka is slow
nothing is read, and the broker holds the messages back. How many it sends ahead of our acknowledgements is its
`max_inflight_messages` (mosquitto: 20 by default, too few for a fast feed) or `receive_maximum` here, whichever is
smaller.
"""

from __future__ import annotations

import contextlib
import ssl
import time
import uuid
from dataclasses import dataclass, field
from datetime import timedelta  # noqa: TC003 - the reader of feeds.toml needs the types of the fields
from typing import TYPE_CHECKING, Literal, TypeVar, cast

from headrace.errors import ConfigError
from headrace.ingest import mqtt_wire as wire
from headrace.ingest.connector import Connector, SourceError
from headrace.ingest.message import Batch, RawMessage
from headrace.ingest.mqtt_link import Link, LinkLostError
from headrace.time.duration import micros

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Sequence

#: Seconds to wait for messages before the runner hears that there are none; less while it owes us acknowledgements.
_IDLE, _OWED = 0.2, 0.01
#: Seconds before the first and the last attempts to connect again.
_BACK_OFF = (0.1, 5.0)
#: Seconds for which a batch grows.
_GATHER = 0.05
#: So many connections that last no longer than so many seconds, one after the other, and something is wrong.
_SHORT_ONES, _SHORT = 5, 2.0
_BROKER = "the MQTT broker"

AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttSettings:
    """How to reach an MQTT broker, and what to read.

    Args:
        host: The broker.
        topics: What to subscribe to, wildcards included.
        port: Its port; None: 8883 with TLS, 1883 without.
        qos: 0: what is lost on the way is lost; 1: at least once.
        client_id: Our name at the broker, unique and always the same, under which it keeps a session for us. Without
            one there is no session: messages published while we are away are lost.
        share: A group of ingesters that split the messages among them; empty: alone.
        protocol: "5" or "3.1.1". Shared subscriptions and `receive_maximum` need 5.
        username: For brokers that ask for one.
        password: Likewise.
        tls: Whether the connection is encrypted, and the broker's certificate checked.
        tls_ca: File with the authorities to trust; None: those of the system.
        tls_certificate: File with our own certificate, for brokers that ask for one.
        tls_key: File with its key.
        keepalive: Seconds without traffic after which both sides make sure that the other is there.
        connect_timeout: Seconds within which the broker must answer.
        session_expiry: How long the broker keeps our session when we are away (MQTT 5).
        receive_maximum: How many messages the broker may send ahead of our acknowledgements (MQTT 5).
        max_bytes: Longer payloads are cut to this length while they are read, so that they cannot fill our memory; set
            it above the processor's limit, which then dismisses them.
        batch_size: About how many messages are handed over at once at most.
        acknowledge: "delivered": when the events are safe in Kafka; "received": at once, which is faster with a broker
            that allows few messages ahead, and loses what was under way when we are killed.

    Raises:
        ConfigError: Something is missing or makes no sense.
    """

    host: str
    topics: tuple[str, ...]
    port: int | None = None
    qos: Literal[0, 1] = 1
    client_id: str = ""
    share: str = ""
    protocol: Literal["3.1.1", "5"] = "5"
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    tls_ca: str | None = None
    tls_certificate: str | None = None
    tls_key: str | None = None
    keepalive: int = 60
    connect_timeout: float = 10.0
    session_expiry: str | timedelta | int = "1h"
    receive_maximum: int = 5000
    max_bytes: int = 1_048_576
    batch_size: int = 5000
    acknowledge: Literal["delivered", "received"] = "delivered"

    def __post_init__(self) -> None:
        if not self.topics:
            raise ConfigError("no topic is named", hint="Give topics, such as depots/+/scans.")
        if self.protocol not in ("3.1.1", "5"):
            raise ConfigError(f"protocol is {self.protocol!r}", hint="Give 3.1.1 or 5.")
        if self.qos not in (0, 1):
            raise ConfigError(f"qos is {self.qos}", hint="Give 0 or 1; 2 brings nothing that 1 and Kafka do not.")
        if self.share and self.protocol != "5":
            raise ConfigError("share needs protocol 5", hint='Set protocol = "5", or leave share out.')
        if not 1 <= self.receive_maximum <= 65_535:
            raise ConfigError(f"receive_maximum is {self.receive_maximum}", hint="Give a number from 1 to 65535.")
        if self.max_bytes < 1:
            raise ConfigError(f"max_bytes is {self.max_bytes}", hint="Give a number above 0.")
        if not 0 <= self.keepalive <= 65_535:
            raise ConfigError(f"keepalive is {self.keepalive}", hint="Give seconds, at most 65535; 0 switches it off.")
        if self.batch_size < 1:
            raise ConfigError(f"batch_size is {self.batch_size}", hint="Give a number above 0.")
        if (self.tls_ca or self.tls_certificate or self.tls_key) and not self.tls:
            raise ConfigError("tls_ca, tls_certificate or tls_key is set, but tls is not", hint="Set tls = true.")
        micros(self.session_expiry)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        return self.host, self.port or (8883 if self.tls else 1883)

    @property
    def filters(self) -> list[str]:
        """What is subscribed to, the share included."""
        return [f"$share/{self.share}/{topic}" if self.share else topic for topic in self.topics]


class MqttConnector(Connector[MqttSettings]):
    """Reads from an MQTT broker, and comes back when it was away.

    Args:
        settings: How and what.
        wall: Microseconds since the epoch.
    """

    name = "mqtt"
    Settings = MqttSettings

    def __init__(self, settings: MqttSettings, *, wall: Callable[[], int] = lambda: time.time_ns() // 1000) -> None:
        super().__init__(settings)
        self._wall = wall
        self._now = 0
        self._link: Link | None = None
        self._refused = False
        self._was_here = False
        self._since = 0.0
        self._short = 0
        # Message numbers are good for one connection: after another one they may mean other messages.
        self._epoch = 0
        self._owed = 0

    def check(self) -> str:
        """Connect and subscribe under another name, without a session, and leave again.

        Raises:
            SourceError: The broker cannot be reached, or refuses us.
        """
        probe = MqttConnector(self.settings)
        try:
            probe._connect(f"headrace-check-{uuid.uuid4().hex[:8]}", keep=False)
        finally:
            probe.close()
        host, port = self.settings.address
        return f"MQTT broker {host}:{port} answers and lets us read {', '.join(self.settings.filters)}"

    def open(self) -> None:
        """Connect and subscribe.

        Raises:
            SourceError: The broker cannot be reached, or refuses us.
        """
        self._connect(self.settings.client_id, keep=bool(self.settings.client_id))

    def batches(self, stop: threading.Event) -> Iterator[Batch]:
        """Hand over what comes; connects again, for as long as it takes, when the connection is lost.

        Args:
            stop: Ends it.

        Raises:
            SourceError: The broker refuses us after a reconnect.
        """
        while not stop.is_set():
            alive = self._read(_OWED if self._owed else _IDLE)
            yield self._batch()
            if not alive:
                yield from self._reconnect(stop)

    def acknowledge(self, tokens: Sequence[object]) -> None:
        """Tell the broker that it need not send these again.

        Args:
            tokens: Of the batches.
        """
        numbers: list[int] = []
        for token in tokens:
            epoch, some = cast("tuple[int, list[int]]", token)
            if epoch == self._epoch:
                numbers += some
        if numbers and self._link is not None:
            self._owed -= len(numbers)
            # A connection that is lost is noticed by the next read; these then come again.
            with contextlib.suppress(LinkLostError):
                self._link.send(wire.acknowledge(numbers))

    def close(self) -> None:
        """Leave; a session stays at the broker."""
        link, self._link = self._link, None
        if link is not None:
            link.close(wire.disconnect(self.settings.protocol))

    # ---------------------------------------------------------------- connection

    def _connect(self, client_id: str, *, keep: bool) -> None:
        settings = self.settings
        self._hang_up()
        self._epoch += 1
        self._owed = 0
        self._refused = False
        try:
            link = self._link = Link(
                settings.address,
                settings.protocol,
                tls=self._tls(),
                timeout=settings.connect_timeout,
                limit=settings.max_bytes,
                make=self._message,
            )
        except OSError as error:
            why = error.strerror or str(error)
            raise self._problem(f"cannot reach {_BROKER}: {why}", "Check host, port, TLS and network.") from error
        hello = wire.connect(
            settings.protocol,
            client_id=client_id,
            keep=keep,
            keepalive=settings.keepalive,
            username=settings.username,
            password=settings.password,
            session_expiry=micros(settings.session_expiry) // 1_000_000,
            receive_maximum=settings.receive_maximum,
        )
        answer = self._ask(hello, wire.Connected, "does not answer")
        assert answer is not None  # noqa: S101  no limit was given
        if answer.code:
            self._refused = True
            raise self._problem(f"{_BROKER} refuses us: {answer.text}", "Check user name, password, client id.")
        link.keepalive = settings.keepalive if answer.keepalive is None else answer.keepalive
        if keep and self._was_here and not answer.session:
            # It has forgotten us while we were away, and what was published meanwhile.
            self.gaps += 1
        request = wire.subscribe(settings.protocol, settings.filters, qos=settings.qos)
        # What has waited in our session may come before the answer; a batch of it is enough for now.
        granted = self._ask(request, wire.Granted, "does not answer to a subscription", most=settings.batch_size)
        if granted is not None:
            self._check_subscription(granted)
        self._was_here = True
        self._since = time.monotonic()

    def _check_subscription(self, granted: wire.Granted) -> None:
        for topic, code in zip(self.settings.filters, granted.codes, strict=False):
            if code >= 0x80:
                self._refused = True
                why = wire.reason(code)
                raise self._problem(f"{_BROKER} does not let us read {topic}: {why}", "Check it and our rights there.")

    def _tls(self) -> ssl.SSLContext | None:
        settings = self.settings
        if not settings.tls:
            return None
        try:
            context = ssl.create_default_context(cafile=settings.tls_ca)
            if settings.tls_certificate:
                context.load_cert_chain(settings.tls_certificate, settings.tls_key)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"the TLS files cannot be used: {error}", hint="Check tls_ca and others.") from error
        return context

    def _ask(self, request: bytes, kind: type[AnswerT], problem: str, *, most: int | None = None) -> AnswerT | None:
        """Send something and wait for the answer, or until there are so many messages."""
        link = self._link
        assert link is not None  # noqa: S101  _connect has made it
        deadline = time.monotonic() + self.settings.connect_timeout
        try:
            link.send(request)
            while time.monotonic() < deadline:
                self._now = self._wall()
                link.read(0.1)
                for answer in link.parser.answers:
                    if isinstance(answer, kind):
                        link.parser.answers.remove(answer)  # others may have come with it
                        return answer
                self._heed(link)
                if most is not None and len(link.parser.messages) >= most:
                    return None
        except LinkLostError as error:
            raise self._problem(f"{_BROKER} {problem}: {error}", "Is it one, and is TLS right?") from error
        raise self._problem(f"{_BROKER} {problem}", "Is it one, and is TLS right?")

    def _heed(self, link: Link) -> None:
        """Take note of what the broker says unasked."""
        for answer in link.parser.answers:
            if isinstance(answer, wire.Granted):
                self._check_subscription(answer)
            if isinstance(answer, wire.Disconnected):
                if answer.code == wire.SESSION_TAKEN_OVER:
                    self._refused = True
                    raise self._problem(
                        f"{_BROKER} has given our session to another client that calls itself "
                        f"{self.settings.client_id!r}",
                        "Give every ingester a client_id of its own.",
                    )
                raise LinkLostError(answer.text)
        link.parser.answers.clear()

    def _reconnect(self, stop: threading.Event) -> Iterator[Batch]:
        delay, longest = _BACK_OFF
        self.connected = False
        self._short = self._short + 1 if time.monotonic() - self._since < _SHORT else 0
        if self._short >= _SHORT_ONES:
            self._refused = True
            raise self._problem(
                f"{_BROKER} has closed {self._short} connections right after they were made",
                f"Is there another client that calls itself {self.settings.client_id!r}? Each needs a client_id.",
            )
        while not stop.wait(delay):
            try:
                self.open()
            except SourceError:
                if self._refused:
                    raise
                delay = min(delay * 2, longest)
                yield Batch(())
            else:
                self.reconnects += 1
                self.connected = True
                return

    def _read(self, wait: float) -> bool:
        """Read what is there, waiting a little for the first; False when the connection is lost."""
        link = self._link
        assert link is not None  # noqa: S101  open has made it
        limit, until = self.settings.batch_size, time.monotonic() + _GATHER
        try:
            self._heed(link)
            self._now = self._wall()
            while len(link.parser.messages) < limit and link.read(0 if link.parser.messages else wait):
                self._heed(link)
                if time.monotonic() > until:
                    break
                self._now = self._wall()
        except LinkLostError:
            return False
        return True

    def _batch(self) -> Batch:
        """What was read, up to a batch; more waits for the next."""
        link = self._link
        assert link is not None  # noqa: S101  open has made it
        messages, every = link.parser.take(self.settings.batch_size)
        numbers = every if 0 not in every else [number for number in every if number]
        if not numbers:
            return Batch(messages)
        self._owed += len(numbers)
        token = (self._epoch, numbers)
        if self.settings.acknowledge == "received":
            self.acknowledge([token])
            return Batch(messages)
        return Batch(messages, token)

    def _message(self, topic: str, payload: bytes) -> RawMessage:
        return RawMessage(topic, payload, self._now)

    def _hang_up(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def _problem(self, text: str, hint: str) -> SourceError:
        host, port = self.settings.address
        return SourceError(text.replace(_BROKER, f"the MQTT broker at {host}:{port}"), hint=hint)
