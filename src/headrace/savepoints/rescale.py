"""The state of a job on another number of key groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.engine.resplit import resplit_step
from headrace.savepoints.state import State, segments_of, steps_of

if TYPE_CHECKING:
    from headrace.stream.stages import Pipeline


def rescaled(pipeline: Pipeline, state: State, groups: int) -> State:
    """Spread the state of a job over another number of key groups; one that has it already stays as it is.

    Args:
        pipeline: The job; what it does not have as a step is left out.
        state: Its state.
        groups: How many key groups there shall be.

    Raises:
        StateError: An operator cannot do that.
    """
    found: State = {}
    for stage in pipeline.stages:
        saved = segments_of(state, stage.step)
        if not saved:
            continue
        if len(saved) != groups:
            saved = resplit_step(stage.operator, saved, groups, step=f"step {stage.step!r}")
        found |= {(stage.step, group): parts for group, parts in enumerate(saved)}
    return found


def key_groups_of(state: State) -> int:
    """Tell how many key groups a state is spread over; 0 where there is none."""
    return max((len(segments_of(state, step)) for step in steps_of(state)), default=0)
