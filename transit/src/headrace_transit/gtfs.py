"""Timetables in GTFS: which trips there are, and where each ends.

A vehicle names its trip by route, direction, operating day and start ("05:47"); GTFS by an identifier that vehicles do
not know. The two meet in `final_stops`: a table of trips by the vehicle's names, each with its last stop. A trip that
ends at the same stop on every day that it runs has one row for all days (`operating_day` is null there, which
`headrace.enrich.table` takes for any day); the others have a row per day.

A feed is a directory or a zip file. Read are `stops.txt`, `trips.txt`, `stop_times.txt`, and if they are there
`frequencies.txt`, `calendar.txt` and `calendar_dates.txt`.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Final

import polars as pl
from polars import col
from polars.exceptions import PolarsError

from headrace.errors import ConfigError
from headrace.geo import h3_cell

if TYPE_CHECKING:
    from pathlib import Path

#: What names a trip, and what `final_stops` says about it.
TRIP: Final = ("route", "direction", "operating_day", "trip_start")
FINAL_STOP: Final = pl.Schema({"final_stop": pl.String, "final_cell": pl.UInt64})

WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAY_SECONDS: Final = 86_400
#: Services that run for longer than this have a mistake in their dates.
_MOST_DAYS: Final = 1100


@dataclass(frozen=True)
class Feed:
    """A GTFS feed on disk.

    Args:
        path: A directory, or a zip file.
    """

    path: Path

    def check(self) -> None:
        """See that it is there and has what is needed.

        Raises:
            ConfigError: It is not, or lacks a file.
        """
        names = self._names()
        missing = [name for name in ("stops.txt", "trips.txt", "stop_times.txt") if name not in names]
        if missing:
            raise ConfigError(
                f"the GTFS feed {self.path} has no {', '.join(missing)}",
                hint="Give a whole feed: a directory with the text files, or the zip file as it is published.",
            )

    def read(self, name: str, columns: dict[str, pl.DataType | type[pl.DataType]]) -> pl.DataFrame | None:
        """Read columns of a file; None where there is no such file. A column that is missing is null.

        Args:
            name: Such as "stops.txt".
            columns: Those that are wanted, with their types; what cannot be read as its type is null.
        """
        if name not in self._names():
            return None
        try:
            text = pl.read_csv(self._bytes(name), infer_schema=False, encoding="utf8-lossy", null_values=[""])
        except PolarsError as problem:
            raise ConfigError(
                f"{name} of the GTFS feed {self.path} cannot be read: {str(problem).splitlines()[0]}",
                hint="It must be text with commas and a line of column names.",
            ) from problem
        # Files begin with a byte-order mark now and then, and names with a space.
        named = text.rename({old: old.strip().removeprefix("\ufeff") for old in text.columns})
        return named.select(
            (
                col(column).str.strip_chars().cast(kind, strict=False)
                if column in named.columns
                else pl.lit(None, kind)
            ).alias(column)
            for column, kind in columns.items()
        )

    def need(self, name: str, columns: dict[str, pl.DataType | type[pl.DataType]]) -> pl.DataFrame:
        """Read columns of a file that must be there."""
        found = self.read(name, columns)
        if found is None:
            self.check()
            raise ConfigError(f"the GTFS feed {self.path} has no {name}", hint="Give a whole feed.")
        return found

    def _names(self) -> set[str]:
        try:
            if self.path.is_dir():
                return {entry.name for entry in self.path.iterdir()}
            with zipfile.ZipFile(self.path) as archive:
                return set(archive.namelist())
        except (OSError, zipfile.BadZipFile) as problem:
            raise ConfigError(
                f"the GTFS feed {self.path} cannot be read: {problem}",
                hint="Name a directory or a zip file: transit.gtfs in the settings.",
            ) from problem

    def _bytes(self, name: str) -> bytes:
        if self.path.is_dir():
            return (self.path / name).read_bytes()
        with zipfile.ZipFile(self.path) as archive:
            return archive.read(name)


def final_stops(path: Path, *, resolution: int = 9) -> pl.DataFrame:
    """Tell where the trips of a feed end.

    Args:
        path: The feed: a directory, or a zip file.
        resolution: Of the map cells.

    Returns:
        A frame with `route`, `direction` (1 or 2; null where the feed does not say), `operating_day` (null: any),
        `trip_start`, `final_stop` and `final_cell`.
    """
    feed = Feed(path)
    trips = _starts(feed, _ends(feed))
    named = trips.unique(["route", "direction", "trip_start", "service_id"], keep="first", maintain_order=True)
    trip = ("route", "direction", "trip_start")
    always = col("final_stop").n_unique().over(trip) == 1
    for_any_day = named.filter(always).unique(trip, keep="first", maintain_order=True)
    some = named.filter(~always)
    by_day = some.join(_days(feed, some.get_column("service_id").unique()), on="service_id")
    by_day = by_day.unique([*trip, "operating_day"], keep="first", maintain_order=True)
    rows = pl.concat([for_any_day.with_columns(operating_day=pl.lit(None, pl.String)), by_day], how="diagonal")
    return rows.select(*TRIP, "final_stop", h3_cell("stop_lat", "stop_lon", resolution=resolution).alias("final_cell"))


def _ends(feed: Feed) -> pl.DataFrame:
    """Tell when each trip of the timetable begins and where it ends."""
    times = feed.need(
        "stop_times.txt",
        {
            "trip_id": pl.String,
            "arrival_time": pl.String,
            "departure_time": pl.String,
            "stop_id": pl.String,
            "stop_sequence": pl.Int64,
        },
    )
    order = col("stop_sequence")
    ends = (
        times.drop_nulls(["trip_id", "stop_sequence"])
        .group_by("trip_id")
        .agg(
            _seconds(pl.coalesce("departure_time", "arrival_time").min_by(order)).alias("departs"),
            col("stop_id").max_by(order).alias("final_stop"),
        )
    )
    trips = feed.need(
        "trips.txt", {"trip_id": pl.String, "route_id": pl.String, "service_id": pl.String, "direction_id": pl.Int32}
    )
    stops = feed.need("stops.txt", {"stop_id": pl.String, "stop_lat": pl.Float64, "stop_lon": pl.Float64})
    return (
        trips.join(ends, on="trip_id")
        .join(stops, left_on="final_stop", right_on="stop_id")
        .sort("trip_id")
        .select(
            "trip_id",
            "service_id",
            col("route_id").alias("route"),
            (col("direction_id") + 1).alias("direction"),
            "departs",
            "final_stop",
            "stop_lat",
            "stop_lon",
        )
    )


def _starts(feed: Feed, trips: pl.DataFrame) -> pl.DataFrame:
    """Give each trip its start as vehicles write it; one that runs every few minutes is a trip per start."""
    often = feed.read(
        "frequencies.txt",
        {"trip_id": pl.String, "start_time": pl.String, "end_time": pl.String, "headway_secs": pl.Int64},
    )
    starts = trips
    if often is not None:
        spans = often.filter(col("headway_secs") > 0)
        many = pl.int_ranges(_seconds(col("start_time")), _seconds(col("end_time")), col("headway_secs"))
        repeated = spans.select("trip_id", many.alias("departs")).explode("departs")
        starts = pl.concat(
            [
                trips.join(spans, on="trip_id", how="anti"),
                trips.drop("departs").join(repeated, on="trip_id").select(trips.columns),
            ]
        )
    # A trip at 25:10 of one day is at 01:10 on a clock; it stays a trip of that day.
    clock = col("departs") % _DAY_SECONDS
    text = pl.format("{}:{}", _two(clock // 3600), _two(clock // 60 % 60))
    return starts.filter(col("departs").is_not_null()).with_columns(trip_start=text)


def _days(feed: Feed, services: pl.Series) -> pl.DataFrame:
    """Tell on which days some services run."""
    days: set[tuple[str, str]] = set()
    wanted = set(services.to_list())
    kinds = {"service_id": pl.String, "start_date": pl.String, "end_date": pl.String}
    calendar = feed.read("calendar.txt", {**kinds, **dict.fromkeys(WEEKDAYS, pl.Int8)})
    for row in () if calendar is None else calendar.filter(col("service_id").is_in(wanted)).iter_rows(named=True):
        first, last = _date(row["start_date"]), _date(row["end_date"])
        if first is None or last is None:
            continue
        for number in range(min((last - first).days + 1, _MOST_DAYS)):
            day = first + timedelta(days=number)
            if row[WEEKDAYS[day.weekday()]] == 1:
                days.add((row["service_id"], day.isoformat()))
    changes = feed.read("calendar_dates.txt", {"service_id": pl.String, "date": pl.String, "exception_type": pl.Int8})
    for row in () if changes is None else changes.filter(col("service_id").is_in(wanted)).iter_rows(named=True):
        changed = _date(row["date"])
        if changed is not None:
            (days.add if row["exception_type"] == 1 else days.discard)((row["service_id"], changed.isoformat()))
    schema = {"service_id": pl.String, "operating_day": pl.String}
    return pl.DataFrame(sorted(days), schema=schema, orient="row")


def _seconds(text: pl.Expr) -> pl.Expr:
    parts = text.str.split(":").list.eval(pl.element().cast(pl.Int64, strict=False))
    return (
        parts.list.get(0, null_on_oob=True) * 3600
        + parts.list.get(1, null_on_oob=True) * 60
        + parts.list.get(2, null_on_oob=True)
    )


def _two(number: pl.Expr) -> pl.Expr:
    return number.cast(pl.String).str.pad_start(2, "0")


def _date(text: str | None) -> date | None:
    if text is None or len(text) != 8 or not text.isdigit():
        return None
    try:
        return date(int(text[:4]), int(text[4:6]), int(text[6:]))
    except ValueError:
        return None
