"""What a record has beside its value, as columns: its key, headers, and where and when Kafka has it.

`record` puts a format for the key, headers and Kafka's own figures beside the format of the value. The `key=` of
`json`, `csv`, `protobuf`, `text` and `raw` is short for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

import numpy as np
import polars as pl
import pyarrow as pa

from headrace.errors import SchemaError
from headrace.events.letters import Rejection
from headrace.formats.assembly import EVENT_TIME, INGESTION_TIME, check_names, kafka_times, malformed
from headrace.formats.format import DecodedRecords, Format, Records
from headrace.formats.headers import header_texts
from headrace.formats.times import EventTime

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from headrace.formats.format import RecordPart

#: What Kafka says of a record.
Figure: TypeAlias = Literal["partition", "offset", "timestamp"]

_TIMES = (EVENT_TIME, INGESTION_TIME)
_INSTANT = pl.Datetime("us", "UTC")
_TYPES: dict[str, pl.DataType] = {"partition": pl.Int32(), "offset": pl.Int64(), "timestamp": _INSTANT}


@dataclass(frozen=True)
class RecordFormat(Format):
    """A value with other parts of its record. See `record`.

    Args:
        value: The format of the value; the time of an event is its matter.
        key: The format of the key, if it is read.
        headers: Column and header of each that is read.
        figures: Column and figure of each that is read.
    """

    name: ClassVar[str] = "record"
    value: Format
    key: Format | None = None
    headers: tuple[tuple[str, str], ...] = ()
    figures: tuple[tuple[str, Figure], ...] = ()

    def __post_init__(self) -> None:
        # Dead letters, late events and tools speak of the format of the value.
        object.__setattr__(self, "name", self.value.name)
        if self.key is not None:
            self._check_key(self.key)
        parts = {
            "the value": self.value.schema.names(),
            "the key": [] if self.key is None else self.key.schema.names(),
            "the headers": [column for column, _ in self.headers],
            "Kafka's figures": [column for column, _ in self.figures],
        }
        owners: dict[str, str] = {}
        for part, names in parts.items():
            for name in names:
                if name in owners:
                    raise SchemaError(
                        f"{owners[name]} and {part} both have a column {name!r}",
                        hint="Give one of them another name, or leave it out of one schema.",
                    )
                owners[name] = part
        check_names(self.schema)

    @property
    def time(self) -> EventTime | None:
        """Where the format of the value has the time of an event, if it says so."""
        found = getattr(self.value, "time", None)
        return found if isinstance(found, EventTime) else None

    @property
    def schema(self) -> pl.Schema:
        """The columns of the value, of the key, of the headers, and of Kafka's figures."""
        columns = dict(self.value.schema)
        columns |= {} if self.key is None else dict(self.key.schema)
        columns |= {column: pl.String() for column, _ in self.headers}
        columns |= {column: _TYPES[figure] for column, figure in self.figures}
        return pl.Schema(columns)

    @property
    def reads(self) -> frozenset[RecordPart]:
        """What the value needs, and what else is read."""
        more: set[RecordPart] = set(self.value.reads)
        more |= {"key"} if self.key is not None else set()
        more |= {"headers"} if self.headers else set()
        more |= {"timestamp"} if any(figure == "timestamp" for _, figure in self.figures) else set()
        return frozenset(more)

    @property
    def text(self) -> str:
        """Describe the format in a line of `explain()`."""
        beside = [] if self.key is None else [f"key as {self.key.name}"]
        beside += [f"header {header}" for _, header in self.headers] + [figure for _, figure in self.figures]
        return f"{self.value.text}, {', '.join(beside)}" if beside else self.value.text

    def decode(self, records: Records, columns: Sequence[str] | None = None) -> DecodedRecords:
        """Read the value, then what is beside it; what cannot be read in either is rejected."""
        chosen = self.schema.names() if columns is None else list(columns)
        decoded = self.value.decode(records, [name for name in self.value.schema if name in chosen])
        positions = np.arange(len(records)) if decoded.positions is None else decoded.positions
        rejections = dict(decoded.rejections)
        skipped = set() if decoded.skipped is None else set(decoded.skipped.tolist())
        parts = [decoded.frame]

        def reject(row: int, rejection: Rejection) -> None:
            if row not in skipped:
                rejections.setdefault(row, rejection)

        if self.key is not None:
            keys = self._keys(self.key, records, chosen, reject)
            parts += [] if keys is None else [keys[positions]]
        for column, header in self.headers:
            texts, wrong = header_texts(records.headers, header, len(records))
            for row in wrong:
                reject(row, malformed(f"the header {header} is not UTF-8"))
            parts.append(texts.alias(column).gather(positions).to_frame())
        parts += [_figure(records, figure, column).gather(positions).to_frame() for column, figure in self.figures]
        frame = pl.concat(parts, how="horizontal").select(*_TIMES, *chosen)
        if len(rejections) > len(decoded.rejections):
            fine = np.flatnonzero(~np.isin(positions, np.array(list(rejections), np.int64)))
            frame, positions = frame[fine], positions[fine]
        whole = None if len(positions) == len(records) else positions
        return DecodedRecords(frame, whole, rejections, decoded.skipped)

    def encode(self, frame: pl.DataFrame) -> pa.BinaryArray:  # noqa: ARG002  it refuses
        """Refuse: the key and the headers of a result are not the format's matter.

        Raises:
            SchemaError: Always.
        """
        raise SchemaError(
            f"the format {self.name} with a key, headers or Kafka's figures cannot write results",
            hint="Give the format of the value alone: the key of a result is the key of the job.",
        )

    def _keys(self, key: Format, records: Records, chosen: Sequence[str], reject: _Reject) -> pl.DataFrame | None:
        """Read the keys: a row for every record, null where there is no key; None if no column is asked for."""
        names = [name for name in key.schema if name in chosen]
        keys = records.keys if records.keys is not None else pa.nulls(len(records), pa.binary())
        there = np.flatnonzero(keys.is_valid().to_numpy(zero_copy_only=False))
        # A key has no time of its own: any will do.
        times = pa.array(np.zeros(len(there), np.int64)).cast(pa.timestamp("us", "UTC"))
        decoded = key.decode(Records(keys.take(pa.array(there)), timestamps=times), names)
        for row, rejection in decoded.rejections.items():
            reject(int(there[row]), Rejection(rejection.reason, f"the key: {rejection.text}"))
        read: NDArray[np.int64] = there if decoded.positions is None else there[decoded.positions]
        if not names:
            return None
        rows: list[int | None] = [None] * len(records)
        for number, row in enumerate(read.tolist()):
            rows[row] = number
        return decoded.frame.select(names).select(pl.all().gather(pl.Series(rows, dtype=pl.Int64)))

    def _check_key(self, key: Format) -> None:
        at = getattr(key, "time", None)
        if isinstance(at, EventTime) and at.place != "timestamp":
            raise SchemaError(
                f"the format of the key takes the time of the event from {at.name}",
                hint="The time is read by the format of the value; leave time= out of the key's.",
            )
        if key.reads - {"timestamp"}:
            raise SchemaError(
                f"the format {key.name} reads other parts of a record, so it cannot read a key",
                hint="Read the key by json(), csv(), protobuf(), text() or raw().",
            )
        if not key.schema:
            raise SchemaError("the format of the key has no columns", hint='Name them: key=text("parcel").')


if TYPE_CHECKING:
    from collections.abc import Callable

    _Reject: TypeAlias = Callable[[int, Rejection], None]


def _figure(records: Records, figure: Figure, column: str) -> pl.Series:
    if figure == "timestamp":
        micros = EventTime("field", ("t",), "us").micros(kafka_times(records, None, len(records)))
        return micros.cast(_INSTANT).alias(column)
    found = records.partitions if figure == "partition" else records.offsets
    if found is None:
        return pl.Series(column, [None] * len(records), dtype=_TYPES[figure])
    return pl.Series(column, pl.from_arrow(found), dtype=_TYPES[figure])


def record(
    value: Format,
    *,
    key: Format | None = None,
    headers: Mapping[str, str] | Sequence[str] = (),
    partition: str | None = None,
    offset: str | None = None,
    timestamp: str | None = None,
) -> RecordFormat:
    """Read what a record has beside its value as columns.

    Args:
        value: The format of the value.
        key: The format of the key. A record without a key has nulls there; a key that cannot be read is a dead letter.
        headers: The headers to read as text: column to header, or names that are both. A header that is missing is
            null; of several of one name the last one counts.
        partition: The column for the number of the partition.
        offset: The column for the offset.
        timestamp: The column for Kafka's timestamp.

    Raises:
        SchemaError: Two parts have a column of the same name, or the key has a time of its own.

    >>> from headrace.formats import json, text
    >>> scans = record(json({"weight": pl.Float64}), key=text("parcel"), headers={"trace": "trace-id"}, offset="at")
    >>> scans.schema.names()
    ['weight', 'parcel', 'trace', 'at']
    """
    named = headers.items() if isinstance(headers, Mapping) else ((name, name) for name in headers)
    figures: list[tuple[str, Figure]] = []
    if partition is not None:
        figures.append((partition, "partition"))
    if offset is not None:
        figures.append((offset, "offset"))
    if timestamp is not None:
        figures.append((timestamp, "timestamp"))
    return RecordFormat(value, key, tuple(named), tuple(figures))


def with_key(value: Format, key: Format | None) -> Format:
    """Give a format as it is, or with a key beside it."""
    return value if key is None else RecordFormat(value, key)
