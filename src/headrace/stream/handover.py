"""Handover: from what an operator gave to what its stage hands on.

The counterpart of intake, and as there, one function for every runner: the stateless steps run on the results, rows
without a key for what follows are dismissed, and a same-window aggregate that rides on the stage is folded.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.engine.frames import stacked
from headrace.stream.intake import split_null_keys
from headrace.stream.steps import apply_steps, fitted

if TYPE_CHECKING:
    import polars as pl

    from headrace.engine.operator import Outcome
    from headrace.stream.pipeline import Pipeline


def hand_over(pipeline: Pipeline, level: int, outcome: Outcome) -> Outcome:
    """Run what follows an operator within its stage.

    Args:
        pipeline: What is run.
        level: Which of its stages.
        outcome: What the operator gave.
    """
    if outcome.rows is None:
        return outcome
    stage = pipeline.stages[level]
    rows = apply_steps(stage.steps, outcome.rows)
    following = pipeline.stages[level + 1] if level + 1 < len(pipeline.stages) else None
    if following is not None:
        rows = fitted(rows, following.schema, steps=stage.steps)
    keys = stage.fold.keys if stage.fold is not None else following.keys if following is not None else ()
    rows, keyless = split_null_keys(rows, keys)
    dismissed = stacked([part for part in (outcome.dismissed, keyless) if part is not None])
    return replace(outcome, rows=rows if stage.fold is None else stage.fold.apply(rows), dismissed=dismissed)


def hand_over_branches(pipeline: Pipeline, outcome: Outcome) -> dict[str, pl.DataFrame]:
    """Give what the last stage's operator has for the further outputs, by their names.

    A row that has no key for a further output is left out of it; it is the main output that tells of rows that cannot
    be used.

    Args:
        pipeline: What is run.
        outcome: What the operator gave.
    """
    given: dict[str, pl.DataFrame] = {}
    if outcome.rows is None:
        return given
    for branch in pipeline.branches:
        rows = apply_steps(branch.steps, outcome.rows)
        if branch.fold is not None:
            rows = branch.fold.apply(split_null_keys(rows, branch.fold.keys)[0])
        given[branch.name] = rows
    return given
