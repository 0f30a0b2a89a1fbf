"""Confluent's wire format: values that begin with the schema that they were written by.

A value is a zero byte, the number of the schema in four bytes (the most significant first), and the body; or a byte 1
and the 16 bytes of the schema's GUID. In Protobuf the indexes of the message in its file come before the body.
`confluent(json(...))` reads the bodies by another format whose columns are declared, without a registry.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import SchemaError
from headrace.events.reader import value_lengths, value_offsets
from headrace.formats.assembly import compose, malformed
from headrace.formats.format import DecodedRecords, Format

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl
    from numpy.typing import NDArray

    from headrace.events.letters import Rejection
    from headrace.formats.format import RecordPart, Records

_NUMBER_BYTES = 5
_GUID_BYTES = 17
_SHOWN = 8
#: The indexes of a message, at most so many: messages inside each other.
_MOST_INDEXES = 64


@dataclass(frozen=True, slots=True)
class FramedValues:
    """Values without their beginnings, in groups that were written by one schema.

    Args:
        groups: The schema (a number, or a GUID in hexadecimal digits), the positions among the values, and the bodies.
        refused: Why the others have no schema, by position.
    """

    groups: list[tuple[int | str, NDArray[np.int64], pa.BinaryArray]]
    refused: dict[int, str]


def unframe(values: pa.BinaryArray) -> FramedValues:
    """Take values apart. None of them is null.

    >>> [(schema, bodies.to_pylist()) for schema, _, bodies in unframe(frame(7, pa.array([b"a"], pa.binary()))).groups]
    [(7, [b'a'])]
    """
    lengths = value_lengths(values)
    magic = np.full(len(values), -1)
    data = values.buffers()[2]
    groups: list[tuple[int | str, NDArray[np.int64], pa.BinaryArray]] = []
    if data is not None and data.size:
        every = np.frombuffer(data, np.uint8)
        offsets = value_offsets(values)[:-1]
        there = lengths > 0
        magic[there] = every[offsets[there]]
        numbered = np.flatnonzero((magic == 0) & (lengths >= _NUMBER_BYTES))
        digits = every[offsets[numbered][:, None] + np.arange(1, _NUMBER_BYTES)].astype(np.int64)
        numbers = digits @ np.array([1 << 24, 1 << 16, 1 << 8, 1])
        order = np.argsort(numbers, kind="stable")
        different, begins = np.unique(numbers[order], return_index=True)
        groups += [
            (number, *_bodies(values, rows, _NUMBER_BYTES))
            for number, rows in zip(different.tolist(), np.split(numbered[order], begins[1:]), strict=False)
        ]
    guids: dict[str, list[int]] = {}
    for row in np.flatnonzero((magic == 1) & (lengths >= _GUID_BYTES)).tolist():
        guids.setdefault(str(UUID(bytes=values[row].as_py()[1:_GUID_BYTES])), []).append(row)
    groups += [(guid, *_bodies(values, np.array(rows, np.int64), _GUID_BYTES)) for guid, rows in guids.items()]
    good = {row for _, rows, _ in groups for row in rows.tolist()} if len(values) else set()
    refused = {row: _complaint(values[row].as_py()) for row in range(len(values)) if row not in good}
    return FramedValues(groups, refused)


def _bodies(values: pa.BinaryArray, rows: NDArray[np.int64], begin: int) -> tuple[NDArray[np.int64], pa.BinaryArray]:
    return rows, pa.array([value[begin:] for value in values.take(pa.array(rows)).to_pylist()], pa.binary())


def _complaint(value: bytes) -> str:
    if not value:
        return "the value is empty: it has no schema"
    if value[0] > 1:
        return f"the value begins with {value[:_SHOWN]!r}, not with a schema in Confluent's wire format"
    return f"the value ends within the number of its schema: {value[:_GUID_BYTES]!r}"


def frame(schema: int, bodies: pa.BinaryArray) -> pa.BinaryArray:
    """Put the number of a schema before each body."""
    return pc.binary_join_element_wise(pa.scalar(b"\0" + schema.to_bytes(4, "big")), bodies, pa.scalar(b""))


def message_indexes(body: bytes) -> tuple[tuple[int, ...], int]:
    r"""Read the indexes that stand before a Protobuf message: which message of the file it is, from the outside in.

    Returns:
        The indexes, and where the message begins.

    Raises:
        ValueError: They are cut off, or are none.

    >>> message_indexes(b"\x00..."), message_indexes(frame_indexes((1, 0)) + b"...")
    (((0,), 1), ((1, 0), 3))
    """
    count, at = _varint(body, 0)
    if count == 0:
        return (0,), at
    if not 0 < count <= _MOST_INDEXES:
        raise ValueError(f"{count} message indexes")
    indexes = []
    for _ in range(count):
        index, at = _varint(body, at)
        if index < 0:
            raise ValueError(f"the message index {index}")
        indexes.append(index)
    return tuple(indexes), at


def frame_indexes(indexes: Sequence[int]) -> bytes:
    r"""Write message indexes; (0,), the first message of a file, is one zero byte.

    >>> frame_indexes((0,)), frame_indexes((2,))
    (b'\x00', b'\x02\x04')
    """
    from headrace.formats.avro_reader import varint

    return b"\0" if tuple(indexes) == (0,) else b"".join(map(varint, (len(indexes), *indexes)))


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 35, 7):
        if at >= len(data):
            raise ValueError("the value ends within the message indexes")
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return (number >> 1) ^ -(number & 1), at
    raise ValueError("a message index has more than five bytes")


@dataclass(frozen=True, slots=True)
class ConfluentFormat(Format):
    """Values of another format in Confluent's wire format. See `confluent`."""

    name: ClassVar[str] = "confluent"
    body: Format

    def __post_init__(self) -> None:
        if self.body.name in ("avro", "envelope", "confluent"):
            hint = "Give avro() the address of the registry: avro(registry=...)." if self.body.name == "avro" else ""
            raise SchemaError(f"confluent() does not take {self.body.name}", hint=hint)

    @property
    def schema(self) -> pl.Schema:
        """The columns of the format of the bodies."""
        return self.body.schema

    @property
    def reads(self) -> frozenset[RecordPart]:
        """What the format of the bodies reads."""
        return self.body.reads

    @property
    def text(self) -> str:
        """Describe the format in a line of `explain()`."""
        return f"{self.body.text}, in Confluent's wire format"

    def decode(self, records: Records, columns: Sequence[str] | None = None) -> DecodedRecords:
        """Read the bodies; a record without a value is left to their format."""
        missing = records.values.is_null().to_numpy(zero_copy_only=False)
        there = np.flatnonzero(~missing)
        framed = unframe(records.values.take(pa.array(there)))
        rejections: dict[int, Rejection] = {int(there[row]): malformed(text) for row, text in framed.refused.items()}
        bodies: dict[int, bytes | None] = dict.fromkeys(np.flatnonzero(missing).tolist())
        for _, rows, parts in framed.groups:
            for row, part in zip(there[rows].tolist(), parts.to_pylist(), strict=True):
                try:
                    bodies[row] = part[message_indexes(part)[1] :] if self.body.name == "protobuf" else part
                except ValueError as problem:
                    rejections[row] = malformed(str(problem))
        positions = np.array(sorted(bodies), np.int64)
        values = pa.array([bodies[row] for row in positions.tolist()], pa.binary())
        decoded = self.body.decode(records.take(positions, values=values), columns)
        rejections |= {int(positions[row]): rejection for row, rejection in decoded.rejections.items()}
        whole = None if len(positions) == len(records) else positions
        skipped = None if decoded.skipped is None else positions[decoded.skipped]
        return DecodedRecords(decoded.frame, compose(whole, decoded.positions), rejections, skipped)


def confluent(body: Format) -> ConfluentFormat:
    """Read values that begin with the number of a schema by the format of what follows.

    The number is not looked at: the columns are those that the format declares. Results are not written so.

    Args:
        body: The format of what follows: `json(...)`, `protobuf(...)`, or one of your own.

    >>> from headrace.formats import json
    >>> confluent(json(time="at")).text
    "json, time from at, in Confluent's wire format"
    """
    return ConfluentFormat(body)
