"""Changes of a table as Debezium writes them: each record is one change, the columns are those of the row.

A change has the row before and after it, what was done (`op`), and where it comes from (`source`). Its value is JSON,
with or without the schema that Kafka Connect may put beside it, or any other format with these columns. A row of the
stream is the row of the table after the change, or for a delete the one before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import polars as pl
import pyarrow as pa

from headrace.errors import SchemaError
from headrace.events.letters import Rejection
from headrace.formats.assembly import assemble, check_names, compose, malformed, readable
from headrace.formats.format import DecodedRecords, Format, Records
from headrace.formats.json import checked_columns, typed_columns
from headrace.formats.json_reader import arrow_type, read_objects
from headrace.formats.record import with_key
from headrace.formats.times import ISO, EventTime, field_time

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from headrace.formats.format import RecordPart

#: What Debezium calls a change, and what the column says.
OPERATIONS = {"c": "insert", "u": "update", "d": "delete", "r": "read"}
#: Fields of the envelope that hold a time, with what they count.
_UNITS = {"ts_ms": "ms", "ts_us": "us", "ts_ns": "ns"}
_TIME = "\0time"
_SOURCE = "source_"


@dataclass(frozen=True)
class DebeziumFormat(Format):
    """Changes of one table. See `debezium`.

    Args:
        columns: The columns of the table.
        time: Where the event time is: a path in the envelope, a column of the row, a header, or Kafka's timestamp.
        source: The fields of `source` that are columns.
        op: The column for what was done.
        envelope: The format of the envelope; None means JSON.
    """

    name: ClassVar[str] = "debezium"
    columns: tuple[tuple[str, pl.DataType], ...]
    time: EventTime
    source: tuple[tuple[str, pl.DataType], ...] = ()
    op: str = "op"
    envelope: Format | None = None

    def __post_init__(self) -> None:
        if not self.columns:
            raise SchemaError("debezium() has no columns", hint='Name those of the table: schema={"id": pl.Int64}.')
        own = [name for name, _ in self.columns]
        if clash := sorted(({self.op} | {_SOURCE + name for name, _ in self.source}) & set(own)):
            raise SchemaError(
                f"the table has a column {clash[0]!r}, which debezium() gives itself",
                hint='Give the other one another name: op="change".',
            )
        check_names(self.schema)
        if self.time.place == "field" and not self._in_envelope and self.time.path[0] not in own:
            raise SchemaError(
                f"the time is in {self.time.name}, which is neither in the envelope nor a column of the table",
                hint=f"Name source.ts_ms, ts_ms, or one of: {', '.join(own)}.",
            )

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("columns", "time", "source", "op", "envelope")}

    @property
    def schema(self) -> pl.Schema:
        """The columns of the table, what was done, and the fields of the source."""
        source = {_SOURCE + name: kind for name, kind in self.source}
        return pl.Schema({**dict(self.columns), self.op: pl.String(), **source})

    @property
    def reads(self) -> frozenset[RecordPart]:
        """Kafka's timestamp, and the headers if the time is in one of them."""
        return frozenset({"timestamp", "headers"} if self.time.place == "header" else {"timestamp"})

    @property
    def text(self) -> str:
        """Describe the format in a line of `explain()`."""
        how = "" if self.envelope is None else f" in {self.envelope.name}"
        return f"debezium{how}, time from {self.time.text}"

    @property
    def _in_envelope(self) -> bool:
        path = self.time.path
        return path[0] in _UNITS or (path[0] == "source" and len(path) > 1)

    @cached_property
    def _envelope_schema(self) -> pa.Schema:
        """The fields of a change, at the top and in `payload`."""
        row = pa.struct([(name, arrow_type(kind)) for name, kind in self.columns])
        source = {name: arrow_type(kind) for name, kind in self.source}
        fields: dict[str, pa.DataType] = {"before": row, "after": row, "op": pa.string()}
        if self.time.place == "field" and self._in_envelope:
            name = self.time.path[-1]
            if self.time.path[0] == "source":
                source.setdefault(name, pa.int64() if self.time.is_epoch else pa.string())
            else:
                fields[name] = pa.int64()
        if source:
            fields["source"] = pa.struct(list(source.items()))
        return pa.schema([("payload", pa.struct(list(fields.items()))), *fields.items()])

    def decode(self, records: Records, columns: Sequence[str] | None = None) -> DecodedRecords:
        """Read changes; the tombstones that follow deletes are skipped."""
        skipped = np.flatnonzero(records.values.is_null().to_numpy(zero_copy_only=False))
        values, positions, rejections = readable(records)
        for row in skipped.tolist():
            del rejections[row]
        frame, good, refused = self._changes(values, records, positions)

        def reject(row: int, rejection: Rejection) -> None:
            rejections[row if positions is None else int(positions[row])] = rejection

        for row, rejection in refused.items():
            reject(row, rejection)
        positions = compose(positions, good)
        frame, fine = self._rows(frame, reject)
        if fine is not None:
            frame, positions = frame[fine], compose(positions, fine)
        time = self.time
        if time.place == "field":
            time = EventTime("field", (_TIME,), time.pattern, time.zone)
        wanted = self.schema.names() if columns is None else columns
        decoded = assemble(frame, positions, rejections, records, time, wanted)
        named = {
            row: Rejection(each.reason, each.text.replace(_TIME, self.time.name))
            for row, each in decoded.rejections.items()
        }
        return DecodedRecords(decoded.frame, decoded.positions, named, skipped if len(skipped) else None)

    def _changes(
        self, values: pa.BinaryArray, records: Records, positions: NDArray[np.int64] | None
    ) -> tuple[pl.DataFrame, NDArray[np.int64] | None, dict[int, Rejection]]:
        """Read envelopes: their fields as columns, the positions that could be read, and what could not."""
        if self.envelope is None:
            table, good, refused = read_objects(values, self._envelope_schema)
            return _unwrapped(pl.DataFrame(pl.from_arrow(table))), good, refused
        # The time is taken from the envelope afterwards: any will do for the inner format.
        part = records if positions is None else records.take(positions, values=values)
        times = pa.array(np.zeros(len(values), np.int64)).cast(pa.timestamp("us", "UTC"))
        decoded = self.envelope.decode(Records(values, part.keys, part.headers, times))
        return decoded.frame, decoded.positions, decoded.rejections

    def _rows(
        self, frame: pl.DataFrame, reject: Callable[[int, Rejection], None]
    ) -> tuple[pl.DataFrame, NDArray[np.int64] | None]:
        """Turn envelopes into rows of the table."""
        op, before, after = (frame.get_column(name) for name in ("op", "before", "after"))
        unfit: set[int] = set()
        named = op.replace_strict(OPERATIONS, default=None, return_dtype=pl.String)
        for row in named.is_null().arg_true().to_list():
            unfit.add(row)
            reject(row, malformed(_complaint(op[row])))
        deleted = named == "delete"
        for row in (named.is_not_null() & ~deleted & after.is_null()).arg_true().to_list():
            unfit.add(row)
            reject(row, malformed(f"no change: the {named[row]} has no row after it"))
        row_after = pl.select(pl.when(deleted).then(before).otherwise(after).alias("row")).to_series()
        typed, wrong = typed_columns(row_after.struct.unnest(), self.columns)
        for row, rejection in wrong.items():
            if row not in unfit:
                unfit.add(row)
                reject(row, rejection)
        whole = pl.DataFrame([*typed, named.alias(self.op)])
        for name, kind in self.source:
            whole = whole.with_columns(frame.get_column("source").struct.field(name).cast(kind).alias(_SOURCE + name))
        if self.time.place == "field":
            if self._in_envelope:
                raw = frame.get_column(self.time.path[0])
                for name in self.time.path[1:]:
                    raw = raw.struct.field(name)
            else:
                raw = whole.get_column(self.time.path[0])
            whole = whole.with_columns(raw.alias(_TIME))
        if not unfit:
            return whole, None
        return whole, np.setdiff1d(np.arange(len(op)), np.array(list(unfit), np.int64))


def _unwrapped(frame: pl.DataFrame) -> pl.DataFrame:
    """Take the fields of a change from `payload` where it is there, else from the top."""
    wrapped = frame.get_column("payload")
    rest = frame.drop("payload")
    if wrapped.null_count() == len(wrapped):
        return rest
    inner = wrapped.struct.unnest()
    if not wrapped.null_count():
        return inner
    there = wrapped.is_not_null()
    return pl.DataFrame(
        [
            pl.select(pl.when(there).then(inner[name]).otherwise(rest[name]).alias(name)).to_series()
            for name in inner.columns
        ]
    )


def _complaint(op: str | None) -> str:
    if op is None:
        return "no change: there is no op"
    if op == "t":
        return "the table was truncated, which is no change of a row"
    return f"no change of a row: op is {op[:80]!r}"


def debezium(
    schema: Mapping[str, Any] | None = None,
    *,
    time: str | EventTime = "source.ts_ms",
    time_format: str | None = None,
    source: Mapping[str, Any] | None = None,
    op: str = "op",
    envelope: Format | None = None,
    key: Format | None = None,
) -> Format:
    """Read changes of a table as Debezium writes them.

    The columns are those of the row after the change (of the row before it, for a delete), and `op`: "insert",
    "update", "delete", or "read" for rows of a snapshot. A tombstone, a record without a value, is skipped and counted.

    Args:
        schema: The columns of the table to read, with their types. Not needed with `envelope`.
        time: The time of an event: "source.ts_ms", when the database made the change; "ts_ms", when Debezium saw it
            (`ts_us` and `ts_ns` as well); a column of the row; `header_time(...)` or `kafka_time()`.
        time_format: How a column of the row writes it; see `json`.
        source: Fields of `source` to read, such as `{"table": pl.String, "lsn": pl.Int64}`; they become `source_table`
            and `source_lsn`.
        op: The name of the column that says what was done.
        envelope: The format of the envelope, if it is not JSON. It has the columns `before`, `after` (structs) and
            `op`, and `source` or `ts_ms` if they are needed.
        key: How the key of a record becomes columns, such as `json(schema={"id": pl.Int64})`; see `record`.

    Raises:
        SchemaError: The columns cannot be read, or two have the same name.

    >>> orders = debezium({"id": pl.Int64, "state": pl.String})
    >>> orders.schema.names(), orders.text
    (['id', 'state', 'op'], 'debezium, time from source.ts_ms (ms)')
    """
    columns = _columns_of(envelope, schema) if envelope is not None else checked_columns(schema or {})
    at = time if isinstance(time, EventTime) else None
    if at is None:
        path = str(time)
        unit = _UNITS.get(path.rpartition(".")[2]) if path.startswith(("source.", "ts_")) else None
        at = field_time(path if unit else (path,), time_format or unit or ISO)
    fields = checked_columns(source or {})
    return with_key(DebeziumFormat(columns, at, fields, op, envelope), key)


def _columns_of(envelope: Format, schema: Mapping[str, Any] | None) -> tuple[tuple[str, pl.DataType], ...]:
    kinds = [envelope.schema.get(name) for name in ("before", "after")]
    if not all(isinstance(kind, pl.Struct) for kind in kinds) or envelope.schema.get("op") != pl.String:
        raise SchemaError(
            f"the format {envelope.name} has no columns before, after (structs) and op (text)",
            hint="Give the format of Debezium's envelope, not of the row.",
        )
    columns = tuple((field.name, field.dtype) for field in kinds[1].fields)  # type: ignore[union-attr]
    chosen = columns if schema is None else tuple((name, kind) for name, kind in columns if name in schema)
    if missing := [name for name in schema or {} if name not in dict(columns)]:
        raise SchemaError(
            f"the rows of the envelope have no column {missing[0]!r}", hint=f"They have: {', '.join(dict(columns))}."
        )
    return chosen
