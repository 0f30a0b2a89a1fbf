from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

import polars as pl
import pytest

from headrace.errors import PlanError
from headrace_transit.simulator import Arrivals, Disorder, Fleet
from headrace_transit.simulator.disorder import Roads, Stalls

if TYPE_CHECKING:
    from collections.abc import Callable


def take_all(disorder: Disorder, steps: list[int], vehicles: int = 80, seed: int = 5) -> pl.DataFrame:
    arrivals = Arrivals(Fleet(vehicles=vehicles, seed=seed), disorder)
    parts = [arrivals.take(seconds) for seconds in steps]
    rest = arrivals.rest()
    assert arrivals.held == 0
    return pl.concat([*(part.positions for part in parts), rest.positions])


def test_without_disorder_reports_arrive_when_they_happen() -> None:
    fleet = Fleet(vehicles=30)
    arrived = Arrivals(fleet, Disorder.none()).take(3)
    assert arrived.positions.drop("arrival_time").equals(
        fleet.positions(0, seconds=3).sort("event_time", maintain_order=True)
    )
    assert (arrived.positions["arrival_time"] == arrived.positions["event_time"]).all()
    expected = pl.concat([fleet.stop_events(second) for second in range(3)])
    assert arrived.stop_events.height == expected.height


def test_clocks_that_are_wrong_move_the_times_of_their_vehicles_and_no_arrival() -> None:
    right = take_all(Disorder.none(), [1] * 5)
    wrong = take_all(replace(Disorder.none(), wrong_clocks=0.2), [1] * 5)
    by = pl.col("event_time_right") - pl.col("event_time")
    columns = ["vehicle_id", "arrival_time"]
    both = wrong.select(*columns, "event_time").join(right.select(*columns, "event_time"), on=columns, suffix="_right")
    assert both.height == right.height
    errors = both.group_by("vehicle_id").agg(
        by.n_unique().alias("errors"), by.first().dt.total_seconds(fractional=True).alias("by")
    )
    assert errors["errors"].to_list() == [1] * 80
    off = errors.filter(pl.col("by") != 0)["by"]
    assert (off.len(), (off > 0).sum()) == (16, 8)
    assert off.abs().is_between(1, 600).all()


@pytest.mark.parametrize("wrong", [{"wrong_clocks": 1.5}, {"wrong_by": (0, 5)}, {"wrong_by": (9, 5)}])
def test_clocks_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(PlanError, match="wrong_"):
        Disorder(**wrong)


def test_nothing_is_lost_or_made_up() -> None:
    disorder = Disorder(late_share=0.3, late_mean=10, duplicate_share=0.1)
    arrived = take_all(disorder, [1] * 20)
    sent = Fleet(vehicles=80, seed=5).positions(0, seconds=20)
    unique = arrived.drop("arrival_time").unique()
    assert unique.sort("vehicle_id", "event_time").equals(sent.sort("vehicle_id", "event_time"))
    assert arrived.height - sent.height == pytest.approx(160, rel=0.3)


def test_a_report_is_late_by_the_same_time_however_the_seconds_are_cut() -> None:
    disorder = Disorder(late_share=0.1)
    one, other = take_all(disorder, [1] * 12), take_all(disorder, [5, 7])
    keys = ["vehicle_id", "event_time", "arrival_time"]
    assert one.sort(keys).equals(other.sort(keys))


def test_reports_come_in_order_of_arrival_and_in_their_second() -> None:
    fleet = Fleet(vehicles=80, seed=5)
    arrivals = Arrivals(fleet, Disorder(late_share=0.2))
    arrivals.take(5)
    arrived = arrivals.take(2)
    for frame in (arrived.positions, arrived.stop_events):
        assert frame["arrival_time"].is_sorted()
        since = (frame["arrival_time"] - fleet.start).dt.total_milliseconds() / 1000
        assert since.is_between(5, 7, closed="left").all()
    assert not arrived.positions["event_time"].is_sorted()


def test_the_delays_are_those_asked_for() -> None:
    arrived = take_all(Disorder(delay=0.1, spread=1, late_share=0.1, late_mean=20, late_most=30), [60])
    waited = (arrived["arrival_time"] - arrived["event_time"]).dt.total_microseconds() / 1e6
    assert waited.median() == pytest.approx(0.11, rel=0.15)
    assert (waited > 3).mean() == pytest.approx(0.1 * 0.87, rel=0.2)
    assert 29 < waited.max() < 33


def test_a_stalled_vehicle_reports_in_a_burst_and_in_order() -> None:
    stalls = Disorder(delay=0.05, spread=0, late_share=0, duplicate_share=0, stalls=(Stalls(60, 20, 20),))
    arrived = take_all(stalls, [100, 100, 100])
    late = arrived.with_columns(late=(pl.col("arrival_time") - pl.col("event_time")).dt.total_microseconds() / 1e6)
    # A third of the time is spent in stalls; who reports in one waits for its end, ten seconds on average.
    assert (late["late"] > 0.1).mean() == pytest.approx(1 / 3, abs=0.12)
    assert late.filter(pl.col("late") > 0.1)["late"].mean() == pytest.approx(10, abs=1.5)
    assert 19 < late["late"].max() < 20.2
    for _, rows in late.sort("event_time").group_by("vehicle_id"):
        assert (rows["arrival_time"].diff().dt.total_microseconds().fill_null(0) > -100_000).all()
    bad = late.group_by("vehicle_id").agg((pl.col("late") > 0.1).mean())["late"]
    assert bad.min() < 0.3 < 0.6 < bad.max()


def test_what_is_late_does_not_depend_on_how_the_seconds_are_cut() -> None:
    one, other = take_all(Disorder.hsl(overlap=12), [1] * 40), take_all(Disorder.hsl(overlap=12), [7, 30, 3])
    keys = ["vehicle_id", "event_time", "arrival_time"]
    assert one.sort(keys).equals(other.sort(keys))


def test_an_archive_repeats_itself_where_its_pieces_overlap() -> None:
    fleet = Fleet(vehicles=300, seed=5)
    arrived = Arrivals(fleet, Disorder.hsl(duplicate_share=0, overlap=12), stop_events=False)
    positions = pl.concat([arrived.take(300).positions for _ in range(4)])
    twice = positions.filter(positions.is_duplicated())
    assert twice.height / 2 / (300 * 1200) == pytest.approx(0.02, rel=0.15)
    second = twice["arrival_time"].dt.epoch("s") % 300
    assert second.max() < 12


def test_a_bus_says_late_when_it_moved_off() -> None:
    fleet = Fleet(vehicles=100, seed=5)
    arrivals = Arrivals(fleet, Disorder(delay=0.05, spread=0, late_share=0, duplicate_share=0))
    events = pl.concat([arrivals.take(900).stop_events, arrivals.rest().stop_events])
    events = events.with_columns(late=(pl.col("arrival_time") - pl.col("event_time")).dt.total_milliseconds() / 1000)
    moved = events.filter((pl.col("event_type") == "PDE") & (pl.col("mode") == "bus"))
    assert moved["late"].min() > 3
    assert moved["late"].median() == pytest.approx(10, abs=4)
    others = events.filter((pl.col("event_type") != "PDE") | (pl.col("mode") == "tram"))
    assert others["late"].max() < 0.06


@pytest.mark.parametrize("name", get_args(Roads))
def test_disorder_has_names(name: str) -> None:
    assert isinstance(Disorder.named(name), Disorder)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Disorder.named("sunny"),
        lambda: Disorder(stalls=(Stalls(10, 1, 20),)),
        lambda: Disorder(stalls=(Stalls(100, 0, 2),)),
        lambda: Disorder(latency=((0, 0.1), (0.5, 0.05), (1, 1))),
        lambda: Disorder(latency=((0, 0.1), (0.5, 0.5))),
    ],
)
def test_disorder_that_makes_no_sense_is_refused(wrong: Callable[[], Disorder]) -> None:
    with pytest.raises(PlanError, match=r"sunny|stalls|latency"):
        wrong()


@pytest.mark.parametrize(
    "options", [{"late_share": 2.0}, {"duplicate_share": -0.1}, {"delay": -1.0}, {"spread": float("nan")}]
)
def test_disorder_that_cannot_be_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(PlanError, match=next(iter(options))):
        Disorder(**options)
