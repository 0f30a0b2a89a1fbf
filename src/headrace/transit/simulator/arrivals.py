"""How reports reach us: not quite in order.

A vehicle reports every second, but what counts for a stream is when the report **arrives**. Most take a fraction of a
second over the radio network; a few wait in a tunnel and arrive many seconds late; now and then one arrives twice. That
disorder is what watermarks and late outputs exist for, so the simulated feed has it, in a dose that can be set. Like
everything in the simulator it is drawn by the seed: the same report is late by the same time in every run.

`Arrivals` turns a fleet's seconds of event time into seconds of arrival.

>>> from headrace.transit.simulator.fleet import Fleet
>>> arrivals = Arrivals(Fleet(vehicles=100, seed=1), Disorder(late_share=0.2, late_mean=5.0))
>>> first = arrivals.take(10).positions
>>> bool((first["arrival_time"] >= first["event_time"]).all()), first["arrival_time"].is_sorted()
(True, True)
>>> first.height < 1000, arrivals.held > 0
(True, True)
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from headrace.engine.operator import EVENT_TIME
from headrace.errors import PlanError
from headrace.transit.simulator.chance import uniform
from headrace.transit.simulator.fleet import STOP_SCHEMA

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.transit.simulator.fleet import Fleet

ARRIVAL_TIME = "arrival_time"

#: Draws of a normal distribution are looked up by their rank, which is many times faster than computing each.
_RANKS = 4096
_NORMAL = np.array([NormalDist().inv_cdf((rank + 0.5) / _RANKS) for rank in range(_RANKS)])


@dataclass(frozen=True, slots=True)
class Disorder:
    """How reports travel.

    Args:
        delay: Median seconds on the way.
        spread: How far the delays lie apart: the standard deviation of their logarithm.
        late_share: Share of the reports that are held up.
        late_mean: Mean seconds that these are held up.
        late_most: No report is held up longer.
        duplicate_share: Share of the reports that arrive a second time, some seconds after the first.

    >>> Disorder.none().late_share
    0.0
    """

    delay: float = 0.06
    spread: float = 1.0
    late_share: float = 0.005
    late_mean: float = 8.0
    late_most: float = 60.0
    duplicate_share: float = 0.001

    def __post_init__(self) -> None:
        for name in ("late_share", "duplicate_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise PlanError(f"{name} is {getattr(self, name)}", hint="Give a number from 0 to 1.")
        for name in ("delay", "spread", "late_mean", "late_most"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise PlanError(f"{name} is {getattr(self, name)}", hint="Give a number that is 0 or more.")

    @classmethod
    def none(cls) -> Disorder:
        """Every report arrives at once, in order, and once."""
        return cls(delay=0.0, late_share=0.0, duplicate_share=0.0)

    def delays(self, seed: int, vehicle: NDArray[np.int64], moment: NDArray[np.int64]) -> NDArray[np.float64]:
        """Give the seconds that reports are on the way, known by their vehicle and their millisecond."""
        usual = np.zeros(len(vehicle))
        if self.delay:
            rank = (uniform(seed, "delay", vehicle, moment) * _RANKS).astype(np.int64)
            usual = self.delay * np.exp(self.spread * _NORMAL[rank])
        if self.late_share:
            late = np.flatnonzero(uniform(seed, "late", vehicle, moment) < self.late_share)
            draw = uniform(seed, "late by", vehicle[late], moment[late])
            usual[late] += np.minimum(-np.log1p(-draw) * self.late_mean, self.late_most)
        return usual


@dataclass(frozen=True, slots=True)
class Arrived:
    """What arrived in some seconds, in order of arrival; both frames have `arrival_time` besides their own columns."""

    positions: pl.DataFrame
    stop_events: pl.DataFrame


class Arrivals:
    """The reports of a fleet in order of arrival.

    Args:
        fleet: Who reports.
        disorder: How reports travel.
        first: The second of the fleet's time to begin with.
        stop_events: Whether arrivals and departures at stops are reported, too.
    """

    def __init__(
        self, fleet: Fleet, disorder: Disorder | None = None, *, first: int = 0, stop_events: bool = True
    ) -> None:
        self.fleet = fleet
        self.disorder = Disorder() if disorder is None else disorder
        self.second = first
        self._stop_events = stop_events
        self._held: tuple[pl.DataFrame, pl.DataFrame] | None = None
        self._row = {name: row for row, name in enumerate(fleet.vehicle_ids)}

    @property
    def held(self) -> int:
        """How many reports have happened but not arrived yet."""
        return 0 if self._held is None else sum(frame.height for frame in self._held)

    def take(self, seconds: int = 1) -> Arrived:
        """Go on by some seconds, and give what arrives in them."""
        positions = self._sent(self.fleet.positions(self.second, seconds=seconds), self._every(seconds))
        if self._stop_events and seconds:
            stops = self.fleet.stop_events(self.second, seconds=seconds)
        else:
            stops = pl.DataFrame(schema=STOP_SCHEMA)
        events = self._sent(stops, np.array([self._row[name] for name in stops["vehicle_id"]], dtype=np.int64))
        self.second += seconds
        if self._held is not None:
            positions, events = (pl.concat(pair) for pair in zip(self._held, (positions, events), strict=True))
        until = pl.lit(self.fleet.start + timedelta(seconds=self.second)).cast(pl.Datetime("us", "UTC"))
        here = pl.col(ARRIVAL_TIME) < until
        self._held = (positions.filter(~here), events.filter(~here))
        return _in_order(positions.filter(here), events.filter(here))

    def rest(self) -> Arrived:
        """Give what has happened but not arrived; nothing is held any more."""
        if self._held is None:
            return self.take(0)
        held, self._held = self._held, None
        return _in_order(*held)

    def _every(self, seconds: int) -> NDArray[np.int64]:
        # Positions come second by second, each the whole fleet in its own order.
        return np.tile(np.arange(self.fleet.vehicles), seconds)

    def _sent(self, frame: pl.DataFrame, vehicle: NDArray[np.int64]) -> pl.DataFrame:
        """Say when reports arrive, and add those that arrive twice."""
        happened = frame[EVENT_TIME].dt.timestamp("us").to_numpy()
        moment = happened // 1000
        delay = self.disorder.delays(self.fleet.seed, vehicle, moment)
        arrival = pl.Series(happened + (delay * 1e6).astype(np.int64)).cast(pl.Datetime("us", "UTC"))
        sent = frame.with_columns(arrival.alias(ARRIVAL_TIME))
        if not self.disorder.duplicate_share:
            return sent
        twice = np.flatnonzero(uniform(self.fleet.seed, "twice", vehicle, moment) < self.disorder.duplicate_share)
        if not len(twice):
            return sent
        later = uniform(self.fleet.seed, "twice after", vehicle[twice], moment[twice]) * 5e6
        again = sent[twice].with_columns(
            pl.col(ARRIVAL_TIME) + pl.Series(later.astype(np.int64)).cast(pl.Duration("us"))
        )
        return pl.concat([sent, again])


def _in_order(positions: pl.DataFrame, stop_events: pl.DataFrame) -> Arrived:
    return Arrived(*(frame.sort(ARRIVAL_TIME, maintain_order=True) for frame in (positions, stop_events)))
