"""What strangers sent becomes what the protocol promises: finite numbers, valid cells, plain text."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import polars as pl
import pytest
from tests.dashboard.city import CELL_TEXTS, CELLS, delays_job, edges_job, positions, stops_job, vehicles_job

from headrace.dashboard.cleaning import MAX_DEPTH, MAX_ITEMS, MAX_TEXT, clean
from headrace.dashboard.declaration import declare
from headrace.observe.places import marker_cell, marker_place
from headrace.stream import Display, Job
from headrace.windows import collect, count, latest, sliding

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)
UTC_TIME = pl.Datetime("us", "UTC")


def decoded(**columns: Any) -> pl.DataFrame:
    """Results as the codec gives them, with the columns of one window."""
    frame = pl.DataFrame(columns)
    end = pl.lit(NOON).cast(UTC_TIME)
    return frame.with_columns(
        (end - timedelta(microseconds=1)).alias("event_time"),
        end.alias("window_end"),
        (end - timedelta(seconds=30)).alias("window_start"),
        (end + timedelta(seconds=1)).alias("kafka_timestamp"),
        pl.lit("k").alias("key"),
        pl.lit("id").alias("idempotency_key"),
        pl.lit(value=False).alias("is_retraction"),
    )


def cells(*values: int) -> pl.Series:
    return pl.Series(values, dtype=pl.UInt64)


def test_a_cell_is_its_own_key_as_text() -> None:
    rows = clean(decoded(cell=cells(*CELLS[:2]), vehicles=[3, 1]), declare(vehicles_job("v")))
    assert rows.key == list(CELL_TEXTS[:2])
    assert rows.values == {"vehicles": [3, 1]}
    assert rows.window_end == [NOON_MS] * 2
    assert rows.event_time == [NOON_MS - 1] * 2


@pytest.mark.parametrize("impossible", [0, 1, 2**64 - 1, 617294884144414719 ^ (1 << 59), 0x7FFFFFFFFFFFFFFF])
def test_impossible_cells_are_left_out_and_counted(impossible: int) -> None:
    rows = clean(decoded(cell=cells(CELLS[0], impossible), vehicles=[3, 1]), declare(vehicles_job("v")))
    assert rows.key == [CELL_TEXTS[0]]
    assert rows.unplaced == 1


def test_an_edge_needs_both_ends() -> None:
    frame = decoded(cell=cells(*CELLS), target=cells(CELLS[1], 5, CELLS[0]), vehicles=[1, 2, 3])
    rows = clean(frame, declare(edges_job("e")))
    assert rows.places["target"] == [CELL_TEXTS[1], CELL_TEXTS[0]]
    assert rows.values["vehicles"] == [1, 3]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 1e308, -1e308, 1e19])
def test_numbers_that_cannot_be_drawn_become_null(value: float) -> None:
    rows = clean(decoded(cell=cells(CELLS[0]), p50=[1e18], p90=[value]), declare(delays_job("d")))
    assert rows.values == {"p50": [1e18], "p90": [None]}
    json.dumps(rows.values, allow_nan=False)


@pytest.mark.parametrize("value", [2**53, -(2**53), 2**63 - 1])
def test_whole_numbers_that_a_browser_would_round_are_texts(value: int) -> None:
    rows = clean(decoded(cell=cells(CELLS[0]), vehicles=[value]), declare(vehicles_job("v")))
    assert rows.values == {"vehicles": [str(value)]}


def test_texts_lose_control_characters_and_length_and_nothing_else() -> None:
    job = stops_job("s")
    hostile = "<img src=x onerror=alert(1)>\x00\x1b[31m\u202e" + "y" * 10_000
    frame = decoded(vehicle_id=[hostile], line=["</script>"], latitude=[60.0], longitude=[24.0])
    rows = clean(frame, declare(job))
    (shown,) = rows.values["vehicle_id"]
    assert shown.startswith("<img src=x onerror=alert(1)>[31my")
    assert len(shown) == MAX_TEXT
    assert rows.values["line"] == ["</script>"]


@pytest.mark.parametrize(
    ("latitude", "longitude"),
    [(91.0, 0.0), (-90.1, 0.0), (0.0, 180.5), (float("nan"), 0.0), (float("inf"), 0.0), (None, 24.0), (1e300, 1e300)],
)
def test_positions_off_the_globe_are_left_out(latitude: float | None, longitude: float) -> None:
    frame = decoded(
        vehicle_id=["a", "b"],
        line=["1", "1"],
        latitude=pl.Series([60.0, latitude], dtype=pl.Float64),
        longitude=pl.Series([24.0, longitude], dtype=pl.Float64),
    )
    rows = clean(frame, declare(stops_job("s")))
    assert rows.values["vehicle_id"] == ["a"]
    assert rows.unplaced == 1


def test_every_single_event_has_a_key_of_its_own() -> None:
    frame = decoded(vehicle_id=["a", "a"], line=["1", "1"], latitude=[60.0, 60.0], longitude=[24.0, 24.0])
    frame = frame.with_columns(idempotency_key=pl.Series(["0123456789abcdef", "fedcba9876543210"]))
    rows = clean(frame, declare(stops_job("s")))
    assert len(set(rows.key)) == 2


def test_columns_of_other_types_or_none_at_all_become_null() -> None:
    rows = clean(decoded(cell=[CELL_TEXTS[0]], p50=["a text"]), declare(delays_job("d")))
    assert rows.key == [CELL_TEXTS[0]]
    assert rows.values == {"p50": [None], "p90": [None]}


def test_latency_markers_are_not_shown() -> None:
    rows = clean(decoded(cell=cells(marker_cell(7), CELLS[0]), vehicles=[1, 2]), declare(vehicles_job("v")))
    assert (rows.values["vehicles"], rows.markers, rows.unplaced) == ([2], 1, 0)
    latitude, longitude = marker_place(3)
    point = decoded(vehicle_id=["m"], line=["1"], latitude=[latitude], longitude=[longitude])
    assert clean(point, declare(stops_job("s"))).markers == 1


def test_lists_and_structs_are_bounded_and_cleaned() -> None:
    stream = (
        positions()
        .key_by("line")
        .window(sliding("30s", every="5s"))
        .aggregate(speeds=collect("speed"), vehicles=count(), newest=latest("vehicle_id"))
    )
    job = Job("lists", stream, display=Display.table())
    deep: Any = 1
    for _ in range(MAX_DEPTH + 3):
        deep = [deep]
    frame = decoded(
        line=["4", "4"],
        speeds=pl.Series([[float("nan"), 1.5, None], [0.5] * (10 * MAX_ITEMS)], dtype=pl.List(pl.Float64)),
        vehicles=[1, 2],
        newest=["<b>", "x"],
    )
    rows = clean(frame, declare(job))
    assert rows.values["speeds"][0] == [None, 1.5, None]
    assert len(rows.values["speeds"][1]) == MAX_ITEMS
    nested = clean(frame.with_columns(speeds=pl.Series([deep, deep])), declare(job)).values["speeds"][0]
    assert json.dumps(nested).count("[") == MAX_DEPTH


def test_a_further_output_is_declared_beside_its_job() -> None:
    from headrace.dashboard.declaration import declare_all
    from headrace_transit.jobs import all_jobs

    job = all_jobs()["final-stop-distribution"]
    declared = declare_all([job])
    pairs = declared["final-stop-distribution.pairs"]
    assert list(declared) == ["final-stop-distribution", "final-stop-distribution.pairs"]
    assert (pairs.run, pairs.topic) == (job.name, "analytics.final-stop-distribution.pairs")
    assert (pairs.display.kind, pairs.places, pairs.keyed_by_cell) == ("arcs", ("cell", "final_cell"), False)
    frame = decoded(cell=cells(CELLS[0]), final_cell=cells(CELLS[1]), vehicles=[2])
    rows = clean(frame, pairs)
    assert rows.places == {"cell": [CELL_TEXTS[0]], "target": [CELL_TEXTS[1]]}
    assert rows.key == ["k"]
