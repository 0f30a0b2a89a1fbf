"""How reports travel: not quite in order.

A vehicle reports every second, but what counts for a stream is when the report **arrives**. The measured feed of HSL
(`docs/calibration.md`) shows how: nineteen of twenty reports take a fraction of a second. The rest is late because the
vehicle's radio **stalled**: for some seconds, now and then for minutes, nothing gets through; what was reported
meanwhile waits in the vehicle and then arrives at once, in order. So late reports come in bursts, one vehicle at a
time, and the first of a burst is the latest. A few vehicles stall all the time, most hardly ever.

A `Disorder` says how bad it is. `Disorder.hsl()` is what was measured, `Disorder()` a small dose in which every report
has a fate of its own, `Disorder.none()` is none. A `Transport` applies one to a fleet. Like everything in the simulator
it is drawn by the seed: the same report is late by the same time in every run, however the run is cut into pieces.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal, NamedTuple, Self, get_args

import numpy as np

from headrace.errors import PlanError
from headrace_transit.simulator.chance import between, uniform

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

#: Names of `Disorder.named`.
Roads = Literal["none", "calm", "hsl", "hsl-archive"]

#: Draws are looked up by their rank, which is many times faster than computing each.
_RANKS = 4096
_NORMAL = np.array([NormalDist().inv_cdf((rank + 0.5) / _RANKS) for rank in range(_RANKS)])

#: Seconds on the way of reports that are not held up: share of the reports, and the most that these take. Measured on
#: HSL's feed on 22 August 2020 by the thesis project github.com/DominikStiller/dhbw-bt (64,251 reports in 300 s; open
#: data, (c) HSL, CC BY 4.0); their clock was behind, 0.562 s are added so that the fastest report takes 20 ms.
HSL_LATENCY = (
    *((0, 0.020), (0.005, 0.042), (0.01, 0.050), (0.02, 0.054), (0.05, 0.058), (0.1, 0.064), (0.2, 0.070)),
    *((0.3, 0.077), (0.4, 0.084), (0.5, 0.093), (0.6, 0.107), (0.7, 0.124), (0.8, 0.150), (0.85, 0.195)),
    *((0.9, 0.296), (0.92, 0.337), (0.94, 0.401), (0.96, 0.598), (0.98, 0.742), (0.99, 0.820), (1, 1.000)),
)


class Stalls(NamedTuple):
    """Times in which nothing of a vehicle gets through.

    Args:
        every: Seconds between two such times of a vehicle, on average.
        shortest: Seconds that the shortest takes.
        longest: Seconds that the longest takes; all between are equally frequent.
    """

    every: float
    shortest: float
    longest: float


#: Fitted to the same measurement, such that the share of reports that are late by more than any time comes out.
HSL_STALLS = (
    Stalls(150, 0.5, 3),
    Stalls(200, 2, 9),
    Stalls(2260, 8, 36),
    Stalls(17_500, 30, 90),
    Stalls(55_000, 140, 160),
)
#: Shares of the vehicles with good, fair and bad radio, and how often these stall: once is the mean.
_RADIO_SHARES, _RADIO_STALLS = np.array([0.7, 0.95]), np.array([0.25, 1.5, 9.0])
_RADIO_LASTS = 1_800.0
#: Tells the draws of clocks from all others of a seed.
_CLOCKS = 19


@dataclass(frozen=True, slots=True)
class Disorder:
    """How reports travel.

    Args:
        delay: Median seconds on the way.
        spread: How far the delays lie apart: the standard deviation of their logarithm.
        late_share: Share of the reports that are held up, each by itself.
        late_mean: Mean seconds that these are held up.
        late_most: No report is held up longer.
        duplicate_share: Share of the reports that arrive a second time, some seconds after the first.
        latency: Seconds on the way as measured: shares and the most that these take; replaces `delay` and `spread`.
        stalls: Times in which all reports of a vehicle are held up.
        holds: Whether events that vehicles send some time after they happened (a bus's PDE) arrive that much later.
        overlap: Seconds at the beginning of every five minutes in which half of the vehicles' reports arrive twice, in
            the same moment, as in an archive whose pieces overlap.
        wrong_clocks: Share of the vehicles whose clocks are wrong, half of them ahead and half behind: the event times
            of all their reports are, and arrivals are not.
        wrong_by: Seconds by which these are wrong, from the least to the most; small errors are more frequent.

    >>> Disorder.none().late_share
    0.0
    """

    delay: float = 0.06
    spread: float = 1.0
    late_share: float = 0.005
    late_mean: float = 8.0
    late_most: float = 60.0
    duplicate_share: float = 0.001
    latency: tuple[tuple[float, float], ...] = field(default=(), repr=False)
    stalls: tuple[Stalls, ...] = field(default=(), repr=False)
    holds: bool = True
    overlap: float = 0.0
    wrong_clocks: float = 0.0
    wrong_by: tuple[float, float] = (1.0, 600.0)

    def __post_init__(self) -> None:
        for name in ("late_share", "duplicate_share", "wrong_clocks"):
            if not 0 <= getattr(self, name) <= 1:
                raise PlanError(f"{name} is {getattr(self, name)}", hint="Give a number from 0 to 1.")
        for name in ("delay", "spread", "late_mean", "late_most", "overlap"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise PlanError(f"{name} is {getattr(self, name)}", hint="Give a number that is 0 or more.")
        if not 0 < self.wrong_by[0] <= self.wrong_by[1] < float("inf"):
            raise PlanError(f"wrong_by is {self.wrong_by}", hint="Give the least and the most seconds, above 0.")
        for stalls in self.stalls:
            if not 0 < stalls.shortest <= stalls.longest < stalls.every / 2:
                raise PlanError(
                    f"stalls of {stalls.shortest} to {stalls.longest} s every {stalls.every} s",
                    hint="They must take some time, and less than half of all.",
                )
        shares, seconds = zip(*self.latency, strict=True) if self.latency else ((0, 1), (0, 0))
        if [*shares] != sorted(shares) or [*seconds] != sorted(seconds) or (shares[0], shares[-1]) != (0, 1):
            raise PlanError("the latency does not rise from share 0 to share 1", hint="Give (share, seconds) pairs.")

    def clock_errors(self, vehicles: int, *, seed: int) -> Integers:
        """By how many microseconds the clock of each vehicle is ahead; the same seed gives the same clocks.

        >>> errors = Disorder(wrong_clocks=0.5, wrong_by=(2, 60)).clock_errors(1000, seed=1)
        >>> int((errors > 0).sum()), int((errors < 0).sum()), bool((abs(errors[errors != 0]) >= 2_000_000).all())
        (250, 250, True)
        """
        random = np.random.default_rng([seed, _CLOCKS])
        errors = np.zeros(vehicles, dtype=np.int64)
        wrong = random.permutation(vehicles)[: round(self.wrong_clocks * vehicles)]
        least, most = (np.log(seconds) for seconds in self.wrong_by)
        by = (np.exp(random.uniform(least, most, len(wrong))) * 1e6).astype(np.int64)
        errors[wrong] = np.where(np.arange(len(wrong)) % 2 == 0, by, -by)
        return errors

    @classmethod
    def none(cls) -> Self:
        """Every report arrives at once, in order, and once."""
        return cls(delay=0.0, late_share=0.0, duplicate_share=0.0, holds=False)

    @classmethod
    def hsl(cls, *, duplicate_share: float = 0.0003, overlap: float = 0.0) -> Self:
        """As measured on HSL's feed in August 2020; see `docs/calibration.md`."""
        return cls(
            late_share=0.0,
            duplicate_share=duplicate_share,
            latency=HSL_LATENCY,
            stalls=HSL_STALLS,
            overlap=overlap,
        )

    @classmethod
    def named(cls, name: str) -> Self:
        """Give the disorder of a name: "none", "calm", "hsl", or "hsl-archive" with an archive's repeats.

        Raises:
            PlanError: There is none of that name.
        """
        if name == "none":
            return cls.none()
        if name == "calm":
            return cls()
        if name in ("hsl", "hsl-archive"):
            return cls.hsl(overlap=12.0 if name == "hsl-archive" else 0.0)
        raise PlanError(f"no disorder is called {name!r}", hint=f"There are {', '.join(get_args(Roads))}.")


class Transport:
    """The way of a fleet's reports.

    Args:
        disorder: How bad it is.
        seed: Decides which report is late.
        vehicles: How many vehicles report.
    """

    def __init__(self, disorder: Disorder, *, seed: int, vehicles: int) -> None:
        self._disorder, self._seed, self._vehicles = disorder, seed, vehicles
        ranks = (np.arange(_RANKS) + 0.5) / _RANKS
        if disorder.latency:
            shares, seconds = zip(*disorder.latency, strict=True)
            self._usual = np.interp(ranks, shares, seconds)
        else:
            self._usual = disorder.delay * np.exp(disorder.spread * _NORMAL)
        # A bad radio has many short stalls at hand: periods are so short that each has one at most.
        self._periods = [
            max(1.5 * stalls.longest, min(stalls.every / _RADIO_STALLS[-1], 8 * stalls.longest))
            for stalls in disorder.stalls
        ]
        self._stalled = lru_cache(maxsize=8 * max(1, len(disorder.stalls)))(self._draw_stalls)

    def delays(self, vehicle: Integers, moment: Integers) -> Floats:
        """Give the seconds that reports are on the way.

        Args:
            vehicle: Index of each report's vehicle.
            moment: When each was sent, in milliseconds since the epoch.
        """
        disorder, seed = self._disorder, self._seed
        rank = (uniform(seed, "delay", vehicle, moment) * _RANKS).astype(np.int64)
        delay: Floats = self._usual[rank]
        if disorder.late_share:
            late = np.flatnonzero(uniform(seed, "late", vehicle, moment) < disorder.late_share)
            draw = uniform(seed, "late by", vehicle[late], moment[late])
            delay[late] += np.minimum(-np.log1p(-draw) * disorder.late_mean, disorder.late_most)
        if disorder.stalls and len(vehicle):
            self._hold_up(vehicle, moment / 1000, delay)
        return delay

    def repeats(self, vehicle: Integers, moment: Integers, delay: Floats) -> tuple[Integers, Floats]:
        """Find the reports that arrive twice.

        Args:
            vehicle: As for `delays`.
            moment: As for `delays`.
            delay: What `delays` gave.

        Returns:
            Their rows, and the seconds between the two arrivals.
        """
        disorder, seed = self._disorder, self._seed
        rows, later = np.empty(0, dtype=np.int64), np.empty(0)
        if disorder.duplicate_share:
            rows = np.flatnonzero(uniform(seed, "twice", vehicle, moment) < disorder.duplicate_share)
            later = uniform(seed, "twice after", vehicle[rows], moment[rows]) * 5
        if disorder.overlap:
            arrival = moment / 1000 + delay
            piece = np.floor(arrival / 300).astype(np.int64)
            both = np.flatnonzero(arrival - piece * 300 < disorder.overlap)
            both = both[uniform(seed, "overlap", vehicle[both], piece[both]) < 0.5]
            rows, later = np.concatenate([rows, both]), np.concatenate([later, np.zeros(len(both))])
        return rows, later

    def _hold_up(self, vehicle: Integers, time: Floats, delay: Floats) -> None:
        """Let reports wait until their vehicle's stall is over."""
        low, high = float(time.min()), float(time.max())
        drawn = [
            self._stalled(which, number)
            for which, period in enumerate(self._periods)
            for number in range(int(low // period), int(high // period) + 1)
        ]
        who, begin, end, latency = (np.concatenate(column) for column in zip(*drawn, strict=True))
        near = np.flatnonzero((begin <= high) & (end > low))
        if not len(near):
            return
        near = near[np.lexsort((begin[near], who[near]))]
        who, begin, end, latency = who[near], begin[near], end[near], latency[near]
        # Vehicles one after the other on one axis, so that one search finds the last stall that began before a report.
        origin, room = float(begin.min()), max(high, float(end.max())) - float(begin.min()) + 1.0
        until = np.maximum.accumulate(who * room + end - origin)
        # Of overlapping stalls the one that ends last counts.
        longest = np.maximum.accumulate(np.where(until == who * room + end - origin, np.arange(len(who)), 0))
        place = np.searchsorted(who * room + begin - origin, vehicle * room + time - origin, side="right") - 1
        stall = longest[np.maximum(place, 0)]
        rows = np.flatnonzero((place >= 0) & (who[stall] == vehicle) & (end[stall] > time))
        stall, at = stall[rows], time[rows]
        # They come out one after the other, a millisecond for each second of waiting.
        delay[rows] = end[stall] - at + latency[stall] + 0.001 * (at - begin[stall])

    def _draw_stalls(self, which: int, number: int) -> tuple[Integers, Floats, Floats, Floats]:
        """Draw the stalls of one kind in one period.

        Returns:
            Vehicles in order, when each stall begins and ends, and the seconds on the way after it.
        """
        stalls, period, seed = self._disorder.stalls[which], self._periods[which], self._seed
        index = np.arange(self._vehicles)
        radio = uniform(seed, "radio", index, int(number * period // _RADIO_LASTS))
        often = _RADIO_STALLS[np.searchsorted(_RADIO_SHARES, radio, side="right")]
        who = np.flatnonzero(uniform(seed, f"stall {which}", index, number) < often * period / stalls.every)
        length = between(stalls.shortest, stalls.longest, uniform(seed, f"stall for {which}", who, number))
        begin = number * period + uniform(seed, f"stall at {which}", who, number) * (period - length)
        rank = (uniform(seed, f"stall delay {which}", who, number) * _RANKS).astype(np.int64)
        return who, begin, begin + length, self._usual[rank]
