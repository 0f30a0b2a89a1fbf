"""The exchange: how frames travel between Spark's stages.

Spark sees three columns: the key group, what kind of thing the body is, and the body. A body is an Arrow IPC stream
for rows and a JSON record for the rest. Any number of jobs share one query, so a group's number counts through the
steps of all of them (`headrace.spark.stages.slots`). Rows for a step of a later level pass through the levels before
it as they are.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from headrace.engine.frames import stacked
from headrace.engine.state import frame_from_bytes, frame_to_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import polars as pl

#: On the way to a stage: rows (those of a further input: "rows/<number>"), partials, clock (what sources showed, JSON),
#: beat (the heartbeat's time, digits).
#: On the way to the sink: result, late, dismissed (rows), dead (dead letters), time (watermark and rows, JSON), counts
#: (what steps have counted, JSON), sizes (records and bytes read of each partition, JSON), and for the further outputs
#: of a job "result/<name>".
Kind = Literal["rows", "partials", "clock", "beat", "result", "late", "dismissed", "dead", "time", "counts", "sizes"]
FINAL_KINDS: tuple[Kind, ...] = ("result", "late", "dismissed", "dead", "time", "counts", "sizes")
_OUTPUT = "result/"
_ROWS = "rows/"

#: The same schema in Spark's words and in Arrow's.
SPARK_SCHEMA = "group int, kind string, body binary"
ARROW_SCHEMA = pa.schema([("group", pa.int32()), ("kind", pa.string()), ("body", pa.binary())])


def output_kind(name: str, part: str = "") -> str:
    """Name the kind of the results of an output.

    Args:
        name: The further output; empty: the results of the job itself.
        part: The stage that they are from, where several give results to one output.

    >>> output_kind(""), output_kind("pairs"), output_kind("", "per-depot")
    ('result', 'result/pairs', 'result/#per-depot')
    """
    if not name and not part:
        return "result"
    return f"{_OUTPUT}{name}" + (f"#{part}" if part else "")


def rows_kind(number: int) -> str:
    """Name the kind of rows for an input of a stage."""
    return f"{_ROWS}{number}" if number else "rows"


def rows_by_input(received: Mapping[str, list[bytes]]) -> dict[int, list[pl.DataFrame]]:
    """Read the rows of each input of a stage."""
    return {
        int(kind.removeprefix(_ROWS)) if kind != "rows" else 0: frames(bodies)
        for kind, bodies in received.items()
        if kind == "rows" or kind.startswith(_ROWS)
    }


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
