"""Avro: each record is one value of a schema, whose fields are columns.

The bytes are those of one value without a container around it, as programs write them to Kafka. What a field becomes,
which schemas of writers a reader's schema takes, and what is refused is in docs/formats.md.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import polars as pl
import pyarrow as pa

from headrace.errors import SchemaError
from headrace.extras import require
from headrace.formats.assembly import EVENT_TIME, INGESTION_TIME, assemble, compose, malformed, readable
from headrace.formats.avro_columns import column_type, converter
from headrace.formats.avro_reader import read_values
from headrace.formats.avro_schema import AvroType, load_schema, parse_schema, schema_json, schema_of
from headrace.formats.avro_writer import write_values
from headrace.formats.confluent import frame as framed_by
from headrace.formats.confluent import unframe
from headrace.formats.format import DecodedRecords, Format
from headrace.formats.record import with_key
from headrace.formats.schema_registry import SchemaRegistry
from headrace.formats.times import ISO, EventTime, field_time

#: Stands for the newest schema of a subject.
LATEST = "latest"
#: Each schema that a registry does not know costs a question; records beyond so many in a batch are rejected unasked.
MAX_UNKNOWN = 1_000

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from headrace.formats.avro_columns import Converter
    from headrace.formats.format import RecordPart, Records
    from headrace.formats.schema_registry import RegisteredSchema


class _UnknownSchemaError(SchemaError):
    """The registry does not know a schema."""


@dataclass(frozen=True)
class AvroFormat(Format):
    """Values of an Avro schema. See `avro`."""

    name: ClassVar[str] = "avro"
    reader: AvroType | None = None
    writer: AvroType | None = None
    time: EventTime = field(default_factory=EventTime)
    registry: SchemaRegistry | None = None
    subject: str | None = None
    register: bool = True

    def __post_init__(self) -> None:
        require("avro", by="the format avro")
        if self.reader is None:
            if self.time.place == "field":
                raise SchemaError("avro() without a schema has no field with a time", hint="Give it schema=...")
            return
        self._check_columns(self.reader)
        _converter(self.writer or self.reader, self.reader)  # a writer's schema that does not fit fails here

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
        registry = "" if self.registry is None else f", schemas from {self.registry.url}"
        return f"avro{record}{registry}, time from {self.time.text}"

    def decode(self, records: Records, columns: Sequence[str] | None = None) -> DecodedRecords:
        """Read records in columns.

        Raises:
            RegistryError: A schema is needed, and the registry cannot be asked.
        """
        if self.reader is None:
            raise SchemaError("avro() without a schema cannot read", hint="Give it schema=...")
        values, positions, rejections = readable(records)
        rows, kept, refused = self._read(values, self.reader)
        for row, text in refused.items():
            rejections[row if positions is None else int(positions[row])] = malformed(text)
        chosen = self.schema.names() if columns is None else list(columns)
        places = compose(positions, kept if refused else None)
        return assemble(frame_of(rows), places, rejections, records, self.time, chosen)

    def _read(
        self, values: pa.BinaryArray, reader: AvroType
    ) -> tuple[pa.StructArray, NDArray[np.int64], dict[int, str]]:
        """Read values, each by the schema that it was written by."""
        if self.registry is None:
            writer = self.writer or reader
            return read_values(values, writer, _converter(writer, reader))
        framed = unframe(values)
        refused = dict(framed.refused)
        parts, kept = [pa.array([], column_type(reader))], [np.zeros(0, np.int64)]
        unknown = 0
        # Those of most records first: made-up numbers cannot use up the questions before real ones are asked for.
        for number, rows, bodies in sorted(framed.groups, key=lambda group: -len(group[1])):
            if unknown >= MAX_UNKNOWN:
                text = f"the schema {number} was not asked for: {MAX_UNKNOWN:,} others of this batch are not known"
                refused |= dict.fromkeys(rows.tolist(), text)
                continue
            try:
                writer = self._written_by(number)
                convert = _converter(writer, reader)
            except _UnknownSchemaError as problem:
                unknown += 1
                refused |= dict.fromkeys(rows.tolist(), f"the schema {number}: {problem.message}")
                continue
            except SchemaError as problem:
                refused |= dict.fromkeys(rows.tolist(), f"the schema {number}: {problem.message}")
                continue
            found, good, wrong = read_values(bodies, writer, convert)
            refused |= {int(rows[row]): text for row, text in wrong.items()}
            parts.append(found)
            kept.append(rows[good])
        places = np.concatenate(kept)
        order = np.argsort(places, kind="stable")
        whole = parts[1] if len(parts) == 2 else pa.concat_arrays(parts).take(pa.array(order))  # one schema: in order
        return whole, places[order], refused

    def _written_by(self, number: int | str) -> AvroType:
        if self.registry is None:
            raise SchemaError("avro() without registry= knows no numbers of schemas")
        found = self.registry.client.schema(number)
        if found is None:
            raise _UnknownSchemaError(f"the registry at {self.registry.url} does not know it")
        return _avro_type(found)

    def encode(self, frame: pl.DataFrame) -> pa.BinaryArray:
        """Write the fields of the schema, or all columns where none is declared.

        Raises:
            SchemaError: A field has no column and no default, or a column does not fit its field.
            RegistryError: The registry cannot be asked, or refuses the schema.
        """
        if self.writer is not None:
            raise SchemaError(
                "the format avro with writer_schema= cannot write: it would not read what it writes",
                hint="Write with a format that has schema= alone.",
            )
        schema = self.reader or schema_of(frame.schema)
        if self.registry is None:
            return write_values(frame, schema)
        if self.subject is None:
            raise SchemaError(
                "the format avro with registry= cannot write without subject=",
                hint='The subject of the values of a topic is usually its name and "-value".',
            )
        values = write_values(frame, schema)
        if not len(values):
            return values
        text = json.dumps(schema_json(schema))
        return framed_by(self.registry.client.number(self.subject, text, register=self.register), values)

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


@lru_cache(maxsize=256)
def _converter(writer: AvroType, reader: AvroType) -> Converter:
    return converter(writer, reader)


@lru_cache(maxsize=256)
def _avro_type(found: RegisteredSchema) -> AvroType:
    if found.kind != "AVRO":
        raise SchemaError(f"it is a schema of {found.kind}, not of Avro")
    if found.has_references:
        raise SchemaError("it uses types of other subjects, which is not supported")
    return parse_schema(found.text)


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
    registry: str | SchemaRegistry | None = None,
    subject: str | None = None,
    register: bool = True,
) -> Format:
    """Read and write records that are values of an Avro schema.

    Args:
        schema: The schema to read by: a dictionary, JSON text, or the path of an .avsc file; or "latest", the newest
            one of `subject` in the registry, which is asked for once, when the format is built. To write results, none
            is needed; then there is a nullable field for each column.
        writer_schema: The schema that the records were written by, if it is another one; fields are matched by name and
            alias, types are promoted, and missing fields have their defaults, as Avro has it.
        time: The field with the time of the event ("meta.at" for a field in a record), or `header_time(...)`; None:
            Kafka's timestamp of the record. A field with a logical type says itself how it is written.
        time_format: How a field of numbers or texts writes it: "iso8601"; "s", "ms", "us" or "ns" since 1970; or a
            pattern.
        time_zone: The time zone of times that do not name one.
        key: How the key of a record becomes columns, such as `text("parcel")`; see `record`.
        registry: A schema registry: values are in Confluent's wire format, each by the schema whose number it begins
            with. Its address, or a `SchemaRegistry` with a user.
        subject: The subject in the registry that results are written under, such as "depots-value".
        register: Whether the schema of results is registered if the subject does not have it.

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
    if registry is not None and writer_schema is not None:
        raise SchemaError("avro() has registry= and writer_schema=", hint="The registry knows the writers' schemas.")
    if registry is None and subject is not None:
        raise SchemaError("avro() has subject= and no registry=", hint='Give it registry="http://...".')
    where = SchemaRegistry(registry) if isinstance(registry, str) else registry
    described = AvroFormat(
        _reader_schema(schema, where, subject),
        None if writer_schema is None else load_schema(writer_schema),
        at or field_time(time, time_format, zone=time_zone),  # type: ignore[arg-type]
        where,
        subject,
        register,
    )
    return with_key(described, key)


def _reader_schema(
    schema: Mapping[str, Any] | str | Path | None, registry: SchemaRegistry | None, subject: str | None
) -> AvroType | None:
    if schema is None:
        return None
    if schema != LATEST:
        return load_schema(schema)
    if registry is None or subject is None:
        raise SchemaError(
            "avro() is to read by the latest schema of no subject", hint="Give it registry= and subject=."
        )
    return _avro_type(registry.client.latest(subject))
