"""Envelopes around details, written byte by byte for a whole batch.

An `Event` is two timestamps and an `Any`. Written as any other message, that takes as long as the details themselves,
although nearly all of its bytes are the same for every event of a batch. Here the few that differ are computed in
columns and put in front of the details.

`wrap` gives the bytes that protobuf would give, or nothing where it does not know how: for instants before 1978, when
seconds take another number of bytes, and for missing ones. `tests/events/test_wrapping.py` compares the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Bytes = NDArray[np.uint8]

#: Seconds since the epoch that take five bytes.
_FIRST, _LAST = 2**28, 2**35
#: Tags of the envelope's fields (event time, ingestion time, details) and of the fields of their messages.
_EVENT, _INGESTION, _DETAILS = 0x0A, 0x12, 0x1A
_SECONDS, _NANOS, _URL, _VALUE = 0x08, 0x10, 0x0A, 0x12
#: Tag, length, tag and bytes of the seconds, tag and at most five bytes of the nanoseconds.
_WIDTH = 14


def wrap(
    details: pa.BinaryArray, type_url: str, event: NDArray[np.int64], ingestion: NDArray[np.int64] | None
) -> pa.BinaryArray | None:
    """Put envelopes around details.

    Args:
        details: The messages.
        type_url: Their type.
        event: When each happened, in microseconds since the epoch.
        ingestion: When each was taken in; None: not known.

    Returns:
        The envelopes; None if some instant cannot be written in this way, or there are no details in some.
    """
    if not len(details):
        return None
    times = [(_EVENT, event)] if ingestion is None else [(_EVENT, event), (_INGESTION, ingestion)]
    for _, micros in times:
        if micros.min() < _FIRST * 1_000_000 or micros.max() >= _LAST * 1_000_000:
            return None
    sizes = pc.binary_length(details).to_numpy(zero_copy_only=False)
    if not sizes.all():
        return None
    matrix = np.empty((len(event), _WIDTH * len(times)), dtype=np.uint8)
    keep = np.ones(matrix.shape, dtype=bool)
    for number, (tag, micros) in enumerate(times):
        part = slice(number * _WIDTH, (number + 1) * _WIDTH)
        _write_instant(matrix[:, part], keep[:, part], tag, micros)
    return pc.binary_join_element_wise(_ragged(matrix, keep), _headers(sizes, type_url.encode()), details, b"")


def _write_instant(matrix: Bytes, keep: NDArray[np.bool_], tag: int, micros: NDArray[np.int64]) -> None:
    """Write a timestamp into its columns, and say which of them count."""
    seconds, rest = np.divmod(micros, 1_000_000)
    nanos = rest * 1000
    # No nanoseconds at all are left out; others begin at a thousand, which takes two bytes.
    size = np.where(nanos > 0, 2 + (nanos >= 2**14).astype(np.int64) + (nanos >= 2**21) + (nanos >= 2**28), 0)
    matrix[:, 0] = tag
    matrix[:, 1] = 6 + size + (size > 0)
    matrix[:, 2] = _SECONDS
    for place in range(5):
        matrix[:, 3 + place] = (seconds >> 7 * place) & 0x7F | (0x80 if place < 4 else 0)
        more = np.where(place < size - 1, 0x80, 0)
        matrix[:, 9 + place] = (nanos >> 7 * place) & 0x7F | more
        keep[:, 9 + place] = place < size
    matrix[:, 8] = _NANOS
    keep[:, 8] = size > 0


def _ragged(matrix: Bytes, keep: NDArray[np.bool_]) -> pa.BinaryArray:
    """Make values of the bytes that count, row by row."""
    offsets = np.zeros(len(matrix) + 1, dtype=np.int32)
    np.cumsum(keep.sum(axis=1), out=offsets[1:])
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(matrix), [None, pa.py_buffer(offsets), pa.py_buffer(matrix[keep])]
    )


def _headers(sizes: NDArray[np.int64], url: bytes) -> pa.BinaryArray:
    """What stands between the timestamps and the details: it depends on nothing but their size."""
    different, which = np.unique(sizes, return_inverse=True)
    fixed = bytes([_URL]) + _varint(len(url)) + url + bytes([_VALUE])
    table = []
    for size in different.tolist():
        inner = fixed + _varint(size)
        table.append(bytes([_DETAILS]) + _varint(len(inner) + size) + inner)
    return pa.array(table, pa.binary()).take(pa.array(which))


def with_message(details: pa.BinaryArray, field: int, messages: Sequence[bytes | None]) -> pa.BinaryArray:
    r"""Give each message a field that holds a message, which is there in its written form; none where it is None.

    >>> with_message(pa.array([b"\x08\x01", b""]), 2, [b"abc", None]).to_pylist()
    [b'\x08\x01\x12\x03abc', b'']
    """
    tag = _varint(field << 3 | 2)
    written = [
        detail if message is None else b"".join((detail, tag, _varint(len(message)), message))
        for detail, message in zip(details.to_pylist(), messages, strict=True)
    ]
    return pa.array(written, pa.binary())


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
