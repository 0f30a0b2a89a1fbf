"""Records that are lines of CSV."""

from __future__ import annotations

from datetime import UTC, date, datetime

import polars as pl
import pytest
from tests.formats.samples import records, rows

from headrace.errors import SchemaError
from headrace.formats.csv import csv

PAIR = csv({"a": pl.Int64, "b": pl.String})


@pytest.mark.parametrize(
    ("value", "outcome"),
    [
        (b"1,x", {"a": 1, "b": "x"}),
        (b"1,x\r\n", {"a": 1, "b": "x"}),
        (b",", {"a": None, "b": None}),
        (b'1,""', {"a": 1, "b": ""}),
        (b'1,"x,y"', {"a": 1, "b": "x,y"}),
        (b'1,"x\ny"', {"a": 1, "b": "x\ny"}),
        (b'1,"x\r\ny"\n', {"a": 1, "b": "x\r\ny"}),
        (b'1,"say ""hi"""', {"a": 1, "b": 'say "hi"'}),
        (b"1, x ", {"a": 1, "b": " x "}),
        ("1,ö".encode(), {"a": 1, "b": "ö"}),
        (b"-9223372036854775808,x", {"a": -(2**63), "b": "x"}),
        (b"9223372036854775808,x", "malformed"),
        (b"1.0,x", "malformed"),
        (b" 1,x", "malformed"),
        (b"1", "malformed"),
        (b"1,x,y", "malformed"),
        (b'1,"x', "malformed"),
        (b'1,"x"y', "malformed"),
        (b'1,x"y"', "malformed"),
        (b"1,x\n2,y", "malformed"),
        (b"1,\xff", "malformed"),
        (b"", "malformed"),
        (None, "empty_value"),
    ],
)
def test_one_record(value: bytes | None, outcome: object) -> None:
    assert rows(PAIR, b"7,before", value, b"8,after") == [
        {"a": 7, "b": "before"},
        outcome,
        {"a": 8, "b": "after"},
    ]


@pytest.mark.parametrize(
    ("dtype", "text", "value"),
    [
        (pl.Float64, b"1.5e3", 1500.0),
        (pl.Float64, b"inf", float("inf")),
        (pl.Float64, b"one", "malformed"),
        (pl.UInt8, b"256", "malformed"),
        (pl.Boolean, b"TRUE", True),
        (pl.Boolean, b"no", False),
        (pl.Boolean, b"perhaps", "malformed"),
        (pl.Date, b"2026-02-28", date(2026, 2, 28)),
        (pl.Date, b"2026-02-30", "malformed"),
        (pl.Datetime("us", "UTC"), b"2026-01-01T12:00:00Z", datetime(2026, 1, 1, 12, tzinfo=UTC)),
        (pl.Datetime("us", "UTC"), b"2026-01-01 14:00:00.5+02:00", datetime(2026, 1, 1, 12, 0, 0, 500_000, tzinfo=UTC)),
        (pl.Datetime("us"), b"2026-01-01T12:00:00", datetime(2026, 1, 1, 12)),  # noqa: DTZ001
        (pl.Datetime("us"), b"2026-01-01", "malformed"),
    ],
)
def test_types(dtype: pl.DataType, text: bytes, value: object) -> None:
    assert rows(csv({"v": dtype}), text) == [value if value == "malformed" else {"v": value}]


def test_delimiter_quote_and_nulls() -> None:
    semicolons = csv({"a": pl.String, "b": pl.String}, delimiter=";", quote="'", null_values=("NULL", "-"))
    assert rows(semicolons, b"x,y;'a;b'", b"NULL;-", b"'NULL';''") == [
        {"a": "x,y", "b": "a;b"},
        {"a": None, "b": None},
        {"a": "NULL", "b": ""},
    ]
    assert rows(csv({"a": pl.String, "b": pl.String}, delimiter="\t", quote=None), b'"x\t"y"') == [
        {"a": '"x', "b": '"y"'}
    ]


def test_the_time_of_a_column() -> None:
    by_number = csv({"at": pl.Int64}, time="at", time_format="ms")
    decoded = by_number.decode(records(b"1500", b"", b"9223372036854775807"), [])
    assert decoded.frame.get_column("event_time").to_physical().to_list() == [1_500_000]
    assert [str(decoded.rejections[n].reason) for n in (1, 2)] == ["missing_timestamp", "bad_timestamp"]


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (b"2026-01-01T12:00:00Z", {}),
        (b"01.01.2026 14:00", {"time_format": "%d.%m.%Y %H:%M", "time_zone": "Europe/Helsinki"}),
        (b"1767268800", {"time_format": "s"}),
    ],
)
def test_the_time_of_a_text(text: bytes, options: dict) -> None:
    decoded = csv({"at": pl.String}, time="at", **options).decode(records(text, b"soon"))
    assert decoded.frame.get_column("event_time").to_list() == [datetime(2026, 1, 1, 12, tzinfo=UTC)]
    assert str(decoded.rejections[1].reason) == "bad_timestamp"


def test_what_is_written_can_be_read() -> None:
    frame = pl.DataFrame({"a": [1, None, 3], "b": ['x"y', "", "a,b\n"], "unknown": [1, 2, 3]})
    values = PAIR.encode(frame).to_pylist()
    assert values == [b'1,"x""y"', b',""', b'3,"a,b\n"']
    assert rows(PAIR, *values) == frame.select("a", "b").to_dicts()


@pytest.mark.parametrize(
    ("schema", "options", "complaint"),
    [
        ({}, {}, "no columns"),
        ({"a": pl.List(pl.Int64)}, {}, "does not read"),
        ({"a": pl.Int64}, {"delimiter": "::"}, "delimiter is"),
        ({"a": pl.Int64}, {"delimiter": '"'}, "both"),
        ({"a": pl.Int64}, {"time": "b"}, "not in the schema"),
        ({"a": pl.Int64}, {"time": "a"}, "unit"),
        ({"a": pl.Boolean}, {"time": "a"}, "no time"),
        ({"a": pl.String}, {"time": "a", "time_format": "soon"}, "not known"),
        ({"event_time": pl.String}, {}, "event_time"),
    ],
)
def test_refusals(schema: dict, options: dict, complaint: str) -> None:
    with pytest.raises(SchemaError, match=complaint):
        csv(schema, **options)


def test_a_value_that_needs_a_quote_is_refused_without_one() -> None:
    with pytest.raises(SchemaError, match="holds the delimiter"):
        csv({"a": pl.String}, quote=None).encode(pl.DataFrame({"a": ["x,y"]}))
    with pytest.raises(SchemaError, match="of type List"):
        csv({"a": pl.String}).encode(pl.DataFrame({"a": [[1]]}))
