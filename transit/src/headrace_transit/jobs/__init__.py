"""The jobs of the application, one short file each.

A job is found by being here: a module of this package with a `job` in it, or with a function `job` that makes one from
the settings. `docs/jobs.md` says how to add one.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from headrace.config import Settings
from headrace.errors import PlanError
from headrace.stream import Job


@cache
def all_jobs(settings: Settings | None = None) -> dict[str, Job]:
    """Give every job by its name.

    Args:
        settings: What jobs are made with that can be set; the defaults without it.

    >>> list(all_jobs())
    ['bunching', 'delay-distribution', 'emergency-stop-pattern', 'emergency-stop-sql', 'final-stop-distribution',
     'flow-direction', 'vehicle-distribution']

    Raises:
        PlanError: A module has no job, or two jobs have the same name.
    """
    jobs: dict[str, Job] = {}
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        job = getattr(importlib.import_module(module.name), "job", None)
        if callable(job):
            job = job(settings or Settings())
        if not isinstance(job, Job):
            raise PlanError(
                f"{module.name} has no job",
                hint="Let the module define `job = Job(...)`, or `def job(settings) -> Job`.",
            )
        if job.name in jobs:
            raise PlanError(f"{module.name} defines a second job {job.name!r}", hint="Give it another name.")
        jobs[job.name] = job
    return dict(sorted(jobs.items()))
