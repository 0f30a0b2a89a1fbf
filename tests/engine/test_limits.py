"""The bound on the state of a step: counted exactly, warned of, and refused beyond."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from polars import col

from headrace.cep import Pattern
from headrace.cep.measures import last
from headrace.engine import group
from headrace.engine.limits import StateLimit, StateLimitError
from headrace.engine.state import record_from_bytes
from headrace.inprocess import Runner
from headrace.stream import Stream
from headrace.stream.sql import sql
from headrace.time import bounded
from headrace.windows import (
    after_count,
    count,
    count_window,
    global_,
    repeatedly,
    session,
    sliding,
    tumbling,
)

START = datetime(2026, 1, 1, tzinfo=UTC)


def rows(keys: range, second: int, value: int = 0) -> pl.DataFrame:
    return pl.DataFrame({"key": list(keys), "value": value}).with_columns(
        event_time=pl.lit(START + timedelta(seconds=second))
    )


def source() -> Stream:
    return Stream.rows("rows", {"key": pl.Int64, "value": pl.Int64}).watermark(bounded("0s")).key_by("key")


def waiting() -> Stream:
    pattern = Pattern.begin("a", col("value") == 0).followed_by("b", col("value") > 9).within("1h").skip("past_last")
    return source().match(pattern).select(at=last("b.event_time"))


def rising() -> Stream:
    query = """SELECT * FROM readings MATCH_RECOGNIZE (PARTITION BY key ORDER BY event_time MEASURES up.value AS top
        PATTERN (low up) DEFINE low AS value = 0, up AS value > 9)"""
    stream: Stream = sql(query, {"readings": source()})
    return stream


STREAMS = {
    "pattern": waiting,
    "tumbling": lambda: source().window(tumbling("10s")).aggregate(n=count()),
    "sliding": lambda: source().window(sliding("30s", every="10s"), allowed_lateness="20s").aggregate(n=count()),
    "session": lambda: source().window(session("15s")).aggregate(n=count()),
}


#: Each stateful step, with one entry of state for each key.
BY_KEY = {
    "pattern": waiting,
    "match_recognize": rising,
    "deduplicate": lambda: source().deduplicate("key", within="1h"),
    "previous": lambda: source().previous(before="value", within="1h"),
    "session": lambda: source().window(session("1h")).aggregate(n=count()),
    "global": lambda: source().window(global_(), trigger=repeatedly(after_count(99))).aggregate(n=count()),
    "count_window": lambda: source().window(count_window(99)).aggregate(n=count()),
    "tumbling": lambda: source().window(tumbling("1h")).aggregate(n=count()),
    "tumbling with lateness": lambda: source().window(tumbling("1h"), allowed_lateness="1h").aggregate(n=count()),
}


ALL = {**BY_KEY, **STREAMS}


@pytest.mark.parametrize("name", ALL)
def test_the_bytes_that_a_group_counts_are_those_of_its_segments(name: str) -> None:
    runner = Runner(ALL[name](), key_groups=2)
    for step in range(40):
        runner.step(rows(range(step % 7, 40 + step), 4 * step, value=10 * (step % 3 == 2)))
        for segments in next(iter(runner.snapshot().values())):
            kept = sum(len(value) for key, value in segments.items() if key.startswith("op/"))
            assert record_from_bytes(segments["clock"])["bytes"] == kept
        runner = Runner(ALL[name](), key_groups=2, snapshot=runner.snapshot())


def test_more_keys_than_the_bound_stop_the_job_with_what_to_do() -> None:
    runner = Runner(waiting(), key_groups=1, state_limit=StateLimit(keys=100))
    runner.step(rows(range(100), 0))
    batch = runner.step(rows(range(1), 1, value=1))
    assert batch.counts["state.keys"] == 100
    assert batch.counts["state.bytes"] > 100
    before = runner.snapshot()
    runner.step(rows(range(100, 101), 2))  # waits for the watermark
    with pytest.raises(StateLimitError) as caught:
        runner.step(rows(range(1), 3, value=1))
    assert "step 'match-by-key' (pattern) keeps 101 keys (" in caught.value.message
    assert "may have 100: its share of spark.max_state_keys" in caught.value.message
    assert "Raise spark.max_state_keys" in caught.value.hint
    again = Runner(waiting(), key_groups=1, snapshot=before, state_limit=StateLimit(keys=101))
    again.step(rows(range(100, 101), 2))
    assert again.step(rows(range(1), 3, value=1)).counts["state.keys"] == 101


def take_steps(runner: Runner, steps: int) -> None:
    for step in range(1, steps + 1):
        runner.step(rows(range(500 * step), step))


@pytest.mark.parametrize("name", ALL)
def test_more_bytes_than_the_bound_stop_any_step(name: str) -> None:
    free = Runner(ALL[name](), key_groups=1, state_limit=StateLimit())
    small = free.step(rows(range(10), 0)).counts["state.bytes"]
    tight = Runner(ALL[name](), key_groups=1, state_limit=StateLimit(size=2 * small))
    tight.step(rows(range(10), 0))
    with pytest.raises(StateLimitError, match=r"bytes of state.* its share of spark\.max_state_bytes"):
        take_steps(tight, 8)


def take_growing_steps(runner: Runner) -> None:
    for step in range(12, 40):
        runner.step(rows(range(100 + step), 2 * step))


@pytest.mark.parametrize("name", BY_KEY)
def test_the_bound_on_keys_holds_for_every_step(name: str) -> None:
    runner = Runner(BY_KEY[name](), key_groups=1, state_limit=StateLimit(keys=120))
    for step in range(12):
        batch = runner.step(rows(range(100), 2 * step))
    assert batch.counts["state.keys"] == 100
    # More keys in each step, so that the parts of a slice, which count alone until they are merged, become larger.
    with pytest.raises(StateLimitError, match=r"keys .* its share of spark\.max_state_keys"):
        take_growing_steps(runner)


@pytest.mark.parametrize("name", BY_KEY)
def test_keys_are_counted_also_after_a_restart(name: str) -> None:
    runner = Runner(BY_KEY[name](), key_groups=2, state_limit=StateLimit())
    for step in range(4):
        runner.step(rows(range(100), 2 * step))
        runner = Runner(BY_KEY[name](), key_groups=2, snapshot=runner.snapshot(), state_limit=StateLimit())
    assert runner.step(rows(range(1), 20)).counts["state.keys"] == 100


def test_keys_that_go_make_room() -> None:
    runner = Runner(waiting(), key_groups=1, state_limit=StateLimit(keys=50))
    for step in range(6):
        runner.step(rows(range(50 * step, 50 * step + 50), 10 * step))
        runner.step(rows(range(50 * step, 50 * step + 50), 10 * step + 1, value=10))
        counts = runner.step(rows(range(1), 10 * step + 5, value=1)).counts
        assert counts.get("state.keys", 0) == 0


def test_from_four_fifths_of_the_bound_on_there_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    group._warn.cache_clear()
    runner = Runner(waiting(), key_groups=1, state_limit=StateLimit(keys=100))
    with caplog.at_level(logging.WARNING, logger="headrace.engine.group"):
        runner.step(rows(range(79), 0))
        runner.step(rows(range(79, 80), 1))
        assert not caplog.records
        runner.step(rows(range(1), 2, value=1))
        runner.step(rows(range(1), 3, value=1))
    assert [record.getMessage() for record in caplog.records] == [
        "step 'match-by-key' (pattern) keeps more than 80 % of the keys that it may in a key group; beyond the bound "
        "its job stops"
    ]


def test_each_key_group_may_keep_its_share() -> None:
    assert StateLimit(10, 1_000).share(4) == StateLimit(3, 250)
    assert StateLimit().share(4) == StateLimit()
