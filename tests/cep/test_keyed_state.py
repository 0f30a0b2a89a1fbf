"""Partial matches in pages by key: what a turn reads and writes, that the answer is the same, and older state."""

from __future__ import annotations

import json
import struct
from collections import Counter
from datetime import timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.cep.strategies import START, frame_of, patterns, symbol

from headrace.cep import Pattern, compile_pattern
from headrace.cep.measures import collect, first
from headrace.cep.operator import PatternOperator
from headrace.cep.streaming import Progress, StreamMatcher
from headrace.engine import due_pages, keyed_state
from headrace.engine.operator import Turn
from headrace.engine.state import MemorySegments, frame_to_bytes
from headrace.errors import StateError

SECOND = 1_000_000
T0 = int(START.timestamp()) * SECOND
WAITING = Pattern.begin("a", symbol("a")).followed_by("b", symbol("b")).within("1h").skip("past_last")


class CountingSegments(MemorySegments):
    """Counts the bytes that are read and written."""

    def __init__(self, content: dict[str, bytes] | None = None) -> None:
        super().__init__(content)
        self.bytes = Counter[str]()

    def get(self, name: str) -> bytes | None:
        value = super().get(name)
        self.bytes["read"] += len(value or b"")
        return value

    def put(self, name: str, value: bytes) -> None:
        self.bytes["written"] += len(value)
        super().put(name, value)


def keyed(keys: np.ndarray, letter: str, second: int) -> pl.DataFrame:
    time = pl.lit(START + timedelta(seconds=second)).cast(pl.Datetime("us", "UTC"))
    return pl.DataFrame({"key": keys}).select(
        pl.col("key").cast(pl.String), symbol=pl.lit(letter), value=pl.lit(1), event_time=time
    )


def bytes_of_a_turn(keys: int) -> tuple[float, int]:
    """The mean bytes of turns of 10 keys while so many partial matches wait, and the size of the state."""
    operator = PatternOperator(WAITING, key=["key"], measures={"value": first("a.value")})
    segments = CountingSegments()
    operator.turn(segments, Turn(keyed(np.arange(keys), "a", 0), T0 + SECOND, 0))
    random = np.random.default_rng(1)
    turns = 80
    for turn in range(2 * turns):
        if turn == turns:  # by then the pages have the size that suits such turns
            segments.bytes.clear()
        rows = keyed(random.integers(0, keys, 10), "b" if turn % 8 == 0 else "d", 2 + turn)
        operator.turn(segments, Turn(rows, T0 + (3 + turn) * SECOND, 0))
    return sum(segments.bytes.values()) / turns, sum(map(len, segments.content.values()))


def test_what_a_turn_reads_and_writes_follows_its_rows_and_not_the_partial_matches_that_wait() -> None:
    few, _ = bytes_of_a_turn(5_000)
    many, state = bytes_of_a_turn(50_000)
    assert many < 3 * few
    assert many < state / 20


def test_a_key_that_is_due_is_found_without_reading_the_others() -> None:
    operator = PatternOperator(WAITING, key=["key"], timed_out={"value": first("a.value")})
    segments = CountingSegments()
    operator.turn(segments, Turn(keyed(np.array([77_777]), "a", 0), T0 + SECOND, 0))
    operator.turn(segments, Turn(keyed(np.arange(20_000), "a", 60), T0 + 61 * SECOND, 0))
    for second in range(62, 102):
        operator.turn(segments, Turn(keyed(np.array([5]), "d", second), T0 + (second + 1) * SECOND, 0))
    segments.bytes.clear()
    outcome = operator.turn(segments, Turn(keyed(np.arange(0), "d", 0), T0 + 3600 * SECOND, 0))
    assert outcome.timed_out is not None
    assert outcome.timed_out["key"].to_list() == ["77777"]
    assert outcome.keys == 20_000
    assert segments.bytes["read"] < sum(map(len, segments.content.values())) / 20


@settings(max_examples=80, deadline=None)
@given(
    patterns(),
    st.lists(st.tuples(st.sampled_from("uvwxyz"), st.sampled_from("abcd"), st.integers(0, 9), st.integers(0, 3))),
    st.data(),
)
def test_pages_of_any_size_and_restarts_give_the_matches_of_the_matcher_in_memory(
    pattern: Pattern, letters: list[tuple[str, str, int, int]], data: st.DataObject
) -> None:
    try:
        compiled = compile_pattern(pattern)
    except ValueError:
        return
    rows = frame_of(letters)
    cuts = sorted(data.draw(st.lists(st.integers(0, rows.height), max_size=6)))
    end = T0 + 1_000 * SECOND
    matcher = StreamMatcher(compiled, key=["key"], limit=pattern.bound)
    advance = matcher.advance(Progress(), rows, end)
    numbers = advance.matches.detail.group_by("#match", maintain_order=True).agg("value")["value"].to_list()
    expected = sorted(zip(advance.matches.keys["key"].to_list(), advance.matches.times.tolist(), numbers, strict=True))
    found: list[tuple[str, int, list[int]]] = []
    with pytest.MonkeyPatch.context() as patch:
        # With pages of a key or two, a handful of keys makes them split, join and move.
        patch.setattr(keyed_state, "SINGLE_PAGE_ROWS", data.draw(st.sampled_from([1, 2, 2_048])))
        patch.setattr(keyed_state, "PAGE_ROWS", data.draw(st.sampled_from([1, 3, 16])))
        patch.setattr(keyed_state, "PAGE_COST", data.draw(st.sampled_from([0, 2, 64])))
        patch.setattr(due_pages, "BLOCK", data.draw(st.sampled_from([2, 1_024])))
        patch.setattr("headrace.cep.operator._FEW_WAITING", data.draw(st.sampled_from([0, 3, 2_000])))
        operator = PatternOperator(pattern, key=["key"], measures={"values": collect("value")})
        segments = MemorySegments()
        for begin, stop in zip([0, *cuts], [*cuts, rows.height], strict=True):
            part = rows[begin:stop]
            newest = part["event_time"].dt.epoch("us").max()
            found += told(operator, segments, Turn(part, 0 if newest is None else int(newest), 0))  # type: ignore[call-overload]
            segments = MemorySegments(segments.content)
        found += told(operator, segments, Turn(rows[:0], end, 0))
    assert sorted(found) == expected


def told(operator: PatternOperator, segments: MemorySegments, turn: Turn) -> list[tuple[str, int, list[int]]]:
    outcome = operator.turn(segments, turn)
    assert outcome.late is None
    if outcome.rows is None:
        return []
    return outcome.rows.select("key", pl.col("event_time").dt.epoch("us"), "values").rows()


def older_segment(operator: PatternOperator, rows: pl.DataFrame, watermark: int) -> bytes:
    """What the version before wrote: all partial matches in one segment."""
    progress = operator._matcher.advance(Progress(), rows, watermark).progress
    parts = {name: frame_to_bytes(frame) for name, frame in progress.frames().items()}
    sizes = {name: len(part) for name, part in parts.items()}
    header = json.dumps({"record": {"watermark": watermark}, "sizes": sizes}).encode()
    return b"".join([b"HP1\n", struct.pack("<I", len(header)), header, *parts.values()])


@pytest.mark.parametrize("few", [0, 2_000])
def test_partial_matches_that_the_version_before_saved_go_on(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.cep.operator._FEW_WAITING", few)
    operator = PatternOperator(WAITING, key=["key"], measures={"values": collect("value")})
    rows = frame_of([("x", "a", 1, 0), ("y", "a", 2, 1), ("x", "b", 3, 1)])
    segments = MemorySegments({"pattern": older_segment(operator, rows[:2], T0 + 2 * SECOND)})
    assert operator.turn(segments, Turn(rows[:0], T0 + 2 * SECOND, 0)).keys == 2
    assert segments.content["pattern"][:4] == b"HP3\n"
    outcome = operator.turn(segments, Turn(rows[2:], T0 + 3 * SECOND, 0))
    assert outcome.rows is not None
    assert outcome.rows["values"].to_list() == [[1, 3]]
    assert outcome.keys == 1


@pytest.fixture
def paged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep even few partial matches in pages."""
    monkeypatch.setattr("headrace.cep.operator._FEW_WAITING", 0)


@pytest.mark.usefixtures("paged")
def test_keys_and_columns_of_categories_come_back_with_their_types() -> None:
    operator = PatternOperator(WAITING, key=["key"], measures={"line": first("a.line")})
    kind = pl.Enum(["7", "9"])
    rows = frame_of([("x", "a", 1, 0), ("x", "b", 2, 1)]).with_columns(
        pl.col("key").cast(pl.Categorical), line=pl.lit("9", dtype=kind)
    )
    segments = MemorySegments()
    operator.turn(segments, Turn(rows[:1], T0 + 1, 0))
    found = operator.turn(segments, Turn(rows[1:], T0 + 2 * SECOND, 0)).rows
    assert found is not None
    assert found.schema == operator.schema(rows.schema)
    assert found.select("key", "line").rows() == [("x", "9")]


@pytest.mark.usefixtures("paged")
def test_a_page_that_is_missing_or_damaged_is_refused() -> None:
    operator = PatternOperator(WAITING, key=["key"])
    segments = MemorySegments()
    rows = frame_of([("x", "a", 1, 0)])
    operator.turn(segments, Turn(rows, T0 + SECOND, 0))
    turn = Turn(frame_of([("x", "b", 1, 5)]), T0 + 9 * SECOND, 0)
    page = segments.content["partial/0"]
    for content, message in (
        ({name: value for name, value in segments.content.items() if name != "partial/0"}, "partial/0 .* is missing"),
        (segments.content | {"partial/0": b"nonsense"}, "starts with b'nons'"),
        (segments.content | {"partial/0": page[:-1]}, "cannot be read"),
        (segments.content | {"partial/0": page.replace(paths_of(page), bytes(12))}, "cannot be read"),
        ({name: value for name, value in segments.content.items() if name != "layouts"}, "layout 0 is not known"),
    ):
        with pytest.raises(StateError, match=message):
            operator.turn(MemorySegments(content), turn)


def paths_of(page: bytes) -> bytes:
    """The beginning of the paths of the one key in a page: a node, a thread, no match that is held."""
    head = struct.pack("<iii", 1, 1, 0)
    assert page.count(head) == 1
    return head


def test_pages_of_an_earlier_form_are_refused() -> None:
    operator = PatternOperator(WAITING, key=["key"])
    segments = MemorySegments()
    operator.turn(segments, Turn(frame_of([("x", "a", 1, 0)]), T0 + SECOND, 0))
    older = b"HP2\n" + segments.content["pattern"][4:]
    turn = Turn(frame_of([("x", "b", 1, 5)]), T0 + 9 * SECOND, 0)
    outcome = operator.turn(MemorySegments({"pattern": older}), turn)
    assert outcome.rows is not None
    with pytest.raises(StateError, match="pages of an earlier form"):
        operator.turn(MemorySegments({"pattern": older, "partial/directory": b"HD1"}), turn)
