"""The MQTT connector: messages from a broker, none of them lost.

With QoS 1 and a client id of its own, the broker keeps a **session** for us: what is published while we are away waits
there, and what we have not acknowledged comes again. We acknowledge a message only when its event is safe in Kafka, so
that an ingester can be killed at any moment: it loses nothing, and repeats at most what was under way.

Several ingesters with the same `share` split the messages among them (shared subscriptions, MQTT 5). When one is gone,
new messages go to the others. What it had not acknowledged stays in its session until an ingester with its client id
comes back (mosquitto does not hand it to the others, some brokers do): restart it within `session_expiry`. Events of
one vehicle may pass through two ingesters; their order is kept only within one.

There is no thread: the network is read when the runner asks for more. While Kafka is slow nothing is read, and the
broker holds the messages back. How many it sends ahead of our acknowledgements is its `max_inflight_messages`
(mosquitto: 20 by default, too few for a fast feed) or `receive_maximum` here, whichever is smaller.
"""

from __future__ import annotations

import ssl
import time
import uuid
from dataclasses import dataclass, field
from datetime import timedelta  # noqa: TC003 - the reader of feeds.toml needs the types of the fields
from typing import TYPE_CHECKING, Any, Literal, cast

from paho.mqtt.client import Client, MQTTv5, MQTTv311
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from headrace.errors import ConfigError
from headrace.ingest.connector import Connector, SourceError
from headrace.ingest.message import Batch, RawMessage
from headrace.time.duration import micros

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Sequence

    from paho.mqtt.client import ConnectFlags, MQTTMessage
    from paho.mqtt.reasoncodes import ReasonCode

_OK = MQTTErrorCode.MQTT_ERR_SUCCESS
#: Seconds to wait for messages before the runner hears that there are none; less while it owes us acknowledgements.
_IDLE, _OWED = 0.2, 0.01
#: Seconds before the first and the last attempts to connect again.
_BACK_OFF = (0.1, 5.0)
#: Seconds for which a batch grows.
_GATHER = 0.05


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
        protocol: "5" or "3.1.1". Shared subscriptions and `receive_maximum` need 5; 3.1.1 takes a third less of our
            time for each message.
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
        batch_size: How many messages are handed over at once at most.
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
    batch_size: int = 5000
    acknowledge: Literal["delivered", "received"] = "delivered"

    def __post_init__(self) -> None:
        if not self.topics:
            raise ConfigError("no topic is named", hint="Give topics, such as /hfp/v2/journey/#.")
        if self.protocol not in ("3.1.1", "5"):
            raise ConfigError(f"protocol is {self.protocol!r}", hint="Give 3.1.1 or 5.")
        if self.qos not in (0, 1):
            raise ConfigError(f"qos is {self.qos}", hint="Give 0 or 1; 2 brings nothing that 1 and Kafka do not.")
        if self.share and self.protocol != "5":
            raise ConfigError("share needs protocol 5", hint='Set protocol = "5", or leave share out.')
        if not 1 <= self.receive_maximum <= 65_535:
            raise ConfigError(f"receive_maximum is {self.receive_maximum}", hint="Give a number from 1 to 65535.")
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
        self._client: Client | None = None
        self._inbox: list[RawMessage] = []
        self._numbers: list[int] = []
        self._answer: ReasonCode | None = None
        self._granted: list[ReasonCode] | None = None
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
            self._check_subscription()
            messages, numbers = self._inbox, self._numbers
            self._inbox, self._numbers = [], []
            token = None
            if numbers:
                self._owed += len(numbers)
                token = (self._epoch, numbers)
            yield Batch(messages, token)
            if not alive:
                yield from self._reconnect(stop)

    def acknowledge(self, tokens: Sequence[object]) -> None:
        """Tell the broker that it need not send these again.

        Args:
            tokens: Of the batches.
        """
        client = self._client
        for token in tokens:
            epoch, numbers = cast("tuple[int, list[int]]", token)
            if epoch == self._epoch and client is not None:
                self._owed -= len(numbers)
                for number in numbers:
                    client.ack(number, 1)

    def close(self) -> None:
        """Leave; a session stays at the broker."""
        client, self._client = self._client, None
        if client is not None:
            client.disconnect()
            client.on_message = None

    # ---------------------------------------------------------------- connection

    def _make(self, client_id: str, *, keep: bool) -> Client:
        settings = self.settings
        five = settings.protocol == "5"
        client = Client(
            CallbackAPIVersion.VERSION2,
            client_id=client_id,
            protocol=MQTTv5 if five else MQTTv311,
            clean_session=None if five else not keep,
            manual_ack=settings.acknowledge == "delivered",
            reconnect_on_failure=False,
        )
        client.connect_timeout = settings.connect_timeout
        if settings.username is not None:
            client.username_pw_set(settings.username, settings.password)
        if settings.tls:
            try:
                context = ssl.create_default_context(cafile=settings.tls_ca)
                if settings.tls_certificate:
                    context.load_cert_chain(settings.tls_certificate, settings.tls_key)
            except (OSError, ssl.SSLError) as error:
                raise ConfigError(f"the TLS files cannot be used: {error}", hint="Check tls_ca and others.") from error
            client.tls_set_context(context)
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_message = self._on_message
        return client

    def _connect(self, client_id: str, *, keep: bool) -> None:
        settings = self.settings
        host, port = settings.address
        client = self._client = self._make(client_id, keep=keep)
        self._answer = self._granted = None
        self._epoch += 1
        self._owed = 0
        options: dict[str, Any] = {}
        if settings.protocol == "5":
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.ReceiveMaximum = settings.receive_maximum
            if keep:
                properties.SessionExpiryInterval = micros(settings.session_expiry) // 1_000_000
            options = {"clean_start": not keep, "properties": properties}
        try:
            client.connect(host, port, settings.keepalive, **options)
        except OSError as error:
            reason = error.strerror or str(error)
            raise SourceError(
                f"cannot reach the MQTT broker at {host}:{port}: {reason}", hint="Check host, port, TLS and network."
            ) from error
        answer = self._await(lambda: self._answer, "does not answer")
        if answer.is_failure:
            raise SourceError(
                f"the MQTT broker at {host}:{port} refuses us: {answer}", hint="Check user name, password, client id."
            )
        qos: int = settings.qos
        client.subscribe([(topic, qos) for topic in settings.filters])
        # What has waited in our session may come before the answer; a batch of it is enough for now.
        self._await(lambda: self._granted or self._full or None, "does not answer to a subscription")
        self._check_subscription()

    @property
    def _full(self) -> bool:
        return len(self._inbox) >= self.settings.batch_size

    def _check_subscription(self) -> None:
        granted, self._granted = self._granted, None
        for topic, code in zip(self.settings.filters, granted or (), strict=False):
            if code.is_failure:
                host, port = self.settings.address
                raise SourceError(
                    f"the MQTT broker at {host}:{port} does not let us read {topic}: {code}",
                    hint="Check the topic and our rights there.",
                )

    def _await(self, get: Callable[[], Any], problem: str) -> Any:
        assert self._client is not None  # noqa: S101  _connect has made it
        deadline = time.monotonic() + self.settings.connect_timeout
        while get() is None:
            code = self._client.loop(0.1)
            # A broker that refuses us hangs up as soon as it has said so.
            if get() is None and (code != _OK or time.monotonic() > deadline):
                host, port = self.settings.address
                raise SourceError(f"the MQTT broker at {host}:{port} {problem}", hint="Is it one, and is TLS right?")
        return get()

    def _reconnect(self, stop: threading.Event) -> Iterator[Batch]:
        delay, longest = _BACK_OFF
        self.connected = False
        while not stop.wait(delay):
            try:
                self.open()
            except SourceError:
                if self._answer is not None and self._answer.is_failure:
                    raise
                delay = min(delay * 2, longest)
                yield Batch(())
            else:
                self.reconnects += 1
                self.connected = True
                return

    def _read(self, wait: float) -> bool:
        """Read what is there, waiting a little for the first; False when the connection is lost."""
        client = self._client
        assert client is not None  # noqa: S101  open has made it
        if self._full:
            return True
        if client.loop(0 if self._inbox else wait) != _OK:
            return False
        inbox, limit, until = self._inbox, self.settings.batch_size, time.monotonic() + _GATHER
        while (before := len(inbox)) and before < limit:
            if client.loop_read() != _OK:
                return False
            if len(inbox) == before or (before % 64 == 0 and time.monotonic() > until):
                break
        return True

    # ---------------------------------------------------------------- what paho calls

    def _on_connect(
        self, client: Client, data: Any, flags: ConnectFlags, code: ReasonCode, properties: Properties | None
    ) -> None:
        del client, data, flags, properties
        self._answer = code

    def _on_subscribe(
        self, client: Client, data: Any, number: int, codes: list[ReasonCode], properties: Properties | None
    ) -> None:
        del client, data, number, properties
        self._granted = codes

    def _on_message(self, client: Client, data: Any, message: MQTTMessage) -> None:
        del client, data
        try:
            topic = message.topic
        except UnicodeDecodeError:
            topic = ""  # a broker should not let it pass; the processor will dismiss it
        self._inbox.append(RawMessage(topic, bytes(message.payload), self._wall()))
        if message.qos and self.settings.acknowledge == "delivered":
            self._numbers.append(message.mid)
