"""Chains of other shapes: longer ones, other windows in the second step, steps in between, early panes, deltas."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from tests.inprocess.chains import COLUMNS, Event, frame, ordered

from headrace.inprocess import Batch, Runner, run
from headrace.stream import Stream
from headrace.stream.pipeline import compile_plan
from headrace.time import perfect
from headrace.windows import (
    after_count,
    after_watermark,
    count,
    latest,
    sliding,
    sum,  # noqa: A004
    tumbling,
)

if TYPE_CHECKING:
    from collections.abc import Callable

events = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(["x", "y"]), st.integers(-9, 15)), max_size=20)
batches = st.lists(st.tuples(events, st.sampled_from([0, 1, 3, 8])), min_size=1, max_size=5)


def source() -> Stream:
    return Stream.rows("positions", COLUMNS).watermark(perfect())


def last_of_each(results: pl.DataFrame, *names: str) -> dict[tuple[object, ...], tuple[object, ...]]:
    """Read the last pane of each window and key, by the names of the keys and then of the value."""
    start = pl.col("window_start").cast(pl.Int64)
    return {row[:-1]: row[-1:] for row in results.with_columns(start).select("window_start", *names).rows()}


def play(stream: Stream, given_batches: list[tuple[list[Event], int]], *, groups: int = 2) -> list[Batch]:
    runner, watermark, played = Runner(stream, key_groups=groups), -10, []
    for given_events, advance in given_batches:
        watermark += advance
        played.append(runner.step(frame(given_events), watermark=watermark))
    return [*played, runner.finish()]


def together(played: list[Batch]) -> pl.DataFrame:
    return pl.concat([batch.results for batch in played])


@settings(deadline=None, max_examples=25)
@given(given_batches=batches)
def test_a_second_window_of_another_size_adds_up_what_the_first_one_counted(
    given_batches: list[tuple[list[Event], int]],
) -> None:
    stream = (
        source()
        .key_by("vehicle")
        .window(tumbling(4))
        .aggregate(n=count(), cell=latest("cell"))
        .key_by("cell")
        .window(tumbling(12))
        .aggregate(events=sum("n"))
    )
    played = play(stream, given_batches)
    newest: dict[tuple[int, str], tuple[int, str]] = {}
    counts: Counter[tuple[int, str]] = Counter()
    watermark, before = -10, None
    for given_events, advance in given_batches:
        watermark += advance
        for vehicle, cell, time in given_events:
            window = time // 4 * 4
            if before is None or window + 4 > before:
                counts[window, vehicle] += 1
                assert cell is not None
                newest[window, vehicle] = max(newest.get((window, vehicle), (time, cell)), (time, cell))
        before = watermark
    expected: Counter[tuple[int, str]] = Counter()
    for (window, vehicle), number in counts.items():
        expected[window // 12 * 12, newest[window, vehicle][1]] += number
    assert last_of_each(together(played), "cell", "events") == {key: (n,) for key, n in expected.items()}
    # What the first step gives is never late for the second.
    assert sum_of_late(played) + counts.total() == len([event for some, _ in given_batches for event in some])


def sum_of_late(played: list[Batch]) -> int:
    return len([row for batch in played if batch.late is not None for row in batch.late.rows()])


@settings(deadline=None, max_examples=25)
@given(given_batches=batches, early=st.booleans(), groups=st.integers(1, 3))
def test_revised_counts_add_up_in_windows_of_another_size(
    given_batches: list[tuple[list[Event], int]], early: bool, groups: int
) -> None:
    trigger = after_watermark(early=after_count(1), late=after_count(1)) if early else None
    stream = (
        source()
        .key_by("vehicle")
        .window(tumbling(4), allowed_lateness=1000, trigger=trigger)
        .aggregate(cell=latest("cell"))
        .key_by("cell")
        .window(tumbling(12), allowed_lateness=1000)
        .aggregate(vehicles=count())
    )
    found = last_of_each(together(play(stream, given_batches, groups=groups)), "cell", "vehicles")
    newest: dict[tuple[int, str], tuple[int, str]] = {}
    for vehicle, cell, time in (event for some, _ in given_batches for event in some):
        assert cell is not None
        window = time // 4 * 4
        newest[window, vehicle] = max(newest.get((window, vehicle), (time, cell)), (time, cell))
    expected = Counter((window // 12 * 12, cell) for (window, _), (_, cell) in newest.items())
    assert {key: n for key, (n,) in found.items() if n} == expected


@settings(deadline=None, max_examples=25)
@given(given_batches=batches, groups=st.integers(1, 3))
def test_three_counts_in_the_same_window_are_right_after_late_events(
    given_batches: list[tuple[list[Event], int]], groups: int
) -> None:
    for lateness in (0, 1000):
        stream = (
            source()
            .key_by("vehicle", "cell")
            .window(sliding(6, every=3), allowed_lateness=lateness)
            .aggregate(n=count())
            .key_by("vehicle")
            .same_window()
            .aggregate(cells=count())
            .key_by("cells")
            .same_window()
            .aggregate(vehicles=count())
        )
        played = play(stream, given_batches, groups=groups)
        found = last_of_each(together(played), "cells", "vehicles")
        assert {key: n for key, (n,) in found.items() if n} == _cells_by_hand(given_batches, lateness)


def _cells_by_hand(given_batches: list[tuple[list[Event], int]], lateness: int) -> Counter[tuple[int, int]]:
    cells: dict[tuple[int, str], set[str]] = defaultdict(set)
    watermark, before = -10, None
    for given_events, advance in given_batches:
        watermark += advance
        for vehicle, cell, time in given_events:
            for window in (time // 3 * 3, time // 3 * 3 - 3):
                if before is None or window + 6 + lateness > before:
                    assert cell is not None
                    cells[window, vehicle].add(cell)
        before = watermark
    return Counter((window, len(found)) for (window, _), found in cells.items())


@settings(deadline=None, max_examples=25)
@given(given_batches=batches)
def test_deltas_add_up_to_the_whole(given_batches: list[tuple[list[Event], int]]) -> None:
    trigger = after_watermark(early=after_count(1), late=after_count(1))
    stream = (
        source()
        .key_by("cell")
        .window(tumbling(5), trigger=trigger, mode="delta", allowed_lateness=1000)
        .aggregate(n=count())
    )
    results = together(play(stream, given_batches))
    added: Counter[tuple[int, str]] = Counter()
    for window, cell, n in results.select(pl.col("window_start").cast(pl.Int64), "cell", "n").rows():
        added[window, cell] += n
    everything = [event for some, _ in given_batches for event in some]
    assert +added == Counter((time // 5 * 5, cell) for _, cell, time in everything)


BETWEEN: dict[str, Callable[[Stream], Stream]] = {
    "nothing": lambda stream: stream,
    "filter": lambda stream: stream.filter(pl.col("n") > 1),
    "another event time": lambda stream: stream.with_columns(event_time=pl.col("window_start")),
    "no pane columns": lambda stream: stream.select("cell", "n", "window_start", "window_end"),
    "other pane columns": lambda stream: stream.with_columns(pane_index=pl.col("n"), pane_timing=pl.lit("?")),
    "flat_map": lambda stream: stream.flat_map("cell", pl.concat_list("cell", pl.lit("z"))),
    "function": lambda stream: stream.map_batches(lambda rows: rows.with_columns(n=pl.col("n") * 2)),
}


@pytest.mark.parametrize("between", BETWEEN)
def test_whatever_stands_between_two_aggregates_fused_is_as_unfused(between: str) -> None:
    first = source().key_by("vehicle").window(sliding(6, every=2)).aggregate(cell=latest("cell"), n=count())
    stream = (
        BETWEEN[between](first)
        .key_by("cell")
        .same_window()
        .aggregate(vehicles=count(), events=sum("n"))
        .with_columns(share=pl.col("events") / pl.col("vehicles"))
    )
    given_events: list[Event] = [("abcd"[n % 4], "xy"[n % 3 % 2], n * 7 % 11) for n in range(40)]
    fused, unfused = (compile_plan(stream.node, stream.schema, fuse=fuse) for fuse in (True, False))
    assert (len(fused.stages), len(unfused.stages)) == (1, 2)
    one, two = (run_all(Runner(pipeline, key_groups=3), given_events) for pipeline in (fused, unfused))
    assert one.height > 5
    assert one.schema == stream.schema
    assert_frame_equal(ordered(one), ordered(two))


def run_all(runner: Runner, given_events: list[Event]) -> pl.DataFrame:
    return together(
        [
            runner.step(frame(given_events[:20]), watermark=3),
            runner.step(frame(given_events[20:]), watermark=8),
            runner.finish(),
        ]
    )


def test_no_rows_at_all_give_no_results_and_no_errors() -> None:
    stream = source().key_by("vehicle").window(tumbling(4)).aggregate(n=count()).key_by("n").same_window()
    batch = run(stream.aggregate(x=count()), frame([]))
    assert batch.results.is_empty()
    assert (batch.late, batch.dismissed) == (None, None)
