"""What the day does to a timetable: delays and emergency stops, as a bend of time.

A vehicle that runs late is where the timetable says it should have been a while ago. So each vehicle has a function
from the seconds since the start to **timetable seconds**, and its place is the timetable's place there. Where that
function is flat the vehicle stands; where it is less steep than 1 it is slower than planned. Its first and second
derivative give the true speed and acceleration, so that position, speed, acceleration and delay always agree.

Two things bend time:

- The **delay** of each vehicle drifts slowly around a value of its own (a sum of two sine waves). How far a round is
  behind the mean of all rounds of its line (`headrace_transit.simulator.timetable`) comes on top.
- In an **emergency stop** time comes to a halt within a few seconds, rests, and picks up again; the lost seconds are
  made good over the next half hour. At most one happens to a vehicle per hour, in a period that begins at the full
  hour for one half of the fleet and at the half hour for the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from headrace_transit.simulator.chance import between, uniform
from headrace_transit.simulator.driving import CRUISE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace_transit.simulator.timetable import Timetable

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

#: Seconds in which a vehicle has at most one emergency stop.
PERIOD = 3600.0
_LATEST = 1700.0
_RECOVERY = 1800.0
_CANDIDATES = 150
#: Metres per second at which an emergency stop may begin; a second before it was as fast.
_FAST_ENOUGH = 10.7
_TURN = 2 * np.pi


class Bend(NamedTuple):
    """Timetable seconds, their first and second derivative by time, and the delay in seconds."""

    second: Floats
    rate: Floats
    change: Floats
    delay: Floats


@dataclass(frozen=True)
class Emergencies:
    """The emergency stops of one period, one row each, in seconds since the start.

    Args:
        vehicle: Index of the vehicle.
        begin: When it begins to brake.
        braking: Seconds until it stands.
        hold: Seconds that it stands.
        recovery: Seconds until it is up to speed again.
    """

    vehicle: Integers
    begin: Floats
    braking: Floats
    hold: Floats
    recovery: Floats


class Motion:
    """The way of every vehicle through the timetable.

    Args:
        timetable: What was planned.
        line: Index of each vehicle's line.
        offset: Where in its round each vehicle is at the start, in seconds.
        seed: Decides delays and emergency stops.
        emergency_rate: Emergency stops per vehicle and hour, at most 1.
    """

    def __init__(
        self, timetable: Timetable, *, line: Integers, offset: Floats, seed: int, emergency_rate: float
    ) -> None:
        self.timetable = timetable
        self.line = line
        self.offset = offset
        self.duration = timetable.duration[line]
        self._variants = timetable.base.shape[1]
        self._bases = timetable.base.ravel()
        self._first_base = line * self._variants
        self._seed = seed
        self._emergency_rate = emergency_rate
        vehicle = np.arange(len(line))
        self._index = vehicle
        modes = np.array([entry.mode for entry in timetable.network.lines])
        # From a train's speed nobody stops within ten seconds.
        self._may_stop = np.isin(modes[line], ["tram", "bus"])

        def draw(purpose: str, low: float, high: float) -> Floats:
            return between(low, high, uniform(seed, purpose, vehicle))

        self._usual_delay = np.minimum(-60 * np.log1p(-uniform(seed, "usual delay", vehicle)), 350) - 35
        # The bounds keep the bend gentle: with the recovery from an emergency stop, no vehicle is faster than planned
        # by more than `driving.MOST_RATE` says.
        self._slow_size, self._slow_turn = draw("slow size", 10.0, 40.0), _TURN / draw("slow time", 7200.0, 14400.0)
        self._fast_size, self._fast_turn = draw("fast size", 1.0, 3.0), _TURN / draw("fast time", 1500.0, 2400.0)
        self._slow_phase, self._fast_phase = draw("slow phase", 0.0, _TURN), draw("fast phase", 0.0, _TURN)
        self.emergencies = lru_cache(maxsize=64)(self._emergencies)

    def place(self, vehicle: Integers | slice, second: Floats) -> tuple[Floats, Floats]:
        """Find the place of vehicles on the axis of the timetable.

        Args:
            vehicle: Indices of vehicles, or `slice(None)` for all of them in order.
            second: Their timetable seconds, counted from the beginning of their first round.

        Returns:
            Seconds on the axis, and the second at which the round on the axis begins (`second - round begin` is the
            time since).
        """
        duration = self.duration[vehicle]
        number = np.floor(second / duration)
        begin = number * duration
        # Each vehicle takes the variants in turn, so that two that follow each other differ.
        variant = (self._index[vehicle] + number.astype(np.int64)) % self._variants
        return self._bases[self._first_base[vehicle] + variant] + (second - begin), begin

    def bend(self, vehicle: Integers | slice, time: Floats) -> Bend:
        """Tell where vehicles are in their timetables.

        Args:
            vehicle: Indices of vehicles, or `slice(None)` for all of them in order.
            time: Seconds since the start, one for each.
        """
        lost, lost_rate, lost_change = self._lost(vehicle, time)
        free = self._delayed(vehicle, time - lost)
        flow = 1 - lost_rate
        return Bend(free.second, free.rate * flow, free.change * flow**2 - free.rate * lost_change, free.delay + lost)

    def second(self, vehicle: Integers | slice, time: Floats) -> Floats:
        """Give the timetable seconds of `bend` alone, for half the work."""
        time = time - self._lost(vehicle, time)[0]
        slow = self._slow_turn[vehicle] * time + self._slow_phase[vehicle]
        fast = self._fast_turn[vehicle] * time + self._fast_phase[vehicle]
        waves = self._slow_size[vehicle] * np.sin(slow) + self._fast_size[vehicle] * np.sin(fast)
        found: Floats = self.offset[vehicle] + time - (self._usual_delay[vehicle] + waves)
        return found

    def _delayed(self, vehicle: Integers | slice, time: Floats) -> Bend:
        slow_turn, fast_turn = self._slow_turn[vehicle], self._fast_turn[vehicle]
        slow_size, fast_size = self._slow_size[vehicle], self._fast_size[vehicle]
        slow, fast = slow_turn * time + self._slow_phase[vehicle], fast_turn * time + self._fast_phase[vehicle]
        slow_wave, fast_wave = slow_size * np.sin(slow), fast_size * np.sin(fast)
        delay = self._usual_delay[vehicle] + (slow_wave + fast_wave)
        rate = 1 - slow_size * slow_turn * np.cos(slow) - fast_size * fast_turn * np.cos(fast)
        change = slow_wave * slow_turn**2 + fast_wave * fast_turn**2
        return Bend(self.offset[vehicle] + time - delay, rate, change, delay)

    def _lost(self, vehicle: Integers | slice, time: Floats) -> tuple[Floats, Floats, Floats]:
        """Seconds lost to emergency stops, with the first and second derivative."""
        lost, rate, change = np.zeros_like(time), np.zeros_like(time), np.zeros_like(time)
        if self._emergency_rate <= 0 or not len(time):
            return lost, rate, change
        low, high = float(time.min()), float(time.max())
        for half in (0, 1):
            first, last = (int((moment - half * PERIOD / 2) // PERIOD) for moment in (low, high))
            for period in range(first, last + 1):
                stops = self.emergencies(period, half)
                if not len(stops.vehicle):
                    continue
                if isinstance(vehicle, slice):
                    rows, found = stops.vehicle, np.arange(len(stops.vehicle))
                else:
                    concerned = np.zeros(len(self.line), dtype=bool)
                    concerned[stops.vehicle] = True
                    rows = np.flatnonzero(concerned[vehicle])
                    # A vehicle may be asked for at times of several periods: each row belongs to one.
                    rows = rows[(time[rows] - half * PERIOD / 2) // PERIOD == period]
                    found = np.searchsorted(stops.vehicle, vehicle[rows])
                lost[rows], rate[rows], change[rows] = _loss(stops, found, time[rows])
        return lost, rate, change

    def _emergencies(self, period: int, half: int) -> Emergencies:
        """Draw the emergency stops of one period: of several moments, the first at which the vehicle cruises fast."""
        vehicle = np.arange(half, len(self.line), 2)
        lucky = uniform(self._seed, "emergency", vehicle, period) < self._emergency_rate
        vehicle = vehicle[lucky & self._may_stop[vehicle]]
        deceleration = between(2.5, 4.5, uniform(self._seed, "deceleration", vehicle, period))
        hold = between(6.0, 20.0, uniform(self._seed, "hold", vehicle, period))
        begin = np.full(len(vehicle), np.nan)
        speed = np.zeros(len(vehicle))
        for attempt in range(_CANDIDATES):
            rows = np.flatnonzero(np.isnan(begin))
            draw = uniform(self._seed, "moment", vehicle[rows], period, attempt)
            time = (period + half / 2) * PERIOD + draw * _LATEST
            true_speed, second, phase = self._cruising(vehicle[rows], time)
            # The last report before is fast, too, and not braking: the stop begins with its own braking.
            before, _, _ = self._cruising(vehicle[rows], time - 1.2)
            # It must go on cruising in the timetable until it stands.
            room = true_speed / deceleration[rows] / 2 + 0.5
            fits = (
                (true_speed >= _FAST_ENOUGH)
                & (before >= _FAST_ENOUGH)
                & (self.timetable.phases.cruise_until[phase] - second > room)
            )
            begin[rows[fits]] = time[fits]
            speed[rows[fits]] = true_speed[fits]
        found = ~np.isnan(begin)
        vehicle, begin, speed = vehicle[found], begin[found], speed[found]
        return Emergencies(vehicle, begin, speed / deceleration[found], hold[found], speed / 1.0)

    def _cruising(self, vehicle: Integers, time: Floats) -> tuple[Floats, Floats, Integers]:
        """Give speeds, places on the axis and phases; emergency stops are left aside.

        The speed is 0 where a vehicle does not cruise, or slows down.
        """
        phases = self.timetable.phases
        bend = self._delayed(vehicle, time)
        second, _ = self.place(vehicle, bend.second)
        phase = phases.at(second)
        speed = phases.speed[phase] + phases.acceleration[phase] * (second - phases.start[phase])
        cruises = (phases.kind[phase] == CRUISE) & (phases.acceleration[phase] >= 0)
        return np.where(cruises, speed * bend.rate, 0.0), second, phase


def _loss(stops: Emergencies, found: Integers, time: Floats) -> tuple[Floats, Floats, Floats]:
    braking, hold, recovery = stops.braking[found], stops.hold[found], stops.recovery[found]
    since = time - stops.begin[found]
    stood = since - braking
    moving = stood - hold
    after = (moving - recovery) / _RECOVERY
    total = braking / 2 + hold + recovery / 2
    conditions = [since <= 0, stood < 0, moving < 0, after < 0, after < 1]
    smooth = 1 - after**2 * (3 - 2 * after)
    zero, one = np.zeros_like(since), np.ones_like(since)
    lost = [
        zero,
        since**2 / (2 * braking),
        braking / 2 + stood,
        braking / 2 + hold + moving - moving**2 / (2 * recovery),
        total * smooth,
    ]
    rate = [zero, since / braking, one, 1 - moving / recovery, -6 * total / _RECOVERY * after * (1 - after)]
    change = [zero, 1 / braking, zero, -1 / recovery, -6 * total / _RECOVERY**2 * (1 - 2 * after)]
    return np.select(conditions, lost, 0.0), np.select(conditions, rate, 0.0), np.select(conditions, change, 0.0)
