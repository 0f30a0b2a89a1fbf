"""One stage on one key group: its turn, and where what leaves it goes. The same for every runner.

A runner brings what has arrived and keeps the segments; how rows travel from one stage to the next, in memory or
through Spark, is its own matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.engine.group import Arrivals, Departures, Group, Seen
from headrace.stream.handover import HandedOver, hand_over
from headrace.stream.intake import feed_of_edge, timekeeping

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

    from headrace.engine.limits import StateLimit
    from headrace.engine.state import Segments
    from headrace.stream.stages import Edge, Pipeline, Stage


@dataclass(frozen=True)
class Onward:
    """What a stage sends over an edge.

    Args:
        edge: The way to the later stage.
        feed: Its place in what `timekeeping` tells of that stage.
        rows: By key group of the later stage.
    """

    edge: Edge
    feed: int
    rows: dict[int, pl.DataFrame]

    def seen(self, sender: str, watermark: int) -> Seen:
        """Say how far the time of the sender has come."""
        return Seen(self.feed, sender, {"watermark": watermark})


@dataclass(frozen=True)
class StageTurn:
    """What came of the turn of a stage on one key group.

    Args:
        departures: The outcome, and the time that was reached.
        handed: Results, late and dismissed rows.
        onward: What goes to each later stage; there for every edge, with or without rows.
    """

    departures: Departures
    handed: HandedOver
    onward: tuple[Onward, ...]


class StageRunner:
    """Takes the turns of one stage.

    Args:
        pipeline: What is run.
        number: Which of its stages.
        groups: How many key groups there are.
        partitions: How many partitions each source has, by its name, where that is known.
        limit: How much state the stage may keep on a key group.
        report: Keep a sketch of the lateness; one group is enough.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        number: int,
        groups: int,
        *,
        partitions: Mapping[str, int] | None = None,
        limit: StateLimit | None = None,
        report: bool = False,
    ) -> None:
        self._pipeline = pipeline
        self._number = number
        self._groups = groups
        first, *others = (each.schema for each in self.stage.inputs)
        self._group = Group(
            self.stage.operator,
            timekeeping(pipeline, partitions, number),
            first,
            others=tuple(others),
            report=report,
            limit=limit,
            step=f"step {self.stage.step!r}",
        )

    @property
    def stage(self) -> Stage:
        """The stage."""
        return self._pipeline.stages[self._number]

    def now(self, segments: Segments) -> int | None:
        """Tell the processing time of the last turn, or None where there was none."""
        return self._group.now(segments)

    def turn(self, segments: Segments, arrivals: Arrivals) -> StageTurn:
        """Take the turn of one key group."""
        departures = self._group.turn(segments, arrivals)
        handed = hand_over(self._pipeline, self._number, departures.outcome)
        rows = dict(handed.onward)
        onward = tuple(
            Onward(edge, feed_of_edge(self._pipeline, edge), self._spread(edge, rows.get(edge)))
            for edge in self._pipeline.edges_from(self._number)
        )
        return StageTurn(departures, handed, onward)

    def _spread(self, edge: Edge, rows: pl.DataFrame | None) -> dict[int, pl.DataFrame]:
        if rows is None:
            return {}
        into = self._pipeline.stages[edge.target].inputs[edge.input]
        return into.spread(rows.select(list(into.schema)), self._groups)
