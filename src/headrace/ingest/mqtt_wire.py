"""MQTT on the wire: the packets of a subscriber and of a publisher, versions 3.1.1 and 5, without any socket.

They need little of MQTT: to connect, to subscribe, to read messages and acknowledge them, to show that they are alive;
to send messages and hear that they arrived. All of it is here as functions from values to bytes, and a parser from
bytes to values that reads as many messages as a buffer holds in one go. That, and acknowledgements by the thousand in
one write, is what makes it quick; a general client reads four times from the socket, and writes once, for every single
message.

A message that is longer than a limit is cut while it is read, so that no publisher can fill our memory.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from headrace.ingest.topic_cache import TopicCache

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.ingest.message import RawMessage

Version = Literal["3.1.1", "5"]

_CONNACK, _PUBLISH, _PUBACK, _SUBACK, _PINGRESP, _DISCONNECT = 2, 3, 4, 9, 13, 14
PING = b"\xc0\x00"
#: What follows a property's number in version 5: a number of so many bytes or of varying length, a text, or a pair.
_PROPERTIES: dict[int, int | str] = {
    0x01: 1, 0x02: 4, 0x03: "text", 0x08: "text", 0x09: "text", 0x0B: "varint", 0x11: 4, 0x12: "text", 0x13: 2,
    0x15: "text", 0x16: "text", 0x17: 1, 0x18: 4, 0x19: 1, 0x1A: "text", 0x1C: "text", 0x1F: "text", 0x21: 2, 0x22: 2,
    0x23: 2, 0x24: 1, 0x25: 1, 0x26: "pair", 0x27: 4, 0x28: 1, 0x29: 1, 0x2A: 1,
}  # fmt: skip
_KEEP_ALIVE, _REASON, _RECEIVE_MAXIMUM = 0x13, 0x1F, 0x21

_REFUSALS_3 = {
    1: "unacceptable protocol version", 2: "client id rejected", 3: "server unavailable",
    4: "bad user name or password", 5: "not authorised",
}  # fmt: skip
_REASONS_5 = {
    0x80: "unspecified error", 0x81: "malformed packet", 0x82: "protocol error", 0x83: "implementation specific error",
    0x84: "unsupported protocol version", 0x85: "client id not valid", 0x86: "bad user name or password",
    0x87: "not authorised", 0x88: "server unavailable", 0x89: "server busy", 0x8A: "banned",
    0x8B: "server shutting down", 0x8C: "bad authentication method", 0x8D: "keep alive timeout",
    0x8E: "session taken over", 0x8F: "topic filter not valid", 0x93: "receive maximum exceeded",
    0x95: "packet too large", 0x97: "quota exceeded", 0x98: "administrative action", 0x9A: "retain not supported",
    0x9B: "QoS not supported", 0x9C: "use another server", 0x9D: "server moved",
    0x9E: "shared subscriptions not supported", 0x9F: "connection rate exceeded",
    0xA1: "subscription identifiers not supported", 0xA2: "wildcard subscriptions not supported",
}  # fmt: skip
SESSION_TAKEN_OVER = 0x8E


class ProtocolError(ValueError):
    """What came is no MQTT."""


@dataclass(frozen=True, slots=True)
class Connected:
    """The broker's answer to a connection.

    Args:
        code: 0 if it lets us in.
        text: Why not.
        session: Whether it has kept a session for us.
        keepalive: Seconds within which it wants to hear from us, if not those we offered.
        receive_maximum: How many messages of ours may be under way to it.
    """

    code: int
    text: str
    session: bool
    keepalive: int | None = None
    receive_maximum: int = 65_535


@dataclass(frozen=True, slots=True)
class Granted:
    """The broker's answer to subscriptions.

    Args:
        codes: For each of them; from 128 on it is refused.
    """

    codes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """The broker does not take a message of ours.

    Args:
        number: Which.
        text: Why.
    """

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The broker hangs up, and says why.

    Args:
        code: The reason.
        text: In words.
    """

    code: int
    text: str


def reason(code: int, said: str = "") -> str:
    """A reason code in words.

    >>> reason(0x87), reason(0x87, "no such user")
    ('not authorised', 'not authorised (no such user)')
    """
    known = _REASONS_5.get(code, f"reason {code:#04x}")
    return f"{known} ({said})" if said else known


# ---------------------------------------------------------------- to the broker


def connect(
    version: Version,
    *,
    client_id: str,
    keep: bool,
    keepalive: int,
    username: str | None = None,
    password: str | None = None,
    session_expiry: int = 0,
    receive_maximum: int = 65_535,
) -> bytes:
    """Ask to be let in.

    Args:
        version: Of the protocol.
        client_id: Our name.
        keep: Whether a session that the broker has kept goes on, and is kept when we leave.
        keepalive: Seconds.
        username: If the broker wants one.
        password: Likewise.
        session_expiry: Seconds for which the session is kept (version 5).
        receive_maximum: How many messages may be under way to us (version 5).
    """
    flags = 0 if keep else 0x02
    flags |= (0x80 if username is not None else 0) | (0x40 if password is not None else 0)
    level = 5 if version == "5" else 4
    body = _text("MQTT") + bytes((level, flags)) + keepalive.to_bytes(2, "big")
    if version == "5":
        properties = b"\x21" + receive_maximum.to_bytes(2, "big")
        if keep:
            properties += b"\x11" + session_expiry.to_bytes(4, "big")
        body += _length(len(properties)) + properties
    body += _text(client_id)
    body += b"" if username is None else _text(username)
    body += b"" if password is None else _text(password)
    return b"\x10" + _length(len(body)) + body


def subscribe(version: Version, filters: Sequence[str], *, qos: int, number: int = 1) -> bytes:
    """Ask for messages."""
    body = number.to_bytes(2, "big") + (b"\x00" if version == "5" else b"")
    body += b"".join(_text(topic) + bytes((qos,)) for topic in filters)
    return b"\x82" + _length(len(body)) + body


def acknowledge(numbers: Sequence[int]) -> bytes:
    """Say that messages have arrived, all in one.

    >>> acknowledge([1, 258]).hex(" ", 4)
    '40020001 40020102'
    """
    packets = np.empty((len(numbers), 4), np.uint8)
    packets[:, 0], packets[:, 1] = 0x40, 2
    packets[:, 2:] = np.asarray(numbers, dtype=">u2").view(np.uint8).reshape(-1, 2)
    return packets.tobytes()


def publish(version: Version, topic: str, payload: bytes, *, number: int) -> bytes:
    """Send a message with QoS 1.

    >>> publish("5", "/a", b"x", number=7).hex(" ")
    '32 08 00 02 2f 61 00 07 00 78'
    """
    name = topic.encode()
    properties = b"\x00" if version == "5" else b""
    length = _length(2 + len(name) + 2 + len(properties) + len(payload))
    return b"".join(
        (b"\x32", length, len(name).to_bytes(2, "big"), name, number.to_bytes(2, "big"), properties, payload)
    )


def disconnect(version: Version) -> bytes:
    """Leave."""
    return b"\xe0\x00" if version == "3.1.1" else b"\xe0\x02\x00\x00"


def _text(value: str) -> bytes:
    encoded = value.encode()
    if len(encoded) > 65_535:
        raise ValueError(f"a text of {len(encoded):,} bytes is too long for MQTT")
    return len(encoded).to_bytes(2, "big") + encoded


def _length(number: int) -> bytes:
    found = bytearray()
    while True:
        number, digit = divmod(number, 128)
        found.append(digit | (0x80 if number else 0))
        if not number:
            return bytes(found)


# ---------------------------------------------------------------- from the broker


@dataclass(slots=True)
class Parser:
    """Reads packets out of bytes as they come.

    Args:
        version: Of the protocol.
        limit: Payloads are cut to so many bytes.
        make: Makes a message of topic and payload.

    `messages` and `numbers` grow with every message, until `take` is called; the number of a message of QoS 0 is 0.
    `arrived` has the numbers of messages of ours that the broker has; `answers` everything else that it says.
    """

    version: Version
    limit: int
    make: Callable[[str, bytes], RawMessage]
    messages: list[RawMessage] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    answers: list[Connected | Granted | Refused | Disconnected] = field(default_factory=list)
    arrived: list[int] = field(default_factory=list)
    _rest: bytes = b""
    _skip: int = 0
    _topics: TopicCache[bytes, str] = field(default_factory=lambda: TopicCache(_topic_name, sys.getsizeof))

    def feed(self, chunk: bytes) -> None:
        """Read what came.

        Raises:
            ProtocolError: It is no MQTT.
        """
        if self._skip:
            # The rest of a message that is longer than we want to know.
            gone = min(self._skip, len(chunk))
            self._skip -= gone
            chunk = chunk[gone:]
        data = self._rest + chunk if self._rest else chunk
        size, at = len(data), 0
        five = self.version == "5"
        try:
            while at + 1 < size:
                first, length, start = data[at], data[at + 1], at + 2
                if length & 0x80:
                    found = _varint(data, at + 1, size)
                    if found is None:
                        break
                    length, start = found
                end = start + length
                if end > size:
                    if length > self.limit and first >> 4 == _PUBLISH and size - start > self.limit + 70_000:
                        self._publish(data, start, size, first, five=five, cut=True)
                        self._skip, at = end - size, size
                    break
                if first >> 4 == _PUBLISH:
                    self._publish(data, start, end, first, five=five)
                else:
                    self._control(first >> 4, data[start:end])
                at = end
        except IndexError:
            raise ProtocolError("a packet ends in the middle") from None
        self._rest = data[at:]

    def take(self, most: int) -> tuple[list[RawMessage], list[int]]:
        """Take the first messages, with their numbers."""
        messages, numbers = self.messages, self.numbers
        if len(messages) <= most:
            self.messages, self.numbers = [], []
            return messages, numbers
        self.messages, self.numbers = messages[most:], numbers[most:]
        return messages[:most], numbers[:most]

    def _publish(self, data: bytes, start: int, end: int, first: int, *, five: bool, cut: bool = False) -> None:
        at = start + 2 + (data[start] << 8 | data[start + 1])
        name = data[start + 2 : at]
        topic = self._topics.get(name)
        number = 0
        if first & 0x06:
            number = data[at] << 8 | data[at + 1]
            at += 2
        if five:
            length = data[at]
            if length & 0x80:
                found = _varint(data, at, end)
                if found is None:
                    raise ProtocolError("a packet ends in the middle")
                length, at = found
                at += length
            else:
                at += 1 + length
        if at > end and not cut:
            raise ProtocolError("a packet ends in the middle")
        self.messages.append(self.make(topic, data[at : min(end, at + self.limit)]))
        self.numbers.append(number)

    def _control(self, kind: int, body: bytes) -> None:
        if kind == _PUBACK:
            number, code = body[0] << 8 | body[1], body[2] if len(body) > 2 else 0
            self.arrived.append(number)
            if code >= 0x80:
                self.answers.append(Refused(number, reason(code)))
        elif kind == _CONNACK:
            self.answers.append(self._connack(body))
        elif kind == _SUBACK:
            codes = body[2:]
            if self.version == "5":
                found = _varint(body, 2, len(body))
                if found is None:
                    raise ProtocolError("a packet ends in the middle")
                codes = body[found[1] + found[0] :]
            self.answers.append(Granted(tuple(codes)))
        elif kind == _DISCONNECT and self.version == "5":
            code = body[0] if body else 0
            known = _properties(body[1:]) if len(body) > 1 else {}
            self.answers.append(Disconnected(code, reason(code, str(known.get(_REASON, "")))))
        elif kind != _PINGRESP:
            raise ProtocolError(f"a packet of kind {kind}, which no broker should send to us")

    def _connack(self, body: bytes) -> Connected:
        code, session = body[1], bool(body[0] & 1)
        if self.version == "3.1.1":
            return Connected(code, _REFUSALS_3.get(code, f"code {code}"), session)
        known = _properties(body[2:])
        text = reason(code, str(known.get(_REASON, "")))
        keepalive = None if _KEEP_ALIVE not in known else int(known[_KEEP_ALIVE])
        return Connected(code, text, session, keepalive, int(known.get(_RECEIVE_MAXIMUM, 65_535)))


def _topic_name(name: bytes) -> str:
    # A broker should let nothing else than UTF-8 pass; the processor will dismiss it.
    return name.decode("utf-8", "replace")


def _varint(data: bytes, at: int, size: int) -> tuple[int, int] | None:
    """A number of varying length, and where it ends; None if there is more to come."""
    value = 0
    for place in range(4):
        if at + place >= size:
            return None
        byte = data[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if not byte & 0x80:
            return value, at + place + 1
    raise ProtocolError("a length of more than four bytes")


def _properties(data: bytes) -> dict[int, int | str]:
    """The properties of a packet of version 5, by their numbers; of those that repeat, the last."""
    found = _varint(data, 0, len(data))
    if found is None:
        return {}
    length, at = found
    end = at + length
    known: dict[int, int | str] = {}
    while at < end:
        number, kind = data[at], _PROPERTIES.get(data[at])
        at += 1
        if isinstance(kind, int):
            known[number] = int.from_bytes(data[at : at + kind], "big")
            at += kind
        elif kind == "varint":
            value = _varint(data, at, end)
            if value is None:
                raise ProtocolError("a property ends in the middle")
            known[number], at = value
        elif kind in ("text", "pair"):
            for _ in range(2 if kind == "pair" else 1):
                stop = at + 2 + int.from_bytes(data[at : at + 2], "big")
                known[number] = data[at + 2 : stop].decode("utf-8", "replace")
                at = stop
        else:
            raise ProtocolError(f"property {number:#04x} is not known")
    return known
