"""The shelf: whatever happens to its files, segments are those of the state store."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.engine.group import CLOCK
from headrace.spark.state.compression import stamp_of
from headrace.spark.state.segments import ShelvedSegments, StoreSegments
from headrace.spark.state.state_cache import Shelf

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


class VersionedStore:
    """A store that can go back to what it held before a turn, and counts what it is asked."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.asked: list[str] = []

    def read(self, name: str) -> bytes | None:
        self.asked.append(name)
        return self.content.get(name)

    def write(self, name: str, value: bytes) -> None:
        self.content[name] = value

    def remove(self, name: str) -> None:
        self.content.pop(name, None)


def turn(store: VersionedStore, shelf: Shelf, *actions: tuple[Any, ...]) -> list[bytes | None]:
    """Take a turn as a group does: the clock first, then the actions; tell what was read."""
    segments = ShelvedSegments(store, shelf)
    before = int(segments.get(CLOCK) or b"0")
    segments.put(CLOCK, str(before + 1).encode())
    found: list[bytes | None] = []
    for action, *arguments in actions:
        answer = getattr(segments, action)(*arguments)
        if action == "get":
            found.append(answer)
    segments.close()
    return found


def test_the_next_turn_asks_the_store_for_the_clock_alone(tmp_path: Path) -> None:
    store, shelf = VersionedStore(), Shelf(tmp_path)
    turn(store, shelf, ("put", "rows", b"1" * 5_000), ("put", "index", b"2"), ("get", "gone"))
    store.asked.clear()
    assert turn(store, shelf, ("get", "rows"), ("get", "index"), ("get", "gone")) == [b"1" * 5_000, b"2", None]
    assert store.asked == [CLOCK]


def test_what_was_not_touched_stays_at_hand_and_what_nobody_needs_goes(tmp_path: Path) -> None:
    store, shelf = VersionedStore(), Shelf(tmp_path)
    turn(store, shelf, ("put", "kept", b"k"), ("put", "changed", b"0"))
    for number in range(1, 6):
        turn(store, shelf, ("put", "changed", str(number).encode()))
    assert len(list(tmp_path.iterdir())) == 2
    store.asked.clear()
    assert turn(store, shelf, ("get", "kept"), ("get", "changed")) == [b"k", b"5"]
    assert store.asked == [CLOCK]
    turn(store, shelf, ("delete", "kept"), ("put", "changed", b"6"))
    assert len(list(tmp_path.iterdir())) == 1


def test_segments_that_are_written_once_do_not_pile_up_files(tmp_path: Path) -> None:
    store, shelf = VersionedStore(), Shelf(tmp_path)
    for number in range(100):
        turn(store, shelf, ("put", f"chunk/{number}", b"%d" % number))
    assert len(list(tmp_path.iterdir())) <= 33
    assert turn(store, shelf, *(("get", f"chunk/{number}") for number in range(100))) == [b"%d" % n for n in range(100)]


def test_a_shelf_of_another_turn_is_not_read(tmp_path: Path) -> None:
    store, shelf = VersionedStore(), Shelf(tmp_path)
    turn(store, shelf, ("put", "rows", b"first"))
    committed = dict(store.content)
    turn(store, shelf, ("put", "rows", b"of an attempt that failed"))
    store.content = committed
    assert turn(store, shelf, ("get", "rows")) == [b"first"]


def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    turn(VersionedStore(), Shelf(tmp_path), ("put", "rows", b"1"))
    (file,) = tmp_path.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_directory_that_takes_nothing_costs_speed_and_no_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store, shelf = VersionedStore(), Shelf(tmp_path)
    turn(store, shelf, ("put", "rows", b"1"))
    plain: Callable[..., int] = os.open

    def full(*arguments: Any, **options: Any) -> int:
        plain(*arguments, **options)
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, "open", full)
    turn(store, shelf, ("put", "rows", b"1.5"))
    turn(store, shelf, ("put", "rows", b"2"))
    monkeypatch.undo()
    assert caplog.text.count("no space left") == 1
    assert list(tmp_path.iterdir()) == []
    store.asked.clear()
    assert turn(store, shelf, ("get", "rows")) == [b"2"]
    assert store.asked == [CLOCK, "rows"]


def test_a_shelf_that_cannot_be_read_costs_speed_and_no_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, shelf = VersionedStore(), Shelf(tmp_path)
    turn(store, shelf, ("put", "rows", b"1"))

    def broken(*_: Any, **__: Any) -> None:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(Path, "open", broken)
    assert turn(store, shelf, ("get", "rows")) == [b"1"]


def test_state_without_stamps_is_read_and_a_stamp_is_no_part_of_it(tmp_path: Path) -> None:
    store, shelf = VersionedStore(), Shelf(tmp_path)
    plain = StoreSegments(store)
    plain.put(CLOCK, b"7")
    plain.put("rows", b"of a worker without a shelf")
    assert turn(store, shelf, ("get", "rows"), ("get", CLOCK)) == [b"of a worker without a shelf", b"8"]
    assert stamp_of(store.content[CLOCK])[0] is not None
    assert plain.get(CLOCK) == b"8"


def test_there_is_no_shelf_where_spark_names_no_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_LOCAL_DIRS", raising=False)
    assert Shelf.here() is None
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/one,/two")
    assert Shelf.here() == Shelf(Path("/one"))


NAMES = st.sampled_from(["a", "b", "c"])
ACTIONS = st.one_of(
    st.tuples(st.just("get"), NAMES),
    st.tuples(st.just("put"), NAMES, st.binary(max_size=4)),
    st.tuples(st.just("delete"), NAMES),
)
TURNS = st.lists(
    st.tuples(
        st.sampled_from(["done", "failed", "without a shelf"]),
        st.sampled_from(["kept", "one lost", "all lost", "another machine"]),
        st.lists(ACTIONS, max_size=6),
    ),
    max_size=12,
)


@given(TURNS)
def test_any_turns_on_any_shelf_read_what_a_dictionary_would(turns: list[tuple[str, str, list[Any]]]) -> None:
    with TemporaryDirectory() as here, TemporaryDirectory() as there:
        shelves = [Shelf(Path(here)), Shelf(Path(there))]
        store, truth = VersionedStore(), dict[str, bytes]()
        for end, files, actions in turns:
            committed, expected = dict(store.content), dict(truth)
            answers: list[bytes | None] = []
            for action, *arguments in actions:
                if action == "get":
                    answers.append(expected.get(arguments[0]))
                elif action == "put":
                    expected[arguments[0]] = arguments[1]
                else:
                    expected.pop(arguments[0], None)
            if end == "without a shelf":
                # As a whole turn: whoever changes a group's state writes its clock.
                plain = StoreSegments(store)
                clock = plain.get(CLOCK) or b"0"
                plain.put(CLOCK, clock)
                found = [getattr(plain, action)(*arguments) for action, *arguments in actions]
                found = [one for one, (action, *_) in zip(found, actions, strict=True) if action == "get"]
            else:
                found = turn(store, shelves[0], *actions)
            assert found == answers
            if end == "failed":
                store.content = committed
            else:
                truth = expected
            _disturb(files, shelves)


def _disturb(files: str, shelves: list[Shelf]) -> None:
    if files == "another machine":
        shelves.reverse()
    lost = sorted(shelves[0].directory.iterdir())
    for file in lost[:1] if files == "one lost" else lost if files == "all lost" else []:
        with suppress(FileNotFoundError):
            file.unlink()
