"""Emergency stops as in `emergency_stop_pattern`, by SQL's MATCH_RECOGNIZE.

`braking+?` takes as few rows as it can: the match ends with the first report below 1 m/s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace import sql
from headrace.geo import h3_cell
from headrace.stream import Display, Job, Stream
from headrace_transit.event_time import timed
from headrace_transit.schemas import VehiclePosition
from headrace_transit.topics import VEHICLE_POSITIONS

if TYPE_CHECKING:
    from headrace.config import Settings

QUERY = """
    SELECT vehicle_id, line, stopped, latitude, longitude, speed, duration, deceleration
    FROM positions MATCH_RECOGNIZE (
      PARTITION BY vehicle_id
      ORDER BY event_time
      MEASURES
        stopped.event_time AS stopped,
        stopped.line AS line,
        stopped.latitude AS latitude,
        stopped.longitude AS longitude,
        cruising.speed AS speed,
        date_diff('millisecond', cruising.event_time, stopped.event_time) / 1000e0 AS duration,
        -MIN(braking.acceleration) AS deceleration
      ONE ROW PER MATCH
      AFTER MATCH SKIP PAST LAST ROW
      PATTERN (cruising braking+? stopped) WITHIN INTERVAL '10' SECOND
      DEFINE
        cruising AS speed >= 10,
        braking AS acceleration < 0,
        stopped AS speed < 1)
    """


def job(settings: Settings) -> Job:
    """Make the job with the time that is set."""
    positions = timed(Stream.topic(VEHICLE_POSITIONS, VehiclePosition), settings, per="key")
    return Job(
        name="emergency-stop-sql",
        description="Vehicles that brake from 10 m/s to a stop within 10 s, by MATCH_RECOGNIZE",
        stream=sql(QUERY, {"positions": positions}).with_columns(cell=h3_cell("latitude", "longitude", resolution=9)),
        display=Display.points(
            title="Emergency stops (SQL)",
            labels=["stopped", "line", "vehicle_id", "speed", "duration", "deceleration"],
            time_to_live="2m",
        ),
    )
