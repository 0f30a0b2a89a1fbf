"""From decoded results to values that are safe to send: finite numbers, valid cells, plain text, whole milliseconds.

What is on Kafka was computed from what strangers sent. A vehicle may call itself `<script>`, a number may be NaN or
have 30 digits, a cell may be none. Here each column becomes what the protocol promises of its type, whatever came;
a value that cannot be shown is null, and a result without the place it is to be drawn at is left out and counted.
Nothing here makes HTML or trusts that a page escapes it: texts lose their control characters, and that is all.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any

import polars as pl

from headrace.dashboard.declaration import column_type
from headrace.engine.operator import IS_RETRACTION, WINDOW_END, WINDOW_START
from headrace.geo import cell_from_text, cell_text
from headrace.observe.places import marker_cells, marker_positions

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.dashboard.declaration import ColumnType, Declaration

#: Texts are cut here; a key that is longer would only be noise on a map.
MAX_TEXT = 500
#: Lists and structs are cut here, and deeper ones are left out.
MAX_ITEMS = 50
MAX_DEPTH = 4
#: The largest whole number that JavaScript can tell from its neighbours.
MAX_SAFE_INTEGER = 2**53 - 1
#: Real numbers beyond what 64 bits can count are no measurements: one of them would flatten every curve and scale.
MAX_REAL = 2.0**63

#: Control characters, and those that turn the direction of text around (which can make a text look like another).
_CONTROL = r"[\p{Cc}\u{202A}-\u{202E}\u{2066}-\u{2069}\u{200E}\u{200F}\u{FEFF}]"
#: A text of Python may also hold halves of characters, which cannot be sent.
_CONTROL_PYTHON = re.compile("[\ud800-\udfff\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200e\u200f\ufeff]")


@dataclass(slots=True)
class Rows:
    """Results of one job, by column, ready for its board.

    Args:
        key: What each result is about; unique among what is shown of the job.
        event_time: In milliseconds.
        window_start: In milliseconds, None without a window.
        window_end: Likewise.
        published: When it was written to Kafka, in milliseconds.
        retraction: Whether it takes an earlier one back.
        places: `cell` and `target`, or `latitude` and `longitude`.
        values: The further columns.
        unplaced: How many results were left out since they have no place.
        markers: How many were left out since they belong to latency markers.
    """

    key: list[str] = field(default_factory=list)
    event_time: list[int] = field(default_factory=list)
    window_start: list[int | None] = field(default_factory=list)
    window_end: list[int | None] = field(default_factory=list)
    published: list[int] = field(default_factory=list)
    retraction: list[bool] = field(default_factory=list)
    places: dict[str, list[Any]] = field(default_factory=dict)
    values: dict[str, list[Any]] = field(default_factory=dict)
    unplaced: int = 0
    markers: int = 0


def clean(frame: pl.DataFrame, declaration: Declaration) -> Rows:
    """Make what was decoded safe to send.

    Args:
        frame: Decoded results of the job with `kafka_timestamp`. Columns may be missing or have other types.
        declaration: What the columns should be.
    """
    display = declaration.display
    places = {
        "cell": (display.cell, "cell"),
        "target": (display.target, "cell"),
        "latitude": (display.latitude, "number"),
        "longitude": (display.longitude, "number"),
    }
    located = {
        place: _column(frame, name, kind).alias(f"#{place}")  # type: ignore[arg-type]
        for place, (name, kind) in places.items()
        if name is not None
    }
    unplaced = markers = 0
    if located:
        places_only = pl.DataFrame(list(located.values()))
        there = _on_the_globe(places_only)
        people_see = there & ~_markers(places_only)
        unplaced, markers = int((~there).sum()), int((there & ~people_see).sum())
        if unplaced or markers:
            frame = frame.filter(people_see)
            located = {place: column.filter(people_see) for place, column in located.items()}
    return Rows(
        key=_keys(frame, declaration, located.get("cell")),
        event_time=_milliseconds(frame, "event_time"),
        window_start=_milliseconds(frame, WINDOW_START),
        window_end=_milliseconds(frame, WINDOW_END),
        published=_milliseconds(frame, "kafka_timestamp"),
        retraction=(
            frame.get_column(IS_RETRACTION).fill_null(value=False).to_list()
            if IS_RETRACTION in frame.columns
            else [False] * frame.height
        ),
        places={place: column.to_list() for place, column in located.items()},
        values={
            column.name: _safe(_column(frame, column.name, column.type), column.type)
            for column in declaration.value_columns
        },
        unplaced=unplaced,
        markers=markers,
    )


def plain_text(text: str) -> str:
    r"""A text without control characters, cut to a length that can be shown.

    >>> plain_text("<b>40/456</b>\x00\u202e"), len(plain_text("x" * 9999))
    ('<b>40/456</b>', 500)
    """
    # Far more than can stay is not searched for control characters.
    return _CONTROL_PYTHON.sub("", text[: 4 * MAX_TEXT])[:MAX_TEXT]


def safe_rows(frame: pl.DataFrame) -> tuple[list[dict[str, str]], list[list[Any]]]:
    """Any frame as columns (name and type) and rows that are safe to send.

    >>> safe_rows(pl.DataFrame({"depot": ["north"], "share": [float("nan")]}))
    ([{'name': 'depot', 'type': 'text'}, {'name': 'share', 'type': 'number'}], [['north', None]])
    """
    types = {name: column_type(name, kind) for name, kind in frame.schema.items()}
    values = [_safe(_column(frame, name, kind), kind) for name, kind in types.items()]
    columns = [{"name": plain_text(name), "type": kind} for name, kind in types.items()]
    return columns, [list(row) for row in zip(*values, strict=True)]


# -------------------------------------------------------------------- columns


def _column(frame: pl.DataFrame, name: str, kind: ColumnType) -> pl.Series:
    """A column as the type that was declared; nulls where it has another one."""
    if name not in frame.columns:
        return pl.Series(name, [None] * frame.height, dtype=_NATURAL[kind])
    return _TO[kind](frame.get_column(name))


def _number(column: pl.Series) -> pl.Series:
    kind = column.dtype
    if not kind.is_numeric():
        return _nulls(column, pl.Float64())
    if kind.is_float() or kind.is_decimal():
        real = column.cast(pl.Float64, strict=False)
        return pl.select(pl.when(real.is_between(-MAX_REAL, MAX_REAL)).then(real).alias(column.name)).to_series()
    return column


def _text(column: pl.Series) -> pl.Series:
    kind = column.dtype
    if kind == pl.Binary:
        column = column.bin.slice(0, MAX_TEXT).bin.encode("hex")
    elif kind.is_nested():
        return _nulls(column, pl.String())
    else:
        column = column.cast(pl.String, strict=False)
    return column.str.slice(0, 4 * MAX_TEXT).str.replace_all(_CONTROL, "").str.slice(0, MAX_TEXT)


def _time(column: pl.Series) -> pl.Series:
    if not isinstance(column.dtype, pl.Datetime):
        return _nulls(column, pl.Int64())
    return column.dt.epoch("ms")


def _duration(column: pl.Series) -> pl.Series:
    return column.dt.total_milliseconds() if isinstance(column.dtype, pl.Duration) else _nulls(column, pl.Int64())


def _boolean(column: pl.Series) -> pl.Series:
    return column if column.dtype == pl.Boolean else _nulls(column, pl.Boolean())


def _cell(column: pl.Series) -> pl.Series:
    """Cells as the text that map libraries read, in one spelling; null for what is no cell."""
    if column.dtype == pl.String:
        numbers = pl.select(cell_from_text(pl.lit(column))).to_series()
    elif column.dtype.is_integer():
        numbers = column.cast(pl.UInt64, strict=False)
    else:
        return _nulls(column, pl.String())
    return pl.select(cell_text(pl.lit(numbers))).to_series().alias(column.name)


def _list(column: pl.Series) -> pl.Series:
    # An Object column: what becomes of it is decided value by value.
    return column


def _nulls(column: pl.Series, kind: pl.DataType) -> pl.Series:
    return pl.Series(column.name, [None] * column.len(), dtype=kind)


_TO: dict[ColumnType, Callable[[pl.Series], pl.Series]] = {
    "number": _number,
    "text": _text,
    "time": _time,
    "duration": _duration,
    "boolean": _boolean,
    "cell": _cell,
    "list": _list,
}
_NATURAL: dict[ColumnType, pl.DataType] = {
    "number": pl.Float64(),
    "text": pl.String(),
    "time": pl.Int64(),
    "duration": pl.Int64(),
    "boolean": pl.Boolean(),
    "cell": pl.String(),
    "list": pl.Null(),
}


# -------------------------------------------------------------------- values


def _safe(column: pl.Series, kind: ColumnType) -> list[Any]:
    values = column.to_list()
    if kind == "list":
        return [_plain(value, 0) for value in values]
    if column.dtype.is_integer() and column.dtype not in (pl.Int8, pl.Int16, pl.Int32, pl.UInt8, pl.UInt16, pl.UInt32):
        return [_whole(value) for value in values]
    return values


def _whole(value: int | None) -> int | str | None:
    return value if value is None or -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER else str(value)


def _plain(value: object, depth: int) -> Any:
    """A value inside a list or struct as JSON has it."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return _whole(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return plain_text(value)
    if isinstance(value, bytes):
        return value[: MAX_TEXT // 2].hex()
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, date | time):
        return value.isoformat()
    if depth >= MAX_DEPTH:
        return None
    if isinstance(value, dict):
        return {plain_text(str(name)): _plain(item, depth + 1) for name, item in list(value.items())[:MAX_ITEMS]}
    if isinstance(value, list | tuple):
        return [_plain(item, depth + 1) for item in value[:MAX_ITEMS]]
    return plain_text(str(value))


# -------------------------------------------------------------------- places, keys, times


def _on_the_globe(places: pl.DataFrame) -> pl.Series:
    """Which results can be drawn: every place they need is there, and a position is one."""
    parts = [pl.col(name).is_not_null() for name in places.columns]
    for name, limit in (("#latitude", 90.0), ("#longitude", 180.0)):
        if name in places.columns:
            parts.append(pl.col(name).abs() <= limit)
    return places.select(pl.all_horizontal(parts).fill_null(value=False)).to_series()


def _markers(places: pl.DataFrame) -> pl.Series:
    """Which results are those of latency markers, which are nobody's business here."""
    if "#cell" in places.columns:
        marked = marker_cells(cell_from_text("#cell"))
    else:
        marked = marker_positions("#latitude", "#longitude")
    return places.select(marked.fill_null(value=False)).to_series()


def _keys(frame: pl.DataFrame, declaration: Declaration, cell: pl.Series | None) -> list[str]:
    if declaration.keyed_by_cell and cell is not None:
        return [str(text) for text in cell.to_list()]
    key = _column(frame, "key", "text").fill_null("")
    if not declaration.display.each:
        return [str(text) for text in key.to_list()]
    # Every result is a thing of its own; its idempotency key is the same for each repetition and unlike all others.
    own = _column(frame, "idempotency_key", "text").fill_null("")
    return [
        f"{about}@{when}#{unique[:12]}"
        for about, when, unique in zip(key.to_list(), _milliseconds(frame, "event_time"), own.to_list(), strict=True)
    ]


def _milliseconds(frame: pl.DataFrame, name: str) -> list[Any]:
    if name not in frame.columns:
        return [None] * frame.height
    return _time(frame.get_column(name)).to_list()
