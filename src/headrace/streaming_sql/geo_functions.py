"""Functions of places: cells of the H3 grid, and distances on the globe. They need the extra `geo`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from headrace.streaming_sql.functions import ArgumentError
from headrace.streaming_sql.values import BIGINT, DOUBLE, STRING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.streaming_sql.functions import Table
    from headrace.streaming_sql.values import Bound

_GROUP = "places"
_CELL = "617294884144414719"
_DEGREES = ("number", "number")


def add_geo_functions(table: Table) -> None:
    """Add them to the table."""
    table.add(
        "H3_CELL(latitude, longitude, resolution)", _GROUP,
        "The H3 cell of a position in degrees; null where there is no valid position.",
        ("H3_CELL(60.1711, 24.9415, 9)", _CELL), BIGINT, _cell, *_DEGREES, "integer",
    )  # fmt: skip
    table.add(
        "H3_TEXT(cell)", _GROUP, "A cell as the hexadecimal text that other tools read.",
        (f"H3_TEXT({_CELL})", "'891126d3317ffff'"), STRING, lambda a: _geo().cell_text(a[0].expr), "integer",
    )  # fmt: skip
    table.add(
        "H3_PARENT(cell, resolution)", _GROUP, "The cell of a coarser resolution that holds a cell.",
        (f"H3_TEXT(H3_PARENT({_CELL}, 5))", "'851126d3fffffff'"), BIGINT, _parent, "integer", "integer",
    )  # fmt: skip
    table.add(
        "H3_LINE(origin, target, limit)", _GROUP,
        "The cells on the straight line between two cells, both included; null where there are more than limit steps.",
        (f"CARDINALITY(H3_LINE({_CELL}, {_CELL}, 10))", "1"), pl.List(BIGINT), _line, "integer", "integer", "integer",
    )  # fmt: skip
    table.add(
        "H3_LATITUDE(cell)", _GROUP, "The latitude of the centre of a cell.",
        (f"ROUND(H3_LATITUDE({_CELL}), 3)", "60.171"), DOUBLE, lambda a: _geo().cell_latitude(a[0].expr), "integer",
    )  # fmt: skip
    table.add(
        "H3_LONGITUDE(cell)", _GROUP, "The longitude of the centre of a cell.",
        (f"ROUND(H3_LONGITUDE({_CELL}), 3)", "24.943"), DOUBLE, lambda a: _geo().cell_longitude(a[0].expr), "integer",
    )  # fmt: skip
    table.add(
        "GEO_DISTANCE(latitude, longitude, latitude2, longitude2)", _GROUP,
        "Metres between two positions on the globe.",
        ("ROUND(GEO_DISTANCE(60.0, 24.0, 60.0, 25.0))", "55597.0"), DOUBLE, _distance, *_DEGREES, *_DEGREES,
    )  # fmt: skip


def _geo() -> Any:
    # Imported when it is used: the extra may not be installed.
    from headrace import geo

    return geo


def _whole(argument: Bound, what: str) -> int:
    if not isinstance(argument.value, int):
        raise ArgumentError(f"{what} must be a number", "It is read once, when the query is planned.")
    return argument.value


def _cell(arguments: Sequence[Bound]) -> pl.Expr:
    latitude, longitude, resolution = arguments
    cell = _geo().h3_cell(latitude.expr, longitude.expr, resolution=_whole(resolution, "the resolution"))
    return pl.Expr.cast(cell, BIGINT)


def _parent(arguments: Sequence[Bound]) -> pl.Expr:
    cell = _geo().cell_parent(arguments[0].expr, resolution=_whole(arguments[1], "the resolution"))
    return pl.Expr.cast(cell, BIGINT)


def _line(arguments: Sequence[Bound]) -> pl.Expr:
    origin, target, limit = arguments
    ends = [each.expr.cast(pl.UInt64) for each in (origin, target)]
    return pl.Expr.cast(_geo().cell_line(*ends, limit=_whole(limit, "the limit")), pl.List(BIGINT))


def _distance(arguments: Sequence[Bound]) -> pl.Expr:
    found: pl.Expr = _geo().distance(*(each.expr.cast(DOUBLE) for each in arguments))
    return found
