"""Where traffic flows: per H3 cell the neighbour that most vehicles went on to in the last 5 minutes, every 5 s.

When a vehicle is in another cell than in its report before, it has travelled an edge of the grid. If it was out of
sight for a while and the cells are no neighbours, it is taken to have gone straight: every edge on the line between
the two counts. A jump of more than 10 cells (some 3 km) says nothing about the way; it is dropped and counted
(`jumps_too_long`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
from polars import col

from headrace.geo import cell_line, h3_cell
from headrace.stream import Display, Job, Stream
from headrace.windows import count, sliding, top_k
from headrace_transit.event_time import lateness, timed
from headrace_transit.schemas import VehiclePosition
from headrace_transit.topics import VEHICLE_POSITIONS

if TYPE_CHECKING:
    from headrace.config import Settings


def job(settings: Settings) -> Job:
    """Make the job with the time that is set."""
    return Job(
        name="flow-direction",
        description="Per H3 cell the neighbour that most vehicles went on to in the last 5 min, and their share",
        stream=(
            timed(Stream.topic(VEHICLE_POSITIONS, VehiclePosition), settings)
            .select("vehicle_id", cell=h3_cell("latitude", "longitude", resolution=9))
            .filter(col("cell").is_not_null())
            .key_by("vehicle_id")
            .previous(came_from="cell", within="5min")
            .filter(col("came_from") != col("cell"))
            .with_columns(line=cell_line("came_from", "cell", limit=10))
            .filter(col("line").is_not_null(), counted="jumps_too_long")
            .flat_map("step", pl.int_ranges(col("line").list.len() - 1))
            .with_columns(cell=col("line").list.get(col("step")), to=col("line").list.get(col("step") + 1))
            .key_by("cell")
            .window(sliding("5min", every="5s"), allowed_lateness=lateness(settings))
            .aggregate(departures=count(), most=top_k("to", 1))
            .with_columns(
                to=col("most").list.first().struct.field("value"),
                vehicles=col("most").list.first().struct.field("count"),
            )
            .with_columns(share=col("vehicles") / col("departures"))
            .drop("most")
        ),
        display=Display.edges(
            "share",
            "vehicles",
            target="to",
            title="Flow direction",
            legend="Share of the vehicles leaving a cell that take its most travelled edge",
        ),
    )
