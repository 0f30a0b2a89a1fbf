"""Latency markers for the jobs of the application: which events make each of them answer.

Markers are vehicles of operator 0, which no feed has, in the ocean (`headrace.observe.places`). Every marker is a new
vehicle in a new cell, so that nothing of an earlier one is left in a job's state. Where a marker has several events,
they are a millisecond apart.

| job | the marker |
|---|---|
| vehicle-distribution | a vehicle reports its position |
| delay-distribution | a vehicle arrives at a stop, a minute late |
| flow-direction | a vehicle reports its position, then one in the cell beside it |
| final-stop-distribution | a vehicle is on a trip that the timetable knows; what is recognised is the result of the |
| | output `pairs`, from the marker's cell to the trip's final stop |
| emergency-stop-* | a vehicle reports 12 m/s, then braking, then 0 m/s |

>>> recipe = recipe_of("emergency-stop-pattern")
>>> [event.key for event in recipe.events(7, at=1_772_000_000_000_000)]
[b'0/7', b'0/7', b'0/7']
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headrace.config import Settings
from headrace.errors import PlanError
from headrace.events import Codec
from headrace.observe.places import marker_place
from headrace.observe.recipes import MarkerEvent, Markers
from headrace.observe.recognition import first_place
from headrace.time.duration import MILLISECOND
from headrace_transit.gtfs import TRIP, final_stops
from headrace_transit.jobs import all_jobs
from headrace_transit.schemas import StopEvent, VehiclePosition
from headrace_transit.settings import TransitSettings
from headrace_transit.simulator.helsinki import helsinki
from headrace_transit.topics import STOP_EVENTS, VEHICLE_POSITIONS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: The operator of markers.
OPERATOR = 0


@dataclass(frozen=True)
class Report:
    """One thing that a marker's vehicle says.

    Args:
        fields: What it says beside who and where it is.
        place: 0: in its first cell, 1: in the one beside it.
        stop: Whether it is an event at a stop, and not a position.
    """

    fields: Mapping[str, Any] = field(default_factory=dict)
    place: int = 0
    stop: bool = False


@dataclass(frozen=True)
class VehicleRecipe:
    """Makes a job answer by the reports of a vehicle, a millisecond apart.

    Args:
        job: Which job.
        reports: What the vehicle says, in order.
        output: The further output of the job in which the result is recognised; empty: the job's own results.
    """

    job: str
    reports: tuple[Report, ...]
    output: str = ""

    @property
    def result_topic(self) -> str:
        """Where the job's results are."""
        job = all_jobs()[self.job]
        return job.output_topic(self.output) if self.output else job.result_topic

    @property
    def late_topic(self) -> str:
        """Where events go that came too late for the job."""
        return all_jobs()[self.job].late_topic

    @cached_property
    def _codec(self) -> Codec:
        return Codec()

    def events(self, marker: int, *, at: int) -> Sequence[MarkerEvent]:
        """Make the events of a marker; the last of them happens at the time given."""
        last = len(self.reports) - 1
        return [
            self._event(report, marker, at - (last - number) * MILLISECOND)
            for number, report in enumerate(self.reports)
        ]

    def _event(self, report: Report, marker: int, at: int) -> MarkerEvent:
        vehicle = f"{OPERATOR}/{marker}"
        latitude, longitude = marker_place(first_place(marker) + report.place)
        kind = StopEvent if report.stop else VehiclePosition
        said = kind(
            vehicle_id=vehicle,
            operator=OPERATOR,
            vehicle_number=marker,
            latitude=latitude,
            longitude=longitude,
            **report.fields,
        )
        value = self._codec.write(said, event_time=at, ingestion_time=at)
        return MarkerEvent(STOP_EVENTS if report.stop else VEHICLE_POSITIONS, vehicle.encode(), value)


_EMERGENCY = (
    Report({"speed": 12.0, "acceleration": 0.0}),
    Report({"speed": 6.0, "acceleration": -4.0}),
    Report({"speed": 0.0, "acceleration": -4.0}),
)
_FINAL_STOPS = "final-stop-distribution"
_REPORTS: Mapping[str, tuple[Report, ...]] = {
    "vehicle-distribution": (Report({"speed": 5.0}),),
    "delay-distribution": (Report({"event_type": "ARS", "delay": 60, "speed": 0.0}, stop=True),),
    "flow-direction": (Report({"speed": 5.0}), Report({"speed": 5.0}, place=1)),
    "emergency-stop-pattern": _EMERGENCY,
    "emergency-stop-sql": _EMERGENCY,
}


def recipe_of(job: str, settings: Settings | None = None) -> VehicleRecipe:
    """Give the recipe of a job.

    Args:
        job: Its name.
        settings: Those that the job runs with: they say which trips it knows the final stop of.

    Raises:
        PlanError: The job has none, or none with these settings.
    """
    if job == _FINAL_STOPS:
        return VehicleRecipe(job, (Report(_known_trip(settings or Settings())),), output="pairs")
    reports = _REPORTS.get(job)
    if reports is None:
        raise PlanError(
            f"there is no latency marker for the job {job!r}",
            hint=f"There are markers for: {', '.join(recipes())}.",
        )
    return VehicleRecipe(job, reports)


def recipes() -> list[str]:
    """Name the jobs that have markers."""
    return sorted([*_REPORTS, _FINAL_STOPS])


def _known_trip(settings: Settings) -> dict[str, Any]:
    """Give a trip that the job can find the final stop of."""
    chosen = settings.section(TransitSettings)
    if chosen.routing_url:
        raise PlanError(
            f"a marker of {_FINAL_STOPS} needs a trip of the timetable, and a routing service tells none",
            hint="Leave the job out, or set transit.gtfs for the measurement.",
        )
    if chosen.gtfs is not None:
        (trip,) = final_stops(chosen.gtfs).select(TRIP).head(1).to_dicts()
        return {name: value for name, value in trip.items() if value is not None}
    path = helsinki().paths[0]
    trip = {"route": path.route, "direction": path.direction, "operating_day": "2026-01-01", "trip_start": "12:00"}
    # By its stop the job knows a vehicle of the simulated fleet.
    return {**trip, "next_stop": str(path.stop_ids[0])}


markers = Markers("transit", tuple(recipes()), recipe_of)
