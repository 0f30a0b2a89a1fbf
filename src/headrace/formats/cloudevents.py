"""CloudEvents 1.0: attributes that say what an event is, and data in any format.

Kafka has them in two modes. In the structured mode the value is an object of JSON with the attributes and the data; in
the binary mode the value is the data and the attributes are in headers (`ce_id` and so on). Each record says which it
is, so a topic may hold both.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa

from headrace.errors import SchemaError
from headrace.events.letters import Reason, Rejection
from headrace.formats.assembly import EVENT_TIME, INGESTION_TIME, assemble, check_names, malformed
from headrace.formats.format import DecodedRecords, Format, Records
from headrace.formats.headers import header_texts
from headrace.formats.json import JsonFormat, typed_columns
from headrace.formats.json_reader import arrow_type, read_objects
from headrace.formats.json_writer import write_objects
from headrace.formats.record import with_key
from headrace.formats.times import EventTime, iso_instants

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from headrace.formats.format import RecordPart

Mode: TypeAlias = Literal["auto", "structured", "binary"]

#: The attributes that become columns unless others are named.
ATTRIBUTES = ("id", "source", "type", "subject", "time")
_REQUIRED = ("specversion", "id", "source", "type")
_HEADER = "ce_"
_STRUCTURED = "application/cloudevents"
_TIME = "\0time"
_INSTANT = pl.Datetime("us", "UTC")
_TIMES = (EVENT_TIME, INGESTION_TIME)
#: The formats whose data are text, and what each is called.
_TEXTS = {"csv": "text/csv", "text": "text/plain"}
_MEDIA = {**_TEXTS, "json": "application/json", "protobuf": "application/protobuf", "avro": "application/avro"}


@dataclass(frozen=True)
class CloudEventsFormat(Format):
    """Events of CloudEvents 1.0. See `cloudevents`.

    Args:
        data: The format of the data.
        mode: Where the attributes are; "auto": each record says it.
        attributes: The attributes that are columns, extensions among them.
        prefix: What the names of their columns begin with.
        time: None for the attribute `time`, else a header or Kafka's timestamp.
        source: The source of events that are written.
        type: The type of events that are written.
    """

    name: ClassVar[str] = "cloudevents"
    data: Format
    mode: Mode = "auto"
    attributes: tuple[str, ...] = ATTRIBUTES
    prefix: str = _HEADER
    time: EventTime | None = None
    source: str | None = None
    type: str | None = None

    def __post_init__(self) -> None:
        if self.mode not in ("auto", "structured", "binary"):
            raise SchemaError(f"the mode {self.mode!r} is not known", hint="Modes are auto, structured and binary.")
        for name in self.attributes:
            # The standard's rule for names; it keeps them apart from `data` and from each other's columns, too.
            if not (name.isascii() and name.isalnum() and name == name.lower()) or name.startswith("data"):
                raise SchemaError(
                    f"{name!r} is no attribute of a CloudEvent", hint="Names are lower-case letters and digits."
                )
        at = getattr(self.data, "time", None)
        if isinstance(at, EventTime) and at.place != "timestamp":
            raise SchemaError(
                f"the format of the data takes the time of the event from {at.name}",
                hint="The time of a CloudEvent is its attribute time; leave time= out of the format of the data.",
            )
        if self.data.reads - {"timestamp"}:
            raise SchemaError(
                f"the format {self.data.name} of the data reads other parts of the record",
                hint="Give key= to cloudevents() itself.",
            )
        if self.time is not None and self.time.place == "field":
            raise SchemaError(
                f"cloudevents() cannot take the time from {self.time.name}",
                hint="Leave time= out for the attribute time, or give header_time(...) or kafka_time().",
            )
        names = [self.prefix + name for name in self.attributes]
        if clash := sorted(set(names) & set(self.data.schema)):
            raise SchemaError(
                f"the data and the attributes both have a column {clash[0]!r}",
                hint='Give the attributes another prefix: prefix="event_".',
            )
        check_names(self.schema)

    @property
    def schema(self) -> pl.Schema:
        """The columns of the data, and those of the attributes."""
        kinds = {self.prefix + name: _INSTANT if name == "time" else pl.String() for name in self.attributes}
        return pl.Schema({**self.data.schema, **kinds})

    @property
    def reads(self) -> frozenset[RecordPart]:
        """Kafka's timestamp, and the headers unless all is in the value."""
        in_header = self.time is not None and self.time.place == "header"
        return frozenset({"timestamp", "headers"} if self.mode != "structured" or in_header else {"timestamp"})

    @property
    def text(self) -> str:
        """Describe the format in a line of `explain()`."""
        at = "the attribute time" if self.time is None else self.time.text
        mode = "" if self.mode == "auto" else f"{self.mode} "
        return f"{mode}cloudevents of {self.data.name}, time from {at}"

    def decode(self, records: Records, columns: Sequence[str] | None = None) -> DecodedRecords:
        """Read events of both modes."""
        in_value = self._in_value(records)
        parts: list[pl.DataFrame] = []
        places: list[NDArray[np.int64]] = []
        rejections: dict[int, Rejection] = {}
        for rows, read in ((np.flatnonzero(in_value), self._structured), (np.flatnonzero(~in_value), self._binary)):
            if not len(rows):
                continue
            frame, good, refused = read(records if len(rows) == len(records) else records.take(rows))
            rejections |= {int(rows[row]): rejection for row, rejection in refused.items()}
            checked, fine = self._checked(frame, rows[good], rejections)
            parts.append(checked)
            places.append(fine)
        frame = pl.concat(parts) if parts else pl.DataFrame(schema={**self.schema, _TIME: _INSTANT})
        positions = np.concatenate(places) if places else np.zeros(0, np.int64)
        if len(parts) > 1:
            order = np.argsort(positions, kind="stable")
            frame, positions = frame[order], positions[order]
        at = self.time or EventTime("field", (_TIME,))
        whole = None if len(positions) == len(records) else positions
        wanted = self.schema.names() if columns is None else columns
        decoded = assemble(frame, whole, rejections, records, at, wanted)
        named = {
            row: Rejection(each.reason, each.text.replace(_TIME, "the attribute time"))
            for row, each in decoded.rejections.items()
        }
        return DecodedRecords(decoded.frame, decoded.positions, named)

    def encode(self, frame: pl.DataFrame) -> pa.BinaryArray:
        """Write each row as an event in the structured mode.

        Attributes are taken from their columns. An `id` that is missing is made from the content, so that it is the
        same again if a result is written again.

        Raises:
            SchemaError: There is no source or type, or the data cannot be written.
        """
        written = {self.prefix + name: name for name in dict.fromkeys((*ATTRIBUTES, *self.attributes))}
        own = [name for name in frame.columns if name in written]
        for name, given in (("source", self.source), ("type", self.type)):
            if given is None and self.prefix + name not in own:
                raise SchemaError(
                    f"a CloudEvent has a {name}, and there is no column {self.prefix + name!r} for it",
                    hint=f'Say what it is: cloudevents(..., {name}="...").',
                )
        data = frame.drop([*own, *(name for name in _TIMES if name in frame.columns)])
        attributes = {written[name]: frame.get_column(name) for name in own}
        if EVENT_TIME in frame.columns:
            at = frame.get_column(EVENT_TIME)
            attributes["time"] = attributes["time"].fill_null(at) if "time" in attributes else at
        rest: dict[str, pl.Series] = {}
        if isinstance(self.data, JsonFormat):
            rest["data"] = data.to_struct("data") if data.width else pl.Series("data", [{}] * frame.height)
        elif self.data.name in _TEXTS:
            rest["data"] = pl.Series(pl.from_arrow(self.data.encode(data).cast(pa.string())), dtype=pl.String)
        else:
            rest["data_base64"] = pl.Series(pl.from_arrow(self.data.encode(data)), dtype=pl.Binary)
        for name, given in (("source", self.source), ("type", self.type)):
            column = attributes.get(name, pl.Series([None] * frame.height, dtype=pl.String))
            attributes[name] = column if given is None else column.fill_null(given)
        content = [rest[name].alias(name) for name in rest] + [attributes[name].alias(name) for name in attributes]
        made = [_digest(value) for value in write_objects(pl.DataFrame(content)).to_pylist()]
        ids = pl.Series(made, dtype=pl.String)
        attributes["id"] = attributes["id"].fill_null(ids) if "id" in attributes else ids
        media = _MEDIA.get(self.data.name, "application/octet-stream")
        start = pl.DataFrame({"specversion": ["1.0"] * frame.height, "datacontenttype": [media] * frame.height})
        named = [attributes[name].alias(name) for name in dict.fromkeys(("id", "source", "type", *attributes))]
        whole = start.hstack(named).hstack([column.alias(name) for name, column in rest.items()])
        return write_objects(whole.select("specversion", *(each.name for each in named), "datacontenttype", *rest))

    def _in_value(self, records: Records) -> NDArray[np.bool_]:
        """Tell which records have their attributes in the value."""
        if self.mode != "auto":
            return np.full(len(records), self.mode == "structured")
        content, _ = header_texts(records.headers, "content-type", len(records))
        version, _ = header_texts(records.headers, _HEADER + "specversion", len(records))
        structured = content.str.to_lowercase().str.starts_with(_STRUCTURED).fill_null(value=False) | version.is_null()
        found: NDArray[np.bool_] = structured.to_numpy()
        return found

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*_REQUIRED, "time", *self.attributes)))

    def _binary(self, records: Records) -> tuple[pl.DataFrame, NDArray[np.int64], dict[int, Rejection]]:
        """Read events whose attributes are in headers; the data of one without a value are null."""
        refused: dict[int, Rejection] = {}
        attributes = []
        for name in self._names:
            texts, wrong = header_texts(records.headers, _HEADER + name, len(records))
            attributes.append(texts.alias(_TIME + name))
            for row in wrong:
                refused.setdefault(row, malformed(f"the header {_HEADER}{name} is not UTF-8"))
        there = np.flatnonzero(records.values.is_valid().to_numpy(zero_copy_only=False))
        data, problems = self._data(records.values, there)
        return self._joined(pl.DataFrame(attributes), data, problems | refused)

    def _structured(self, records: Records) -> tuple[pl.DataFrame, NDArray[np.int64], dict[int, Rejection]]:
        """Read events whose attributes are beside the data."""
        # Of values that are missing or too long the reader of JSON says what is wrong.
        checked = JsonFormat().decode(Records(records.values, timestamps=_any_times(len(records))), [])
        refused = dict(checked.rejections)
        rows = np.arange(len(records)) if checked.positions is None else checked.positions
        as_json = isinstance(self.data, JsonFormat)
        kind = pa.string()
        if as_json:
            kind = pa.struct([(name, arrow_type(dtype)) for name, dtype in self.data.schema.items()])
        fields = [*((name, pa.string()) for name in self._names), ("data", kind), ("data_base64", pa.string())]
        table, good, wrong = read_objects(records.values.take(pa.array(rows)), pa.schema(fields))
        refused |= {int(rows[row]): rejection for row, rejection in wrong.items()}
        rows = rows[good]
        frame = pl.DataFrame(pl.from_arrow(table))
        attributes = frame.select(pl.col(name).alias(_TIME + name) for name in self._names)
        values, bad = _contents(frame, as_json=as_json)
        refused |= {int(rows[row]): rejection for row, rejection in bad.items()}
        there = np.array([row for row, value in enumerate(values) if value is not None], np.int64)
        data, problems = self._data(pa.array(values, pa.binary()), there)
        if as_json:
            inner = frame.get_column("data").struct.unnest() if self.data.schema else pl.DataFrame()
            typed, unfit = typed_columns(inner, list(self.data.schema.items()))
            problems = {**unfit, **problems}
            decoded = pl.Series(np.isin(np.arange(len(frame)), there))
            data = (
                pl.select(pl.when(decoded).then(data[each.name]).otherwise(each).alias(each.name) for each in typed)
                if typed
                else data
            )
        whole, fine, named = self._joined(attributes, data, dict(problems.items()))
        kept = ~np.isin(fine, np.array(list(bad), np.int64))
        refused |= {int(rows[row]): rejection for row, rejection in named.items() if int(rows[row]) not in refused}
        return whole.filter(pl.Series(kept)), rows[fine[kept]], refused

    def _data(self, values: pa.BinaryArray, there: NDArray[np.int64]) -> tuple[pl.DataFrame, dict[int, Rejection]]:
        """Read data: a row for each value, null where there is none or it cannot be read."""
        picked = values.take(pa.array(there))
        decoded = self.data.decode(Records(picked, timestamps=_any_times(len(there))))
        problems = {int(there[row]): rejection for row, rejection in decoded.rejections.items()}
        read = there if decoded.positions is None else there[decoded.positions]
        rows: list[int | None] = [None] * len(values)
        for number, row in enumerate(read.tolist()):
            rows[row] = number
        names = self.data.schema.names()
        if not names:
            return pl.DataFrame(), problems
        return decoded.frame.select(names).select(pl.all().gather(pl.Series(rows, dtype=pl.Int64))), problems

    def _joined(
        self, attributes: pl.DataFrame, data: pl.DataFrame, problems: dict[int, Rejection]
    ) -> tuple[pl.DataFrame, NDArray[np.int64], dict[int, Rejection]]:
        whole = attributes.hstack(data) if data.width else attributes
        fine = np.setdiff1d(np.arange(attributes.height), np.array(list(problems), np.int64))
        return (whole if len(fine) == whole.height else whole[fine]), fine, problems

    def _checked(
        self, frame: pl.DataFrame, positions: NDArray[np.int64], rejections: dict[int, Rejection]
    ) -> tuple[pl.DataFrame, NDArray[np.int64]]:
        """Refuse what is no CloudEvent; give the columns of the format and the time."""
        fine = np.ones(frame.height, bool)

        def reject(rows: pl.Series, reason: Reason, text: str, shown: pl.Series | None = None) -> None:
            for row in np.flatnonzero(rows.to_numpy() & fine).tolist():
                what = text if shown is None else f"{text} {shown[row][:80]!r}"
                rejections[int(positions[row])] = Rejection(reason, what)
                fine[row] = False

        for name in _REQUIRED:
            column = frame.get_column(_TIME + name)
            missing = (column == "").fill_null(value=True)
            reject(missing, Reason.MALFORMED, f"no CloudEvent: the attribute {name} is missing")
        version = frame.get_column(_TIME + "specversion")
        reject(
            ~version.str.starts_with("1.").fill_null(value=True), Reason.MALFORMED, "CloudEvents of version", version
        )
        texts = frame.get_column(_TIME + "time")
        times = iso_instants(texts)
        unread = times.is_null() & texts.is_not_null()
        reject(unread, Reason.BAD_TIMESTAMP, "the attribute time is no time in ISO 8601:", texts)
        columns = [frame.get_column(name) for name in self.data.schema]
        for name in self.attributes:
            found = times if name == "time" else frame.get_column(_TIME + name)
            columns.append(found.alias(self.prefix + name))
        whole = pl.DataFrame([*columns, times.alias(_TIME)])
        return (whole, positions) if fine.all() else (whole.filter(pl.Series(fine)), positions[fine])


def _contents(frame: pl.DataFrame, *, as_json: bool) -> tuple[list[bytes | None], dict[int, Rejection]]:
    """Give the data that the format of the data has to read, as bytes."""
    texts = [None] * frame.height if as_json else frame.get_column("data").to_list()
    values: list[bytes | None] = []
    bad: dict[int, Rejection] = {}
    for row, (text, encoded) in enumerate(zip(texts, frame.get_column("data_base64").to_list(), strict=True)):
        value: bytes | None = None if text is None else text.encode()
        if encoded is not None:
            try:
                value = base64.b64decode(encoded, validate=True)
            except (binascii.Error, ValueError) as problem:
                bad[row] = malformed(f"data_base64 is no Base64: {problem}")
                value = None
        values.append(value)
    return values, bad


def _any_times(rows: int) -> pa.TimestampArray:
    """Timestamps for a format whose times nobody uses."""
    return pa.array(np.zeros(rows, np.int64)).cast(pa.timestamp("us", "UTC"))


def _digest(value: bytes) -> str:
    return hashlib.sha256(value).hexdigest()[:32]


def cloudevents(
    data: Format,
    *,
    mode: Mode = "auto",
    attributes: Sequence[str] = ATTRIBUTES,
    prefix: str = _HEADER,
    time: EventTime | None = None,
    source: str | None = None,
    type: str | None = None,  # noqa: A002  the standard's word
    key: Format | None = None,
) -> Format:
    """Read and write events of CloudEvents 1.0, in JSON or with their attributes in headers.

    Args:
        data: The format of the data, such as `json(schema={...})`, without a time of its own.
        mode: "structured" (the value is JSON that holds all), "binary" (the attributes are headers), or "auto": each
            record says it.
        attributes: The attributes to read as columns; extensions may be among them. All are text but `time`.
        prefix: What the names of their columns begin with.
        time: None: the attribute `time` is the time of the event, and a record without it is a dead letter. Else
            `kafka_time()` or `header_time(...)`.
        source: The source of events that are written, where no column `ce_source` says it.
        type: The type of events that are written, where no column `ce_type` says it.
        key: How the key of a record becomes columns; see `record`.

    Raises:
        SchemaError: Two columns have the same name, or the data have a time of their own.

    >>> from headrace.formats import json
    >>> scans = cloudevents(json({"parcel": pl.String}))
    >>> scans.schema.names()
    ['parcel', 'ce_id', 'ce_source', 'ce_type', 'ce_subject', 'ce_time']
    """
    return with_key(CloudEventsFormat(data, mode, tuple(attributes), prefix, time, source, type), key)
