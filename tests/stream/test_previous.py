"""`previous`: the row before, however rows arrive, are cut into batches, and restarts fall."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engine import MemorySegments, Turn, keyed_state
from headrace.errors import PlanError
from headrace.inprocess import Runner
from headrace.stream import Stream
from headrace.stream.pipeline import compile_plan
from headrace.stream.relay import RelayOperator
from headrace.time import bounded
from headrace.time.instants import INSTANT
from headrace.windows import count, sliding, top_k
from headrace.windows import previous as module

SECOND = 1_000_000
SCHEMA = {"vehicle": pl.String, "cell": pl.Int64}


def rows(*given: tuple[str, int | None, int | None]) -> pl.DataFrame:
    named = [{"vehicle": vehicle, "cell": cell, "event_time": second} for vehicle, second, cell in given]
    frame = pl.DataFrame(named, schema={**SCHEMA, "event_time": pl.Int64})
    return frame.with_columns((pl.col("event_time") * SECOND).cast(INSTANT))


def moves(*, bound: str = "100s", within: str = "10s") -> Stream:
    return (
        Stream.rows("positions", SCHEMA)
        .watermark(bounded(bound))
        .key_by("vehicle")
        .previous(came_from="cell", since="event_time", within=within)
    )


def told(frame: pl.DataFrame) -> list[tuple[str, int, int | None, int | None, int | None]]:
    seconds = [(pl.col(name).to_physical() // SECOND).alias(name) for name in ("event_time", "since")]
    return sorted(
        frame.with_columns(seconds).select("vehicle", "event_time", "cell", "came_from", "since").iter_rows(),
        key=str,
    )


def by_hand(frame: pl.DataFrame, within: int) -> list[tuple[str, int, int | None, int | None, int | None]]:
    """Sort each vehicle's rows, then look one back."""
    answer = []
    plain = [(v, s.timestamp(), c) for v, c, s in frame.select("vehicle", "cell", "event_time").iter_rows()]
    for vehicle in {row[0] for row in plain}:
        mine = sorted(
            [(int(second), cell) for name, second, cell in plain if name == vehicle],
            key=lambda row: (row[0], row[1] is not None, row[1] or 0),
        )
        for number, (second, cell) in enumerate(mine):
            near = number > 0 and second - mine[number - 1][0] <= within
            before = mine[number - 1] if near else (None, None)
            answer.append((vehicle, second, cell, before[1], before[0]))
    return sorted(answer, key=str)


reports = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 60), st.one_of(st.none(), st.integers(1, 4))), max_size=40
)


@settings(deadline=None, max_examples=60)
@given(given_rows=reports, cuts=st.lists(st.integers(0, 40), max_size=4), groups=st.integers(1, 3))
def test_every_row_gets_the_one_before_it_whatever_the_order_and_the_batches(
    given_rows: list[tuple[str, int, int | None]], cuts: list[int], groups: int
) -> None:
    frame = rows(*given_rows)
    stream = moves().filter(pl.col("event_time").is_not_null())  # a step after it, as in real life
    edges = [0, *sorted(min(cut, frame.height) for cut in cuts), frame.height]
    runner = Runner(stream, key_groups=groups)
    results = []
    for start, end in pairwise(edges):
        results.append(runner.step(frame[start:end]).results)
        runner = Runner(stream, key_groups=groups, snapshot=runner.snapshot())  # as after a restart
    results.append(runner.finish().results)
    assert told(pl.concat(results)) == by_hand(frame, within=10)


def test_a_row_waits_until_the_watermark_has_passed_it() -> None:
    runner = Runner(moves(bound="5s"))
    assert runner.step(rows(("a", 10, 1), ("a", 12, 2))).results.is_empty()
    passed = runner.step(rows(("a", 11, 3), ("a", 16, 4))).results  # the watermark is 11: the row at 11 waits
    assert told(passed) == [("a", 10, 1, None, None)]
    assert told(runner.step(rows(("a", 18, 5))).results) == [("a", 11, 3, 1, 10), ("a", 12, 2, 3, 11)]


def test_a_row_behind_the_watermark_is_late_and_changes_nothing() -> None:
    runner = Runner(moves(bound="0s"))
    runner.step(rows(("a", 10, 1)))
    step = runner.step(rows(("a", 9, 7), ("a", 20, 2)))
    assert told(step.results) == [("a", 10, 1, None, None)]
    assert step.late is not None
    assert step.late.select("cell", "lateness").rows() == [(7, timedelta(seconds=1))]
    assert told(runner.finish().results) == [("a", 20, 2, 1, 10)]


def test_rows_without_a_time_are_dismissed() -> None:
    operator = module.PreviousOperator(("vehicle",), (("came_from", "cell"),), within=SECOND)
    outcome = operator.turn(MemorySegments(), Turn(rows(("a", None, 1), ("a", 1, 2)), watermark=9 * SECOND, now=0))
    assert outcome.rows is not None
    assert outcome.rows.get_column("cell").to_list() == [2]
    assert outcome.dismissed is not None
    assert outcome.dismissed.select("cell", "reason").rows() == [(1, "event_time is null")]


def test_a_key_is_forgotten_when_it_is_too_old() -> None:
    stream = moves(bound="0s", within="10s")
    runner = Runner(stream, key_groups=1)
    runner.step(rows(("gone", 0, 1), ("a", 1, 1)))
    for second in range(2, 60):
        runner.step(rows(("a", second, second)))
    saved = next(iter(runner.snapshot().values()))[0]
    assert b"gone" not in saved["op/newest/0"]


def test_pages_split_and_forget_as_keys_come_and_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed_state, "SINGLE_PAGE_ROWS", 8)
    monkeypatch.setattr(keyed_state, "PAGE_ROWS", 4)
    monkeypatch.setattr(keyed_state, "PAGE_COST", 0)
    stream = moves(bound="0s", within="30s")
    runner = Runner(stream, key_groups=1)
    batches = [
        rows(*((f"v{number}", 5 * turn + 1, turn) for number in range(10 * turn, 10 * turn + 60))) for turn in range(20)
    ]
    results = []
    for batch in batches:
        results.append(runner.step(batch).results)
        runner = Runner(stream, key_groups=1, snapshot=runner.snapshot())
    pages = [name for name in next(iter(runner.snapshot().values()))[0] if name.startswith("op/newest/")]
    assert len(pages) > 4
    results.append(runner.finish().results)
    assert told(pl.concat(results)) == by_hand(pl.concat(batches), within=30)


def changes() -> Stream:
    return (
        moves(bound="2s", within="20s")
        .filter(pl.col("came_from") != pl.col("cell"), counted="stayed")
        .key_by("came_from")
        .window(sliding("20s", every="5s"))
        .aggregate(left=count(), most=top_k("cell", 1))
        .with_columns(share=pl.col("most").list.first().struct.field("count") / pl.col("left"))
        .drop("most")
    )


@settings(deadline=None, max_examples=40)
@given(given_rows=reports, size=st.integers(3, 15), groups=st.integers(1, 3))
def test_windows_of_what_went_on_are_the_same_in_one_stage_as_in_two(
    given_rows: list[tuple[str, int, int | None]], size: int, groups: int
) -> None:
    stream, frame = changes(), rows(*given_rows)
    one, two = (compile_plan(stream.node, stream.schema, fuse=fuse) for fuse in (True, False))
    assert [len(one.stages), len(two.stages)] == [1, 2]
    assert isinstance(one.stages[0].operator, RelayOperator)
    answers = []
    for pipeline in (one, two):
        runner = Runner(pipeline, key_groups=groups)
        steps = [runner.step(part) for part in frame.iter_slices(size)] if frame.height else []
        steps.append(runner.finish())
        results = pl.concat([step.results for step in steps]).sort("window_end", "came_from")
        late = [0 if step.late is None else step.late.height for step in steps]
        answers.append((results.rows(), late, [step.counts for step in steps]))
    assert answers[0] == answers[1]


def test_a_stream_with_the_row_before_explains_itself_and_has_its_columns() -> None:
    stream = moves()
    assert stream.schema["came_from"] == pl.Int64
    assert stream.schema["since"] == INSTANT
    assert stream.keys == ("vehicle",)
    assert "previous came_from=cell, since=event_time within 10s" in stream.explain()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda s: s.previous(a="cell", within="1s"), "previous without a key"),
        (lambda s: s.key_by("vehicle").previous(within="1s"), "previous of nothing"),
        (lambda s: s.key_by("vehicle").previous(a="cell", within="0s"), "within 0s"),
        (lambda s: s.key_by("vehicle").previous(a="sell", within="1s"), "there is no such column"),
        (lambda s: s.key_by("vehicle").previous(cell="cell", within="1s"), "'cell' is taken"),
        (
            lambda s: (
                s.key_by("vehicle")
                .window(sliding("2s", every="1s"))
                .aggregate(n=count())
                .key_by("vehicle")
                .previous(a="n", within="1s")
            ),
            "previous after an aggregate",
        ),
        (lambda s: s.drop("nothing"), "there is no such column"),
        (lambda s: s.key_by("vehicle").drop("vehicle"), "drops the key vehicle"),
    ],
)
def test_what_cannot_work_is_refused(make: object, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        make(Stream.rows("positions", SCHEMA).watermark(bounded("1s")))  # type: ignore[operator]


def test_dropped_rows_are_counted_where_that_is_asked_for() -> None:
    stream = (
        Stream.rows("doors", {"door": pl.String})
        .watermark(bounded("0s"))
        .filter(pl.col("door") != "north", counted="north_doors")
        .key_by("door")
        .window(sliding("2s", every="1s"))
        .aggregate(n=count())
    )
    runner = Runner(stream)
    times = [timedelta(seconds=0)] * 3
    frame = pl.DataFrame({"door": ["north", "south", "north"], "event_time": pl.Series(times).cast(pl.Int64)})
    assert runner.step(frame.cast({"event_time": INSTANT})).counts == {"north_doors": 2}
    assert runner.finish().counts == {}
    assert "dropped rows counted as north_doors" in stream.explain()
