"""The lines and stops of the simulated city as GeoJSON, to be drawn on the base map."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from headrace.dashboard.defaults import PageDefaults
from headrace_transit.simulator.helsinki import helsinki
from headrace_transit.topics import STOP_EVENTS, VEHICLE_POSITIONS

if TYPE_CHECKING:
    from headrace_transit.simulator.network import Network, Path

#: A point every so many steps of a path (10 m each), and decimals of a degree (a metre): enough for a map.
_THINNING = 5
_DECIMALS = 5
#: The colour of a line on the map, by its mode: a number from 0 to 4.
_COLOURS = {"bus": 0, "tram": 1, "metro": 2, "train": 3, "ferry": 4}
#: Towns on the map: longitude, latitude, and a rank from 1. Places are approximate, written by hand.
_TOWNS = {
    "Helsinki": (24.941, 60.17, 1),
    "Tallinn": (24.753, 59.437, 1),
    "Espoo": (24.656, 60.206, 2),
    "Vantaa": (25.04, 60.294, 2),
    "Kerava": (25.105, 60.403, 3),
    "Järvenpää": (25.09, 60.474, 3),
    "Tuusula": (25.03, 60.403, 3),
    "Sipoo": (25.27, 60.377, 3),
    "Kirkkonummi": (24.44, 60.123, 3),
    "Porvoo": (25.665, 60.393, 3),
    "Nurmijärvi": (24.807, 60.464, 3),
}


def network_features(network: Network) -> dict[str, Any]:
    """Lines (one way of each) and stops (of both ways) of a network, and the towns around it.

    >>> shown = network_features(helsinki())
    >>> shown["type"], {feature["properties"]["kind"] for feature in shown["features"]} == {"line", "stop", "town"}
    ('FeatureCollection', True)
    """
    lines = [_line(path) for path in network.paths if path.direction == 1]
    stops: dict[int, dict[str, Any]] = {}
    for path in network.paths:
        names = _names(network)
        for number, at in zip(path.stop_ids.tolist(), path.stops.tolist(), strict=True):
            if number not in stops:
                stops[number] = _stop(path, number, at, names.get(number, ""))
    return {"type": "FeatureCollection", "features": [*lines, *stops.values(), *_towns()]}


@cache
def city() -> dict[str, Any]:
    """The simulator's city."""
    return network_features(helsinki())


def _names(network: Network) -> dict[int, str]:
    # The stops at a line's places have the numbers of these places, in order from 1000 on.
    return {1000 + index: place for index, place in enumerate(network.places)}


def _towns() -> list[dict[str, Any]]:
    return [
        {
            "type": "Feature",
            "properties": {"kind": "town", "name": name, "rank": rank},
            "geometry": {"type": "Point", "coordinates": [longitude, latitude]},
        }
        for name, (longitude, latitude, rank) in _TOWNS.items()
    ]


def _line(path: Path) -> dict[str, Any]:
    indices = [*range(0, len(path.latitude) - 1, _THINNING), len(path.latitude) - 1]
    return {
        "type": "Feature",
        "properties": {"kind": "line", "name": path.line.name, "colour": _COLOURS[path.line.mode]},
        "geometry": {"type": "LineString", "coordinates": [_position(path, index) for index in indices]},
    }


def _stop(path: Path, number: int, at: float, name: str) -> dict[str, Any]:
    from headrace_transit.simulator.network import STEP

    index = min(round(at / STEP), len(path.latitude) - 1)
    return {
        "type": "Feature",
        "properties": {"kind": "stop", "id": number, "name": name},
        "geometry": {"type": "Point", "coordinates": _position(path, index)},
    }


def _position(path: Path, index: int) -> list[float]:
    return [round(float(path.longitude[index]), _DECIMALS), round(float(path.latitude[index]), _DECIMALS)]


page = PageDefaults("helsinki", city, center=(24.94, 60.19), zoom=10.5, topics=(VEHICLE_POSITIONS, STOP_EVENTS))
