"""The row before with time by key, against the rule as it is said: row by row, in dictionaries."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engine import MemorySegments, Turn
from headrace.inprocess import Runner, run
from headrace.stream import Stream
from headrace.time import BEGINNING, INSTANT, bounded
from headrace.time.key_time import KeyTime
from headrace.windows.previous import PreviousOperator

SECOND = 1_000_000
START = datetime(2026, 1, 1, 12, tzinfo=UTC)
T0 = int(START.timestamp()) * SECOND
WITHIN = 6 * SECOND
COLUMNS = (("before", "id"),)


def frame(rows: list[tuple[str, int]]) -> pl.DataFrame:
    """Rows of (key, second), numbered."""
    times = pl.Series([T0 + second * SECOND for _, second in rows], dtype=pl.Int64).cast(INSTANT)
    keys = pl.Series([key for key, _ in rows], dtype=pl.String)
    return pl.DataFrame({"key": keys, "id": pl.int_range(len(rows), eager=True), "event_time": times})


Row = tuple[str, int, int]


def judged(batches: list[tuple[list[Row], int]], tolerance: int, patience: int) -> tuple[list[Row], list[int]]:
    """The rows in time, and the numbers of those that are late: behind the mark of their key or the watermark."""
    newest: dict[str, int] = {}
    floor, taken, late = BEGINNING, [], []
    for rows, watermark in batches:
        for key, number, time in rows:
            if time < max(newest.get(key, BEGINNING) - tolerance, floor):
                late.append(number)
            else:
                taken.append((key, number, time))
        for key, _, time in rows:
            newest[key] = max(newest.get(key, BEGINNING), time)
        floor = max(floor, watermark - patience)
    return taken, late


def followed(rows: list[Row]) -> list[tuple[int, int | None]]:
    """Each row with the row before it: by time, rows of one time in the order of arrival."""
    before: dict[str, tuple[int, int]] = {}
    found = []
    for key, number, time in sorted(rows, key=lambda row: row[2]):
        last = before.get(key)
        found.append((number, last[1] if last is not None and time - last[0] <= WITHIN else None))
        before[key] = (time, number)
    return sorted(found)


@settings(max_examples=150, deadline=None)
@given(
    rows=st.lists(st.tuples(st.sampled_from("xyz"), st.integers(0, 20)), max_size=16),
    tolerance=st.sampled_from([0, 0, 2, 4]),
    patience=st.sampled_from([0, 3]),
    delay=st.integers(0, 6),
    data=st.data(),
)
def test_whatever_the_order_the_cut_and_the_restarts_the_answer_is_that_of_the_rows_in_time(
    rows: list[tuple[str, int]], tolerance: int, patience: int, delay: int, data: st.DataObject
) -> None:
    table, place, watermark = frame(rows), 0, BEGINNING
    time = KeyTime(tolerance * SECOND, patience * SECOND)
    operator, state = PreviousOperator(("key",), COLUMNS, WITHIN, time), MemorySegments()
    batches: list[tuple[list[Row], int]] = []
    found: list[tuple[int, int | None]] = []
    late: list[int] = []
    while place < table.height:
        piece = table[place : place + data.draw(st.integers(1, 5))]
        place += piece.height
        times = piece["event_time"].to_physical().to_list()
        watermark = max(watermark, max(times) - delay * SECOND)
        batches.append((list(zip(piece["key"], piece["id"], times, strict=True)), watermark))
        outcome = operator.turn(state, Turn(piece, watermark, 0))
        found += [] if outcome.rows is None else outcome.rows.select("id", "before").rows()
        late += [] if outcome.late is None else outcome.late["id"].to_list()
        state = MemorySegments(dict(state.content))
        if data.draw(st.booleans()):
            apart = [MemorySegments() for _ in range(3)]
            operator.resplit([state], apart)
            state = MemorySegments()
            operator.resplit(apart, [state])
    last = operator.turn(state, Turn(table[:0], T0 + 1000 * SECOND, 0))
    found += [] if last.rows is None else last.rows.select("id", "before").rows()
    taken, expected_late = judged(batches, tolerance * SECOND, patience * SECOND)
    assert sorted(late) == sorted(expected_late)
    assert sorted(found) == followed(taken)
    assert list(state.content) == ["index"]


STREAM = (
    Stream.rows("rows", {"key": pl.String, "id": pl.Int64})
    .watermark(bounded("10s"), per="key")
    .key_by("key")
    .previous(before="id", within="6s")
)


def test_a_row_goes_on_in_the_batch_that_brings_it_and_waits_for_no_other_key() -> None:
    runner = Runner(STREAM)
    assert runner.step(frame([("x", 20)])).results.select("id", "before").rows() == [(0, None)]
    assert runner.step(frame([("y", 12), ("y", 13)])).results.select("id", "before").rows() == [(0, None), (1, 0)]
    behind = runner.step(frame([("x", 19)]))
    assert behind.late is not None
    assert behind.late["lateness"].to_list() == [timedelta(seconds=1)]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("xyz"), st.integers(0, 3)), max_size=16), st.integers(1, 3))
def test_in_batches_and_all_at_once_agree_where_no_row_is_late(rows: list[tuple[str, int]], groups: int) -> None:
    second, ascending = 0, []
    for key, gap in rows:
        second += gap
        ascending.append((key, second))
    table = frame(ascending)
    runner = Runner(STREAM, key_groups=groups)
    parts = [runner.step(table[place : place + 3]).results for place in range(0, table.height, 3)]
    streamed = pl.concat([*parts, runner.finish().results])
    whole = run(STREAM, table).results
    assert sorted(streamed.select("id", "before").rows()) == sorted(whole.select("id", "before").rows())


def test_windows_after_it_wait_for_the_watermark_of_all_keys() -> None:
    """What goes on early does not close a window early."""
    from headrace.windows import count, tumbling

    moves = STREAM.window(tumbling("10s")).aggregate(n=count())
    runner = Runner(moves)
    early = runner.step(frame([("x", 12), ("x", 25)]))
    assert early.results.height == 0
    done = pl.concat([runner.step(frame([("y", 16)])).results, runner.finish().results])
    assert sorted(done.select("key", "n").rows()) == [("x", 1), ("x", 1), ("y", 1)]
