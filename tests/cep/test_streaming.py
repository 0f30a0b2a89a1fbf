"""Matching as rows arrive: the same answer however they are cut, on one key or many, across restarts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cep.strategies import START, frame_of, patterns, rows, symbol

from headrace.cep import Pattern, compile_pattern, current, matched
from headrace.cep.limits import Limit, MatchLimitError
from headrace.cep.streaming import Piece, Progress, StreamMatcher
from headrace.cep.threads import Found, KeyRun, Threads
from headrace.engine.state import frame_from_bytes, frame_to_bytes

if TYPE_CHECKING:
    from headrace.cep.compiled import Compiled

SECOND = 1_000_000
T0 = int(START.timestamp()) * SECOND

Answer = dict[str, list[Any]]


def reference(
    compiled: Compiled, frame: pl.DataFrame, watermark: int, limit: Limit
) -> tuple[Answer, Answer, list[int]]:
    """Each key by itself, row by row."""
    matches: Answer = {}
    timed_out: Answer = {}
    given_up: list[int] = []
    for (key,), part in frame.group_by("key", maintain_order=True):
        times = part["event_time"].dt.epoch("us").to_numpy().astype(np.int64)
        threads = Threads(compiled.program, compiled.rows(part, times), skip=compiled.skip, limit=limit)
        run, found = KeyRun(), Found()
        threads.feed(run, 0, part.height, found)
        threads.advance(run, watermark, found)
        ids = part["id"].to_list()
        labels = compiled.program.labels

        def told(thread: Any, time: int, ids: list[int] = ids, labels: tuple[str, ...] = labels) -> tuple[Any, ...]:
            return time, [(labels.index(label), ids[row]) for label, row in thread.path.pairs()]

        matches[key] = [told(t, time) for t, time in zip(found.matches, found.match_times, strict=True)]
        timed_out[key] = sorted(told(thread, thread.deadline) for thread in found.timed_out)
        given_up += [ids[thread.start] for thread in found.given_up]
    return matches, timed_out, sorted(given_up)


def told(piece: Piece, into: Answer) -> None:
    detail = piece.detail.group_by("#match", maintain_order=True).agg("#label", "id")
    parts = {m: list(zip(labels, ids, strict=True)) for m, labels, ids in detail.rows()}
    for number, ((key,), time) in enumerate(zip(piece.keys.rows(), piece.times.tolist(), strict=True)):
        into.setdefault(key, []).append((time, parts[number]))


def in_pieces(
    matcher: StreamMatcher, frame: pl.DataFrame, cuts: list[int], watermark: int
) -> tuple[Answer, Answer, list[int]]:
    """Several pieces, saved and read back between them."""
    progress = Progress()
    given_up: list[int] = []
    matches: Answer = {key: [] for key in frame["key"].unique()}
    timed_out: Answer = {key: [] for key in frame["key"].unique()}
    for begin, end in zip([0, *cuts], [*cuts, frame.height], strict=True):
        next_time = frame["event_time"][end : end + 1].dt.epoch("us").to_list()
        advance = matcher.advance(progress, frame[begin:end], next_time[0] if next_time else watermark)
        saved = {name: frame_to_bytes(part) for name, part in advance.progress.frames().items()}
        progress = Progress.of({name: frame_from_bytes(part) for name, part in saved.items()})
        told(advance.matches, matches)
        told(advance.timed_out, timed_out)
        given_up += [] if advance.given_up is None else advance.given_up["id"].to_list()
    return matches, {key: sorted(value) for key, value in timed_out.items()}, sorted(given_up)


@settings(max_examples=150, deadline=None)
@given(patterns(), rows(), st.data())
def test_any_cut_and_either_machine_gives_the_same_answer(
    pattern: Pattern, frame: pl.DataFrame, data: st.DataObject
) -> None:
    try:
        compiled = compile_pattern(pattern)
    except ValueError:
        return
    # Some values are missing, and some columns are not whole numbers.
    there = pl.when(pl.int_range(pl.len()) % 5 != 3).then(pl.col("value"))
    frame = frame.with_columns(value=there * data.draw(st.sampled_from([1, 0.1]))).with_row_index("id")
    cuts, watermark = drawn_cuts(frame, data)
    limit = data.draw(st.sampled_from([Limit(), Limit(), Limit(2, "give_up"), Limit(4, "give_up")]))
    expected = reference(compiled, frame, watermark, limit)
    few_keys = data.draw(st.sampled_from([1, 2, 1000]))
    columns = data.draw(st.sampled_from([["id"], None]))
    matcher = StreamMatcher(compiled, key=["key"], few_keys=few_keys, columns=columns, limit=limit)
    assert in_pieces(matcher, frame, cuts, watermark) == expected


def drawn_cuts(frame: pl.DataFrame, data: st.DataObject) -> tuple[list[int], int]:
    cuts = sorted(data.draw(st.lists(st.integers(0, frame.height), max_size=4)))
    watermark = T0 + data.draw(st.integers(0, 60)) * SECOND
    if frame.height:
        watermark = max(watermark, int(frame["event_time"].dt.epoch("us").max()))  # type: ignore[arg-type]
    return cuts, watermark


@settings(max_examples=250, deadline=None)
@given(patterns(), rows(size=20), st.sampled_from(["past_last", "to_next"]), st.data())
def test_partial_matches_that_cannot_come_to_a_match_of_their_own_need_not_be_followed(
    pattern: Pattern, frame: pl.DataFrame, skip: Any, data: st.DataObject
) -> None:
    """Matches and the times of decision are those of a machine that follows all partial matches."""
    try:
        compiled = compile_pattern(pattern.skip(skip))
    except ValueError:
        return
    frame = frame.with_row_index("id")
    cuts, watermark = drawn_cuts(frame, data)
    expected = reference(compiled, frame, watermark, Limit())[0]
    matcher = StreamMatcher(compiled, key=["key"], few_keys=data.draw(st.sampled_from([1, 2, 1000])), timed_out=False)
    many_rows = data.draw(st.sampled_from([1, 3, 1000]))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("headrace.cep.columnar.MANY_ROWS", many_rows)
        patched.setattr("headrace.cep.first_matches._FEW_STEPS", data.draw(st.sampled_from([1, 2, 16])))
        assert in_pieces(matcher, frame, cuts, watermark)[0] == expected


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
    matcher = StreamMatcher(compile_pattern(pattern), limit=Limit(50), few_keys=few_keys)
    with pytest.raises(MatchLimitError, match="more than 50"):
        matcher.advance(Progress(), frame_of([("x", "a", 0, 1)] * 30), T0)


def test_nested_loops_without_a_time_bound_stay_polynomial() -> None:
    """One partial match for each first row, however the loops could part the rows between them."""
    inner = Pattern.begin("x", symbol("a")).one_or_more().consecutive()
    nested = Pattern.begin(inner).one_or_more().consecutive().next("c", symbol("c"))
    table = frame_of([("x", "a", 0, 1)] * 600)
    matcher = StreamMatcher(compile_pattern(nested))
    one = matcher.advance(Progress(), table, watermark=0)
    assert len(one.matches) == 0
    # Two places of the program for each first row, and a path for it.
    assert one.progress.threads.height <= 2 * 600
    assert one.progress.nodes.height == 600 * 601 // 2


def test_partial_matches_that_hold_too_many_rows_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.cep.tables.MAX_HELD_ROWS", 10_000)
    loop = Pattern.begin("x", symbol("a")).one_or_more().consecutive().next("c", symbol("c"))
    with pytest.raises(MatchLimitError, match="hold more than 10,000 rows in all"):
        StreamMatcher(compile_pattern(loop)).advance(Progress(), frame_of([("x", "a", 0, 1)] * 300), watermark=0)


@pytest.mark.parametrize("few_keys", [1, 1000])
def test_rows_are_counted_that_partial_matches_hold_at_the_same_time(
    monkeypatch: pytest.MonkeyPatch, few_keys: int
) -> None:
    """Neither those of partial matches that have ended, nor those of keys that need not be gone through together."""
    loop = Pattern.begin("x", symbol("a")).one_or_more().consecutive().next("c", symbol("c"))
    matcher = StreamMatcher(compile_pattern(loop), key=["key"], few_keys=few_keys)
    letters = ("a" * 60 + "b") * 5 + "ac"
    frame = pl.concat([frame_of([(key, letter, 0, 1) for letter in letters]) for key in "uvwxyz"])
    expected = matcher.advance(Progress(), frame, T0)
    assert len(expected.matches) == 6
    monkeypatch.setattr("headrace.cep.tables.MAX_HELD_ROWS", 2_500)
    found = matcher.advance(Progress(), frame, T0)
    assert found.matches.detail.equals(expected.matches.detail)
    assert found.matches.keys.equals(expected.matches.keys)


@pytest.mark.parametrize("few_keys", [1, 1000])
def test_conditions_on_what_was_matched_are_the_same_for_all_at_once_and_one_by_one(few_keys: int) -> None:
    pattern = (
        Pattern.begin("a", symbol("a"))
        .one_or_more()
        .consecutive()
        .next("b", symbol("b"))
        .where(current("value") > matched("a").first("value"))
        .where(matched("a").first("value") + matched("a").last("value") > matched("a").count())
    )
    matcher = StreamMatcher(compile_pattern(pattern), key=["key"], few_keys=few_keys)
    letters = [
        ("x", "a", 1, 1),
        ("y", "a", 3, 0),
        ("x", "a", 2, 1),
        ("y", "b", 3, 0),
        ("x", "b", 2, 1),
        ("y", "b", 9, 0),
    ]
    one = matcher.advance(Progress(), frame_of(letters[:3]), T0)
    later = frame_of(letters)[3:]
    two = matcher.advance(one.progress, later, T0)
    values = two.matches.detail.group_by("#match", maintain_order=True).agg("value")["value"].to_list()
    assert values == [[1, 2, 2]]
