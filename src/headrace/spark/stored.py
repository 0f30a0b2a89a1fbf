"""The form of segments in Spark's state store: compressed, since every byte is copied several times on its way there.

State is read and written in every batch, through a socket, an encoder and a log. Compressing costs a fraction of
that: half the bytes are left of rows and partials.
"""

from __future__ import annotations

import struct

import pyarrow as pa

from headrace.errors import StateError

#: The first byte says which: as it is, or compressed, with its size before it.
_PLAIN, _COMPRESSED = b"=", b"4"
_CODEC = "lz4"
#: What is smaller than this is not worth it.
_LEAST = 1_024


def to_store(segment: bytes) -> bytes:
    """Give a segment the form in which it is stored."""
    if len(segment) < _LEAST:
        return _PLAIN + segment
    small: bytes = pa.compress(segment, codec=_CODEC, asbytes=True)
    return _COMPRESSED + struct.pack("<Q", len(segment)) + small


def from_store(value: bytes) -> bytes:
    """Read what `to_store` wrote.

    >>> [from_store(to_store(segment)) == segment for segment in (b"", b"short", b"long" * 1_000)]
    [True, True, True]
    >>> len(to_store(b"long" * 1_000)) < 100
    True
    """
    if value[:1] == _PLAIN:
        return value[1:]
    if value[:1] != _COMPRESSED:
        raise StateError(
            f"saved state starts with {value[:4]!r}",
            hint="It was written by another version of Headrace; start the job afresh or with that version.",
        )
    (size,) = struct.unpack("<Q", value[1:9])
    plain: bytes = pa.decompress(value[9:], decompressed_size=size, codec=_CODEC, asbytes=True)
    return plain
