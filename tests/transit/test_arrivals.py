from __future__ import annotations

import polars as pl
import pytest

from headrace.errors import PlanError
from headrace.transit.simulator import Fleet
from headrace.transit.simulator.arrivals import Arrivals, Disorder


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


@pytest.mark.parametrize(
    "options", [{"late_share": 2.0}, {"duplicate_share": -0.1}, {"delay": -1.0}, {"spread": float("nan")}]
)
def test_disorder_that_cannot_be_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(PlanError, match=next(iter(options))):
        Disorder(**options)
