"""State in segments.

The state of an operator on one key group is a handful of named byte strings. A runner gives them back by name and keeps
what was put; nothing is listed or scanned, so an operator keeps an index of its segments in a segment of its own.
Frames are kept as Arrow IPC streams, small records as JSON; both carry a version.
"""

from __future__ import annotations

import io
import json
from typing import Any, Protocol

import polars as pl
from polars.exceptions import PolarsError

from headrace.errors import StateError

#: Begins a segment that is a frame.
FRAME_MARK = b"HF1\n"
_RECORD = b"HR1\n"


class Segments(Protocol):
    """Named byte strings of one operator on one key group."""

    def get(self, name: str) -> bytes | None:
        """Return the segment, or None where there is none."""
        ...

    def put(self, name: str, value: bytes) -> None:
        """Keep the segment."""
        ...

    def delete(self, name: str) -> None:
        """Forget the segment; forgetting what is not there is fine."""
        ...


class MemorySegments:
    """Segments in a dictionary: the in-process runner's, and what tests look into.

    >>> segments = MemorySegments()
    >>> segments.put("index", b"1")
    >>> segments.get("index"), segments.get("other")
    (b'1', None)
    """

    def __init__(self, content: dict[str, bytes] | None = None) -> None:
        self.content: dict[str, bytes] = dict(content or {})

    def get(self, name: str) -> bytes | None:
        """Return the segment, or None where there is none."""
        return self.content.get(name)

    def put(self, name: str, value: bytes) -> None:
        """Keep the segment."""
        self.content[name] = value

    def delete(self, name: str) -> None:
        """Forget the segment; forgetting what is not there is fine."""
        self.content.pop(name, None)


def frame_to_bytes(frame: pl.DataFrame) -> bytes:
    """Write a frame as a versioned Arrow IPC stream."""
    sink = io.BytesIO()
    sink.write(FRAME_MARK)
    frame.write_ipc_stream(sink, compat_level=pl.CompatLevel.oldest())
    return sink.getvalue()


def frame_from_bytes(value: bytes) -> pl.DataFrame:
    """Read a frame that `frame_to_bytes` wrote."""
    _expect(value, FRAME_MARK)
    try:
        return pl.read_ipc_stream(io.BytesIO(value[len(FRAME_MARK) :]))
    except PolarsError as problem:
        raise _damaged("frame", value, problem) from problem


def record_to_bytes(record: dict[str, Any]) -> bytes:
    """Write a small JSON record with a version."""
    return _RECORD + json.dumps(record, separators=(",", ":"), sort_keys=True).encode()


def record_from_bytes(value: bytes) -> dict[str, Any]:
    """Read a record that `record_to_bytes` wrote."""
    _expect(value, _RECORD)
    try:
        record: dict[str, Any] = json.loads(value[len(_RECORD) :])
    except ValueError as problem:
        raise _damaged("record", value, problem) from problem
    return record


def _damaged(what: str, value: bytes, problem: Exception) -> StateError:
    first = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
    return StateError(
        f"a saved {what} of {len(value)} bytes cannot be read: {first}",
        hint="The checkpoint is damaged; restore it from a copy, or start the job afresh.",
    )


def _expect(value: bytes, mark: bytes) -> None:
    if value[: len(mark)] != mark:
        raise StateError(
            f"saved state starts with {value[:4]!r}, not with {mark!r}",
            hint="It was written by another version of Headrace; start afresh or with the version that wrote it.",
        )
