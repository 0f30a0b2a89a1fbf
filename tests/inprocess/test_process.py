"""An operator of one's own: an example to copy, and that the contract is enough for it.

`Silence` says when a key has not been heard of for a while, by event time and by the clock. It needs what most stateful
logic needs: rows of a key in order of time, something remembered per key, timers that go off without a row, late rows
told from others, and state that is freed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.engine import Operator, Outcome
from headrace.engine.state import frame_from_bytes, frame_to_bytes
from headrace.errors import StateError
from headrace.inprocess import Batch, Runner
from headrace.stream import Stream
from headrace.time import perfect
from headrace.windows import count, tumbling

if TYPE_CHECKING:
    from headrace.engine import Segments, Turn

INSTANT = pl.Datetime("us", "UTC")


@dataclass(frozen=True)
class Silence(Operator):
    """Says once when a key has been silent for a while, and forgets it then.

    Args:
        keys: The key columns.
        after: How long by event time, in microseconds: heard at t, silent at t + after.
        patience: How long by the clock; None for as long as it takes.
    """

    keys: tuple[str, ...]
    after: int
    patience: int | None = None

    def turn(self, state: Segments, turn: Turn) -> Outcome:
        # 1. Rows, judged by the watermark of the turn before: what is due by then has been said already.
        time = pl.col("event_time").to_physical()
        late = turn.rows.filter(time + self.after <= turn.watermark_before)
        fresh = turn.rows.filter(time + self.after > turn.watermark_before)
        heard = fresh.group_by(*self.keys).agg(time.max().alias("last"), pl.lit(turn.now).first().alias("now"))
        # 2. What is remembered: one row per key, read and written whole; see headrace.windows for state in parts.
        saved = state.get("heard")
        if saved is not None:
            both = pl.concat([frame_from_bytes(saved), heard])
            heard = both.group_by(*self.keys).agg(pl.col("last", "now").max())
        # 3. Timers: look at what is due by the watermark and by the clock. A turn comes in every batch, rows or not.
        due = pl.col("last") + self.after <= turn.watermark
        if self.patience is not None:
            due = due | (pl.col("now") + self.patience <= turn.now)
        silent = heard.filter(due).sort(*self.keys)
        kept = heard.filter(~due)
        # 4. Keep the rest, or nothing at all.
        if kept.height:
            state.put("heard", frame_to_bytes(kept))
        else:
            state.delete("heard")
        results = silent.select(
            *self.keys,
            pl.col("last").cast(INSTANT).alias("last_heard"),
            # Not before the watermark of the turn before, so that no later step takes it for late.
            (pl.col("last") + self.after - 1).cast(INSTANT).alias("event_time"),
        )
        mark = pl.lit(turn.watermark_before, dtype=pl.Int64)
        told = late.with_columns(
            (mark - time - self.after).cast(pl.Duration("us")).alias("lateness"), mark.cast(INSTANT).alias("watermark")
        )
        return Outcome(rows=results if results.height else None, late=told if told.height else None)

    def schema(self, rows: pl.Schema) -> pl.Schema:
        keys = {key: rows[key] for key in self.keys}
        return pl.Schema({**keys, "last_heard": INSTANT, "event_time": INSTANT})

    def fingerprint(self) -> dict[str, str]:
        # Another time to wait can read the old state, another key cannot.
        return {"operator": "silence", "keys": ",".join(self.keys)}


Row = tuple[str, int]


def stream(after: int = 10, patience: int | None = None) -> Stream:
    return (
        Stream.rows("reports", {"vehicle": pl.String})
        .watermark(perfect())
        .key_by("vehicle")
        .process(lambda keys, schema: Silence(keys, after, patience), name="silence")
    )


def frame(*rows: Row) -> pl.DataFrame:
    columns = {"vehicle": pl.String, "event_time": pl.Int64}
    return pl.DataFrame(list(rows), schema=columns, orient="row").cast({"event_time": INSTANT})


def said(batch: Batch) -> list[Row]:
    return sorted(batch.results.select("vehicle", pl.col("last_heard").cast(pl.Int64)).rows())


def test_it_is_part_of_the_plan() -> None:
    assert stream().explain().splitlines()[-1] == "  process silence"
    assert stream().schema.names() == ["vehicle", "last_heard", "event_time"]


def test_it_speaks_when_the_watermark_passes_with_or_without_rows() -> None:
    runner = Runner(stream())
    assert said(runner.step(frame(("a", 1), ("b", 2), ("a", 5)), watermark=11)) == []
    assert said(runner.step(watermark=12)) == [("b", 2)]
    assert said(runner.step(frame(("a", 9)), watermark=18)) == []
    assert said(runner.step(watermark=19)) == [("a", 9)]
    assert said(runner.step(watermark=100)) == []
    assert said(runner.step(frame(("a", 101)), watermark=101)) == []
    assert said(runner.finish()) == [("a", 101)]


def test_it_speaks_by_the_clock_too() -> None:
    runner = Runner(stream(patience=5))
    assert said(runner.step(frame(("a", 1)), now=1000)) == []
    assert said(runner.step(now=1004)) == []
    assert said(runner.step(now=1005)) == [("a", 1)]


def test_rows_that_come_too_late_are_told() -> None:
    runner = Runner(stream())
    runner.step(frame(("a", 50)), watermark=50)
    batch = runner.step(frame(("a", 40), ("b", 41)), watermark=50)
    assert batch.late is not None
    assert batch.late.get_column("vehicle").to_list() == ["a"]
    assert said(runner.finish()) == [("a", 50), ("b", 41)]


def test_its_results_go_on_into_windows() -> None:
    silences = stream().with_columns(all=pl.lit("all")).key_by("all")
    per_window = silences.window(tumbling(20)).aggregate(silences=count())
    runner = Runner(per_window)
    found = []
    for key, time in {"a": 0, "b": 12, "c": 24, "d": 50}.items():
        batch = runner.step(frame((key, time)), watermark=time)
        assert batch.late is None
        found += batch.results.get_column("silences").to_list()
    assert found + runner.finish().results.get_column("silences").to_list() == [1, 2, 1]


def test_state_is_freed_and_another_key_is_refused() -> None:
    runner = Runner(stream(), key_groups=1)
    runner.step(frame(("a", 1)), watermark=1)
    (before,) = next(iter(runner.snapshot().values()))
    runner.step(watermark=11)
    (after,) = next(iter(runner.snapshot().values()))
    assert sorted(before) == ["clock", "op/heard"]
    assert sorted(after) == ["clock"]
    other = Stream.rows("reports", {"vehicle": pl.String, "line": pl.String}).watermark(perfect())
    rekeyed = other.key_by("vehicle", "line").process(lambda keys, schema: Silence(keys, 10))
    with pytest.raises(StateError, match="keys was 'vehicle', is 'vehicle,line'"):
        Runner(rekeyed.named("silence"), key_groups=1, snapshot={"silence": [after]}).step()


@settings(deadline=None, max_examples=50)
@given(
    steps=st.lists(
        st.tuples(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 60)), max_size=6), st.integers(0, 15)),
        max_size=6,
    ),
    groups=st.integers(1, 3),
    restarts=st.sets(st.integers(0, 6)),
)
def test_it_gives_what_a_plain_computation_gives_in_any_groups_and_with_restarts(
    steps: list[tuple[list[Row], int]], groups: int, restarts: set[int]
) -> None:
    runner = Runner(stream(), key_groups=groups)
    watermark, heard = 0, {}
    runner.step(watermark=0)
    for number, (rows, advance) in enumerate(steps):
        if number in restarts:
            runner = Runner(stream(), key_groups=groups, snapshot=runner.snapshot())
        late = [time for _, time in rows if time + 10 <= watermark]
        for key, time in rows:
            if time + 10 > watermark:
                heard[key] = max(heard.get(key, time), time)
        watermark += advance
        batch = runner.step(frame(*rows), watermark=watermark)
        silent = sorted((key, time) for key, time in heard.items() if time + 10 <= watermark)
        assert said(batch) == silent
        assert (0 if batch.late is None else batch.late.height) == len(late)
        for key, _ in silent:
            del heard[key]
    assert said(runner.finish()) == sorted(heard.items())
