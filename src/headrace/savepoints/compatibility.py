"""What a changed job can do with the state of an earlier version, step by step, before anything is started."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from headrace.engine.compatibility import column_types, fit
from headrace.engine.operator import Resplitting
from headrace.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from headrace.savepoints.manifest import JobEntry, StepEntry
    from headrace.savepoints.state import Snapshot
    from headrace.stream.stages import Pipeline, Stage

Action = Literal["keep", "migrate", "new", "drop", "reset", "impossible"]


@dataclass(frozen=True)
class StepPlan:
    """What becomes of the state of one step.

    Args:
        job: Its job.
        step: Its name.
        action: "keep": as it is; "migrate": in today's form; "new": it begins without; "drop": the job no longer has
            the step; "reset": forgotten on request; "impossible": it cannot be read.
        detail: What has changed, in words.
        hint: What to do, where it is impossible.
    """

    job: str
    step: str
    action: Action
    detail: str = ""
    hint: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Give it as JSON values."""
        return asdict(self)


def plan_job(
    name: str,
    pipeline: Pipeline,
    known: Sequence[StepEntry],
    *,
    key_groups: int | None = None,
    reset: Collection[str] = (),
) -> list[StepPlan]:
    """Compare a job with the state that there is of it.

    Args:
        name: The name of the job.
        pipeline: What it is now.
        known: Its steps as they were saved.
        key_groups: How many key groups there shall be; as before if not given.
        reset: Names of steps whose state may be forgotten.
    """
    saved = {entry.step: entry for entry in known}
    steps = [stage.step for stage in pipeline.stages]
    plans = []
    for stage in pipeline.stages:
        entry = saved.get(stage.step)
        if entry is None:
            plans.append(StepPlan(name, stage.step, "new", "it begins without state"))
        elif stage.step in reset:
            plans.append(StepPlan(name, stage.step, "reset", "its state is forgotten, as you asked"))
        else:
            plans.append(_plan_step(name, stage, entry, key_groups))
    gone = [step for step in saved if step not in steps]
    begins = [plan.step for plan in plans if plan.action == "new"]
    for step in gone:
        if begins and step not in reset:
            detail = f"the job no longer has this step, and has {', '.join(map(repr, begins))} instead"
            hint = f'If it is the same step, name it: .named("{step}"). If not: --reset-step {step}.'
            plans.append(StepPlan(name, step, "impossible", detail, hint))
        else:
            plans.append(StepPlan(name, step, "drop", "the job no longer has this step: its state is forgotten"))
    return plans


def _plan_step(job: str, stage: Stage, entry: StepEntry, key_groups: int | None) -> StepPlan:
    types = column_types(stage.schema, [each.schema for each in stage.inputs[1:]])
    reset = f'Undo the change; or .named("...") gives the step another name; or --reset-step {stage.step}.'
    if entry.shape:
        found = fit(stage.operator, entry.shape, entry.columns, types)
    else:
        return StepPlan(job, stage.step, "keep", "it has no state yet")
    changes = list(found.changes)
    if not found.fits:
        return StepPlan(job, stage.step, "impossible", "; ".join(changes), reset)
    if key_groups is not None and key_groups != entry.key_groups:
        changes.append(f"from {entry.key_groups} to {key_groups} key groups")
        if not isinstance(stage.operator, Resplitting):
            hint = f"Go on with {entry.key_groups} key groups (--set spark.key_groups={entry.key_groups})."
            return StepPlan(job, stage.step, "impossible", f"{changes[-1]}, which its operator cannot do", hint)
    return StepPlan(job, stage.step, "migrate" if changes else "keep", "; ".join(changes))


def plan_jobs(
    pipelines: Mapping[str, Pipeline],
    known: Iterable[JobEntry],
    *,
    key_groups: int | None = None,
    reset: Collection[str] = (),
) -> list[StepPlan]:
    """Compare jobs with the state that there is; jobs that are not run keep theirs.

    Args:
        pipelines: The jobs, by name.
        known: The jobs as they were saved.
        key_groups: How many key groups there shall be; as before if not given.
        reset: Names of steps whose state may be forgotten.
    """
    saved = {entry.job: entry for entry in known}
    plans: list[StepPlan] = []
    for name, pipeline in pipelines.items():
        steps = saved[name].steps if name in saved else ()
        plans += plan_job(name, pipeline, steps, key_groups=key_groups, reset=reset)
    for name, entry in saved.items():
        if name not in pipelines:
            plans += [
                StepPlan(name, step.step, "keep", "the job is not run: its state is kept, and it catches up later")
                for step in entry.steps
            ]
    return plans


def check_possible(plans: Iterable[StepPlan], *, where: str) -> None:
    """Refuse what cannot be.

    Args:
        plans: What becomes of the steps.
        where: Names what has the state.

    Raises:
        StateError: The state of a step cannot be read.
    """
    refused = [plan for plan in plans if plan.action == "impossible"]
    if refused:
        told = "; ".join(f"step {plan.step!r} of {plan.job}: {plan.detail}" for plan in refused)
        raise StateError(f"the state in {where} does not fit: {told}", hint=refused[0].hint)


def fitted(pipeline: Pipeline, snapshot: Snapshot) -> Snapshot:
    """Make a snapshot fit a job that has other steps: without those that are gone, empty for those that are new.

    Args:
        pipeline: The job.
        snapshot: What a runner of an earlier version gave.
    """
    groups = max((len(parts) for parts in snapshot.values()), default=1)
    return {stage.step: snapshot.get(stage.step) or [{} for _ in range(groups)] for stage in pipeline.stages}
