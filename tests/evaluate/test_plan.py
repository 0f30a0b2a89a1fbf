"""Plans: which trials, in which order, how long; and the search for the highest volume."""

from __future__ import annotations

import math

import pytest

from headrace.errors import PlanError
from headrace.evaluate.plan import PRECISION, Plan, next_volume


def test_repetitions_go_round_the_volumes() -> None:
    plan = Plan(jobs=("a",), volumes=(16, 1, 4), repetitions=2, seconds=30)
    assert [(trial.volume, trial.repetition) for trial in plan.trials()] == [
        (1, 1),
        (4, 1),
        (16, 1),
        (1, 2),
        (4, 2),
        (16, 2),
    ]
    assert plan.trials()[2].rate == 11_200


def test_the_expected_duration_counts_everything() -> None:
    short = Plan(jobs=("a",), volumes=(1,), repetitions=1, seconds=30, warm_up=10, parity=False)
    assert short.expected_total() > 40
    more = Plan(jobs=("a",), volumes=(1,), repetitions=1, seconds=60, warm_up=10, parity=False)
    assert more.expected_total() - short.expected_total() == 30
    assert Plan(jobs=("a",), volumes=(1,), repetitions=1, search=True).expected_total() > short.expected_total()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"jobs": ()}, "no job"),
        ({"volumes": ()}, "volumes"),
        ({"volumes": (0,)}, "volumes"),
        ({"volumes": (math.nan,)}, "volumes"),
        ({"volumes": (1, 1)}, "Name each once"),
        ({"repetitions": 0}, "0 repetitions"),
        ({"seconds": 5}, "seconds is 5"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        Plan(**{"jobs": ("a",), **options})  # type: ignore[arg-type]


def test_the_same_plan_has_the_same_fingerprint() -> None:
    assert Plan(jobs=("a",)).fingerprint == Plan(jobs=("a",)).fingerprint
    assert Plan(jobs=("a",)).fingerprint != Plan(jobs=("a",), seconds=60).fingerprint


@pytest.mark.parametrize("limit", [0.3, 0.9, 3.0, 7.5, 16.0, 21.0, 40.0, 1000.0])
@pytest.mark.parametrize("planned", [(1.0,), (1.0, 4.0, 16.0)])
def test_the_search_finds_the_limit(limit: float, planned: tuple[float, ...]) -> None:
    held = [volume for volume in planned if volume <= limit]
    lost = [volume for volume in planned if volume > limit]
    for _ in range(20):
        volume = next_volume(held, lost)
        if volume is None:
            break
        assert volume not in held + lost
        (held if volume <= limit else lost).append(volume)
    else:
        pytest.fail(f"no end: {held} {lost}")
    assert max(held) <= limit < min(lost)
    # Steps are whole numbers where volumes are large.
    assert min(lost) / max(held) <= PRECISION + 0.15


def test_a_volume_below_one_that_was_held_is_no_limit() -> None:
    assert next_volume([1, 16], [4]) == 32


def test_when_nothing_is_held_the_search_ends() -> None:
    lost = [1.0]
    while (volume := next_volume([], lost)) is not None:
        lost.append(volume)
    assert min(lost) == 1 / 8
