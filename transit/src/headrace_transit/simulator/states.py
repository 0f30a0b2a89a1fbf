"""In which state every vehicle is at any moment, and what it passes from one second to the next.

`States` puts together what was planned (`timetable`), what the day made of it (`motion`) and who is out (`service`). It
works on columns: one row per vehicle and moment, in any order and number.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from headrace_transit.simulator.chance import uniform
from headrace_transit.simulator.service import BY_MINUTE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace_transit.simulator.motion import Motion
    from headrace_transit.simulator.service import Service
    from headrace_transit.simulator.timetable import Timetable

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]
    Booleans = NDArray[np.bool_]


class State(NamedTuple):
    """Where vehicles are, one row each.

    Args:
        vehicle: Indices, or `slice(None)` for all in order.
        time: Seconds since the start.
        round_begin: When the round of each began, in its own timetable seconds.
        at: Place on the axis of the timetable.
        phase: Index of the phase there.
        mark: Index of the mark there.
        distance: Metres from the beginning of the path.
        speed: Metres per second.
        acceleration: Metres per second squared.
        delay: Seconds behind the round that it drives; what that round is behind the schedule comes on top.
    """

    vehicle: Integers | slice
    time: Floats
    round_begin: Floats
    at: Floats
    phase: Integers
    mark: Integers
    distance: Floats
    speed: Floats
    acceleration: Floats
    delay: Floats

    def of(self, rows: Integers, vehicles: Integers) -> State:
        """Give some rows.

        Args:
            rows: Which.
            vehicles: Indices of the vehicles of all rows.
        """
        columns: dict[str, Any] = {name: column[rows] for name, column in zip(self._fields[1:], self[1:], strict=True)}
        return State(vehicle=vehicles[rows], **columns)


class States:
    """The states of a fleet.

    Args:
        timetable: What was planned.
        motion: What became of it.
        service: Who is out.
        local_second: The second of the day, in local time, at the start.
        seed: Decides who is out when.
    """

    def __init__(self, timetable: Timetable, motion: Motion, *, service: Service, local_second: int, seed: int) -> None:
        self.timetable, self.motion = timetable, motion
        self._flat = service == "flat"
        self._local_second = local_second
        self._vehicles = len(motion.line)
        self._everybody = np.arange(self._vehicles)
        self._rank = _ranks(motion.line, seed)
        # The end of a second is the beginning of the next one.
        self._edge = lru_cache(maxsize=2)(self._compute_edge)

    def at(self, vehicle: Integers | slice, time: Floats) -> State:
        """Find the states of vehicles.

        Args:
            vehicle: Indices of vehicles, or `slice(None)` for all of them in order.
            time: Seconds since the start, one for each.
        """
        bend = self.motion.bend(vehicle, time)
        at, begin = self.motion.place(vehicle, bend.second)
        phases = self.timetable.phases
        phase = phases.at(at)
        since = at - phases.start[phase]
        acceleration, begin_speed = phases.acceleration[phase], phases.speed[phase]
        # Rounding may carry a braking vehicle a hair beyond standing still.
        speed = np.maximum(begin_speed + acceleration * since, 0.0)
        return State(
            vehicle=vehicle,
            time=time,
            round_begin=begin,
            at=at,
            phase=phase,
            mark=self.timetable.marks.at(at),
            distance=phases.distance[phase] + (begin_speed + acceleration * since / 2) * since,
            # The planned speed is per timetable second; the bend turns it into metres per true second.
            speed=speed * bend.rate,
            acceleration=acceleration * bend.rate**2 + speed * bend.change,
            delay=bend.delay,
        )

    def serves(self, state: State, *, step: int = 0) -> Booleans:
        """Tell who is out, on the trip of each state or on the one `step` trips later."""
        if self._flat:
            return np.ones(len(state.at), dtype=bool)
        middle = self.trip_second(state, self.timetable.middle, step)
        minute = np.floor((self._local_second + middle) / 60).astype(np.int64) % 1440
        served: Booleans = BY_MINUTE[minute] > self._rank[state.vehicle]
        return served

    def trip_second(self, state: State, moment: Floats, step: int = 0) -> Floats:
        """Give a moment of trips in seconds since the start, as planned.

        Args:
            state: Who and when.
            moment: Of each line and direction, since the beginning of a round.
            step: 0 for the trip of each state, 1 for the one after it, ...
        """
        line = self.motion.line[state.vehicle]
        leg = self.timetable.marks.trip[state.mark] % 2 + step
        begin = state.round_begin + np.floor_divide(leg, 2) * self.motion.duration[state.vehicle]
        second: Floats = begin + moment[line, leg % 2] - self.motion.offset[state.vehicle]
        return second

    def passed(self, second: int, seconds: int) -> tuple[Integers, Integers, Integers]:
        """Find the milestones that vehicles pass in [second, second + seconds).

        Returns:
            Vehicle, milestone, and the moment in milliseconds since the start; in no particular order.
        """
        at, begins = self._edges(second, seconds)
        before, after = at[:-1].ravel(), at[1:].ravel()
        stones = self.timetable.milestones
        low, high = stones.before(before), stones.before(after + 1.0)
        # A round that ends goes on, on the axis, in another place: first the rest of the old, then the new.
        turned = np.flatnonzero(begins[:-1].ravel() != begins[1:].ravel())
        high[turned] = low[turned]
        rows = np.flatnonzero(high > low)
        first, last = (np.searchsorted(stones.at, edge[rows], side="right") for edge in (before, after))
        pieces: list[tuple[NDArray[Any], ...]] = [(rows, first, last, before[rows], (after - before)[rows])]
        if len(turned):
            pieces += self._around(turned, before[turned], after[turned])
        rows, first, last, begin, length = (np.concatenate(column) for column in zip(*pieces, strict=True))
        count = last - first
        owner = np.repeat(np.arange(len(rows)), count)
        milestone = first[owner] + np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
        share = (stones.at[milestone] - begin[owner]) / length[owner]
        row = rows[owner]
        when = (second + row // self._vehicles) * 1000 + np.minimum(share * 1000, 999).astype(np.int64)
        return row % self._vehicles, milestone, when

    def _around(self, rows: Integers, before: Floats, after: Floats) -> list[tuple[NDArray[Any], ...]]:
        """Cut the seconds in which rounds end in two: rows, first and last milestone, where each begins, its length."""
        stones, marks, base_of = self.timetable.milestones, self.timetable.marks, self.timetable.trip_base
        old, new = (base_of[marks.trip[marks.at(edge)]] for edge in (before, after))
        end = old + self.motion.duration[rows % self._vehicles]
        rest = end - before
        length = rest + (after - new)
        find = np.searchsorted
        return [
            (rows, find(stones.at, before, side="right"), find(stones.at, end, side="left"), before, length),
            (rows, find(stones.at, new, side="left"), find(stones.at, after, side="right"), new - rest, length),
        ]

    def _edges(self, second: int, seconds: int) -> tuple[Floats, Floats]:
        """Tell where all vehicles are on the axis at the edges of some seconds, and when their rounds began."""
        if seconds == 1:
            edges = self._edge(second), self._edge(second + 1)
            return np.stack([edge[0] for edge in edges]), np.stack([edge[1] for edge in edges])
        time = np.repeat(np.arange(second, second + seconds + 1, dtype=np.float64), self._vehicles)
        vehicle = np.tile(self._everybody, seconds + 1)
        at, begin = self.motion.place(vehicle, self.motion.second(vehicle, time))
        return at.reshape(seconds + 1, self._vehicles), begin.reshape(seconds + 1, self._vehicles)

    def _compute_edge(self, second: int) -> tuple[Floats, Floats]:
        everybody = slice(None)
        time = np.full(self._vehicles, float(second))
        return self.motion.place(everybody, self.motion.second(everybody, time))


def _ranks(line: Integers, seed: int) -> Floats:
    """Give each vehicle a number of [0, 1) that tells how early in the morning its line needs it; spread evenly."""
    draw = uniform(seed, "rank", np.arange(len(line)))
    count = np.bincount(line)
    first = np.concatenate([[0], np.cumsum(count)[:-1]])
    rank = np.empty(len(line))
    rank[np.lexsort((draw, line))] = np.arange(len(line))
    # Also spread over lines of one or two vehicles: each line begins at another fraction.
    within: Floats = (rank - first[line] + uniform(seed, "first rank", line)) / count[line]
    return within
