"""Hostile messages through every processor: a corpus, and what Hypothesis makes of it; no crash, bounded memory."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ingest.test_contracts import PROCESSORS, example

from headrace.events import Codec
from headrace.ingest import Processor, RawMessage
from headrace_transit import hfp
from headrace_transit.hfp import HfpProcessor, HfpSettings

NOON = 1_707_841_980_000_000
TOPIC = "/hfp/v2/journey/ongoing/{}/bus/0018/01029/5520/1/Martinlaakso/17:35/4150208/5/60;24/28/65/93"
GOOD = '{"VP":{"tst":"2024-02-13T16:32:59.931Z","spd":8.0,"hdg":27,"lat":60.2,"long":24.8,"dl":-2,"stop":null}}'

#: Payloads that have broken parsers before, here or elsewhere.
CORPUS: list[bytes] = [
    b"",
    b" ",
    b"\0",
    b"\n",
    b"\xff",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf{}",
    "{}".encode("utf-16"),
    b"{",
    b"}",
    b"{}",
    b"[]",
    b"null",
    b"true",
    b"0",
    b"-",
    b'"',
    b'"a',
    b"{'a':1}",
    b'{"a":1,}',
    b'{"a":1}}',
    b"{} {}",
    b"[" * 100_000,
    b'{"a":' * 50_000,
    b'{"VP":{}}',
    b'{"VP":{}{}}',
    b'{"VP":{"a":[{}}}',
    b'{"VP":{"a":"}}',
    b'{"VP":{"tst":null}}',
    b'{"VP":null}',
    b'{"VP":{},"VP":{}}',
    b'{"VP":{"spd":1,"spd":2,"tsi":1}}',
    b'{"VP":{"tsi":1e999}}',
    b'{"VP":{"spd":NaN,"tsi":1}}',
    b'{"VP":{"tsi":99999999999999999999999}}',
    b'{"VP":{"tst":"0000-00-00T00:00:00Z"}}',
    b'{"VP":{"tst":"2024-02-30T00:00:00.000Z"}}',
    b'{"VP":{"tst":"9999-12-31T23:59:59.999999Z"}}',
    b'{"VP":{"tst":"2024-02-13T16:32:59.931Z","lat":1e308,"long":1}}',
    b'{"VP":{"tst":"2024-02-13T16:32:59.931Z","desi":"\\ud800"}}',
    b'{"VP":{"tst":"2024-02-13T16:32:59.931Z","desi":"\\u0000"}}',
    b'{"VP":{"tst":"2024-02-13T16:32:59.931Z","stop":"EOL"}}',
    b'{"VP":{"tst":"2024-02-13T16:32:59.931Z","hdg":1.0,"drst":true}}',
    b"9" * 60_000,
    b"1e" + b"9" * 1000,
    b'{"id":' + b"9" * 5000 + b"}",
    b"a,1",
    b'"a,1',
    b'a,"1"',
    b'""",1',
    b"a\x00,1",
    b"a,1\nb,2",
    b"," * 60_000,
    b'"' * 60_001,
    GOOD.encode(),
    GOOD.replace("null", '"x"').encode(),
    b"x" * 10_000_000,
]
TOPICS = [
    "",
    "/",
    "\ud800",
    "/" * 5000,
    TOPIC.format("vp"),
    TOPIC.format("dep"),
    "/hfp/v1/journey/ongoing/bus/0018/01029",
]


def check(processor: Processor, batch: list[RawMessage]) -> None:
    """Every message has one answer, which does not depend on the others, and every event can be written and read."""
    result = processor.process(batch)
    assert result.count + len(result.dismissed) == len(batch)
    for part in result.events:
        decoded = Codec().decode(Codec().encode(part.frame, part.type), types=[part.type])
        assert decoded.dead.is_empty()
        assert part.keys is None or not part.keys.null_count()
    for number, message in enumerate(batch):
        alone = processor.process([message])
        assert (number in result.dismissed) == bool(alone.dismissed), message
        if alone.dismissed:
            assert result.dismissed[number] == alone.dismissed[0]


@pytest.mark.parametrize("kind", PROCESSORS)
def test_the_corpus(kind: type[Processor]) -> None:
    processor = example(kind)
    for topic in TOPICS:
        check(processor, [RawMessage(topic, payload, NOON) for payload in CORPUS])


@pytest.mark.parametrize("kind", PROCESSORS)
def test_a_giant_message_is_not_read(kind: type[Processor]) -> None:
    processor = example(kind)
    batch = [RawMessage(TOPIC.format("vp"), b'{"VP":{"a":"' + b"x" * 50_000_000 + b'"}}', NOON)] * 20
    tracemalloc.start()
    result = processor.process(batch)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert {str(dismissal.cause) for dismissal in result.dismissed.values()} == {"too_large"}
    assert most < 5_000_000


SCALARS = st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats() | st.text(max_size=8)
VALUES = st.recursive(SCALARS, lambda part: st.lists(part, max_size=3) | st.dictionaries(st.text(), part, max_size=3))
NAMES = st.sampled_from(
    ["id", "n", "VP", "tst", "tsi", "spd", "hdg", "lat", "long", "dl", "dir", "drst", "stop", "desi"]
)


def mutated(payload: bytes, at: int, new: bytes) -> bytes:
    at %= len(payload) + 1
    return payload[:at] + new + payload[at + 1 :]


PAYLOADS = (
    st.sampled_from([payload for payload in CORPUS if len(payload) < 1000])
    | st.builds(mutated, st.just(GOOD.encode()), st.integers(0, 500), st.binary(max_size=3))
    | st.binary(max_size=60)
    | st.dictionaries(NAMES, VALUES, max_size=4).map(lambda body: json.dumps(body).encode())
    | st.dictionaries(NAMES, VALUES, max_size=4).map(lambda body: json.dumps({"VP": {"tsi": 1, **body}}).encode())
    | st.lists(st.text(max_size=6), min_size=1, max_size=3).map(
        lambda cells: ",".join(cells).encode("utf-8", "replace")
    )
)
MESSAGES = st.builds(
    RawMessage,
    st.sampled_from(TOPICS),
    PAYLOADS,
    st.just(NOON),
    st.sampled_from([0, -(10**15), 10**15]),
    st.integers(0, 3),
)


@pytest.mark.parametrize("kind", PROCESSORS)
@settings(deadline=None, max_examples=60)
@given(batch=st.lists(MESSAGES, max_size=6))
def test_anything(kind: type[Processor], batch: list[RawMessage]) -> None:
    check(example(kind), batch)


@settings(deadline=None, max_examples=150)
@given(batch=st.lists(MESSAGES, min_size=1, max_size=6), clear=st.booleans())
def test_reading_hfp_together_and_one_by_one_is_the_same(batch: list[RawMessage], clear: bool) -> None:
    processor = HfpProcessor(
        HfpSettings(bad_fields="clear" if clear else "dismiss", max_behind=None, max_ahead="40000d")
    )
    together = processor.process(batch)
    kept: dict[str, Any] = dict(hfp._BEGINNINGS)
    try:
        hfp._BEGINNINGS.clear()
        apart = processor.process(batch)
    finally:
        hfp._BEGINNINGS.update(kept)
    assert together.dismissed == apart.dismissed
    assert together.cleared == apart.cleared
    assert [part.topic for part in together.events] == [part.topic for part in apart.events]
    for one, other in zip(together.events, apart.events, strict=True):
        assert one.frame.equals(other.frame)
