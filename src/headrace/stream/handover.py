"""Handover: from what an operator gave to what its stage hands on.

The counterpart of intake, and as there, one function for every runner: on each way that leads from the stage the
stateless steps run, rows without a key for what follows are dismissed, and a same-window aggregate is folded.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.engine.frames import stacked
from headrace.stream.intake import split_null_keys
from headrace.stream.steps import apply_steps, fitted

if TYPE_CHECKING:
    import polars as pl

    from headrace.engine.operator import Outcome
    from headrace.stream.stages import Edge, Pipeline, ResultEdge


@dataclass(frozen=True)
class HandedOver:
    """What a stage hands on.

    Args:
        onward: Rows for later stages.
        results: Rows for outputs.
        late: Rows that came too late for the stage.
        dismissed: Rows that the stage, or what follows it, could not use.
    """

    onward: tuple[tuple[Edge, pl.DataFrame], ...]
    results: tuple[tuple[ResultEdge, pl.DataFrame], ...]
    late: pl.DataFrame | None
    dismissed: pl.DataFrame | None


def hand_over(pipeline: Pipeline, number: int, outcome: Outcome) -> HandedOver:
    """Run what follows an operator within its stage.

    A row that has no key for a further output is left out of it; the other ways tell of rows that cannot be used.

    Args:
        pipeline: What is run.
        number: Which of its stages.
        outcome: What the operator gave.
    """
    if outcome.rows is None:
        return HandedOver((), (), outcome.late, outcome.dismissed)
    onward: list[tuple[Edge, pl.DataFrame]] = []
    results: list[tuple[ResultEdge, pl.DataFrame]] = []
    dismissed = [outcome.dismissed]
    for edge in pipeline.edges_from(number):
        following = pipeline.stages[edge.target].inputs[edge.input]
        rows = fitted(apply_steps(edge.steps, outcome.rows), following.schema, steps=edge.steps)
        rows, keyless = split_null_keys(rows, () if following.null_keys else following.keys)
        dismissed.append(keyless)
        onward.append((edge, rows))
    for output in pipeline.outputs_of(number):
        rows = apply_steps(output.steps, outcome.rows)
        if output.fold is not None:
            rows, keyless = split_null_keys(rows, () if output.fold.null_keys else output.fold.keys)
            rows = output.fold.apply(rows)
            dismissed.append(None if output.name else keyless)
        results.append((output, rows))
    unusable = stacked([part for part in dismissed if part is not None])
    return HandedOver(tuple(onward), tuple(results), outcome.late, unusable)
