"""How late vehicles arrive, and where: quantiles of the delay of arrivals per H3 cell, over 5 min, every 5 s.

An arrival is a stop event ARS: the vehicle stands at a stop. Its delay is in seconds behind the timetable, negative if
it is early. Quantiles come from a KLL sketch, whose error is 1.3 % of rank (99 % of the time) however many arrivals
there are; up to 200 arrivals in a cell they are exact. `transit.delay_quantiles = "exact"` keeps all delays instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polars import col

from headrace.geo import h3_cell
from headrace.stream import Display, Job, Stream
from headrace.windows import count, quantile, sliding
from headrace_transit.event_time import lateness, timed
from headrace_transit.schemas import StopEvent
from headrace_transit.settings import TransitSettings
from headrace_transit.topics import STOP_EVENTS

if TYPE_CHECKING:
    from headrace.config import Settings


def job(settings: Settings) -> Job:
    """Make the job with the clock tolerance and the method of quantiles that are set."""
    return Job(
        name="delay-distribution",
        description="p50, p90 and p99 of the delay of arrivals per H3 cell, over the last 5 min",
        stream=(
            timed(Stream.topic(STOP_EVENTS, StopEvent), settings)
            .filter((col("event_type") == "ARS") & col("delay").is_not_null())
            .with_columns(cell=h3_cell("latitude", "longitude", resolution=9))
            .filter(col("cell").is_not_null())
            .key_by("cell")
            .window(sliding("5min", every="5s"), allowed_lateness=lateness(settings))
            .aggregate(
                arrivals=count(),
                delay=quantile("delay", [0.5, 0.9, 0.99], method=settings.section(TransitSettings).delay_quantiles),
            )
            .with_columns(
                p50=col("delay").list.get(0),
                p90=col("delay").list.get(1),
                p99=col("delay").list.get(2),
            )
            .drop("delay")
        ),
        display=Display.cells(
            "p50",
            "p90",
            "p99",
            unit="s",
            title="Delay of arrivals",
            legend="Seconds behind the timetable; below zero: early",
            labels=["p50", "p90", "p99", "arrivals"],
            scale="diverging",
        ),
    )
