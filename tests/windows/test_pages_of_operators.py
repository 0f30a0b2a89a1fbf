"""Every operator with state by key gives the answer of a plain computation when its state lies in many small pages.

With pages of a row or two, a few dozen keys make them split, join and move in every turn. Between turns there is
nothing but the saved segments. Rows come out of order, some late; keys expire while others come.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.cep import Pattern
from headrace.cep.measures import first
from headrace.cep.operator import PatternOperator
from headrace.engine import MemorySegments, Turn, due_pages, keyed_state
from headrace.engine.group import _Own
from headrace.time.instants import END, INSTANT
from headrace.windows import (
    Panes,
    after_count,
    after_processing_time,
    collect,
    count,
    count_window,
    global_,
    repeatedly,
    session,
    sliding,
    tumbling,
)
from headrace.windows.deduplicate import DeduplicateOperator
from headrace.windows.operator import WindowOperator
from headrace.windows.previous import PreviousOperator
from headrace.windows.sequences import SequenceOperator

if TYPE_CHECKING:
    from headrace.engine.operator import Operator

GAP = 10
SCHEMA = {"key": pl.String, "id": pl.Int64, "event_time": INSTANT}
Row = tuple[str, int, int]
AGGREGATES = {"n": count(), "ids": collect("id", by="id")}


@dataclass
class Step:
    """One turn: rows (key, id, time), the watermark after them, and processing time."""

    rows: list[Row]
    watermark: int
    now: int


@st.composite
def stories(draw: st.DrawFn) -> list[Step]:
    story, watermark, now, number = [], 0, 0, 0
    for _ in range(draw(st.integers(1, 10))):
        # Of all keys, or of a few of them: pages become large or small by that.
        keys = draw(st.sampled_from([40, 40, 3]))
        times = draw(st.lists(st.tuples(st.integers(0, keys - 1), st.integers(-25, 30)), max_size=40))
        rows = [
            (f"k{key}" * (1 + key % 3), number + place, watermark + time) for place, (key, time) in enumerate(times)
        ]
        number += len(rows)
        watermark += draw(st.sampled_from([0, 1, 5, 15, 60]))
        now += draw(st.sampled_from([0, 3, 40]))
        story.append(Step(rows, watermark, now))
    return story


@dataclass
class Answer:
    """What came of a story."""

    results: list[dict[str, Any]] = field(default_factory=list)
    late: Counter[int] = field(default_factory=Counter)
    segments: MemorySegments = field(default_factory=MemorySegments)


def frame_of(rows: list[Row]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema={**SCHEMA, "event_time": pl.Int64}, orient="row").cast({"event_time": INSTANT})


def play(operator: Operator, story: list[Step], *, to_the_end: bool = True) -> Answer:
    answer = Answer()
    last = Step([], END, story[-1].now)
    for step in [*story, *([last] if to_the_end else [])]:
        answer.segments = MemorySegments(answer.segments.content)
        outcome = operator.turn(answer.segments, Turn(frame_of(step.rows), step.watermark, step.now))
        assert outcome.dismissed is None
        if outcome.rows is not None:
            answer.results += outcome.rows.with_columns(pl.selectors.datetime().dt.epoch("us")).to_dicts()
        if outcome.late is not None:
            answer.late.update(outcome.late.get_column("id").to_list())
    return answer


@pytest.fixture(params=[1, 3])
def _small_pages(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setattr(keyed_state, "SINGLE_PAGE_ROWS", 2)
    monkeypatch.setattr(keyed_state, "PAGE_ROWS", request.param)
    monkeypatch.setattr(keyed_state, "PAGE_COST", request.param - 1)
    monkeypatch.setattr(due_pages, "BLOCK", 4)
    monkeypatch.setattr("headrace.cep.operator._FEW_WAITING", 0)


small_pages = pytest.mark.usefixtures("_small_pages")


def in_time(story: list[Step], behind: int = 0) -> tuple[list[Row], Counter[int]]:
    """Part rows into those in time, in the order they came, and the numbers of those that are late."""
    watermark, rows, late = -END, [], Counter[int]()
    for step in story:
        for key, number, time in step.rows:
            if time < watermark - behind:
                late[number] += 1
            else:
                rows.append((key, number, time))
        watermark = step.watermark
    return rows, late


@small_pages
@settings(deadline=None, max_examples=25)
@given(story=stories())
def test_deduplication(story: list[Step]) -> None:
    rows, late = in_time(story, GAP)
    passed: dict[str, list[int]] = defaultdict(list)
    expected = []
    for key, number, time in rows:
        if all(abs(time - other) >= GAP for other in passed[key]):
            passed[key].append(time)
            expected.append(number)
    answer = play(DeduplicateOperator(("key",), GAP), story)
    assert [row["id"] for row in answer.results] == expected
    assert answer.late == late
    assert list(answer.segments.content) == ["index"]


@small_pages
@settings(deadline=None, max_examples=25)
@given(story=stories())
def test_the_row_before(story: list[Step]) -> None:
    rows, late = in_time(story)
    newest: dict[str, tuple[int, int]] = {}
    expected = []
    for key, number, time in sorted(rows, key=lambda row: (row[2], row[1])):
        before = newest.get(key)
        expected.append((number, before[1] if before is not None and time - before[0] <= GAP else None))
        newest[key] = (time, number)
    answer = play(PreviousOperator(("key",), (("before", "id"),), GAP), story)
    assert sorted((row["id"], row["before"]) for row in answer.results) == sorted(expected)
    assert answer.late == late
    assert list(answer.segments.content) == ["index"]


@small_pages
@settings(deadline=None, max_examples=25)
@given(story=stories())
def test_count_windows(story: list[Step]) -> None:
    rows, late = in_time(story)
    windows: dict[str, list[list[int]]] = defaultdict(lambda: [[]])
    for key, number, _ in sorted(rows, key=lambda row: (row[2], row[1])):
        windows[key][-1].append(number)
        if len(windows[key][-1]) == 3:
            windows[key].append([])
    expected = sorted((key, sorted(ids)) for key, several in windows.items() for ids in several if ids)
    answer = play(SequenceOperator(("key",), count_window(3), AGGREGATES), story)
    assert sorted((row["key"], sorted(row["ids"])) for row in answer.results) == expected
    assert answer.late == late
    assert list(answer.segments.content) == ["index"]


@small_pages
@settings(deadline=None, max_examples=25)
@given(story=stories())
def test_global_windows_that_fire_by_count(story: list[Step]) -> None:
    seen: dict[str, list[int]] = defaultdict(list)
    fresh: Counter[str] = Counter()
    expected = []
    for step in story:
        touched = set()
        for key, number, _ in step.rows:
            seen[key].append(number)
            fresh[key] += 1
            touched.add(key)
        for key in touched:
            if fresh[key] >= 3:
                expected.append((key, sorted(seen[key])))
                fresh[key] = 0
    operator = WindowOperator(("key",), global_(), AGGREGATES, trigger=repeatedly(after_count(3)))
    answer = play(operator, story, to_the_end=False)
    assert sorted((row["key"], row["ids"]) for row in answer.results) == sorted(expected)
    assert not answer.late


OTHERS: dict[str, Operator] = {
    "session": WindowOperator(("key",), session(GAP), AGGREGATES),
    "session with lateness": WindowOperator(("key",), session(GAP), AGGREGATES, allowed_lateness=20),
    "session with retractions": WindowOperator(
        ("key",),
        session(GAP),
        AGGREGATES,
        trigger=repeatedly(after_count(2)),
        allowed_lateness=7,
        panes=Panes(mode="value_and_retraction"),
    ),
    "session with timers": WindowOperator(
        ("key",), session(GAP), AGGREGATES, trigger=repeatedly(after_processing_time(5)), panes=Panes(mode="delta")
    ),
    "global with timers": WindowOperator(
        ("key",), global_(), AGGREGATES, trigger=repeatedly(after_processing_time(5)), panes=Panes(mode="delta")
    ),
    "sliding with retractions": WindowOperator(
        ("key",), sliding(20, every=5), AGGREGATES, allowed_lateness=20, panes=Panes(mode="value_and_retraction")
    ),
    "tumbling by count": WindowOperator(("key",), tumbling(GAP), AGGREGATES, trigger=repeatedly(after_count(2))),
}


def told(answer: Answer) -> list[str]:
    return sorted(str(sorted(row.items())) for row in answer.results)


@pytest.mark.parametrize("name", OTHERS)
@settings(deadline=None, max_examples=15)
@given(story=stories(), rows=st.sampled_from([1, 3]))
def test_many_pages_give_what_a_single_page_gives(name: str, story: list[Step], rows: int) -> None:
    single = play(OTHERS[name], story)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keyed_state, "SINGLE_PAGE_ROWS", 2)
        patch.setattr(keyed_state, "PAGE_ROWS", rows)
        patch.setattr(keyed_state, "PAGE_COST", 2)
        patch.setattr(due_pages, "BLOCK", 4)
        many = play(OTHERS[name], story)
    assert told(many) == told(single)
    assert many.late == single.late
    assert list(many.segments.content) == ["index"]


COUNTED: dict[str, Operator] = {
    **OTHERS,
    "deduplicate": DeduplicateOperator(("key",), GAP),
    "previous": PreviousOperator(("key",), (("before", "id"),), GAP),
    "count window": SequenceOperator(("key",), count_window(3), AGGREGATES),
    "global": WindowOperator(("key",), global_(), AGGREGATES, trigger=repeatedly(after_count(3))),
    "pattern": PatternOperator(
        Pattern.begin("a", pl.col("id") % 3 == 0)
        .followed_by("b", pl.col("id") % 3 == 1)
        .within(timedelta(microseconds=GAP)),
        key=["key"],
        measures={"id": first("a.id")},
    ),
}


@small_pages
@pytest.mark.parametrize("name", COUNTED)
@settings(deadline=None, max_examples=5)
@given(story=stories())
def test_the_bytes_of_pages_are_counted(name: str, story: list[Step]) -> None:
    """A bound on the bytes of state is worth what the count is."""
    segments, counted = MemorySegments(), 0
    for step in [*story, Step([], END, story[-1].now)]:
        own = _Own(MemorySegments(segments.content))
        COUNTED[name].turn(own, Turn(frame_of(step.rows), step.watermark, step.now))
        counted += own.growth
        segments = MemorySegments(own._segments.content)  # type: ignore[attr-defined]
        assert counted == sum(map(len, segments.content.values()))
