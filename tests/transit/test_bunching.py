"""Vehicles of a line close behind each other, against loops over all pairs of arrivals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest
from tests.transit import answers
from tests.transit.test_job_answers import cut, over

from headrace_transit.jobs import all_jobs
from headrace_transit.simulator import Fleet

START = datetime(2026, 3, 2, 7, 30, tzinfo=UTC)


def told(results: pl.DataFrame) -> list[tuple[Any, ...]]:
    milliseconds = (pl.col("gap") * 1000).round().cast(pl.Int64)
    return sorted(results.select("line", "direction", "stop", "vehicle_id", "ahead", milliseconds).rows())


@pytest.fixture(scope="module")
def simulated() -> pl.DataFrame:
    events = Fleet(vehicles=300, seed=3, start=START).stop_events(0, seconds=720)
    return events.with_columns(ingestion_time=pl.col("event_time"))


@pytest.mark.parametrize("groups", [1, 3])
def test_simulated_arrivals(simulated: pl.DataFrame, groups: int) -> None:
    expected = answers.bunching(simulated)

    results, _ = over(all_jobs()["bunching"], cut(simulated), groups=groups)

    assert told(results) == expected
    assert 1 < len(expected) < 20
    assert all_jobs()["bunching"].sources == ("input.stop-event",), "the topic is read twice, and named once"
    assert results.get_column("cell").null_count() == 0
    assert results.select((pl.col("event_time") == pl.col("arrived")).all()).item()


def test_ties_bounds_trains_and_missing_values(simulated: pl.DataFrame) -> None:
    like = simulated.filter(event_type="ARS").row(0, named=True)

    def arrival(vehicle: str, seconds: float, trip: str | None = "08:00", **changes: Any) -> dict[str, Any]:
        time = START + timedelta(seconds=seconds)
        said = {"vehicle_id": vehicle, "event_time": time, "ingestion_time": time, "trip_start": trip}
        return {**like, **said, "line": "1", "stop": "s", "direction": 1, **changes}

    rows = [
        arrival("a", 0, "07:00"),
        arrival("b", 60, "07:10"),
        arrival("c", 60.001, "07:20"),
        arrival("unit", 60.5, "07:20"),
        arrival("d", 60.5, "07:30"),
        arrival("other-way", 61, direction=2),
        arrival("nowhere", 61, direction=None),
        arrival("no-trip", 61, None),
        arrival("leaves", 61, event_type="DEP"),
        arrival("a", 62, "07:50"),
    ]
    events = pl.DataFrame(rows, schema=simulated.schema, orient="row")
    expected = answers.bunching(events)

    results, _ = over(all_jobs()["bunching"], [events[:4], events[4:]])

    assert told(results) == expected
    assert ("1", 1, "s", "b", "a", 60_000) in expected
    assert ("1", 1, "s", "unit", "d", 0) in expected
    assert not [pair for pair in expected if pair[3:5] in (("c", "a"), ("unit", "c"), ("a", "a"))]
