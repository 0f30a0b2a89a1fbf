"""Places for latency markers: where no vehicle is.

A marker is an event that nobody sent: it takes the way of every other event, and its result tells how long that took.
It must not disturb what people look at, so it happens where nothing else does: around Point Nemo, the place in the
ocean farthest from land (2,688 km from the next shore). H3 cells are numbered in a spiral from there outwards, one
number per cell, so that every marker has a cell of its own and its result can be recognised by the cell alone:

- ring 0 is one cell, ring k has 6 k of them;
- neighbours in the spiral are neighbours on the map, so a vehicle can go from one to the next.

The numbers go on for `RINGS` rings (about 3 million cells, at resolution 9 all within 400 km), then begin again.
Whatever shows results to people leaves out what `is_marker` or `is_marker_cell` recognises.

>>> is_marker(-48.88, -123.4), is_marker(60.17, 24.94)
(True, False)
>>> [marker_number(marker_cell(number)) for number in (0, 1, 6, 7, 123_456)]
[0, 1, 6, 7, 123456]
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import h3

from headrace.errors import PlanError
from headrace.geo import EARTH_RADIUS, cell_latitude, cell_longitude, distance

if TYPE_CHECKING:
    import polars as pl
    from polars._typing import IntoExpr

#: Point Nemo: latitude and longitude in degrees.
NEMO = (-48.8767, -123.3933)
#: The resolution of the cells of the application's jobs.
RESOLUTION = 9
#: How far the spiral goes.
RINGS = 1000
#: How many cells that are: one, and six more per ring than in the ring before.
PLACES = 1 + 3 * RINGS * (RINGS + 1)
#: Metres from Point Nemo within which everything is a marker; the spiral's end and some room.
AREA = 450_000.0

#: The six directions of the hexagonal grid in H3's local coordinates, in turn.
_DIRECTIONS = ((1, 0), (1, 1), (0, 1), (-1, 0), (-1, -1), (0, -1))


@lru_cache(maxsize=1)
def _origin() -> tuple[str, int, int]:
    cell = h3.latlng_to_cell(*NEMO, RESOLUTION)
    return (cell, *h3.cell_to_local_ij(cell, cell))


def marker_cell(number: int) -> int:
    """Give the cell with a number.

    Args:
        number: 0 is Point Nemo itself; numbers from `PLACES` on begin again there.

    Raises:
        PlanError: The number is negative.
    """
    if number < 0:
        raise PlanError(f"place {number} of a marker", hint="Numbers begin with 0.")
    cell, i, j = _origin()
    across, up = _spiral(number % PLACES)
    return int(h3.str_to_int(h3.local_ij_to_cell(cell, i + across, j + up)))


@lru_cache(maxsize=65_536)
def marker_number(cell: int) -> int | None:
    """Give the number of a cell; None if no marker can be there.

    >>> marker_number(617294884144414719) is None
    True
    """
    if not is_marker_cell(cell) or h3.get_resolution(h3.int_to_str(cell)) != RESOLUTION:
        return None
    origin, i, j = _origin()
    across, up = h3.cell_to_local_ij(origin, h3.int_to_str(cell))
    number = _number(across - i, up - j)
    return number if number < PLACES else None


def marker_place(number: int) -> tuple[float, float]:
    """Give latitude and longitude of the middle of the cell with a number."""
    latitude, longitude = h3.cell_to_latlng(h3.int_to_str(marker_cell(number)))
    return latitude, longitude


def is_marker(latitude: float | None, longitude: float | None) -> bool:
    """Tell whether a position is that of a marker."""
    if latitude is None or longitude is None:
        return False
    south, west = math.radians(NEMO[0]), math.radians(NEMO[1])
    north = math.radians(latitude)
    chord = math.sin((north - south) / 2) ** 2
    chord += math.cos(south) * math.cos(north) * math.sin((math.radians(longitude) - west) / 2) ** 2
    return 2 * EARTH_RADIUS * math.asin(min(1.0, math.sqrt(chord))) <= AREA


@lru_cache(maxsize=65_536)
def is_marker_cell(cell: int | str) -> bool:
    """Tell whether an H3 cell, as a number or as hexadecimal text, is that of a marker; False for what is no cell.

    >>> is_marker_cell("89d36070d1bffff"), is_marker_cell("891126d3317ffff"), is_marker_cell("nowhere")
    (True, False, False)
    """
    text = cell if isinstance(cell, str) else h3.int_to_str(cell)
    return h3.is_valid_cell(text) and is_marker(*h3.cell_to_latlng(text))


def marker_positions(latitude: IntoExpr, longitude: IntoExpr) -> pl.Expr:
    """Tell for columns of positions which are those of markers; null positions are not.

    >>> import polars as pl
    >>> frame = pl.DataFrame({"latitude": [-48.9, 60.2, None], "longitude": [-123.4, 24.9, None]})
    >>> frame.select(marker_positions("latitude", "longitude")).to_series().to_list()
    [True, False, False]
    """
    return (distance(latitude, longitude, *NEMO) <= AREA).fill_null(value=False)


def marker_cells(cell: IntoExpr) -> pl.Expr:
    """Tell for a column of cells (numbers) which are those of markers; null is not.

    >>> import polars as pl
    >>> pl.DataFrame({"cell": [marker_cell(7), 617294884144414719, None]}).filter(marker_cells("cell")).height
    1
    """
    return marker_positions(cell_latitude(cell), cell_longitude(cell))


def _spiral(number: int) -> tuple[int, int]:
    """Give local coordinates of a number: around ring k, k steps in each of six directions.

    A ring begins beside its first corner and ends there, so that the next ring's first cell is a neighbour.
    """
    if number == 0:
        return 0, 0
    ring = (3 + math.isqrt(12 * number - 3)) // 6
    side, step = divmod(number - 3 * ring * (ring - 1), ring)
    return _on_ring(ring, side % 6, step)


def _on_ring(ring: int, side: int, step: int) -> tuple[int, int]:
    corner, walk = _DIRECTIONS[side], _DIRECTIONS[(side + 2) % 6]
    return ring * corner[0] + step * walk[0], ring * corner[1] + step * walk[1]


def _number(across: int, up: int) -> int:
    ring = max(abs(across), abs(up)) if across * up > 0 else abs(across) + abs(up)
    if ring == 0:
        return 0
    for side, corner in enumerate(_DIRECTIONS):
        walk = _DIRECTIONS[(side + 2) % 6]
        along = (across - ring * corner[0]) * walk[0] + (up - ring * corner[1]) * walk[1]
        step = along // (walk[0] ** 2 + walk[1] ** 2)
        if 0 <= step < ring and _on_ring(ring, side, step) == (across, up):
            # The corner that a ring begins beside is its last cell.
            return 3 * ring * (ring - 1) + (side * ring + step or 6 * ring)
    raise AssertionError(f"({across}, {up}) is on no side of ring {ring}")
