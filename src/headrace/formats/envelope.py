"""The envelope of Headrace's own events as a format: what topics hold that Headrace writes, and the default.

Spark's tasks do not decode through this class: a topic may hold events of several types that several jobs read, and one
run of the codec reads them all. Tools that read one source at a time do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar
from weakref import WeakKeyDictionary

import numpy as np
import polars as pl
import pyarrow as pa

from headrace.events.codec import Codec
from headrace.events.letters import Reason, Rejection
from headrace.events.registry import TypeRegistry
from headrace.formats.format import DecodedRecords, Format

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.formats.format import RecordPart, Records

_TIMES = ("event_time", "ingestion_time")


@dataclass(frozen=True, slots=True)
class EnvelopeFormat(Format):
    """Events of one type in Headrace's envelope, binary or JSON. Events of other registered types give no row.

    Args:
        type_name: The full name of the type.
        columns: The columns of the type, or those that a reader declares of a type whose events bring their own.
        types: Know the type, and those of other events in the topic.
    """

    name: ClassVar[str] = "envelope"
    type_name: str
    columns: tuple[tuple[str, pl.DataType], ...]
    types: TypeRegistry = field(default_factory=TypeRegistry, compare=False, repr=False)

    @property
    def schema(self) -> pl.Schema:
        """The columns of the events."""
        return pl.Schema(dict(self.columns))

    @property
    def reads(self) -> frozenset[RecordPart]:
        """Nothing but the value: both times are in the envelope."""
        return frozenset()

    @property
    def text(self) -> str:
        """Describe the format in a line of `explain()`."""
        return f"envelope of {self.type_name}"

    def decode(self, records: Records, columns: Sequence[str] | None = None) -> DecodedRecords:
        """Read events; all columns decide about rejections, whichever are asked for."""
        batch = pa.record_batch({"value": records.values, "offset": pa.array(np.arange(len(records)))})
        decoded = _codec(self.types).decode(batch, types=[self.type_name], columns=self.schema, keep=["offset"])
        letters = decoded.dead.select("offset", "reason", "text", "event_type").iter_rows()
        rejections = {
            position: Rejection(Reason(reason), text, event_type) for position, reason, text, event_type in letters
        }
        positions = decoded.frame.get_column("kafka_offset").to_numpy()
        chosen = self.schema.names() if columns is None else list(columns)
        frame = decoded.frame.select(*_TIMES, *chosen)
        return DecodedRecords(frame, None if len(positions) == len(records) else positions, rejections)

    def encode(self, frame: pl.DataFrame) -> pa.BinaryArray:
        """Write each row as an event; it needs the column `event_time`."""
        return _codec(self.types).encode(frame, self.type_name)


_CODECS: WeakKeyDictionary[TypeRegistry, Codec] = WeakKeyDictionary()


def _codec(types: TypeRegistry) -> Codec:
    if types not in _CODECS:
        _CODECS[types] = Codec(types)
    return _CODECS[types]
