"""Rows that a query holds itself (VALUES, SELECT without FROM), and sources whose rows have no event time."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import polars as pl

from headrace.engine.operator import EVENT_TIME
from headrace.stream import Stream, plan
from headrace.time.instants import END, INSTANT
from headrace.time.strategies import WatermarkStrategy

if TYPE_CHECKING:
    from headrace.time.strategies import Progress

_NAME: Final = "constant-rows"


@dataclass(frozen=True, kw_only=True)
class Untimed(WatermarkStrategy):
    """The rows have no event time that anything waits for: event time is always past all of them."""

    max_ahead: int | None = None
    max_behind: int | None = None

    def watermark(self, progress: Progress) -> int:
        """Return the end of time, just short of what says that the source has ended."""
        del progress
        return END - 1

    def describe(self) -> str:
        """Say in a few words what the strategy does."""
        return "untimed"


def constant_rows(frame: pl.DataFrame) -> Stream:
    """Make a stream of rows that a query holds itself; `constant_sources` tells what to feed it."""
    timed = frame.with_columns(pl.lit(0).cast(INSTANT).alias(EVENT_TIME))
    name = f"{_NAME}-{zlib.crc32(timed.write_json().encode()):08x}"
    stream = Stream(plan.Read(source=plan.FrameSource(name, timed.schema, timed), schema=timed.schema))
    return stream.watermark(Untimed())


def constant_sources(stream: Stream) -> dict[str, pl.DataFrame]:
    """Give the rows that a query holds itself, by the name of their source: feed each once, at the beginning.

    >>> list(constant_sources(constant_rows(pl.DataFrame({"a": [1]}))).values())[0]["a"].to_list()
    [1]
    """
    found: dict[str, pl.DataFrame] = {}
    for node in plan.nodes_of(stream.node):
        if isinstance(node, plan.Read) and isinstance(node.source, plan.FrameSource):
            frame = node.source.frame
            if isinstance(frame, pl.DataFrame) and node.source.name.startswith(_NAME):
                found[node.source.name] = frame
    return found
