"""Slots: the numbers by which Spark knows the steps of jobs.

Spark groups by a number: `slot * key groups + key group`. A slot stands for one step of one job, so a step's state is
found by the names of the two, which the checkpoint keeps beside the slot; a slot is never given to another step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.stream.pipeline import Pipeline


@dataclass(frozen=True)
class Slots:
    """The slots of a query.

    Args:
        groups: Key groups per step.
        jobs: The jobs in their order, each with the slots of its stages.

    >>> slots = Slots(4, (("counts", (0, 2)), ("stops", (5,))))
    >>> slots.number("counts", 1, 3), slots.place(11), slots.job_number(11)
    (11, (0, 1, 3), 0)
    """

    groups: int
    jobs: tuple[tuple[str, tuple[int, ...]], ...]
    _places: dict[int, tuple[int, int]] = field(init=False, repr=False, compare=False)
    _jobs: dict[str, tuple[int, ...]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        places = {slot: (job, stage) for job, (_, slots) in enumerate(self.jobs) for stage, slot in enumerate(slots)}
        object.__setattr__(self, "_places", places)
        object.__setattr__(self, "_jobs", dict(self.jobs))

    @classmethod
    def numbered(
        cls, pipelines: Mapping[str, Pipeline], groups: int, known: Mapping[tuple[str, str], int] | None = None
    ) -> Slots:
        """Give the stages of some jobs their slots.

        Args:
            pipelines: The jobs' pipelines, by name.
            groups: Key groups per step.
            known: The slots of steps, by job and step; None: they are counted through.
        """
        steps = [(job, stage.step) for job, pipeline in pipelines.items() for stage in pipeline.stages]
        slots = {step: number for number, step in enumerate(steps)} if known is None else known
        return cls(
            groups,
            tuple(
                (job, tuple(slots[job, stage.step] for stage in pipeline.stages)) for job, pipeline in pipelines.items()
            ),
        )

    @property
    def count(self) -> int:
        """One more than the greatest number that Spark may group by."""
        return self.groups * (1 + max(self._places))

    def number(self, job: str, stage: int, group: int) -> int:
        """Tell what Spark groups by for a key group of a stage."""
        return self._jobs[job][stage] * self.groups + group

    def first(self, job: int) -> int:
        """Tell a number of a job that is always there."""
        return self.jobs[job][1][0] * self.groups

    def place(self, number: int) -> tuple[int, int, int]:
        """Tell the job, the stage and the key group of a number; both jobs and stages are counted."""
        slot, group = divmod(number, self.groups)
        job, stage = self._places[slot]
        return job, stage, group

    def job_number(self, number: int) -> int:
        """Tell which job, counted in their order, a number belongs to."""
        return self._places[number // self.groups][0]
