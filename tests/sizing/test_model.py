"""The model of `headrace size`: fitted to what was measured, monotone, and honest about how far that carries."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from scripts.sizing import FITTED, cores, fit, fitted, memory

from headrace.errors import PlanError
from headrace.sizing import KINDS, Load, size

LOAD = Load(events_per_second=11_200, keys=20_000, window=300.0)


def test_the_model_is_that_of_the_measurements() -> None:
    kept = json.loads(FITTED.read_text())
    again = fitted()
    for part in ("cores", "memory_mb"):
        assert kept[part]["error"] == pytest.approx(again[part]["error"], abs=0.01), "run: python scripts/sizing.py"
    assert kept["bytes_per_key"] == again["bytes_per_key"]
    assert kept["cores"]["seconds_per_million_events"] == pytest.approx(
        again["cores"]["seconds_per_million_events"], rel=0.01
    )


@pytest.mark.parametrize("points", [cores(), memory()], ids=["cores", "memory"])
def test_the_error_is_that_of_points_left_out(points: list[Any]) -> None:
    """A point that lies on no line makes the error larger; it is not hidden by fitting to it."""
    _, error = fit(points)
    odd = replace(points[-1], value=10 * points[-1].value)
    _, worse = fit([*points[:-1], odd])
    assert worse["largest"] > error["largest"]
    assert error["points"] == len(points) >= 10


def test_what_was_measured_is_foretold_to_within_the_error() -> None:
    for point in cores():
        if point.name in ("vehicle-distribution", "emergency-stop-pattern"):
            kind = "patterns" if "pattern" in point.name else "windows"
            answer = size(replace(LOAD, kind=kind))
            assert answer.busy_cores == pytest.approx(point.value, rel=0.25)


@pytest.mark.parametrize(
    ("name", "more"),
    [("events_per_second", 1_000_000), ("jobs", 60), ("keys", 50_000_000), ("window", 1_000_000.0), ("copies", 5)],
)
def test_more_never_takes_less(name: str, more: float) -> None:
    for kind in KINDS:
        load = replace(LOAD, kind=kind, slide=60.0)
        before, after = size(load), size(replace(load, **{name: more}))
        for field in ("busy_cores", "cores", "memory_gb", "state_gb", "partitions", "key_groups", "kafka_in_mb"):
            assert getattr(after, field) >= getattr(before, field), (kind, field)


def test_sliding_windows_give_more_results_and_keep_more() -> None:
    tumbling, sliding = size(LOAD), size(replace(LOAD, slide=10.0))
    assert sliding.state_gb == pytest.approx(30 * tumbling.state_gb)
    assert replace(LOAD, slide=10.0).results_per_second == 2_000
    assert sliding.busy_cores > tumbling.busy_cores


def test_beyond_the_measurements_it_says_so() -> None:
    assert not size(LOAD).extrapolated
    assert size(replace(LOAD, events_per_second=1_000_000)).extrapolated
    assert size(replace(LOAD, keys=2_000_000)).extrapolated


@pytest.mark.parametrize(
    "wrong",
    [
        {"events_per_second": 0}, {"events_per_second": float("nan")}, {"jobs": 0}, {"keys": -1}, {"event_bytes": 0},
        {"slide": 400.0}, {"slide": 0.0}, {"window": float("inf")}, {"copies": 0}, {"retention_days": -1.0},
    ],
)  # fmt: skip
def test_loads_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(PlanError):
        replace(LOAD, **wrong)


def test_the_command() -> None:
    words = ["size", "--events-per-second", "11200", "--keys", "20000", "--window", "5m"]
    command = [sys.executable, "-m", "headrace.cli", *words]
    plain = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "cores" in plain
    assert "had not seen" in plain
    assert "beyond" not in plain
    told = json.loads(subprocess.run([*command, "--json"], capture_output=True, text=True, check=True).stdout)
    assert told["size"]["cores"] == size(LOAD).cores
    assert told["load"]["window"] == 300.0
