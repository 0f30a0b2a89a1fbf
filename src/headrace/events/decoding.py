"""Decoding one batch of Kafka records: envelope, type, details, and what to do with records that fail on the way.

The steps, each on whole columns: leave out values that are missing or too long; turn JSON values into binary ones; read
the envelopes; check their times; sort the rows by type; read the details of each wanted type; put times, columns and
the place on Kafka side by side. A record that fails a step leaves the batch there, with its reason.

`rows` is, throughout, the position of each row that is still there among the records of the batch; None stands for "all
of them, in order", the usual case, which then costs nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import numpy as np
import polars as pl
import pyarrow as pa

from headrace.errors import SchemaError
from headrace.events import cells, jsonform
from headrace.events.columns import finish, instants
from headrace.events.letters import SCHEMA, Letters, Reason, Rejection
from headrace.events.quick_records import read_records
from headrace.events.reader import value_lengths, value_offsets
from headrace.events.schemas.records_pb2 import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from headrace.events.quick_records import QuickRead
    from headrace.events.reader import Reader
    from headrace.events.registry import EventType, TypeRegistry

    Rows: TypeAlias = NDArray[np.int64] | None
    Batch: TypeAlias = pa.RecordBatch | pa.Table | pa.Array | pa.ChunkedArray | Sequence[bytes | None]

Encoding = Literal["binary", "json"]
ENCODINGS: tuple[Encoding, ...] = get_args(Encoding)
#: The Kafka header that says how a record's value is encoded; without it, it is binary.
ENCODING_HEADER = "headrace-encoding"

EVENT_TIME = "event_time"
INGESTION_TIME = "ingestion_time"
#: The columns of a Kafka batch, as Spark names them, that dead letters tell and that can be kept beside the events.
ORIGIN = ("key", "topic", "partition", "offset", "timestamp")

_OPEN_BRACE = 0x7B
#: Holds the position of each row while rows that were read in two ways are put in order.
_NUMBER = "\0number"
_TIME = pa.timestamp("us", "UTC")
_NO_LETTERS = pl.DataFrame(schema=SCHEMA)


@dataclass(frozen=True, slots=True)
class Decoded:
    """What came out of a batch of Kafka records.

    Args:
        frames: The events by the full name of their type: `event_time`, `ingestion_time`, the type's columns, and what
            was kept of the Kafka record as `kafka_...`. Rows are in the order of the batch. A type that was asked for
            by name is always there, perhaps without rows.
        dead: Dead letters, with the columns of the `DeadLetter` schema, in the order of the batch.
        ignored: How many events of registered types that were not asked for there were, by type.
    """

    frames: dict[str, pl.DataFrame]
    dead: pl.DataFrame
    ignored: dict[str, int]

    @property
    def frame(self) -> pl.DataFrame:
        """The only frame, where one type was asked for."""
        if len(self.frames) != 1:
            raise SchemaError(f"there are {len(self.frames)} frames", hint="Ask for one type, or take one of `frames`.")
        return next(iter(self.frames.values()))


@dataclass(frozen=True, slots=True)
class Intake:
    """The records of a batch.

    Args:
        values: Their values.
        origin: Their Kafka columns, those of `ORIGIN` that there are.
        encodings: What their headers say; None: there are no headers.
    """

    values: pa.BinaryArray
    origin: dict[str, pa.Array]
    encodings: list[str | None] | None = None

    @classmethod
    def of(cls, batch: Batch) -> Intake:
        """Take a batch apart."""
        if not isinstance(batch, pa.RecordBatch | pa.Table):
            return cls(_binary(batch), {})
        names = batch.schema.names
        if "value" not in names:
            raise SchemaError(
                f"the batch has no column 'value', only {names}", hint="Select value (and key, topic, ...) from Kafka."
            )
        origin = {name: _one_chunk(batch.column(name)) for name in ORIGIN if name in names}
        encodings = _header_encodings(batch.column("headers")) if "headers" in names else None
        return cls(_binary(batch.column("value")), origin, encodings)


@dataclass(frozen=True, slots=True)
class Want:
    """What is wanted of one type.

    Args:
        reader: Reads its messages.
        columns: The columns of the frame, in this order; None means all.
        declared: The types of those columns that records of an open type bring themselves; None: as they are.
    """

    reader: Reader
    columns: tuple[str, ...] | None = None
    declared: pl.Schema | None = None


@dataclass(slots=True)
class Decoding:
    """One run over one batch.

    Args:
        registry: The types.
        envelope: Reads envelopes.
        want: What is wanted of a type; None if it is not wanted.
        max_value_bytes: Longer values are dead letters.
        keep: Which Kafka columns to keep.
    """

    registry: TypeRegistry
    envelope: Reader
    want: Callable[[EventType], Want | None]
    max_value_bytes: int
    keep: Sequence[str] = ()
    letters: Letters = field(default_factory=Letters)

    def run(self, intake: Intake, *, wanted: Sequence[EventType], job: str | None) -> Decoded:
        """Decode the batch; nothing in the data raises."""
        known = {**intake.origin, "value": intake.values}
        if missing := [name for name in self.keep if name not in known]:
            raise SchemaError(
                f"cannot keep {missing}: the batch has {sorted(known)}", hint="Read these columns from Kafka."
            )
        kept = {f"kafka_{name}": known[name] for name in self.keep}
        values, rows = self._select(intake)
        envelope, rows = self._envelopes(values, rows)

        frames: dict[str, pl.DataFrame] = {}
        ignored: Counter[str] = Counter()
        urls = envelope.column("details").field("type_url").dictionary_encode()
        names = urls.dictionary.to_pylist()
        codes = urls.indices.to_numpy(zero_copy_only=False)
        # Many type_urls may name one type, with different prefixes, and any number of them none: rows are sorted by
        # type, so that the cost follows the rows and not the type_urls that a sender made up.
        types = [self.registry.resolve(url) for url in names]
        different = {entry: number for number, entry in enumerate(dict.fromkeys(types))}
        numbers = np.array([different[entry] for entry in types], np.int64)[codes]
        for entry, number in different.items():
            chosen = None if len(different) == 1 else np.flatnonzero(numbers == number)
            here = _compose(rows, chosen)
            want = None if entry is None else self.want(entry)
            if entry is None:
                unknown = codes if chosen is None else codes[chosen]
                for row, code in enumerate(unknown.tolist()):
                    url = names[code]
                    text = f"type {url!r} is not registered"
                    self._reject(here, row, Reason.UNKNOWN_TYPE, text, url.rpartition("/")[2])
            elif want is None:
                ignored[entry.name] += len(urls) if chosen is None else len(chosen)
            else:
                part = envelope if chosen is None else envelope.take(pa.array(chosen))
                frames[entry.name] = self._details(want, part, here, kept)
        for entry in wanted:
            want = self.want(entry)
            if entry.name not in frames and want is not None:
                frames[entry.name] = _empty_frame(want, kept)
        if not self.letters.entries:
            return Decoded(frames, _NO_LETTERS.clone(), dict(ignored))
        return Decoded(frames, self.letters.frame(intake.values, intake.origin, job=job), dict(ignored))

    def _reject(self, rows: Rows, row: int, reason: Reason, text: str, event_type: str | None = None) -> None:
        self.letters.add(row if rows is None else int(rows[row]), reason, text, event_type)

    def _select(self, intake: Intake) -> tuple[pa.BinaryArray, Rows]:
        """Leave out values that are missing or too long, and turn JSON into binary."""
        values = intake.values
        refused = np.zeros(len(values), bool)

        def refuse(row: int, reason: Reason, text: str, event_type: str | None = None) -> None:
            refused[row] = True
            self.letters.add(row, reason, text, event_type)

        if values.null_count:
            for row in np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False)).tolist():
                refuse(row, Reason.EMPTY_VALUE, "the record has no value")
        lengths = value_lengths(values)
        for row in np.flatnonzero(lengths > self.max_value_bytes).tolist():
            refuse(row, Reason.TOO_LARGE, f"{lengths[row]:,} bytes, the limit is {self.max_value_bytes:,}")
        is_json = _begins_with_brace(values, lengths)
        for row, encoding in enumerate(intake.encodings or ()):
            if encoding is not None and encoding not in ENCODINGS:
                refuse(row, Reason.UNKNOWN_ENCODING, f"{ENCODING_HEADER} is {encoding!r}; known: {ENCODINGS}")
            elif encoding is not None:
                is_json[row] = encoding == "json"
        is_json &= ~refused
        turned: list[bytes] = []
        for row in np.flatnonzero(is_json).tolist():
            event = jsonform.loads(values[row].as_py(), self.registry)
            if isinstance(event, Rejection):
                refuse(row, event.reason, event.text, event.event_type)
            else:
                turned.append(event.SerializeToString())
        if not refused.any() and not turned:
            return values, None
        rows = np.flatnonzero(~refused)
        if not turned:
            return values.take(pa.array(rows)), rows
        # Positions among the values, or after them among the turned ones.
        source = np.arange(len(values))
        source[is_json & ~refused] = len(values) + np.arange(len(turned))
        return pa.concat_arrays([values, pa.array(turned, pa.binary())]).take(pa.array(source[rows])), rows

    def _envelopes(self, values: pa.BinaryArray, rows: Rows) -> tuple[pa.RecordBatch, Rows]:
        """Read the envelopes; refuse those without a usable time or details."""
        reading = self.envelope.read(values)
        for row, text in reading.bad:
            self._reject(rows, row, Reason.MALFORMED, text)
        rows = _compose(rows, reading.rows)
        event_time, bad_event_time = instants(reading.batch.column("event_timestamp"))
        ingestion_time, bad_ingestion_time = instants(reading.batch.column("ingestion_timestamp"))
        details = reading.batch.column("details")
        envelope = pa.RecordBatch.from_arrays(
            [event_time, ingestion_time, details], names=[EVENT_TIME, INGESTION_TIME, "details"]
        )
        refused: NDArray[np.bool_] | None = None
        for wrong, reason, text in (
            (_nulls(event_time), Reason.MISSING_TIMESTAMP, "the envelope has no event_timestamp"),
            (bad_event_time, Reason.BAD_TIMESTAMP, "event_timestamp is out of range"),
            (bad_ingestion_time, Reason.BAD_TIMESTAMP, "ingestion_timestamp is out of range"),
            (_nulls(details), Reason.MISSING_DETAILS, "the envelope has no details"),
        ):
            if wrong is not None:
                refused = wrong if refused is None else refused | wrong
                for row in np.flatnonzero(wrong).tolist():
                    self._reject(rows, row, reason, text)
        if refused is None:
            return envelope, rows
        fine = np.flatnonzero(~refused)
        return envelope.take(pa.array(fine)), _compose(rows, fine)

    def _details(self, want: Want, envelope: pa.RecordBatch, rows: Rows, kept: dict[str, pa.Array]) -> pl.DataFrame:
        """Read the details of one type, and put times, columns and what is kept side by side."""
        quick = self._quick_details(want, envelope)
        if quick is None:
            return self._general_details(want, envelope, rows, kept)
        if quick.fits is None:
            return _beside(envelope, quick.frame, _taken(kept, rows))
        # The rest is read by the general way; then all stand in the order in which they came.
        fitting, others = np.flatnonzero(quick.fits), np.flatnonzero(~quick.fits)
        last = len(envelope) - 1 if rows is None else int(rows[-1])
        numbered = {**kept, _NUMBER: pa.array(np.arange(last + 1))}
        parts = [
            _beside(envelope.take(pa.array(fitting)), quick.frame, _taken(numbered, _compose(rows, fitting))),
            self._general_details(want, envelope.take(pa.array(others)), _compose(rows, others), numbered),
        ]
        return pl.concat(parts).sort(_NUMBER).drop(_NUMBER)

    def _quick_details(self, want: Want, envelope: pa.RecordBatch) -> QuickRead | None:
        """Read records that bring their own columns, as far as they look alike; None where there are none."""
        declared, layout = want.declared, want.reader.layout
        # The quick way knows a record's cells only, and not the fields that other open types have beside them.
        if declared is None or layout.name != Record.DESCRIPTOR.full_name or want.columns != tuple(declared):
            return None
        taken = (EVENT_TIME, INGESTION_TIME, *layout.field_names, *(f"kafka_{name}" for name in ORIGIN))
        return read_records(envelope.column("details").field("value"), declared, reserved=taken)

    def _general_details(
        self, want: Want, envelope: pa.RecordBatch, rows: Rows, kept: dict[str, pa.Array]
    ) -> pl.DataFrame:
        """Read the details of any type."""
        layout = want.reader.layout
        reading = want.reader.read(envelope.column("details").field("value"))
        for row, text in reading.bad:
            self._reject(rows, row, Reason.MALFORMED_DETAILS, text, layout.name)
        table, bad, where = finish(layout, reading.batch)
        good = reading.rows
        if bad is not None:
            text = f"a timestamp is out of range (first in column {where!r})"
            for row in np.flatnonzero(bad).tolist():
                self._reject(_compose(rows, good), row, Reason.BAD_TIMESTAMP, text, layout.name)
            fine = np.flatnonzero(~bad)
            table, good = table.take(pa.array(fine)), _compose(good, fine)
        own = pl.DataFrame()
        if layout.is_open and cells.FIELD in table.schema.names:
            taken = (EVENT_TIME, INGESTION_TIME, *layout.field_names)
            unpacked = cells.unpack(table.column(cells.FIELD), taken=taken, schema=want.declared)
            for row, text in unpacked.bad:
                self._reject(_compose(rows, good), row, Reason.MALFORMED_DETAILS, text, layout.name)
            table, own = table.drop_columns([cells.FIELD]), unpacked.frame
            if unpacked.bad:
                table, good = table.take(pa.array(unpacked.rows)), _compose(good, unpacked.rows)
        times = envelope.select([EVENT_TIME, INGESTION_TIME])
        if good is not None:
            times = times.take(pa.array(good))
        rows = _compose(rows, good)
        kept_now = kept if rows is None else {name: column.take(pa.array(rows)) for name, column in kept.items()}
        frame = _frame(_columns(times) | _columns(table) | kept_now)
        return frame if not layout.is_open else _add_own(frame, own, want, list(kept))


def _beside(envelope: pa.RecordBatch, own: pl.DataFrame, kept: dict[str, pa.Array]) -> pl.DataFrame:
    """Put times, the columns of records and what is kept side by side."""
    times = _frame(_columns(envelope.select([EVENT_TIME, INGESTION_TIME])))
    return times.hstack(own.get_columns()).hstack(_frame(kept).get_columns() if kept else [])


def _taken(kept: dict[str, pa.Array], rows: Rows) -> dict[str, pa.Array]:
    return kept if rows is None else {name: column.take(pa.array(rows)) for name, column in kept.items()}


def _add_own(frame: pl.DataFrame, own: pl.DataFrame, want: Want, kept: list[str]) -> pl.DataFrame:
    """Put the columns that an open type's records brought themselves beside its fields, before the Kafka columns."""
    # A record may bring a column called kafka_partition; what Kafka says wins.
    frame = frame.with_columns([series for series in own.get_columns() if series.name not in frame.columns])
    if want.columns is not None:
        types: dict[str, pl.DataType] = dict(want.declared or {})
        absent = [pl.lit(None, types.get(name)).alias(name) for name in want.columns if name not in frame.columns]
        return frame.with_columns(absent).select(EVENT_TIME, INGESTION_TIME, *want.columns, *kept)
    return frame.select(*(name for name in frame.columns if name not in kept), *kept)


def _empty_frame(want: Want, kept: dict[str, pa.Array]) -> pl.DataFrame:
    layout = want.reader.layout
    frame = _frame(
        {EVENT_TIME: pa.array([], _TIME), INGESTION_TIME: pa.array([], _TIME)}
        | {field.name: pa.array([], field.type) for field in layout.arrow_schema}
        | {name: column.slice(0, 0) for name, column in kept.items()}
    )
    if not layout.is_open:
        return frame
    return _add_own(frame.drop(cells.FIELD, strict=False), pl.DataFrame(), want, list(kept))


def _columns(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    return dict(zip(batch.schema.names, batch.columns, strict=True))


def _frame(columns: dict[str, pa.Array]) -> pl.DataFrame:
    frame = pl.from_arrow(pa.table(columns))
    assert isinstance(frame, pl.DataFrame)  # noqa: S101  a table never becomes a Series
    return frame


def _binary(values: pa.Array | pa.ChunkedArray | Sequence[bytes | None]) -> pa.BinaryArray:
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        return pa.array(values, pa.binary())
    return _one_chunk(values if values.type == pa.binary() else values.cast(pa.binary()))


def _one_chunk(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _header_encodings(headers: pa.Array | pa.ChunkedArray) -> list[str | None]:
    result: list[str | None] = []
    for row in headers.to_pylist():
        named = [header["value"] for header in row or () if header["key"] == ENCODING_HEADER]
        result.append(named[-1].decode(errors="replace") if named and named[-1] is not None else None)
    return result


def _begins_with_brace(values: pa.BinaryArray, lengths: NDArray[np.int32]) -> NDArray[np.bool_]:
    data = values.buffers()[2]
    if data is None or not data.size:
        return np.zeros(len(values), bool)
    # An empty value at the very end begins where the data ends; any byte will do for it.
    starts = np.minimum(value_offsets(values)[:-1], data.size - 1)
    first: NDArray[np.uint8] = np.frombuffer(data, np.uint8)[starts]
    result: NDArray[np.bool_] = (first == _OPEN_BRACE) & (lengths > 0)
    return result


def _nulls(column: pa.Array) -> NDArray[np.bool_] | None:
    return column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None


def _compose(outer: Rows, inner: Rows) -> Rows:
    """Positions of positions."""
    if outer is None or inner is None:
        return inner if outer is None else outer
    return outer[inner]
