"""A pattern over a frame."""

from __future__ import annotations

import polars as pl
import pytest
from tests.cep.strategies import START, frame_of, symbol

from headrace.cep import Pattern
from headrace.cep.batch import find
from headrace.cep.measures import collect
from headrace.errors import PlanError
from headrace.inprocess import Runner
from headrace.stream import Stream
from headrace.time import bounded

SECOND = 1_000_000
AB = Pattern.begin("a", symbol("a")).followed_by("b", symbol("b"))


def test_rows_in_any_order_and_several_keys() -> None:
    rows = frame_of([("x", "a", 1, 0), ("y", "a", 2, 1), ("x", "b", 3, 1), ("y", "b", 4, 1)])
    found = find(AB, rows[[3, 0, 2, 1]], key="key", measures={"values": collect("value")})
    assert found.select("key", "values").rows() == [("x", [1, 3]), ("y", [2, 4])]
    assert find(AB, rows, measures={"values": collect("value")})["values"].to_list() == [[1, 3], [2, 3]]


def test_no_rows_and_no_matches_keep_the_columns() -> None:
    rows = frame_of([("x", "a", 1, 0)])
    assert find(AB, rows, key=["key"]).columns == ["key", "event_time", "match_start", "match_end"]
    assert find(AB, rows[:0], key=["key"]).schema == find(AB, rows, key=["key"]).schema


def test_what_waits_for_time_comes_out_at_the_end_of_the_rows_or_with_the_watermark() -> None:
    pattern = Pattern.begin("a", symbol("a")).not_followed_by("b", symbol("b")).within("5s")
    rows = frame_of([("x", "a", 1, 0), ("x", "c", 1, 1)])
    start = int(START.timestamp()) * SECOND
    assert find(pattern, rows)["event_time"].dt.epoch("us").to_list() == [start + 5 * SECOND]
    assert find(pattern, rows, watermark=start + 5 * SECOND - 1).height == 0
    assert find(pattern, rows, watermark=start + 5 * SECOND).height == 1


def test_a_frame_and_a_stream_that_ends_give_the_same_at_the_end_of_the_rows() -> None:
    pattern = Pattern.begin("a", symbol("a")).not_followed_by("b", symbol("b")).within("5s")
    rows = frame_of([("x", "a", 1, 0), ("y", "a", 2, 2), ("y", "b", 3, 1), ("z", "a", 4, 1)])
    stream = Stream.rows("rows", {"key": pl.String, "symbol": pl.String, "value": pl.Int64}).watermark(bounded("1s"))
    runner = Runner(stream.key_by("key").match(pattern).select(values=collect("value")))
    streamed = pl.concat([runner.step(rows).results, runner.finish().results])
    found = find(pattern, rows, key="key", measures={"values": collect("value")})
    assert found.rows() == streamed.select(found.columns).rows() != []


def test_the_time_must_be_an_instant() -> None:
    rows = frame_of([("x", "a", 1, 0)])
    with pytest.raises(PlanError, match="not Datetime"):
        find(AB, rows.drop("event_time"))
