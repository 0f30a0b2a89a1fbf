"""Where the trips under way end: vehicles per H3 cell of the final stop of their trip, over 5 min, every 5 s.

Of each vehicle the newest report in the window counts; its trip is looked up in a timetable (a GTFS feed) or asked for
at a routing service. A vehicle whose final stop is not known takes no part; the counters `final_stop.*` tell how many
reports had one. Where neither is set, the timetable is that of the simulated fleet, for its vehicles only; reports of
others are counted as `final_stop.no_timetable`. The second output counts pairs: from which cell vehicles are on the way
to which.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import polars as pl
from polars import col

from headrace.enrich import table
from headrace.geo import h3_cell
from headrace.stream import Display, Job, Output, Stream
from headrace.windows import count, latest, sliding
from headrace_transit.event_time import lateness, timed
from headrace_transit.gtfs import FINAL_STOP, TRIP, Feed, final_stops
from headrace_transit.routing import routing_service
from headrace_transit.schemas import VehiclePosition
from headrace_transit.settings import TransitSettings, routing_cache
from headrace_transit.simulated_gtfs import has_simulated_stop, simulated_final_stops
from headrace_transit.topics import VEHICLE_POSITIONS

if TYPE_CHECKING:
    from headrace.config import Settings
    from headrace.enrich import Enrichment


def job(settings: Settings) -> Job:
    """Make the job with the clock tolerance and the source of final stops that are set."""
    located = (
        timed(Stream.topic(VEHICLE_POSITIONS, VehiclePosition), settings)
        # Some vehicles send their route with blanks behind it, which no timetable has.
        .with_columns(cell=h3_cell("latitude", "longitude", resolution=9), route=col("route").str.strip_chars())
        .filter(col("cell").is_not_null())
    )
    chosen = settings.section(TransitSettings)
    if not (chosen.routing_url or chosen.gtfs):
        # Real vehicles would meet trips of the simulated fleet, which has lines of the same names.
        located = located.filter(has_simulated_stop("next_stop"), counted="final_stop.no_timetable")
    trips = (
        located.enrich(final_stop(settings), on=TRIP)
        .with_columns(way=pl.struct("cell", "final_cell"))
        .key_by("vehicle_id")
        .window(sliding("5min", every="5s"), allowed_lateness=lateness(settings))
        .aggregate(way=latest("way"))
        .with_columns(cell=col("way").struct.field("cell"), final_cell=col("way").struct.field("final_cell"))
        .filter(col("final_cell").is_not_null())
    )
    return Job(
        name="final-stop-distribution",
        description="Vehicles per H3 cell of the final stop of their trip, by the newest report in the last 5 min",
        stream=trips.key_by("final_cell").same_window().aggregate(vehicles=count()),
        display=Display.cells("vehicles", cell="final_cell", unit="vehicles", title="Final stops"),
        outputs={
            "pairs": Output(
                trips.key_by("cell", "final_cell").same_window().aggregate(vehicles=count()),
                description="From which cell vehicles are on the way to the cell of which final stop",
                display=Display.arcs("vehicles", target="final_cell", unit="vehicles", title="Ways to final stops"),
            )
        },
    )


def final_stop(settings: Settings) -> Enrichment:
    """Choose who knows final stops: a routing service, a GTFS feed, or the simulated fleet's own timetable."""
    chosen = settings.section(TransitSettings)
    if chosen.routing_url:
        return routing_service(
            chosen.routing_url, key=chosen.routing_key, feed=chosen.routing_feed, cache=routing_cache(settings)
        )
    if chosen.gtfs is None:
        return table(simulated_final_stops, gives=FINAL_STOP, name="final_stop")
    Feed(chosen.gtfs).check()
    # Feeds are published anew every day or so; the next one is taken up without a restart.
    return table(partial(final_stops, chosen.gtfs), gives=FINAL_STOP, name="final_stop", refresh="6h")
