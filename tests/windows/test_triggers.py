"""Triggers: when a window fires, as a table of stories; and what never fires is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import PlanError
from headrace.testing.strategies import triggers
from headrace.windows import (
    Trigger,
    after_all,
    after_any,
    after_count,
    after_each,
    after_end,
    after_processing_time,
    after_watermark,
    check_trigger,
    default,
    every_interval,
    never,
    or_finally,
    repeatedly,
)
from headrace.windows.triggers import Moment

END = 100


def fires(trigger: Trigger, story: list[tuple[str, int]]) -> str:
    """Tell per step whether it fired (F), fired for the last time (L), or not (.)."""
    state, watermark, now, told = trigger.start(), 0, 0, ""
    for what, much in story:
        count = 0
        if what == "rows":
            count = much
        elif what == "watermark":
            watermark = much
        else:
            now = much
        at = Moment(END, watermark, now)
        state = json.loads(json.dumps(state))
        if count:
            state = trigger.on_elements(state, count, at)
        if trigger.should_fire(state, at):
            state, finished = trigger.on_fire(state, at)
            told += "L" if finished else "F"
            if finished:
                break
        else:
            told += "."
    return told


def rows(n: int) -> tuple[str, int]:
    return "rows", n


def mark(at: int) -> tuple[str, int]:
    return "watermark", at


def clock(at: int) -> tuple[str, int]:
    return "clock", at


@pytest.mark.parametrize(
    ("trigger", "story", "expected"),
    [
        (default(), [rows(1), mark(99), mark(100), rows(1)], "..FF"),
        (after_watermark(), [rows(1), mark(100)], ".L"),
        (after_watermark(early=after_count(2)), [rows(1), rows(1), rows(1), rows(2), mark(100)], ".F.FL"),
        (after_watermark(late=after_count(2)), [rows(9), mark(100), rows(1), rows(1), rows(5)], ".F.FF"),
        (
            after_watermark(early=after_processing_time(10), late=after_count(1)),
            [rows(1), clock(9), clock(10), clock(30), mark(100), rows(1)],
            "..F.FF",
        ),
        (after_count(3), [rows(1), rows(1), rows(1)], "..L"),
        (after_count(3), [rows(7)], "L"),
        (repeatedly(after_count(3)), [rows(2), rows(2), rows(2), rows(2)], ".F.F"),
        (after_processing_time(10), [clock(5), rows(1), clock(14), clock(15)], "...L"),
        (repeatedly(after_processing_time(10)), [rows(1), clock(12), clock(25), rows(1), clock(35)], ".F..F"),
        (after_processing_time(every=10), [clock(3), rows(1), clock(9), clock(10)], "...L"),
        (after_processing_time(8, every=10), [clock(3), rows(1), clock(19), clock(20)], "...L"),
        (after_each(after_count(2), after_count(3)), [rows(2), rows(2), rows(1)], "F.L"),
        (repeatedly(after_each(after_count(1), after_count(2))), [rows(1), rows(1), rows(1), rows(1)], "F.FF"),
        (after_any(after_count(5), after_watermark()), [rows(4), mark(100)], ".L"),
        (after_any(after_count(5), after_watermark()), [rows(5)], "L"),
        (after_all(after_count(2), after_watermark()), [rows(2), mark(100)], ".L"),
        (after_all(after_count(2), after_watermark()), [mark(100), rows(1), rows(1)], "..L"),
        (after_all(after_processing_time(5), after_count(2)), [rows(1), clock(5), rows(1)], "..L"),
        (or_finally(repeatedly(after_count(1)), after_watermark()), [rows(1), rows(1), mark(100)], "FFL"),
        (or_finally(after_count(1), after_watermark()), [rows(1)], "L"),
        (never(), [rows(9), mark(100), clock(10**9)], "..."),
        (every_interval(30), [rows(1), mark(29), mark(30), mark(95), mark(100), rows(1)], "..FFFF"),
        (every_interval(30), [mark(70), rows(1), mark(89), mark(91), mark(99)], "...F."),
        (after_watermark(early=every_interval(40)), [rows(1), mark(40), mark(80), mark(100)], ".FFL"),
        (or_finally(every_interval(30), after_count(3)), [rows(1), mark(30), rows(2)], ".FL"),
        (after_end(10), [rows(1), mark(100), rows(1), mark(109), mark(110)], "....L"),
        (after_all(after_end(10), after_count(2)), [rows(1), mark(120), rows(1)], "..L"),
    ],
)
def test_when_a_window_fires(trigger: Trigger, story: list[tuple[str, int]], expected: str) -> None:
    assert fires(trigger, story) == expected


@pytest.mark.parametrize(
    ("trigger", "stories", "end", "expected"),
    [
        (after_count(3), [[rows(1)], [rows(2)]], END, True),
        (after_count(3), [[rows(1)], [rows(1)]], END, False),
        (after_processing_time(10), [[rows(1)], [clock(4), rows(1)]], END, False),
        (after_each(after_count(1), after_count(2)), [[rows(1), rows(1)], [rows(1), rows(1)]], END, True),
        # A session that was on time and grew beyond the watermark waits for its new end.
        (after_watermark(late=after_count(1)), [[rows(1), mark(100)], [rows(1)]], 300, False),
        (after_watermark(late=after_count(2)), [[rows(1), mark(100), rows(1)], [rows(1)]], END, False),
        (after_watermark(early=after_count(3)), [[rows(1)], [rows(2)]], 300, True),
    ],
)
def test_windows_that_become_one(
    trigger: Trigger, stories: list[list[tuple[str, int]]], end: int, expected: bool
) -> None:
    states, watermark, now = [], 0, 0
    for story in stories:
        state = trigger.start()
        for what, much in story:
            watermark = much if what == "watermark" else watermark
            now = much if what == "clock" else now
            at = Moment(END, watermark, now)
            state = trigger.on_elements(state, much, at) if what == "rows" else state
            if trigger.should_fire(state, at):
                state, _ = trigger.on_fire(state, at)
        states.append(state)
    at = Moment(end, watermark, now)
    merged = trigger.merge(states, at)
    assert trigger.should_fire(json.loads(json.dumps(merged)), at) is expected


@given(
    trigger=triggers(), steps=st.lists(st.tuples(st.sampled_from(["rows", "watermark", "clock"]), st.integers(0, 150)))
)
@settings(deadline=None, max_examples=200)
def test_a_timer_is_never_missed(trigger: Trigger, steps: list[tuple[str, int]]) -> None:
    """Between two asked moments, a trigger that would fire by the clock has said so in its timer."""
    state: Any = trigger.start()
    watermark, now = 0, 0
    for what, much in steps:
        count = much if what == "rows" else 0
        watermark = max(watermark, much) if what == "watermark" else watermark
        now = max(now, much) if what == "clock" else now
        at = Moment(END, watermark, now)
        if count:
            state = trigger.on_elements(state, count, at)
        if trigger.should_fire(state, at):
            state, finished = trigger.on_fire(state, at)
            if finished:
                return
        later = Moment(END, watermark, now + 1000)
        if not trigger.should_fire(state, at) and trigger.should_fire(state, later):
            timer = trigger.timer(state)
            assert timer is not None
            assert trigger.should_fire(state, Moment(END, watermark, max(timer, now)))


@given(trigger=triggers(), steps=st.lists(st.tuples(st.sampled_from(["rows", "watermark"]), st.integers(0, 130))))
@settings(deadline=None, max_examples=200)
def test_an_event_timer_is_never_missed(trigger: Trigger, steps: list[tuple[str, int]]) -> None:
    """A trigger that would fire at a later watermark inside the window has said when in its event timer."""
    state: Any = trigger.start()
    watermark = 0
    for what, much in steps:
        watermark = max(watermark, much) if what == "watermark" else watermark
        at = Moment(END, watermark, 0)
        if what == "rows" and much:
            state = trigger.on_elements(state, much, at)
        if trigger.should_fire(state, at):
            state, finished = trigger.on_fire(state, at)
            if finished:
                return
        for later in range(watermark, END):
            if not trigger.should_fire(state, at) and trigger.should_fire(state, Moment(END, later, 0)):
                timer = trigger.event_timer(state)
                assert timer is not None
                assert timer <= later


def test_a_window_must_outlive_its_trigger() -> None:
    with pytest.raises(PlanError, match="gone before it fires") as refused:
        check_trigger(after_any(after_end("5s"), after_count(9)), lateness=4_000_000)
    assert "allowed_lateness='5s'" in str(refused.value)
    check_trigger(after_end("5s"), lateness=5_000_000)
    with pytest.raises(PlanError, match="never fires"):
        check_trigger(after_end("5s"), ends=False)
    with pytest.raises(PlanError, match="above zero"):
        every_interval(0)


@pytest.mark.parametrize(
    ("trigger", "ends", "closes", "message"),
    [
        (never(), False, True, "never fires"),
        (never(), True, False, "never fires"),
        (default(), False, True, "no end to wait for"),
        (after_watermark(), False, True, "no end to wait for"),
        (after_all(after_count(1), never()), True, True, "never\\(\\) does not"),
        (after_all(after_count(1), after_watermark()), False, True, "never fires"),
        (repeatedly(never()), True, True, "never fires"),
        (after_each(repeatedly(after_count(1)), after_count(2)), True, True, "never gets its turn"),
        (after_any(after_count(1), never()), True, True, "never\\(\\) never fires"),
    ],
)
def test_what_never_fires_is_refused(trigger: Trigger, ends: bool, closes: bool, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        check_trigger(trigger, ends=ends, closes=closes)


@pytest.mark.parametrize(
    ("trigger", "ends"),
    [
        (default(), True),
        (never(), True),
        (after_count(1), False),
        (after_watermark(early=after_count(1)), False),
        (after_each(or_finally(repeatedly(after_count(1)), after_watermark()), after_count(2)), True),
    ],
)
def test_what_fires_is_not(trigger: Trigger, ends: bool) -> None:
    check_trigger(trigger, ends=ends)


def test_bad_arguments_are_refused() -> None:
    with pytest.raises(PlanError, match="1 or more"):
        after_count(0)
    with pytest.raises(PlanError, match="above zero"):
        after_processing_time(every=0)
    with pytest.raises(PlanError, match="no triggers"):
        after_any()
