"""Whose final stops final-stop-distribution tells: those of vehicles whose timetable it has, and of no others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from headrace.config import Settings
from headrace.inprocess import Runner
from headrace_transit import simulated_gtfs
from headrace_transit.jobs import all_jobs
from headrace_transit.settings import TransitSettings
from headrace_transit.simulated_gtfs import write_feed
from headrace_transit.simulator.helsinki import helsinki

if TYPE_CHECKING:
    from pathlib import Path

NOON = datetime(2026, 3, 2, 10, 0, tzinfo=UTC)
NAME = "final-stop-distribution"


def reports(**changes: Any) -> pl.DataFrame:
    """Ten reports of one vehicle on a trip of the simulated network's first line."""
    path = helsinki().paths[0]
    times = [NOON + timedelta(seconds=second) for second in range(10)]
    trip = {
        "vehicle_id": "40/456",
        "latitude": 60.17,
        "longitude": 24.94,
        "route": path.route,
        "direction": path.direction,
        "operating_day": "2026-03-02",
        "trip_start": "11:47",
        "next_stop": str(path.stop_ids[1]),
    }
    schema = all_jobs()[NAME].pipeline.entries[0].source.schema
    rows = pl.DataFrame({"event_time": times, "ingestion_time": times}).with_columns(
        pl.lit(value).alias(name) for name, value in {**trip, **changes}.items()
    )
    missing = [pl.lit(None, kind).alias(name) for name, kind in schema.items() if name not in rows.columns]
    return rows.with_columns(missing).select(*schema).cast(dict(schema))


def run(rows: pl.DataFrame, settings: Settings | None = None) -> tuple[int, dict[str, int]]:
    """The number of vehicles in the newest window, and what was counted."""
    runner = Runner(all_jobs(settings)[NAME])
    steps = [runner.step(rows), runner.finish()]
    found = pl.concat([step.results for step in steps])
    counts: dict[str, int] = {}
    for step in steps:
        counts = {name: counts.get(name, 0) + step.counts.get(name, 0) for name in counts | step.counts}
    return max(found["vehicles"].to_list(), default=0), counts


def test_without_a_timetable_a_real_vehicle_gets_no_invented_final_stop(caplog: pytest.LogCaptureFixture) -> None:
    simulated_gtfs._warn_of_real_vehicles.cache_clear()
    vehicles, counts = run(reports(next_stop="1111428"))
    assert vehicles == 0
    assert counts["final_stop.no_timetable"] == 10
    assert "Set transit.gtfs" in caplog.text


@pytest.mark.parametrize("next_stop", [None, "EOL"])
def test_without_a_timetable_a_vehicle_that_names_no_stop_is_not_of_the_simulated_fleet(next_stop: str | None) -> None:
    vehicles, counts = run(reports(next_stop=next_stop))
    assert (vehicles, counts["final_stop.no_timetable"]) == (0, 10)


def test_without_a_timetable_the_simulated_fleet_has_its_own() -> None:
    vehicles, counts = run(reports())
    assert vehicles == 1
    assert counts["final_stop.found"] == 10
    assert counts.get("final_stop.no_timetable", 0) == 0


def test_with_a_timetable_every_vehicle_is_looked_up_and_blanks_around_its_route_do_not_matter(tmp_path: Path) -> None:
    settings = Settings(sections=(TransitSettings(gtfs=write_feed(tmp_path / "feed")),))
    vehicles, counts = run(reports(next_stop="1111428", route=helsinki().paths[0].route + "  "), settings)
    assert vehicles == 1
    assert counts["final_stop.found"] == 10
