"""The codec: between the values of Kafka records and frames of typed columns.

Every record on Kafka is an `Event` envelope: when it happened, when it was taken in, and `details`, a message of a
registered type. The codec reads and writes whole batches of them as columns, fast, and single events for tools.

Encodings. A value is binary protobuf or JSON, as the writer of the topic likes. The writer marks it in the Kafka header
`headrace-encoding`, but a reader needs neither a setting nor the header: JSON events begin with "{" (0x7B), and a
binary event never does, because that byte would be the tag of field 15 as a group, and the envelope reserves 15.

Bad data. `decode` does not raise for anything that is in the data. A record that cannot be used is a row of
`Decoded.dead`, with the reason; it costs only itself, not its batch.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import polars as pl
import pyarrow as pa
from google.protobuf.message import DecodeError

from headrace.errors import SchemaError
from headrace.events import jsonform
from headrace.events.columns import finish, instants, unfinish
from headrace.events.layout import Layout
from headrace.events.letters import SCHEMA, Letters, Reason, Rejection
from headrace.events.reader import Engine, Reader, Reading, value_lengths, value_offsets
from headrace.events.registry import EventType, TypeRegistry
from headrace.events.schemas.envelope_pb2 import Event
from headrace.events.schemas.records_pb2 import DeadLetter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message
    from numpy.typing import NDArray

    TypeLike = str | type[Message] | Descriptor | EventType

Encoding = Literal["binary", "json"]
ENCODINGS: tuple[Encoding, ...] = get_args(Encoding)
#: The Kafka header that says how a record's value is encoded; without it, it is binary.
ENCODING_HEADER = "headrace-encoding"

#: Longer values are dead letters; Kafka's own limit is 1 MiB unless it is raised.
MAX_VALUE_BYTES = 16 * 1024 * 1024
#: The columns of a Kafka batch, as Spark names them, that dead letters tell and that `keep` can name.
ORIGIN = ("key", "topic", "partition", "offset", "timestamp")

EVENT_TIME = "event_time"
INGESTION_TIME = "ingestion_time"
_OPEN_BRACE = 0x7B


@dataclass(frozen=True, slots=True)
class Decoded:
    """What came out of a batch of Kafka records.

    Args:
        frames: The events by the full name of their type: `event_time`, `ingestion_time`, the type's columns, and what
            was kept of the Kafka record as `kafka_...`. Rows are in the order of the batch. A type that was asked for
            by name is always there, perhaps without rows.
        dead: Dead letters, with the columns of the `DeadLetter` schema.
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


class Codec:
    """Reads and writes Kafka values. It can be pickled (user-defined types included) and sent to workers.

    Args:
        registry: The types; None means Headrace's own.
        engine: "auto": ptars where it can be had, else protobuf's Python classes; "arrow" and "python" insist on one.
        max_value_bytes: Longer values are dead letters.

    >>> from datetime import datetime, UTC
    >>> import polars as pl
    >>> codec = Codec()
    >>> frame = pl.DataFrame({
    ...     "event_time": [datetime(2020, 9, 21, 3, tzinfo=UTC)], "vehicle_id": ["40/456"], "speed": [0.57]})
    >>> values = codec.encode(frame, "VehiclePosition")
    >>> decoded = codec.decode([values[0].as_py(), b"rubbish"], types=["VehiclePosition"])
    >>> decoded.frame.select("vehicle_id", "speed").row(0)
    ('40/456', 0.57)
    >>> decoded.dead["reason"].to_list()
    ['malformed']
    """

    def __init__(
        self,
        registry: TypeRegistry | None = None,
        *,
        engine: Engine = "auto",
        max_value_bytes: int = MAX_VALUE_BYTES,
    ) -> None:
        self.registry = registry or TypeRegistry()
        self.engine: Engine = engine
        self.max_value_bytes = max_value_bytes
        self._envelope = Reader(Layout(Event.DESCRIPTOR), engine=engine)
        self._readers: dict[tuple[Descriptor, tuple[str, ...] | None], Reader] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.registry, self.engine, self.max_value_bytes)

    # ---------------------------------------------------------------- batches

    def decode(
        self,
        batch: pa.RecordBatch | pa.Table | pa.Array | pa.ChunkedArray | Sequence[bytes | None],
        *,
        types: Sequence[TypeLike] | None = None,
        columns: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
        keep: Sequence[str] = (),
        job: str | None = None,
    ) -> Decoded:
        """Read a batch of Kafka records.

        Args:
            batch: The values; or a batch with the column `value` and any of Spark's Kafka columns `key`, `topic`,
                `partition`, `offset`, `timestamp`, `headers`. Headers are not needed and cost time in Spark; if they
                are there, the header `headrace-encoding` counts.
            types: The types wanted; events of others are counted in `ignored`. None means every registered type.
            columns: Only these columns of the type, or per full type name; others are not even read, so that a job that
                needs four of thirty pays for four. None means all.
            keep: Which of the Kafka columns to keep beside the events, as `kafka_partition` and so on.
            job: Who reads, for the dead letters.

        Raises:
            SchemaError: A wanted type is not registered, or a wanted column does not exist. Nothing in the data raises.
        """
        values, origin, encodings = _take_apart(batch)
        missing = [name for name in keep if name not in origin]
        if missing:
            raise SchemaError(
                f"cannot keep {missing}: the batch has {sorted(origin)}", hint="Read these columns from Kafka."
            )
        wanted = None if types is None else [self.registry.get(which) for which in types]
        letters = Letters()
        frames: dict[str, pl.DataFrame] = {}
        ignored: Counter[str] = Counter()

        clean, rows = self._select(values, encodings, letters)
        envelopes = self._envelope.read(clean)
        for row, text in envelopes.bad:
            letters.add(_origin_row(rows, row), Reason.MALFORMED, text)
        rows = _compose(rows, envelopes.rows)
        envelope, rows = self._check_envelope(envelopes.batch, rows, letters)

        kept = {f"kafka_{name}": origin[name] for name in keep}
        details = envelope.column("details")
        urls = details.field("type_url").dictionary_encode()
        for code, url in enumerate(urls.dictionary.to_pylist()):
            entry = self.registry.resolve(url)
            chosen = None
            if len(urls.dictionary) > 1:
                chosen = np.flatnonzero(urls.indices.to_numpy(zero_copy_only=False) == code)
            count = len(urls) if chosen is None else len(chosen)
            if entry is None:
                name = url.rpartition("/")[2]
                for row in range(len(urls)) if chosen is None else chosen.tolist():
                    letters.add(_origin_row(rows, row), Reason.UNKNOWN_TYPE, f"type {url!r} is not registered", name)
            elif wanted is not None and entry not in wanted:
                ignored[entry.name] += count
            else:
                reader = self._reader(entry, columns)
                part = envelope if chosen is None else envelope.take(pa.array(chosen))
                frame = self._payload(reader, part, _compose(rows, chosen), kept, letters)
                # Two type_urls may name the same type with different prefixes.
                frames[entry.name] = frame if entry.name not in frames else pl.concat([frames[entry.name], frame])
        for entry in wanted or ():
            if entry.name not in frames:
                frames[entry.name] = self._empty(self._reader(entry, columns), kept)
        dead = letters.frame(values, origin, job=job) if letters.entries else pl.DataFrame(schema=SCHEMA)
        return Decoded(frames, dead, dict(ignored))

    def encode(self, frame: pl.DataFrame, which: TypeLike, *, encoding: Encoding = "binary") -> pa.BinaryArray:
        """Write the rows of a frame as values of one type.

        Args:
            frame: `event_time` (Datetime UTC, no nulls), perhaps `ingestion_time`, and columns of the type; those it
                lacks are unset.
            which: The type.
            encoding: "binary" or "json".

        Raises:
            SchemaError: A column is not one of the type, has the wrong type, or holds a value that does not fit.
        """
        entry = self.registry.get(which)
        reader = self._reader(entry, None)
        _check_columns(frame, reader.layout)
        details = reader.write(unfinish(reader.layout, frame))
        times = frame.select(
            pl.col(EVENT_TIME).alias("event_timestamp"),
            (
                pl.col(INGESTION_TIME) if INGESTION_TIME in frame.columns else pl.lit(None, pl.Datetime("us", "UTC"))
            ).alias("ingestion_timestamp"),
        )
        raw = unfinish(self._envelope.layout, times)
        url = pa.repeat(pa.scalar(entry.type_url), frame.height)
        detail_type = self._envelope.layout.raw_schema.field("details").type
        any_details = pa.StructArray.from_arrays([url, details], fields=list(detail_type))
        envelope = pa.RecordBatch.from_arrays(
            [raw.column(0), raw.column(1), any_details], schema=self._envelope.layout.raw_schema
        )
        values = self._envelope.write(envelope)
        if encoding == "binary":
            return values
        return pa.array(
            [jsonform.dumps(Event.FromString(value), self.registry) for value in values.to_pylist()], pa.binary()
        )

    def encode_dead_letters(
        self, dead: pl.DataFrame, *, now: int | None = None, encoding: Encoding = "binary"
    ) -> pa.BinaryArray:
        """Write `Decoded.dead` as values for the dead-letter topic.

        Args:
            dead: The dead letters.
            now: Microseconds since the epoch, the letters' event time; None means the clock of this machine.
            encoding: "binary" or "json".
        """
        micros = time.time_ns() // 1_000 if now is None else now
        stamp = pl.lit(micros).cast(pl.Datetime("us", "UTC"))
        return self.encode(
            dead.with_columns(stamp.alias(EVENT_TIME), stamp.alias(INGESTION_TIME)), DeadLetter, encoding=encoding
        )

    # ---------------------------------------------------------------- single events

    def write(
        self,
        payload: Message,
        *,
        event_time: int | datetime,
        ingestion_time: int | datetime | None = None,
        encoding: Encoding = "binary",
    ) -> bytes:
        """Write one event.

        Args:
            payload: What happened, a message of a registered type.
            event_time: Aware datetime, or microseconds since the epoch.
            ingestion_time: Likewise.
            encoding: "binary" or "json".
        """
        entry = self.registry.get(type(payload))
        event = Event()
        _set_time(event.event_timestamp, event_time)
        if ingestion_time is not None:
            _set_time(event.ingestion_timestamp, ingestion_time)
        event.details.type_url = entry.type_url
        event.details.value = payload.SerializeToString()
        return jsonform.dumps(event, self.registry) if encoding == "json" else event.SerializeToString()

    def read(self, value: bytes | None) -> Event | Rejection:
        """Read one event of either encoding, or say why it cannot be read; unknown fields stay in a binary event."""
        if value is None:
            return Rejection(Reason.EMPTY_VALUE, "the record has no value")
        if len(value) > self.max_value_bytes:
            return Rejection(Reason.TOO_LARGE, f"{len(value):,} bytes, the limit is {self.max_value_bytes:,}")
        if value[:1] == b"{":
            return jsonform.loads(value, self.registry)
        try:
            return Event.FromString(value)
        except DecodeError as error:
            return Rejection(Reason.MALFORMED, str(error))

    def payload(self, event: Event) -> Message | Rejection:
        """The message inside an event."""
        entry = self.registry.resolve(event.details.type_url)
        if entry is None:
            if not event.HasField("details"):
                return Rejection(Reason.MISSING_DETAILS, "the envelope has no details")
            url = event.details.type_url
            return Rejection(Reason.UNKNOWN_TYPE, f"type {url!r} is not registered", url.rpartition("/")[2])
        try:
            return entry.message_class.FromString(event.details.value)
        except DecodeError as error:
            return Rejection(Reason.MALFORMED_DETAILS, str(error), entry.name)

    def to_json(self, value: bytes | None) -> str:
        """Any value as one line of JSON, for people: an event, or an object that says why it is none."""
        event = self.read(value)
        if isinstance(event, Event):
            payload = self.payload(event)
            if not isinstance(payload, Rejection) or payload.reason is Reason.UNKNOWN_TYPE:
                return jsonform.dumps(event, self.registry).decode()
            event = payload
        return json.dumps({"dead_letter": {"reason": event.reason, "text": event.text, "event_type": event.event_type}})

    # ---------------------------------------------------------------- parts of decode

    def _select(
        self, values: pa.BinaryArray, encodings: list[str | None] | None, letters: Letters
    ) -> tuple[pa.BinaryArray, NDArray[np.int64] | None]:
        """Leave out values that are missing or too long, and turn JSON into binary; returns the rest and its rows."""
        refused = np.zeros(len(values), bool)
        if values.null_count:
            for row in np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False)).tolist():
                refused[row] = True
                letters.add(row, Reason.EMPTY_VALUE, "the record has no value")
        lengths = value_lengths(values)
        for row in np.flatnonzero(lengths > self.max_value_bytes).tolist():
            refused[row] = True
            letters.add(row, Reason.TOO_LARGE, f"{lengths[row]:,} bytes, the limit is {self.max_value_bytes:,}")
        is_json = _begins_with_brace(values, lengths)
        for row, encoding in enumerate(encodings or ()):
            if encoding is not None and encoding not in ENCODINGS:
                refused[row] = True
                letters.add(
                    row, Reason.UNKNOWN_ENCODING, f"{ENCODING_HEADER} is {encoding!r}; known: {', '.join(ENCODINGS)}"
                )
            elif encoding is not None:
                is_json[row] = encoding == "json"
        is_json &= ~refused
        if not is_json.any():
            if not refused.any():
                return values, None
            rows = np.flatnonzero(~refused)
            return values.take(pa.array(rows)), rows
        texts = values.take(pa.array(np.flatnonzero(is_json)))
        turned: list[bytes] = []
        for row, value in zip(np.flatnonzero(is_json).tolist(), texts.to_pylist(), strict=True):
            event = jsonform.loads(value, self.registry)
            if isinstance(event, Rejection):
                refused[row] = True
                letters.add(row, event.reason, event.text, event.event_type)
            else:
                turned.append(event.SerializeToString())
        rows = np.flatnonzero(~refused)
        # Positions in `values`, or after them in `turned`.
        source = np.arange(len(values))
        source[is_json & ~refused] = len(values) + np.arange(len(turned))
        pool = pa.concat_arrays([values, pa.array(turned, pa.binary())])
        return pool.take(pa.array(source[rows])), rows

    def _check_envelope(
        self, batch: pa.RecordBatch, rows: NDArray[np.int64] | None, letters: Letters
    ) -> tuple[pa.RecordBatch, NDArray[np.int64] | None]:
        """Refuse envelopes without a usable time or details; the others get real timestamps."""
        event_time, bad_event_time = instants(batch.column("event_timestamp"))
        ingestion_time, bad_ingestion_time = instants(batch.column("ingestion_timestamp"))
        details = batch.column("details")
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
                    letters.add(_origin_row(rows, row), reason, text)
        if refused is None:
            return envelope, rows
        fine = np.flatnonzero(~refused)
        return envelope.take(pa.array(fine)), _compose(rows, fine)

    def _payload(
        self,
        reader: Reader,
        envelope: pa.RecordBatch,
        rows: NDArray[np.int64] | None,
        kept: dict[str, pa.Array],
        letters: Letters,
    ) -> pl.DataFrame:
        """Read the details of one type, and put times, columns and what is kept side by side."""
        type_name = reader.layout.name
        reading: Reading = reader.read(envelope.column("details").field("value"))
        for row, text in reading.bad:
            letters.add(_origin_row(rows, row), Reason.MALFORMED_DETAILS, text, type_name)
        table, bad, where = finish(reader.layout, reading.batch)
        good = reading.rows
        if bad is not None:
            for row in np.flatnonzero(bad).tolist():
                text = f"a timestamp is out of range (first in column {where!r})"
                letters.add(_origin_row(_compose(rows, good), row), Reason.BAD_TIMESTAMP, text, type_name)
            fine = np.flatnonzero(~bad)
            table, good = table.take(pa.array(fine)), _compose(good, fine)
        times = envelope.select([EVENT_TIME, INGESTION_TIME])
        if good is not None:
            times = times.take(pa.array(good))
        rows = _compose(rows, good)
        kept_now = kept if rows is None else {key: column.take(pa.array(rows)) for key, column in kept.items()}
        return _frame(
            {name: times.column(name) for name in times.schema.names}
            | {name: table.column(name) for name in table.schema.names}
            | kept_now
        )

    def _empty(self, reader: Reader, kept: dict[str, pa.Array]) -> pl.DataFrame:
        time_type = pa.timestamp("us", "UTC")
        schema = reader.layout.arrow_schema
        return _frame(
            {EVENT_TIME: pa.array([], time_type), INGESTION_TIME: pa.array([], time_type)}
            | {field.name: pa.array([], field.type) for field in schema}
            | {name: column.slice(0, 0) for name, column in kept.items()}
        )

    def _reader(self, entry: EventType, columns: Sequence[str] | Mapping[str, Sequence[str]] | None) -> Reader:
        chosen = columns.get(entry.name) if isinstance(columns, Mapping) else columns
        key = (entry.descriptor, None if chosen is None else tuple(chosen))
        if key not in self._readers:
            self._readers[key] = Reader(Layout(entry.descriptor, columns=chosen), engine=self.engine)
        return self._readers[key]


def _rebuild(registry: TypeRegistry, engine: Engine, max_value_bytes: int) -> Codec:
    return Codec(registry, engine=engine, max_value_bytes=max_value_bytes)


def _take_apart(
    batch: pa.RecordBatch | pa.Table | pa.Array | pa.ChunkedArray | Sequence[bytes | None],
) -> tuple[pa.BinaryArray, dict[str, pa.Array], list[str | None] | None]:
    """Values, where they come from, and the encodings that headers name (None: there are no headers)."""
    if not isinstance(batch, pa.RecordBatch | pa.Table):
        return _binary(batch), {}, None
    names = batch.schema.names
    if "value" not in names:
        raise SchemaError(
            f"the batch has no column 'value', only {names}", hint="Select value (and key, topic, ...) from Kafka."
        )
    origin = {name: _one_chunk(batch.column(name)) for name in ORIGIN if name in names}
    encodings = _header_encodings(batch.column("headers")) if "headers" in names else None
    return _binary(batch.column("value")), origin, encodings


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


def _compose(outer: NDArray[np.int64] | None, inner: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
    """Positions of positions; None stands for "all, in order"."""
    if outer is None or inner is None:
        return inner if outer is None else outer
    return outer[inner]


def _origin_row(rows: NDArray[np.int64] | None, row: int) -> int:
    return row if rows is None else int(rows[row])


def _frame(columns: dict[str, pa.Array]) -> pl.DataFrame:
    frame = pl.from_arrow(pa.table(columns))
    assert isinstance(frame, pl.DataFrame)  # noqa: S101  a table never becomes a Series
    return frame


def _check_columns(frame: pl.DataFrame, layout: Layout) -> None:
    known = {node.name for node in layout.nodes} | {EVENT_TIME, INGESTION_TIME}
    if unknown := [name for name in frame.columns if name not in known]:
        raise SchemaError(
            f"{layout.name} has no field for column {', '.join(map(repr, unknown))}",
            hint=f"Drop it or rename it; the type has: {', '.join(sorted(known))}.",
        )
    if EVENT_TIME not in frame.columns:
        raise SchemaError(f"the frame has no column {EVENT_TIME!r}", hint="Every event needs a time (Datetime, UTC).")
    if frame.get_column(EVENT_TIME).null_count():
        raise SchemaError(
            f"column {EVENT_TIME!r} has nulls", hint="Every event needs a time; drop such rows or fill them."
        )


def _set_time(stamp: Any, instant: int | datetime) -> None:
    if isinstance(instant, int):
        stamp.FromMicroseconds(instant)
        return
    if instant.tzinfo is None:
        raise SchemaError(f"time {instant} has no time zone", hint="Use datetime(..., tzinfo=UTC).")
    stamp.FromDatetime(instant)
