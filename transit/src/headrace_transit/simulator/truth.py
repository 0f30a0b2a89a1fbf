"""The truth about a simulated feed, in a file beside the data.

A job that looks for emergency stops can be held to what really happened. The file has one line of JSON for each
emergency stop that began and ended (the vehicle stands) in the time that was sent, in the order in which vehicles came
to stand:

    {"vehicle_id": "22/133", "line": "510", "began": "2025-09-01T05:12:03.211000+00:00", "stopped": ..., "resumed": ...,
     "latitude": 60.189, "longitude": 24.836, "speed": 12.3, "deceleration": 3.1}
"""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import polars as pl

from headrace.errors import ConfigError, EnvironmentProblem
from headrace_transit.simulator.writers import COPY_STEP

if TYPE_CHECKING:
    from types import TracebackType

    from headrace_transit.simulator.fleet import Fleet

_TIMES = ("began", "stopped", "resumed")
#: No emergency braking takes longer, in seconds.
_LONGEST_BRAKING = 20


class TruthFile:
    """Writes what happens as the feed goes on.

    Args:
        path: The file; it is written anew.
        fleet: Whose truth it is.
        first: The second of the fleet's time at which the feed begins.
        copies: As many as the feed sends.

    Raises:
        EnvironmentProblem: The file cannot be written.
    """

    def __init__(self, path: str | Path, fleet: Fleet, *, first: int = 0, copies: int = 1) -> None:
        self.path = Path(path)
        self.stops = 0
        self._fleet, self._first, self._copies = fleet, first, copies
        self._known = first
        try:
            self._file = self.path.open("w", encoding="utf-8")
        except OSError as error:
            raise EnvironmentProblem(f"cannot write {path}: {error.strerror}", hint="Choose another place.") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def until(self, second: int) -> None:
        """Write the stops that are complete before a second of the fleet's time and were not before the last one."""
        low, high = (self._fleet.start + timedelta(seconds=edge) for edge in (self._known, second))
        began = self._fleet.emergency_stops(max(self._first, self._known - _LONGEST_BRAKING), second)
        complete = began.filter((pl.col("stopped") >= low) & (pl.col("stopped") < high)).sort("stopped", "vehicle_id")
        self._known = second
        complete = complete.with_columns(
            pl.col("latitude", "longitude").round(6), pl.col("speed", "deceleration").round(2)
        )
        for row in complete.iter_rows(named=True):
            operator, _, number = row["vehicle_id"].partition("/")
            for copy in range(self._copies):
                vehicle = f"{operator}/{int(number) + copy * COPY_STEP}"
                self._file.write(json.dumps({**row, "vehicle_id": vehicle}, default=datetime.isoformat) + "\n")
                self.stops += 1
        # Whoever follows the feed wants to know what is true by now.
        self._file.flush()


def read_truth(path: str | Path) -> pl.DataFrame:
    """Read a file of truth; the columns are those of `Fleet.emergency_stops`.

    Args:
        path: The file.

    Raises:
        EnvironmentProblem: The file cannot be read.
        ConfigError: It is no file of truth.
    """
    rows: list[dict[str, Any]] = []
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise EnvironmentProblem(f"cannot read {path}: {error.strerror}", hint="Check the name.") from error
    for number, line in enumerate(lines, 1):
        row = None
        with suppress(ValueError, KeyError, TypeError):
            row = json.loads(line)
            row |= {name: datetime.fromisoformat(row[name]) for name in _TIMES}
        if not isinstance(row, dict) or row.keys() != _SCHEMA.keys():
            raise ConfigError(f"{path}, line {number}: no emergency stop", hint="Name a file that --truth has written.")
        rows.append(row)
    return pl.DataFrame(rows, schema=_SCHEMA)


_SCHEMA: dict[str, pl.DataType] = {
    "vehicle_id": pl.String(),
    "line": pl.String(),
    **dict.fromkeys(_TIMES, pl.Datetime("us", "UTC")),
    **dict.fromkeys(("latitude", "longitude", "speed", "deceleration"), pl.Float64()),
}
