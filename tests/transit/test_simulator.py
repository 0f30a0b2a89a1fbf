from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import PlanError
from headrace.geo import distance
from headrace_transit.simulator import POSITION_SCHEMA, STOP_SCHEMA, Fleet
from headrace_transit.simulator.helsinki import helsinki
from headrace_transit.simulator.milestones import EVENTS, STOP_EVENTS
from headrace_transit.simulator.network import Line, Network
from headrace_transit.simulator.service import needed

VEHICLES = 200
START = datetime(2025, 9, 1, 5, tzinfo=UTC)


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return Fleet(vehicles=VEHICLES, seed=3, start=START, gps_noise=0, gps_loss=0, emergency_rate=1)


@pytest.fixture(scope="module")
def half_hour(fleet: Fleet) -> pl.DataFrame:
    return pl.concat([fleet.positions(second, seconds=60) for second in range(0, 1800, 60)]).sort(
        "vehicle_id", "event_time"
    )


@pytest.fixture(scope="module")
def moves(half_hour: pl.DataFrame) -> pl.DataFrame:
    """Two neighbouring reports of the same trip side by side."""
    of_trip = ["vehicle_id", "route", "direction", "trip_start"]
    before = {
        f"{name}_before": pl.col(name).shift(1).over(of_trip) for name in ("latitude", "longitude", "speed", "odometer")
    }
    north = (pl.col("latitude") - pl.col("latitude_before")).radians()
    east = (pl.col("longitude") - pl.col("longitude_before")).radians() * pl.col("latitude").radians().cos()
    return (
        half_hour.with_columns(**before)
        .filter(pl.col("latitude_before").is_not_null())
        .with_columns(
            moved=distance("latitude_before", "longitude_before", "latitude", "longitude"),
            mean_speed=(pl.col("speed") + pl.col("speed_before")) / 2,
            bearing=pl.arctan2(east, north).degrees() % 360,
        )
    )


def test_the_columns_are_those_of_the_schemas(fleet: Fleet) -> None:
    assert fleet.positions(5).schema == POSITION_SCHEMA
    assert fleet.positions(5, seconds=3).schema == POSITION_SCHEMA
    assert fleet.stop_events(5).schema == STOP_SCHEMA


@settings(deadline=None, max_examples=8)
@given(st.integers(0, 100_000), st.integers(1, 50), st.integers(0, 5))
def test_a_second_is_the_same_however_it_is_reached(second: int, vehicles: int, seed: int) -> None:
    fleet = Fleet(vehicles=vehicles, seed=seed)
    alone = Fleet(vehicles=vehicles, seed=seed).positions(second)
    fleet.positions(second + 7000)
    together = fleet.positions(second - 1, seconds=3)
    assert alone.equals(together.slice(vehicles, vehicles))
    alone = pl.concat([fleet.happenings(second + k)[0] for k in reversed(range(8))][::-1])
    assert alone.equals(fleet.happenings(second, seconds=8)[0])


def test_another_seed_is_another_day() -> None:
    one, two = (Fleet(vehicles=50, seed=seed).positions(500) for seed in (1, 2))
    assert (one["latitude"] != two["latitude"]).sum() > 40


def test_every_vehicle_reports_once_a_second_with_its_own_clock(half_hour: pl.DataFrame) -> None:
    counts = half_hour.group_by("vehicle_id", pl.col("event_time").dt.truncate("1s")).len()
    assert counts["len"].to_list() == [1] * VEHICLES * 1800
    assert half_hour["event_time"].min() >= START
    assert half_hour["event_time"].max() < START + timedelta(seconds=1800)
    assert half_hour["event_time"].dt.microsecond().n_unique() > VEHICLES / 2


def test_all_modes_are_on_the_road_in_the_helsinki_region(half_hour: pl.DataFrame) -> None:
    assert set(half_hour["mode"]) == {"tram", "bus", "train", "metro"}
    assert half_hour["latitude"].is_between(60.13, 60.42).all()
    assert half_hour["longitude"].is_between(24.55, 25.20).all()
    assert half_hour["vehicle_id"].n_unique() == VEHICLES


def test_speed_is_distance_by_time(moves: pl.DataFrame) -> None:
    # A parabola's mean speed is the mean of its ends; only where a phase ends within the second do the two differ.
    gradual = moves.filter((pl.col("speed") - pl.col("speed_before")).abs() < 1.3)
    wrong = gradual.filter((pl.col("moved") - pl.col("mean_speed")).abs() > 0.6 + 0.02 * pl.col("mean_speed"))
    assert wrong.height == 0
    assert moves["moved"].sum() == pytest.approx(moves["mean_speed"].sum(), rel=0.005)
    assert moves["moved"].mean() > 3


def test_the_odometer_counts_the_metres(moves: pl.DataFrame) -> None:
    counted = moves["odometer"] - moves["odometer_before"]
    assert (counted - moves["moved"]).abs().max() < 1.7
    assert counted.min() >= 0


def test_vehicles_face_where_they_go(moves: pl.DataFrame) -> None:
    fast = moves.filter(pl.col("moved") > 3)
    turned = ((fast["heading"] - fast["bearing"] + 180) % 360 - 180).abs()
    assert turned.quantile(0.99) < 10
    assert turned.max() < 60


def test_acceleration_is_bounded_and_explains_the_speed(moves: pl.DataFrame) -> None:
    assert moves["acceleration"].is_between(-6, 2.6).all()
    ordinary = moves.filter(pl.col("acceleration") > -1)
    assert (ordinary["speed"] - ordinary["speed_before"]).max() < 2.6
    brakes = moves.filter(pl.col("acceleration") < -2)
    assert brakes.height > 50
    # In the first second of braking a vehicle may have gained a little before.
    assert (brakes["speed"] < brakes["speed_before"] + 0.8).all()


def test_doors_open_only_at_a_stop(half_hour: pl.DataFrame) -> None:
    opened = half_hour.filter("doors_open")
    assert opened["speed"].max() == 0
    assert opened["stop"].null_count() == 0
    at_stop = half_hour.filter(pl.col("stop").is_not_null())
    assert (at_stop["stop"] == at_stop["next_stop"]).all()
    assert half_hour["doors_open"].mean() == pytest.approx(0.13, abs=0.06)


def test_delays_stay_plausible(half_hour: pl.DataFrame) -> None:
    known = half_hour.filter(pl.col("delay").is_not_null())
    assert known["delay"].is_between(-600, 1200).all()
    assert known["delay"].std() > 40
    assert known["delay"].median() == pytest.approx(10, abs=40)
    # Who waits for an assignment knows neither how late it is nor how far it has come.
    upcoming = half_hour.filter(pl.col("temporal_type") == "upcoming")
    assert upcoming.height == half_hour["delay"].null_count() == half_hour["odometer"].null_count() > 0
    assert upcoming["speed"].max() == 0


def emergency_stops_seen(half_hour: pl.DataFrame) -> list[tuple[str, datetime]]:
    """Cruising (at least 10 m/s), braking once or more, stopped (below 1 m/s), within 10 s: by hand, row by row."""
    seen = []
    for (vehicle,), rows in half_hour.group_by("vehicle_id", maintain_order=True):
        cruised: datetime | None = None
        braked = False
        for at, speed, acceleration in rows.select("event_time", "speed", "acceleration").iter_rows():
            if speed >= 10:
                cruised, braked = at, acceleration < 0
            elif speed < 1 and cruised is not None:
                if braked and at - cruised <= timedelta(seconds=10):
                    seen.append((str(vehicle), at))
                cruised = None
            else:
                braked = braked or acceleration < 0
    return seen


def test_emergency_stops_are_exactly_those_that_are_told(fleet: Fleet, half_hour: pl.DataFrame) -> None:
    truth = fleet.emergency_stops(0, 1790)
    told = {(vehicle, at) for vehicle, at in truth.select("vehicle_id", "stopped").iter_rows()}
    seen = emergency_stops_seen(half_hour)
    assert len(seen) == len(told) > 50
    for vehicle, at in seen:
        assert any(vehicle == who and abs(at - when) < timedelta(seconds=2) for who, when in told)


def test_emergency_stops_happen_where_they_are_told(fleet: Fleet, half_hour: pl.DataFrame) -> None:
    truth = fleet.emergency_stops(0, 1790)
    here = half_hour.join(truth, on="vehicle_id", suffix="_told").filter(
        pl.col("event_time").is_between("stopped", "resumed")
    )
    assert here.height > 5 * truth.height
    assert here["speed"].max() == pytest.approx(0, abs=0.01)
    assert here.select(distance("latitude", "longitude", "latitude_told", "longitude_told")).to_series().max() < 0.5
    assert truth["speed"].min() >= 10


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_nobody_else_stops_that_fast(seed: int) -> None:
    """However many reports are lost: between 10 m/s and less than 1 m/s lie more than ten seconds."""
    calm = Fleet(vehicles=300, seed=seed, emergency_rate=0, gps_loss=0)
    assert calm.emergency_stops(0, 7200).height == 0
    reports = pl.concat([calm.positions(second, seconds=100) for second in range(0, 5400, 100)])
    fast = pl.when(pl.col("speed") >= 10).then("event_time").forward_fill().over("vehicle_id")
    stopped = reports.with_columns(fast=fast).filter(pl.col("speed") < 1)
    since = (stopped["event_time"] - stopped["fast"]).dt.total_milliseconds()
    assert since.null_count() < stopped.height
    assert since.min() > 10_000
    assert (reports["speed"] >= 10).mean() > 0.1


#: What happens at a stop, in order: served or passed; at the first stop, at the last.
VISIT = re.compile(r"(DUE ARR (ARS DOO DOC (WAIT )?PDE |PAS )DEP )")
TRIP = re.compile(rf"(DA BA )?VJA ({VISIT.pattern})+DUE ARR ARS DOO DOC VJOUT (BOUT DOUT )?")


def test_events_follow_each_other_as_they_do_at_stops(fleet: Fleet) -> None:
    events, who = fleet.happenings(0, seconds=7200)
    assert set(events["event_type"]) == set(EVENTS)
    assert events["event_time"].is_sorted()
    assert events["event_time"].is_between(START, START + timedelta(seconds=7200), closed="left").all()
    assert (events["vehicle_id"] == fleet.vehicle_ids.gather(who)).all()
    trips = 0
    for _, rows in events.filter(~pl.col("event_type").is_in(["TLR", "TLA"])).group_by("vehicle_id"):
        story = " ".join(rows["event_type"]) + " "
        # From the first beginning of a trip to the last one, everything is whole trips.
        begins = [found.start() for found in re.finditer(r"(DA BA )?VJA", story)]
        whole = story[begins[0] : begins[-1]]
        assert re.fullmatch(rf"({TRIP.pattern})*", whole), whole[:300]
        trips += len(begins) - 1
    assert trips > 200


def test_events_name_the_stops_of_the_line_one_after_the_other(fleet: Fleet) -> None:
    events = fleet.stop_events(0, seconds=900)
    assert set(events["event_type"]) == set(STOP_EVENTS)
    left = events.filter(pl.col("event_type") == "DEP")
    due = events.filter(pl.col("event_type") == "DUE")
    following = left.join_asof(due, on="event_time", by="vehicle_id", strategy="forward", suffix="_due")
    same_trip = following.filter(pl.col("trip_start") == pl.col("trip_start_due"))
    assert same_trip.height > 500
    assert (same_trip["next_stop"] == same_trip["stop_due"]).all()
    assert (same_trip["next_stop"] != same_trip["stop"]).all()
    others = events.filter(pl.col("event_type") != "DEP")
    assert (others["stop"] == others["next_stop"]).all()


def test_stop_events_agree_with_the_timetable_and_the_positions(fleet: Fleet) -> None:
    for second in range(0, 900, 90):
        events = fleet.stop_events(second, seconds=10)
        arrived = events.filter(pl.col("event_type") == "ARS")
        behind = (arrived["event_time"] - arrived["scheduled_arrival"]).dt.total_milliseconds() / 1000
        assert (behind - arrived["delay"]).abs().max() <= 0.6
        assert events["scheduled_departure"].dt.microsecond().max() == 0
        reports = fleet.positions(second, seconds=10).sort("event_time")
        nearby = events.join_asof(reports, on="event_time", by="vehicle_id", strategy="nearest", suffix="_reported")
        nearby = nearby.filter(pl.col("latitude_reported").is_not_null())
        gap = nearby.select(distance("latitude", "longitude", "latitude_reported", "longitude_reported")).to_series()
        assert (gap <= 1.2 * nearby["speed"] + 2).all()
        doors = nearby.filter(pl.col("event_type").is_in(["DOO", "DOC"]))
        assert doors["speed"].max() in (0, None)


def test_lights_are_asked_once_a_second_until_they_answer(fleet: Fleet) -> None:
    events, _ = fleet.happenings(0, seconds=1800)
    asked = events.filter(pl.col("event_type") == "TLR")
    assert asked["light"].null_count() == 0
    assert set(asked["mode"]) <= {"tram", "bus"}
    assert sorted(set(asked["attempt"])) == [1, 2, 3, 4]
    answers = events.filter(pl.col("event_type") == "TLA")
    assert 0.3 < answers.height / asked.filter(pl.col("attempt") == 1).height < 0.9
    assert events.filter(~pl.col("event_type").is_in(["TLR", "TLA"]))["light"].null_count() > 0


def test_the_fleet_of_a_weekday_comes_and_goes() -> None:
    day = Fleet(vehicles=400, seed=2, start=datetime(2025, 9, 1, 0, tzinfo=UTC), service="weekday", gps_loss=0)
    # Helsinki is three hours ahead; the figures are those of HSL's feed, to the fleet's size.
    out = {hour: day.positions((hour - 3) * 3600).height for hour in (4, 8, 12, 16, 20, 23)}
    for hour, count in out.items():
        assert count == pytest.approx(400 * needed(np.array([hour * 60.0]))[0], rel=0.15, abs=12)
    assert out[16] > out[8] > out[12] > out[20] > out[23] > out[4]
    events = day.happenings(2 * 3600, seconds=3600)[0].sort("vehicle_id", "event_time")
    signed = events.filter(pl.col("event_type").is_in(["DA", "VJA"]))
    assert signed.filter(pl.col("event_type") == "DA").height > 100
    # Who was not there before signs on, before anything else.
    early = set(day.positions(2 * 3600 - 1)["vehicle_id"])
    first = events.group_by("vehicle_id", maintain_order=True).first().filter(~pl.col("vehicle_id").is_in(early))
    assert set(first["event_type"]) == {"DA"}
    seen = day.positions(3 * 3600, seconds=2)
    assert seen["vehicle_id"].n_unique() < 400
    assert day.positions(3 * 3600).equals(seen.head(day.positions(3 * 3600).height))


def test_lost_positions_are_null_for_about_the_share_asked_for() -> None:
    fleet = Fleet(vehicles=500, seed=2, gps_loss=0.02)
    frames = pl.concat([fleet.positions(second) for second in range(0, 6000, 60)])
    lost = frames["latitude"].is_null()
    assert lost.mean() == pytest.approx(0.02, rel=0.3)
    gone = frames.filter(lost)
    assert gone["longitude"].null_count() == gone["speed"].null_count() == gone["heading"].null_count() == gone.height
    assert set(gone["location_source"]) == {"ODO"}
    assert frames.filter(~lost)["longitude"].null_count() == 0


def test_noise_moves_positions_by_some_metres() -> None:
    exact, noisy = (Fleet(vehicles=100, gps_loss=0, gps_noise=noise).positions(77) for noise in (0, 5))
    off = noisy.join(exact, on="vehicle_id").select(
        distance("latitude", "longitude", "latitude_right", "longitude_right")
    )
    assert off.to_series().is_between(4, 6).all()


def test_trips_are_named_by_local_time_and_operating_day() -> None:
    fleet = Fleet(vehicles=300, start=datetime(2025, 9, 1, 21, 30, tzinfo=UTC))
    night = fleet.positions(3600)
    assert set(night["operating_day"]) == {"2025-09-01"}
    assert night["trip_start"].str.contains(r"^(23|00|01|22):\d\d$").all()
    morning = fleet.positions(8 * 3600)
    assert set(morning["operating_day"]) == {"2025-09-02"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vehicles": 0}, "at least 1"),
        ({"start": datetime(2025, 1, 1)}, "no time zone"),  # noqa: DTZ001
        ({"emergency_rate": 1.5}, "emergency_rate is 1.5"),
        ({"gps_loss": -0.1}, "gps_loss is -0.1"),
        ({"gps_noise": -1}, "gps_noise is -1"),
        ({"service": "sunday"}, "service is 'sunday'"),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        Fleet(**options)


def test_every_place_of_the_network_is_used_and_no_line_leaps() -> None:
    network = helsinki()
    assert {place for line in network.lines for place in line.places} == set(network.places)
    for path in network.paths:
        assert path.stop_ids[0] != path.stop_ids[-1] or path.line.name == "P"
        assert len(path.stops) == len(path.stop_ids)
        gaps = path.stops[1:] - path.stops[:-1]
        assert gaps.min() > 150
        assert gaps.max() < 13_000


@pytest.mark.parametrize(
    ("line", "message"),
    [(Line("1", "tram", 40, ("A", "Z")), "unknown places"), (Line("1", "tram", 40, ("A",)), "fewer than two")],
)
def test_a_network_that_leads_nowhere_is_refused(line: Line, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        Network({"A": (60.1, 24.9)}, (line,))
