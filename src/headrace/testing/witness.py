"""Writes down the turns that the steps of a stream take, so that they can be taken again elsewhere.

A case of several steps runs in this process, with one key group. What each step was given and what it gave is kept.
The same turns are then taken by others (`headrace.testing.turns.Taker`), such as Spark's state store with a restart in
the middle, and must give the same: the case holds there as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from headrace.stream.pipeline import compile_plan

if TYPE_CHECKING:
    import polars as pl

    from headrace.engine import Operator, Outcome, Segments, Turn
    from headrace.stream.stages import Pipeline
    from headrace.stream.stream import Stream
    from headrace.testing.turns import Taker


@dataclass
class Witness:
    """An operator that keeps what it was given and what it gave.

    Args:
        operator: What takes the turns.
        turns: Those taken so far.
        outcomes: What came of them.
    """

    operator: Operator
    turns: list[Turn] = field(default_factory=list)
    outcomes: list[Outcome] = field(default_factory=list)

    def prepare(self, rows: pl.DataFrame, watermark: int | None) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Fold nothing, so that a turn has all its rows."""
        del watermark
        return rows, None

    def turn(self, state: Segments, turn: Turn) -> Outcome:
        """Take a turn and write it down."""
        outcome = self.operator.turn(state, turn)
        self.turns.append(turn)
        self.outcomes.append(outcome)
        return outcome

    def schema(self, rows: pl.Schema) -> pl.Schema:
        """The columns of the results."""
        return self.operator.schema(rows)

    def fingerprint(self) -> dict[str, str]:
        """What the state depends on."""
        return self.operator.fingerprint()

    def difference(self, take: Taker) -> tuple[list[Any], list[Any], str] | None:
        """Let the turns be taken elsewhere; tell the first difference (expected, got, where), or None."""
        for number, (own, other) in enumerate(zip(self.outcomes, take(self.operator, self.turns), strict=True)):
            for part in ("rows", "late", "dismissed"):
                expected, got = (_shown(getattr(outcome, part)) for outcome in (own, other))
                if expected != got:
                    operator = type(self.operator).__name__
                    return expected, got, f"turn {number} of {operator} gives other {part}"
            if own.watermark != other.watermark:
                return [own.watermark], [other.watermark], f"turn {number} gives another watermark"
        return None


def witnessed(stream: Stream, witnesses: list[Witness]) -> Pipeline:
    """Compile a stream so that its steps are written down; they are added to a list."""
    # Late rows are shown as they came, so no column is left out.
    pipeline = compile_plan(stream.node, stream.schema, prune=False)
    stages = []
    for stage in pipeline.stages:
        witnesses.append(Witness(stage.operator))
        stages.append(replace(stage, operator=witnesses[-1]))
    return replace(pipeline, stages=tuple(stages))


def _shown(frame: pl.DataFrame | None) -> list[str]:
    return [] if frame is None else sorted(map(repr, frame.rows(named=True)))
