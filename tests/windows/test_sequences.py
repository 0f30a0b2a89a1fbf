"""Windows that rows end: counts, changes, marks; independent of how the stream was cut."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given, settings

from headrace import windows as w
from headrace.engine import MemorySegments, Turn
from headrace.errors import PlanError
from headrace.testing import event_frame
from headrace.testing.strategies import Step, stories
from headrace.time import BEGINNING, END
from headrace.windows import SequenceOperator, count_window, delta, operator_for, punctuation

if TYPE_CHECKING:
    from headrace.windows.sequences import Sequence

SCHEMA = {"event_time": pl.Datetime("us", "UTC"), "key": pl.String, "value": pl.Int64, "id": pl.Int64}
AGGREGATES = {"n": w.count(), "ids": w.collect("id")}


def by_count(rows: list[Any]) -> list[list[Any]]:
    return [rows[i : i + 3] for i in range(0, len(rows), 3)]


def by_mark(rows: list[Any]) -> list[list[Any]]:
    windows: list[list[Any]] = [[]]
    for row in rows:
        windows[-1].append(row)
        if row["value"] == 2:
            windows.append([])
    return [x for x in windows if x]


def by_change(rows: list[Any]) -> list[list[Any]]:
    windows: list[list[Any]] = []
    for row in rows:
        if not windows or abs(row["value"] - windows[-1][0]["value"]) > 2:
            windows.append([])
        windows[-1].append(row)
    return windows


def run(assigner: Sequence, story: list[Step], *, keys: tuple[str, ...] = ("key",)) -> tuple[list[Any], list[int]]:
    operator = SequenceOperator(keys, assigner, AGGREGATES)
    state, mark, panes, late = MemorySegments(), BEGINNING, [], []
    for step in story:
        mark = max(mark, END if step.watermark >= 10**15 else step.watermark)
        outcome = operator.turn(state, Turn(event_frame(list(step.events), SCHEMA), mark, step.now))
        if outcome.rows is not None:
            panes += outcome.rows.with_columns(pl.col("window_start", "window_end").cast(pl.Int64)).to_dicts()
        if outcome.late is not None:
            late += outcome.late.get_column("id").to_list()
        state = MemorySegments(dict(state.content))
    assert set(state.content) == {"index"}
    return panes, late


@pytest.mark.parametrize(
    ("assigner", "brute"),
    [(count_window(3), by_count), (punctuation(pl.col("value") == 2), by_mark), (delta("value", 2), by_change)],
)
@given(story=stories(keys=("a", "b")))
@settings(deadline=None, max_examples=40)
def test_rows_in_order_of_time_make_the_brute_force_windows(assigner: Sequence, brute: Any, story: list[Step]) -> None:
    panes, late = run(assigner, story)
    mark, kept = BEGINNING, defaultdict(list)
    expected_late = []
    for step in story:
        for event in step.events:
            if event["event_time"] < mark:
                expected_late.append(event["id"])
            else:
                kept[event["key"]].append(event)
        mark = max(mark, step.watermark)
    expected = []
    for key, rows in kept.items():
        rows.sort(key=lambda row: row["event_time"])
        for window in brute(rows):
            bounds = window[0]["event_time"], window[-1]["event_time"] + 1
            in_order = sorted(window, key=lambda row: (row["event_time"], row["id"]))
            expected.append((key, *bounds, [row["id"] for row in in_order]))
    got = [(p["key"], p["window_start"], p["window_end"], p["ids"]) for p in panes]
    assert sorted(got) == sorted(expected)
    assert late == expected_late
    assert all((p["pane_timing"], p["pane_is_last"], p["n"]) == ("on_time", True, len(p["ids"])) for p in panes)


def test_without_keys_all_rows_belong_together() -> None:
    rows = tuple({"event_time": t, "key": k, "value": 0, "id": t} for t, k in enumerate("abab"))
    panes, _ = run(count_window(2), [Step(rows[:1], 1, 0), Step(rows[1:], 10**15, 0)], keys=())
    assert [p["ids"] for p in panes] == [[0, 1], [2, 3]]


def test_rows_can_be_taken_as_they_arrive() -> None:
    operator = SequenceOperator((), count_window(2, order="arrival"), AGGREGATES)
    state = MemorySegments()
    rows = event_frame([{"event_time": t, "key": "a", "value": 0, "id": t} for t in (9, 1, 5)], SCHEMA)
    outcome = operator.turn(state, Turn(rows, 100, 0))
    assert outcome.rows is not None
    assert outcome.late is None
    late = event_frame([{"event_time": 2, "key": "a", "value": 0, "id": 2}], SCHEMA)
    assert operator.turn(state, Turn(late, 100, 0)).rows is not None


def test_null_and_nan_are_no_change() -> None:
    operator = SequenceOperator((), delta("v", 1.0), {"n": w.count()})
    values = [None, 1.0, math.nan, 1.5, 9.0]
    rows = event_frame([{"event_time": t, "v": v} for t, v in enumerate(values)])
    outcome = operator.turn(MemorySegments(), Turn(rows, 100, 0))
    assert outcome.rows is not None
    assert outcome.rows.get_column("n").to_list() == [4]


def test_bad_rows_are_dismissed_with_a_reason() -> None:
    operator = SequenceOperator(("key",), count_window(1), AGGREGATES)
    rows = event_frame(
        [{"event_time": None, "key": "a", "id": 1}, {"event_time": 1, "key": None, "id": 2}], {"key": pl.String}
    )
    outcome = operator.turn(MemorySegments(), Turn(rows, 100, 0))
    assert outcome.dismissed is not None
    assert outcome.dismissed.get_column("reason").to_list() == ["event_time is null", "key column 'key' is null"]


def test_the_schema_is_that_of_the_results() -> None:
    operator = SequenceOperator(("key",), delta("value", 1), AGGREGATES)
    rows = event_frame([{"event_time": t, "key": "a", "value": t * 5, "id": t} for t in range(3)], SCHEMA)
    outcome = operator.turn(MemorySegments(), Turn(rows, 100, 0))
    assert outcome.rows is not None
    assert operator.schema(rows.schema) == outcome.rows.schema


def test_what_cannot_work_is_refused() -> None:
    n = {"n": w.count()}
    with pytest.raises(PlanError, match="leave the trigger out"):
        operator_for((), count_window(5), n, trigger=w.after_count(2))
    with pytest.raises(PlanError, match="hold the watermark back"):
        operator_for((), count_window(5), n, allowed_lateness="1s")
    with pytest.raises(PlanError, match="fire once"):
        operator_for((), count_window(5), n, panes=w.Panes(mode="delta"))
    with pytest.raises(PlanError, match="revises its results"):
        operator_for((), count_window(5), n, retractions=True)
    with pytest.raises(PlanError, match="operator_for"):
        w.WindowOperator((), count_window(5), n)
    with pytest.raises(PlanError, match="1 or more"):
        count_window(0)
    with pytest.raises(PlanError, match="zero or more"):
        delta("v", -1)
