"""Every job against a batch computation that shares no code with it: a simulated hour, and the real recordings."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import datasketches
import numpy as np
import polars as pl
import pytest
from tests.transit import answers

from headrace.config import Settings
from headrace.ingest import RawMessage
from headrace.inprocess import Runner
from headrace_transit.hfp import HfpProcessor, HfpSettings
from headrace_transit.jobs import all_jobs
from headrace_transit.settings import TransitSettings
from headrace_transit.simulator import Fleet
from headrace_transit.simulator.helsinki import PLACES, helsinki
from headrace_transit.topics import STOP_EVENTS, VEHICLE_POSITIONS

if TYPE_CHECKING:
    from headrace.stream import Job

SHARED = Path(os.environ.get("HEADRACE_SHARED") or Path(__file__).resolve().parents[2].parent / "shared")
DUMPS = sorted((SHARED / "data" / "hsl").glob("*/*.dump"))
STOPS = SHARED / "data" / "hsl" / "gtfs-2025" / "stops.txt"

#: The fixed simulated hour: small, with lost positions, and more accidents than any city has.
FLEET = partial(Fleet, vehicles=12, seed=5, emergency_rate=1, gps_loss=0.01)
HOUR = 3600


def over(job: Job, batches: list[pl.DataFrame], *, groups: int = 3) -> tuple[pl.DataFrame, dict[str, Any]]:
    """Run a job over batches and to the end, with a restart in the middle; all results, outputs and counts."""
    runner = Runner(job, key_groups=groups)
    steps = []
    for number, batch in enumerate(batches):
        if number == len(batches) // 2:
            runner = Runner(job, key_groups=groups, snapshot=runner.snapshot())
        steps.append(runner.step(batch))
    steps.append(runner.finish())
    assert all(step.late is None for step in steps)
    counts: dict[str, int] = {}
    for step in steps:
        counts = {name: counts.get(name, 0) + step.counts.get(name, 0) for name in counts | step.counts}
    outputs = {name: pl.concat([step.outputs[name] for step in steps]) for name in steps[-1].outputs}
    return pl.concat([step.results for step in steps]), {**outputs, "counts": counts}


def told(results: pl.DataFrame, *columns: str) -> pl.DataFrame:
    """Bring results into the form of the answers."""
    window = (pl.col("window_end").dt.timestamp("us") // answers.SECOND).alias("window")
    return results.select(window, *columns).sort(
        "window", *(name for name in ("cell", "final_cell") if name in columns)
    )


def equal(found: pl.DataFrame, expected: pl.DataFrame) -> None:
    """Say which window differs first, and how."""
    assert found.columns == expected.columns
    if found.equals(expected):
        return
    for window in sorted({*found["window"].to_list(), *expected["window"].to_list()}):
        assert found.filter(window=window).rows() == expected.filter(window=window).rows(), f"window {window}"
    raise AssertionError("the same rows in another order or of other types")


def cut(rows: pl.DataFrame, seconds: int = 97) -> list[pl.DataFrame]:
    """Cut rows into batches by time, each shuffled: nothing is late, and no order is given."""
    stamp = pl.col("event_time").dt.timestamp("us") // (seconds * answers.SECOND)
    parts = rows.with_columns(stamp.alias("#part")).partition_by("#part", include_key=False, maintain_order=True)
    return [part.sample(fraction=1, shuffle=True, seed=7) for part in parts]


class World:
    """Events of one origin, and where its trips end."""

    def __init__(self, positions: pl.DataFrame, stop_events: pl.DataFrame, ends: dict[tuple[Any, ...], Any]) -> None:
        self.positions = positions
        self.stop_events = stop_events
        self._ends = ends
        self.feed: Path | None = None

    def ends(self, trip: dict[str, Any]) -> tuple[float, float] | None:
        exact = (trip["route"], trip["direction"], trip["operating_day"], trip["trip_start"])
        return self._ends.get(exact, self._ends.get(exact[:2]))

    def job(self, name: str, **settings: Any) -> Job:
        chosen = Settings(sections=(TransitSettings(gtfs=self.feed, **settings),))
        return all_jobs(chosen)[name]


def simulated() -> World:
    fleet = FLEET()
    frames = [
        take(0, seconds=HOUR).with_columns(ingestion_time=pl.col("event_time"))
        for take in (fleet.positions, fleet.stop_events)
    ]
    ends = {}
    for path in helsinki().paths:
        ends[path.route, path.direction] = PLACES[path.headsign]
    return World(frames[0], frames[1], ends)


def recorded(dump: Path, feed: Path) -> World:
    messages = []
    for line in dump.read_text().splitlines():
        arrival, topic, payload = line.split(" ", 2)
        at = np.datetime64(arrival.rstrip("Z"), "us").astype(int)
        messages.append(RawMessage(topic, payload.encode(), int(at)))
    processed = HfpProcessor(HfpSettings()).process(messages)
    empty = {
        topic: all_jobs()[name].pipeline.entries[0].source.schema.to_frame()
        for topic, name in ((VEHICLE_POSITIONS, "vehicle-distribution"), (STOP_EVENTS, "delay-distribution"))
    }
    frames = {events.topic: events.frame for events in processed.events}
    positions, stop_events = (frames.get(topic, empty[topic]) for topic in (VEHICLE_POSITIONS, STOP_EVENTS))
    world = World(positions, stop_events, timetable_of(positions, feed))
    world.feed = feed
    return world


def timetable_of(positions: pl.DataFrame, feed: Path) -> dict[tuple[Any, ...], Any]:
    """Write a GTFS feed of the recorded trips: each ends at the last stop that it reported to be on its way to.

    The recordings come without a timetable; the places of the stops are those of the operator's own register.
    """
    stops = pl.read_csv(STOPS, infer_schema=False).select("stop_id", "stop_lat", "stop_lon")
    trip = ["route", "direction", "operating_day", "trip_start"]
    trips = (
        positions.filter(pl.col("next_stop").is_in(stops["stop_id"].implode()))
        .sort("event_time")
        .group_by(trip, maintain_order=True)
        .agg(pl.col("next_stop").first().alias("first"), pl.col("next_stop").last().alias("last"))
        .drop_nulls()
        .with_row_index("number")
        .with_columns(trip_id=pl.format("trip{}", "number"))
    )
    feed.mkdir(parents=True)
    stops.write_csv(feed / "stops.txt")
    trips.select(
        "trip_id",
        pl.col("route").alias("route_id"),
        pl.col("trip_id").alias("service_id"),
        (pl.col("direction") - 1).alias("direction_id"),
    ).write_csv(feed / "trips.txt")
    calls = []
    for row in trips.iter_rows(named=True):
        calls.append((row["trip_id"], f"{row['trip_start']}:00", row["first"], 1))
        calls.append((row["trip_id"], f"{row['trip_start']}:59", row["last"], 2))
    columns = ["trip_id", "departure_time", "stop_id", "stop_sequence"]
    pl.DataFrame(calls, schema=columns, orient="row").write_csv(feed / "stop_times.txt")
    dates = trips.select(
        pl.col("trip_id").alias("service_id"), pl.col("operating_day").str.replace_all("-", "").alias("date")
    )
    dates.with_columns(exception_type=pl.lit(1)).write_csv(feed / "calendar_dates.txt")
    places = {stop: (float(latitude), float(longitude)) for stop, latitude, longitude in stops.iter_rows()}
    return {tuple(row[name] for name in trip): places[row["last"]] for row in trips.iter_rows(named=True)}


@pytest.fixture(
    scope="module", params=["simulated", *(dump.stem for dump in DUMPS)] if DUMPS else ["simulated", "none"]
)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    if request.param == "none":
        pytest.skip("the recordings are not on this machine; set HEADRACE_SHARED to the folder that holds data/hsl")
    if request.param == "simulated":
        return simulated()
    dump = next(dump for dump in DUMPS if dump.stem == request.param)
    return recorded(dump, tmp_path_factory.mktemp("feeds") / dump.stem)


def batches(rows: pl.DataFrame) -> list[pl.DataFrame]:
    """Cut an even stream into batches; one with minutes of delay in it comes at once, so that nothing is late."""
    return cut(rows) if rows.height > 50_000 else [rows]


def test_vehicle_distribution(world: World) -> None:
    found, _ = over(world.job("vehicle-distribution"), batches(world.positions))
    assert found.height
    equal(told(found, "cell", "vehicles"), answers.vehicle_distribution(world.positions))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["kll", "exact"])
def test_delay_distribution(world: World, method: str) -> None:
    found, _ = over(world.job("delay-distribution", delay_quantiles=method), [world.stop_events])
    compare_delays(found, answers.delays(world.stop_events), method)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["kll", "exact"])
def test_delay_distribution_of_many_arrivals(method: str) -> None:
    """More arrivals in a cell than a sketch can hold: its error is within what it states."""
    chance = np.random.default_rng(3)
    number = 12_000
    start = np.datetime64("2026-01-01T12:00:00", "us").astype(int)
    rows = pl.DataFrame(
        {
            "event_time": pl.Series(start + chance.integers(0, 700_000_000, number)).cast(pl.Datetime("us", "UTC")),
            "latitude": chance.choice([60.17, 60.2, 60.25], number),
            "longitude": 24.94,
            "delay": np.round(chance.gamma(2, 60, number) - 40).astype(np.int32),
            "event_type": chance.choice(["ARS", "DEP"], number, p=[0.9, 0.1]),
        }
    )
    schema = all_jobs()["delay-distribution"].pipeline.entries[0].source.schema
    whole = rows.with_columns(
        pl.lit(None, kind).alias(name) for name, kind in schema.items() if name not in rows.columns
    )
    job = all_jobs(Settings(sections=(TransitSettings(delay_quantiles=method),)))["delay-distribution"]
    found, _ = over(job, cut(whole.sort("event_time"), 30))
    assert found["arrivals"].max() > 1000
    compare_delays(found, answers.delays(whole), method)


def compare_delays(found: pl.DataFrame, expected: pl.DataFrame, method: str) -> None:
    size = pl.col("delay").list.len().cast(pl.Int64).alias("arrivals")
    equal(told(found, "cell", "arrivals"), expected.select("window", "cell", size))
    rows = told(found, "cell", "p50", "p90", "p99").join(expected, on=["window", "cell"])
    for name, level in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        if method == "exact":
            apart = (pl.col(name) - answers.exact_quantile(level)).abs()
            assert rows.filter(apart > 1e-9).is_empty()
            continue
        # The sketch states its error in ranks, with 99 % certainty; a value more or less is one step of rank.
        allowed = datasketches.kll_doubles_sketch.get_normalized_rank_error(200, False)
        step = 1 / pl.col("delay").list.len()
        wrong = answers.ranks(rows, name).filter(
            (pl.col("low") - step - allowed > level) | (pl.col("high") + step + allowed < level)
        )
        assert wrong.height <= rows.height * 0.01


@pytest.mark.slow
def test_final_stop_distribution(world: World) -> None:
    found, beside = over(world.job("final-stop-distribution"), batches(world.positions))
    assert found.height
    by_stop, by_pair = answers.final_stops(world.positions, world.ends)
    equal(told(found, "final_cell", "vehicles"), by_stop)
    equal(told(beside["pairs"], "cell", "final_cell", "vehicles"), by_pair)
    located = world.positions.filter(pl.col("latitude").is_not_null()).height
    assert sum(beside["counts"].values()) == located


@pytest.mark.slow
def test_flow_direction(world: World) -> None:
    found, beside = over(world.job("flow-direction"), batches(world.positions))
    expected, dropped = answers.flow_direction(world.positions)
    equal(told(found, "cell", "departures", "to", "vehicles", "share"), expected)
    assert beside["counts"].get("jumps_too_long", 0) == dropped


@pytest.mark.parametrize("name", ["emergency-stop-pattern", "emergency-stop-sql"])
def test_emergency_stops(world: World, name: str) -> None:
    found, _ = over(world.job(name), batches(world.positions))
    columns = ["vehicle_id", "line", "stopped", "latitude", "longitude", "speed", "duration", "deceleration"]
    assert sorted(found.select(columns).rows()) == answers.emergency_stops(world.positions)


def test_the_simulated_hour_has_something_for_every_job() -> None:
    """So that equal answers are not equal because they are empty."""
    world = simulated()
    assert answers.edges(world.positions)[0].height > 500
    assert len(answers.emergency_stops(world.positions)) > 5
    assert answers.delays(world.stop_events)["delay"].list.len().max() > 1
