"""The policies as tables: what is shown after which results, when it goes, and what a viewer is told."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.dashboard.city import CELL_TEXTS, edges_job, stops_job, vehicles_job

from headrace.dashboard import board as board_module
from headrace.dashboard.board import CONFIRMATIONS, DOUBTFUL_AHEAD, DOUBTFUL_JUMP, MOST_AHEAD, PATIENCE, SETTLING, Board
from headrace.dashboard.cleaning import Rows
from headrace.dashboard.declaration import declare

T0 = 1_760_000_000_000
A, B, C = CELL_TEXTS


def vehicles(**options: Any) -> Board:
    return Board(declare(vehicles_job("v")), wall=lambda: T0 + 3_600_000, **options)


def rows(*results: tuple[Any, ...]) -> Rows:
    """Results as (key, window end in seconds, vehicles), and perhaps True for a retraction."""
    ends = [T0 + int(1000 * end) for _, end, *_ in results]
    return Rows(
        key=[key for key, *_ in results],
        event_time=[end - 1 for end in ends],
        window_start=[end - 30_000 for end in ends],
        window_end=list(ends),
        published=[end + 1_000 for end in ends],
        retraction=[bool(rest[1:] and rest[1]) for _, _, *rest in results],
        places={"cell": [key for key, *_ in results]},
        values={"vehicles": [rest[0] for _, _, *rest in results]},
    )


def shown(board: Board) -> dict[str, Any]:
    return {entry["key"]: entry["values"]["vehicles"] for entry in board.entries()[1]}


class Mirror:
    """A viewer: applies what it is sent as the protocol says."""

    def __init__(self, board: Board) -> None:
        self.board = board
        snapshot = board.snapshot()
        self.version, self.entries = snapshot["version"], dict(self._entries(snapshot))

    def catch_up(self) -> dict[str, Any]:
        changes = self.board.changes(self.version)
        assert changes is not None
        assert changes["base"] == self.version
        fresh = dict(self._entries(changes))
        assert not fresh.keys() & set(changes["removed"])
        for key in changes["removed"]:
            self.entries.pop(key, None)
        self.entries.update(fresh)
        self.version = changes["version"]
        return changes

    @staticmethod
    def _entries(message: dict[str, Any]) -> list[tuple[str, Any]]:
        return [
            (key, (group["window_end"], value))
            for group in message["groups"]
            for key, value in zip(group["key"], group["values"]["vehicles"], strict=True)
        ]


# -------------------------------------------------------------------- newer replaces older


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        pytest.param([(A, 0, 1), (A, 5, 2)], {A: 2}, id="newer replaces"),
        pytest.param([(A, 5, 2), (A, 0, 1)], {A: 2}, id="older is ignored"),
        pytest.param([(A, 5, 2), (A, 5, 3)], {A: 3}, id="the same time replaces: a later pane"),
        pytest.param([(A, 0, 1), (B, 5, 2)], {A: 1, B: 2}, id="keys do not matter to each other"),
        pytest.param([(A, 0, 1), (A, 0, 1, True)], {}, id="a retraction removes"),
        pytest.param([(A, 0, 1), (A, 0, 1, True), (A, 0, 4)], {A: 4}, id="a revision takes back and gives anew"),
        pytest.param([(A, 5, 2), (A, 0, 1, True)], {A: 2}, id="a retraction of an older window changes nothing"),
        pytest.param([(A, 0, 1, True)], {}, id="a retraction of nothing"),
        pytest.param([(A, 0, None)], {A: None}, id="null is a value"),
    ],
)
def test_what_is_shown(results: list[tuple[Any, ...]], expected: dict[str, Any]) -> None:
    together, one_by_one = vehicles(), vehicles()
    together.apply(rows(*results), now=0.0)
    for result in results:
        one_by_one.apply(rows(result), now=0.0)
    assert shown(together) == shown(one_by_one) == expected


# -------------------------------------------------------------------- expiry


def test_a_value_leaves_when_a_window_five_seconds_later_is_shown() -> None:
    board = vehicles()
    board.apply(rows((A, 0, 1), (B, 0, 1)), now=0.0)
    board.apply(rows((A, 5, 2)), now=5.0)
    board.expire(now=5.0 + SETTLING - 0.01)
    assert shown(board) == {A: 2, B: 1}, "the results of a window come in pieces"
    board.expire(now=5.0 + SETTLING)
    assert shown(board) == {A: 2}


def test_a_window_less_than_five_seconds_later_removes_nothing() -> None:
    board = vehicles()
    board.apply(rows((A, 0, 1), (B, 4.999, 1)), now=0.0)
    board.expire(now=2.0)
    assert shown(board) == {A: 1, B: 1}


def test_when_a_job_falls_silent_the_clock_takes_over() -> None:
    board = vehicles()
    board.apply(rows((A, 0, 1)), now=0.0)
    board.expire(now=PATIENCE + 4.9)
    assert shown(board) == {A: 1}
    board.expire(now=PATIENCE + 5.0)
    assert shown(board) == {}


def test_a_backlog_of_results_that_are_each_newer_is_one_time_to_wait_for() -> None:
    board = vehicles()
    board.apply(rows(*((A, number, number) for number in range(1_000))), now=0.0)
    board.apply(rows((A, 1_000, 1)), now=0.1)
    assert len(board._clock.waiting) == 2, "one for each time at which results came"
    assert board._clock.read(SETTLING) == T0 + 999_000


def test_the_watermark_moves_time_on_without_results() -> None:
    board = vehicles()
    board.apply(rows((A, 0, 1)), now=0.0)
    board.hear(T0 + 5_000, now=1.0)
    board.expire(now=1.0 + SETTLING)
    assert shown(board) == {}


def test_a_result_that_has_expired_when_it_comes_is_not_shown() -> None:
    board = vehicles()
    board.apply(rows((A, 60, 1)), now=0.0)
    board.expire(now=2.0)
    board.apply(rows((B, 0, 1)), now=2.0)
    assert shown(board) == {A: 1}
    assert board.overview().counts["expired_on_arrival"] == 1


@pytest.mark.parametrize(
    "ahead",
    [
        pytest.param(3_600 + DOUBTFUL_AHEAD / 1000 + 1, id="minutes ahead of every clock"),
        pytest.param(3_600 + MOST_AHEAD / 1000 - 1, id="nearly an hour ahead of every clock"),
        pytest.param(3_600 + 1e9, id="decades ahead"),
        pytest.param(DOUBTFUL_JUMP / 1000 + 1_000, id="now, in the middle of a recording"),
    ],
)
def test_one_absurd_time_spoils_no_history_and_expires_nothing(ahead: float) -> None:
    """A recording whose results end an hour before the wall clock, or so."""
    board = Board(declare(vehicles_job("v")), wall=lambda: T0 + 3_600_000 + 3_600_000 * (ahead < 7_000))
    for step in range(20):
        board.apply(rows((A, 5 * step, step), (B, 5 * step, 1)), now=float(step))
    board.apply(rows((A, ahead, 9)), now=20.0)
    for step in range(20, 40):
        board.apply(rows((A, 5 * step, step), (B, 5 * step, 1)), now=float(step))
    board.expire(now=41.0)
    assert [point["values"]["vehicles"] for point in board.history(A)] == list(range(40))
    assert len(board.history(B)) == 40
    assert shown(board) == {A: 39, B: 1}
    assert board.overview().counts["absurd"] == 1


def test_a_new_time_that_several_results_agree_on_counts() -> None:
    """The job was started again on another recording, or its feed simulates a day that is faster than ours."""
    board = vehicles()
    board.apply(rows((A, 0, 1)), now=0.0)
    later = 3_600 + DOUBTFUL_AHEAD / 1000 + 60
    board.apply(rows(*((cell, later, 2) for cell in (A, B, C, A, B, C))), now=1.0)
    assert board.overview().counts["absurd"] == CONFIRMATIONS - 1
    assert shown(board) == {A: 2, B: 2, C: 2}


def test_a_result_after_a_long_silence_is_shown_at_once() -> None:
    board = Board(declare(vehicles_job("v")), wall=lambda: T0 + 8 * 3_600_000)
    board.apply(rows((A, 0, 1)), now=0.0)
    board.apply(rows((A, 7 * 3_600, 2)), now=7 * 3_600.0)
    assert board.history(A)[-1]["values"] == {"vehicles": 2.0}
    assert "absurd" not in board.overview().counts


def test_one_absurd_time_does_not_clear_the_map() -> None:
    board = vehicles()
    board.apply(rows((A, 0, 1), (B, 3_600 + MOST_AHEAD / 1000 + 1, 9)), now=0.0)
    board.expire(now=2.0)
    assert shown(board) == {A: 1}
    assert board.overview().counts["absurd"] == 1


def test_a_recording_of_years_ago_is_shown() -> None:
    board = Board(declare(vehicles_job("v")), wall=lambda: T0 + 10**11)
    board.apply(rows((A, 0, 1)), now=0.0)
    board.expire(now=2.0)
    assert shown(board) == {A: 1}


def test_single_events_live_for_their_time() -> None:
    board = Board(declare(stops_job("s", time_to_live="20s")), wall=lambda: T0)
    result = Rows(
        key=["a@1", "a@2"],
        event_time=[T0, T0 + 15_000],
        window_start=[None, None],
        window_end=[None, None],
        published=[T0, T0],
        retraction=[False, False],
        places={"latitude": [60.0, 60.1], "longitude": [24.0, 24.1]},
        values={"vehicle_id": ["a", "a"], "line": ["1", "2"]},
    )
    board.apply(result, now=0.0)
    (first, second) = board.snapshot()["groups"]
    assert (first["latitude"], first["longitude"], first["window_end"]) == ([60.0], [24.0], None)
    board.hear(T0 + 20_000, now=1.0)
    board.expire(now=3.0)
    assert [entry["key"] for entry in board.entries()[1]] == ["a@2"], second


# -------------------------------------------------------------------- snapshots and differences


def test_a_group_has_its_entries_in_columns() -> None:
    board = vehicles()
    board.apply(rows((A, 0, 1), (B, 0, 2), (C, 5, 3)), now=0.0)
    snapshot = board.snapshot()
    assert snapshot["groups"] == [
        {
            "window_start": T0 - 30_000,
            "window_end": T0,
            "event_time": T0 - 1,
            "expires_at": T0 + 5_000,
            "published": T0 + 1_000,
            "key": [A, B],
            "values": {"vehicles": [1, 2]},
        },
        {
            "window_start": T0 - 25_000,
            "window_end": T0 + 5_000,
            "event_time": T0 + 4_999,
            "expires_at": T0 + 10_000,
            "published": T0 + 6_000,
            "key": [C],
            "values": {"vehicles": [3]},
        },
    ]


def test_places_that_are_not_the_key_are_told() -> None:
    board = Board(declare(edges_job("e")), wall=lambda: T0)
    result = rows((A, 0, 3))
    result.places["target"] = [B]
    board.apply(result, now=0.0)
    (group,) = board.snapshot()["groups"]
    assert group["target"] == [B]
    assert "cell" not in group, "the key is the cell"


def test_differences_hold_what_changed_and_no_more() -> None:
    board = vehicles()
    board.apply(rows((A, 0, 1), (B, 0, 2)), now=0.0)
    mirror = Mirror(board)
    board.apply(rows((A, 5, 7)), now=5.0)
    changes = mirror.catch_up()
    assert [group["key"] for group in changes["groups"]] == [[A]]
    board.expire(now=5.0 + SETTLING)
    assert mirror.catch_up()["removed"] == [B]


def test_several_changes_of_a_key_are_one_with_the_newest_value() -> None:
    board = vehicles()
    mirror = Mirror(board)
    for number in range(10):
        board.apply(rows((A, 5 * number, number)), now=5.0 * number)
    changes = mirror.catch_up()
    assert [group["values"]["vehicles"] for group in changes["groups"]] == [[9]]


def test_versions_of_an_earlier_process_are_not_known() -> None:
    before = Board(declare(vehicles_job("v")), wall=lambda: T0)
    before.apply(rows((A, 0, 1)), now=0.0)
    after = Board(declare(vehicles_job("v")), wall=lambda: T0 + 5_000)
    after.apply(rows((A, 5, 1)), now=0.0)
    assert after.changes(before.version) is None
    assert after.changes(after.version + 1) is None
    assert after.changes(0) is None


def test_who_was_away_for_too_long_needs_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_module, "MOST_REMOVED", 10)
    board = vehicles()
    first = board.version
    for number in range(30):
        board.apply(rows((f"{number}", 0, 1), (f"{number}", 0, 1, True)), now=0.0)
    assert board.changes(first) is None
    recent = board.version
    board.apply(rows((A, 0, 1)), now=0.0)
    assert board.changes(recent) is not None


def test_entries_are_bounded() -> None:
    board = vehicles(most=100)
    mirror = Mirror(board)
    for part in range(10):
        board.apply(rows(*((f"{part}-{number}", part, 1) for number in range(50))), now=float(part))
    mirror.catch_up()
    assert len(mirror.entries) == len(shown(board)) == 100
    assert board.overview().counts["crowded_out"] == 400


@pytest.mark.parametrize("seed", range(20))
def test_a_viewer_that_looks_now_and_then_sees_what_is_shown(seed: int) -> None:
    chance = random.Random(seed)
    board = vehicles()
    mirrors = [Mirror(board) for _ in range(4)]
    keys = [f"k{number}" for number in range(12)]
    for step in range(120):
        now = step * 0.7
        results = [
            (chance.choice(keys), now + chance.uniform(-20, 3), chance.randrange(99), chance.random() < 0.15)
            for _ in range(chance.randrange(6))
        ]
        board.apply(rows(*results), now=now)
        if chance.random() < 0.5:
            board.expire(now=now)
        for mirror in mirrors:
            if chance.random() < 0.3:
                mirror.catch_up()
                assert mirror.entries == Mirror(board).entries


# -------------------------------------------------------------------- history


def test_history_has_every_window_and_the_last_word_on_each() -> None:
    board = vehicles()
    board.apply(rows((A, 0, 1), (B, 0, 9), (A, 5, 2)), now=0.0)
    board.apply(rows((A, 5, 2, True), (A, 5, 3)), now=1.0)
    points = board.history(A)
    assert [(point["window_end"], point["values"]["vehicles"]) for point in points] == [(T0, 1), (T0 + 5_000, 3)]
    assert board.history("nobody") == []
