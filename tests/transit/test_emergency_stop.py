"""The two emergency-stop jobs: equal to each other, and to what the simulator knows."""

from __future__ import annotations

from datetime import timedelta

import h3
import polars as pl
import pytest

from headrace import sql
from headrace.cep.measures import last
from headrace.inprocess import Runner
from headrace.stream import Stream
from headrace.time import bounded
from headrace_transit.jobs import all_jobs
from headrace_transit.jobs.emergency_stop_pattern import emergency_stop
from headrace_transit.jobs.emergency_stop_sql import QUERY
from headrace_transit.schemas import VehiclePosition
from headrace_transit.simulator import Fleet
from headrace_transit.simulator.arrivals import Arrivals
from headrace_transit.simulator.disorder import Disorder
from headrace_transit.topics import VEHICLE_POSITIONS

PATTERN, SQL = "emergency-stop-pattern", "emergency-stop-sql"
#: Reports overtake each other, by less than the second that the jobs wait for them, and some come twice.
DISORDER = Disorder(delay=0.1, spread=0.5, late_share=0, duplicate_share=0.05)
MINUTES = 30


def arrivals(fleet: Fleet, disorder: Disorder, *, steps: int, seconds: int) -> list[pl.DataFrame]:
    arriving = Arrivals(fleet, disorder, stop_events=False)
    taken = [arriving.take(seconds).positions for _ in range(steps)]
    return [positions.rename({"arrival_time": "ingestion_time"}) for positions in [*taken, arriving.rest().positions]]


def found_by(name: str, batches: list[pl.DataFrame], *, groups: int = 3) -> pl.DataFrame:
    """Run a job with a restart in the middle; the order of the rows is that of time."""
    stream = all_jobs()[name].stream
    runner = Runner(stream, key_groups=groups)
    results = []
    for number, batch in enumerate(batches):
        if number == len(batches) // 2:
            runner = Runner(stream, key_groups=groups, snapshot=runner.snapshot())
        results.append(runner.step(batch).results)
    together = pl.concat([*results, runner.finish().results])
    return together.select(sorted(together.columns)).sort("stopped", "vehicle_id")


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return Fleet(vehicles=80, seed=3, emergency_rate=1, gps_loss=0)


@pytest.fixture(scope="module")
def batches(fleet: Fleet) -> list[pl.DataFrame]:
    return arrivals(fleet, DISORDER, steps=MINUTES, seconds=60)


@pytest.fixture(scope="module")
def stops(batches: list[pl.DataFrame]) -> pl.DataFrame:
    return found_by(PATTERN, batches)


def test_both_jobs_give_the_same_rows(batches: list[pl.DataFrame], stops: pl.DataFrame) -> None:
    assert all_jobs()[PATTERN].stream.schema == all_jobs()[SQL].stream.schema
    assert stops.height > 20
    assert found_by(SQL, batches, groups=2).rows() == stops.rows()


def test_every_planted_stop_is_found_and_no_other(fleet: Fleet, stops: pl.DataFrame) -> None:
    truth = fleet.emergency_stops(0, MINUTES * 60 - 10).sort("stopped", "vehicle_id")
    assert stops.get_column("vehicle_id").to_list() == truth.get_column("vehicle_id").to_list()
    for seen, true in zip(stops.iter_rows(named=True), truth.iter_rows(named=True), strict=True):
        # The first report below 1 m/s comes at most a second after standing, and 1 m/s is just before it.
        late = seen["stopped"] - true["stopped"]
        assert timedelta(seconds=-0.5) < late < timedelta(seconds=1.01)
        assert seen["event_time"] == seen["stopped"]
        assert seen["line"] == true["line"]
        # The last report before may be up to a second old, and vehicles drift in traffic.
        assert seen["speed"] == pytest.approx(true["speed"], abs=1.1)
        assert seen["deceleration"] == pytest.approx(true["deceleration"], abs=1.1)
        assert true["speed"] / true["deceleration"] - 1.1 < seen["duration"] < 10
        place = (seen["latitude"], seen["longitude"])
        assert place == (pytest.approx(true["latitude"], abs=1e-4), pytest.approx(true["longitude"], abs=2e-4))
        assert seen["cell"] == h3.str_to_int(h3.latlng_to_cell(*place, 9))


@pytest.mark.slow
def test_both_jobs_agree_where_reports_are_late_lost_and_without_a_position() -> None:
    rough = Fleet(vehicles=60, seed=8, emergency_rate=1, gps_loss=0.05)
    batches = arrivals(rough, Disorder(late_share=0.1, duplicate_share=0.1), steps=18, seconds=100)
    found = found_by(PATTERN, batches)
    assert 5 < found.height <= rough.emergency_stops(0, 1800).height
    assert found_by(SQL, batches).rows() == found.rows()


def patient(name: str) -> Stream:
    """A job that waits until the latest report of HSL's feed must have arrived."""
    positions = Stream.topic(VEHICLE_POSITIONS, VehiclePosition).watermark(bounded("3min"), idle_after="5min")
    if name == SQL:
        return sql(QUERY, {"positions": positions})
    return positions.key_by("vehicle_id").match(emergency_stop).select(stopped=last("stopped.event_time"))


@pytest.mark.parametrize("name", [PATTERN, SQL])
def test_who_waits_long_enough_finds_exactly_the_truth_in_a_feed_like_the_real_one(name: str) -> None:
    fleet = Fleet(vehicles=60, seed=5, emergency_rate=1, gps_noise=5, gps_loss=0.03)
    runner = Runner(patient(name), key_groups=2)
    batches = arrivals(fleet, Disorder.hsl(duplicate_share=0.02, overlap=12), steps=9, seconds=200)
    late = pl.concat(batches).filter(pl.col("ingestion_time") - pl.col("event_time") > timedelta(seconds=1))
    assert late.height > 1000
    found = pl.concat([*(runner.step(batch).results for batch in batches), runner.finish().results])
    truth = fleet.emergency_stops(0, 1790)
    seen = found.sort("stopped", "vehicle_id")
    assert seen["vehicle_id"].to_list() == truth.sort("stopped", "vehicle_id")["vehicle_id"].to_list()
    assert seen.height > 15


@pytest.mark.parametrize("name", [PATTERN, SQL])
def test_a_job_decodes_only_what_it_reads(name: str) -> None:
    columns = all_jobs()[name].pipeline.entries[0].columns
    assert sorted(columns) == sorted(
        ["event_time", "vehicle_id", "latitude", "longitude", "speed", "acceleration", "line"]
    )
