"""Bunching: a vehicle arrives at a stop at most a minute after another one of its line.

Passengers then wait long for the first, which is full, while the second runs empty behind it. Arrivals are joined with
themselves: an arrival (a stop event ARS) meets those of the same line and direction at the same stop within the minute
before it, by another vehicle on another trip. Units of one train arrive together, but they are on the same trip.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polars import col

from headrace.geo import h3_cell
from headrace.stream import Display, Job, Stream
from headrace_transit.event_time import timed
from headrace_transit.schemas import StopEvent
from headrace_transit.topics import STOP_EVENTS

if TYPE_CHECKING:
    from headrace.config import Settings

#: What names a place where vehicles of a line follow each other.
_PLACE = ("line", "direction", "stop")


def job(settings: Settings) -> Job:
    """Make the job with the time that is set."""
    arrivals = (
        timed(Stream.topic(STOP_EVENTS, StopEvent), settings)
        .filter((col("event_type") == "ARS") & col("line").is_not_null() & col("stop").is_not_null())
        .with_columns(arrived=col("event_time"), trip=col("operating_day") + " " + col("trip_start"))
    )
    earlier = arrivals.select(*_PLACE, ahead=col("vehicle_id"), ahead_arrived=col("arrived"), ahead_trip=col("trip"))
    return Job(
        name="bunching",
        description="Vehicles that arrive at a stop at most a minute after another one of their line: where, how close",
        stream=(
            arrivals.select(*_PLACE, "vehicle_id", "arrived", "trip", "latitude", "longitude")
            .join(
                earlier,
                on=_PLACE,
                within=("-1min", "0s"),
                where=(col("trip") != col("ahead_trip"))
                & (col("vehicle_id") != col("ahead"))
                # Of two that arrive at the same moment one follows the other, not each the other.
                & ((col("ahead_arrived") < col("arrived")) | (col("ahead") < col("vehicle_id"))),
            )
            .select(
                *_PLACE,
                "vehicle_id",
                "ahead",
                "arrived",
                "latitude",
                "longitude",
                gap=(col("arrived") - col("ahead_arrived")).dt.total_milliseconds() / 1000,
            )
            .with_columns(cell=h3_cell("latitude", "longitude", resolution=9))
        ),
        display=Display.points(
            title="Bunching",
            labels=["arrived", "line", "direction", "stop", "vehicle_id", "ahead", "gap"],
            time_to_live="2m",
        ),
    )
