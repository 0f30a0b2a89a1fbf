"""Absurd input: what an envelope can hold that nobody puts there. Decode it or call it dead, never fall over."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage

from headrace.events import Codec, DeadLetter, Event
from headrace.events.letters import KEPT_BYTES
from headrace_transit.schemas import VehiclePosition

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def event(seconds: int = 5, nanos: int = 0, details: dict[str, Any] | None = None) -> bytes:
    payload = {"type_url": "x/headrace.v1.VehiclePosition"} if details is None else details
    return Event(event_timestamp={"seconds": seconds, "nanos": nanos}, details=payload).SerializeToString()


def test_an_any_in_an_any_in_an_any(codec: Codec) -> None:
    inner = AnyMessage(type_url="x/headrace.v1.VehiclePosition")
    for _ in range(1_000):
        outer = AnyMessage()
        outer.Pack(inner)
        inner = outer
    value = Event(event_timestamp={"seconds": 5}, details=inner).SerializeToString()
    assert codec.decode([value]).dead.select("reason", "event_type").row(0) == ("unknown_type", "google.protobuf.Any")
    assert "google.protobuf.Any" in codec.to_json(value)


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(
            lambda codec: codec.write(VehiclePosition(headsign="x" * 10_000_000), event_time=NOON), id="one long text"
        ),
        pytest.param(lambda codec: event(details={"type_url": "x" * 10_000_000}), id="a long type_url"),
        pytest.param(lambda _: b"\x0b" * 10_000_000, id="ten million open groups"),
        pytest.param(lambda _: event() + b"\xa3\x06" * 5_000_000, id="five million open groups after an event"),
        pytest.param(lambda _: b"\x00" * 10_000_000, id="zeros"),
        pytest.param(lambda _: event() * 100_000, id="an event a hundred thousand times"),
        pytest.param(lambda _: b"{" + b" " * 10_000_000, id="blank JSON"),
        pytest.param(lambda _: b'{"a":' * 1_000_000, id="deep JSON"),
        pytest.param(lambda _: b'{"event_timestamp":' + b"9" * 1_000_000 + b"}", id="a number of a million digits"),
    ],
)
def test_ten_megabytes_decode_or_die_alone(codec: Codec, value: Any, positions: Any) -> None:
    good = codec.encode(positions(100), VehiclePosition).to_pylist()
    absurd = value(codec)
    decoded = codec.decode([*good[:50], absurd, *good[50:]], types=[VehiclePosition])
    assert decoded.frame.height + decoded.dead.height == 101
    assert decoded.frame.height >= 100
    assert all(len(kept) <= KEPT_BYTES for kept in decoded.dead["value"])
    assert all(size == len(absurd) for size in decoded.dead["value_size"])
    assert all(len(name or "") < 1_000 for name in decoded.dead["event_type"])
    json.loads(codec.to_json(absurd))


def test_a_stack_cannot_be_overflown_from_outside() -> None:
    # In a process of its own, because a failure here is not an exception but the end of the process.
    script = """
from headrace.events import Codec
codec = Codec(engine="arrow")
for size in (10_000, 16_384, 16_385, 200_000, 1_000_000):
    for byte in (b"\\x0b", b"\\x0b\\x13"):
        assert codec.decode([byte * (size // len(byte))]).dead.height == 1
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("seconds", "nanos", "expected"),
    [
        (-62_135_596_800, 0, datetime(1, 1, 1, tzinfo=UTC)),
        (-1, 999_999_999, datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)),
        (0, 0, datetime(1970, 1, 1, tzinfo=UTC)),
        (0, 1_999, datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
        (253_402_300_799, 999_999_999, datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)),
        (-62_135_596_801, 0, None),
        (253_402_300_800, 0, None),
        (2**63 - 1, 0, None),
        (-(2**63), 0, None),
        (18_446_744_073_709, 551_616_000, None),  # times 10^6 this wraps to about nought
        (5, 1_000_000_000, None),
        (5, -1, None),
        (5, 2**31 - 1, None),
    ],
)
def test_times_at_and_beyond_the_ends_of_the_calendar(
    codec: Codec, seconds: int, nanos: int, expected: datetime | None
) -> None:
    decoded = codec.decode([event(seconds, nanos), event()], types=[VehiclePosition])
    if expected is None:
        assert decoded.dead["reason"].to_list() == ["bad_timestamp"]
        assert decoded.frame.height == 1
    else:
        assert decoded.frame["event_time"].to_list() == [expected, datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)]


def test_a_bad_ingestion_time_is_a_dead_letter_and_a_missing_one_is_null(codec: Codec) -> None:
    bad = Event.FromString(event())
    bad.ingestion_timestamp.nanos = -5
    decoded = codec.decode([bad.SerializeToString(), event()], types=[VehiclePosition])
    assert decoded.dead["text"].to_list() == ["ingestion_timestamp is out of range"]
    assert decoded.frame["ingestion_time"].to_list() == [None]


def test_numbers_that_are_none(codec: Codec) -> None:
    payload = VehiclePosition(vehicle_id="a", latitude=float("nan"), longitude=float("inf"), speed=-0.0)
    for encoding in ("binary", "json"):
        value = codec.write(payload, event_time=NOON, encoding=encoding)  # type: ignore[arg-type]
        frame = codec.decode([value], types=[VehiclePosition]).frame
        assert str(frame.select("latitude", "longitude", "speed").row(0)) == "(nan, inf, -0.0)"


@pytest.mark.parametrize(
    "text",
    [
        '{"event_timestamp":"1970-01-01T00:00:05Z","details":{"@type":"x/headrace.v1.VehiclePosition","speed":NaN}}',
        '{"event_timestamp":"1970-01-01T00:00:05Z","details":{"@type":"x/headrace.v1.VehiclePosition","vehicle_id":"\\ud800"}}',
        '{"event_timestamp":"1970-01-01T00:00:05Z","details":{"@type":"x/headrace.v1.VehiclePosition","delay":1e99}}',
        '{"event_timestamp":"1970-01-01T00:00:05Z","details":{"@type":"x/headrace.v1.VehiclePosition","delay":"x"}}',
        '{"event_timestamp":"1970-01-01T00:00:05Z","details":{"@type":5}}',
        '{"event_timestamp":"1970-01-01T00:00:05Z","details":[]}',
        '{"event_timestamp":"10000-01-01T00:00:05Z"}',
        '{"event_timestamp":{"seconds":5}}',
        '{"event_timestamp":"yesterday"}',
        '{"event_timestamp":null',
        "{}}",
        '{"\\u0000":1,"details":"x"}',
    ],
)
def test_bad_json_is_a_dead_letter(codec: Codec, text: str) -> None:
    decoded = codec.decode([text.encode(), event()])
    assert decoded.dead["reason"].to_list() == ["malformed_json"]
    assert sum(frame.height for frame in decoded.frames.values()) == 1


def test_kafka_timestamps_that_no_calendar_shows_do_not_stop_a_dead_letter(codec: Codec) -> None:
    batch = pa.record_batch(
        {
            "value": pa.array([b"rubbish"] * 3),
            "key": pa.array([None, b"", b"k" * (KEPT_BYTES + 1)], pa.binary()),
            "timestamp": pa.array([2**62, 1_000_000, -1_000], pa.int64()).cast(pa.timestamp("us", "UTC")),
        }
    )
    dead = codec.decode(batch).dead
    assert dead["record_timestamp"].cast(int).to_list() == [None, 1_000_000, -1_000]
    assert dead["key_size"].to_list() == [0, 0, KEPT_BYTES + 1]
    assert codec.decode(codec.encode_dead_letters(dead), types=[DeadLetter]).frame.select(dead.columns).equals(dead)


@pytest.mark.slow
@pytest.mark.parametrize("byte", ["\\x0a", "\\x0b", "{"])
def test_a_large_batch_of_rubbish_needs_no_more_than_a_few_times_its_size(byte: str) -> None:
    # In a process of its own, because the peak of this one may have been higher before.
    script = f"""
import resource
import pyarrow as pa
from headrace.events import Codec
codec = Codec()
codec.decode([b"warm up"])
values = pa.array([b"{byte}" * 1_000_000] * 100, pa.binary())
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert codec.decode(values).dead.height == 100
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print((after - before) * 1024 / values.nbytes)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 3
