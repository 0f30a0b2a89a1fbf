"""Results: any job's columns, with their exact types, through a record that knows none of them."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing.parametric import dataframes

from headrace.errors import SchemaError
from headrace.events import Codec, Column, LateEvent, Result
from headrace.events import dtype as dtypes
from headrace.events.cells import MAX_COLUMNS

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
META = {
    "event_time": NOON,
    "ingestion_time": NOON,
    "job": "vehicle-distribution",
    "key": "617700169958293503",
    "idempotency_key": "vehicle-distribution/7/0",
    "window_start": NOON - timedelta(seconds=30),
    "window_end": NOON,
    "pane_index": 2,
    "pane_timing": "late",
    "pane_is_last": False,
    "pane_mode": "value_and_retraction",
    "is_retraction": True,
    "newest_event_time": NOON - timedelta(milliseconds=5),
    "newest_ingestion_time": NOON,
}
HELSINKI = pl.Datetime("ns", "Europe/Helsinki")
EVERYTHING = pl.DataFrame(
    {
        "cell": pl.Series([2**63 + 5, 1, None], dtype=pl.UInt64),
        "count": [1, 2**62, None],
        "small": pl.Series([1, -128, None], dtype=pl.Int8),
        "huge": pl.Series([2**100, -1, None], dtype=pl.Int128),
        "real": [1.5, float("nan"), None],
        "single": pl.Series([0.1, float("inf"), None], dtype=pl.Float32),
        "text": ["a", "", None],
        "blob": [b"\xff", b"", None],
        "flag": [True, False, None],
        "day": [date(1, 1, 1), date(9999, 12, 31), None],
        "clock": [time(0), time(23, 59, 59, 999_999), None],
        "at": pl.Series([NOON, datetime(1, 1, 1, tzinfo=UTC), None], dtype=pl.Datetime("us", "UTC")),
        "there": pl.Series([NOON, NOON, None]).dt.convert_time_zone("Europe/Helsinki").dt.cast_time_unit("ns"),
        "local": pl.Series([datetime(2026, 1, 1), None, None], dtype=pl.Datetime("ms")),  # noqa: DTZ001  a naive column
        "span": [timedelta(days=-3, microseconds=1), timedelta(0), None],
        "money": pl.Series([Decimal("1.25"), Decimal("-99999.99"), None], dtype=pl.Decimal(10, 2)),
        "nothing": [None, None, None],
        "list": [[1, None, 3], [], None],
        "struct": [{"a": 1, "b": [NOON]}, {"a": None, "b": None}, None],
        "top": [[{"line": "6", "share": 0.5}, {"line": None, "share": None}], [], None],
        "pair": pl.Series([[1, 2], [3, None], None], dtype=pl.Array(pl.Int16, 2)),
        "matrix": pl.Series([[[1, 2]], [[3, 4]], None], dtype=pl.Array(pl.Int16, (1, 2))),
    },
    strict=False,
)


NUMBERS = pl.datatypes.group.NUMERIC_DTYPES
#: Polars cannot build a list of numbers that need 128 bits from the Python numbers that its own strategy draws.
HUGE = {pl.Int128, pl.UInt128}
PLAIN = [pl.Date, pl.Time, pl.Datetime, pl.Duration, pl.Boolean, pl.String, pl.Binary, pl.Null]
NESTED = [pl.List, pl.Array, pl.Struct]


def results(own: pl.DataFrame, **changes: Any) -> pl.DataFrame:
    return own.select(*(pl.lit(value).alias(name) for name, value in (META | changes).items()), pl.all())


@pytest.mark.parametrize("encoding", ["binary", "json"])
def test_a_result_comes_back_with_its_very_columns(codec: Codec, encoding: Any) -> None:
    values = codec.encode(results(EVERYTHING), Result, encoding=encoding)
    decoded = codec.decode(values, types=[Result])
    assert decoded.dead.is_empty()
    assert decoded.frame.drop(META).equals(EVERYTHING)
    assert decoded.frame.drop(META).schema == EVERYTHING.schema
    assert decoded.frame.select(*META).row(1, named=True) == META


@settings(deadline=None, max_examples=40)
@given(
    own=st.one_of(
        dataframes(min_cols=1, max_cols=5, max_size=6, allow_null=True, allowed_dtypes=allowed)
        for allowed in ([*NUMBERS, *PLAIN], [*(NUMBERS - HUGE), *PLAIN, *NESTED])
    )
)
def test_any_frame_goes_through(own: pl.DataFrame) -> None:
    frame = own.with_columns(event_time=pl.lit(NOON), job=pl.lit("j"))
    codec = Codec()
    decoded = codec.decode(codec.encode(frame, Result), types=[Result])
    assert decoded.dead.is_empty()
    if own.height:
        assert decoded.frame.select(own.columns).equals(own)
        assert decoded.frame.select(own.columns).schema == own.schema


def test_a_result_without_columns_of_its_own(codec: Codec) -> None:
    frame = pl.DataFrame({"event_time": [NOON, NOON], "job": ["a", "b"]})
    decoded = codec.decode(codec.encode(frame, Result), types=[Result])
    assert decoded.frame["job"].to_list() == ["a", "b"]


def test_jobs_with_different_columns_share_a_topic(codec: Codec) -> None:
    first = results(pl.DataFrame({"cell": [1, 2], "count": [3, 4]}), job="a")
    second = results(pl.DataFrame({"count": [5], "line": ["6"]}), job="b")
    one, two = (codec.encode(frame, Result).to_pylist() for frame in (first, second))
    frame = codec.decode([one[0], two[0], one[1]], types=[Result]).frame
    assert frame.select("job", "cell", "count", "line").rows() == [
        ("a", 1, 3, None),
        ("b", None, 5, "6"),
        ("a", 2, 4, None),
    ]


def test_columns_that_cannot_go_together_leave_the_later_rows_out(codec: Codec) -> None:
    # Nothing is squeezed: an unsigned cell does not become a float, a number does not become a text.
    values = [
        value
        for own in (
            pl.Series([1], dtype=pl.Int64),
            pl.Series([2**63], dtype=pl.UInt64),
            pl.Series(["x"]),
            pl.Series([None]),
        )
        for value in codec.encode(results(own.to_frame("cell")), Result).to_pylist()
    ]
    decoded = codec.decode(values, types=[Result])
    assert decoded.frame["cell"].to_list() == [1, None]
    assert decoded.dead["reason"].to_list() == ["malformed_details"] * 2
    assert "'cell' is UInt64, but Int64 in earlier rows" in decoded.dead["text"][0]


def test_wanted_columns_are_picked_also_among_a_jobs_own(codec: Codec) -> None:
    values = codec.encode(results(EVERYTHING), Result)
    frame = codec.decode(values, types=[Result], columns=["count", "job", "unheard"]).frame
    assert frame.columns == ["event_time", "ingestion_time", "count", "job", "unheard"]
    assert frame["count"].to_list() == [1, 2**62, None]
    assert frame["unheard"].to_list() == [None] * 3
    assert codec.decode([], types=[Result], columns=["count"]).frame.columns == [
        "event_time",
        "ingestion_time",
        "count",
    ]
    assert "columns" not in codec.decode([], types=[Result]).frame.columns


def test_categories_become_text(codec: Codec) -> None:
    own = pl.DataFrame(
        {"line": pl.Series(["6", None], dtype=pl.Categorical), "mode": pl.Series(["a", "b"], dtype=pl.Enum(["a", "b"]))}
    )
    frame = codec.decode(codec.encode(results(own), Result), types=[Result]).frame
    assert frame.select("line", "mode").rows() == [("6", "a"), (None, "b")]


def cell(**fields: Any) -> Column:
    return Column(**fields)


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ([cell(name="a", type="float")], "unknown type 'float'"),
        ([cell(name="a", type="list[" * 40 + "i8" + "]" * 40)], "unknown type"),
        ([cell(name="a", type="array[i8,999999999]")], "unknown type"),
        ([cell(name="a", type="datetime[us,Nowhere/Land]", integer=5)], "unknown type"),
        ([cell(name="a", type="i64", text="x")], "no i64"),
        ([cell(name="a", type="i8", integer=1_000)], "no i8"),
        ([cell(name="a", type="decimal[10,2]", text="x")], "no decimal"),
        ([cell(name="a", type="date", integer=2**62)], "no date"),
        ([cell(name="a", type="time", integer=-1)], "no time"),
        ([cell(name="a", type="datetime[ms]", integer=2**62)], "no datetime"),
        ([cell(name="a", type="list[i64]", items={"cells": [{"text": "x"}]})], "no list"),
        ([cell(name="a", type="list[i8]", items={"cells": [{"integer": 1_000}]})], "no list"),
        ([cell(name="a", type="list[date]", items={"cells": [{"integer": 2**62}]})], "no list"),
        ([cell(name="a", type='struct["x":i64]', items={"cells": []})], "no struct"),
        ([cell(name="a", type="array[i64,2]", items={"cells": [{"integer": 1}]})], "no array"),
        ([cell(name="a", items={"cells": []})], "unknown type ''"),
        ([cell(name="a", integer=1), cell(name="a", integer=1)], "occurs twice"),
        ([cell(name="job", integer=1)], "one of the record's own"),
        ([cell(name="event_time", integer=1)], "one of the record's own"),
        ([cell(name=f"c{k}", integer=1) for k in range(MAX_COLUMNS + 1)], "at most"),
    ],
)
def test_columns_that_are_not_what_they_say_die_alone(codec: Codec, columns: list[Column], complaint: str) -> None:
    good = codec.encode(results(pl.DataFrame({"a": [7, 8]})), Result).to_pylist()
    bad = codec.write(Result(job="j", columns=columns), event_time=NOON)
    decoded = codec.decode([good[0], bad, good[1]], types=[Result])
    assert decoded.frame["a"].to_list() == [7, 8]
    assert decoded.dead["reason"].to_list() == ["malformed_details"]
    assert complaint in decoded.dead["text"][0]
    json.loads(codec.to_json(bad))


def test_a_batch_cannot_be_made_to_have_endless_columns(codec: Codec) -> None:
    values = [
        codec.write(Result(columns=[Column(name=f"c{row}_{k}", integer=1) for k in range(300)]), event_time=NOON)
        for row in range(5)
    ]
    decoded = codec.decode(values, types=[Result])
    assert decoded.frame.height == 3
    assert decoded.dead.height == 2


def test_people_see_plain_values(codec: Codec) -> None:
    own = EVERYTHING.select("cell", "real", "day", "at", "span", "money", "top", "blob")
    shown = json.loads(codec.to_json(codec.encode(results(own), Result)[0].as_py()))["details"]
    assert shown["columns"] == {
        "cell": 2**63 + 5,
        "real": 1.5,
        "day": "0001-01-01",
        "at": "2026-06-01T12:00:00+00:00",
        "span": "-259200s",
        "money": "1.25",
        "top": [{"line": "6", "share": 0.5}, {"line": None, "share": None}],
        "blob": "/w==",
    }


def test_a_job_cannot_answer_with_what_cannot_be_written(codec: Codec) -> None:
    with pytest.raises(SchemaError, match="of type Object cannot be written"):
        codec.encode(results(pl.DataFrame({"a": pl.Series([object()], dtype=pl.Object)})), Result)
    with pytest.raises(SchemaError, match="one by one"):
        codec.encode(results(pl.DataFrame({"columns": [1]})), Result)
    wide = pl.DataFrame({f"c{k}": [1] for k in range(MAX_COLUMNS + 1)})
    with pytest.raises(SchemaError, match=f"at most {MAX_COLUMNS}"):
        codec.encode(results(wide), Result)


def test_late_events_carry_the_row_or_the_event(codec: Codec) -> None:
    late = pl.DataFrame(
        {
            "event_time": [NOON],
            "job": ["j"],
            "lateness": [timedelta(seconds=7)],
            "watermark": [NOON],
            "window_start": [NOON],
            "window_end": [NOON],
            "vehicle_id": ["40/456"],
            "speed": [1.5],
        }
    )
    frame = codec.decode(codec.encode(late, LateEvent), types=[LateEvent]).frame
    assert frame.select(late.columns).equals(late)
    value = codec.write(LateEvent(event=codec.read(_some_event(codec)), job="j"), event_time=NOON)
    inner = codec.decode([value], types=[LateEvent]).frame["event"][0]
    assert inner["details"]["type_url"].endswith("VehiclePosition")


def _some_event(codec: Codec) -> bytes:
    frame = pl.DataFrame({"event_time": [NOON], "vehicle_id": ["a"]})
    return bytes(codec.encode(frame, "VehiclePosition")[0].as_py())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "i65",
        "list",
        "list[]",
        "struct[a:i64]",
        'struct["a":i64',
        "datetime[s]",
        "i64 ",
        "decimal[10]",
        "decimal[999,2]",
    ],
)
def test_what_is_no_type(text: str) -> None:
    assert dtypes.from_text(text) is None


@settings(deadline=None, max_examples=60)
@given(text=st.text(max_size=30))
def test_any_text_is_a_type_or_none(text: str) -> None:
    kind = dtypes.from_text(text)
    assert kind is None or dtypes.from_text(dtypes.to_text(kind)) == kind
