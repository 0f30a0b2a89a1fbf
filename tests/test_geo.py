from __future__ import annotations

import math
import pickle

import h3
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import PlanError
from headrace.geo import cell_from_text, cell_latitude, cell_longitude, cell_parent, cell_text, distance, h3_cell

latitudes = st.floats(-90, 90)
longitudes = st.floats(-180, 180)


def cells_of(latitude: list[float | None], longitude: list[float | None], resolution: int = 9) -> list[int | None]:
    frame = pl.DataFrame({"a": latitude, "b": longitude}, schema={"a": pl.Float64, "b": pl.Float64})
    return frame.with_columns(cell=h3_cell("a", "b", resolution=resolution))["cell"].to_list()


@settings(deadline=None, max_examples=100)
@given(st.lists(st.tuples(latitudes, longitudes), min_size=1, max_size=20), st.integers(0, 15))
def test_cells_equal_those_of_the_reference_library(places: list[tuple[float, float]], resolution: int) -> None:
    found = cells_of([a for a, _ in places], [b for _, b in places], resolution)
    assert found == [h3.str_to_int(h3.latlng_to_cell(a, b, resolution)) for a, b in places]


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf, 90.5, -1000.0])
def test_a_position_off_the_globe_has_no_cell_and_spares_its_neighbours(value: float | None) -> None:
    good = cells_of([60.0], [24.0])[0]
    assert cells_of([60.0, value, 60.0], [24.0, 24.0, 24.0]) == [good, None, good]


@pytest.mark.parametrize("value", [None, math.nan, math.inf, 180.5, -500.0])
def test_a_longitude_off_the_globe_has_no_cell(value: float | None) -> None:
    assert cells_of([60.0, 60.0], [value, 24.0])[0] is None


def test_no_rows_give_no_rows_of_the_same_type() -> None:
    frame = pl.DataFrame(schema={"a": pl.Float64, "b": pl.Float64})
    assert frame.with_columns(cell=h3_cell("a", "b")).schema["cell"] == pl.UInt64


def test_single_precision_and_literals_are_taken() -> None:
    frame = pl.DataFrame({"a": [60.0, 61.0]}, schema={"a": pl.Float32})
    assert frame.select(h3_cell("a", 24.0))["a"].to_list() == cells_of([60.0, 61.0], [24.0, 24.0])


def test_the_schema_is_known_before_the_data() -> None:
    lazy = pl.LazyFrame({"a": [1.0], "b": [1.0]}).with_columns(cell=h3_cell("a", "b"))
    assert lazy.collect_schema()["cell"] == pl.UInt64


def test_an_expression_can_be_sent_to_another_process() -> None:
    frame = pl.DataFrame({"a": [60.0], "b": [24.0]})
    sent = pickle.loads(pickle.dumps(h3_cell("a", "b").alias("cell")))  # noqa: S301 we wrote these bytes
    assert frame.select(sent)["cell"].to_list() == cells_of([60.0], [24.0])


@pytest.mark.parametrize("resolution", [-1, 16])
def test_a_resolution_that_does_not_exist_is_refused_while_the_plan_is_built(resolution: int) -> None:
    with pytest.raises(PlanError, match="from 0 to 15"):
        h3_cell("a", "b", resolution=resolution)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(latitudes, longitudes), min_size=1, max_size=10), st.integers(0, 15), st.integers(0, 15))
def test_text_centre_and_parent_equal_those_of_the_reference_library(
    places: list[tuple[float, float]], resolution: int, coarser: int
) -> None:
    texts = [h3.latlng_to_cell(a, b, resolution) for a, b in places]
    cells = pl.DataFrame({"cell": [None, 7, *map(h3.str_to_int, texts)]}, schema={"cell": pl.UInt64})
    found = cells.select(
        text=cell_text("cell"),
        again=cell_from_text(cell_text("cell")),
        latitude=cell_latitude("cell"),
        longitude=cell_longitude("cell"),
        parent=cell_text(cell_parent("cell", resolution=coarser)),
    )
    assert found.head(2).rows() == [(None,) * 5] * 2
    found = found.tail(-2)
    assert found["text"].to_list() == texts
    assert found["again"].to_list() == cells["cell"].to_list()[2:]
    for text, latitude, longitude in found.select("text", "latitude", "longitude").iter_rows():
        assert h3.cell_to_latlng(text) == pytest.approx((latitude, longitude))
    assert found["parent"].to_list() == [
        h3.cell_to_parent(t, coarser) if coarser <= resolution else None for t in texts
    ]


@settings(deadline=None, max_examples=50)
@given(latitudes, longitudes, latitudes, longitudes)
def test_distance_equals_that_of_the_reference_library(a: float, b: float, c: float, d: float) -> None:
    frame = pl.DataFrame({"a": [a], "b": [b], "c": [c], "d": [d]})
    expected = h3.great_circle_distance((a, b), (c, d), unit="m")
    assert frame.select(distance("a", "b", "c", "d")).item() == pytest.approx(expected, rel=1e-5, abs=1.0)
