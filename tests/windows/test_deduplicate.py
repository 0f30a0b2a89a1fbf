"""Deduplication gives what going through the rows one by one gives, however they are cut and kept."""

from __future__ import annotations

from itertools import pairwise

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace.engine import MemorySegments, Turn
from headrace.errors import StateError
from headrace.inprocess import Runner, run
from headrace.stream import Stream
from headrace.time import bounded, perfect
from headrace.time.instants import BEGINNING, INSTANT
from headrace.windows import count, tumbling
from headrace.windows.deduplicate import DeduplicateOperator

SCHEMA = pl.Schema({"id": pl.String, "n": pl.Int64, "event_time": INSTANT})
Row = tuple[str, int, int | None]


def frame(rows: list[Row]) -> pl.DataFrame:
    columns = {"id": pl.String, "n": pl.Int64, "event_time": pl.Int64}
    return pl.DataFrame(rows, schema=columns, orient="row").cast({"event_time": INSTANT})


def numbers(found: pl.DataFrame | None) -> list[int]:
    return [] if found is None else found.get_column("n").to_list()


class OneByOne:
    """Goes through the rows in the order they arrive."""

    def __init__(self, within: int) -> None:
        self.within = within
        self.watermark = BEGINNING
        self.passed: dict[str, list[int]] = {}

    def step(self, rows: list[Row], watermark: int) -> tuple[list[int], list[int]]:
        passed, late = [], []
        for key, number, time in rows:
            assert time is not None
            if time < self.watermark - self.within:
                late.append(number)
            elif all(abs(time - other) >= self.within for other in self.passed.get(key, [])):
                self.passed.setdefault(key, []).append(time)
                passed.append(number)
        self.watermark = max(self.watermark, watermark)
        return passed, late


rows = st.lists(st.tuples(st.sampled_from("ab"), st.integers(-10, 25)), max_size=20)


@settings(deadline=None, max_examples=100)
@given(
    within=st.integers(1, 8),
    steps=st.lists(st.tuples(rows, st.integers(0, 9)), min_size=1, max_size=7),
    start=st.integers(-10, 5),
)
@example(within=2, steps=[([("a", time) for time in range(40)], 0), ([("a", 3), ("b", 3)], 5)], start=0)
def test_it_is_as_going_through_the_rows_one_by_one(
    within: int, steps: list[tuple[list[tuple[str, int]], int]], start: int
) -> None:
    operator, segments, by_hand = DeduplicateOperator(("id",), within), MemorySegments(), OneByOne(within)
    watermark, number = start, 0
    for step, advance in steps:
        watermark += advance
        numbered: list[Row] = [(key, number + place, time) for place, (key, time) in enumerate(step)]
        number += len(step)
        # A new operator and new segments each time: all it knows is in the bytes.
        segments = MemorySegments(segments.content)
        outcome = operator.turn(segments, Turn(frame(numbered), watermark, 0))
        assert (numbers(outcome.rows), numbers(outcome.late)) == by_hand.step(numbered, watermark)
    operator.turn(segments, Turn(SCHEMA.to_frame(), watermark + 1000, 0))
    assert sorted(segments.content) == ["index"]


@settings(deadline=None, max_examples=50)
@given(given_rows=rows, cuts=st.lists(st.integers(0, 25), max_size=4), within=st.integers(1, 12))
def test_the_answer_does_not_depend_on_how_rows_are_cut_into_turns(
    given_rows: list[tuple[str, int]], cuts: list[int], within: int
) -> None:
    numbered: list[Row] = [(key, number, time) for number, (key, time) in enumerate(given_rows)]
    operator, segments = DeduplicateOperator(("id",), within), MemorySegments()
    at_once = numbers(operator.turn(MemorySegments(), Turn(frame(numbered), 0, 0)).rows)
    places = [0, *sorted(cuts), len(numbered)]
    in_parts: list[int] = []
    for low, high in pairwise(places):
        in_parts += numbers(operator.turn(segments, Turn(frame(numbered[low:high]), -1000, 0)).rows)
    assert in_parts == at_once


def test_rows_pass_as_they_are_and_in_the_order_they_came() -> None:
    operator = DeduplicateOperator(("id",), 10)
    given_rows = frame([("b", 1, 5), ("a", 2, 5), ("b", 3, 6), ("c", 4, 0)])
    outcome = operator.turn(MemorySegments(), Turn(given_rows, 0, 0))
    assert outcome.rows is not None
    assert outcome.rows.equals(given_rows[[0, 1, 3]])
    assert outcome.rows.schema == operator.schema(SCHEMA)


def test_a_row_without_a_time_is_dismissed_and_a_late_one_is_told() -> None:
    operator, segments = DeduplicateOperator(("id",), 10), MemorySegments()
    outcome = operator.turn(segments, Turn(frame([("a", 1, None), ("a", 2, 3)]), 100, 0))
    assert numbers(outcome.rows) == [2]
    assert outcome.dismissed is not None
    assert outcome.dismissed.select("n", "reason").rows() == [(1, "event_time is null")]
    late = operator.turn(segments, Turn(frame([("a", 3, 89), ("a", 4, 90)]), 100, 0))
    assert numbers(late.rows) == [4]
    assert late.late is not None
    assert late.late.select("n", pl.col("lateness").cast(pl.Int64), pl.col("watermark").cast(pl.Int64)).rows() == [
        (3, 1, 100)
    ]


def test_what_passed_before_is_known_and_a_missing_page_is_told() -> None:
    operator, segments = DeduplicateOperator(("id",), 100), MemorySegments()
    for number in range(18):
        operator.turn(segments, Turn(frame([(str(number), number, 5)]), 0, 0))
    again = [(str(number), number, 5) for number in range(19)]
    assert numbers(operator.turn(segments, Turn(frame(again), 0, 0)).rows) == [18]
    segments.delete("passed/0")
    with pytest.raises(StateError, match="passed/0"):
        operator.turn(segments, Turn(frame([("x", 1, 5)]), 0, 0))


def test_in_a_stream_doubled_events_count_once_and_the_key_stays() -> None:
    doors = Stream.rows("doors", {"door": pl.String, "event": pl.Int64}).watermark(bounded("1s"))
    stream = doors.key_by("door").deduplicate("event", within="10s").window(tumbling("10s")).aggregate(n=count())
    times = [1, 1, 2, 2, 11, 25]
    given_rows = pl.DataFrame(
        {"door": ["a", "a", "b", "a", "a", None], "event": [1, 1, 2, 3, 1, 4], "event_time": times}
    ).with_columns((pl.col("event_time") * 1_000_000).cast(INSTANT))
    batch = run(stream, given_rows)
    assert sorted(batch.results.select("door", "n").rows()) == [("a", 1), ("a", 2), ("b", 1)]
    assert batch.dismissed is not None
    assert batch.dismissed.select("event", "reason").rows() == [(4, "null_key")]


@settings(deadline=None, max_examples=25)
@given(given_rows=rows, groups=st.integers(1, 4), cut=st.integers(0, 25))
def test_in_a_stream_the_answer_does_not_depend_on_key_groups_batches_or_restarts(
    given_rows: list[tuple[str, int]], groups: int, cut: int
) -> None:
    source = Stream.rows("s", {"id": pl.String, "n": pl.Int64}).watermark(perfect())
    stream = source.deduplicate("id", within=5).key_by("id").window(tumbling(10)).aggregate(n=count())
    numbered: list[Row] = [(key, number, time) for number, (key, time) in enumerate(given_rows)]
    expected = run(stream, frame(numbered), key_groups=1).results.sort("id", "window_start")
    first = Runner(stream, key_groups=groups)
    one = first.step(frame(numbered[:cut]))
    second = Runner(stream, key_groups=groups, snapshot=first.snapshot())
    rest = [one, second.step(frame(numbered[cut:])), second.finish()]
    found = pl.concat([each.results for each in rest]).sort("id", "window_start")
    assert found.equals(expected)
