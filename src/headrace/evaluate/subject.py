"""What an evaluation is about: jobs, with markers that make them answer and a load that gives them something to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.config import Settings
    from headrace.observe.recipes import Load, Markers, Recipe
    from headrace.registry import Registry
    from headrace.stream import Job


@dataclass(frozen=True)
class Subject:
    """Jobs that can be evaluated.

    Args:
        jobs: The jobs by name.
        markers: The markers of each.
        load: Writes the topics that they read.
        settings: Those that they run with.
    """

    jobs: dict[str, Job]
    markers: dict[str, Markers]
    load: Load
    settings: Settings

    def recipes(self) -> list[Recipe]:
        """The recipes of all jobs."""
        return [self.markers[name].recipe(name, self.settings) for name in self.jobs]


def with_markers(jobs: Sequence[Job], registry: Registry) -> list[Job]:
    """Choose the jobs that can be measured: those with latency markers. All of them, where none has any."""
    known = {name for markers in registry.things("markers").values() for name in markers.jobs}
    return [job for job in jobs if job.name in known] or list(jobs)


def markers_of(jobs: Sequence[Job], registry: Registry) -> dict[str, Markers]:
    """Find the latency markers of jobs.

    Raises:
        PlanError: A job has none.
    """
    known = {name: markers for markers in registry.things("markers").values() for name in markers.jobs}
    for job in jobs:
        if job.name not in known:
            raise PlanError(
                f"the job {job.name} has no latency marker",
                hint=f"There are markers for: {', '.join(sorted(known)) or 'no job'}. Name those by --jobs, or add "
                "markers for yours: docs/plugins.md (headrace.markers).",
            )
    return {job.name: known[job.name] for job in jobs}


def subject_of(jobs: Sequence[Job], registry: Registry) -> Subject:
    """Put together what it takes to evaluate jobs.

    Raises:
        PlanError: A job has no marker, or no load writes its topics.
    """
    markers = markers_of(jobs, registry)
    topics = {topic for job in jobs for topic in job.sources}
    loads: list[Load] = list(registry.things("loads").values())
    load = next((each for each in loads if topics <= set(each.topics)), None)
    if load is None:
        known = "; ".join(f"{each.name} writes {', '.join(each.topics)}" for each in loads) or "there are no loads"
        raise PlanError(
            f"no load writes {', '.join(sorted(topics))}",
            hint=f"{known}. docs/plugins.md says how to add one (headrace.loads).",
        )
    return Subject({job.name: job for job in jobs}, markers, load, registry.settings)
