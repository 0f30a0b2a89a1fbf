"""The aircraft example says what is so: against the file it reads, by plain counting."""

from __future__ import annotations

import runpy
from collections import Counter
from pathlib import Path
from typing import Any

import h3
import polars as pl
import pytest

from headrace.inprocess import run

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "aircraft.py"


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLE))


@pytest.fixture(scope="module")
def events(example: dict[str, Any]) -> pl.DataFrame:
    return example["events"](example["STATES"])


def test_only_what_is_in_the_air_becomes_an_event(example: dict[str, Any], events: pl.DataFrame) -> None:
    states = pl.read_csv(example["STATES"], infer_schema=False)
    assert events.height == states.filter(pl.col("onground") == "False").height > 2000


def test_density_is_that_of_plain_counting(example: dict[str, Any], events: pl.DataFrame) -> None:
    found = run(example["density"].stream, events).results
    windows = found.get_column("window_end").unique().sort().to_list()
    assert len(windows) > 20
    for end in windows:
        start = found.filter(window_end=end).item(0, "window_start")
        inside = events.filter(pl.col("event_time").is_between(start, end, closed="left")).sort("event_time")
        newest = inside.group_by("icao24").last()
        cells = [
            h3.str_to_int(h3.latlng_to_cell(latitude, longitude, 4))
            for latitude, longitude in newest.select("latitude", "longitude").iter_rows()
        ]
        assert dict(found.filter(window_end=end).select("cell", "aircraft").rows()) == Counter(cells)


def test_the_two_that_fall_are_found_and_no_other(example: dict[str, Any], events: pl.DataFrame) -> None:
    found = run(example["descents"].stream, events).results
    assert sorted(found.get_column("callsign").to_list()) == ["EXA107", "EXA123"]
    assert found.get_column("climb").to_list() == [-42.0, -42.0]


def test_the_file_is_the_one_that_the_example_makes(example: dict[str, Any], tmp_path: Path) -> None:
    example["make_states"](tmp_path / "states.csv")
    assert (tmp_path / "states.csv").read_text() == example["STATES"].read_text()
