"""Where vehicles halt: which stops are served and which lights are red, for every trip of every variant.

An itinerary is the list of **nodes** of each trip (stops, traffic lights) in the order in which they are passed, and
the list of **legs** from one halt to the next. Lights belong to the network: they are at the same places for every
seed. Which of them are red, and at which stops nobody wants to get on or off, is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from headrace_transit.simulator.chance import between, uniform
from headrace_transit.simulator.driving import HABITS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace_transit.simulator.driving import Habits
    from headrace_transit.simulator.network import Network, Path

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]
    Booleans = NDArray[np.bool_]

#: Seconds between standing and open doors, and between closed doors and moving off.
DOORS_OPEN_AFTER, MOVE_AFTER_DOORS = 0.5, 3.5
#: Seconds at the last stop of a trip.
LAST_DWELL = 30.0
_ROOM_FOR_LIGHT = 180.0


@dataclass(frozen=True)
class Itinerary:
    """Nodes and legs of all trips, in columns; trips are ordered by line, variant and direction.

    Args:
        trip_path: The path of each trip.
        trip_variant: Its variant.
        node_trip: The trip of each node.
        node_at: Metres from the beginning of the path.
        node_stop: Index of the stop (into the stops of all paths, one after the other), -1 for a light.
        node_light: Number of the light, -1 for a stop.
        node_halts: Whether the vehicle halts there.
        node_leg: The leg that leads to the node, or past it; -1 for the first stop.
        node_open: Seconds that doors are open there.
        node_waits: Whether it waits there with closed doors before it departs.
        leg_trip: The trip of each leg.
        leg_number: Its number within the trip.
        leg_begin: Where it begins, in metres from the beginning of the path.
        leg_length: Metres.
        leg_stand: Seconds at its end.
        first_leg: The first leg of each trip.
    """

    trip_path: Integers = field(repr=False)
    trip_variant: Integers = field(repr=False)
    node_trip: Integers = field(repr=False)
    node_at: Floats = field(repr=False)
    node_stop: Integers = field(repr=False)
    node_light: Integers = field(repr=False)
    node_halts: Booleans = field(repr=False)
    node_leg: Integers = field(repr=False)
    node_open: Floats = field(repr=False)
    node_waits: Booleans = field(repr=False)
    leg_trip: Integers = field(repr=False)
    leg_number: Integers = field(repr=False)
    leg_begin: Floats = field(repr=False)
    leg_length: Floats = field(repr=False)
    leg_stand: Floats = field(repr=False)
    first_leg: Integers = field(repr=False)

    @classmethod
    def of(cls, network: Network, *, variants: int, seed: int) -> Itinerary:
        """Draw the halts of every trip.

        Args:
            network: Lines and places.
            variants: How many ways there are to drive a round.
            seed: Decides what is drawn.
        """
        stops = np.array([len(path.stops) for path in network.paths])
        first_stop = np.concatenate([[0], np.cumsum(stops)[:-1]])
        nodes = [
            _nodes(index, path, int(first_stop[index]), HABITS[path.line.mode])
            for index, path in enumerate(network.paths)
        ]
        order = [
            (2 * line + direction, variant)
            for line in range(len(network.lines))
            for variant in range(variants)
            for direction in (0, 1)
        ]
        trip_path = np.array([path for path, _ in order])
        trip_variant = np.array([variant for _, variant in order])
        sizes = np.array([len(nodes[path][0]) for path, _ in order])
        node_trip = np.repeat(np.arange(len(order)), sizes)
        node_at, node_stop, node_light = (
            np.concatenate([nodes[path][column] for path, _ in order]) for column in range(3)
        )
        first_node = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        rank = np.arange(len(node_trip)) - first_node[node_trip]
        last_node = rank == sizes[node_trip] - 1
        path = trip_path[node_trip]
        keys = (path, trip_variant[node_trip], rank)
        habits = [HABITS[entry.line.mode] for entry in network.paths]
        is_stop = node_stop >= 0
        passed = uniform(seed, "passed", *keys) < np.array([habit.passed for habit in habits])[path]
        red = uniform(seed, "red", *keys) < np.array([habit.red for habit in habits])[path]
        halts = np.where(is_stop, ~passed, red) | (rank == 0) | last_node
        waits = is_stop & halts & (uniform(seed, "waits", *keys) < 0.08) & (rank > 0) & ~last_node
        doors = _open_doors(keys, seed, habits)
        stand = _stands(keys, seed, np.where(is_stop, doors, -1.0), waits)
        stand[last_node] = LAST_DWELL
        ends = np.flatnonzero(halts & (rank > 0))
        begins = np.flatnonzero(halts & ~last_node)
        leg_trip = node_trip[ends]
        first_leg = np.searchsorted(leg_trip, np.arange(len(order)))
        node_leg = np.searchsorted(ends, np.arange(len(node_trip)))
        node_leg[rank == 0] = -1
        return cls(
            trip_path=trip_path,
            trip_variant=trip_variant,
            node_trip=node_trip,
            node_at=node_at,
            node_stop=node_stop,
            node_light=node_light,
            node_halts=halts,
            node_leg=node_leg,
            node_open=doors,
            node_waits=waits,
            leg_trip=leg_trip,
            leg_number=np.arange(len(ends)) - first_leg[leg_trip],
            leg_begin=node_at[begins],
            leg_length=node_at[ends] - node_at[begins],
            leg_stand=stand[ends],
            first_leg=first_leg,
        )


def _nodes(index: int, path: Path, first_stop: int, habits: Habits) -> tuple[Floats, Integers, Integers]:
    """List stops and lights of a path in order: metres, index of the stop or -1, number of the light or -1."""
    hops = np.arange(1, len(path.stops))
    begin, length = path.stops[:-1], np.diff(path.stops)
    # The same for every seed: a light is part of the network.
    here = (uniform(0, "light", index, hops) < habits.lights) & (length > _ROOM_FOR_LIGHT)
    where = begin + length * between(0.4, 0.65, uniform(0, "light at", index, hops))
    at = np.concatenate([path.stops, where[here]])
    stop = np.concatenate([first_stop + np.arange(len(path.stops)), np.full(int(here.sum()), -1)])
    light = np.concatenate([np.full(len(path.stops), -1), 1000 + 100 * index + hops[here]])
    order = np.argsort(at, kind="stable")
    return at[order], stop[order].astype(np.int64), light[order].astype(np.int64)


def _open_doors(keys: tuple[Integers, Integers, Integers], seed: int, habits: list[Habits]) -> Floats:
    """Draw for how many whole seconds doors are open at each node, if it is a stop where the vehicle halts."""
    least, most = (np.array([habit.doors[side] for habit in habits])[keys[0]] for side in (0, 1))
    seconds: Floats = np.round(least + (most - least) * uniform(seed, "doors", *keys))
    return seconds


def _stands(keys: tuple[Integers, Integers, Integers], seed: int, doors: Floats, waits: Booleans) -> Floats:
    """Draw how long a vehicle stands at each node, if it halts; -1 for the doors means a light."""
    at_stop = doors + DOORS_OPEN_AFTER + MOVE_AFTER_DOORS
    at_stop += np.where(waits, between(5, 40, uniform(seed, "wait for", *keys)), 0.0)
    # Half of the red lights turn green within nine seconds.
    at_light = 3 + 45 * uniform(seed, "red for", *keys) ** 3
    return np.where(doors >= 0, at_stop, at_light)
