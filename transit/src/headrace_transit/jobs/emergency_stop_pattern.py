"""Emergency stops: from 10 m/s to below 1 m/s within 10 s, braking all the way; by the pattern builder.

A vehicle that reports at least 10 m/s, then one or more times a negative acceleration, then less than 1 m/s, all within
10 s, has braked as nobody does at a stop. The result says where it stands, when it got there, how fast it was, how long
that took and how hard it braked. `emergency_stop_sql` says the same in SQL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polars import col

from headrace.cep import Pattern
from headrace.cep.measures import first, last, smallest
from headrace.geo import h3_cell
from headrace.stream import Display, Job, Stream
from headrace_transit.event_time import timed
from headrace_transit.schemas import VehiclePosition
from headrace_transit.topics import VEHICLE_POSITIONS

if TYPE_CHECKING:
    from headrace.config import Settings

emergency_stop = (
    Pattern.begin("cruising", col("speed") >= 10)
    .next("braking", col("acceleration") < 0)
    .one_or_more()
    .consecutive()
    .next("stopped", col("speed") < 1)
    .within("10s")
    .skip("past_last")
)


def job(settings: Settings) -> Job:
    """Make the job with the time that is set."""
    return Job(
        name="emergency-stop-pattern",
        description="Vehicles that brake from 10 m/s to a stop within 10 s: where, when, how fast, how hard",
        stream=(
            timed(Stream.topic(VEHICLE_POSITIONS, VehiclePosition), settings, per="key")
            .key_by("vehicle_id")
            .match(emergency_stop)
            .select(
                began=first("cruising.event_time"),
                stopped=last("stopped.event_time"),
                line=last("stopped.line"),
                latitude=last("stopped.latitude"),
                longitude=last("stopped.longitude"),
                speed=first("cruising.speed"),
                acceleration=smallest("braking.acceleration"),
            )
            .select(
                "vehicle_id",
                "line",
                "stopped",
                "latitude",
                "longitude",
                "speed",
                duration=(col("stopped") - col("began")).dt.total_milliseconds() / 1000,
                deceleration=-col("acceleration"),
            )
            .with_columns(cell=h3_cell("latitude", "longitude", resolution=9))
        ),
        display=Display.points(
            title="Emergency stops",
            labels=["stopped", "line", "vehicle_id", "speed", "duration", "deceleration"],
            time_to_live="2m",
        ),
    )
