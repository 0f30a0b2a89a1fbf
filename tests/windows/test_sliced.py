"""The quick window operator gives what the general one gives, and both give what a plain computation gives."""

from __future__ import annotations

import builtins
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from headrace.engine import MemorySegments, Turn
from headrace.engine.keygroups import split_by_group
from headrace.errors import JobError, StateError
from headrace.time.instants import BEGINNING, END, INSTANT
from headrace.windows import (
    WindowOperator,
    count,
    distinct,
    first,
    latest,
    max,  # noqa: A004
    mean,
    sliding,
    sum,  # noqa: A004
    top_k,
    tumbling,
)
from headrace.windows.custom import custom
from headrace.windows.sliced import SlicedOperator
from headrace.windows.slices import MAX_CHUNKS

if TYPE_CHECKING:
    from headrace.engine import Operator
    from headrace.windows import Aggregate, Aligned

SCHEMA = pl.Schema({"k": pl.String, "v": pl.Int64, "event_time": INSTANT})
AGGREGATES: dict[str, Aggregate] = {
    "n": count(),
    "known": count("v"),
    "total": sum("v"),
    "top": max("v"),
    "average": mean("v"),
    "newest": latest("v"),
    "oldest": first("v"),
    "kinds": distinct("v"),
    "usual": top_k("v", 2),
}

Row = tuple[str, int | None, int]


@dataclass(frozen=True)
class Step:
    """Rows that arrive together, and where the watermark goes then."""

    rows: list[Row]
    advance: int
    restart: bool = False


def frame(rows: list[Row]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema={"k": pl.String, "v": pl.Int64, "event_time": pl.Int64}, orient="row").cast(
        {"event_time": INSTANT}
    )


def sliced(assigner: Aligned) -> SlicedOperator:
    return SlicedOperator(("k",), assigner, tuple(AGGREGATES.items()))


def general(assigner: Aligned) -> WindowOperator:
    return WindowOperator(("k",), assigner, AGGREGATES)


class Driver:
    """Runs one operator on some key groups, as a runner does."""

    def __init__(self, operator: Operator, *, groups: int, prepare: bool) -> None:
        self.operator = operator
        self.groups = groups
        self.prepare = prepare
        self.segments = [MemorySegments() for _ in range(groups)]
        self.watermark: int | None = None

    def restart(self) -> None:
        self.segments = [MemorySegments(each.content) for each in self.segments]
        self.watermark = None

    def step(self, batches: list[pl.DataFrame], watermark: int) -> tuple[pl.DataFrame | None, pl.DataFrame | None]:
        rows: dict[int, list[pl.DataFrame]] = defaultdict(list)
        partials: dict[int, list[pl.DataFrame]] = defaultdict(list)
        for batch in batches:
            kept, folded = self.operator.prepare(batch, self.watermark if self.prepare else None)
            for group, part in split_by_group(kept, ["k"], self.groups).items():
                rows[group].append(part)
            for group, part in split_by_group(folded, ["k"], self.groups).items() if folded is not None else ():
                partials[group].append(part)
        results, late = [], []
        for group, segments in enumerate(self.segments):
            turn = Turn(
                pl.concat(rows[group]) if rows[group] else SCHEMA.to_frame(),
                watermark,
                0,
                pl.concat(partials[group]) if partials[group] else None,
            )
            outcome = self.operator.turn(segments, turn)
            assert outcome.dismissed is None
            results += [] if outcome.rows is None else [outcome.rows]
            late += [] if outcome.late is None else [outcome.late]
        self.watermark = watermark
        return pl.concat(results) if results else None, pl.concat(late) if late else None


class Plain:
    """Windows by the book: one list of rows per window and key."""

    def __init__(self, assigner: Aligned) -> None:
        self.assigner = assigner
        self.watermark = BEGINNING
        self.windows: dict[tuple[str, int], list[tuple[int | None, int]]] = defaultdict(list)

    def starts(self, time: int) -> list[int]:
        size, every, offset = self.assigner.size, self.assigner.every, self.assigner.offset
        start = offset + (time - offset) // every * every
        found = []
        while start + size > time:
            found.append(start)
            start -= every
        return found

    def step(self, rows: list[Row], watermark: int) -> tuple[list[tuple[object, ...]], list[Row]]:
        late = []
        for key, value, time in rows:
            alive = [start for start in self.starts(time) if start + self.assigner.size > self.watermark]
            for start in alive:
                self.windows[key, start].append((value, time))
            if not alive:
                late.append((key, value, time))
        done = sorted((key, start) for key, start in self.windows if start + self.assigner.size <= watermark)
        self.watermark = watermark
        return [self.result(key, start, self.windows.pop((key, start))) for key, start in done], late

    def result(self, key: str, start: int, rows: list[tuple[int | None, int]]) -> tuple[object, ...]:
        known = [(time, value) for value, time in rows if value is not None]
        values = [value for _, value in known]
        ends = sorted(time for time, _ in known)
        newest = sorted(value for time, value in known if time == ends[-1])
        oldest = sorted(value for time, value in known if time == ends[0])
        return (
            key,
            start,
            start + self.assigner.size,
            len(rows),
            len(known),
            builtins.sum(values),
            builtins.max(values, default=None),
            builtins.sum(values) / len(values) if values else None,
            newest[-1] if newest else None,
            oldest[-1] if oldest else None,
            len(set(values)),
        )


def ordered(results: pl.DataFrame | None) -> pl.DataFrame | None:
    if results is None:
        return None
    return results.select(sorted(results.columns)).sort("window_end", "k")


def ordered_late(late: pl.DataFrame | None) -> pl.DataFrame | None:
    if late is None:
        return None
    return late.select(sorted(late.columns)).sort("event_time", "k", "v")


def assert_same(one: pl.DataFrame | None, other: pl.DataFrame | None) -> None:
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        assert_frame_equal(one, other)


def plain_rows(results: pl.DataFrame | None) -> list[tuple[object, ...]]:
    if results is None:
        return []
    names = ["k", "window_start", "window_end", "n", "known", "total", "top", "average", "newest", "oldest", "kinds"]
    bounds = pl.col("window_start", "window_end").cast(pl.Int64)
    return results.with_columns(bounds).select(names).sort("k", "window_start").rows()


@st.composite
def assigners(draw: st.DrawFn) -> Aligned:
    size = draw(st.integers(1, 12) | st.sampled_from([16, 24, 37]))  # many slices are kept in blocks, too
    every = draw(st.integers(1, size) | st.just(1))
    offset = draw(st.integers(-7, 13))
    return sliding(size, every=every, offset=offset) if every < size else tumbling(size, offset=offset)


times = st.integers(-40, 40) | st.integers(-3, 3)
some_rows = st.lists(st.tuples(st.sampled_from("abcd"), st.none() | st.integers(-3, 3), times), max_size=8)
advances = st.integers(0, 6) | st.just(0) | st.just(1000)
steps = st.lists(st.builds(Step, rows=some_rows, advance=advances, restart=st.booleans()), min_size=1, max_size=7)


@settings(deadline=None, max_examples=50)
@given(
    assigner=assigners(),
    steps=steps,
    start=st.integers(-45, 0),
    groups=st.integers(1, 2),
    prepare=st.tuples(st.booleans(), st.booleans()),
    cut=st.integers(0, 8),
)
@example(  # the slide does not divide the size, times before the epoch, a jump far ahead
    assigner=sliding(10, every=4, offset=3),
    steps=[Step([("a", 1, -9), ("b", 2, -1)], 0), Step([("a", 3, -6)], 1000), Step([("a", 9, 2)], 0)],
    start=-10,
    groups=2,
    prepare=(True, False),
    cut=1,
)
def test_it_gives_what_the_general_operator_and_a_plain_computation_give(
    assigner: Aligned, steps: list[Step], start: int, groups: int, prepare: tuple[bool, bool], cut: int
) -> None:
    quick = Driver(sliced(assigner), groups=groups, prepare=prepare[0])
    whole = Driver(general(assigner), groups=1, prepare=prepare[1])
    plain = Plain(assigner)
    watermark = start
    for step in [*steps, Step([], 10_000)]:
        watermark += step.advance
        if step.restart:
            quick.restart()
        batches = [frame(step.rows[:cut]), frame(step.rows[cut:])]
        results, late = quick.step(batches, watermark)
        same_results, same_late = whole.step(batches, watermark)
        assert_same(ordered(results), ordered(same_results))
        assert_same(ordered_late(late), ordered_late(same_late))
        by_hand, late_by_hand = plain.step(step.rows, watermark)
        assert plain_rows(results) == sorted(by_hand, key=lambda row: (row[0], row[1]))  # type: ignore[type-var]
        found = [] if late is None else late.select("k", "v", pl.col("event_time").cast(pl.Int64)).rows()
        assert sorted(found, key=str) == sorted(late_by_hand, key=str)
    assert not plain.windows
    for segments in quick.segments:
        assert sorted(segments.content) == ["index"]


@settings(deadline=None, max_examples=50)
@given(assigner=assigners(), rows=some_rows, cuts=st.lists(st.integers(0, 8), max_size=4))
def test_results_do_not_depend_on_how_rows_are_cut_into_turns(
    assigner: Aligned, rows: list[Row], cuts: list[int]
) -> None:
    at_once = Driver(sliced(assigner), groups=1, prepare=False)
    expected, _ = at_once.step([frame(rows)], END)
    in_parts = Driver(sliced(assigner), groups=3, prepare=True)
    places = [0, *sorted(cuts), len(rows)]
    for low, high in pairwise(places):
        assert in_parts.step([frame(rows[low:high])], -1000) == (None, None)
    found, _ = in_parts.step([], END)
    assert_same(ordered(found), ordered(expected))


def test_chunks_of_a_slice_are_merged_when_many_have_gathered() -> None:
    driver = Driver(sliced(tumbling(100)), groups=1, prepare=True)
    chunks = []
    for number in range(3 * MAX_CHUNKS):
        driver.step([frame([("a", number, 5), ("b", 1, 6)])], 0)
        chunks.append(len(driver.segments[0].content) - 1)
    # One chunk a turn, and the one after the eighth makes one of all.
    assert chunks[: MAX_CHUNKS + 2] == [*range(1, MAX_CHUNKS + 1), 1, 2]
    assert {*chunks} == {*range(1, MAX_CHUNKS + 1)}
    results, _ = driver.step([], 100)
    assert results is not None
    turns = 3 * MAX_CHUNKS
    assert results.select("k", "n", "total", "kinds").rows() == [
        ("a", turns, turns * (turns - 1) // 2, turns),
        ("b", turns, turns, 1),
    ]


def test_a_large_chunk_is_not_rewritten_for_a_few_rows() -> None:
    written: list[int] = []

    class Counting(MemorySegments):
        def put(self, name: str, value: bytes) -> None:
            written.append(len(value))
            super().put(name, value)

    driver = Driver(sliced(tumbling(100)), groups=1, prepare=True)
    driver.segments = [Counting()]
    driver.step([frame([(f"key {number}", number, 5) for number in range(5_000)])], 0)
    large = builtins.max(written)
    written.clear()
    for number in range(6 * MAX_CHUNKS):
        driver.step([frame([(f"key {number}", 1, 6)])], 0)
    assert builtins.max(written) < large / 10
    assert len(driver.segments[0].content) <= MAX_CHUNKS + 1
    results, _ = driver.step([], 100)
    assert results is not None
    assert (results.height, results["n"].sum()) == (5_000, 5_000 + 6 * MAX_CHUNKS)


def test_a_slice_is_merged_when_a_window_has_read_it_and_others_will() -> None:
    driver = Driver(sliced(sliding(30, every=10)), groups=1, prepare=False)
    for number in range(5):
        driver.step([frame([("a", number, 5)])], 0)
    assert len(driver.segments[0].content) == 5 + 1
    results, _ = driver.step([], 10)
    assert results is not None
    assert results["n"].to_list() == [5]
    assert len(driver.segments[0].content) == 1 + 1
    driver.step([frame([("a", 7, 6)])], 10)
    results, _ = driver.step([], 20)
    assert results is not None
    assert results.select("n", "total").rows() == [(6, 17)]


@pytest.mark.slow
def test_a_window_of_many_slices_reads_few_of_them() -> None:
    class Counting(MemorySegments):
        reads = 0

        def get(self, name: str) -> bytes | None:
            Counting.reads += name != "index"
            return super().get(name)

    driver = Driver(sliced(sliding(60, every=1)), groups=1, prepare=False)
    driver.segments = [Counting()]
    for second in range(200):
        before = Counting.reads
        results, _ = driver.step([frame([("a", 1, second)])], second)
        if second > 130:
            assert results is not None
            assert results.get_column("n").to_list() == [60]
            # A block of each size on either side, and what new blocks are made of.
            assert Counting.reads - before <= 24


def test_a_row_for_an_old_slice_reaches_the_blocks_that_hold_it() -> None:
    driver = Driver(sliced(sliding(16, every=1)), groups=1, prepare=True)
    driver.step([frame([("a", 1, second) for second in range(40)])], 40)
    driver.step([frame([("a", 5, 30), ("b", 7, 31)])], 40)
    results, _ = driver.step([], 41)
    assert results is not None
    assert sorted(results.select("k", "n", "total").rows()) == [("a", 16, 20), ("b", 1, 7)]


def test_a_slice_is_kept_until_the_last_window_that_holds_it_has_fired() -> None:
    driver = Driver(sliced(sliding(30, every=10)), groups=1, prepare=False)
    driver.step([frame([("a", 1, 5)])], 0)
    ends = []
    for watermark in (5, 10, 19, 20, 29):
        results, _ = driver.step([], watermark)
        ends += [] if results is None else results.get_column("window_end").cast(pl.Int64).to_list()
        assert len(driver.segments[0].content) == 2
    driver.step([], 30)
    assert ends == [10, 20]
    assert sorted(driver.segments[0].content) == ["index"]


def test_a_jump_over_a_gap_fires_what_was_there_and_costs_nothing_for_the_gap() -> None:
    driver = Driver(sliced(sliding("30s", every="5s")), groups=1, prepare=False)
    driver.step([frame([("a", 1, 0)])], 0)
    results, _ = driver.step([frame([("a", 2, 10**15)])], 10**15 - 1)
    assert results is not None
    assert results.height == 6
    rest, _ = driver.step([], END)
    assert rest is not None
    assert rest.height == 6


def test_a_row_without_a_time_is_dismissed_in_turn_and_in_prepare() -> None:
    operator = sliced(tumbling(10))
    rows = pl.DataFrame({"k": ["a", "a"], "v": [1, 2], "event_time": [None, 5]}).cast({"event_time": INSTANT})
    kept, partials = operator.prepare(rows, 0)
    assert kept.rows() == [("a", 1, None)]
    assert partials is not None
    for given_rows, folded in ((rows, None), (kept, partials)):
        outcome = operator.turn(MemorySegments(), Turn(given_rows, 10, 0, folded))
        assert outcome.dismissed is not None
        assert outcome.dismissed.select("v", "reason").rows() == [(1, "event_time is null")]
        assert outcome.rows is not None
        assert outcome.rows.select("n", "total").rows() == [(1, 2)]
        assert outcome.late is None


def test_columns_of_the_rows_may_have_any_name_that_does_not_begin_with_a_hash() -> None:
    operator = SlicedOperator(("slice_start",), tumbling(10), (("slice", latest("index")),))
    rows = pl.DataFrame({"slice_start": ["a"], "index": [7], "event_time": [3]}).cast({"event_time": INSTANT})
    segments = MemorySegments()
    outcome = operator.turn(segments, Turn(rows, 10, 0))
    assert outcome.rows is not None
    assert outcome.rows.select("slice_start", "slice").rows() == [("a", 7)]
    late = operator.turn(segments, Turn(rows, 10, 0)).late
    assert late is not None
    assert late.select("slice_start", "index").rows() == [("a", 7)]


@pytest.mark.parametrize("assigner", [tumbling(10), sliding(10, every=3)])
def test_the_columns_are_as_declared(assigner: Aligned) -> None:
    operator = sliced(assigner)
    results, _ = Driver(operator, groups=1, prepare=False).step([frame([("a", 1, 5)])], 100)
    assert results is not None
    assert results.schema == operator.schema(SCHEMA)
    assert dict(results.schema) == dict(general(assigner).schema(SCHEMA))


def test_the_fingerprint_names_keys_windows_and_aggregates() -> None:
    one = SlicedOperator(("k",), tumbling("5s"), (("n", count()),)).fingerprint()
    assert one == {"keys": "k", "window": "tumbling(5s)", "aggregate n": "count()"}
    other = SlicedOperator(("k",), tumbling("5s", offset="1s"), (("n", count("v")),)).fingerprint()
    assert {name for name in one if one[name] != other[name]} == {"window", "aggregate n"}


def test_a_missing_chunk_is_told() -> None:
    driver = Driver(sliced(tumbling(10)), groups=1, prepare=False)
    driver.step([frame([("a", 1, 5)])], 0)
    segments = driver.segments[0]
    segments.delete(next(name for name in segments.content if name != "index"))
    with pytest.raises(StateError, match="slice/0/0"):
        driver.step([], 10)


@pytest.mark.parametrize("prepare", [True, False])
def test_an_aggregate_that_raises_is_told_with_the_step_and_a_row(prepare: bool) -> None:
    picky = custom(
        ["v"],
        create=int,
        add=lambda state, rows: state + builtins.sum([1 // value for value in rows["v"]]),
        merge=lambda one, two: one + two,
        result=int,
        dtype=pl.Int64,
        name="picky",
    )
    driver = Driver(
        SlicedOperator(("k",), tumbling(10), (("p", picky),), step="aggregate p"), groups=1, prepare=prepare
    )
    driver.step([], 0)
    rows: list[Row] = [("a", 1, number) for number in range(9)]
    with pytest.raises(JobError, match=r"'aggregate p'.*picky.*ZeroDivisionError.*'v': 0, .*on_error"):
        driver.step([frame([*rows, ("b", 0, 1)])], 5)
