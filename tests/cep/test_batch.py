"""A pattern over a frame."""

from __future__ import annotations

import pytest
from tests.cep.strategies import START, frame_of, symbol

from headrace.cep import Pattern
from headrace.cep.batch import find
from headrace.cep.measures import collect
from headrace.errors import PlanError

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


def test_what_waits_for_time_comes_out_with_the_watermark() -> None:
    pattern = Pattern.begin("a", symbol("a")).not_followed_by("b", symbol("b")).within("5s")
    rows = frame_of([("x", "a", 1, 0), ("x", "c", 1, 1)])
    assert find(pattern, rows).height == 0
    assert find(pattern, rows, watermark=int(START.timestamp()) * SECOND + 5 * SECOND).height == 1


def test_the_time_must_be_an_instant() -> None:
    rows = frame_of([("x", "a", 1, 0)])
    with pytest.raises(PlanError, match="not Datetime"):
        find(AB, rows.drop("event_time"))
