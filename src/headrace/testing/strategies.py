"""Hypothesis strategies: streams that are out of order, partitioned, cut into batches, and interrupted by restarts.

They draw *stories*: lists of steps that a `Harness` or any runner can be driven with. Needs the extra
`headrace[testing]`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.extras import require

require("testing", by="headrace.testing.strategies")

from hypothesis import strategies as st

from headrace.windows import (
    after_all,
    after_any,
    after_count,
    after_each,
    after_processing_time,
    after_watermark,
    default,
    every_interval,
    or_finally,
    repeatedly,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypothesis.strategies import SearchStrategy

    from headrace.windows import Trigger

Event = dict[str, Any]


@dataclass(frozen=True)
class Step:
    """One batch: its events, then the watermark and the processing time after it, and whether a restart follows."""

    events: tuple[Event, ...]
    watermark: int
    now: int
    restart: bool = field(default=False)


def events(
    *, keys: Sequence[str] = ("a", "b"), until: int = 60, min_size: int = 0, max_size: int = 25
) -> SearchStrategy[list[Event]]:
    """Draw events in any order of time, each with a number of its own in `id` and a small whole `value`.

    Args:
        keys: The keys that occur.
        until: Timestamps are below this.
        min_size: At least so many events.
        max_size: At most so many events.
    """
    one = st.tuples(st.integers(0, until - 1), st.sampled_from(list(keys)), st.integers(-3, 3))
    return st.lists(one, min_size=min_size, max_size=max_size).map(
        lambda drawn: [{"event_time": t, "key": k, "value": v, "id": n} for n, (t, k, v) in enumerate(drawn)]
    )


@st.composite
def stories(
    draw: st.DrawFn,
    *,
    keys: Sequence[str] = ("a", "b"),
    until: int = 60,
    max_size: int = 25,
    late: bool = True,
    ends: bool = True,
) -> list[Step]:
    """Draw a stream cut into batches, with a watermark that moves on between them.

    Args:
        draw: Given by Hypothesis.
        keys: The keys that occur.
        until: Timestamps are below this.
        max_size: At most so many events.
        late: Whether the watermark may pass events that are still to come.
        ends: Whether the story ends with a watermark past everything.
    """
    left = draw(events(keys=keys, until=until, max_size=max_size))
    steps: list[Step] = []
    mark, now = -(2**61), 0
    while left:
        size = draw(st.integers(1, len(left)))
        batch, left = left[:size], left[size:]
        highest = until + 10 if late or not left else min(event["event_time"] for event in left)
        mark = max(mark, draw(st.one_of(st.just(mark), st.integers(0, max(highest, 0)))))
        now += draw(st.integers(0, 20))
        steps.append(Step(tuple(batch), mark, now, draw(st.booleans())))
        if draw(st.booleans()):
            now += draw(st.integers(0, 20))
            steps.append(Step((), mark, now))
    if ends:
        steps.append(Step((), 10**15, now + 1000))
    return steps


def partitions(story: Sequence[Event], count: int) -> SearchStrategy[list[list[Event]]]:
    """Draw a way to spread events over source partitions, each in the order of the events."""
    places = st.lists(st.integers(0, count - 1), min_size=len(story), max_size=len(story))
    return places.map(
        lambda chosen: [[e for e, place in zip(story, chosen, strict=True) if place == p] for p in range(count)]
    )


def triggers() -> SearchStrategy[Trigger]:
    """Draw triggers of every kind, nested a little."""
    counts = st.integers(1, 4).map(after_count)
    clocks = st.integers(0, 15).map(after_processing_time)
    intervals = st.integers(1, 15).map(every_interval)
    simple = st.one_of(counts, clocks, intervals, st.just(after_watermark()), st.just(default()))
    parts = st.one_of(counts, clocks)
    return st.one_of(
        simple,
        simple.map(repeatedly),
        st.builds(lambda early, late: after_watermark(early=early, late=late), parts, parts),
        st.builds(lambda early: after_watermark(early=early), parts),
        st.builds(lambda one, two: repeatedly(after_any(one, two)), parts, simple),
        st.builds(after_all, parts, simple),
        st.builds(after_each, parts, parts),
        st.builds(lambda main, until: or_finally(repeatedly(main), until), parts, simple),
    )
