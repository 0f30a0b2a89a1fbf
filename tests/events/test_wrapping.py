"""Envelopes written byte by byte are those that protobuf writes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.events import Codec, Event
from headrace.events.wrapping import wrap
from headrace_transit.schemas import VehiclePosition

URL = "type.googleapis.com/headrace.v1.VehiclePosition"
_FIRST, _LAST = 2**28 * 1_000_000, 2**35 * 1_000_000 - 1


def by_protobuf(details: bytes, event: int, ingestion: int | None) -> bytes:
    envelope = Event()
    for stamp, micros in ((envelope.event_timestamp, event), (envelope.ingestion_timestamp, ingestion)):
        if micros is not None:
            stamp.seconds, stamp.nanos = micros // 1_000_000, micros % 1_000_000 * 1000
    envelope.details.type_url, envelope.details.value = URL, details
    return envelope.SerializeToString(deterministic=True)


#: Microseconds whose nanoseconds take no bytes, two, three, four and five of them, and any others.
instants = st.one_of(
    st.integers(_FIRST, _LAST),
    st.builds(
        lambda second, micros: second * 1_000_000 + micros,
        st.integers(_FIRST // 1_000_000, _LAST // 1_000_000),
        st.sampled_from([0, 1, 16, 17, 2097, 2098, 268_435, 268_436, 999_999]),
    ),
    st.sampled_from([_FIRST, _LAST]),
)


@settings(max_examples=200)
@given(st.lists(st.tuples(st.binary(min_size=1, max_size=300), instants, instants), min_size=1), st.booleans())
def test_the_bytes_are_those_of_protobuf(rows: list[tuple[bytes, int, int]], taken_in: bool) -> None:
    details, event, ingestion = zip(*rows, strict=True)
    values = wrap(pa.array(details, pa.binary()), URL, np.array(event), np.array(ingestion) if taken_in else None)
    assert values is not None
    expected = [by_protobuf(body, at, arrived if taken_in else None) for body, at, arrived in rows]
    assert values.to_pylist() == expected


def test_long_details() -> None:
    bodies = [b"x" * size for size in (1, 127, 128, 16_383, 16_384, 3_000_000)]
    at = np.full(len(bodies), 1_600_000_000_000_001)
    values = wrap(pa.array(bodies, pa.binary()), URL, at, None)
    assert values is not None
    assert values.to_pylist() == [by_protobuf(body, 1_600_000_000_000_001, None) for body in bodies]


@pytest.mark.parametrize("micros", [_FIRST - 1, _LAST + 1, 0, -1])
def test_what_it_cannot_write_it_leaves(micros: int) -> None:
    body = pa.array([b"a", b"b"], pa.binary())
    good = np.array([_FIRST, _FIRST])
    assert wrap(body, URL, np.array([_FIRST, micros]), good) is None
    assert wrap(body, URL, good, np.array([micros, _FIRST])) is None
    assert wrap(pa.array([b"a", b""], pa.binary()), URL, good, None) is None
    assert wrap(pa.array([], pa.binary()), URL, good[:0], None) is None


def test_parts_of_larger_arrays() -> None:
    body = pa.array([b"a", b"bb", b"ccc", b"dddd"], pa.binary())[1:3]
    values = wrap(body, URL, np.array([_FIRST, _LAST]), None)
    assert values is not None
    assert values.to_pylist() == [by_protobuf(b"bb", _FIRST, None), by_protobuf(b"ccc", _LAST, None)]


@pytest.mark.parametrize(
    "times",
    [
        {"event_time": datetime(2025, 1, 1, tzinfo=UTC)},
        {"event_time": datetime(1960, 1, 1, 12, 0, 0, 5, tzinfo=UTC)},
        {"event_time": datetime(2025, 1, 1, tzinfo=UTC), "ingestion_time": None},
        {"event_time": datetime(2025, 1, 1, tzinfo=UTC), "ingestion_time": datetime(1971, 1, 1, tzinfo=UTC)},
    ],
)
def test_the_codec_writes_any_instant(times: dict[str, Any]) -> None:
    schema = dict.fromkeys(times, pl.Datetime("us", "UTC"))
    frame = pl.DataFrame(
        {"vehicle_id": ["1/2", "3/4"], **{name: [value] * 2 for name, value in times.items()}}, schema_overrides=schema
    )
    decoded = Codec().decode(Codec().encode(frame, VehiclePosition), types=[VehiclePosition]).frame
    for name, value in times.items():
        assert decoded[name].to_list() == [value] * 2
    assert decoded["vehicle_id"].to_list() == ["1/2", "3/4"]
