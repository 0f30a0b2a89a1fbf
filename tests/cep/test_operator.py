"""The operator: pending, late and dismissed rows, results, state."""

from __future__ import annotations

import logging
from datetime import timedelta

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars import col
from tests.cep.strategies import START, frame_of, symbol

from headrace.cep import Pattern
from headrace.cep.measures import collect, count, distinct, first, largest, last, mean, smallest, total
from headrace.cep.operator import PatternOperator, PatternOutcome
from headrace.engine.operator import Turn
from headrace.engine.state import MemorySegments
from headrace.errors import PlanError, StateError

SECOND = 1_000_000
T0 = int(START.timestamp()) * SECOND
ABC = (
    Pattern.begin("a", symbol("a"))
    .next("b", symbol("b"))
    .one_or_more()
    .consecutive()
    .next("c", symbol("c"))
    .within("10s")
)


def test_rows_wait_for_the_watermark_and_are_matched_in_event_time_order() -> None:
    operator = PatternOperator(ABC, key=["key"], measures={"n": count("b"), "values": collect("value")})
    rows = frame_of([("x", "a", 1, 0), ("x", "b", 2, 1), ("x", "b", 3, 1), ("x", "c", 4, 1)])
    state = MemorySegments()
    assert operator.turn(state, Turn(rows[[3, 1, 0]], T0, 0)).rows is None
    assert operator.turn(state, Turn(rows[[2]], T0 + 3 * SECOND, 0)).rows is None
    result = operator.turn(state, Turn(rows[:0], T0 + 3 * SECOND + 1, 0)).rows
    assert result is not None
    assert result.rows() == [("x", START + timedelta(seconds=3), 2, [1, 2, 3, 4])]


def test_late_rows_go_to_the_late_output() -> None:
    operator = PatternOperator(ABC, key=["key"])
    rows = frame_of([("x", "a", 1, 0), ("x", "b", 2, 1)])
    state = MemorySegments()
    operator.turn(state, Turn(rows[:0], T0 + SECOND, 0))
    outcome = operator.turn(state, Turn(rows, T0 + SECOND, 0))
    assert outcome.late is not None
    assert outcome.late.select("symbol", "lateness", "watermark").rows() == [
        ("a", timedelta(seconds=1), START + timedelta(seconds=1))
    ]


def test_rows_without_a_time_are_dismissed() -> None:
    rows = frame_of([("x", "a", 1, 0)]).with_columns(event_time=pl.lit(None, dtype=pl.Datetime("us", "UTC")))
    outcome = PatternOperator(ABC, key=["key"]).turn(MemorySegments(), Turn(rows, T0, 0))
    assert outcome.dismissed is not None
    assert outcome.dismissed["reason"].to_list() == ["it has no event time"]


def test_timed_out_partial_matches_have_an_output_of_their_own() -> None:
    operator = PatternOperator(
        ABC, key=["key"], timed_out={"since": first("a.event_time"), "brakes": count("b"), "c": last("c.value")}
    )
    rows = frame_of([("x", "a", 1, 0), ("x", "b", 2, 1)])
    state = MemorySegments()
    assert operator.turn(state, Turn(rows, T0 + 10 * SECOND - 1, 0)).timed_out is None
    outcome = operator.turn(state, Turn(rows[:0], T0 + 10 * SECOND, 0))
    assert outcome.rows is None
    assert outcome.timed_out is not None
    assert outcome.timed_out.rows() == [("x", START + timedelta(seconds=10), START, 1, None)]


def test_every_measure() -> None:
    measures = {
        "first": first("b.value"),
        "last": last("b.value"),
        "rows": count(),
        "values": count("b.value"),
        "total": total("b.value"),
        "smallest": smallest("b.value"),
        "largest": largest("b.value"),
        "mean": mean("b.value"),
        "collect": collect("b.value"),
        "distinct": distinct("b.value"),
        "end": last("value"),
    }
    optional = Pattern.begin("a", symbol("a")).next("b", symbol("b")).times(0, 3).consecutive().next("c", symbol("c"))
    operator = PatternOperator(optional, key=["key"], measures=measures)
    letters = [("x", "a", 1), ("x", "b", 4), ("x", "b", 2), ("x", "b", 4), ("x", "c", 9), ("y", "a", 5), ("y", "c", 6)]
    rows = frame_of([(*letter, 1) for letter in letters])
    result = operator.turn(MemorySegments(), Turn(rows, T0 + 60 * SECOND, 0)).rows
    assert result is not None
    assert result.drop("event_time").rows() == [
        ("x", 4, 4, 5, 3, 10, 2, 4, 10 / 3, [4, 2, 4], 2, 9),
        ("y", None, None, 2, 0, None, None, None, None, [], 0, 6),
    ]
    assert operator.schema(rows.schema) == result.schema


def test_the_schema_of_timed_out_rows() -> None:
    schema = frame_of([]).schema
    assert PatternOperator(ABC, key=["key"]).timed_out_schema(schema) is None
    told = PatternOperator(ABC, key=["key"], timed_out={"n": count("b")}).timed_out_schema(schema)
    assert told is not None
    assert told.names() == ["key", "event_time", "n"]


def test_several_key_columns_and_null_keys() -> None:
    rows = frame_of([("x", "a", 1, 0), ("x", "b", 1, 1), ("x", "c", 1, 1)]).with_columns(
        line=pl.lit(None, dtype=pl.Int64)
    )
    result = PatternOperator(ABC, key=["key", "line"]).turn(MemorySegments(), Turn(rows, T0 + 9 * SECOND, 0)).rows
    assert result is not None
    assert result.select("key", "line", "match_start").rows() == [("x", None, START)]


def test_a_growing_pattern_is_cautioned(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        PatternOperator(Pattern.begin("a").followed_by("b"), key=["key"])
    assert "state grows" in caplog.text
    caplog.clear()
    PatternOperator(ABC, key=["key"])
    assert not caplog.text


def test_fingerprints_tell_programs_apart() -> None:
    one = PatternOperator(ABC, key=["key"]).fingerprint()
    assert one == PatternOperator(ABC, key=["key"]).fingerprint()
    assert one != PatternOperator(ABC.next("d"), key=["key"]).fingerprint()
    assert one["program"] != PatternOperator(Pattern.begin("a", symbol("b")), key=["key"]).fingerprint()["program"]


def test_bad_measures_columns_and_state_are_refused() -> None:
    with pytest.raises(PlanError, match="'braking'"):
        PatternOperator(ABC, key=["key"], measures={"x": first("braking.value")})
    with pytest.raises(PlanError, match="like a column that every match has"):
        PatternOperator(ABC, key=["key"], measures={"key": first("a.value")})
    rows = frame_of([("x", "a", 1, 0)])
    with pytest.raises(PlanError, match="'speed'"):
        PatternOperator(ABC, key=["key"], measures={"x": first("a.speed")}).schema(rows.schema)
    with pytest.raises(PlanError, match="no column 'speed'"):
        PatternOperator(Pattern.begin("a", col("speed") > 1), key=["key"]).schema(rows.schema)
    with pytest.raises(PlanError, match="no column 'vehicle'"):
        PatternOperator(ABC, key=["vehicle"]).schema(rows.schema)
    turn = Turn(rows, T0 + SECOND, 0)
    with pytest.raises(PlanError, match="no column 'speed'"):
        PatternOperator(Pattern.begin("a", col("speed") > 1), key=["key"]).turn(MemorySegments(), turn)
    with pytest.raises(PlanError, match="not true or false"):
        PatternOperator(Pattern.begin("a", col("value") + 1), key=["key"]).turn(MemorySegments(), turn)
    with pytest.raises(StateError, match="saved pattern state"):
        PatternOperator(ABC, key=["key"]).turn(MemorySegments({"pattern": b"XX00zzzz"}), turn)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from("xy"), st.sampled_from("abc"), st.integers(0, 5), st.integers(0, 4)), max_size=25
    ),
    st.data(),
)
def test_turns_may_be_cut_anywhere(letters: list[tuple[str, str, int, int]], data: st.DataObject) -> None:
    rows = frame_of(letters)
    cuts = sorted(data.draw(st.lists(st.integers(0, rows.height), max_size=4)))
    measures = {"values": collect("value")}

    def run(cuts: list[int]) -> tuple[list[object], list[object]]:
        operator = PatternOperator(ABC, key=["key"], measures=measures, timed_out=measures)
        state = MemorySegments()
        matches: list[object] = []
        timed_out: list[object] = []
        for begin, end in zip([0, *cuts], [*cuts, rows.height], strict=True):
            part = rows[begin:end]
            newest = part["event_time"].dt.epoch("us").max()
            # A bounded delay: rows stay pending for two seconds.
            outcome = operator.turn(state, Turn(part, 0 if newest is None else int(newest) - 2 * SECOND, 0))  # type: ignore[call-overload]
            _keep(outcome, matches, timed_out)
        _keep(operator.turn(state, Turn(rows[:0], T0 + 1000 * SECOND, 0)), matches, timed_out)
        return sorted(matches, key=repr), sorted(timed_out, key=repr)

    assert run(cuts) == run([])


def _keep(outcome: PatternOutcome, matches: list[object], timed_out: list[object]) -> None:
    matches += [] if outcome.rows is None else outcome.rows.rows()
    timed_out += [] if outcome.timed_out is None else outcome.timed_out.rows()
    assert outcome.late is None
