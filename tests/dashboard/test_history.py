"""History is kept for an hour, within bounds, whatever the keys."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest

from headrace.dashboard.history import History


def add(history: History, time: int, **values: float | None) -> None:
    keys = list(values)
    history.add(
        keys, event_time=[time] * len(keys), window_end=[time + 1] * len(keys), values={"v": list(values.values())}
    )


def values(history: History, key: str) -> list[tuple[int, float | None]]:
    return [(point["event_time"], point["values"]["v"]) for point in history.of(key)]


def test_points_come_in_the_order_of_time_whenever_they_were_told() -> None:
    history = History(["v"])
    add(history, 10, a=1.0)
    add(history, 5, a=2.0)
    add(history, 10, a=3.0)
    assert values(history, "a") == [(5, 2.0), (10, 3.0)]


def test_points_older_than_the_span_go() -> None:
    history = History(["v"], span=1_000)
    for time in range(0, 5_000, 100):
        add(history, time, a=float(time))
    assert [time for time, _ in values(history, "a")] == list(range(4_000, 5_000, 100))
    assert len(history) < 15


@pytest.mark.parametrize("most", [1, 7, 64, 1000])
def test_the_ring_is_bounded_and_keeps_the_newest(most: int) -> None:
    history = History(["v"], most=most)
    for time in range(3_000):
        add(history, time, a=float(time))
    assert len(history) <= most
    assert values(history, "a") == [(time, float(time)) for time in range(3_000 - most, 3_000)]


def test_a_batch_larger_than_the_ring() -> None:
    history = History(["v"], most=10)
    keys = [f"k{number}" for number in range(50)]
    history.add(keys, event_time=list(range(50)), window_end=[None] * 50, values={"v": list(range(50))})
    assert values(history, "k49") == [(49, 49.0)]
    assert values(history, "k3") == []


def test_keys_that_are_gone_take_no_room() -> None:
    history = History(["v"], most=500)
    for number in range(20_000):
        add(history, number, **{f"k{number}": 1.0})
    assert len(history._numbers) <= 2 * 500 + 1024
    assert values(history, "k19999") == [(19_999, 1.0)]
    assert values(history, "k19500") == [(19_500, 1.0)]


@pytest.mark.parametrize("seed", range(5))
def test_it_agrees_with_plain_lists(seed: int) -> None:
    chance = random.Random(seed)
    history = History(["v"], most=10_000)
    plain: dict[str, dict[int, float]] = defaultdict(dict)
    for time in range(400):
        batch = {f"k{chance.randrange(30)}": chance.random() for _ in range(chance.randrange(8))}
        add(history, time, **batch)
        for key, value in batch.items():
            plain[key][time] = value
    for key, points in plain.items():
        assert values(history, key) == sorted(points.items())


def test_what_is_no_number_is_a_gap() -> None:
    history = History(["v"])
    history.add(
        ["a", "a", "a"], event_time=[1, 2, 3], window_end=[None] * 3, values={"v": [None, "9007199254740993", True]}
    )
    assert values(history, "a") == [(1, None), (2, 9007199254740992.0), (3, 1.0)]
