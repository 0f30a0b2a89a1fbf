"""A chain of two windows: the same answer in every way of running it, and the right one."""

from __future__ import annotations

from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from tests.inprocess.chains import (
    SIZE,
    Event,
    answer_of,
    by_hand,
    distribution,
    everywhere,
    frame,
    ordered,
    starts,
)

from headrace.errors import StateError
from headrace.inprocess import Batch, Runner, run
from headrace.stream.pipeline import compile_plan
from headrace.time import bounded, perfect

events = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c", "d"]), st.sampled_from(["x", "y", None]), st.integers(-9, 15)),
    max_size=25,
)


@st.composite
def steps(draw: st.DrawFn) -> list[tuple[list[Event], int]]:
    """Batches of events, and the watermark after each."""
    watermark, found = draw(st.integers(-10, 5)), []
    for _ in range(draw(st.integers(1, 5))):
        found.append((draw(events), watermark))
        watermark += draw(st.sampled_from([0, 1, 2, 3, 7, 50]))
    return found


def results_of(batches: list[Batch]) -> pl.DataFrame:
    return pl.concat([batch.results for batch in batches])


@settings(deadline=None, max_examples=25)
@given(given_events=events, groups=st.integers(1, 5))
def test_to_the_end_of_time_it_is_the_computation_by_hand(given_events: list[Event], groups: int) -> None:
    batch = run(distribution(bounded(0)), frame(given_events), key_groups=groups)
    assert answer_of(batch.results) == by_hand(everywhere(given_events))
    assert batch.late is None
    # A vehicle that never said where it is has no cell to be counted in: dismissed, not lost.
    lost = {(v, s) for v, _, t in given_events for s in starts(t)} - {
        (v, s) for v, cell, t in given_events for s in starts(t) if cell is not None
    }
    assert (0 if batch.dismissed is None else batch.dismissed.height) == len(lost)


@settings(deadline=None, max_examples=25)
@given(
    given_events=events, cuts=st.lists(st.integers(0, 25), max_size=4), groups=st.integers(1, 4), ready=st.booleans()
)
def test_however_events_are_cut_into_batches_the_answer_is_the_same(
    given_events: list[Event], cuts: list[int], groups: int, ready: bool
) -> None:
    # The delay is longer than any disorder, so nothing is late, whatever comes with what.
    stream = distribution(bounded(30))
    runner = Runner(stream, key_groups=groups, prepare=ready)
    places = [0, *sorted(cuts), len(given_events)]
    batches = [runner.step(frame(given_events[low:high], low)) for low, high in pairwise(places)]
    found = results_of([*batches, runner.finish()])
    assert found.height == found.select("window_start", "cell").unique().height
    assert_frame_equal(ordered(found), ordered(run(stream, frame(given_events), key_groups=1).results))


@settings(deadline=None, max_examples=25)
@given(
    given_steps=steps(),
    groups=st.integers(1, 4),
    ready=st.booleans(),
    restarts=st.sets(st.integers(0, 5)),
    lateness=st.sampled_from([0, 4]),
)
def test_fused_or_not_prepared_or_not_restarted_or_not_each_step_gives_the_same(
    given_steps: list[tuple[list[Event], int]], groups: int, ready: bool, restarts: set[int], lateness: int
) -> None:
    stream = distribution(perfect(), lateness=lateness)
    fused = compile_plan(stream.node, stream.schema)
    assert len(fused.stages) == (1 if lateness == 0 else 2)
    plain = Runner(compile_plan(stream.node, stream.schema, fuse=False, prune=False), key_groups=1, prepare=False)
    assert len(plain.pipeline.stages) == 2
    other = Runner(fused, key_groups=groups, prepare=ready)
    for number, (batch, watermark) in enumerate(given_steps):
        if number in restarts:
            other = Runner(fused, key_groups=groups, prepare=ready, snapshot=other.snapshot())
        one, two = (runner.step(frame(batch), watermark=watermark) for runner in (plain, other))
        assert_frame_equal(ordered(one.results), ordered(two.results))
        assert one.watermark == two.watermark == watermark
        late_one, late_two = ([] if each.late is None else _told(each.late) for each in (one, two))
        assert late_one == late_two
        dismissed_one, dismissed_two = (_reasons(each.dismissed) for each in (one, two))
        assert dismissed_one == dismissed_two
    assert_frame_equal(ordered(plain.finish().results), ordered(other.finish().results))


def _told(late: pl.DataFrame) -> list[tuple[object, ...]]:
    names = ["vehicle", "cell", "event_time", "window_start", "window_end", "lateness", "watermark"]
    return sorted(late.select(names).rows(), key=str)


def _reasons(dismissed: pl.DataFrame | None) -> list[tuple[object, ...]]:
    return [] if dismissed is None else sorted(dismissed.select("vehicle", "window_start", "reason").rows())


@settings(deadline=None, max_examples=40)
@given(given_steps=steps(), lateness=st.sampled_from([2, 5, 20]), groups=st.integers(1, 3))
def test_a_count_of_counts_is_right_after_late_events(
    given_steps: list[tuple[list[Event], int]], lateness: int, groups: int
) -> None:
    runner = Runner(distribution(perfect(), lateness=lateness), key_groups=groups)
    before = None
    batches: list[Batch] = []
    placed: list[tuple[Event, list[int]]] = []
    late: list[int] = []
    number = 0
    for given_events, watermark in given_steps:
        batches.append(runner.step(frame(given_events, number), watermark=watermark))
        for event in given_events:
            alive = [s for s in starts(event[2]) if before is None or s + SIZE + lateness > before]
            placed.append((event, alive))
            late += [] if alive else [number]
            number += 1
        before = watermark
    batches.append(runner.finish())
    # Late data changed windows that had fired: the last word on each cell is that of a computation with all of it.
    assert answer_of(results_of(batches)) == by_hand(placed)
    told = [batch.late.get_column("number").to_list() for batch in batches if batch.late is not None]
    assert sorted(one for some in told for one in some) == late


def test_a_vehicle_that_turns_out_to_have_moved_is_taken_from_its_old_cell() -> None:
    runner = Runner(distribution(perfect(), lateness=10))
    on_time = runner.step(frame([("a", "x", 0), ("b", "x", 0)]), watermark=2)
    assert _panes(on_time) == [("x", 2, 0, "on_time")]
    moved = runner.step(frame([("a", "y", 1)]), watermark=2)
    assert _panes(moved) == [("x", 1, 1, "late"), ("y", 1, 0, "late")]
    gone = runner.step(frame([("b", "y", 1)]), watermark=2)
    assert _panes(gone) == [("x", 0, 2, "late"), ("y", 2, 1, "late")]


def _panes(batch: Batch) -> list[tuple[object, ...]]:
    first = batch.results.filter(pl.col("window_end").cast(pl.Int64) == 2)
    return sorted(first.select("cell", "vehicles", "pane_index", "pane_timing").rows())


def test_a_snapshot_fits_only_the_runner_it_was_made_for() -> None:
    stream = distribution(perfect())
    runner = Runner(stream, key_groups=2)
    unfused = compile_plan(stream.node, stream.schema, fuse=False)
    with pytest.raises(StateError, match="the runner has 'aggregate-by-vehicle', 'aggregate-by-cell'"):
        Runner(unfused, key_groups=2, snapshot=runner.snapshot())
