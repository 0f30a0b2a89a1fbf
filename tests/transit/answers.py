"""The six jobs as plain batch computations, sharing no code with Headrace: Polars, loops, and the `h3` package.

Every function takes frames of events as they come out of Kafka and gives a frame of results, as if nothing was late:
a row belongs to every window [k * every, k * every + size) that holds its event time. No slices, no watermarks, no
merging: each row is copied into each of its windows.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import h3
import polars as pl
from h3.api import basic_int

if TYPE_CHECKING:
    from collections.abc import Callable

SECOND = 1_000_000
RESOLUTION = 9
LONGEST_JUMP = 10
FORGET = 300 * SECOND


def cells(rows: pl.DataFrame) -> pl.DataFrame:
    """Add the map cell, one call per row; rows without a position go."""
    known = rows.filter(pl.col("latitude").is_not_null() & pl.col("longitude").is_not_null())
    places = zip(known["latitude"].to_list(), known["longitude"].to_list(), strict=True)
    found = [h3.str_to_int(h3.latlng_to_cell(*place, RESOLUTION)) for place in places]
    return known.with_columns(pl.Series("cell", found, dtype=pl.UInt64))


def in_windows(rows: pl.DataFrame, size: int, every: int) -> pl.DataFrame:
    """Copy each row into all of its windows; `window` is the end, in seconds."""
    time = pl.col("event_time").dt.timestamp("us")
    newest = time - time % (every * SECOND)
    starts = [newest - step * every * SECOND for step in range(size // every)]
    return (
        rows.with_columns(pl.concat_list(starts).alias("start"))
        .explode("start")
        .with_columns(window=pl.col("start") // SECOND + size)
        .drop("start")
    )


def newest_per_vehicle(rows: pl.DataFrame) -> pl.DataFrame:
    """Keep the newest row of each vehicle in each window; of equal times, the largest cell."""
    return rows.sort("event_time", "cell").group_by("window", "vehicle_id").last()


def vehicle_distribution(positions: pl.DataFrame) -> pl.DataFrame:
    newest = newest_per_vehicle(in_windows(cells(positions), 30, 5))
    return newest.group_by("window", "cell").agg(pl.len().cast(pl.Int64).alias("vehicles")).sort("window", "cell")


def delays(stop_events: pl.DataFrame) -> pl.DataFrame:
    """All delays of arrivals per window and cell, in order."""
    arrivals = stop_events.filter((pl.col("event_type") == "ARS") & pl.col("delay").is_not_null())
    spread = in_windows(cells(arrivals), 300, 5)
    return spread.group_by("window", "cell").agg(pl.col("delay").sort()).sort("window", "cell")


def exact_quantile(level: float) -> pl.Expr:
    """The quantile of the sorted list `delay`, by the textbook: between two values, as much as it lies between them."""
    place = (pl.col("delay").list.len() - 1) * level
    low = pl.col("delay").list.get(place.floor().cast(pl.Int64))
    return low + (pl.col("delay").list.get(place.ceil().cast(pl.Int64)) - low) * (place - place.floor())


def ranks(rows: pl.DataFrame, value: str) -> pl.DataFrame:
    """Add how much of the list `delay` lies below a value and up to it, as shares: its rank is anything in between."""
    spread = rows.with_row_index("row").explode("delay")
    counted = spread.group_by("row", maintain_order=True).agg(
        (pl.col("delay") < pl.col(value)).mean().alias("low"), (pl.col("delay") <= pl.col(value)).mean().alias("high")
    )
    return pl.concat([rows, counted.drop("row")], how="horizontal")


def final_stops(
    positions: pl.DataFrame, ends: Callable[[dict[str, Any]], tuple[float, float] | None]
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Vehicles per cell of the final stop, and per pair of cell and final cell.

    Args:
        positions: The reports.
        ends: Where a trip ends, by its route, direction, operating day and start.
    """
    located = cells(positions)
    trip = ["route", "direction", "operating_day", "trip_start"]
    names = located.select(trip).unique().to_dicts()
    places = [ends(name) for name in names]
    targets = [None if place is None else h3.str_to_int(h3.latlng_to_cell(*place, RESOLUTION)) for place in places]
    known = pl.DataFrame(names, schema=located.select(trip).schema).with_columns(
        pl.Series("final_cell", targets, dtype=pl.UInt64)
    )
    newest = newest_per_vehicle(in_windows(located.join(known, on=trip, how="left", nulls_equal=True), 300, 5))
    newest = newest.filter(pl.col("final_cell").is_not_null())
    answers = []
    for keys in (["final_cell"], ["cell", "final_cell"]):
        counted = newest.group_by("window", *keys).agg(pl.len().cast(pl.Int64).alias("vehicles"))
        answers.append(counted.sort("window", *keys))
    return answers[0], answers[1]


def edges(positions: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Every edge that a vehicle travelled, with its time, and how many jumps were too long."""
    tracks: dict[str, list[tuple[int, int]]] = defaultdict(list)
    columns = cells(positions).select("vehicle_id", pl.col("event_time").dt.timestamp("us"), "cell")
    for vehicle, time, cell in columns.iter_rows():
        tracks[vehicle].append((time, cell))
    travelled, dropped = [], 0
    for track in tracks.values():
        track.sort()
        for (before, origin), (time, target) in pairwise(track):
            if origin == target or time - before > FORGET:
                continue
            if basic_int.grid_distance(origin, target) > LONGEST_JUMP:
                dropped += 1
                continue
            way = basic_int.grid_path_cells(origin, target)
            travelled += [(time, one, other) for one, other in pairwise(way)]
    frame = pl.DataFrame(travelled, schema={"event_time": pl.Int64, "cell": pl.UInt64, "to": pl.UInt64}, orient="row")
    return frame.with_columns(pl.col("event_time").cast(pl.Datetime("us", "UTC"))), dropped


def bunching(stop_events: pl.DataFrame) -> list[tuple[Any, ...]]:
    """Pairs of arrivals of a line at a stop, at most a minute apart: the place, later, earlier, gap in ms."""
    arrivals = [row for row in stop_events.iter_rows(named=True) if row["event_type"] == "ARS"]
    pairs = []
    for later in arrivals:
        for earlier in arrivals:
            if any(later[name] is None or later[name] != earlier[name] for name in ("line", "direction", "stop")):
                continue
            trips = [(row["operating_day"], row["trip_start"]) for row in (later, earlier)]
            if None in (*trips[0], *trips[1]) or trips[0] == trips[1] or later["vehicle_id"] == earlier["vehicle_id"]:
                continue
            gap = (later["event_time"] - earlier["event_time"]).total_seconds() * 1000
            first = gap > 0 or (gap == 0 and earlier["vehicle_id"] < later["vehicle_id"])
            if first and gap <= 60_000:
                names = (later["vehicle_id"], earlier["vehicle_id"])
                pairs.append((later["line"], later["direction"], later["stop"], *names, round(gap)))
    return sorted(pairs)


def flow_direction(positions: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    travelled, dropped = edges(positions)
    spread = in_windows(travelled, 300, 5)
    counted = spread.group_by("window", "cell", "to").agg(pl.len().cast(pl.Int64).alias("vehicles"))
    most = counted.sort("window", "cell", "vehicles", "to", descending=[False, False, True, False])
    answer = most.group_by("window", "cell", maintain_order=True).agg(
        pl.col("vehicles").sum().alias("departures"), pl.col("to", "vehicles").first()
    )
    return answer.with_columns(share=pl.col("vehicles") / pl.col("departures")).sort("window", "cell"), dropped


def emergency_stops(positions: pl.DataFrame) -> list[tuple[Any, ...]]:
    """Emergency stops by looking at each vehicle's reports in turn: (vehicle, line, stopped, place, speed, ...)."""
    found = []
    columns = ["event_time", "speed", "acceleration", "line", "latitude", "longitude"]
    for (vehicle,), rows in positions.sort("event_time").partition_by("vehicle_id", as_dict=True).items():
        reports = rows.select(columns).rows()
        first = 0
        while first < len(reports):
            last = _stop_after(reports, first)
            if last is None:
                first += 1
                continue
            began, stopped = reports[first], reports[last]
            braking = [report[2] for report in reports[first + 1 : last]]
            duration = (stopped[0] - began[0]).total_seconds()
            found.append((vehicle, stopped[3], stopped[0], stopped[4], stopped[5], began[1], duration, -min(braking)))
            first = last + 1
    return sorted(found)


def _stop_after(reports: list[tuple[Any, ...]], first: int) -> int | None:
    """Find the report below 1 m/s that ends a stop which begins with a report, or nothing."""
    if reports[first][1] is None or reports[first][1] < 10:
        return None
    for place in range(first + 1, len(reports)):
        time, speed, acceleration, *_ = reports[place]
        if (time - reports[first][0]).total_seconds() >= 10:
            return None
        if place > first + 1 and speed is not None and speed < 1:
            return place
        if acceleration is None or acceleration >= 0:
            return None
    return None
