"""When things happen on a trip: from the phases of driving to marks and milestones.

What HFP calls an event at a stop is tied to places and speeds, as the recordings of 2020 show: a vehicle is **due**
(DUE) about 80 m before a stop, **arrives** (ARR) at 35 m, is **at the stop** (ARS) when it has slowed down to walking
pace, opens its doors (DOO), closes them (DOC), perhaps waits (WAIT), moves off (PDE) and has **departed** (DEP) some
tens of metres behind the stop. Where nobody gets on or off it passes (PAS), and departs in the same moment. A tram
reports PDE together with DEP. A bus sends its PDE with its DEP, too, but with the time at which it moved off: such a
message is late by ten seconds or more without any fault of the network.

Before a traffic light a vehicle asks for green (TLR), once a second up to four times, and may get an answer (TLA). A
vehicle is assigned to a trip (VJA) some minutes before it departs and taken off (VJOUT) at its end; there the driver
and the block may change (DOUT, BOUT, DA, BA).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from headrace_transit.simulator.chance import between, uniform
from headrace_transit.simulator.driving import HABITS, PHASES
from headrace_transit.simulator.itinerary import DOORS_OPEN_AFTER

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace_transit.simulator.itinerary import Itinerary
    from headrace_transit.simulator.network import Network
    from headrace_transit.simulator.timetable import Phases

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]
    Booleans = NDArray[np.bool_]

#: What happens at stops, at lights and with drivers, in HFP's words; a milestone's kind is the index.
EVENTS = (
    *("DUE", "ARR", "ARS", "PAS", "DOO", "DOC", "WAIT", "PDE", "DEP"),
    *("TLR", "TLA"),
    *("VJA", "VJOUT", "DA", "BA", "DOUT", "BOUT"),
)
AT_STOPS = 9
STOP_EVENTS = EVENTS[:AT_STOPS]
KIND = {name: number for number, name in enumerate(EVENTS)}

#: Seconds before its departure at which a vehicle is assigned to a trip.
_ASSIGNED = 170.0
#: A vehicle is at the stop when it is not faster than this, in metres per second.
_WALKING = 3.0
#: Metres after which a bus has noticed that it moves.
_MOVED = 4.0
_FAR = 1e6


@dataclass(frozen=True)
class Marks:
    """States in columns: each lasts until the next begins.

    Args:
        start: When each begins, ascending.
        trip: The trip.
        stop: Index of the stop at which the vehicle is; -1 between stops.
        next_stop: Index of the stop to come, or of the one at which it is.
        doors: Whether doors are open.
        behind: Seconds behind the mean of all variants, at the stop before.
        waiting: Whether it waits for the departure of its trip.
        upcoming: Whether its trip is not assigned yet.
    """

    start: Floats = field(repr=False)
    trip: Integers = field(repr=False)
    stop: Integers = field(repr=False)
    next_stop: Integers = field(repr=False)
    doors: Booleans = field(repr=False)
    behind: Floats = field(repr=False)
    waiting: Booleans = field(repr=False)
    upcoming: Booleans = field(repr=False)

    def at(self, second: Floats) -> Integers:
        """Find the marks that hold at some timetable seconds."""
        return np.searchsorted(self.start, second, side="right") - 1


class Schedule(NamedTuple):
    """What is planned, one row for every stop of every path in order: seconds since the departure of the trip."""

    path: Integers
    stop: Integers
    arrives: Floats
    departs: Floats


@dataclass(frozen=True)
class Milestones:
    """What is reported besides positions, in columns.

    Args:
        at: When it happens, ascending.
        kind: Index into `EVENTS`.
        trip: The trip.
        stop: Index of the stop that it is about; -1 if it is about none.
        arrival: Timetable second at which the vehicle should arrive at that stop.
        departure: Timetable second at which it should leave it.
        hold: Seconds between happening and being sent.
        light: Number of the traffic light; -1 if it is about none.
        attempt: Which request it is, for TLR and TLA.
    """

    at: Floats = field(repr=False)
    kind: NDArray[np.int8] = field(repr=False)
    trip: Integers = field(repr=False)
    stop: Integers = field(repr=False)
    arrival: Floats = field(repr=False)
    departure: Floats = field(repr=False)
    hold: Floats = field(repr=False)
    light: Integers = field(repr=False)
    attempt: Integers = field(repr=False)

    @cached_property
    def _by_second(self) -> NDArray[np.int32]:
        seconds = np.arange(int(self.at[-1]) + 3)
        return np.searchsorted(self.at, seconds, side="left").astype(np.int32)

    def before(self, second: Floats) -> NDArray[np.int32]:
        """Count the milestones before the whole second in which a moment lies; much cheaper than a sorted search."""
        table = self._by_second
        return table[np.minimum(second.astype(np.int64), len(table) - 1)]


class Moments:
    """The moments of all trips, computed once.

    Args:
        network: Lines and places.
        plan: Where vehicles halt.
        phases: How they move.
        begin: When each trip begins, with the layover.
        departure: When it leaves its first stop.
        end: When it is over.
        seed: Decides what is drawn.
    """

    def __init__(
        self,
        network: Network,
        plan: Itinerary,
        phases: Phases,
        *,
        begin: Floats,
        departure: Floats,
        end: Floats,
        seed: int,
    ) -> None:
        self._plan, self._phases, self._seed = plan, phases, seed
        self._begin, self._departure, self._end = begin, departure, end
        self._assigned = np.maximum(begin + 6.0, departure - _ASSIGNED)
        trips = np.arange(len(begin))
        sizes = np.bincount(plan.leg_trip, minlength=len(begin)) * PHASES + 1
        self._axis = np.repeat(trips * _FAR, sizes) + phases.distance
        self._modes = np.array([path.line.mode for path in network.paths])
        radius = np.array([HABITS[path.line.mode].radius for path in network.paths])
        self._visits(radius)

    def _passing(self, trip: Integers, metres: Floats) -> Floats:
        """Find when vehicles pass places of their trips."""
        phases = self._phases
        place = trip * _FAR + metres
        phase = np.searchsorted(self._axis, place, side="left") - 1
        way = np.maximum(place - self._axis[phase], 0.0)
        speed = phases.speed[phase]
        root = np.sqrt(np.maximum(speed**2 + 2 * phases.acceleration[phase] * way, 0.0))
        found: Floats = phases.start[phase] + 2 * way / np.maximum(speed + root, 1e-9)
        return found

    def _visits(self, radius: Floats) -> None:
        """Compute the moments of each visit of a stop."""
        plan, phases = self._plan, self._phases
        node = np.flatnonzero(plan.node_stop >= 0)
        trip, leg, at = plan.node_trip[node], plan.node_leg[node], plan.node_at[node]
        halts = plan.node_halts[node]
        first, last = leg < 0, np.append(trip[1:] != trip[:-1], np.array([True]))
        path = plan.trip_path[trip]
        due_at, arrive_at, left_at = radius[path].T
        departure, assigned, end = self._departure[trip], self._assigned[trip], self._end[trip]
        # The layover of each trip stands before its first leg.
        stand = np.where(leg < 0, 0, PHASES * (leg + 1) + trip)
        stood = np.where(first, assigned, phases.start[stand])
        firm = np.maximum(-phases.acceleration[stand - 1], 0.1)
        passing = np.where(first, assigned, self._passing(trip, at))
        moved = np.where(first, departure, np.where(last, end, np.where(halts, self._standing_ends(leg), passing)))
        gone = np.where(last, end, self._passing(trip, at + left_at))
        # A vehicle that is due before it has left the stop before is due right after that.
        left_before = np.where(first, assigned + 0.47, np.append(-np.inf, gone[:-1]) + 0.99)
        due = np.maximum(np.where(first, 0.0, self._passing(trip, np.maximum(at - due_at, 0.1))), left_before)
        arrived = np.maximum(np.where(first, 0.0, self._passing(trip, np.maximum(at - arrive_at, 0.1))), due + 0.003)
        here = np.where(halts, stood - np.where(first, 0.0, _WALKING / firm), passing)
        here = np.maximum(here, arrived + 0.01)
        opened = np.where(halts, np.maximum(stood + DOORS_OPEN_AFTER, here), here)
        closed = np.where(halts, np.minimum(opened + plan.node_open[node], moved - 1.0), here)
        # Doors are open for some minutes before the first departure, and until all have left at the last stop.
        opened = np.where(
            first, np.maximum(assigned + 2, departure - between(30, 160, self._draw("opened", node))), opened
        )
        closed = np.where(
            first, np.maximum(departure - 6, opened), np.where(last, np.minimum(opened + 22, end - 8), closed)
        )
        is_tram = self._modes[path] == "tram"
        noticed = np.where(is_tram, gone - 0.002, np.where(halts, self._passing(trip, at + _MOVED), gone))
        self._v = {
            "trip": trip,
            "stop": plan.node_stop[node],
            "first": first,
            "last": last,
            "halts": halts,
            "waits": plan.node_waits[node] & (moved - closed > 6),
            "due": due,
            "arrived": arrived,
            "here": here,
            "opened": opened,
            "closed": closed,
            "moved": moved,
            "noticed": noticed,
            "gone": gone,
        }
        self._schedule(departure)

    def _standing_ends(self, leg: Integers) -> Floats:
        plan = self._plan
        safe = np.maximum(leg, 0)
        ends: Floats = self._phases.start[PHASES * (safe + 1) + plan.leg_trip[safe]] + plan.leg_stand[safe]
        return ends

    def _draw(self, purpose: str, node: Integers) -> Floats:
        plan = self._plan
        trip = plan.node_trip[node]
        return uniform(self._seed, purpose, plan.trip_path[trip], plan.trip_variant[trip], node)

    def _schedule(self, departure: Floats) -> None:
        """Let the mean of all variants be the timetable, in whole seconds."""
        v = self._v
        stop = v["stop"]
        count = np.maximum(np.bincount(stop), 1)
        for moment, name in (("here", "arrival"), ("moved", "leaving")):
            after = np.where(v["first"], 0.0, v[moment] - departure)
            mean = np.round(np.bincount(stop, after) / count)
            v[name] = departure + mean[stop]
        v["late"] = np.where(v["first"], 0.0, v["here"] - v["arrival"])
        v["late_leaving"] = np.where(v["first"] | v["last"], v["late"], v["moved"] - v["leaving"])

    def schedule(self) -> Schedule:
        """Give the planned times of every stop of every path."""
        v = self._v
        # Every variant has the same.
        _, row = np.unique(v["stop"], return_index=True)
        departure = self._departure[v["trip"][row]]
        arrives, departs = v["arrival"][row] - departure, v["leaving"][row] - departure
        return Schedule(self._plan.trip_path[v["trip"][row]], v["stop"][row], arrives, np.maximum(departs, arrives))

    def marks(self) -> Marks:
        """Give the states of all trips in the order of time."""
        v = self._v
        visits = len(v["stop"])
        nobody = np.full(visits, -1)
        following = np.where(v["last"], v["stop"], np.append(v["stop"][1:], -1))
        late_before = np.where(v["first"], 0.0, np.append(0.0, v["late_leaving"][:-1]))
        no, yes = np.zeros(visits, dtype=bool), np.ones(visits, dtype=bool)
        # At each visit: arriving, at the stop, doors open, doors closed, moving off, gone.
        rows = [
            (v["arrived"], v["stop"], v["stop"], no, late_before, v["first"]),
            (v["here"], v["stop"], v["stop"], no, v["late"], v["first"]),
            (v["opened"], v["stop"], v["stop"], v["opened"] < v["closed"], v["late"], v["first"]),
            (v["closed"], v["stop"], v["stop"], no, v["late"], v["first"]),
            (v["moved"], v["stop"], v["stop"], no, v["late_leaving"], no),
            (v["gone"], np.where(v["last"], v["stop"], nobody), following, no, v["late_leaving"], no),
        ]
        start, stop, next_stop, doors, behind, waiting = (
            np.stack([row[column] for row in rows], axis=1).ravel() for column in range(6)
        )
        trip = np.repeat(v["trip"], 6)
        first = np.flatnonzero(v["first"])
        trips = v["trip"][first]
        # Before a trip is assigned, and right after.
        for moment, upcoming in ((self._begin, True), (self._assigned, False)):
            start = np.append(start, moment[trips])
            stop = np.append(stop, np.full(len(first), -1))
            next_stop = np.append(next_stop, v["stop"][first])
            doors, waiting = np.append(doors, no[first]), np.append(waiting, yes[first])
            behind, trip = np.append(behind, np.zeros(len(first))), np.append(trip, trips)
            if upcoming:
                waits_for_trip = np.append(np.zeros(6 * visits, dtype=bool), yes[first])
            else:
                waits_for_trip = np.append(waits_for_trip, no[first])
        # A trip's own marks come before those of the trip that begins in the same moment.
        order = np.lexsort((trip, start))
        return Marks(
            *(column[order] for column in (start, trip, stop, next_stop, doors, behind, waiting, waits_for_trip))
        )

    def milestones(self) -> Milestones:
        """Give everything that is reported, in the order of time."""
        v = self._v
        served, goes_on = v["halts"], ~v["last"]
        held = np.where(v["noticed"] < v["gone"] - 0.1, v["gone"] - v["noticed"], 0.0)
        at_stops = [
            ("DUE", v["due"], served | ~served, None),
            ("ARR", v["arrived"], served | ~served, None),
            ("ARS", v["here"], served, None),
            ("DOO", v["opened"], served & (v["opened"] < v["closed"]), None),
            ("DOC", v["closed"], served & (v["opened"] < v["closed"]), None),
            ("WAIT", v["closed"] + 2.0, v["waits"], None),
            ("PDE", v["noticed"], served & goes_on, held),
            ("PAS", v["gone"] - 0.002, ~served, None),
            ("DEP", v["gone"], goes_on, None),
        ]
        parts = []
        for name, moment, rows, hold in at_stops:
            chosen = np.flatnonzero(rows)
            parts.append(
                self._part(
                    name,
                    moment[chosen],
                    v["trip"][chosen],
                    stop=v["stop"][chosen],
                    arrival=v["arrival"][chosen],
                    departure=v["leaving"][chosen],
                    hold=None if hold is None else hold[chosen],
                )
            )
        parts += self._at_lights()
        parts += self._of_trips()
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        order = np.argsort(columns[0], kind="stable")
        return Milestones(*(column[order] for column in columns))

    def _at_lights(self) -> list[tuple[NDArray[np.generic], ...]]:
        plan = self._plan
        # Every other light can be asked.
        node = np.flatnonzero((plan.node_light >= 0) & (plan.node_light % 2 == 0))
        trip, light = plan.node_trip[node], plan.node_light[node]
        asked = self._passing(trip, plan.node_at[node] - between(60, 100, self._draw("asks", node)))
        attempts = 1 + np.floor(4 * self._draw("attempts", node)).astype(np.int64)
        parts = []
        for attempt in range(1, 5):
            rows = attempts >= attempt
            parts.append(self._part("TLR", asked[rows] + attempt - 1, trip[rows], light=light[rows], attempt=attempt))
            answered = (attempts == attempt) & (self._draw("answered", node) < 0.6)
            parts.append(
                self._part(
                    "TLA", asked[answered] + attempt - 0.6, trip[answered], light=light[answered], attempt=attempt
                )
            )
        return parts

    def _of_trips(self) -> list[tuple[NDArray[np.generic], ...]]:
        trips = np.arange(len(self._begin))
        return [
            self._part("DA", self._assigned - 5.0, trips),
            self._part("BA", self._assigned - 3.0, trips),
            self._part("VJA", self._assigned, trips),
            self._part("VJOUT", self._end - 6.0, trips),
            self._part("BOUT", self._end - 4.0, trips),
            self._part("DOUT", self._end - 2.0, trips),
        ]

    @staticmethod
    def _part(
        name: str,
        at: Floats,
        trip: Integers,
        *,
        stop: Integers | int = -1,
        arrival: Floats | float = np.nan,
        departure: Floats | float = np.nan,
        hold: Floats | None = None,
        light: Integers | int = -1,
        attempt: int = 0,
    ) -> tuple[NDArray[np.generic], ...]:
        rows = len(at)

        def filled(value: Integers | Floats | float, kind: type) -> NDArray[np.generic]:
            return np.broadcast_to(np.asarray(value, dtype=kind), (rows,))

        return (
            at,
            np.full(rows, KIND[name], dtype=np.int8),
            trip,
            filled(stop, np.int64),
            filled(arrival, np.float64),
            filled(departure, np.float64),
            filled(0.0 if hold is None else hold, np.float64),
            filled(light, np.int64),
            filled(attempt, np.int64),
        )
