"""Where simulated vehicles go: places, lines, and the paths they make on the ground.

A line runs in two directions; each direction is a `Path`: a smooth curve through the line's places, shifted a few
metres to the right of the middle (traffic keeps right), cut into equal steps, with stops at distances along it.
`headrace_transit.simulator.helsinki` holds the table of places and lines that the simulator uses unless told otherwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal, get_args

import numpy as np

from headrace.errors import PlanError
from headrace.geo import EARTH_RADIUS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

Mode = Literal["tram", "bus", "train", "metro"]
_MODES: tuple[Mode, ...] = get_args(Mode)

#: Length in metres of the steps a path is cut into.
STEP = 10.0
_RIGHT_OF_MIDDLE = 4.0


def mode_of(text: str) -> Mode:
    """Read a mode.

    >>> mode_of("tram")
    'tram'
    """
    for mode in _MODES:
        if mode == text:
            return mode
    raise PlanError(f"mode {text!r} is unknown", hint=f"Use one of {', '.join(_MODES)}.")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the network.

    Args:
        name: What the sign on the vehicle says, such as "4" or "M1".
        mode: The kind of vehicle.
        operator: Number of the company that runs it.
        places: Way points from one end to the other, keys of the network's places.
        headway: Minutes between two vehicles; decides the line's share of the fleet.
    """

    name: str
    mode: Mode
    operator: int
    places: tuple[str, ...]
    headway: float = 10.0


@dataclass(frozen=True)
class Path:
    """One direction of a line on the ground.

    Args:
        line: The line.
        direction: 1 in the order of the line's places, 2 against it.
        latitude: Degrees north at each step of `STEP` metres.
        longitude: Degrees east at each step.
        stops: Distance of each stop from the beginning, in metres, ascending; the first is 0.
        stop_ids: A number for each stop.
    """

    line: Line
    direction: int
    latitude: Floats = field(repr=False)
    longitude: Floats = field(repr=False)
    stops: Floats = field(repr=False)
    stop_ids: NDArray[np.int64] = field(repr=False)

    @property
    def headsign(self) -> str:
        """The name of the last place."""
        return self.line.places[-1 if self.direction == 1 else 0]

    @property
    def route(self) -> str:
        """A code for the line that is unique among modes, in the form of HSL's: 1006, 2550, 3001K, 31M1."""
        name = self.line.name
        if self.line.mode == "metro":
            return f"31{name}"
        if self.line.mode == "train":
            return f"300{1 if name in _NORTHBOUND else 2}{name}"
        region = 1 if self.line.mode == "tram" or not name.isdigit() or int(name) < 100 else 2 if int(name) < 600 else 4
        return f"{region}{name:0>3}"

    @property
    def length(self) -> float:
        """Metres from the first stop to the last."""
        return float(self.stops[-1])


@dataclass(frozen=True)
class Network:
    """Places and the lines that join them.

    >>> Network({"A": (60.1, 24.9), "B": (60.2, 24.9)}, (Line("1", "tram", 40, ("A", "B")),)).paths[0].headsign
    'B'
    """

    places: Mapping[str, tuple[float, float]]
    lines: tuple[Line, ...]

    def __post_init__(self) -> None:
        for line in self.lines:
            unknown = [place for place in line.places if place not in self.places]
            if unknown:
                raise PlanError(
                    f"line {line.name} goes through unknown places {unknown}", hint="Add them to the places."
                )
            if len(line.places) < 2:
                raise PlanError(f"line {line.name} has fewer than two places", hint="Give it a beginning and an end.")

    @cached_property
    def paths(self) -> tuple[Path, ...]:
        """Both directions of each line: `paths[2 * i]` and `paths[2 * i + 1]` belong to `lines[i]`."""
        number = {place: 1000 + index for index, place in enumerate(self.places)}
        return tuple(
            _path(line, direction, self.places, number, 100_000 + 1000 * index)
            for index, line in enumerate(self.lines)
            for direction in (1, 2)
        )


#: Metres between two stops where a line has more stops than places; trains and metro stop at the places alone.
_STOP_SPACING: dict[Mode, float] = {"tram": 450.0, "bus": 600.0}
#: Trains to the north have another number than those to the west.
_NORTHBOUND = ("D", "H", "I", "K", "N", "R", "T", "Z")


def _path(
    line: Line, direction: int, places: Mapping[str, tuple[float, float]], number: Mapping[str, int], first_id: int
) -> Path:
    names = line.places if direction == 1 else line.places[::-1]
    corners = np.array([places[name] for name in names])
    north, east, corner_index = _curve(corners[:, 0], corners[:, 1])
    # Measured after the shift, since the outer side of a bend is longer than the inner.
    north, east = _shifted(north, east)
    distances = _distances(north, east)
    at_corner = distances[corner_index]
    # The path goes straight on for a little, so that the step in which the last stop lies is a whole one.
    beyond = 5 * STEP / (distances[-1] - distances[-2])
    north = np.append(north, north[-1] + beyond * (north[-1] - north[-2]))
    east = np.append(east, east[-1] + beyond * (east[-1] - east[-2]))
    distances = np.append(distances, distances[-1] + 5 * STEP)
    along = np.arange(0.0, at_corner[-1] + 2 * STEP, STEP)
    latitude, longitude = _degrees(np.interp(along, distances, north), np.interp(along, distances, east))
    stops, ids = [0.0], [number[names[0]]]
    for leg, name in enumerate(names[1:]):
        begin, end = float(at_corner[leg]), float(at_corner[leg + 1])
        between = 0
        if line.mode in _STOP_SPACING:
            between = max(0, round((end - begin) / _STOP_SPACING[line.mode]) - 1)
        stops += [begin + (end - begin) * k / (between + 1) for k in range(1, between + 2)]
        ids += [first_id + 500 * (direction - 1) + len(ids) + k for k in range(between)] + [number[name]]
    return Path(line, direction, latitude, longitude, np.array(stops), np.array(ids, dtype=np.int64))


def _curve(latitude: Floats, longitude: Floats) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Join the corners by a centripetal Catmull-Rom spline, in metres north and east of the network's middle."""
    north, east = _metres(latitude, longitude)
    points = np.column_stack([north, east])
    # A mirrored point at either end gives the first and last leg a direction.
    points = np.vstack([2 * points[0] - points[1], points, 2 * points[-1] - points[-2]])
    pieces, corner_index = [points[1:2]], [0]
    for p0, p1, p2, p3 in zip(points, points[1:], points[2:], points[3:], strict=False):
        count = max(4, math.ceil(float(np.hypot(*(p2 - p1))) / 5.0))
        t0 = 0.0
        t1 = t0 + float(np.hypot(*(p1 - p0))) ** 0.5
        t2 = t1 + float(np.hypot(*(p2 - p1))) ** 0.5
        t3 = t2 + float(np.hypot(*(p3 - p2))) ** 0.5
        t = np.linspace(t1, t2, count + 1)[1:, None]
        a1 = (t1 - t) / (t1 - t0) * p0 + (t - t0) / (t1 - t0) * p1
        a2 = (t2 - t) / (t2 - t1) * p1 + (t - t1) / (t2 - t1) * p2
        a3 = (t3 - t) / (t3 - t2) * p2 + (t - t2) / (t3 - t2) * p3
        b1 = (t2 - t) / (t2 - t0) * a1 + (t - t0) / (t2 - t0) * a2
        b2 = (t3 - t) / (t3 - t1) * a2 + (t - t1) / (t3 - t1) * a3
        pieces.append((t2 - t) / (t2 - t1) * b1 + (t - t1) / (t2 - t1) * b2)
        corner_index.append(corner_index[-1] + count)
    curve = np.vstack(pieces)
    return curve[:, 0], curve[:, 1], np.array(corner_index)


_MIDDLE = (60.2, 24.9)
_METRES_NORTH = math.radians(1) * EARTH_RADIUS
_METRES_EAST = _METRES_NORTH * math.cos(math.radians(_MIDDLE[0]))


def _metres(latitude: Floats, longitude: Floats) -> tuple[Floats, Floats]:
    return (latitude - _MIDDLE[0]) * _METRES_NORTH, (longitude - _MIDDLE[1]) * _METRES_EAST


def _degrees(north: Floats, east: Floats) -> tuple[Floats, Floats]:
    return _MIDDLE[0] + north / _METRES_NORTH, _MIDDLE[1] + east / _METRES_EAST


def _distances(north: Floats, east: Floats) -> Floats:
    return np.concatenate([[0.0], np.cumsum(np.hypot(np.diff(north), np.diff(east)))])


def _shifted(north: Floats, east: Floats) -> tuple[Floats, Floats]:
    """Move a curve to the right of its own direction."""
    ahead_north, ahead_east = np.gradient(north), np.gradient(east)
    length = np.maximum(np.hypot(ahead_north, ahead_east), 1e-9)
    return (
        north - _RIGHT_OF_MIDDLE * ahead_east / length,
        east + _RIGHT_OF_MIDDLE * ahead_north / length,
    )
