"""The simulated fleet's timetable as a GTFS feed.

The fleet runs every line both ways all day, and a trip is named by the minute in which it starts. So the feed has one
trip per line and direction, with its stops and its times between them, that starts every minute of the operating day
(`frequencies.txt`). It serves any fleet on the same network, whatever its size, seed and day.
"""

from __future__ import annotations

import logging
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from headrace_transit.gtfs import WEEKDAYS, final_stops
from headrace_transit.simulator.helsinki import helsinki
from headrace_transit.simulator.network import STEP
from headrace_transit.simulator.timetable import Timetable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace_transit.simulator.network import Network

log = logging.getLogger(__name__)

#: GTFS's numbers for kinds of vehicles.
_ROUTE_TYPES = {"tram": 0, "metro": 1, "train": 2, "bus": 3}
#: The operating day of the fleet: a trip that starts before half past four belongs to the day before.
_FIRST, _LAST = "04:30:00", "28:30:00"


def write_feed(directory: Path, *, network: Network | None = None, seed: int = 1) -> Path:
    """Write the feed of the simulated fleet.

    Args:
        directory: Where to write the text files; it is made if it is not there.
        network: Lines and places; the Helsinki region unless told otherwise.
        seed: That of the fleet, which decides how long trips take; where they go does not depend on it.

    Returns:
        The directory.
    """
    network = network or helsinki()
    directory.mkdir(parents=True, exist_ok=True)
    tables = {
        "agency": pl.DataFrame(
            {
                "agency_id": ["SIM"],
                "agency_name": ["Simulated fleet"],
                "agency_url": ["https://example.org"],
                "agency_timezone": ["Europe/Helsinki"],
            }
        ),
        "stops": _stops(network),
        "routes": _routes(network),
        "trips": _trips(network),
        "stop_times": _stop_times(network, seed),
        "frequencies": _trips(network).select(
            "trip_id",
            start_time=pl.lit(_FIRST),
            end_time=pl.lit(_LAST),
            headway_secs=pl.lit(60),
            exact_times=pl.lit(1),
        ),
        "calendar": pl.DataFrame(
            {
                "service_id": ["daily"],
                **{day: [1] for day in WEEKDAYS},
                "start_date": ["20200101"],
                "end_date": ["20391231"],
            }
        ),
    }
    for name, table in tables.items():
        table.write_csv(directory / f"{name}.txt")
    return directory


def simulated_final_stops() -> pl.DataFrame:
    """Tell where the trips of the simulated fleet end, by way of its feed."""
    with tempfile.TemporaryDirectory(prefix="headrace-gtfs-") as directory:
        return final_stops(write_feed(Path(directory)))


def has_simulated_stop(column: str) -> pl.Expr:
    """Tell for a column of next stops which are stops of the simulated network; null is none.

    Lines of the simulated network have the names of real ones, its stops do not have the numbers of real stops: this
    tells reports of the simulated fleet from those of real vehicles on the same route.
    """
    # The function of this name can be sent to workers; the method `map_batches` of an expression cannot.
    return pl.map_batches([column], _are_simulated, return_dtype=pl.Boolean)


def _are_simulated(columns: Sequence[pl.Series]) -> pl.Series:
    stops = columns[0]
    # The network takes a while to build, so a worker does it when the first reports come, and not when jobs are listed.
    known = stops.is_in(simulated_stops().implode()).fill_null(value=False)
    if not known.all():
        _warn_of_real_vehicles()
    return known


@cache
def simulated_stops() -> pl.Series:
    """Give the numbers of the stops of the simulated network."""
    numbers = np.unique(np.concatenate([path.stop_ids for path in helsinki().paths]))
    return pl.Series(numbers).cast(pl.String)


@cache
def _warn_of_real_vehicles() -> None:
    """Say it once per process; the counter tells how many there are."""
    log.warning(
        "reports come from vehicles that are not of the simulated fleet, and no timetable is set: they get no final "
        "stop. Set transit.gtfs or transit.routing_url."
    )


def _trip_id(route: str, direction: int) -> str:
    return f"{route}-{direction}"


def _stops(network: Network) -> pl.DataFrame:
    rows = []
    for path in network.paths:
        # Lines that end at the same place share its stop, each with a platform of its own: the place is the stop's.
        first, last = (path.line.places[end] for end in ((0, -1) if path.direction == 1 else (-1, 0)))
        rows.append((str(path.stop_ids[0]), *network.places[first]))
        rows.append((str(path.stop_ids[-1]), *network.places[last]))
    for path in network.paths:
        steps = np.clip(np.round(path.stops / STEP).astype(np.int64), 0, len(path.latitude) - 1)
        for number, step in zip(path.stop_ids.tolist(), steps.tolist(), strict=True):
            rows.append((str(number), float(path.latitude[step]), float(path.longitude[step])))
    stops = pl.DataFrame(rows, schema=["stop_id", "stop_lat", "stop_lon"], orient="row").unique(
        "stop_id", keep="first", maintain_order=True
    )
    return stops.with_columns(
        stop_name=pl.format("Stop {}", "stop_id"),
        stop_lat=pl.col("stop_lat").round(6),
        stop_lon=pl.col("stop_lon").round(6),
    )


def _routes(network: Network) -> pl.DataFrame:
    return pl.DataFrame(
        [
            {
                "route_id": path.route,
                "agency_id": "SIM",
                "route_short_name": path.line.name,
                "route_long_name": " - ".join((path.line.places[0], path.line.places[-1])),
                "route_type": _ROUTE_TYPES.get(path.line.mode, 3),
            }
            for path in network.paths[::2]
        ]
    )


def _trips(network: Network) -> pl.DataFrame:
    return pl.DataFrame(
        [
            {
                "route_id": path.route,
                "service_id": "daily",
                "trip_id": _trip_id(path.route, path.direction),
                "trip_headsign": path.headsign,
                "direction_id": path.direction - 1,
            }
            for path in network.paths
        ]
    )


def _stop_times(network: Network, seed: int) -> pl.DataFrame:
    table = Timetable.of(network, seed=seed)
    plan = table.schedule
    rows = pl.DataFrame(
        {
            "path": plan.path,
            "stop_id": [str(number) for number in table.stop_ids[plan.stop]],
            # Seconds since the trip left its first stop.
            "arrives": plan.arrives.astype(np.int64),
            "departs": plan.departs.astype(np.int64),
        }
    )
    names = [_trip_id(path.route, path.direction) for path in network.paths]
    order = pl.int_range(1, pl.len() + 1).over("path")
    return rows.select(
        pl.col("path").replace_strict(dict(enumerate(names)), return_dtype=pl.String).alias("trip_id"),
        _clock(pl.col("arrives")).alias("arrival_time"),
        _clock(pl.col("departs")).alias("departure_time"),
        "stop_id",
        order.alias("stop_sequence"),
    )


def _clock(seconds: pl.Expr) -> pl.Expr:
    parts = [seconds // 3600, seconds // 60 % 60, seconds % 60]
    return pl.concat_str([part.cast(pl.String).str.pad_start(2, "0") for part in parts], separator=":")
