"""Records of a compacted topic: rows by key, and records without a value that delete the row of their key.

A record with a value is read by the format of the value. A record without one (a tombstone) gives a row of its key
with `is_delete`, null in all other columns. The key of a tombstone is read by the format that reads the keys, or else
as Headrace writes keys of upserts: the text of a single column, an object of JSON for several.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import polars as pl
import pyarrow as pa

from headrace.errors import SchemaError
from headrace.formats.assembly import assemble, malformed
from headrace.formats.format import DecodedRecords, Format, Records
from headrace.formats.json import json
from headrace.formats.record import RecordFormat
from headrace.formats.text import text
from headrace.formats.times import EventTime

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.events.letters import Rejection
    from headrace.formats.format import RecordPart

#: The column that says which rows delete their key.
IS_DELETE = "is_delete"


@dataclass(frozen=True)
class TombstoneFormat(Format):
    """Values of one format, and tombstones.

    Args:
        value: The format of the values; of a `record(...)` with a key, that key is read of tombstones, too.
        key: The columns that name a row.

    >>> from headrace.formats import json
    >>> prices = TombstoneFormat(json({"product": pl.String, "price": pl.Int64}), ("product",))
    >>> times = pa.array([0, 0]).cast(pa.timestamp("us", "UTC"))
    >>> values = pa.array([b'{"product": "tea", "price": 3}', None], pa.binary())
    >>> found = prices.decode(Records(values, keys=pa.array([b"tea", b"tea"]), timestamps=times)).frame
    >>> found.select("product", "price", "is_delete").rows()
    [('tea', 3, False), ('tea', None, True)]
    """

    name: ClassVar[str] = "tombstones"
    value: Format
    key: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.value.name)
        missing = [name for name in self.key if name not in self.value.schema]
        if missing or not self.key:
            raise SchemaError(
                f"the key {', '.join(missing)} is no column of the topic",
                hint=f"Columns are: {', '.join(self.value.schema)}. That of the record's key is named by "
                'the format: json({...}, key=text("id")).',
            )

    @property
    def schema(self) -> pl.Schema:
        """The columns of the values, and whether a row is deleted."""
        return pl.Schema({**self.value.schema, IS_DELETE: pl.Boolean()})

    @property
    def reads(self) -> frozenset[RecordPart]:
        """What the values need, the key, and the time of a tombstone."""
        return self.value.reads | {"key", "timestamp"}

    @property
    def text(self) -> str:
        """Describe the format in a line of `explain()`."""
        return f"{self.value.text}, tombstones by {', '.join(self.key)}"

    def decode(self, records: Records, columns: Sequence[str] | None = None) -> DecodedRecords:
        """Read values and tombstones, in the order of the records."""
        chosen = self.schema.names() if columns is None else list(columns)
        own = [name for name in self.value.schema if name in chosen]
        empty = records.values.is_null().to_numpy(zero_copy_only=False)
        there, gone = np.flatnonzero(~empty), np.flatnonzero(empty)
        read = self.value.decode(records.take(there) if len(gone) else records, own)
        places = there if read.positions is None else there[read.positions]
        rejections = {int(there[row]): each for row, each in read.rejections.items()}
        frame = read.frame.with_columns(pl.lit(value=False).alias(IS_DELETE))
        if len(gone):
            deleted = self._deleted(records.take(gone))
            rejections |= {int(gone[row]): each for row, each in deleted.rejections.items()}
            below = gone if deleted.positions is None else gone[deleted.positions]
            missing = [
                pl.lit(None, dtype=kind).alias(name)
                for name, kind in frame.schema.items()
                if name not in (*deleted.frame.columns, IS_DELETE)
            ]
            rows = deleted.frame.with_columns(pl.lit(value=True).alias(IS_DELETE), *missing)
            frame = pl.concat([frame, rows.select(frame.columns)])
            places = np.concatenate([places, below])
            order = np.argsort(places, kind="stable")
            frame, places = frame[order], places[order]
        times = [name for name in frame.columns if name not in self.schema]
        skipped = None if read.skipped is None else there[read.skipped]
        whole = None if len(places) == len(records) else places
        return DecodedRecords(frame.select(*times, *chosen), whole, rejections, skipped)

    def _deleted(self, records: Records) -> DecodedRecords:
        """Read the keys of tombstones: a row of the key columns for each that can be read."""
        keys = records.keys if records.keys is not None else pa.nulls(len(records), pa.binary())
        rejections: dict[int, Rejection] = {}
        rows: dict[int, dict[str, object]] = {}
        kinds = pl.Schema({name: self.value.schema[name] for name in self.key})
        for reader, places in self._readers(keys, kinds):
            if not len(places):
                continue
            times = pa.array(np.zeros(len(places), np.int64)).cast(pa.timestamp("us", "UTC"))
            read = reader.decode(Records(keys.take(pa.array(places)), timestamps=times))
            found = places if read.positions is None else places[read.positions]
            named = read.frame.select(name for name in self.key if name in read.frame.columns)
            typed = named.cast({name: kinds[name] for name in named.columns}, strict=False)
            rows |= dict(zip(found.tolist(), typed.iter_rows(named=True), strict=True))
            wrong = typed.null_count().row(0) != named.null_count().row(0)
            lost = (typed[name].is_null() & named[name].is_not_null() for name in named.columns)
            for place in found[np.logical_or.reduce([each.to_numpy() for each in lost])].tolist() if wrong else ():
                rows.pop(place)
        for place in set(range(len(records))) - rows.keys():
            rejections[place] = malformed(f"a record without a value, whose key is no {', '.join(self.key)}")
        positions = np.array(sorted(rows), dtype=np.int64)
        frame = pl.DataFrame([rows[place] for place in positions.tolist()], schema=kinds)
        return assemble(frame, positions, rejections, records, EventTime(), None)

    def _readers(self, keys: pa.BinaryArray, kinds: pl.Schema) -> list[tuple[Format, np.ndarray]]:
        """Tell which keys are read by which format."""
        known = keys.is_valid().to_numpy(zero_copy_only=False)
        if isinstance(self.value, RecordFormat) and self.value.key is not None:
            return [(self.value.key, np.flatnonzero(known))]
        objects = np.array([value is not None and value[:1] == b"{" for value in keys.to_pylist()], dtype=bool)
        as_json = (json(dict(kinds)), np.flatnonzero(objects))
        if len(self.key) > 1:
            return [as_json]
        return [as_json, (text(self.key[0]), np.flatnonzero(known & ~objects))]
