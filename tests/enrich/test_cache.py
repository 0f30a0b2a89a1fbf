"""Kept answers: they expire, are bounded, are shared by processes, and are never a reason to stop."""

from __future__ import annotations

import gc
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from headrace.enrich.breaker import Breaker
from headrace.enrich.cache import Answer, Cache, Key

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def answers(cache: Cache, *keys: Key) -> dict[Key, Answer]:
    return {key: entry.answer for key, entry in cache.get(keys).items()}


@pytest.fixture
def clock() -> Clock:
    return Clock()


class Opened:
    """Opens caches, and closes them at the end of a test."""

    def __init__(self, clock: Clock, path: Path) -> None:
        self.clock, self.path = clock, path
        self.caches: list[Cache] = []

    def __call__(self, *, kind: str = "stops", on_disk: bool = True, **options: Any) -> Cache:
        self.caches.append(Cache(self.path if on_disk else None, kind=kind, clock=self.clock, **options))
        return self.caches[-1]


@pytest.fixture
def opened(tmp_path: Path, clock: Clock) -> Iterator[Opened]:
    made = Opened(clock, tmp_path / "c")
    yield made
    for cache in made.caches:
        cache.close()


@pytest.mark.parametrize("on_disk", [False, True])
def test_an_answer_holds_until_it_expires(opened: Opened, clock: Clock, on_disk: bool) -> None:
    cache = opened(on_disk=on_disk)
    cache.put({("a", 1): ("x", 2.5, None, True)}, seconds=10)
    clock.now += 9
    assert answers(cache, ("a", 1), ("a", 2)) == {("a", 1): ("x", 2.5, None, True)}
    clock.now += 1
    assert answers(cache, ("a", 1)) == {}


def test_another_process_sees_what_is_on_disk_and_other_kinds_do_not(opened: Opened) -> None:
    one = opened()
    one.put({("a",): ("x",), ("b",): None}, seconds=10)
    assert answers(opened(), ("a",), ("b",)) == {("a",): ("x",), ("b",): None}
    assert answers(opened(kind="weather"), ("a",)) == {}


def test_many_keys_at_once(opened: Opened) -> None:
    opened().put({(n,): (n,) for n in range(2500)}, seconds=10)
    again = opened()
    assert len(answers(again, *((n,) for n in range(3000)))) == 2500


def test_memory_and_disk_are_bounded(tmp_path: Path, opened: Opened, clock: Clock) -> None:
    cache = opened(most=10)
    for number in range(300):
        clock.now += 601  # cleaning is due with every answer
        cache.put({(number,): (number,)}, seconds=1e6)
    assert len(cache._memory) == 10
    with closing(sqlite3.connect(tmp_path / "c")) as connection:
        assert connection.execute("SELECT count(*) FROM answers").fetchone() == (100,)
    assert answers(cache, (299,), (0,)) == {(299,): (299,)}


def test_what_has_expired_is_removed_from_disk(tmp_path: Path, opened: Opened, clock: Clock) -> None:
    cache = opened()
    cache.put({("old",): ("x",)}, seconds=10)
    clock.now += 1000
    cache.put({("new",): ("y",)}, seconds=10)
    with closing(sqlite3.connect(tmp_path / "c")) as connection:
        assert connection.execute("SELECT key FROM answers").fetchall() == [('["new"]',)]


@pytest.mark.parametrize("damage", ["text", "directory"])
def test_a_file_that_cannot_be_used_leaves_the_cache_in_memory(
    tmp_path: Path, opened: Opened, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "c"
    if damage == "text":
        path.write_text("this is no database" * 100)
    else:
        path.mkdir()
    cache = opened()
    cache.put({("a",): ("x",)}, seconds=10)
    assert answers(cache, ("a",), ("b",)) == {("a",): ("x",)}
    assert len([record for record in caplog.records if "cannot be used" in record.message]) == 1


def test_a_file_that_is_no_database_is_not_held_open(tmp_path: Path, opened: Opened) -> None:
    (tmp_path / "c").write_text("this is no database" * 100)
    opened().put({("a",): ("x",)}, seconds=10)
    gc.collect()
    held = [file.path for file in psutil.Process().open_files()]
    assert str(tmp_path / "c") not in held


def test_an_answer_that_comes_after_the_end_does_not_open_the_file_again(tmp_path: Path, opened: Opened) -> None:
    cache = opened()
    cache.put({("a",): ("x",)}, seconds=10)
    cache.close()
    cache.put({("b",): ("y",)}, seconds=10)
    assert answers(cache, ("a",), ("b",), ("c",)) == {("a",): ("x",), ("b",): ("y",)}
    held = [file.path for file in psutil.Process().open_files()]
    assert str(tmp_path / "c") not in held
    assert answers(opened(), ("a",), ("b",)) == {("a",): ("x",)}


def test_a_file_that_another_holds_is_passed_over(tmp_path: Path, opened: Opened) -> None:
    cache = opened()
    cache.put({("a",): ("x",)}, seconds=10)
    with closing(sqlite3.connect(tmp_path / "c", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        cache.put({("b",): ("y",)}, seconds=10)
        assert answers(cache, ("a",), ("b",)) == {("a",): ("x",), ("b",): ("y",)}
        other.execute("ROLLBACK")
    cache.put({("c",): ("z",)}, seconds=10)
    assert answers(opened(), ("a",), ("c",)) == {("a",): ("x",), ("c",): ("z",)}


def test_a_breaker_opens_after_failures_in_a_row_and_probes_with_one_call(clock: Clock) -> None:
    breaker = Breaker(failures=3, cool_down=30, clock=clock)
    for _ in range(2):
        breaker.failed()
        breaker.failed()
        assert breaker.state == "closed"
        breaker.succeeded()
    for _ in range(3):
        assert breaker.allows()
        breaker.failed()
    assert breaker.state == "open"
    assert not breaker.allows()
    clock.now += 30
    assert breaker.state == "half_open"
    assert [breaker.allows() for _ in range(3)] == [True, False, False]
    breaker.failed()
    assert breaker.state == "open"
    clock.now += 30
    assert breaker.allows()
    breaker.forgot()  # the probe was never made; another may be
    assert breaker.allows()
    breaker.succeeded()
    assert breaker.state == "closed"


def test_a_breaker_stays_open_for_as_long_as_the_other_side_asks(clock: Clock) -> None:
    breaker = Breaker(failures=9, cool_down=1, clock=clock)
    assert breaker.failed(rest=60)
    clock.now += 59
    assert not breaker.allows()
    clock.now += 1
    assert breaker.allows()
