"""Matching as rows arrive: the same answer however they are cut, on one key or many, across restarts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cep.strategies import START, frame_of, patterns, rows, symbol

from headrace.cep import Pattern, compile_pattern
from headrace.cep.matcher import MatchLimitError
from headrace.cep.streaming import Piece, Progress, StreamMatcher
from headrace.cep.threads import Found, KeyRun, Threads
from headrace.engine.state import frame_from_bytes, frame_to_bytes

if TYPE_CHECKING:
    import polars as pl

    from headrace.cep.compiled import Compiled

SECOND = 1_000_000
T0 = int(START.timestamp()) * SECOND

Answer = dict[str, list[Any]]


def reference(compiled: Compiled, frame: pl.DataFrame, watermark: int) -> tuple[Answer, Answer]:
    """Each key by itself, row by row."""
    matches: Answer = {}
    timed_out: Answer = {}
    for (key,), part in frame.group_by("key", maintain_order=True):
        times = part["event_time"].dt.epoch("us").to_numpy().astype(np.int64)
        threads = Threads(compiled.program, compiled.rows(part, times), skip=compiled.skip)
        run, found = KeyRun(), Found()
        threads.feed(run, 0, part.height, found)
        threads.advance(run, watermark, found)
        ids = part["id"].to_list()
        labels = compiled.program.labels

        def told(thread: Any, time: int, ids: list[int] = ids, labels: tuple[str, ...] = labels) -> tuple[Any, ...]:
            return time, [(labels.index(label), ids[row]) for label, row in thread.path.pairs()]

        matches[key] = [told(t, time) for t, time in zip(found.matches, found.match_times, strict=True)]
        timed_out[key] = sorted(told(thread, thread.deadline) for thread in found.timed_out)
    return matches, timed_out


def told(piece: Piece, into: Answer) -> None:
    detail = piece.detail.group_by("#match", maintain_order=True).agg("#label", "id")
    parts = {m: list(zip(labels, ids, strict=True)) for m, labels, ids in detail.rows()}
    for number, ((key,), time) in enumerate(zip(piece.keys.rows(), piece.times.tolist(), strict=True)):
        into.setdefault(key, []).append((time, parts[number]))


def in_pieces(
    compiled: Compiled, frame: pl.DataFrame, cuts: list[int], watermark: int, few_keys: int, columns: list[str] | None
) -> tuple[Answer, Answer]:
    """Several pieces, saved and read back between them."""
    matcher = StreamMatcher(compiled, key=["key"], few_keys=few_keys, columns=columns)
    progress = Progress()
    matches: Answer = {key: [] for key in frame["key"].unique()}
    timed_out: Answer = {key: [] for key in frame["key"].unique()}
    for begin, end in zip([0, *cuts], [*cuts, frame.height], strict=True):
        next_time = frame["event_time"][end : end + 1].dt.epoch("us").to_list()
        advance = matcher.advance(progress, frame[begin:end], next_time[0] if next_time else watermark)
        saved = {name: frame_to_bytes(part) for name, part in advance.progress.frames().items()}
        progress = Progress.of({name: frame_from_bytes(part) for name, part in saved.items()})
        told(advance.matches, matches)
        told(advance.timed_out, timed_out)
    return matches, {key: sorted(value) for key, value in timed_out.items()}


@settings(max_examples=150, deadline=None)
@given(patterns(), rows(), st.data())
def test_any_cut_and_either_machine_gives_the_same_answer(
    pattern: Pattern, frame: pl.DataFrame, data: st.DataObject
) -> None:
    try:
        compiled = compile_pattern(pattern)
    except ValueError:
        return
    frame = frame.with_row_index("id")
    cuts = sorted(data.draw(st.lists(st.integers(0, frame.height), max_size=4)))
    watermark = T0 + data.draw(st.integers(0, 60)) * SECOND
    if frame.height:
        watermark = max(watermark, int(frame["event_time"].dt.epoch("us").max()))  # type: ignore[arg-type]
    expected = reference(compiled, frame, watermark)
    few_keys = data.draw(st.sampled_from([1, 2, 1000]))
    columns = data.draw(st.sampled_from([["id"], None]))
    assert in_pieces(compiled, frame, cuts, watermark, few_keys, columns) == expected


def stops() -> Pattern:
    return (
        Pattern.begin("a", symbol("a"))
        .next("b", symbol("b"))
        .one_or_more()
        .consecutive()
        .next("c", symbol("c"))
        .within("10s")
    )


def test_a_quiet_key_has_no_state() -> None:
    matcher = StreamMatcher(compile_pattern(stops()), key=["key"], columns=[])
    frame = frame_of([("x", "a", 0, 0), ("x", "b", 0, 1), ("y", "a", 0, 1), ("y", "d", 0, 1)])
    one = matcher.advance(Progress(), frame, T0 + 5 * SECOND)
    assert not one.progress.idle
    assert one.progress.rows is not None
    assert one.progress.rows["key"].to_list() == ["x", "x"]
    assert one.progress.rows.columns == ["key", "event_time"]
    two = matcher.advance(one.progress, frame[:0], T0 + 10 * SECOND)
    assert two.progress.idle
    assert two.progress.rows is not None
    assert two.progress.rows.height == 0
    assert two.progress.nodes.height == 0
    assert two.timed_out.keys.rows() == [("x",)]
    assert two.timed_out.times.tolist() == [T0 + 10 * SECOND]


def test_a_trailing_negation_matches_on_the_watermark_alone() -> None:
    pattern = Pattern.begin("a", symbol("a")).not_followed_by("b", symbol("b")).within("3s")
    matcher = StreamMatcher(compile_pattern(pattern), key=["key"])
    frame = frame_of([("x", "a", 0, 0), ("y", "a", 0, 0), ("y", "b", 0, 2)])
    one = matcher.advance(Progress(), frame, T0 + 3 * SECOND - 1)
    assert len(one.matches) == 0
    two = matcher.advance(one.progress, frame[:0], T0 + 3 * SECOND)
    assert two.matches.keys.rows() == [("x",)]
    assert len(two.timed_out) == 0


@pytest.mark.parametrize("few_keys", [1, 1000])
def test_partial_matches_are_bounded(few_keys: int) -> None:
    pattern = Pattern.begin("a").followed_by_any("b").followed_by_any("c", symbol("d"))
    matcher = StreamMatcher(compile_pattern(pattern), max_partial=50, few_keys=few_keys)
    with pytest.raises(MatchLimitError, match="more than 50"):
        matcher.advance(Progress(), frame_of([("x", "a", 0, 1)] * 30), T0)
