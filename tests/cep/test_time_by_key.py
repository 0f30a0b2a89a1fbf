"""Time by key: patterns that wait for the clock of their key, against a brute force that is told the rule."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.cep.strategies import START, frame_of, patterns, symbol
from tests.cep.test_keyed_state import CountingSegments, keyed

from headrace import sql
from headrace.cep import Pattern
from headrace.cep.batch import find
from headrace.cep.measures import collect, count, first, last
from headrace.cep.operator import PatternOperator
from headrace.engine.key_clocks import KeyClocks
from headrace.engine.operator import Turn
from headrace.engine.state import MemorySegments
from headrace.errors import PlanError
from headrace.inprocess import Runner, run
from headrace.stream import Stream
from headrace.time import bounded
from headrace.time.instants import BEGINNING
from headrace.time.key_time import KeyTime

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SECOND = 1_000_000
T0 = int(START.timestamp()) * SECOND
FAR = T0 + 10**6 * SECOND
STOP = (
    Pattern.begin("fast", symbol("a"))
    .next("braking", symbol("b"))
    .one_or_more()
    .consecutive()
    .next("stopped", symbol("c"))
    .within("10s")
    .skip("past_last")
)
MEASURES = {"values": collect("value"), "begins": first("event_time"), "ends": last("event_time")}
SCHEMA = {"key": pl.String, "symbol": pl.String, "value": pl.Int64}


def micros(rows: pl.DataFrame) -> list[int]:
    return rows["event_time"].to_physical().to_list()


def told(frames: Sequence[pl.DataFrame | None]) -> Counter[str]:
    return Counter(str(row) for frame in frames if frame is not None for row in frame.rows())


class Rule:
    """The rule as it is said: row by row, in dictionaries."""

    def __init__(self, tolerance: int) -> None:
        self.tolerance = tolerance
        self.newest: dict[str, int] = {}
        self.watermark = BEGINNING
        self.late: list[int] = []
        self.taken: list[pl.DataFrame] = []

    def turn(self, rows: pl.DataFrame, watermark: int) -> None:
        kept = []
        for place, (key, time) in enumerate(zip(rows["key"], micros(rows), strict=True)):
            mark = max(self.newest.get(key, BEGINNING) - self.tolerance, self.watermark)
            kept.append(time >= mark)
            if time < mark:
                self.late.append(rows["value"][place])
        for key, time in zip(rows["key"], micros(rows), strict=True):
            self.newest[key] = max(self.newest.get(key, BEGINNING), time)
        self.watermark = max(self.watermark, watermark)
        self.taken.append(rows.filter(pl.Series(kept, dtype=pl.Boolean)))


@pytest.fixture(scope="module")
def few_waiting() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@settings(max_examples=120, deadline=None)
@given(
    pattern=patterns(),
    letters=st.lists(
        st.tuples(st.sampled_from("xyz"), st.sampled_from("abcd"), st.integers(0, 5), st.integers(0, 3)), max_size=14
    ),
    tolerance=st.integers(0, 4),
    delay=st.integers(0, 8),
    patience=st.sampled_from([0, 0, 3]),
    data=st.data(),
)
def test_whatever_the_disorder_the_cut_and_the_restarts_the_answer_is_that_of_the_rows_in_time(
    few_waiting: pytest.MonkeyPatch,
    pattern: Pattern,
    letters: list[tuple[str, str, int, int]],
    tolerance: int,
    delay: int,
    patience: int,
    data: st.DataObject,
) -> None:
    rows = frame_of(letters)
    order = data.draw(st.permutations(range(rows.height))) if data.draw(st.booleans()) else range(rows.height)
    rows = rows[list(order)].with_columns(value=pl.int_range(pl.len()))
    try:
        operator = PatternOperator(
            pattern, key=["key"], measures=MEASURES, key_time=KeyTime(tolerance * SECOND, patience * SECOND)
        )
    except PlanError:  # such as a trailing negation without a time bound
        assume(False)
        raise
    rule, state, found, late, place, watermark = Rule(tolerance * SECOND), MemorySegments(), [], [], 0, T0 - SECOND
    few_waiting.setattr("headrace.cep.operator._FEW_WAITING", data.draw(st.sampled_from([0, 16_000])))
    while place < rows.height:
        size = data.draw(st.integers(1, 5))
        piece = rows[place : place + size]
        place += size
        watermark = max(watermark, max(micros(piece)) - delay * SECOND)
        rule.turn(piece, watermark - patience * SECOND)
        outcome = operator.turn(state, Turn(piece, watermark, 0))
        found.append(outcome.rows)
        late += [] if outcome.late is None else outcome.late["value"].to_list()
        state = MemorySegments(dict(state.content))
        if data.draw(st.booleans()):  # there and back: three key groups, of which the rows of the keys make one again
            apart = [MemorySegments() for _ in range(3)]
            operator.resplit([state], apart)
            state = MemorySegments()
            operator.resplit(apart, [state])
    found.append(operator.turn(state, Turn(rows[:0], FAR, 0)).rows)
    assert sorted(late) == sorted(rule.late)
    taken = pl.concat([rows[:0], *rule.taken])
    expected = find(pattern, taken, key="key", measures=MEASURES, watermark=FAR)
    assert told(found) == told([expected])


def test_a_pattern_fires_in_the_batch_that_brings_its_last_row() -> None:
    operator = PatternOperator(STOP, key=["key"], measures={"n": count("braking")}, key_time=KeyTime())
    rows = frame_of([("x", "a", 1, 0), ("x", "b", 2, 1), ("y", "a", 3, 0), ("x", "c", 4, 1)])
    state = MemorySegments()
    assert operator.turn(state, Turn(rows[:3], T0 - 5 * SECOND, 0)).rows is None
    found = operator.turn(state, Turn(rows[3:], T0 - 5 * SECOND, 0)).rows
    assert found is not None
    assert found.rows() == [("x", START + timedelta(seconds=2), 1)]


def test_a_row_behind_the_clock_of_its_key_is_late_and_says_by_how_much() -> None:
    operator = PatternOperator(STOP, key=["key"], key_time=KeyTime(2 * SECOND))
    state = MemorySegments()
    operator.turn(state, Turn(frame_of([("x", "a", 1, 9)]), T0, 0))
    behind = frame_of([("x", "b", 2, 6), ("x", "b", 3, 1), ("y", "b", 4, 0)])
    outcome = operator.turn(state, Turn(behind, T0, 0))
    assert outcome.late is not None
    assert outcome.late.select("value", "lateness", "watermark").rows() == [
        (2, timedelta(seconds=1), START + timedelta(seconds=7))
    ]


def test_rows_of_one_time_keep_the_order_in_which_they_came() -> None:
    operator = PatternOperator(STOP, key=["key"], measures={"values": collect("value")}, key_time=KeyTime())
    state = MemorySegments()
    found = []
    for row in [("x", "a", 1, 5), ("x", "b", 2, 5), ("x", "c", 3, 5)]:
        outcome = operator.turn(state, Turn(frame_of([row]), T0, 0))
        assert outcome.late is None
        found.append(outcome.rows)
    assert found[2] is not None
    assert found[2]["values"].to_list() == [[1, 2, 3]]


def test_a_silent_key_is_served_by_the_watermark() -> None:
    paid = Pattern.begin("order", symbol("a")).not_followed_by("payment", symbol("b")).within("10s")
    operator = PatternOperator(paid, key=["key"], measures={"value": last("order.value")}, key_time=KeyTime())
    state = MemorySegments()
    assert operator.turn(state, Turn(frame_of([("x", "a", 1, 0), ("y", "a", 2, 0)]), T0, 0)).rows is None
    # The clock of y passes the end of its time; x is silent until the watermark does.
    own = operator.turn(state, Turn(frame_of([("y", "d", 3, 10)]), T0, 0)).rows
    assert own is not None
    assert own["value"].to_list() == [2]
    silent = operator.turn(state, Turn(frame_of([])[:0], T0 + 10 * SECOND, 0)).rows
    assert silent is not None
    assert silent["value"].to_list() == [1]


def test_a_key_that_fell_behind_is_in_time_as_long_as_the_patience_lasts() -> None:
    operator = PatternOperator(STOP, key=["key"], measures={"n": count("braking")}, key_time=KeyTime(0, 60 * SECOND))
    state = MemorySegments()
    operator.turn(state, Turn(frame_of([("x", "a", 1, 0), ("y", "d", 0, 50)]), T0 + 50 * SECOND, 0))
    outcome = operator.turn(state, Turn(frame_of([("x", "b", 2, 1), ("x", "c", 3, 1)]), T0 + 51 * SECOND, 0))
    assert outcome.late is None
    assert outcome.rows is not None
    assert outcome.rows["event_time"].to_list() == [START + timedelta(seconds=2)]
    assert outcome.watermark == T0 - 9 * SECOND, "what follows must not take the match for late"
    outcome = operator.turn(state, Turn(frame_of([]), T0 + 63 * SECOND, 0))
    assert operator.turn(state, Turn(frame_of([("x", "b", 2, 2)]), T0 + 63 * SECOND, 0)).late is not None


def test_a_row_that_is_late_by_its_key_is_told_in_full() -> None:
    runner = Runner(JOB)
    runner.step(frame_of([("x", "a", 1, 100), ("y", "a", 1, 20)]))
    late = runner.step(frame_of([("x", "b", 2, 99)])).late
    assert late is not None
    assert late.select("key", "symbol").rows() == [("x", "b")]


def test_marks_are_forgotten_once_the_watermark_has_passed_them_and_cost_what_the_rows_do() -> None:
    clocks = KeyClocks(["key"], KeyTime())

    def cost(keys: int) -> float:
        segments, record = CountingSegments(), {}
        clocks.advance(segments, record, keyed(np.arange(keys), "a", 60), before=T0, watermark=T0)
        random = np.random.default_rng(1)
        for turn in range(160):
            if turn == 80:  # by then the pages have the size that suits such turns
                segments.bytes.clear()
            rows = keyed(random.integers(0, keys, 10), "a", 61)
            clocks.advance(segments, record, rows, before=T0, watermark=T0)
        spent = sum(segments.bytes.values()) / 80
        clocks.advance(segments, record, keyed(np.arange(0), "a", 0), before=T0, watermark=T0 + 61 * SECOND)
        assert record == {}
        assert segments.content == {}
        return spent

    assert cost(50_000) < 3 * cost(5_000)


JOB = (
    Stream.rows("rows", SCHEMA)
    .watermark(bounded("5s"), per="key")
    .filter(pl.col("value") >= 0)
    .key_by("key")
    .match(STOP)
    .select(n=count("braking"))
)
QUERY = """
    SELECT key, n FROM rows MATCH_RECOGNIZE (
      PARTITION BY key ORDER BY event_time MEASURES COUNT(b.value) AS n
      ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW PATTERN (a b+? c) WITHIN INTERVAL '10' SECOND
      DEFINE a AS symbol = 'a', b AS symbol = 'b', c AS symbol = 'c')
"""
BY_SQL = sql(QUERY, {"rows": Stream.rows("rows", SCHEMA).watermark(bounded("5s"), per="key")})


@pytest.mark.parametrize("stream", [JOB, BY_SQL])
def test_a_job_with_time_by_key_gives_the_same_at_once_and_as_a_batch(stream: Stream) -> None:
    rows = frame_of([(key, letter, 1, 1) for letter in "abbcabdabc" for key in "xy"])
    runner = Runner(stream)
    parts = [runner.step(rows[place : place + 3]).results for place in range(0, rows.height, 3)]
    assert parts[2].height == 2  # before any watermark has passed
    parts.append(runner.finish().results)
    whole = run(stream, rows)
    assert told([part.select("key", "n") for part in parts]) == told([whole.results.select("key", "n")])
    assert whole.results.height == 4


def test_which_steps_go_by_the_clock_of_their_key() -> None:
    source = Stream.rows("rows", SCHEMA)
    assert "time by key, tolerance 2s" in source.watermark(bounded("5s"), per="key", tolerance="2s").explain()

    def promised(stream: Stream) -> KeyTime | None:
        return stream.match(STOP).select(n=count("braking")).node.key_time  # type: ignore[attr-defined, no-any-return]

    by_key = source.watermark(bounded("5s"), per="key", tolerance="2s")
    assert promised(by_key.key_by("key")) == KeyTime(2 * SECOND)
    assert promised(by_key.key_by("key", "symbol")) == KeyTime(2 * SECOND)
    assert promised(by_key.key_by("key").key_by("symbol")) is None
    assert promised(by_key.union(by_key).key_by("key")) == KeyTime(2 * SECOND)
    assert promised(by_key.union(source.watermark(bounded("1s"))).key_by("key")) is None
    assert promised(source.watermark(bounded("1s")).key_by("key")) is None
    assert promised(by_key.union(source.watermark(bounded("1s"), per="key", patience="1min")).key_by("key")) == KeyTime(
        2 * SECOND, 60 * SECOND
    )
    assert promised(by_key.key_by("key").previous(before="symbol", within="1h")) is None
    with pytest.raises(PlanError, match="zero or more"):
        source.watermark(bounded("1s"), per="key", tolerance=-1)
    with pytest.raises(PlanError, match="without per="):
        source.watermark(bounded("1s"), tolerance="1s")
    with pytest.raises(PlanError, match="per='bus'"):
        source.watermark(bounded("1s"), per="bus")  # type: ignore[arg-type]
