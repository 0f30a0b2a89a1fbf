"""Avro: each record is one value of a schema, whose fields are columns.

The bytes are those of one value without a container around it, as programs write them to Kafka. What a field becomes,
which schemas of writers a reader's schema takes, and what is refused is in docs/formats.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import polars as pl
import pyarrow as pa

from headrace.errors import SchemaError
from headrace.extras import require
from headrace.formats.assembly import EVENT_TIME, INGESTION_TIME, assemble, compose, malformed, readable
from headrace.formats.avro_columns import column_type, converter
from headrace.formats.avro_reader import read_values
from headrace.formats.avro_schema import AvroType, load_schema, schema_of
from headrace.formats.avro_writer import write_values
from headrace.formats.format import DecodedRecords, Format
from headrace.formats.record import with_key
from headrace.formats.times import ISO, EventTime, field_time

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from headrace.formats.avro_columns import Converter
    from headrace.formats.format import RecordPart, Records


@dataclass(frozen=True)
class AvroFormat(Format):
    """Values of an Avro schema. See `avro`."""

    name: ClassVar[str] = "avro"
    reader: AvroType | None = None
    writer: AvroType | None = None
    time: EventTime = field(default_factory=EventTime)

    def __post_init__(self) -> None:
        require("avro", by="the format avro")
        if self.reader is None:
            if self.time.place == "field":
                raise SchemaError("avro() without a schema has no field with a time", hint="Give it schema=...")
            return
        self._check_columns(self.reader)
        _ = self._converter  # a writer's schema that does not fit fails here

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @cached_property
    def _fields(self) -> pl.Schema:
        """All fields of the records as columns, that of the event time among them."""
        return pl.Schema() if self.reader is None else frame_of(pa.array([], column_type(self.reader))).schema

    @cached_property
    def schema(self) -> pl.Schema:
        """The fields of the record; those of the type null are none."""
        return pl.Schema(
            {name: kind for name, kind in self._fields.items() if kind != pl.Null() and name != EVENT_TIME}
        )

    @property
    def reads(self) -> frozenset[RecordPart]:
        """Kafka's timestamp, and the headers if the time is in one of them."""
        return frozenset({"timestamp", "headers"} if self.time.place == "header" else {"timestamp"})

    @property
    def text(self) -> str:
        """Describe the format in a line of `explain()`."""
        record = "" if self.reader is None else f" of {self.reader.label}"
        return f"avro{record}, time from {self.time.text}"

    def decode(self, records: Records, columns: Sequence[str] | None = None) -> DecodedRecords:
        """Read records in columns."""
        if self.reader is None:
            raise SchemaError("avro() without a schema cannot read", hint="Give it schema=...")
        values, positions, rejections = readable(records)
        rows, kept, refused = read_values(values, self.writer or self.reader, self._converter)
        for row, text in refused.items():
            rejections[row if positions is None else int(positions[row])] = malformed(text)
        frame = frame_of(rows)
        chosen = self.schema.names() if columns is None else list(columns)
        return assemble(
            frame, compose(positions, None if not refused else kept), rejections, records, self.time, chosen
        )

    def encode(self, frame: pl.DataFrame) -> pa.BinaryArray:
        """Write the fields of the schema, or all columns where none is declared.

        Raises:
            SchemaError: A field has no column and no default, or a column does not fit its field.
        """
        if self.writer is not None:
            raise SchemaError(
                "the format avro with writer_schema= cannot write: it would not read what it writes",
                hint="Write with a format that has schema= alone.",
            )
        return write_values(frame, self.reader or schema_of(frame.schema))

    @cached_property
    def _converter(self) -> Converter:
        if self.reader is None:
            raise SchemaError("avro() without a schema cannot read", hint="Give it schema=...")
        return converter(self.writer or self.reader, self.reader)

    def _check_columns(self, reader: AvroType) -> None:
        names = {each.name for each in reader.fields}
        path = self.time.path if self.time.place == "field" else ()
        if INGESTION_TIME in names or (EVENT_TIME in names and path != (EVENT_TIME,)):
            taken = INGESTION_TIME if INGESTION_TIME in names else EVENT_TIME
            raise SchemaError(
                f"the schema has a field {taken!r}, a name that every stream has itself",
                hint=f'Give the field another name and "aliases": ["{taken}"], with the writer\'s schema as '
                "writer_schema=."
                + (f" Or read it as the time of the event: time={EVENT_TIME!r}." if taken == EVENT_TIME else ""),
            )
        if path:
            self._check_time(path)

    def _check_time(self, path: tuple[str, ...]) -> None:
        kind: Any = pl.Struct(dict(self._fields))
        for depth, name in enumerate(path):
            fields = {each.name: each.dtype for each in kind.fields} if isinstance(kind, pl.Struct) else {}
            if name not in fields:
                place = ".".join(path[:depth]) or "the schema"
                raise SchemaError(
                    f"the time is in {self.time.name}, and {place} has no field {name!r}",
                    hint=f"Fields are: {', '.join(fields)}." if fields else "Name a field of a record.",
                )
            kind = fields[name]
        if kind.is_numeric() and not self.time.is_epoch:
            raise SchemaError(
                f"the time in {self.time.name} is {kind}: its unit is not known",
                hint='Say what it counts: time_format="ms".',
            )
        if not kind.is_numeric() and not isinstance(kind, (pl.Datetime, pl.Date, pl.String)):
            raise SchemaError(
                f"the time in {self.time.name} is {kind}, which is no time",
                hint="A time is a timestamp, a date, a text or a number.",
            )


def frame_of(rows: pa.StructArray) -> pl.DataFrame:
    """Give the rows of a record type as a frame."""
    return pl.DataFrame(pl.from_arrow(pa.table(rows.flatten(), schema=pa.schema(list(rows.type)))))


def avro(
    schema: Mapping[str, Any] | str | Path | None = None,
    *,
    writer_schema: Mapping[str, Any] | str | Path | None = None,
    time: str | tuple[str, ...] | EventTime | None = None,
    time_format: str = ISO,
    time_zone: str = "UTC",
    key: Format | None = None,
) -> Format:
    """Read and write records that are values of an Avro schema.

    Args:
        schema: The schema to read by: a dictionary, JSON text, or the path of an .avsc file. To write results, none is
            needed; then there is a nullable field for each column.
        writer_schema: The schema that the records were written by, if it is another one; fields are matched by name and
            alias, types are promoted, and missing fields have their defaults, as Avro has it.
        time: The field with the time of the event ("meta.at" for a field in a record), or `header_time(...)`; None:
            Kafka's timestamp of the record. A field with a logical type says itself how it is written.
        time_format: How a field of numbers or texts writes it: "iso8601"; "s", "ms", "us" or "ns" since 1970; or a
            pattern.
        time_zone: The time zone of times that do not name one.
        key: How the key of a record becomes columns, such as `text("parcel")`; see `record`.

    >>> scans = avro({"type": "record", "name": "Scan", "fields": [
    ...     {"name": "parcel", "type": "string"},
    ...     {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ... ]}, time="at")
    >>> dict(scans.schema)
    {'parcel': String, 'at': Datetime(time_unit='us', time_zone='UTC')}
    """
    at = time if isinstance(time, EventTime) else EventTime() if time is None else None
    if schema is None and writer_schema is not None:
        raise SchemaError("avro() has writer_schema= and no schema=", hint="Give it as schema=.")
    described = AvroFormat(
        None if schema is None else load_schema(schema),
        None if writer_schema is None else load_schema(writer_schema),
        at or field_time(time, time_format, zone=time_zone),  # type: ignore[arg-type]
    )
    return with_key(described, key)
