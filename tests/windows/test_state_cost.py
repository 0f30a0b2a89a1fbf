"""The cost of a turn follows its rows: what it reads and writes does not grow with the keys in the state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

from headrace.engine import MemorySegments, Turn
from headrace.time.instants import INSTANT
from headrace.windows import (
    Panes,
    after_count,
    after_processing_time,
    count,
    count_window,
    global_,
    latest,
    repeatedly,
    session,
    tumbling,
)
from headrace.windows.deduplicate import DeduplicateOperator
from headrace.windows.operator import WindowOperator
from headrace.windows.previous import PreviousOperator
from headrace.windows.sequences import SequenceOperator

if TYPE_CHECKING:
    from headrace.engine.operator import Operator

HOUR = 3_600_000_000
AGGREGATES = {"n": count(), "value": latest("value")}
OPERATORS: dict[str, Operator] = {
    "session": WindowOperator(("key",), session(HOUR), AGGREGATES),
    "session with retractions": WindowOperator(
        ("key",),
        session(HOUR),
        AGGREGATES,
        trigger=repeatedly(after_count(1)),
        panes=Panes(mode="value_and_retraction"),
    ),
    "global": WindowOperator(("key",), global_(), AGGREGATES, trigger=repeatedly(after_count(3))),
    "global with timers": WindowOperator(
        ("key",), global_(), AGGREGATES, trigger=repeatedly(after_processing_time("1h"))
    ),
    "tumbling with a trigger": WindowOperator(("key",), tumbling("1h"), AGGREGATES, trigger=repeatedly(after_count(3))),
    "count window": SequenceOperator(("key",), count_window(5), AGGREGATES),
    "deduplicate": DeduplicateOperator(("key",), HOUR),
    "previous": PreviousOperator(("key",), (("before", "value"),), HOUR),
}


class Counted(MemorySegments):
    """Counts what is read and written."""

    segments = 0
    bytes = 0

    def get(self, name: str) -> bytes | None:
        value = super().get(name)
        self.segments += 1
        self.bytes += len(value or b"")
        return value

    def put(self, name: str, value: bytes) -> None:
        self.segments += 1
        self.bytes += len(value)
        super().put(name, value)


def rows(keys: np.ndarray, time: int) -> pl.DataFrame:
    times = time + np.arange(len(keys)) % 1_000_000
    return pl.DataFrame({"key": keys, "value": keys * 0.5, "event_time": times}).cast(
        {"key": pl.String, "event_time": INSTANT}
    )


def cost(operator: Operator, keys: int) -> tuple[float, float]:
    """Tell how many segments and bytes a turn of 50 rows touches, on average, with so many keys in the state."""
    state, random = Counted(), np.random.default_rng(7)
    operator.turn(state, Turn(rows(np.arange(keys), 0), 1_000_000, 0))
    turns = 5
    for turn in range(1, turns + 2):
        if turn == 2:  # the first may still be taking in what waited
            state.segments = state.bytes = 0
        time = turn * 1_000_000
        outcome = operator.turn(state, Turn(rows(random.integers(0, keys, 50), time), time + 1_000_000, time))
        assert outcome.late is None
    return state.segments / turns, state.bytes / turns


@pytest.mark.parametrize("name", OPERATORS)
def test_a_turn_touches_what_its_rows_need_however_many_keys_there_are(name: str) -> None:
    _, few_bytes = cost(OPERATORS[name], 3_000)
    many_segments, many_bytes = cost(OPERATORS[name], 60_000)
    # 20 times the keys; a page for each of 50 rows, read and written, where windows may have panes beside them.
    assert many_bytes < 2 * few_bytes
    assert many_segments < 2 * 2 * 50 + 20


def test_duplicates_of_what_has_passed_write_no_page() -> None:
    operator, state = OPERATORS["deduplicate"], MemorySegments()
    operator.turn(state, Turn(rows(np.arange(10_000), 0), 1_000_000, 0))
    before = dict(state.content)
    again = operator.turn(state, Turn(rows(np.arange(0, 10_000, 100), 2_000_000), 3_000_000, 0))
    assert again.rows is None
    assert {name for name, value in state.content.items() if before.get(name) != value} == {"index"}


@pytest.mark.parametrize("name", ["session", "deduplicate", "previous"])
def test_what_expires_costs_its_own_pages_and_leaves_nothing(name: str) -> None:
    operator, state = OPERATORS[name], Counted()
    minute = HOUR // 60
    operator.turn(state, Turn(rows(np.arange(20_000), minute), 0, 0))
    operator.turn(state, Turn(rows(np.arange(20_000, 20_010), 0), 2 * minute, 0))
    operator.turn(state, Turn(rows(np.arange(0, 20), 4 * minute), 5 * minute, 0))
    size = sum(map(len, state.content.values()))
    empty = rows(np.arange(0), 0)
    state.bytes = 0
    # Ten keys expire: of what is remembered by time alone when nobody has touched it for some time.
    expiry = {"session": HOUR, "deduplicate": 3 * HOUR, "previous": 3 * HOUR // 2}[name] + minute // 2
    operator.turn(state, Turn(empty, expiry, 0))
    assert 10_000 < state.bytes < size / 10
    operator.turn(state, Turn(empty, 10 * HOUR, 0))
    assert list(state.content) == ["index"]
