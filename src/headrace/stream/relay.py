"""Two stateful steps in one stage: rows that an operator lets go on in step with the watermark, then windows of them.

"Each vehicle's change of cell, then changes per cell in sliding windows" is keyed twice, which in general means two
stages, and a second stage is dear. But the windows of the second step need not see all rows of a key together until
they fire: each key group of the *first* step keeps windows of the rows that it let go on itself, and when a window
fires, which all groups do in the same batch, the groups' parts are merged by whoever sees them all
(`headrace.stream.pipeline.Pipeline.finish`). That is right where the first operator's results are in step: what leaves
it in a turn is not older than the watermark of the turn before, so that every group's windows are complete when they
fire. Such an operator says so by `in_step = True`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.engine.contents import state_tables
from headrace.engine.frames import stacked
from headrace.engine.operator import (
    EVENT_TIME,
    IS_RETRACTION,
    PANE_INDEX,
    PANE_IS_LAST,
    PANE_MODE,
    PANE_TIMING,
    Outcome,
    Resplitting,
    Turn,
)
from headrace.errors import StateError
from headrace.stream.intake import split_null_keys
from headrace.stream.steps import apply_steps, fitted
from headrace.windows.chained import ChainedFold
from headrace.windows.fold import Fold
from headrace.windows.sliced import SlicedOperator

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from headrace.engine import MemorySegments, Operator, Segments
    from headrace.stream.steps import Step


class UnreadFold(Fold):
    """A fold whose results are its partials, to be merged further."""

    def results(self, partials: pl.DataFrame, extra: Sequence[str] = ()) -> pl.DataFrame:
        """Leave the values unread."""
        del extra
        return partials


@dataclass(frozen=True)
class UnreadWindows(SlicedOperator):
    """Windows that fire with partials in place of values."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "fold", UnreadFold(self.keys, self.aggregates))


@dataclass(frozen=True)
class MergedFold(ChainedFold):
    """Merges the partials that the key groups' windows fired with."""

    def apply(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Take a group's part as it is; the pane is told anew when all parts are together."""
        return frame.drop(EVENT_TIME, PANE_INDEX, PANE_TIMING, PANE_IS_LAST, PANE_MODE, IS_RETRACTION)


@dataclass(frozen=True)
class RelayOperator:
    """Runs two operators on one key group, the second on what the first lets go on.

    Args:
        first: Gives rows in step with the watermark.
        steps: The stateless steps between the two.
        second: Windows of those rows.
        between: The columns of those rows.
        null_keys: Whether null is a key like others; otherwise such rows are dismissed.
    """

    first: Operator
    steps: tuple[Step, ...]
    second: UnreadWindows
    between: pl.Schema
    null_keys: bool = False

    def prepare(self, rows: pl.DataFrame, watermark: int | None) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Shrink rows as the first operator does."""
        return self.first.prepare(rows, watermark)

    def turn(self, state: Segments, turn: Turn) -> Outcome:
        """Take the turn of the first operator, then that of the second."""
        one = self.first.turn(_Part(state, "first"), turn)
        rows = self.between.to_frame()
        refused = one.dismissed
        if one.rows is not None:
            ready = fitted(apply_steps(self.steps, one.rows), self.between, steps=self.steps)
            rows, keyless = split_null_keys(ready, () if self.null_keys else self.second.keys)
            refused = stacked([part for part in (one.dismissed, keyless) if part is not None])
        two = self.second.turn(
            _Part(state, "second"), Turn(rows, turn.watermark, turn.now, watermark_before=turn.watermark_before)
        )
        return Outcome(
            rows=two.rows,
            late=stacked([part for part in (one.late, two.late) if part is not None]),
            dismissed=stacked([part for part in (refused, two.dismissed) if part is not None]),
            keys=sum(part.keys for part in (one, two) if part.keys is not None),
        )

    def schema(self, rows: pl.Schema) -> pl.Schema:
        """Tell the columns of the partials."""
        del rows
        return self.second.schema(self.between)

    def fingerprint(self) -> dict[str, str]:
        """Name what the state of both depends on."""
        parts = (("first", self.first), ("then", self.second))
        return {f"{place} {name}": told for place, part in parts for name, told in part.fingerprint().items()}

    def resplit(self, old: Sequence[Segments], new: Sequence[Segments]) -> None:
        """Spread the state of both over other key groups; the windows may lie in any, since all parts are merged."""
        for name, operator in (("first", self.first), ("second", self.second)):
            if not isinstance(operator, Resplitting):
                raise StateError(
                    f"the state of {type(operator).__name__} cannot be spread over other key groups",
                    hint="Go on with the number of key groups as it is, or give the operator a method `resplit`.",
                )
            operator.resplit([_Part(state, name) for state in old], [_Part(state, name) for state in new])

    def state_tables(self, state: MemorySegments) -> dict[str, pl.DataFrame]:
        """Show what both keep."""
        shown: dict[str, pl.DataFrame] = {}
        for place, operator in (("first", self.first), ("second", self.second)):
            own = {name.removeprefix(f"{place}/"): value for name, value in state.content.items()}
            part = {name: value for name, value in own.items() if f"{place}/{name}" in state.content}
            for name, table in state_tables(operator, part).items():
                shown[name if name not in shown else f"{place}_{name}"] = table
        return shown


class _Part:
    """One operator's share of the segments."""

    def __init__(self, segments: Segments, name: str) -> None:
        self._segments = segments
        self._name = name
        #: What a segment costs beside its bytes, in rows, where the store says so.
        self.call_cost: int | None = getattr(segments, "call_cost", None)

    def get(self, name: str) -> bytes | None:
        return self._segments.get(f"{self._name}/{name}")

    def put(self, name: str, value: bytes) -> None:
        self._segments.put(f"{self._name}/{name}", value)

    def delete(self, name: str) -> None:
        self._segments.delete(f"{self._name}/{name}")
