"""Places as cells of the H3 grid, in Polars expressions.

A map question ("how many vehicles are *here*?") needs a "here" that can be a key. H3 divides the earth into hexagons
of 16 resolutions; at resolution 9 a hexagon's edge is about 200 m, the size of a city block. A cell is a 64-bit number,
so a column of cells is a plain `UInt64` column: it groups, joins and shuffles like any other.

Positions are (latitude, longitude) in degrees, WGS 84. A position that is null, not a number, or off the globe
(latitude outside -90..90, longitude outside -180..180) has no cell: the result is null, never an error, so that one
broken GPS receiver does not stop a batch. A number that is no cell has no text, centre or parent: null again.

>>> import polars as pl
>>> frame = pl.DataFrame({"latitude": [60.1711, None], "longitude": [24.9415, 24.9]})
>>> frame.select(h3_cell("latitude", "longitude", resolution=9).alias("cell").pipe(cell_text))["cell"].to_list()
['891126d3317ffff', None]
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING

from headrace.extras import require

require("geo", by="headrace.geo")

import h3ronpy
import numpy as np
import polars as pl
from h3 import H3BaseException
from h3.api.basic_int import grid_distance, grid_path_cells
from h3ronpy.vector import cells_to_coordinates, coordinates_to_cells

from headrace.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polars._typing import ArrowArrayExportable, IntoExpr

MAX_RESOLUTION = 15
_RESOLUTION_BIT = 52
_ALL_BITS = (1 << 64) - 1

#: Mean radius of the earth in metres (IUGG).
EARTH_RADIUS = 6_371_008.8


def h3_cell(latitude: IntoExpr, longitude: IntoExpr, *, resolution: int = 9) -> pl.Expr:
    """Give the H3 cell of a position.

    Args:
        latitude: Degrees north: a column name or an expression.
        longitude: Degrees east: a column name or an expression.
        resolution: 0 (a cell of 4 million square kilometres) to 15 (one square metre); 9 is about a city block.

    Returns:
        An expression of `UInt64` cells, null where there is no valid position; it is named as the latitude is until it
        is given another name.

    >>> frame = pl.DataFrame({"latitude": [60.1711], "longitude": [24.9415]})
    >>> frame.with_columns(cell=h3_cell("latitude", "longitude", resolution=9))["cell"].to_list()
    [617294884144414719]
    """
    _check_resolution(resolution)
    degrees = [_expression(latitude).cast(pl.Float64), _expression(longitude).cast(pl.Float64)]
    cells = partial(_cells, resolution=resolution)
    return pl.map_batches(degrees, cells, return_dtype=pl.UInt64, is_elementwise=True)


def cell_text(cell: IntoExpr) -> pl.Expr:
    """Write cells as the hexadecimal text other H3 tools read; null stays null.

    >>> pl.DataFrame({"cell": [617294884144414719]}).select(cell_text("cell"))["cell"].to_list()
    ['891126d3317ffff']
    """
    return _expression(cell).cast(pl.UInt64).map_batches(_text, return_dtype=pl.String, is_elementwise=True)


def cell_from_text(text: IntoExpr) -> pl.Expr:
    """Read cells from hexadecimal text; null where the text is no cell.

    >>> pl.DataFrame({"cell": ["891126d3317ffff", "here"]}).select(cell_from_text("cell"))["cell"].to_list()
    [617294884144414719, None]
    """
    return _expression(text).cast(pl.String).map_batches(_parsed, return_dtype=pl.UInt64, is_elementwise=True)


def cell_latitude(cell: IntoExpr) -> pl.Expr:
    """Give the latitude of the centre of a cell, in degrees."""
    return _centre(cell, 0)


def cell_longitude(cell: IntoExpr) -> pl.Expr:
    """Give the longitude of the centre of a cell, in degrees.

    >>> frame = pl.DataFrame({"cell": [617294884144414719]})
    >>> frame.select(north=cell_latitude("cell").round(3), east=cell_longitude("cell").round(3)).row(0)
    (60.171, 24.943)
    """
    return _centre(cell, 1)


def cell_parent(cell: IntoExpr, *, resolution: int) -> pl.Expr:
    """Give the cell of a coarser resolution that holds a cell.

    >>> pl.DataFrame({"cell": [617294884144414719]}).select(cell_parent("cell", resolution=5).pipe(cell_text)).item()
    '851126d3fffffff'
    """
    _check_resolution(resolution)
    cells = _expression(cell).cast(pl.UInt64).map_batches(_valid, return_dtype=pl.UInt64, is_elementwise=True)
    # The layout of a cell: four bits of resolution from bit 52 on, then 15 digits of three bits, all ones where unused.
    without_resolution = cells & pl.lit(~(0xF << _RESOLUTION_BIT) & _ALL_BITS, dtype=pl.UInt64)
    unused_digits = (1 << 3 * (MAX_RESOLUTION - resolution)) - 1
    parent = without_resolution | pl.lit(resolution << _RESOLUTION_BIT | unused_digits, dtype=pl.UInt64)
    return pl.when(_resolution(cells) >= resolution).then(parent)


def cell_line(origin: IntoExpr, target: IntoExpr, *, limit: int) -> pl.Expr:
    """Give the cells on the straight line between two cells, both ends included, as a list.

    Args:
        origin: Cells to begin with.
        target: Cells of the same resolution to end with.
        limit: The most steps from cell to cell; a longer way is null, as is one that the grid does not know (between
            resolutions, over one of its twelve pentagons).

    >>> frame = pl.DataFrame({"a": [617294884144414719], "b": [617294883402285055]})
    >>> frame.select(cell_line("a", "b", limit=9).list.len()).item()
    4
    >>> frame.select(cell_line("a", "b", limit=2)).item() is None
    True
    """
    if limit < 1:
        raise PlanError(f"a line of at most {limit} steps", hint="Give a number of 1 or more.")
    cells = [_expression(origin).cast(pl.UInt64), _expression(target).cast(pl.UInt64)]
    lines = partial(_lines, limit=limit)
    return pl.map_batches(cells, lines, return_dtype=pl.List(pl.UInt64), is_elementwise=True)


def distance(latitude: IntoExpr, longitude: IntoExpr, to_latitude: IntoExpr, to_longitude: IntoExpr) -> pl.Expr:
    """Give the great-circle distance of two positions in metres.

    >>> ends = pl.DataFrame({"a": [60.1711], "b": [24.9415], "c": [60.1989], "d": [24.9337]})
    >>> ends.select(distance("a", "b", "c", "d").round(0)).item()
    3121.0
    """
    from_lat, to_lat = _expression(latitude).radians(), _expression(to_latitude).radians()
    half_north = (to_lat - from_lat) / 2
    half_east = (_expression(to_longitude).radians() - _expression(longitude).radians()) / 2
    chord = half_north.sin() ** 2 + from_lat.cos() * to_lat.cos() * half_east.sin() ** 2
    return 2 * EARTH_RADIUS * chord.clip(0, 1).sqrt().arcsin()


def _expression(value: IntoExpr) -> pl.Expr:
    if isinstance(value, pl.Expr):
        return value
    if isinstance(value, str):
        return pl.col(value)
    return pl.lit(value)


def _check_resolution(resolution: int) -> None:
    if not 0 <= resolution <= MAX_RESOLUTION:
        raise PlanError(f"H3 resolution {resolution} does not exist", hint=f"Give a number from 0 to {MAX_RESOLUTION}.")


def _cells(columns: Sequence[pl.Series], *, resolution: int) -> pl.Series:
    latitude, longitude = (column.fill_null(np.nan).to_numpy() for column in columns)
    # A literal on one side arrives as a column of one row.
    latitude, longitude = np.broadcast_arrays(latitude, longitude)
    # NaN compares false, so this leaves out null, NaN and the infinities as well.
    valid = (np.abs(latitude) <= 90) & (np.abs(longitude) <= 180)
    name = columns[0].name
    if valid.all():
        return _uint64(name, coordinates_to_cells(_plain(latitude), _plain(longitude), resolution))
    # The H3 kernel wants numbers everywhere: give it the origin where there are none, and blank those cells after.
    cells = coordinates_to_cells(np.where(valid, latitude, 0.0), np.where(valid, longitude, 0.0), resolution)
    return _blank(_uint64(name, cells), valid)


def _plain(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, dtype=np.float64)


def _uint64(name: str, cells: ArrowArrayExportable) -> pl.Series:
    return pl.Series(name, cells, dtype=pl.UInt64)


def _blank(column: pl.Series, valid: np.ndarray) -> pl.Series:
    keep = pl.Series("keep", valid)
    return pl.select(pl.when(keep).then(column).alias(column.name)).to_series()


def _valid(cells: pl.Series) -> pl.Series:
    """Blank what is no cell, on which the H3 kernels would raise."""
    valid = pl.Series(h3ronpy.cells_valid(cells, booleanarray=True)).fill_null(value=False).to_numpy()
    return cells if valid.all() else _blank(cells, valid)


def _text(cells: pl.Series) -> pl.Series:
    return pl.Series(cells.name, h3ronpy.cells_to_string(_valid(cells)), dtype=pl.String)


def _parsed(text: pl.Series) -> pl.Series:
    return _uint64(text.name, h3ronpy.cells_parse(text, set_failing_to_invalid=True))


def _resolution(cells: pl.Expr) -> pl.Expr:
    return cells // (1 << _RESOLUTION_BIT) % 16


def _lines(columns: Sequence[pl.Series], *, limit: int) -> pl.Series:
    origins, targets = columns
    if len(origins) != len(targets):  # a literal on one side arrives as a column of one row
        longer = max(len(origins), len(targets))
        origins, targets = (each.new_from_index(0, longer) if len(each) == 1 else each for each in columns)
    pairs = zip(origins.to_list(), targets.to_list(), strict=True)
    lines = [None if None in pair else _line(*pair, limit) for pair in pairs]
    return pl.Series(columns[0].name, lines, dtype=pl.List(pl.UInt64))


# Vehicles follow each other, so most ways have been looked up before.
@lru_cache(maxsize=100_000)
def _line(origin: int, target: int, limit: int) -> list[int] | None:
    try:
        if grid_distance(origin, target) > limit:
            return None
        return list(grid_path_cells(origin, target))
    except H3BaseException:  # no such cell, another resolution, or a pentagon on the way
        return None


def _centre(cell: IntoExpr, part: int) -> pl.Expr:
    column = partial(_centre_part, part=part)
    return _expression(cell).cast(pl.UInt64).map_batches(column, return_dtype=pl.Float64, is_elementwise=True)


def _centre_part(cells: pl.Series, *, part: int) -> pl.Series:
    cells = _valid(cells)
    centres = pl.DataFrame(cells_to_coordinates(cells.drop_nulls()))
    values = np.full(len(cells), np.nan)
    valid = cells.is_not_null().to_numpy()
    values[valid] = centres.to_series(part).to_numpy()
    return _blank(pl.Series(cells.name, values), valid)
