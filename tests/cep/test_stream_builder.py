"""Patterns as a step of a stream: time-outs among the results, and which columns are read."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from polars import col
from tests.cep.strategies import START, frame_of, patterns, rows, symbol

import headrace
from headrace.cep import Pattern, current, matched
from headrace.cep.limits import MatchLimitError
from headrace.cep.measures import collect, count, first, last
from headrace.engine.operator import ORIGINAL, Turn
from headrace.engine.state import MemorySegments
from headrace.errors import PlanError
from headrace.inprocess import Batch, Runner
from headrace.stream import Stream
from headrace.stream.pipeline import compile_plan
from headrace.time import bounded, perfect

SECOND = 1_000_000
T0 = int(START.timestamp()) * SECOND
COLUMNS = {"key": pl.String, "symbol": pl.String, "value": pl.Int64}
PAIR = Pattern.begin("a", symbol("a")).followed_by("b", symbol("b")).within("5s").skip("past_last")


def source(bound: str = "0s") -> Stream:
    return Stream.rows("events", COLUMNS).watermark(bounded(bound)).key_by("key")


def test_a_partial_match_that_times_out_is_a_marked_row() -> None:
    stream = (
        source().match(PAIR).with_timed_out().select(at=last("b.event_time"), rows=count(), values=collect("value"))
    )
    runner = Runner(stream)
    first_step = runner.step(frame_of([("x", "a", 1, 0), ("x", "b", 2, 1), ("y", "a", 3, 1), ("z", "c", 0, 2)]))
    assert first_step.results.drop("event_time").rows() == [("x", False, START + timedelta(seconds=1), 2, [1, 2])]
    assert runner.step(frame_of([("z", "c", 0, 6)])).results.is_empty()
    # The row at 7 s moves the watermark to the end of y's bound, without a row of y.
    later = runner.step(frame_of([("z", "c", 0, 7)])).results
    assert later.rows() == [("y", START + timedelta(seconds=7), True, None, 1, [3])]
    assert later.columns == ["key", "event_time", "timed_out", "at", "rows", "values"]


def test_time_outs_and_matches_come_in_the_order_of_time_whatever_the_split() -> None:
    table = frame_of([("x", "a", 1, 0), ("y", "a", 2, 1), ("y", "b", 3, 1), ("z", "c", 0, 30)])
    stream = source().match(PAIR).with_timed_out().select(values=collect("value"))
    whole = Runner(stream, key_groups=1)
    found = whole.step(table).results
    assert found.select("key", "timed_out").rows() == [("y", False), ("x", True)]
    parted = Runner(stream, key_groups=1)
    assert pl.concat([parted.step(row).results for row in table.iter_slices(1)]).equals(found)


def test_time_outs_need_a_time_bound_and_their_name() -> None:
    unbounded = Pattern.begin("a", symbol("a")).next("b", symbol("b"))
    with pytest.raises(PlanError, match="no time bound"):
        source().match(unbounded).with_timed_out().select(at=last("event_time"))
    with pytest.raises(PlanError, match="'timed_out'"):
        source().match(PAIR).with_timed_out().select(timed_out=last("event_time"))
    assert "timed_out" in source().match(PAIR).select(timed_out=last("event_time")).schema


@pytest.mark.parametrize("kind", ["pattern", "sql"])
def test_rows_may_carry_what_they_were_made_of_and_only_late_ones_keep_it(kind: str) -> None:
    query = """SELECT * FROM events MATCH_RECOGNIZE (PARTITION BY key ORDER BY event_time MEASURES LAST(value) AS v
               PATTERN (a b) DEFINE a AS symbol = 'a', b AS symbol = 'b')"""
    by_builder = source().match(Pattern.begin("a", symbol("a")).next("b", symbol("b"))).select(v=last("value"))
    stream = by_builder if kind == "pattern" else headrace.sql(query, {"events": source()})
    operator = compile_plan(stream.node, stream.schema).stages[0].operator
    state = MemorySegments()
    table = frame_of([("x", "a", 1, 0), ("x", "b", 2, 1), ("x", "c", 3, 1)])
    carrying = table.with_columns(pl.lit(b"raw").alias(ORIGINAL))
    assert operator.turn(state, Turn(carrying[:2], T0 + SECOND, 0)).rows is None
    assert operator.turn(state, Turn(table[:0], T0 + SECOND, 0)).rows is None
    found = operator.turn(state, Turn(carrying[[2, 0]], T0 + 3 * SECOND, 0))
    assert found.rows is not None
    assert found.rows["v"].to_list() == [2]
    assert found.late is not None
    assert found.late[ORIGINAL].to_list() == [b"raw"]


def test_only_the_columns_that_a_pattern_reads_are_asked_for() -> None:
    wide = Stream.rows("events", {**COLUMNS, "speed": pl.Float64, "unused": pl.String, "text": pl.String})
    keyed = wide.watermark(bounded("1s")).key_by("key")

    def columns(pattern: Pattern) -> tuple[str, ...]:
        stream = keyed.match(pattern).select(n=count("a"), at=last("b.event_time"), v=first("a.value"))
        pipeline = compile_plan(stream.node, stream.schema)
        assert dict(pipeline.stages[0].operator.schema(pipeline.stages[0].schema)) == dict(stream.schema)
        return pipeline.entries[0].columns

    on_row = Pattern.begin("a", col("speed") > 1).next("b", symbol("b"))
    assert columns(on_row) == ("key", "symbol", "value", "speed", "event_time")
    iterative = Pattern.begin("a").next("b", current("speed") > matched("a").mean("speed"))
    assert columns(iterative) == ("key", "value", "speed", "event_time")
    both = Pattern.begin("a").next("b", matched("a").count() > 0).where(col("text") == "x")
    assert columns(both) == ("key", "value", "text", "event_time")
    plain = Pattern.begin("a").next("b", lambda row, so_far: row["speed"] > so_far.first("a", "speed"))
    assert columns(plain) == tuple(wide.schema)
    chosen = Pattern.begin("a", pl.all_horizontal(pl.col(pl.String).is_not_null())).next("b")
    assert columns(chosen) == tuple(wide.schema)


@settings(deadline=None, max_examples=40)
@given(pattern=patterns(), table=rows(size=16), cuts=st.lists(st.integers(0, 16), max_size=4), groups=st.integers(1, 3))
def test_a_stream_with_time_outs_gives_the_same_for_every_split_and_restart(
    pattern: Pattern, table: pl.DataFrame, cuts: list[int], groups: int
) -> None:
    matches = Stream.rows("events", COLUMNS).watermark(perfect()).key_by("key").match(pattern)
    try:
        stream = (matches.with_timed_out() if pattern.bounded else matches).select(values=collect("value"), n=count())
    except PlanError:
        assume(False)
        raise
    order = ["key", "event_time", "n", "values"]
    whole = Runner(stream, key_groups=groups)
    end = T0 + 1000 * SECOND
    expected = whole.step(table, watermark=end).results.sort(order, maintain_order=True)
    places = [0, *sorted(min(cut, table.height) for cut in cuts), table.height]
    found = []
    snapshot = None
    for begin, stop in pairwise(places):
        runner = Runner(stream, key_groups=groups, snapshot=snapshot)
        mark = table["event_time"].dt.epoch("us")[stop] if stop < table.height else T0 + 900 * SECOND
        found.append(runner.step(table[begin:stop], watermark=mark).results)
        snapshot = runner.snapshot()
    found.append(Runner(stream, key_groups=groups, snapshot=snapshot).step(watermark=end).results)
    assert pl.concat(found).sort(order, maintain_order=True).rows() == expected.rows()


def test_a_key_with_too_many_partial_matches_fails_the_job_or_gives_the_oldest_up() -> None:
    pattern = Pattern.begin("a", symbol("a")).followed_by("b", symbol("b")).within("1h")
    table = frame_of([*[("x", "a", number, 1) for number in range(6)], ("x", "b", 6, 1), ("x", "c", 0, 1)])
    with pytest.raises(MatchLimitError, match=r"5 partial matches at once, more than 4.*limit\("):
        matched_by(pattern.limit(4), table)
    batch = matched_by(pattern.limit(4, at_limit="give_up"), table)
    assert sorted(batch.results["v"].to_list()) == [[2, 6], [3, 6], [4, 6], [5, 6]]
    assert batch.dismissed is not None
    assert batch.dismissed.select("key", "value").rows() == [("x", 0), ("x", 1)]
    assert "more than 4 at once" in batch.dismissed["reason"][0]
    with pytest.raises(PlanError, match=r"at_limit is 'drop'"):
        pattern.limit(4, at_limit="drop")  # type: ignore[arg-type]


def matched_by(pattern: Pattern, table: pl.DataFrame) -> Batch:
    return Runner(source().match(pattern).select(v=collect("value"))).step(table)
