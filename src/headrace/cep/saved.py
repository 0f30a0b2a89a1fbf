"""A small record and some frames as one segment, because a state store charges by the call.

Version 1 always had the partial matches of all keys among its frames, and is still read. In version 2 they may be in
pages of their own, so the version before must not read it.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any

from headrace.engine.state import frame_from_bytes, frame_to_bytes
from headrace.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

_MARK = b"HP2\n"
_MARK_BEFORE = b"HP1\n"


def pack(record: dict[str, Any], frames: Mapping[str, pl.DataFrame]) -> bytes:
    """Write a record and frames.

    >>> import polars as pl
    >>> record, frames = unpack(pack({"watermark": 7}, {"rows": pl.DataFrame({"v": [1]})}))
    >>> record, frames["rows"].rows()
    ({'watermark': 7}, [(1,)])
    """
    parts = {name: frame_to_bytes(frame) for name, frame in frames.items()}
    header = json.dumps({"record": record, "sizes": {name: len(part) for name, part in parts.items()}}).encode()
    return b"".join([_MARK, struct.pack("<I", len(header)), header, *parts.values()])


def unpack(value: bytes) -> tuple[dict[str, Any], dict[str, pl.DataFrame]]:
    """Read what `pack` wrote."""
    if value[:4] not in (_MARK, _MARK_BEFORE):
        raise StateError(
            f"saved pattern state starts with {value[:4]!r}",
            hint="It was written by another version of Headrace; start the job afresh or with that version.",
        )
    place = 8 + struct.unpack("<I", value[4:8])[0]
    header = json.loads(value[8:place])
    frames: dict[str, pl.DataFrame] = {}
    for name, size in header["sizes"].items():
        frames[name] = frame_from_bytes(value[place : place + size])
        place += size
    return header["record"], frames
