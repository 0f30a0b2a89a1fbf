"""The record that a row was read from, as it travels with the row until it is certain that the row is not late.

Late events and dead letters show a record as it was read. An event in Headrace's envelope travels as its value. The
value of any other format has a label before it, which names the topic and the format. The label begins with a zero
byte, which no envelope does: it is no tag of Protobuf, and JSON begins with a brace.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from headrace.formats.format import Format

_MARK = b"\x00"
_LENGTHS = struct.Struct(">HH")
_FIRST = len(_MARK) + _LENGTHS.size


class Origin(NamedTuple):
    """A record that a row was read from.

    Args:
        value: Its value.
        topic: Where it was read; None for an envelope.
        format: The name of its format; None for an envelope.
    """

    value: bytes
    topic: str | None = None
    format: str | None = None


def labelled(values: pa.BinaryArray, topic: str, format: Format) -> pa.BinaryArray:  # noqa: A002
    """Put the label of a topic and a format before each value.

    Args:
        values: The values.
        topic: Where they were read.
        format: How.
    """
    name, kind = topic.encode(), format.name.encode()
    label = _MARK + _LENGTHS.pack(len(name), len(kind)) + name + kind
    return pc.binary_join_element_wise(pa.scalar(label), values, pa.scalar(b""))


def origin(stored: bytes | None) -> Origin:
    """Read what travels with a row.

    >>> from headrace.formats.text import text
    >>> origin(labelled(pa.array([b"one"], pa.binary()), "words", text())[0].as_py())
    Origin(value=b'one', topic='words', format='text')
    >>> origin(None)
    Origin(value=b'', topic=None, format=None)
    """
    if stored is None or not stored.startswith(_MARK):
        return Origin(stored or b"")
    topic, kind = _LENGTHS.unpack_from(stored, len(_MARK))
    begin = _FIRST + topic
    return Origin(stored[begin + kind :], stored[_FIRST:begin].decode(), stored[begin : begin + kind].decode())
