"""How many vehicles are where: the newest position of each vehicle in the last 30 s, counted per H3 cell, every 5 s.

Two steps in the same windows: per vehicle the newest cell (a vehicle that crossed three cells in half a minute counts
once, where it was last), then per cell the number of vehicles. A vehicle without a position takes no part, but its
reports still move event time on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from headrace.geo import h3_cell
from headrace.stream import Display, Job, Stream
from headrace.windows import count, latest, sliding
from headrace_transit.event_time import lateness, timed
from headrace_transit.schemas import VehiclePosition
from headrace_transit.topics import VEHICLE_POSITIONS

if TYPE_CHECKING:
    from headrace.config import Settings


def job(settings: Settings) -> Job:
    """Make the job with the time that is set."""
    return Job(
        name="vehicle-distribution",
        description="Vehicles per H3 cell (resolution 9), by the newest position of each vehicle in the last 30 s",
        stream=(
            timed(Stream.topic(VEHICLE_POSITIONS, VehiclePosition), settings)
            .with_columns(cell=h3_cell("latitude", "longitude", resolution=9))
            .filter(pl.col("cell").is_not_null())
            .key_by("vehicle_id")
            .window(sliding("30s", every="5s"), allowed_lateness=lateness(settings))
            .aggregate(cell=latest("cell"))
            .key_by("cell")
            .same_window()
            .aggregate(vehicles=count())
        ),
        display=Display.cells("vehicles", unit="vehicles", title="Vehicles"),
    )
