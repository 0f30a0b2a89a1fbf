"""A small record and some frames as one segment, because a state store charges by the call.

Version 1 always had the partial matches of all keys among its frames, and is still read. In version 3 they may be in
pages of their own, so a version before must not read it. Version 2 is read, unless it had pages: their form was another
one.
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

    from headrace.engine.state import Segments

_MARK = b"HP3\n"
_MARK_OF_OLDER_PAGES = b"HP2\n"
_MARKS = (_MARK, _MARK_OF_OLDER_PAGES, b"HP1\n")


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
    if value[:4] not in _MARKS:
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


def refuse_older_pages(value: bytes, state: Segments) -> None:
    """Refuse partial matches in pages of version 2.

    Raises:
        StateError: There are such pages.
    """
    if value[:4] == _MARK_OF_OLDER_PAGES and state.get("partial/directory") is not None:
        raise StateError(
            "the saved partial matches lie in pages of an earlier form",
            hint="Start the job afresh, or with the version of Headrace that wrote them.",
        )
