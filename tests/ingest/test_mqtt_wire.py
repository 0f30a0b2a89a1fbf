"""MQTT packets, byte by byte; what real brokers make of them is in test_mqtt.py."""

from __future__ import annotations

import contextlib
import sys
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.ingest import RawMessage
from headrace.ingest import mqtt_wire as wire
from headrace.ingest.mqtt_wire import Connected, Disconnected, Granted, Parser, ProtocolError, Refused
from headrace.ingest.topic_cache import TopicCache


def parser(version: Any = "5", limit: int = 1 << 20) -> Parser:
    return Parser(version, limit, lambda topic, payload: RawMessage(topic, payload, 0))


VERSIONS = st.sampled_from(["3.1.1", "5"])
MESSAGES = st.lists(
    st.tuples(st.text(st.characters(codec="utf-8"), max_size=20), st.binary(max_size=300), st.integers(1, 65_535)),
    max_size=8,
)


@given(VERSIONS, MESSAGES, st.data())
def test_messages_come_out_as_they_went_in_however_the_network_cuts_them(
    version: Any, sent: list[tuple[str, bytes, int]], data: st.DataObject
) -> None:
    stream = b"".join(wire.publish(version, topic, payload, number=number) for topic, payload, number in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    found = parser(version)
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        found.feed(stream[begin:end])
    assert [(m.topic, m.payload) for m in found.messages] == [(topic, payload) for topic, payload, _ in sent]
    assert found.numbers == [number for _, _, number in sent]


@given(VERSIONS, st.lists(st.binary(max_size=40), max_size=10))
def test_any_bytes_are_read_or_refused(version: Any, chunks: list[bytes]) -> None:
    found = parser(version)
    with contextlib.suppress(ProtocolError):
        for chunk in chunks:
            found.feed(chunk)
    assert len(found._rest) <= sum(map(len, chunks))


def test_a_message_without_a_number_and_with_properties() -> None:
    found = parser()
    # QoS 0, properties: message expiry 60, user property "a" = "b".
    properties = b"\x02\x00\x00\x00\x3c\x26\x00\x01a\x00\x01b"
    body = b"\x00\x02/a" + bytes([len(properties)]) + properties + b"hello"
    found.feed(b"\x30" + bytes([len(body)]) + body)
    assert found.messages == [RawMessage("/a", b"hello", 0)]
    assert found.numbers == [0]
    long = b"\x26\x00\xa0" + b"k" * 160 + b"\x00\x00"
    body = b"\x00\x02/a\x00\x07" + b"\xa5\x01" + long + b"x"
    assert len(long) == 0xA5
    found.feed(b"\x32" + b"%c\x01" % (0x80 | len(body) % 128) + body)
    assert (found.messages[1].payload, found.numbers) == (b"x", [0, 7])


@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_a_giant_message_is_cut_and_what_follows_is_read(version: Any) -> None:
    found = parser(version, limit=1000)
    stream = wire.publish(version, "/big", b"x" * 5_000_000, number=1) + wire.publish(version, "/a", b"y", number=2)
    largest = 0
    for at in range(0, len(stream), 4096):
        found.feed(stream[at : at + 4096])
        largest = max(largest, len(found._rest))
    assert [(m.topic, len(m.payload)) for m in found.messages] == [("/big", 1000), ("/a", 1)]
    assert found.numbers == [1, 2]
    assert largest < 100_000


def test_giant_properties_do_not_fill_memory_either() -> None:
    found = parser(limit=1000)
    length = 3_000_000
    properties = b"\xc0\x8d\xb7\x01" + b"\x26\x00\x01a\x00\x01b" * (length // 7 + 1)
    body = b"\x00\x02/a\x00\x07" + properties[: length + 4] + b"x"
    size = len(body)
    head = bytes([0x80 | size % 128, 0x80 | size // 128 % 128, 0x80 | size // 16384 % 128, size // 2097152])
    stream = b"\x32" + head + body + wire.publish("5", "/a", b"y", number=8)
    for at in range(0, len(stream), 65_536):
        found.feed(stream[at : at + 65_536])
    assert [m.payload for m in found.messages] == [b"", b"y"]
    assert found.numbers == [7, 8]


def test_topics_of_64_kilobytes_do_not_fill_memory() -> None:
    found = parser()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(500):
            topic = f"/{number}/" + "x" * 60_000
            found.feed(wire.publish("5", topic, b"y", number=1))
            assert [message.topic for message in found.take(10)[0]] == [topic]
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 5_000_000


def test_a_cache_of_topics_is_bounded_by_bytes() -> None:
    made: list[str] = []

    def make(topic: str) -> str:
        made.append(topic)
        return topic.upper()

    cache = TopicCache(make, sys.getsizeof, most_bytes=100_000)
    topics = [f"/{number}/" + "x" * (number % 900) for number in range(2_000)]
    for topic in topics:
        assert cache.get(topic) == topic.upper()
        assert cache.bytes <= 100_000
    assert 0 < len(cache) < 2_000
    made.clear()
    assert [cache.get(topics[-1]) for _ in range(3)] == [topics[-1].upper()] * 3
    assert not made, "a topic that is known is not read again"
    assert cache.get("x" * 200_000) == "X" * 200_000
    assert cache.bytes <= 100_000


def test_what_a_broker_answers() -> None:
    old = parser("3.1.1")
    old.feed(
        b"\x20\x02\x01\x00" + b"\x20\x02\x00\x05" + b"\x90\x04\x00\x01\x01\x80" + b"\xd0\x00" + b"\x40\x02\x00\x09"
    )
    assert old.answers == [
        Connected(0, "code 0", session=True), Connected(5, "not authorised", session=False), Granted((1, 0x80)),
    ]  # fmt: skip
    assert old.arrived == [9]
    new = parser()
    # Server keep alive 30, receive maximum 20, reason string "why".
    properties = b"\x13\x00\x1e\x21\x00\x14\x1f\x00\x03why"
    new.feed(b"\x20" + bytes([3 + len(properties), 0, 0x87, len(properties)]) + properties)
    new.feed(
        b"\x90\x05\x00\x01\x00\x01\x87" + b"\xe0\x01\x8e" + b"\xe0\x00" + b"\x40\x03\x00\x09\x87" + b"\x40\x02\x00\x0a"
    )
    assert new.answers == [
        Connected(0x87, "not authorised (why)", session=False, keepalive=30, receive_maximum=20), Granted((1, 0x87)),
        Disconnected(0x8E, "session taken over"), Disconnected(0, "reason 0x00"), Refused(9, "not authorised"),
    ]  # fmt: skip
    assert new.arrived == [9, 10]


@pytest.mark.parametrize(
    "wrong",
    [
        b"\x30\xff\xff\xff\xff\xff",
        b"\x10\x00",
        b"\x20\x00",
        b"\x32\x03\x00\x09a",
        b"\x20\x05\x00\x00\x02\x7f\x00",
        b"HTTP/1.1 400",
    ],
)
def test_what_is_no_mqtt(wrong: bytes) -> None:
    with pytest.raises(ProtocolError):
        parser().feed(wrong + b"\0" * 200)


def test_taking_some_leaves_the_rest() -> None:
    found = parser()
    found.feed(b"".join(wire.publish("5", "/a", b"%d" % n, number=n) for n in range(1, 8)))
    messages, numbers = found.take(5)
    assert (len(messages), numbers) == (5, [1, 2, 3, 4, 5])
    assert found.take(5)[1] == [6, 7]
    assert found.take(5) == ([], [])


def test_texts_that_are_too_long() -> None:
    with pytest.raises(ValueError, match="too long"):
        wire.connect("5", client_id="x" * 70_000, keep=True, keepalive=60)
