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

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
from google.protobuf.message import DecodeError

from headrace.errors import SchemaError
from headrace.events import cells, jsonform
from headrace.events.columns import unfinish
from headrace.events.decoding import EVENT_TIME, INGESTION_TIME, Decoded, Decoding, Encoding, Intake, Want
from headrace.events.layout import Layout, is_open
from headrace.events.letters import Reason, Rejection
from headrace.events.reader import Engine, Reader
from headrace.events.registry import EventType, TypeRegistry
from headrace.events.schemas.envelope_pb2 import Event
from headrace.events.schemas.records_pb2 import DeadLetter
from headrace.events.wrapping import with_message, wrap

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message

    from headrace.events.decoding import Batch

    TypeLike = str | type[Message] | Descriptor | EventType
    Columns = Sequence[str] | pl.Schema

#: Longer values are dead letters; Kafka's own limit is 1 MiB unless it is raised.
MAX_VALUE_BYTES = 16 * 1024 * 1024


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
    ...     "event_time": [datetime(2020, 9, 21, 3, tzinfo=UTC)], "parcel": ["p1"], "weight": [0.57]})
    >>> values = codec.encode(frame, "Record")
    >>> columns = pl.Schema({"parcel": pl.String, "weight": pl.Float64})
    >>> decoded = codec.decode([values[0].as_py(), b"rubbish"], types=["Record"], columns=columns)
    >>> decoded.frame.select("parcel", "weight").row(0)
    ('p1', 0.57)
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
        batch: Batch,
        *,
        types: Sequence[TypeLike] | None = None,
        columns: Columns | Mapping[str, Columns] | None = None,
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
                needs four of thirty pays for four. None means all. For an open type, a `pl.Schema` says which columns
                its records should have: one that lacks a column has null there, one whose value is of another type is
                a dead letter.
            keep: Which of the Kafka columns to keep beside the events, as `kafka_partition` and so on.
            job: Who reads, for the dead letters.

        Raises:
            SchemaError: A wanted type is not registered, or a wanted column does not exist. Nothing in the data raises.
        """
        wanted = [self.registry.get(which) for which in types or ()]
        names = {entry.name for entry in wanted}
        for entry in wanted:
            self._want(entry, columns)  # a column that does not exist is a mistake in the job, whatever the data

        def want(entry: EventType) -> Want | None:
            return self._want(entry, columns) if types is None or entry.name in names else None

        decoding = Decoding(self.registry, self._envelope, want, self.max_value_bytes, keep)
        return decoding.run(Intake.of(batch), wanted=wanted, job=job)

    def encode(
        self,
        frame: pl.DataFrame,
        which: TypeLike,
        *,
        encoding: Encoding = "binary",
        messages: Mapping[str, Sequence[bytes | None]] | None = None,
    ) -> pa.BinaryArray:
        """Write the rows of a frame as values of one type.

        Args:
            frame: `event_time` (Datetime UTC, no nulls), perhaps `ingestion_time`, and columns of the type; those it
                lacks are unset. An open type (`Record`, `Result`, `LateEvent`) takes any further
                columns.
            which: The type.
            encoding: "binary" or "json".
            messages: Fields that hold a message each, which is there in its binary form; as they are they go in.

        Raises:
            SchemaError: A column is not one of the type, has the wrong type, or holds a value that does not fit.
        """
        entry = self.registry.get(which)
        reader = self._reader(entry, None)
        own = _check_columns(frame, reader.layout)
        packed = {cells.FIELD: cells.pack(frame, own)} if reader.layout.is_open else None
        details = reader.write(unfinish(reader.layout, frame, packed=packed))
        for name, written in (messages or {}).items():
            details = with_message(details, entry.descriptor.fields_by_name[name].number, written)
        values = _wrapped(frame, details, entry.type_url)
        if values is None:
            values = self._envelope.write(self._envelopes(frame, details, entry.type_url))
        if encoding == "binary":
            return values
        return pa.array([self._to_json_form(Event.FromString(value)) for value in values.to_pylist()], pa.binary())

    def _envelopes(self, frame: pl.DataFrame, details: pa.BinaryArray, type_url: str) -> pa.RecordBatch:
        """Envelopes as columns, for any instants."""
        times = frame.select(
            pl.col(EVENT_TIME).alias("event_timestamp"),
            (
                pl.col(INGESTION_TIME) if INGESTION_TIME in frame.columns else pl.lit(None, pl.Datetime("us", "UTC"))
            ).alias("ingestion_timestamp"),
        )
        raw = unfinish(self._envelope.layout, times)
        url = pa.repeat(pa.scalar(type_url), frame.height)
        detail_type = self._envelope.layout.raw_schema.field("details").type
        any_details = pa.StructArray.from_arrays([url, details], fields=list(detail_type))
        return pa.RecordBatch.from_arrays(
            [raw.column(0), raw.column(1), any_details], schema=self._envelope.layout.raw_schema
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
        return self._to_json_form(event) if encoding == "json" else event.SerializeToString()

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
        """Any value as one line of JSON, for people: an event, or an object that says why it is none.

        It differs from the JSON encoding in one thing: the columns of a result are an object of plain values.
        """
        event = self.read(value)
        if isinstance(event, Rejection):
            return _rejection_text(event)
        payload = self.payload(event)
        if isinstance(payload, Rejection) and payload.reason is Reason.MALFORMED_DETAILS:
            return _rejection_text(payload)
        try:
            content = jsonform.to_dict(event, self.registry)
        except jsonform.NoJsonFormError as error:
            return _rejection_text(
                Rejection(Reason.NO_JSON_FORM, str(error), event.details.type_url.rpartition("/")[2])
            )
        entry = self.registry.resolve(event.details.type_url)
        if entry is not None and is_open(entry.descriptor):
            content["details"][cells.FIELD] = cells.to_values(getattr(payload, cells.FIELD))
        return jsonform.text(content)

    def _to_json_form(self, event: Event) -> bytes:
        try:
            return jsonform.dumps(event, self.registry)
        except jsonform.NoJsonFormError as error:
            raise SchemaError(f"an event cannot be written as JSON: {error}", hint="Write it as binary.") from error

    # ---------------------------------------------------------------- readers

    def _reader(self, entry: EventType, columns: tuple[str, ...] | None) -> Reader:
        key = (entry.descriptor, columns)
        if key not in self._readers:
            self._readers[key] = Reader(Layout(entry.descriptor, columns=columns), engine=self.engine)
        return self._readers[key]

    def _want(self, entry: EventType, columns: Columns | Mapping[str, Columns] | None) -> Want:
        per_type = isinstance(columns, Mapping) and not isinstance(columns, pl.Schema)
        chosen: Columns | None = columns.get(entry.name) if per_type else columns  # type: ignore[union-attr,assignment]
        if chosen is None:
            return Want(self._reader(entry, None))
        if not is_open(entry.descriptor):
            return Want(self._reader(entry, tuple(chosen)), tuple(chosen))
        # Which columns its records bring is only known when they are read.
        fixed = [name for name in chosen if name in entry.descriptor.fields_by_name and name != cells.FIELD]
        reader = self._reader(entry, (*fixed, cells.FIELD))
        if not isinstance(chosen, pl.Schema):
            return Want(reader, tuple(chosen))
        for name in fixed:
            if chosen[name] != reader.layout.schema[name]:
                raise SchemaError(
                    f"{entry.name}.{name} is {reader.layout.schema[name]}, not {chosen[name]}",
                    hint="Declare it so, or leave it out.",
                )
        own = pl.Schema({name: kind for name, kind in chosen.items() if name not in fixed})
        return Want(reader, tuple(chosen), own)


def _rebuild(registry: TypeRegistry, engine: Engine, max_value_bytes: int) -> Codec:
    return Codec(registry, engine=engine, max_value_bytes=max_value_bytes)


def _check_columns(frame: pl.DataFrame, layout: Layout) -> list[str]:
    """Check that a frame can be written; returns its columns that are no fields of the type (open types take any)."""
    known = {node.name for node in layout.nodes} | {EVENT_TIME, INGESTION_TIME}
    own = [name for name in frame.columns if name not in known]
    if own and not layout.is_open:
        raise SchemaError(
            f"{layout.name} has no field for column {', '.join(map(repr, own))}",
            hint=f"Drop it or rename it; the type has: {', '.join(sorted(known))}.",
        )
    if layout.is_open and cells.FIELD in frame.columns:
        raise SchemaError(
            f"{layout.name} takes the frame's columns one by one, not as {cells.FIELD!r}", hint="Rename the column."
        )
    if EVENT_TIME not in frame.columns:
        raise SchemaError(f"the frame has no column {EVENT_TIME!r}", hint="Every event needs a time (Datetime, UTC).")
    if frame.get_column(EVENT_TIME).null_count():
        raise SchemaError(
            f"column {EVENT_TIME!r} has nulls", hint="Every event needs a time: drop such rows or fill them."
        )
    return own


def _wrapped(frame: pl.DataFrame, details: pa.BinaryArray, type_url: str) -> pa.BinaryArray | None:
    """Write envelopes the quick way; None where there is none, or where the general way has to say what is wrong."""
    instant = pl.Datetime("us", "UTC")
    event = frame.get_column(EVENT_TIME)
    ingestion = frame.get_column(INGESTION_TIME) if INGESTION_TIME in frame.columns else None
    if event.dtype != instant or (ingestion is not None and (ingestion.dtype != instant or ingestion.null_count())):
        return None
    taken_in = None if ingestion is None else ingestion.dt.timestamp("us").to_numpy()
    return wrap(details, type_url, event.dt.timestamp("us").to_numpy(), taken_in)


def _rejection_text(rejection: Rejection) -> str:
    return jsonform.text(
        {"dead_letter": {"reason": rejection.reason, "text": rejection.text, "event_type": rejection.event_type}}
    )


def _set_time(stamp: Any, instant: int | datetime) -> None:
    if isinstance(instant, int):
        stamp.FromMicroseconds(instant)
        return
    if instant.tzinfo is None:
        raise SchemaError(f"time {instant} has no time zone", hint="Use datetime(..., tzinfo=UTC).")
    stamp.FromDatetime(instant)
