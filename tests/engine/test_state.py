from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal

import polars as pl
import pytest

from headrace.engine import MemorySegments
from headrace.engine.state import frame_from_bytes, frame_to_bytes, record_from_bytes, record_to_bytes
from headrace.errors import StateError


def test_a_frame_comes_back_with_its_exact_types() -> None:
    frame = pl.DataFrame(
        {
            "text": ["a", None],
            "bytes": [b"\x00", None],
            "small": pl.Series([1, None], dtype=pl.UInt8),
            "when": pl.Series([-1, None]).cast(pl.Datetime("us", "UTC")),
            "day": [date(2026, 1, 1), None],
            "length": pl.Series([timedelta(seconds=1), None], dtype=pl.Duration("us")),
            "money": pl.Series([Decimal("1.50"), None], dtype=pl.Decimal(10, 2)),
            "list": [[1, None], None],
            "struct": [{"a": 1, "b": "x"}, None],
            "kind": pl.Series(["b", None], dtype=pl.Enum(["a", "b"])),
            "label": pl.Series(["x", None], dtype=pl.Categorical),
            "nothing": pl.Series([None, None], dtype=pl.Null),
            "number": [float("nan"), -0.0],
        }
    )
    back = frame_from_bytes(frame_to_bytes(frame))
    assert back.schema == frame.schema
    assert back.equals(frame)
    assert frame_from_bytes(frame_to_bytes(frame.clear())).schema == frame.schema


def test_a_record_comes_back_and_is_written_the_same_whatever_the_order_of_its_entries() -> None:
    record = {"b": [1, None, "ä"], "a": {"deep": -(2**61)}}
    assert record_from_bytes(record_to_bytes(record)) == record
    assert record_to_bytes(record) == record_to_bytes(dict(reversed(record.items())))


def test_what_another_version_wrote_is_refused() -> None:
    frame, record = frame_to_bytes(pl.DataFrame({"a": [1]})), record_to_bytes({"a": 1})
    with pytest.raises(StateError, match=r"HF9.*another version"):
        frame_from_bytes(frame.replace(b"HF1\n", b"HF9\n", 1))
    with pytest.raises(StateError, match=r"HR9.*another version"):
        record_from_bytes(record.replace(b"HR1\n", b"HR9\n", 1))
    with pytest.raises(StateError, match="HR1"):
        frame_from_bytes(record)
    with pytest.raises(StateError, match="HF1"):
        record_from_bytes(frame)
    with pytest.raises(StateError, match="starts with b''"):
        frame_from_bytes(b"")


def test_damaged_state_is_refused_by_an_error_of_ours() -> None:
    frame, record = frame_to_bytes(pl.DataFrame({"a": [1, 2, 3]})), record_to_bytes({"a": 1})
    with pytest.raises(StateError, match="damaged"):
        frame_from_bytes(frame[: len(frame) // 2])
    with pytest.raises(StateError, match="damaged"):
        record_from_bytes(record[:-1])


def test_memory_segments_are_a_copy_of_what_they_start_from() -> None:
    start = {"a": b"1"}
    segments = MemorySegments(start)
    segments.put("b", b"2")
    segments.delete("a")
    segments.delete("never there")
    assert start == {"a": b"1"}
    assert segments.content == {"b": b"2"}
