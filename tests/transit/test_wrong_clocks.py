"""Clocks of vehicles that are ahead do not make the reports of other vehicles late."""

from __future__ import annotations

import polars as pl
import pytest
from benchmarks.late_share import batches, few_wrong_clocks, late_rows, whole_fleet

from headrace.config import Settings
from headrace.inprocess import Runner
from headrace_transit.jobs import all_jobs
from headrace_transit.settings import TransitSettings
from headrace_transit.topics import VEHICLE_POSITIONS

ON_POSITIONS = ["emergency-stop-pattern", "emergency-stop-sql", "flow-direction", "vehicle-distribution"]


@pytest.mark.parametrize("name", ON_POSITIONS)
def test_four_wrong_clocks_of_200_make_nobody_late(name: str) -> None:
    assert late_rows(all_jobs()[name], few_wrong_clocks(seconds=15)) == (15 * 200, 0)


@pytest.mark.parametrize("name", ["emergency-stop-pattern", "emergency-stop-sql"])
def test_in_a_whole_fleet_only_reports_that_were_under_way_for_long_are_late(name: str) -> None:
    topics = whole_fleet()
    lag = pl.col("ingestion_time") - pl.col("event_time")
    old = topics[VEHICLE_POSITIONS].filter(lag > pl.duration(seconds=1)).height
    read, late = late_rows(all_jobs()[name], topics)
    assert read > 4_500
    assert 0 < late <= old < read * 0.02


def test_the_bound_can_be_widened() -> None:
    jobs = all_jobs(Settings(sections=(TransitSettings(clock_tolerance_ms=86_400_000),)))
    read, late = late_rows(jobs["flow-direction"], few_wrong_clocks(seconds=15))
    assert late > read * 0.8, "a tolerance of a day is the behaviour without the bound"
    _, late = late_rows(jobs["emergency-stop-pattern"], few_wrong_clocks(seconds=15))
    assert late == 0, "the clock of one vehicle is no business of another"


def test_delay_lateness_and_the_bound_of_the_future_can_be_set() -> None:
    given = TransitSettings(delay_ms=5_000, max_ahead_ms=2_000, lateness_ms=60_000, key_tolerance_ms=3_000)
    jobs = all_jobs(Settings(sections=(given,)))
    assert (
        "bounded(5s), clock tolerance 0s, time by key, tolerance 3s, patience 1min"
        in jobs["emergency-stop-sql"].explain()
    )
    assert "allowed lateness 1min" in jobs["vehicle-distribution"].explain()
    for name in ON_POSITIONS:
        runner = Runner(jobs[name], key_groups=1)
        told = [batch for _, batch in batches(few_wrong_clocks(seconds=3))]
        dismissed = [outcome.dismissed for outcome in map(runner.step, told) if outcome.dismissed is not None]
        wrong = pl.concat([frame.select("reason") for frame in dismissed])["reason"].to_list()
        assert wrong == ["absurd_time"] * 4 * 3, "four clocks are 10 s ahead"


def test_every_job_of_the_application_has_the_bound() -> None:
    bounds = [entry.strategy.clock_tolerance for job in all_jobs().values() for entry in job.pipeline.entries]
    # The job on bunching reads arrivals twice.
    assert bounds == [0] * 8
