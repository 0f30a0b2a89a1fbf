"""Random streams, batch splits and restarts: what counts, when, and that nothing is lost or counted twice."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace import windows as w
from headrace.engine import MemorySegments, Turn
from headrace.testing import Harness, event_frame
from headrace.testing.strategies import Step, events, partitions, stories, triggers
from headrace.time import WatermarkTracker, bounded
from headrace.windows import Aligned, Panes, WindowOperator, session, sliding, tumbling

SCHEMA = {"key": pl.String, "value": pl.Int64, "id": pl.Int64}
AGGREGATES = {"n": w.count(), "total": w.sum("value"), "ids": w.collect("id", by="id")}
START = -(2**61)

aligned = st.sampled_from([tumbling(10), tumbling(7, offset=3), sliding(20, every=5), sliding(10, every=4, offset=1)])
lateness = st.sampled_from([0, 5, 30])


def play(operator: WindowOperator, story: list[Step]) -> Harness:
    harness = Harness(operator, schema=SCHEMA)
    for step in story:
        harness.at, harness.now = max(harness.at, step.watermark), step.now
        harness.events(event_frame(list(step.events), {"event_time": pl.Datetime("us", "UTC"), **SCHEMA}))
        if step.restart:
            harness.restart()
    return harness


def windows_of(assigner: Aligned, time: int) -> list[tuple[int, int]]:
    start = time - (time - assigner.offset) % assigner.every
    found = []
    while start + assigner.size > time:
        found.append((start, start + assigner.size))
        start -= assigner.every
    return found


class Model:
    """The semantics of section "windows", in plain Python, one row at a time."""

    def __init__(self, assigner: Aligned, allowed: int) -> None:
        self.assigner, self.allowed = assigner, allowed
        self.mark = START
        self.content: dict[tuple[str, int, int], list[int]] = defaultdict(list)
        self.late: list[int] = []
        self.on_time: dict[tuple[str, int, int], list[int]] = {}

    def step(self, step: Step) -> None:
        for event in step.events:
            live = [x for x in windows_of(self.assigner, event["event_time"]) if x[1] + self.allowed > self.mark]
            for start, end in live:
                self.content[event["key"], start, end].append(event["id"])
            if not live:
                self.late.append(event["id"])
        mark = max(self.mark, step.watermark)
        for (key, start, end), ids in self.content.items():
            if self.mark < end <= mark:
                self.on_time[key, start, end] = sorted(ids)
        self.mark = mark


def named(pane: dict[str, Any]) -> tuple[str, int, int]:
    return pane["key"], pane["window"][0], pane["window"][1]


@given(assigner=aligned, allowed=lateness, story=stories())
@settings(deadline=None, max_examples=40)
def test_the_default_trigger_is_the_brute_force_computation(assigner: Aligned, allowed: int, story: list[Step]) -> None:
    model = Model(assigner, allowed)
    for step in story:
        model.step(step)
    harness = play(WindowOperator(("key",), assigner, AGGREGATES, allowed_lateness=allowed), story)
    on_time = {named(p): p["ids"] for p in harness.panes if p["timing"] == "on_time"}
    assert on_time == model.on_time
    last = {named(p): p["ids"] for p in harness.panes}
    assert last == {window: sorted(ids) for window, ids in model.content.items()}
    assert sorted(row["id"] for row in harness.late) == sorted(model.late)
    for pane in harness.panes:
        assert pane["n"] == len(pane["ids"])
        assert pane["timestamp"] == pane["window"][1] - 1
    assert harness.open_windows() == (set(), set())
    assert list(harness.segments.content) == ["index"]


@given(
    assigner=st.one_of(aligned, st.sampled_from([session(5), session(5, touching=True)])),
    trigger=triggers(),
    allowed=lateness,
    story=stories(),
)
@settings(deadline=None, max_examples=60)
def test_no_event_is_lost_or_counted_twice_and_the_three_modes_agree(
    assigner: Any, trigger: w.Trigger, allowed: int, story: list[Step]
) -> None:
    def run(mode: Any) -> Harness:
        operator = WindowOperator(
            ("key",),
            assigner,
            AGGREGATES,
            trigger=trigger,
            allowed_lateness=allowed,
            panes=Panes(mode=mode),
            check=False,
        )
        return play(operator, story)

    value, delta, both = run("value"), run("delta"), run("value_and_retraction")
    assert [row["id"] for row in value.late] == [row["id"] for row in delta.late] == [row["id"] for row in both.late]
    everything = {event["id"] for step in story for event in step.events}
    late = {row["id"] for row in value.late}
    counted = {number for pane in delta.panes for number in pane["ids"]}
    assert late | counted == everything
    assert not late & counted
    # Panes of one window count from 0 without a gap, and nothing follows the last.
    shape = [(named(p), p["index"], p["timing"], p["is_last"]) for p in value.panes]
    assert shape == [(named(p), p["index"], p["timing"], p["is_last"]) for p in delta.panes]
    assert shape == [(named(p), p["index"], p["timing"], p["is_last"]) for p in both.panes if not p["is_retraction"]]
    # Values and retractions net out to the deltas, at any time and over all windows.
    net: Counter[Any] = Counter()
    for pane in both.panes:
        for number in pane["ids"]:
            net[number, pane["key"], *([] if assigner.merges else pane["window"])] += -1 if pane["is_retraction"] else 1
    plain: Counter[Any] = Counter()
    for pane in delta.panes:
        for number in pane["ids"]:
            plain[number, pane["key"], *([] if assigner.merges else pane["window"])] += 1
    assert +net == +plain
    assert all(times >= 0 for times in net.values())
    if not assigner.merges:
        last = {named(p): p["ids"] for p in value.panes}
        summed: dict[Any, list[int]] = defaultdict(list)
        for pane in delta.panes:
            summed[named(pane)] += pane["ids"]
        assert last == {window: sorted(ids) for window, ids in summed.items()}


@given(assigner=aligned, trigger=triggers(), allowed=lateness, story=stories())
@settings(deadline=None, max_examples=25)
def test_restarts_change_nothing(assigner: Aligned, trigger: w.Trigger, allowed: int, story: list[Step]) -> None:
    operator = WindowOperator(("key",), assigner, AGGREGATES, trigger=trigger, allowed_lateness=allowed, check=False)
    calm = play(operator, [Step(s.events, s.watermark, s.now) for s in story])
    wild = play(operator, [Step(s.events, s.watermark, s.now, restart=True) for s in story])
    assert calm.panes == wild.panes
    assert calm.segments.content == wild.segments.content


@given(story=stories(late=False), gap=st.integers(1, 12), touching=st.booleans())
@settings(deadline=None, max_examples=40)
def test_sessions_are_the_brute_force_computation(story: list[Step], gap: int, touching: bool) -> None:
    harness = play(WindowOperator(("key",), session(gap, touching=touching), AGGREGATES), story)
    expected = []
    by_key: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for step in story:
        for event in step.events:
            by_key[event["key"]].append((event["event_time"], event["id"]))
    for key, pairs in by_key.items():
        current: list[tuple[int, int]] = []
        for time, number in sorted(pairs):
            if current and time - current[-1][0] >= gap + touching:
                expected.append((key, current[0][0], current[-1][0] + gap, sorted(i for _, i in current)))
                current = []
            current.append((time, number))
        expected.append((key, current[0][0], current[-1][0] + gap, sorted(i for _, i in current)))
    got = [(*named(p), p["ids"]) for p in harness.panes]
    assert sorted(got) == sorted(expected)
    assert not harness.late


@given(assigner=aligned, allowed=lateness, story=stories())
@settings(deadline=None, max_examples=25)
def test_folding_before_the_shuffle_changes_nothing(assigner: Aligned, allowed: int, story: list[Step]) -> None:
    operator = WindowOperator(
        ("key",), assigner, AGGREGATES, allowed_lateness=allowed, panes=Panes(timestamp="earliest")
    )
    states = MemorySegments(), MemorySegments()
    mark = START
    for step in story:
        rows = event_frame(list(step.events), {"event_time": pl.Datetime("us", "UTC"), **SCHEMA})
        new = max(mark, step.watermark)
        plain = operator.turn(states[0], Turn(rows, new, step.now))
        kept, partials = operator.prepare(rows, mark)
        folded = operator.turn(states[1], Turn(kept, new, step.now, partials))
        by = ["key", "window_end", "pane_index"]
        if plain.rows is None:
            assert folded.rows is None
        else:
            assert folded.rows is not None
            assert plain.rows.sort(by).equals(folded.rows.sort(by))
        assert (plain.late is None) == (folded.late is None)
        if plain.late is not None and folded.late is not None:
            assert plain.late.sort("id").equals(folded.late.sort("id"))
        mark = new


@given(story=stories())
@settings(deadline=None, max_examples=25)
def test_a_count_of_counts_is_right_after_late_events(story: list[Step]) -> None:
    """Counts per key, revised by late events, counted again per count: at the end every key is in one place."""
    first = WindowOperator(
        ("key",), tumbling(20), {"n": w.count()}, allowed_lateness=30, panes=Panes(mode="value_and_retraction")
    )
    second = WindowOperator(
        ("n",),
        w.same_window(),
        {"keys": w.count(), "who": w.distinct("key", values=True)},
        allowed_lateness=30,
        retractions=True,
        step="second",
    )
    one, two = MemorySegments(), MemorySegments()
    shape = first.schema(pl.Schema({"event_time": pl.Datetime("us", "UTC"), **SCHEMA}))
    latest: dict[tuple[int, int], tuple[int, list[str]]] = {}
    truth: dict[tuple[str, int], int] = Counter()
    mark = START
    for step in story:
        rows = event_frame(list(step.events), {"event_time": pl.Datetime("us", "UTC"), **SCHEMA})
        new = max(mark, step.watermark)
        for event in step.events:
            end = event["event_time"] // 20 * 20 + 20
            if end + 30 > mark:
                truth[event["key"], end] += 1
        panes = first.turn(one, Turn(rows, new, step.now)).rows
        outcome = second.turn(two, Turn(panes if panes is not None else shape.to_frame(), new, step.now))
        assert outcome.late is None
        if outcome.rows is not None:
            for row in outcome.rows.with_columns(pl.col("window_end").cast(pl.Int64)).to_dicts():
                latest[row["n"], row["window_end"]] = (row["keys"], row["who"])
        mark = new
    expected: dict[tuple[int, int], list[str]] = defaultdict(list)
    for (key, end), n in truth.items():
        expected[n, end].append(key)
    assert {place: sorted(keys) for place, keys in expected.items()} == {
        place: who for place, (number, who) in latest.items() if number
    }
    assert all(number == len(who) for number, who in latest.values())


@given(data=st.data(), count=st.integers(1, 3))
@settings(deadline=None, max_examples=40)
def test_partitions_that_are_out_of_order_by_less_than_the_delay_lose_nothing(data: st.DataObject, count: int) -> None:
    """Whatever the partitions bring when, the minimum of their watermarks keeps every event on time."""
    stream = data.draw(events(max_size=20))
    spread = data.draw(partitions(stream, count))
    disorder = 0
    for part in spread:
        newest = -1
        for event in part:
            newest = max(newest, event["event_time"])
            disorder = max(disorder, newest - event["event_time"])
    strategy = bounded(disorder, max_ahead=None)
    tracker = WatermarkTracker(strategy)
    tracker.register([str(n) for n in range(count)], 0)
    harness = Harness(WindowOperator(("key",), tumbling(10), AGGREGATES), schema=SCHEMA)
    while any(spread):
        batch = []
        for number, part in enumerate(spread):
            size = data.draw(st.integers(0, len(part)))
            taken, spread[number] = part[:size], part[size:]
            rows = event_frame(taken, {"event_time": pl.Datetime("us", "UTC"), **SCHEMA})
            tracker.observe(str(number), strategy.observe(rows), 0)
            batch += taken
        tracker = WatermarkTracker(strategy, state=tracker.state())
        harness.at = max(harness.at, tracker.advance(0))
        harness.events(event_frame(batch, {"event_time": pl.Datetime("us", "UTC"), **SCHEMA}))
    harness.watermark(10**15)
    assert harness.late == []
    truth: dict[tuple[str, int], list[int]] = defaultdict(list)
    for event in stream:
        truth[event["key"], event["event_time"] // 10 * 10].append(event["id"])
    assert {(p["key"], p["window"][0]): p["ids"] for p in harness.panes} == truth
    assert all(pane["timing"] == "on_time" for pane in harness.panes)


def test_the_properties_can_fail() -> None:
    """The model is not the operator in disguise: a wrong lateness shows."""
    story = [Step(({"event_time": 1, "key": "a", "value": 1, "id": 0},), 100, 0)]
    story.append(Step(({"event_time": 2, "key": "a", "value": 1, "id": 1},), 100, 0))
    model = Model(tumbling(10), 1000)
    for step in story:
        model.step(step)
    harness = play(WindowOperator(("key",), tumbling(10), AGGREGATES), story)
    with pytest.raises(AssertionError):
        assert [row["id"] for row in harness.late] == model.late
