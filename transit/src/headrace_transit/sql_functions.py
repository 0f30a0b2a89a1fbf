"""Functions for SQL over the topics of the application: `CREATE FUNCTION ... AS 'headrace_transit.sql_functions:...'`.

They know the timetable of the simulated fleet; see examples/transit.sql.
"""

from __future__ import annotations

from functools import cache

from headrace_transit.simulated_gtfs import simulated_final_stops, simulated_stops


def final_cell(route: str | None, direction: int | None, trip_start: str | None) -> int | None:
    """Give the H3 cell of the final stop of a trip; null where the timetable has no such trip. All days are alike."""
    return _final_cells().get((None if route is None else route.strip(), direction, trip_start))


def is_simulated_stop(stop: str | None) -> bool:
    """Tell whether a stop is one of the simulated network; null is none."""
    return stop in _stops()


@cache
def _final_cells() -> dict[tuple[object, ...], int]:
    table = simulated_final_stops().select("route", "direction", "trip_start", "final_cell")
    return {tuple(row[:-1]): row[-1] for row in table.iter_rows()}


@cache
def _stops() -> frozenset[str]:
    return frozenset(simulated_stops().to_list())
