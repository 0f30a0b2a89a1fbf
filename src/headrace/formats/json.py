"""JSON: each record is one object, whose fields are columns.

A field that is missing or null is null. A field of another type than its column makes the record a dead letter, never a
silent null; fields that no column asks for are ignored. docs/formats.md has all rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import polars as pl
import pyarrow as pa

from headrace.errors import SchemaError
from headrace.events.codec import MAX_VALUE_BYTES
from headrace.events.letters import Reason, Rejection
from headrace.events.reader import value_lengths
from headrace.formats.format import DecodedRecords, Format
from headrace.formats.headers import header_texts
from headrace.formats.json_reader import arrow_type, read_objects
from headrace.formats.json_writer import write_objects
from headrace.formats.record import with_key
from headrace.formats.times import ISO, EventTime, dates, field_time, iso_instants

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from headrace.formats.format import RecordPart, Records

_INSTANT = pl.Datetime("us", "UTC")
_TIMES = ("event_time", "ingestion_time")


@dataclass(frozen=True)
class JsonFormat(Format):
    """Values that are objects of JSON. See `json`."""

    name: ClassVar[str] = "json"
    columns: tuple[tuple[str, pl.DataType], ...] = ()
    time: EventTime = field(default_factory=EventTime)
    max_value_bytes: int = MAX_VALUE_BYTES

    def __post_init__(self) -> None:
        checked_columns(dict(self.columns))
        _ = self._schemas  # a time at a place where the schema has something else fails here

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("columns", "time", "max_value_bytes")}

    @property
    def schema(self) -> pl.Schema:
        """The declared columns."""
        return pl.Schema(dict(self.columns))

    @property
    def reads(self) -> frozenset[RecordPart]:
        """Kafka's timestamp, and the headers if the time is in one of them."""
        return frozenset({"timestamp", "headers"} if self.time.place == "header" else {"timestamp"})

    @property
    def text(self) -> str:
        """Describe the format in a line of `explain()`."""
        return f"json, time from {self.time.text}"

    @cached_property
    def _schemas(self) -> tuple[pa.Schema, ...]:
        """The fields to read. A time that is a number may also be digits in a text: then there are two ways to try."""
        plain = [pa.field(name, arrow_type(kind)) for name, kind in self.columns]
        if self.time.place != "field":
            return (pa.schema(plain),)
        # Seconds and milliseconds may have fractions; a Float64 could not tell microseconds and nanoseconds apart.
        number = pa.float64() if self.time.pattern in ("s", "ms") else pa.int64()
        kinds = (number, pa.string()) if self.time.is_epoch else (pa.string(),)
        return tuple(dict.fromkeys(pa.schema(_with_field(plain, self.time.path, kind)) for kind in kinds))

    def decode(self, records: Records, columns: Sequence[str] | None = None) -> DecodedRecords:
        """Read records in columns."""
        values, positions, rejections = self._readable(records)
        table, rows, refused = self._read(values)
        rejections |= {int(positions[row]): rejection for row, rejection in refused.items()}
        positions = positions[rows]
        frame = pl.DataFrame(pl.from_arrow(table))
        raw = self._raw_times(frame, records, positions)
        micros = self.time.micros(raw)
        fine = micros.is_not_null().to_numpy().copy()
        for row in np.flatnonzero(~fine).tolist():
            rejections[int(positions[row])] = self.time.rejection(raw[row])
        typed, wrong = typed_columns(frame, self.columns)
        for row, rejection in wrong.items():
            rejections.setdefault(int(positions[row]), rejection)
            fine[row] = False
        taken_in = _kafka_times(records, positions)
        whole = pl.DataFrame([micros.cast(_INSTANT).alias(_TIMES[0]), taken_in.alias(_TIMES[1]), *typed])
        whole = whole.select(*_TIMES, *(self.schema if columns is None else columns))
        if not fine.all():
            whole, positions = whole.filter(pl.Series(fine)), positions[fine]
        return DecodedRecords(whole, None if len(positions) == len(records) else positions, rejections)

    def encode(self, frame: pl.DataFrame) -> pa.BinaryArray:
        """Write each row as an object with a field per column."""
        return write_objects(frame)

    def _readable(self, records: Records) -> tuple[pa.BinaryArray, NDArray[np.int64], dict[int, Rejection]]:
        values = records.values
        rejections: dict[int, Rejection] = {}
        for row in np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False)).tolist():
            rejections[row] = Rejection(Reason.EMPTY_VALUE, "the record has no value")
        lengths = value_lengths(values)
        for row in np.flatnonzero(lengths > self.max_value_bytes).tolist():
            text = f"{lengths[row]:,} bytes, the limit is {self.max_value_bytes:,}"
            rejections[row] = Rejection(Reason.TOO_LARGE, text)
        if not rejections:
            return values, np.arange(len(values)), rejections
        rows = np.setdiff1d(np.arange(len(values)), np.array(list(rejections), np.int64))
        return values.take(pa.array(rows)), rows, rejections

    def _read(self, values: pa.BinaryArray) -> tuple[pa.Table, NDArray[np.int64], dict[int, Rejection]]:
        """Read objects; those whose time is no number are read again with a time in a text."""
        first, *others = self._schemas
        table, rows, rejections = read_objects(values, first)
        if not others or not rejections:
            return table, rows, rejections
        again = np.array(sorted(rejections), np.int64)
        texts, more, refused = read_objects(values.take(pa.array(again)), others[0])
        if not len(more):
            return table, rows, rejections
        # Both kinds of time as text: whole numbers lose nothing, and floats are written so that they are read the same.
        tables = [_time_as_text(table, others[0]), texts]
        every = np.concatenate([rows, again[more]])
        order = np.argsort(every, kind="stable")
        rest = {int(again[row]): rejections[int(again[row])] for row in refused}
        return pa.concat_tables(tables).take(pa.array(order)), every[order], rest

    def _raw_times(self, frame: pl.DataFrame, records: Records, positions: NDArray[np.int64]) -> pl.Series:
        if self.time.place == "timestamp":
            return _kafka_times(records, positions)
        if self.time.place == "header":
            texts, _ = header_texts(records.headers, self.time.path[0], len(records))
            return texts.gather(positions)
        outer, *inner = self.time.path
        found = frame.get_column(outer)
        for name in inner:
            found = found.struct.field(name)
        return found


def json(
    schema: Mapping[str, Any] | None = None,
    *,
    time: str | tuple[str, ...] | EventTime | None = None,
    time_format: str = ISO,
    time_zone: str = "UTC",
    max_value_bytes: int = MAX_VALUE_BYTES,
    key: Format | None = None,
) -> Format:
    """Read and write records that are objects of JSON.

    Args:
        schema: The fields to read, with their types. To write results, none is needed.
        time: The field with the time of the event ("meta.at" for a field in an object), or `header_time(...)`; None:
            Kafka's timestamp of the record.
        time_format: How it is written: "iso8601"; "s", "ms", "us" or "ns" since 1970; or a pattern.
        time_zone: The time zone of times that do not name one.
        max_value_bytes: Longer values are dead letters.
        key: How the key of a record becomes columns, such as `text("parcel")`; see `record`.

    >>> scans = json(schema={"parcel": pl.String, "weight": pl.Float64}, time="scanned_at")
    >>> scans.schema.names(), scans.text
    (['parcel', 'weight'], 'json, time from scanned_at')
    """
    at = time if isinstance(time, EventTime) else EventTime() if time is None else None
    declared = {} if schema is None else schema
    _check_mapping(declared)
    columns = tuple((name, _instance(kind)) for name, kind in declared.items())
    at = at or field_time(time, time_format, zone=time_zone)  # type: ignore[arg-type]
    return with_key(JsonFormat(columns, at, max_value_bytes), key)


def _check(name: str, kind: pl.DataType, *, inside: bool = False) -> None:
    if isinstance(kind, pl.List):
        _check(name, _instance(kind.inner), inside=True)
    elif isinstance(kind, pl.Struct):
        for each in kind.fields:
            _check(f"{name}.{each.name}", _instance(each.dtype), inside=True)
    elif isinstance(kind, pl.Datetime | pl.Date):
        if inside or (isinstance(kind, pl.Datetime) and kind != _INSTANT):
            raise SchemaError(
                f"{name} is {kind}, which is not read from JSON",
                hint='Declare a column as pl.Datetime("us", "UTC"), or read it as pl.String and convert it.',
            )
    elif kind == pl.Float32 and inside:
        raise SchemaError(f"{name} is Float32 inside another type", hint="Declare it as Float64.")
    else:
        try:
            if not isinstance(kind, pl.DataType):
                raise KeyError(kind)
            arrow_type(kind)
        except KeyError as problem:
            raise SchemaError(
                f"{name} is {kind}, which is not read from JSON",
                hint="Use String, Boolean, integers, Float64, Datetime, Date, List and Struct.",
            ) from problem


def _instance(kind: Any) -> pl.DataType:
    """Give a type as Polars has it; `str`, `int`, `float` and `bool` are types, too."""
    if isinstance(kind, type) and not issubclass(kind, pl.DataType):
        try:
            kind = pl.DataType.from_python(kind)
        except TypeError as problem:
            raise SchemaError(
                f"{kind.__name__} is no type of a column",
                hint="Use String, Boolean, integers, Float64, Datetime, Date, List and Struct of polars.",
            ) from problem
    found: pl.DataType = kind() if isinstance(kind, type) else kind
    return found


def _with_field(fields: list[pa.Field], path: tuple[str, ...], kind: pa.DataType) -> list[pa.Field]:
    """Add a field at a path, unless it is there."""
    name, *inner = path
    known = next((each for each in fields if each.name == name), None)
    if not inner:
        return fields if known is not None else [*fields, pa.field(name, kind)]
    if known is not None and not pa.types.is_struct(known.type):
        raise SchemaError(
            f"the time is in {'.'.join(path)}, and {name} is no object in the schema",
            hint="Declare it as a pl.Struct, or leave it out of the schema.",
        )
    whole = pa.field(name, pa.struct(_with_field(list(known.type) if known is not None else [], tuple(inner), kind)))
    return [whole if each.name == name else each for each in fields] + ([] if known is not None else [whole])


def _time_as_text(table: pa.Table, texts: pa.Schema) -> pa.Table:
    """Give a table that was read with one schema as if it had been read with the other."""
    frame = pl.DataFrame(pl.from_arrow(table))
    kinds = pl.DataFrame(pl.from_arrow(texts.empty_table())).schema
    changed = [name for name in frame.columns if frame.schema[name] != kinds[name]]
    for name in changed:
        frame = frame.with_columns(pl.Series(name, _texts(frame.get_column(name).to_list()), dtype=kinds[name]))
    return pa.table(frame.to_arrow()).cast(texts)


def _texts(values: list[Any]) -> list[Any]:
    def text(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: text(each) for name, each in value.items()}
        if isinstance(value, float):
            return f"{value:.6f}"
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    return [text(value) for value in values]


def typed_columns(
    frame: pl.DataFrame, columns: Sequence[tuple[str, pl.DataType]]
) -> tuple[list[pl.Series], dict[int, Rejection]]:
    """Turn columns as they were read into those of a schema.

    Args:
        frame: The fields, dates and times as texts.
        columns: The columns.

    Returns:
        The columns, and the rows in which a text is no date or time.
    """
    typed: list[pl.Series] = []
    rejections: dict[int, Rejection] = {}
    for name, kind in columns:
        column = frame.get_column(name)
        found = _typed(column, kind)
        typed.append(found)
        if isinstance(kind, pl.Datetime | pl.Date):
            for row in (found.is_null() & column.is_not_null()).arg_true().to_list():
                text = f"{name} is {column[row][:100]!r}, which is no {kind} in ISO 8601"
                rejections.setdefault(row, Rejection(Reason.WRONG_TYPE, text))
    return typed, rejections


def _check_mapping(schema: object) -> None:
    if not isinstance(schema, Mapping):
        raise SchemaError(
            f"the schema is a {type(schema).__name__}, and not a mapping of columns to types",
            hint='Write schema={"depot": pl.String, "weight": pl.Float64}.',
        )


def checked_columns(schema: Mapping[str, Any]) -> tuple[tuple[str, pl.DataType], ...]:
    """Give the columns of a schema as they are declared.

    Raises:
        SchemaError: A type is none that is read from JSON, or a name is one that Headrace uses itself.
    """
    _check_mapping(schema)
    columns = tuple((name, _instance(kind)) for name, kind in schema.items())
    for name, kind in columns:
        if name in _TIMES or name.startswith("#"):
            raise SchemaError(
                f"a column of the schema is called {name!r}, a name that Headrace uses itself",
                hint="Leave it out: the time of an event is declared by time=, and is the column event_time.",
            )
        _check(name, kind)
    return columns


def _typed(column: pl.Series, kind: pl.DataType) -> pl.Series:
    if isinstance(kind, pl.Datetime):
        return iso_instants(column).alias(column.name)
    if kind == pl.Date:
        return dates(column).alias(column.name)
    return column if column.dtype == kind else _cut(column, kind)


def _cut(column: pl.Series, kind: pl.DataType) -> pl.Series:
    """Drop what was read of an object for the time alone, and round to Float32."""
    if isinstance(kind, pl.Struct) and isinstance(column.dtype, pl.Struct):
        fields = [_cut(column.struct.field(each.name), _instance(each.dtype)).alias(each.name) for each in kind.fields]
        there = column.is_not_null()
        whole = pl.DataFrame(fields).to_struct(column.name)
        return pl.select(pl.when(there).then(whole)).to_series().alias(column.name)
    return column.cast(kind)


def _kafka_times(records: Records, positions: NDArray[np.int64]) -> pl.Series:
    if records.timestamps is None:
        return pl.Series("t", [None] * len(positions), dtype=_INSTANT)
    micros = pl.Series("t", pl.from_arrow(records.timestamps.cast(pa.int64()))).gather(positions)
    return EventTime("field", ("t",), "us").micros(micros).cast(_INSTANT)
