"""The simulated feed beside the real one: what the report says, in tests that fail when it no longer holds."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from headrace_transit.simulator import Disorder, Fleet
from headrace_transit.simulator.calibration import REFERENCE, Lateness, read_lags, simulated_lags
from headrace_transit.simulator.service import EVENTS_PER_SECOND, needed

SHARED = Path(os.environ.get("HEADRACE_SHARED") or Path(__file__).resolve().parents[2].parent / "shared")
LAGS = SHARED / "data" / "hsl" / "reference" / "ingestion_lag.csv.gz"
VOLUME = SHARED / "data" / "hsl" / "reference" / "daily_event_volume.csv"


def need(path: Path) -> Path:
    if not path.exists():
        pytest.skip(f"{path.name} is not on this machine; set HEADRACE_SHARED to the folder that holds data/hsl")
    return path


@pytest.mark.parametrize("seed", [1, 2])
def test_reports_are_as_late_as_those_of_the_real_feed(seed: int) -> None:
    simulated = Lateness.of(simulated_lags(Disorder.hsl(), seed=seed))
    for name, ratio in simulated.ratio(REFERENCE)._asdict().items():
        assert ratio == pytest.approx(1, abs=0.2), name


def test_the_figures_of_the_real_feed_are_what_its_measurement_says() -> None:
    measured = read_lags(need(LAGS))
    assert len(measured) == 64_251
    assert Lateness.of(measured) == pytest.approx(REFERENCE, rel=0.001)
    simulated = simulated_lags(Disorder.hsl(), seed=3)
    # Not only the figures: the whole curve, from the fastest to the latest.
    for share in (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975, 0.99, 0.995, 0.999, 0.9995):
        assert np.quantile(simulated, share) == pytest.approx(np.quantile(measured, share), rel=0.2), share


def test_late_reports_come_from_few_vehicles_as_in_the_real_feed() -> None:
    lags = simulated_lags(Disorder.hsl(), vehicles=2000, seconds=300, every=1).reshape(300, 2000)
    share = (lags > 1).mean(axis=0)
    # Real: of some 210 vehicles in 300 s, 4 were late in more than 40 % of their reports, most hardly ever.
    assert (share > 0.4).mean() == pytest.approx(0.015, abs=0.015)
    assert np.median(share) < 0.03


def test_the_day_has_the_shape_of_the_real_one() -> None:
    volume = pl.read_csv(need(VOLUME)).with_columns(minute=(pl.col("minute_start") / 60 + 180) % 1440)
    real = volume["count"].to_numpy() / 60
    simulated = needed(volume["minute"].to_numpy()) * max(EVENTS_PER_SECOND)
    assert np.corrcoef(real, simulated)[0, 1] > 0.999
    assert np.abs(real - simulated).mean() / real.mean() < 0.02
    # And the fleet follows it, in whole trips.
    fleet = Fleet(vehicles=300, start=datetime(2025, 9, 1, 0, tzinfo=UTC), service="weekday")
    times = np.arange(0, 86400, 1800)
    out = np.array([fleet.positions(int(second)).height for second in times])
    assert np.corrcoef(out, needed(times / 60 + 180))[0, 1] > 0.98


@pytest.mark.parametrize(
    ("mode", "standing", "moving", "spread"),
    # Of one tram and one bus, 21 September 2020: share standing, median speed when moving, spread of acceleration.
    [("tram", 0.367, 4.94, 0.403), ("bus", 0.357, 7.97, 0.509)],
)
def test_vehicles_drive_as_the_recorded_ones(mode: str, standing: float, moving: float, spread: float) -> None:
    fleet = Fleet(vehicles=300, seed=1, emergency_rate=0, gps_loss=0)
    reports = pl.concat([fleet.positions(second) for second in range(0, 7200, 12)]).filter(pl.col("mode") == mode)
    assert (reports["speed"] < 0.5).mean() == pytest.approx(standing, rel=0.2)
    assert reports.filter(pl.col("speed") >= 0.5)["speed"].median() == pytest.approx(moving, rel=0.2)
    assert reports["acceleration"].std() == pytest.approx(spread, rel=0.2)
    assert reports["doors_open"].mean() == pytest.approx(0.10, rel=0.25)
