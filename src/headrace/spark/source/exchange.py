"""The exchange: how frames travel between Spark's stages.

Spark sees three columns: the key group, what kind of thing the body is, and the body. A body is an Arrow IPC stream
for rows and a JSON record for the rest. Any number of jobs share one query, so a group's number counts through all
of them: `job number * key groups + key group`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from headrace.engine.frames import stacked
from headrace.engine.state import frame_from_bytes, frame_to_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable

    import polars as pl

#: On the way to a stage: rows, partials, clock (what sources showed, JSON), beat (the heartbeat's time, digits). On
#: the way to the sink: result, late, dismissed (rows), dead (dead letters), time (watermark and rows, JSON), counts
#: (what steps have counted, JSON), sizes (records and bytes read of each partition, JSON), and for the further outputs
#: of a job "result/<name>".
Kind = Literal["rows", "partials", "clock", "beat", "result", "late", "dismissed", "dead", "time", "counts", "sizes"]
FINAL_KINDS: tuple[Kind, ...] = ("result", "late", "dismissed", "dead", "time", "counts", "sizes")
_OUTPUT = "result/"

#: The same schema in Spark's words and in Arrow's.
SPARK_SCHEMA = "group int, kind string, body binary"
ARROW_SCHEMA = pa.schema([("group", pa.int32()), ("kind", pa.string()), ("body", pa.binary())])


def output_kind(name: str) -> str:
    """Name the kind of the results of a further output."""
    return f"{_OUTPUT}{name}"


def is_final(kind: str) -> bool:
    """Tell whether a body of this kind passes all further stages as it is."""
    return kind in FINAL_KINDS or kind.startswith(_OUTPUT)


def holds_rows(kind: str) -> bool:
    """Tell whether a body of this kind holds rows that go out.

    >>> holds_rows("result"), holds_rows("result/pairs"), holds_rows("time")
    (True, True, False)
    """
    return kind in ("result", "late", "dead", "dismissed") or kind.startswith(_OUTPUT)


@dataclass
class Parcel:
    """Bodies on their way, by group and kind."""

    groups: list[int] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)

    def add(self, group: int, kind: Kind | str, body: bytes) -> None:
        """Put one body in."""
        self.groups.append(group)
        self.kinds.append(kind)
        self.bodies.append(body)

    def add_frames(self, group: int, kind: Kind | str, frames: list[pl.DataFrame]) -> None:
        """Put frames in as one body; no body for no rows."""
        together = stacked(frames)
        if together is not None and together.height:
            self.add(group, kind, frame_to_bytes(together))

    def add_counts(self, group: int, counts: dict[str, int]) -> None:
        """Put in what steps have counted; no body for nothing."""
        if counts:
            self.add(group, "counts", json.dumps(counts).encode())

    def to_arrow(self) -> pa.RecordBatch:
        """Give the parcel the form that Spark's Arrow stage takes."""
        return pa.RecordBatch.from_arrays(
            [pa.array(self.groups, pa.int32()), pa.array(self.kinds, pa.string()), pa.array(self.bodies, pa.binary())],
            schema=ARROW_SCHEMA,
        )


def frames(bodies: Iterable[bytes]) -> list[pl.DataFrame]:
    """Read bodies that hold rows."""
    return [frame_from_bytes(body) for body in bodies]
