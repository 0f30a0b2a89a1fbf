"""How vehicles move along their paths: a timetable of phases, the same for every round of a line.

A round is both directions of a line. It is a sequence of **phases**, each with a constant acceleration: stand at a
stop, accelerate, cruise, brake, stand at the next stop, ... Within a phase distance is a parabola of time, so
distance, speed and acceleration of any moment follow from the phase alone, with no step before it.

The phases of all lines lie one after the other on one axis of **timetable seconds**; line `i` owns
`[base[i], base[i] + duration[i])`. So one sorted search finds the phases of a whole fleet at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from headrace.transit.simulator.chance import between, uniform

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.transit.simulator.network import Mode, Network

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

#: Kinds of phases.
STAND, ACCELERATE, CRUISE, BRAKE = range(4)


@dataclass(frozen=True, slots=True)
class Habits:
    """How vehicles of one mode drive.

    Ordinary braking is gentle on purpose: from 10 m/s to a stop takes longer than 10 s, so that an emergency stop
    ("from cruising to a stop within 10 s") can be told from an ordinary one, and the simulator's list of emergency
    stops is complete.

    Args:
        top_speed: Metres per second.
        slowest: The least share of the top speed that a vehicle cruises at between two stops.
        acceleration: Metres per second squared when leaving a stop.
        braking: The same when coming to one.
        dwell: Seconds at a stop, least and most.
        layover: Seconds at the first stop before a trip begins.
    """

    top_speed: float
    slowest: float
    acceleration: float
    braking: float
    dwell: tuple[float, float]
    layover: float


HABITS: dict[Mode, Habits] = {
    "tram": Habits(13.5, 0.6, 0.9, 0.65, (12.0, 26.0), 240.0),
    "bus": Habits(15.5, 0.55, 0.9, 0.65, (8.0, 24.0), 300.0),
    "train": Habits(33.0, 0.85, 0.7, 0.6, (30.0, 50.0), 420.0),
    "metro": Habits(21.0, 0.9, 0.9, 0.65, (20.0, 35.0), 200.0),
}

#: Seconds that passengers need to get off at the last stop of a trip.
_LAST_DWELL = 30.0


@dataclass(frozen=True)
class Timetable:
    """The phases of all lines of a network, in columns.

    Args:
        network: What it is the timetable of.
        base: Where the rounds of each line begin on the axis of timetable seconds.
        duration: Length of a round of each line in seconds.
        start: Beginning of each phase, ascending.
        end: End of each phase.
        kind: STAND, ACCELERATE, CRUISE or BRAKE.
        path: Index of the path, into `network.paths`.
        stop: The stop where the phase stands or that it goes to: index into `stop_ids`.
        distance: Metres from the beginning of the path when the phase begins.
        speed: Speed when it begins.
        acceleration: Constant during the phase.
        departure: Timetable second at which the phase's trip leaves its first stop.
        stop_ids: Number of each stop on each path, all paths one after the other.
    """

    network: Network
    base: Floats = field(repr=False)
    duration: Floats = field(repr=False)
    start: Floats = field(repr=False)
    end: Floats = field(repr=False)
    kind: NDArray[np.int8] = field(repr=False)
    path: Integers = field(repr=False)
    stop: Integers = field(repr=False)
    distance: Floats = field(repr=False)
    speed: Floats = field(repr=False)
    acceleration: Floats = field(repr=False)
    departure: Floats = field(repr=False)
    stop_ids: Integers = field(repr=False)

    @classmethod
    def of(cls, network: Network, *, seed: int) -> Timetable:
        """Lay out the rounds of every line; traffic between two stops and the time at each are drawn by the seed."""
        sheet = _Sheet()
        base, duration = [], []
        first_stop = 0
        for index, line in enumerate(network.lines):
            base.append(sheet.clock)
            for path_index in (2 * index, 2 * index + 1):
                path = network.paths[path_index]
                sheet.trip(path_index, path.stops, first_stop, HABITS[line.mode], seed)
                first_stop += len(path.stops)
            duration.append(sheet.clock - base[-1])
        columns = np.array(sheet.rows)
        start = columns[:, 0]
        return cls(
            network=network,
            base=np.array(base),
            duration=np.array(duration),
            start=start,
            end=np.append(start[1:], sheet.clock),
            kind=columns[:, 1].astype(np.int8),
            path=columns[:, 2].astype(np.int64),
            stop=columns[:, 3].astype(np.int64),
            distance=columns[:, 4],
            speed=columns[:, 5],
            acceleration=columns[:, 6],
            departure=columns[:, 7],
            stop_ids=np.concatenate([path.stop_ids for path in network.paths]),
        )

    def phase_at(self, second: Floats) -> Integers:
        """Find the phases that are under way at some timetable seconds."""
        return np.searchsorted(self.start, second, side="right") - 1


class _Sheet:
    """Writes phases one after the other."""

    def __init__(self) -> None:
        self.clock = 0.0
        self.rows: list[tuple[float, ...]] = []

    def trip(self, path: int, stops: Floats, first_stop: int, habits: Habits, seed: int) -> None:
        hops = np.arange(len(stops))
        pace = between(habits.slowest, 1.0, uniform(seed, "pace", path, hops)) * habits.top_speed
        dwell = between(*habits.dwell, uniform(seed, "dwell", path, hops)).round()
        departure = self.clock + habits.layover
        self._phase(habits.layover, STAND, path, first_stop, 0.0, 0.0, 0.0, departure)
        for hop in range(1, len(stops)):
            begin, length = float(stops[hop - 1]), float(stops[hop] - stops[hop - 1])
            # On a short hop there is no time to cruise: accelerate until it is time to brake.
            reach = (2 * length * habits.acceleration * habits.braking / (habits.acceleration + habits.braking)) ** 0.5
            top = min(float(pace[hop]), 0.95 * reach)
            up, down = top / habits.acceleration, top / habits.braking
            cruise = (length - top * (up + down) / 2) / top
            stop = first_stop + hop
            self._phase(up, ACCELERATE, path, stop, begin, 0.0, habits.acceleration, departure)
            begin += top * up / 2
            self._phase(cruise, CRUISE, path, stop, begin, top, 0.0, departure)
            begin += top * cruise
            self._phase(down, BRAKE, path, stop, begin, top, -habits.braking, departure)
            last = hop == len(stops) - 1
            self._phase(
                _LAST_DWELL if last else float(dwell[hop]), STAND, path, stop, float(stops[hop]), 0.0, 0.0, departure
            )

    def _phase(self, seconds: float, *row: float) -> None:
        self.rows.append((self.clock, *row))
        self.clock += seconds
