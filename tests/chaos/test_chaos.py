"""The short form of `make chaos`: a few kills, and every result is there once.

`make chaos` is the long form; its report is in benchmarks/results/chaos.json.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING

import polars as pl
import pytest
from chaos.check import Verdict
from chaos.jobs import BOUND, SIZE, START, expected
from chaos.play import Play

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.slow
def test_kills_neither_lose_nor_repeat_a_result(tmp_path: Path) -> None:
    kinds = ["driver between sink and commit log", "Python worker", "broker"]
    run = Play(tmp_path / "chaos", seed=4, delivery="exactly_once", apart=False, kinds=kinds).run(len(kinds))
    assert len(run["kills"]) == len(kinds)
    assert run["expected"] > 0
    assert (run["lost"], run["duplicated"]) == (0, 0), run["where"]


def test_the_judge_sees_what_is_lost_and_what_is_there_twice() -> None:
    wanted = Counter({"a": 1, "b": 1, "c": 1})
    verdict = Verdict()
    verdict.add("results", wanted, Counter({"a": 1, "b": 2}))
    assert (verdict.lost.total(), verdict.duplicated.total(), verdict.exact) == (1, 1, False)
    assert not Verdict().exact, "nothing expected proves nothing"


def test_the_plain_answer_by_hand() -> None:
    times = [START + timedelta(seconds=second) for second in (1, 2, 6, 7, 30)]
    events = pl.DataFrame(
        {
            "partition": [0] * 5,
            "event_time": times,
            "vehicle_id": ["x", "x", "x", "y", "y"],
            "line": ["1", "1", "2", "1", "1"],
            "delay": [10, 20, 30, 40, 50],
        }
    )
    answers = expected(events)
    assert answers["chaos-tally", START, START + SIZE, "1", 2, 30] == 1
    assert answers["chaos-tally", START + SIZE, START + 2 * SIZE, "2", 1, 30] == 1
    # In [0, 10) the newest of x is on line 2, of y on line 1; in [-5, 5) there is only x, on line 1.
    assert answers["chaos-spread", START, START + 2 * SIZE, "2", 1, 0] == 1
    assert answers["chaos-spread", START, START + 2 * SIZE, "1", 1, 0] == 1
    assert answers["chaos-spread", START - SIZE, START + SIZE, "1", 1, 0] == 1
    assert max(answer[2] for answer in answers) <= times[-1] - BOUND


def test_the_plain_joins_by_hand() -> None:
    seconds, delays = [1, 2, 3, 4, 9, 30], [300, -40, 300, -40, -40, 0]
    events = pl.DataFrame(
        {
            "partition": [0] * 6,
            "event_time": [START + timedelta(seconds=second) for second in seconds],
            "vehicle_id": ["a", "b", "c", "d", "e", "f"],
            "line": ["1", "1", "1", "1", "1", "1"],
            "delay": delays,
        }
    )
    answers = {answer[0]: set() for answer in expected(events)}
    for name, _, _, who, *_ in expected(events):
        answers[name].add(who)
    assert answers["chaos-near"] == {"1 b a", "1 b c", "1 d c", "1 e None"}
    assert answers["chaos-version"] == {"1 b a", "1 d c", "1 e c"}
