"""What vehicles do in a round: phases to move by, marks to be in, milestones to report.

A **round** is both directions of a line. It is driven in one of several **variants**: other traffic, other red lights,
other stops passed. All variants of a line take the same time and leave the first stop at the same moment; in between
they differ, and how far one is behind the mean of all at a stop is part of its delay there.

Everything lies on one axis of **timetable seconds**: the rounds of all lines and variants, one after the other. A round
of line `i` in variant `k` owns `[base[i, k], base[i, k] + duration[i])`. Three sorted tables lie on that axis:

- **phases**: constant acceleration; where a vehicle is and how fast (`headrace_transit.simulator.driving`).
- **marks**: from one to the next nothing changes but the place: the stop at which a vehicle is, the next one, whether
  its doors are open, the trip.
- **milestones**: what is reported besides positions: arrivals, doors, traffic lights, sign-on.

So one sorted search in each finds the state of a whole fleet.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace_transit.simulator.chance import uniform
from headrace_transit.simulator.driving import HABITS, KINDS, PHASES, STAND, Legs, drive
from headrace_transit.simulator.itinerary import Itinerary
from headrace_transit.simulator.milestones import Marks, Milestones, Moments, Schedule

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace_transit.simulator.network import Network

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

#: How many ways there are to drive a round of a line.
VARIANTS = 4


@dataclass(frozen=True)
class Phases:
    """Stretches of constant acceleration, in columns.

    Args:
        start: When each begins, ascending.
        kind: STAND, ACCELERATE, CRUISE or BRAKE.
        distance: Metres from the beginning of the path when it begins.
        speed: Speed when it begins.
        acceleration: Constant in it.
        path: Index of the path, into `network.paths`.
        cruise_until: When the last of the CRUISE phases of the same leg ends.
    """

    start: Floats = field(repr=False)
    kind: NDArray[np.int8] = field(repr=False)
    distance: Floats = field(repr=False)
    speed: Floats = field(repr=False)
    acceleration: Floats = field(repr=False)
    path: Integers = field(repr=False)
    cruise_until: Floats = field(repr=False)

    def at(self, second: Floats) -> Integers:
        """Find the phases that are under way at some timetable seconds."""
        return np.searchsorted(self.start, second, side="right") - 1


@dataclass(frozen=True)
class Timetable:
    """The rounds of all lines of a network.

    Args:
        network: What it is the timetable of.
        base: Where the rounds of each line and variant begin.
        duration: Length of a round of each line in seconds.
        phases: How vehicles move.
        marks: In which state they are.
        milestones: What they report.
        schedule: When they should be where.
        stop_ids: Number of each stop on each path, all paths one after the other.
        trip_path: The path of each trip.
        trip_departure: Timetable second at which each trip leaves its first stop.
        trip_base: Timetable second at which the round of each trip begins.
        departure: Seconds from the beginning of a round to the departure, for each line and direction.
        middle: Seconds from the beginning of a round to the middle of the trip, for each line and direction.
    """

    network: Network
    base: Floats = field(repr=False)
    duration: Floats = field(repr=False)
    phases: Phases = field(repr=False)
    marks: Marks = field(repr=False)
    milestones: Milestones = field(repr=False)
    schedule: Schedule = field(repr=False)
    stop_ids: Integers = field(repr=False)
    trip_path: Integers = field(repr=False)
    trip_departure: Floats = field(repr=False)
    trip_base: Floats = field(repr=False)
    departure: Floats = field(repr=False)
    middle: Floats = field(repr=False)

    @classmethod
    def of(cls, network: Network, *, seed: int) -> Timetable:
        """Lay out the rounds of every line; traffic, red lights and times at stops are drawn by the seed."""
        return _timetable(_Ref(network), seed)


class _Ref:
    """A network that stands for itself: two are the same if they are one object."""

    def __init__(self, network: Network) -> None:
        self.network = network

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Ref) and other.network is self.network

    def __hash__(self) -> int:
        return id(self.network)


@lru_cache(maxsize=8)
def _timetable(reference: _Ref, seed: int) -> Timetable:
    network = reference.network
    plan = Itinerary.of(network, variants=VARIANTS, seed=seed)
    habits = [HABITS[path.line.mode] for path in network.paths]
    path = plan.trip_path[plan.leg_trip]

    def of_path(values: list[float]) -> Floats:
        return np.array(values)[path]

    def draw(purpose: str) -> Floats:
        variant = plan.trip_variant[plan.leg_trip]
        return uniform(seed, f"leg {purpose}", path, variant, plan.leg_number)

    driven = drive(
        Legs(
            length=plan.leg_length,
            slowest=of_path([habit.speed[0] for habit in habits]),
            fastest=of_path([habit.speed[1] for habit in habits]),
            eager=of_path([habit.eager for habit in habits]),
            drift=of_path([habit.drift for habit in habits]),
            traffic=of_path([habit.traffic for habit in habits]),
            pull=(of_path([habit.pull[0] for habit in habits]), of_path([habit.pull[1] for habit in habits])),
            brake=(of_path([habit.brake[0] for habit in habits]), of_path([habit.brake[1] for habit in habits])),
        ),
        draw,
    )
    stand = plan.leg_stand
    # From leaving the first stop to the end of the last dwell, for each trip.
    running: Floats = np.bincount(
        plan.leg_trip, driven.seconds.sum(axis=1) + stand, minlength=len(plan.trip_path)
    ).astype(np.float64)
    base, duration, begin, departure, middle = _slots(network, running)
    end = np.append(begin[1:], base[-1, -1] + duration[-1])
    phases = _phases(plan, driven.seconds, driven.speed, driven.acceleration, driven.metres, begin, departure)
    moments = Moments(network, plan, phases, begin=begin, departure=departure, end=end, seed=seed)
    return Timetable(
        network=network,
        base=base,
        duration=duration,
        phases=phases,
        marks=moments.marks(),
        milestones=moments.milestones(),
        schedule=moments.schedule(),
        stop_ids=np.concatenate([path.stop_ids for path in network.paths]),
        trip_path=plan.trip_path,
        trip_departure=departure,
        trip_base=np.repeat(base.ravel(), 2),
        departure=(departure.reshape(len(network.lines), VARIANTS, 2) - base[:, :, None])[:, 0, :],
        middle=middle,
    )


def _slots(network: Network, running: Floats) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    """Give each round and trip its place on the axis.

    Returns:
        Beginning of each round (line, variant); length of each line's rounds; beginning and departure of each trip;
        middle of the trips of each line and direction, since the beginning of the round.
    """
    lines = len(network.lines)
    # Trips are ordered by line, variant, direction.
    shape = (lines, VARIANTS, 2)
    layover = np.array([HABITS[line.mode].layover for line in network.lines])
    # Whole seconds, so that every departure and every scheduled time is one.
    longest = np.ceil(running.reshape(shape).max(axis=1))
    duration = (longest + layover[:, None]).sum(axis=1)
    base = np.concatenate([[0.0], np.cumsum(np.repeat(duration, VARIANTS))[:-1]]).reshape(lines, VARIANTS)
    departure = np.empty(shape)
    departure[:, :, 0] = base + layover[:, None]
    departure[:, :, 1] = base + (layover + longest[:, 0] + layover)[:, None]
    begin = np.empty(shape)
    begin[:, :, 0] = base
    begin[:, :, 1] = departure[:, :, 0] + running.reshape(shape)[:, :, 0]
    middle = (departure - base[:, :, None])[:, 0, :] + longest / 2
    return base, duration, begin.ravel(), departure.ravel(), middle


def _phases(
    plan: Itinerary,
    seconds: Floats,
    speed: Floats,
    acceleration: Floats,
    metres: Floats,
    begin: Floats,
    departure: Floats,
) -> Phases:
    """Put the layover of each trip and the phases of its legs one after the other."""
    legs = len(plan.leg_trip)
    zero = np.zeros((legs, 1))
    took = np.concatenate([seconds, plan.leg_stand[:, None]], axis=1)
    before_leg = _running_total(took.sum(axis=1), plan.first_leg, plan.leg_trip)
    start = departure[plan.leg_trip][:, None] + before_leg[:, None]
    start = start + np.concatenate([zero, np.cumsum(took, axis=1)[:, :-1]], axis=1)
    distance = plan.leg_begin[:, None] + np.concatenate([zero, np.cumsum(metres, axis=1)], axis=1)
    distance[:, -1] = plan.leg_begin + plan.leg_length
    cruised = np.repeat(start[:, PHASES - 3 : PHASES - 2], PHASES, axis=1)
    path = np.repeat(plan.trip_path[plan.leg_trip], PHASES)
    columns: list[NDArray[Any]] = [
        start.ravel(),
        np.tile(KINDS, legs),
        distance.ravel(),
        np.concatenate([speed, zero], axis=1).ravel(),
        np.concatenate([acceleration, zero], axis=1).ravel(),
        path,
        cruised.ravel(),
    ]
    # A trip's layover stands before its first leg.
    at = plan.first_leg * PHASES
    none = np.zeros(len(begin))
    layover: list[NDArray[Any]] = [
        begin,
        np.full(len(begin), STAND, dtype=np.int8),
        none,
        none,
        none,
        plan.trip_path,
        departure,
    ]
    return Phases(*(np.insert(column, at, value) for column, value in zip(columns, layover, strict=True)))


def _running_total(values: Floats, first: Integers, group: Integers) -> Floats:
    """Sum what came before, within each group."""
    before = np.concatenate([[0.0], np.cumsum(values)[:-1]])
    total: Floats = before - before[first][group]
    return total
