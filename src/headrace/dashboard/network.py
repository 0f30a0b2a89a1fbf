"""The lines and stops of the simulated city as GeoJSON, to be drawn on the base map."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from headrace.extras import missing

if TYPE_CHECKING:
    from headrace.transit.simulator.network import Network, Path

#: A point every so many steps of a path (10 m each), and decimals of a degree (a metre): enough for a map.
_THINNING = 5
_DECIMALS = 5


def network_features(network: Network) -> dict[str, Any]:
    """Lines (one way of each) and stops (of both ways) of a network.

    >>> from headrace.transit.simulator.helsinki import helsinki
    >>> shown = network_features(helsinki())
    >>> shown["type"], {feature["properties"]["kind"] for feature in shown["features"]} == {"line", "stop"}
    ('FeatureCollection', True)
    """
    lines = [_line(path) for path in network.paths if path.direction == 1]
    stops: dict[int, dict[str, Any]] = {}
    for path in network.paths:
        names = _names(network)
        for number, at in zip(path.stop_ids.tolist(), path.stops.tolist(), strict=True):
            if number not in stops:
                stops[number] = _stop(path, number, at, names.get(number, ""))
    return {"type": "FeatureCollection", "features": [*lines, *stops.values()]}


@cache
def city() -> dict[str, Any]:
    """The simulator's city; nothing where the extra is not installed that brings the simulator."""
    if missing("transit"):
        return {"type": "FeatureCollection", "features": []}
    from headrace.transit.simulator.helsinki import helsinki

    return network_features(helsinki())


def _names(network: Network) -> dict[int, str]:
    # The stops at a line's places have the numbers of these places, in order from 1000 on.
    return {1000 + index: place for index, place in enumerate(network.places)}


def _line(path: Path) -> dict[str, Any]:
    indices = [*range(0, len(path.latitude) - 1, _THINNING), len(path.latitude) - 1]
    return {
        "type": "Feature",
        "properties": {"kind": "line", "name": path.line.name, "mode": path.line.mode},
        "geometry": {"type": "LineString", "coordinates": [_position(path, index) for index in indices]},
    }


def _stop(path: Path, number: int, at: float, name: str) -> dict[str, Any]:
    from headrace.transit.simulator.network import STEP

    index = min(round(at / STEP), len(path.latitude) - 1)
    return {
        "type": "Feature",
        "properties": {"kind": "stop", "id": number, "name": name, "mode": path.line.mode},
        "geometry": {"type": "Point", "coordinates": _position(path, index)},
    }


def _position(path: Path, index: int) -> list[float]:
    return [round(float(path.longitude[index]), _DECIMALS), round(float(path.latitude[index]), _DECIMALS)]
