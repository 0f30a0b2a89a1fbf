"""Tables that are all there: files, and frames that a program gives.

A line of a file of JSON or CSV whose table has columns is read as the value of a record would be, by the same format:
what cannot be read is left out and counted. A table without columns has those of its file.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import polars as pl
import pyarrow as pa
from polars.exceptions import PolarsError

from headrace.engine.operator import EVENT_TIME, INGESTION_TIME
from headrace.errors import HeadraceError
from headrace.formats import Records
from headrace.stream import Stream
from headrace.streaming_sql.table_formats import OwnFormats, TimeOfEvents, choose_format
from headrace.streaming_sql.table_source import INSTANT, SourceColumns, finish_columns, stored_columns, time_of_events
from headrace.time import bounded

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.formats import Format
    from headrace.streaming_sql.options import Options
    from headrace.streaming_sql.statements import CreateTable
    from headrace.streaming_sql.table_source import Compute

#: The column of a file of CSV that is called as the time of the events is.
_WRITTEN: Final = "event_time as written"
_FORMATS: Final = {".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}


@dataclass(frozen=True)
class BoundedRows:
    """The rows of a table that is all there.

    Args:
        frame: The rows that could be read.
        problems: Why others could not, by the number of their line; the first is 1.
    """

    frame: pl.DataFrame
    problems: dict[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class BoundedTable:
    """A table that is all there.

    Args:
        source: The name of its source, under which its rows are fed.
        stream: Its rows as a stream.
        read: Gives the rows as they are now.
        what: What it is, for people.
        has_time: Whether the time of its rows is one of its own columns.
    """

    source: str
    stream: Stream
    read: Callable[[], BoundedRows]
    what: str
    has_time: bool = True


def frame_table(name: str, frame: pl.DataFrame, *, time: str | None = None) -> BoundedTable:
    """Make a table of a frame.

    Args:
        name: Its name.
        frame: The rows.
        time: The column with the time of an event; None: `event_time`, or none where there is no such column.
    """
    rows = _timed(frame, time, now())
    source = Stream.rows(name, _without_time(rows.schema)).watermark(bounded("0s"))
    return BoundedTable(name, source, lambda: BoundedRows(rows), f"a frame of {frame.height:,} rows")


def file_table(table: CreateTable, options: Options, own: OwnFormats, compute: Compute) -> BoundedTable:
    """Make a table of a file.

    Args:
        table: Its definition.
        options: Its options.
        own: Formats beside Headrace's own.
        compute: Adds the computed columns.

    Raises:
        ScriptError: There is no such file, or it cannot be read so.
    """
    path = Path(options.needed("path", hint="Name the file: 'path' = 'scans.csv'."))
    kind = options.text("format") or _FORMATS.get(path.suffix.lower(), "")
    if kind not in ("csv", "json", "parquet"):
        hint = "Say which it is: 'format' = 'csv', 'json' or 'parquet'."
        raise options.problem("format", f"the file {path} has no format that is known", hint=hint)
    if not path.is_file():
        raise options.problem("path", f"there is no file {path}", hint=f"It is looked for in {Path.cwd()}.")
    header = options.flag("csv.header", default=True) if kind == "csv" else False
    columns = SourceColumns(table)
    for column in columns.metadata.values():
        raise column.at.problem("a file has no metadata", hint="Leave the column out.")
    time = TimeOfEvents() if kind == "parquet" or not columns.physical else time_of_events(columns, options)
    reader = _Reader(path, kind, header, columns, time)
    if kind != "parquet" and columns.physical:
        reader.format = _format(columns, options, own, kind, time)
    else:
        _ = options.text("time.format"), options.text("time.zone"), options.text("time")

    def read() -> BoundedRows:
        try:
            return reader.rows()
        except (OSError, PolarsError, HeadraceError, UnicodeDecodeError) as problem:
            raise table.text.problem(f"{path} cannot be read: {_first(problem)}") from problem

    # Without a format the file itself says which columns there are.
    schema = read().frame.schema if reader.format is None else reader.format.schema
    stream = Stream.rows(table.name, _without_time(schema))
    finished = finish_columns(stream, columns, options, compute, time)
    return BoundedTable(table.name, finished, read, f"the file {path}", reader.has_time)


def _format(columns: SourceColumns, options: Options, own: OwnFormats, kind: str, time: TimeOfEvents) -> Format:
    choice = choose_format(options, own) if "format" in options else choose_format(options, own, default=kind)
    stored = stored_columns(columns.value, kind)
    if time.field == EVENT_TIME and kind == "csv":  # fields of CSV keep their places
        stored = {_WRITTEN if name == EVENT_TIME else name: dtype for name, dtype in stored.items()}
        return choice.make(stored, replace(time, field=_WRITTEN))
    if time.field == EVENT_TIME:
        stored.pop(EVENT_TIME, None)
    return choice.make(stored, time)


@dataclass
class _Reader:
    path: Path
    kind: str
    header: bool
    columns: SourceColumns
    time: TimeOfEvents
    format: Format | None = None
    has_time: bool = True

    def rows(self) -> BoundedRows:
        changed = datetime.fromtimestamp(self.path.stat().st_mtime, tz=UTC)
        if self.format is not None:
            return self._lines(self.format, changed)
        if self.kind == "parquet":
            frame = pl.read_parquet(self.path)
        elif self.kind == "csv":
            frame = pl.read_csv(self.path, has_header=self.header, try_parse_dates=True, infer_schema_length=10_000)
        else:
            frame = pl.read_ndjson(self.path, infer_schema_length=None)
        frame = self._declared(frame)
        self.has_time = isinstance(frame.schema.get(EVENT_TIME), pl.Datetime)
        return BoundedRows(_timed(frame, None, changed))

    def _declared(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Give the declared columns of a file that has columns of its own, with the declared types."""
        wanted = self.columns.physical
        missing = [name for name in wanted if name not in frame.columns]
        if missing:
            names = ", ".join(frame.columns)
            raise self.columns.table.text.problem(f"{self.path} has no column {missing[0]}", hint=f"It has {names}.")
        return frame.select(pl.col(name).cast(each.dtype) for name, each in wanted.items()) if wanted else frame

    def _lines(self, format: Format, changed: datetime) -> BoundedRows:  # noqa: A002
        content = self.path.read_bytes().split(b"\n")
        skipped = 1 if self.header else 0
        numbers = [number for number, line in enumerate(content) if number >= skipped and line.strip()]
        lines = [content[number].rstrip(b"\r") for number in numbers]
        if self.header:
            self._check_header(content[0] if content else b"")
        stamps = pa.array([changed] * len(lines), pa.timestamp("us", "UTC"))
        decoded = format.decode(Records(pa.array(lines, pa.binary()), timestamps=stamps))
        problems = {numbers[row] + 1: rejection.text for row, rejection in decoded.rejections.items()}
        return BoundedRows(decoded.frame.drop(INGESTION_TIME, _WRITTEN, strict=False), dict(sorted(problems.items())))

    def _check_header(self, line: bytes) -> None:
        """Refuse a header whose names are not those of the table, in this order."""
        names = [each.strip().strip('"') for each in line.decode().rstrip("\r").split(self._delimiter)]
        wanted = list(self.columns.physical)
        if names != wanted:
            raise self.columns.table.text.problem(
                f"the first line of {self.path} names {', '.join(names)}; the table has {', '.join(wanted)}",
                hint="Name the columns in their order. For a file without such a line write 'csv.header' = 'false'.",
            )

    @property
    def _delimiter(self) -> str:
        return str(getattr(self.format, "delimiter", ","))


def _timed(frame: pl.DataFrame, time: str | None, otherwise: datetime) -> pl.DataFrame:
    """Bring all times to UTC and microseconds, and see to it that there is a time of the events."""
    frame = frame.with_columns(_utc(frame.get_column(name)) for name, kind in frame.schema.items() if _is_time(kind))
    if time is not None:
        return frame.with_columns(pl.col(time).cast(INSTANT).alias(EVENT_TIME))
    if isinstance(frame.schema.get(EVENT_TIME), pl.Datetime):
        return frame
    return frame.with_columns(pl.lit(otherwise).cast(INSTANT).alias(EVENT_TIME))


def _is_time(kind: Any) -> bool:
    return isinstance(kind, pl.Datetime) and kind != INSTANT


def _utc(column: pl.Series) -> pl.Series:
    kind = column.dtype
    zoned = isinstance(kind, pl.Datetime) and kind.time_zone is not None
    return (column.dt.convert_time_zone("UTC") if zoned else column.dt.replace_time_zone("UTC")).cast(INSTANT)


def _without_time(schema: pl.Schema) -> pl.Schema:
    return pl.Schema({name: kind for name, kind in schema.items() if name not in (EVENT_TIME, _WRITTEN)})


def now() -> datetime:
    """Tell the time."""
    return datetime.now(UTC)


def _first(problem: Exception) -> str:
    told = problem.message if isinstance(problem, HeadraceError) else str(problem)
    return told.strip().split("\n")[0]
