"""The jobs of the application, one short file each.

A job is found by being here: a module of this package with a `job` in it. `docs/jobs.md` says how to add one.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from headrace.errors import PlanError
from headrace.stream import Job


@cache
def all_jobs() -> dict[str, Job]:
    """Give every job by its name.

    >>> sorted(all_jobs())
    ['emergency-stop-pattern', 'emergency-stop-sql', 'vehicle-distribution']

    Raises:
        PlanError: A module has no job, or two jobs have the same name.
    """
    jobs: dict[str, Job] = {}
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        job = getattr(importlib.import_module(module.name), "job", None)
        if not isinstance(job, Job):
            raise PlanError(f"{module.name} has no job", hint="Let the module define `job = Job(...)`.")
        if job.name in jobs:
            raise PlanError(f"{module.name} defines a second job {job.name!r}", hint="Give it another name.")
        jobs[job.name] = job
    return dict(sorted(jobs.items()))
