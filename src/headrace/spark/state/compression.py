"""The form of segments in Spark's state store: compressed, since every byte is copied several times on its way there.

State is read and written in every batch, through a socket, an encoder and a log. Compressing costs a fraction of
that: half the bytes are left of rows and partials.
"""

from __future__ import annotations

import struct

import pyarrow as pa

from headrace.errors import StateError

#: The first byte says which: as it is, compressed with its size before it, or one of these with a stamp before it.
_PLAIN, _COMPRESSED, _STAMPED = b"=", b"4", b"#"
_STAMP_LENGTH = 32
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
    _, value = stamp_of(value)
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


def stamped(value: bytes, stamp: str) -> bytes:
    """Put a stamp of 32 characters before what `to_store` wrote."""
    return _STAMPED + stamp.encode("ascii") + value


def stamp_of(value: bytes) -> tuple[str | None, bytes]:
    """Tell the stamp of a stored value, None if it has none, and the value without it.

    >>> stamp, value = stamp_of(stamped(to_store(b"short"), "0" * 32))
    >>> stamp == "0" * 32, from_store(value), stamp_of(value)[0]
    (True, b'short', None)
    """
    if value[:1] != _STAMPED:
        return None, value
    end = 1 + _STAMP_LENGTH
    return value[1:end].decode("ascii"), value[end:]
