"""Protobuf messages of one's own: each record is one message, whose fields are columns.

The schema is a compiled class, or a `.proto` file that is compiled when the format is built. `headrace.events.layout`
says which column a field becomes; the values are read straight into columns by the reader that the envelope uses.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import polars as pl

from headrace.errors import SchemaError
from headrace.events.columns import finish, unfinish
from headrace.events.layout import Layout
from headrace.events.letters import Reason, Rejection
from headrace.events.reader import Reader
from headrace.formats.assembly import EVENT_TIME, INGESTION_TIME, assemble, compose, malformed, readable
from headrace.formats.format import Format
from headrace.formats.proto_files import (
    checked_message,
    compile_message,
    descriptor_files,
    is_path,
    message_of_class,
)
from headrace.formats.record import with_key
from headrace.formats.times import ISO, EventTime, field_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message

    from headrace.formats.format import DecodedRecords, RecordPart, Records

_TIMES = (EVENT_TIME, INGESTION_TIME)


@dataclass(frozen=True)
class ProtobufFormat(Format):
    """Messages of one type. See `protobuf`.

    Args:
        message: The full name of the type.
        files: Its file and those that it imports, serialised, the imported ones first.
        columns: The fields that are columns.
        time: Where the event time is.
    """

    name: ClassVar[str] = "protobuf"
    message: str
    files: tuple[bytes, ...] = field(repr=False)
    columns: tuple[str, ...]
    time: EventTime

    def __post_init__(self) -> None:
        if self.time.place == "field":
            self._check_time()
        _ = self._reader  # a type that cannot be read fails here

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("message", "files", "columns", "time")}

    @property
    def schema(self) -> pl.Schema:
        """The fields that were chosen."""
        return pl.Schema({name: kind for name, kind in self._layout.schema.items() if name in self.columns})

    @property
    def reads(self) -> frozenset[RecordPart]:
        """Kafka's timestamp, and the headers if the time is in one of them."""
        return frozenset({"timestamp", "headers"} if self.time.place == "header" else {"timestamp"})

    @property
    def text(self) -> str:
        """Describe the format in a line of `explain()`."""
        return f"protobuf {self.message}, time from {self.time.text}"

    @cached_property
    def _layout(self) -> Layout:
        names = self.columns
        if self.time.place == "field" and self.time.path[0] not in names:
            names = (*names, self.time.path[0])
        return Layout(checked_message(self.files, self.message), columns=names)

    @cached_property
    def _reader(self) -> Reader:
        return Reader(self._layout)

    def decode(self, records: Records, columns: Sequence[str] | None = None) -> DecodedRecords:
        """Read messages in columns."""
        values, positions, rejections = readable(records)

        def reject(row: int, rejection: Rejection) -> None:
            rejections[row if positions is None else int(positions[row])] = rejection

        reading = self._reader.read(values)
        for row, problem in reading.bad:
            reject(row, malformed(f"the value is no {self.message}: {problem}"))
        positions = compose(positions, reading.rows)
        batch, wrong, where = finish(self._layout, reading.batch)
        frame = pl.DataFrame(pl.from_arrow(batch))
        if wrong is not None:
            for row in np.flatnonzero(wrong).tolist():
                reject(row, Rejection(Reason.BAD_TIMESTAMP, f"{where} holds a time before the year 1 or after 9999"))
            fine = np.flatnonzero(~wrong)
            frame, positions = frame[fine], compose(positions, fine)
        # The times of records are looked up by one column; deeper and unset ones are brought there.
        time = self.time
        if time.place == "field":
            frame = frame.with_columns(self._times(frame).alias(_TIME_COLUMN))
            decoded = assemble(frame, positions, rejections, records, _placed(time), list(self.schema))
            named = {row: _renamed(rejection, time) for row, rejection in decoded.rejections.items()}
            decoded.rejections.update(named)
        else:
            decoded = assemble(frame, positions, rejections, records, time, list(self.schema))
        if columns is None:
            return decoded
        kept = decoded.frame.select(*_TIMES, *columns)
        return type(decoded)(kept, decoded.positions, decoded.rejections)

    def encode(self, frame: pl.DataFrame) -> pa.BinaryArray:
        """Write each row as a message. Fields that no column has are left unset.

        The event time is written to the field that it is read from, if no column of its name is there.

        Raises:
            SchemaError: The type has no field for a column, or a value does not fit its field.
        """
        layout = self._writing
        time = self.time
        if time.place == "field" and len(time.path) == 1 and time.path[0] not in frame.columns:
            name = time.path[0]
            if EVENT_TIME in frame.columns:
                written = _written(frame.get_column(EVENT_TIME), time, layout.schema[name])
                frame = frame.with_columns(written.alias(name))
        known = set(layout.field_names)
        if missing := [name for name in frame.columns if name not in known and name not in _TIMES]:
            raise SchemaError(
                f"{self.message} has no field for the column {', '.join(map(repr, missing))}",
                hint=f"Drop it or rename it; the message has: {', '.join(layout.field_names)}.",
            )
        return self._writer.write(unfinish(layout, frame))

    @cached_property
    def _writing(self) -> Layout:
        return Layout(checked_message(self.files, self.message))

    @cached_property
    def _writer(self) -> Reader:
        return Reader(self._writing)

    def _times(self, frame: pl.DataFrame) -> pl.Series:
        outer, *inner = self.time.path
        found = frame.get_column(outer)
        for name in inner:
            found = found.struct.field(name)
        if found.dtype.is_numeric() and not self._has_presence:
            # Proto3 writes no zero, so a count of 0 is a time that was never set.
            found = pl.select(pl.when(found != 0).then(found)).to_series()
        elif found.dtype == pl.String:
            found = pl.select(pl.when(found != "").then(found)).to_series()
        return found

    @cached_property
    def _has_presence(self) -> bool:
        descriptor: Any = checked_message(self.files, self.message)
        for name in self.time.path[:-1]:
            descriptor = descriptor.fields_by_name[name].message_type
        return bool(descriptor.fields_by_name[self.time.path[-1]].has_presence)

    def _check_time(self) -> None:
        """Refuse a time in a field that is missing or cannot be a time."""
        descriptor = checked_message(self.files, self.message)
        names = [each.name for each in descriptor.fields]
        if self.time.path[0] not in names:
            raise SchemaError(
                f"the time is in {self.time.name}, and {self.message} has no field {self.time.path[0]!r}",
                hint=f"Its fields are: {', '.join(names)}.",
            )
        kind: Any = self._layout.schema[self.time.path[0]]
        for name in self.time.path[1:]:
            inner = {each.name: each.dtype for each in kind.fields} if isinstance(kind, pl.Struct) else {}
            if name not in inner:
                raise SchemaError(
                    f"the time is in {self.time.name}, and there is no {name!r} in {self.message}",
                    hint=f"There are: {', '.join(inner) or 'no fields in it'}.",
                )
            kind = inner[name]
        if kind.is_numeric() and not self.time.is_epoch:
            raise SchemaError(
                f"the time {self.time.name} of {self.message} is {kind}: its unit is not known",
                hint='Say what it counts: time_format="ms".',
            )
        if not kind.is_numeric() and not isinstance(kind, pl.Datetime | pl.String):
            raise SchemaError(
                f"the time {self.time.name} of {self.message} is {kind}, which is no time",
                hint="Name a google.protobuf.Timestamp, a number or a text.",
            )


_TIME_COLUMN = "\0time"


def _placed(time: EventTime) -> EventTime:
    return EventTime("field", (_TIME_COLUMN,), time.pattern, time.zone)


def _renamed(rejection: Rejection, time: EventTime) -> Rejection:
    return Rejection(rejection.reason, rejection.text.replace(_TIME_COLUMN, time.name), rejection.event_type)


def _written(instants: pl.Series, time: EventTime, kind: pl.DataType) -> pl.Series:
    """Give event times as the field that they are read from holds them."""
    if isinstance(kind, pl.Datetime):
        return instants
    if kind == pl.String:
        if time.is_epoch:
            return _count(instants, time).cast(pl.String)
        pattern = "%Y-%m-%dT%H:%M:%S%.6fZ" if time.pattern == ISO else time.pattern
        zoned = instants if time.pattern == ISO else instants.dt.convert_time_zone(time.zone)
        return zoned.dt.strftime(pattern)
    count = _count(instants, time)
    return instants.dt.timestamp("us") / _MICROS[time.pattern] if kind.is_float() and time.pattern != "ns" else count


_MICROS = {"s": 1_000_000, "ms": 1_000, "us": 1}


def _count(instants: pl.Series, time: EventTime) -> pl.Series:
    micros = instants.dt.timestamp("us")
    return micros * 1_000 if time.pattern == "ns" else micros // _MICROS[time.pattern]


def protobuf(
    schema: type[Message] | Descriptor | str | Path,
    *,
    message: str | None = None,
    include: Sequence[str | Path] = (),
    columns: Sequence[str] | None = None,
    time: str | tuple[str, ...] | EventTime | None = None,
    time_format: str = ISO,
    time_zone: str = "UTC",
    key: Format | None = None,
) -> Format:
    """Read and write records that are Protobuf messages of one type.

    Args:
        schema: A compiled class (`parcel_pb2.Scan`), or the path of a `.proto` file, which is compiled now. A path
            needs the extra `headrace[protobuf]`.
        message: The message in the file, if it has several.
        include: Directories that imported files are searched in, beside the directory of the file.
        columns: The fields to read; None means all, but for one called `event_time` that the time is taken from.
        time: The field with the time of the event ("meta.at" for a field in a message), or `header_time(...)`; None:
            Kafka's timestamp of the record.
        time_format: How a number or a text writes it: "iso8601"; "s", "ms", "us" or "ns" since 1970; or a pattern. A
            `google.protobuf.Timestamp` needs none.
        time_zone: The time zone of texts that do not name one.
        key: How the key of a record becomes columns, such as `text("parcel")`; see `record`.

    Raises:
        SchemaError: The schema cannot be compiled, or has no such message or field.

    >>> from headrace.events import DeadLetter
    >>> letters = protobuf(DeadLetter, columns=["reason", "partition"])
    >>> letters.schema.names(), letters.text
    (['reason', 'partition'], "protobuf headrace.v1.DeadLetter, time from Kafka's timestamp")
    """
    if is_path(schema):
        descriptor = compile_message(Path(schema), message, include)  # type: ignore[arg-type]
    else:
        descriptor = message_of_class(schema)
        if message not in (None, descriptor.name, descriptor.full_name):
            raise SchemaError(
                f"protobuf() was given the class of {descriptor.full_name} and message={message!r}",
                hint="Leave message= out: it chooses from a .proto file.",
            )
    at = time if isinstance(time, EventTime) else EventTime() if time is None else None
    at = at or field_time(time, time_format, zone=time_zone)  # type: ignore[arg-type]
    files = descriptor_files(descriptor)
    return with_key(ProtobufFormat(descriptor.full_name, files, _chosen(descriptor, columns, at), at), key)


def _chosen(descriptor: Descriptor, columns: Sequence[str] | None, time: EventTime) -> tuple[str, ...]:
    names = [each.name for each in descriptor.fields]
    if columns is None:
        is_time = time.place == "field" and time.path == (EVENT_TIME,)
        chosen = [name for name in names if not (is_time and name == EVENT_TIME)]
    else:
        chosen = list(dict.fromkeys(columns))
    if missing := [name for name in chosen if name not in names]:
        raise SchemaError(
            f"{descriptor.full_name} has no field {', '.join(map(repr, missing))}",
            hint=f"Its fields are: {', '.join(names)}.",
        )
    if taken := [name for name in _TIMES if name in chosen]:
        raise SchemaError(
            f"{descriptor.full_name} has a field {taken[0]!r}, a name that every stream has itself",
            hint=f'Take the time from it, time="{EVENT_TIME}", or choose other fields with columns=[...].',
        )
    return tuple(chosen)
