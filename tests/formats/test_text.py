"""Records that are text or bytes."""

from __future__ import annotations

import polars as pl
import pytest
from tests.formats.samples import records, rows

from headrace.errors import SchemaError
from headrace.formats import assembly
from headrace.formats.text import raw, text


def test_text_that_is_not_utf8_is_rejected_alone() -> None:
    assert rows(text(), b"a", b"\xff", None, "ö".encode()) == [
        {"text": "a"},
        "malformed",
        "empty_value",
        {"text": "ö"},
    ]


def test_raw_takes_any_bytes() -> None:
    assert rows(raw(), b"\xff\x00", None) == [{"value": b"\xff\x00"}, "empty_value"]


def test_a_value_too_long_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "MAX_VALUE_BYTES", 3)
    assert rows(raw(), b"123", b"1234") == [{"value": b"123"}, "too_large"]


def test_a_record_without_a_timestamp_is_rejected() -> None:
    assert rows(text(), b"a", micros=None) == ["missing_timestamp"]


def test_a_timestamp_out_of_range_is_rejected() -> None:
    assert rows(text(), b"a", micros=-(2**62)) == ["bad_timestamp"]


def test_the_event_time_is_kafkas() -> None:
    frame = text().decode(records(b"a", micros=1_000_000)).frame
    assert frame.get_column("event_time").to_physical().to_list() == [1_000_000]
    assert frame.get_column("ingestion_time").to_physical().to_list() == [1_000_000]


def test_results_without_the_column_are_refused() -> None:
    with pytest.raises(SchemaError, match="writes the column 'text'"):
        text().encode(pl.DataFrame({"other": ["a"]}))
    with pytest.raises(SchemaError, match="of type Int64"):
        text("n").encode(pl.DataFrame({"n": [1]}))


def test_a_column_may_not_be_called_event_time() -> None:
    with pytest.raises(SchemaError, match="event_time"):
        text("event_time")
