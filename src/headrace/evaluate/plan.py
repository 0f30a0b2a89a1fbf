"""What an evaluation runs, and how long that takes.

A volume is a multiple of `BASE` events a second, a usual load. Every volume is run as
often as repetitions are asked for; repetitions go round the volumes in turn, so that a slow hour of the machine does
not fall on one volume alone. After them, if asked for, comes the search for the highest volume that is held: doubling
from the highest one planned (or halving, if that was not held), then halving the gap until it is small.

>>> plan = Plan(jobs=("vehicle-distribution",), volumes=(1, 4), repetitions=2)
>>> [trial.name for trial in plan.trials()]
['1x-1', '4x-1', '1x-2', '4x-2']
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

from headrace.errors import PlanError
from headrace.time.duration import SECOND

#: Events a second at volume 1.
BASE = 700

#: Seconds that the parts of a trial take beside warming up and measuring, on two cores: what the expected duration is
#: computed from until a trial has told better.
START_SECONDS = 40.0
STOP_SECONDS = 12.0
PARITY_SECONDS = 45.0
#: The search ends when the next volume to try is within this factor of one that was held.
PRECISION = 1.2
#: Trials that the search is expected to need.
SEARCH_TRIALS = 5


@dataclass(frozen=True)
class Trial:
    """One run at one volume.

    Args:
        volume: Multiple of `BASE`.
        repetition: Counted from 1.
        seconds: How long is measured.
        parity: Whether the results are compared with a batch.
        searching: Whether it belongs to the search for the highest volume.
    """

    volume: float
    repetition: int
    seconds: float
    parity: bool = True
    searching: bool = False

    @property
    def name(self) -> str:
        """What its files are called."""
        kind = "search" if self.searching else str(self.repetition)
        return f"{self.volume:g}x-{kind}"

    @property
    def rate(self) -> int:
        """Events a second."""
        return round(self.volume * BASE)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A whole evaluation.

    Args:
        jobs: Which jobs run, all at once.
        volumes: Multiples of `BASE`.
        seconds: How long is measured in each trial.
        warm_up: Seconds of load before that.
        repetitions: Trials per volume.
        marker_every: Microseconds between two markers of a job.
        search: Whether to look for the highest volume that is held.
        search_seconds: How long is measured in a trial of the search.
        parity: Whether results are compared with a batch over the same input.
        uncommitted: Whether to read also as somebody who does not wait for transactions.
        master: Where Spark runs.
        settings: KEY=VALUE for the jobs, as for `--set`.
        seed: Of the load.
    """

    jobs: tuple[str, ...]
    volumes: tuple[float, ...] = (1, 4, 16)
    seconds: float = 120
    warm_up: float = 30
    repetitions: int = 3
    marker_every: int = SECOND
    search: bool = False
    search_seconds: float = 60
    parity: bool = True
    uncommitted: bool = True
    master: str = "local[2]"
    settings: tuple[str, ...] = ()
    seed: int = 1

    def __post_init__(self) -> None:
        if not self.jobs:
            raise PlanError("no job to evaluate", hint="Name at least one.")
        if not self.volumes or any(not 0 < volume < 10_000 for volume in self.volumes):
            raise PlanError(f"volumes {self.volumes}", hint=f"Give multiples of {BASE} events/s, such as 1,4,16.")
        if len(set(self.volumes)) < len(self.volumes):
            raise PlanError(f"volumes {self.volumes}", hint="Name each once; --repetitions says how often it is run.")
        if self.repetitions < 1:
            raise PlanError(f"{self.repetitions} repetitions", hint="Give at least 1.")
        for name, least in (("seconds", 10), ("search_seconds", 10), ("warm_up", 0)):
            if getattr(self, name) < least:
                raise PlanError(f"{name} is {getattr(self, name):g}", hint=f"Give at least {least}.")

    def trials(self) -> list[Trial]:
        """Give the trials that are known beforehand, in the order in which they run."""
        return [
            Trial(volume, repetition, self.seconds, parity=self.parity)
            for repetition in range(1, self.repetitions + 1)
            for volume in sorted(self.volumes)
        ]

    def search_trial(self, volume: float) -> Trial:
        """Give a trial of the search; whether results are right was seen before."""
        return Trial(volume, 0, self.search_seconds, parity=False, searching=True)

    def expected(self, trial: Trial) -> float:
        """Tell about how many seconds a trial takes."""
        beside = START_SECONDS + STOP_SECONDS + (PARITY_SECONDS if trial.parity else 0)
        return beside + self.warm_up + trial.seconds

    def expected_total(self) -> float:
        """Tell about how many seconds everything takes."""
        known = sum(self.expected(trial) for trial in self.trials())
        return known + (SEARCH_TRIALS * self.expected(self.search_trial(1)) if self.search else 0)

    def to_dict(self) -> dict[str, Any]:
        """Give it as JSON can hold it."""
        return json.loads(json.dumps(asdict(self)))  # type: ignore[no-any-return]

    @property
    def fingerprint(self) -> str:
        """The same for the same plan: an interrupted evaluation is continued only by the plan it was begun with."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def next_volume(held: list[float], lost: list[float]) -> float | None:
    """Tell which volume the search tries next; None when it is done.

    Args:
        held: Volumes that were held.
        lost: Volumes that were not.

    >>> next_volume([1, 4, 16], []), next_volume([1, 4, 16], [32]), next_volume([4], [16]), next_volume([], [1])
    (32, 23.0, 8.0, 0.5)
    >>> next_volume([16, 23], [27]) is None
    True
    """
    best = max(held, default=0.0)
    # A volume that was held is held, also if a lower one was not: that is bad luck, not a limit.
    worst = min((volume for volume in lost if volume > best), default=None)
    if worst is None:
        return best * 2 if best else None
    if best == 0:
        return worst / 2 if worst > 1 / 8 else None
    if worst / best <= PRECISION:
        return None
    middle = (best * worst) ** 0.5
    return float(round(middle) if middle >= 4 else round(middle, 2))
