"""The contract of a format: Kafka records of others to columns, and columns to records.

A format is a description that checks itself when it is built. It is frozen, compared by value and can be pickled, since
it travels to the tasks: jobs that read a topic in equal formats share one decoding. Its work is done on whole columns.

Bad data is a value, not an exception: a record that cannot be read becomes a `Rejection`, whatever its bytes are, and
the records around it are read all the same.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias

import pyarrow as pa

from headrace.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

    from headrace.events.letters import Rejection

#: The parts of a record besides its value. Reading them costs time, so a format names those that it needs.
RecordPart: TypeAlias = Literal["key", "headers", "timestamp"]
#: Names a result in a header, where its value has no place for it: the same again if a result is written again.
IDEMPOTENCY_HEADER = "headrace-idempotency-key"
#: What skipped records are counted as.
SKIPPED = "records_skipped"


@dataclass(frozen=True, slots=True)
class Records:
    """Kafka records of one topic, in columns of the same length.

    Args:
        values: The values; null for a record without one (a tombstone).
        keys: The keys; None if no format asked for them.
        headers: The headers as a list of structs of `key` (string) and `value` (binary); None if no format asked.
        timestamps: Kafka's timestamps in microseconds, UTC; null where a record has none, None if no format asked.
        partitions: The number of the partition of each; None where it is not known.
        offsets: The offset of each in its partition; None where it is not known.
    """

    values: pa.BinaryArray
    keys: pa.BinaryArray | None = None
    headers: pa.ListArray | None = None
    timestamps: pa.TimestampArray | None = None
    partitions: pa.Int32Array | None = None
    offsets: pa.Int64Array | None = None

    def __len__(self) -> int:
        return len(self.values)

    def take(self, positions: NDArray[np.int64], *, values: pa.BinaryArray | None = None) -> Records:
        """Give some of the records.

        Args:
            positions: Which.
            values: Other values for them.
        """
        rows = pa.array(positions)
        rest = (self.keys, self.headers, self.timestamps, self.partitions, self.offsets)
        taken = (None if column is None else column.take(rows) for column in rest)
        return Records(self.values.take(rows) if values is None else values, *taken)


@dataclass(frozen=True, slots=True)
class DecodedRecords:
    """What became of records.

    Args:
        frame: One row per record that could be read, in the order of the records: `event_time`, `ingestion_time`
            (both microseconds, UTC) and the columns that were asked for. `event_time` is never null.
        positions: The position of each row among the records; None if every record gave one row.
        rejections: What could not be read, by position.
        skipped: The positions of records that say nothing, such as the tombstones behind deletes. They give neither a
            row nor a rejection, and are counted.
    """

    frame: pl.DataFrame
    positions: NDArray[np.int64] | None = None
    rejections: dict[int, Rejection] = field(default_factory=dict)
    skipped: NDArray[np.int64] | None = None


class Format(ABC):
    """How the records of a topic are read and written.

    Subclasses are frozen dataclasses. `headrace.testing.contracts.check_format` runs what every format must hold.
    """

    #: What the format is called in messages, in `headrace plugins` and in settings.
    name: ClassVar[str]

    @property
    @abstractmethod
    def schema(self) -> pl.Schema:
        """The columns that records give, without `event_time` and `ingestion_time`."""

    @property
    def reads(self) -> frozenset[RecordPart]:
        """The parts of a record that `decode` needs besides the value."""
        return frozenset({"timestamp"})

    @abstractmethod
    def decode(self, records: Records, columns: Sequence[str] | None = None) -> DecodedRecords:
        """Read records. Nothing in the data raises.

        Args:
            records: The records.
            columns: The columns of the schema that somebody needs; None means all. Whether a record is rejected does
                not depend on them.
        """

    def encode(self, frame: pl.DataFrame) -> pa.BinaryArray:  # noqa: ARG002  the default refuses
        """Write each row as the value of a record.

        Args:
            frame: The rows, with any columns.

        Raises:
            SchemaError: The format cannot write, or cannot write these columns.
        """
        raise SchemaError(
            f"the format {self.name} cannot write results", hint="Write them with json(), or in the default envelope."
        )

    @property
    def text(self) -> str:
        """Describe the format in a line of `explain()`."""
        return self.name
