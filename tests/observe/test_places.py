"""Marker places: every number has a cell of its own, neighbours are neighbours, and nobody lives there."""

from __future__ import annotations

import itertools

import h3
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import PlanError
from headrace.geo import cell_latitude, cell_longitude, distance
from headrace.observe.places import (
    NEMO,
    PLACES,
    is_marker,
    is_marker_cell,
    marker_cell,
    marker_cells,
    marker_number,
    marker_place,
    marker_positions,
)
from headrace.observe.recognition import MARKERS, first_place, marker_of
from headrace_transit.simulator import Fleet


@given(st.integers(0, PLACES - 1))
def test_a_place_and_its_number_are_the_same_thing(number: int) -> None:
    cell = marker_cell(number)
    assert marker_number(cell) == number
    assert is_marker_cell(cell)
    assert is_marker_cell(h3.int_to_str(cell))
    assert is_marker(*marker_place(number))


def test_neighbours_in_the_spiral_are_neighbours_on_the_map() -> None:
    cells = [h3.int_to_str(marker_cell(number)) for number in range(400)]
    assert len(set(cells)) == 400
    assert all(h3.grid_distance(one, two) == 1 for one, two in itertools.pairwise(cells))


def test_the_spiral_goes_outwards() -> None:
    rings = [h3.grid_distance(h3.int_to_str(marker_cell(0)), h3.int_to_str(marker_cell(n))) for n in range(400)]
    assert rings == sorted(rings)


def test_the_last_ring_is_still_within_the_area() -> None:
    cells = pl.DataFrame({"cell": [marker_cell(number) for number in range(PLACES - 6000, PLACES)]})
    far = cells.select(distance(cell_latitude("cell"), cell_longitude("cell"), *NEMO)).to_series()
    assert cells["cell"].n_unique() == 6000
    assert far.max() < 400_000  # type: ignore[operator]  # the area ends at 450 km
    assert cells.filter(marker_cells("cell")).height == 6000


def test_numbers_begin_again() -> None:
    assert marker_cell(PLACES + 5) == marker_cell(5)
    assert first_place(MARKERS + 5) == first_place(5)


def test_a_negative_number_is_refused() -> None:
    with pytest.raises(PlanError, match="place -1"):
        marker_cell(-1)


def test_no_vehicle_is_a_marker() -> None:
    positions = Fleet(vehicles=500, seed=3).positions(100)
    assert positions.filter(marker_positions("latitude", "longitude")).is_empty()
    assert not any(is_marker(*row) for row in positions.select("latitude", "longitude").rows())


@pytest.mark.parametrize("cell", [0, 1, 2**63, 617294884144414719, "", "zz", "891126d3317ffff"])
def test_what_is_no_cell_of_a_marker_is_none(cell: int | str) -> None:
    assert not is_marker_cell(cell)
    if isinstance(cell, int):
        assert marker_number(cell) is None
        assert marker_of(cell) is None


def test_cells_of_another_resolution_have_no_number() -> None:
    coarse = h3.str_to_int(h3.latlng_to_cell(*NEMO, 8))
    assert is_marker_cell(coarse)  # so that it is hidden, whoever made it
    assert marker_number(coarse) is None
