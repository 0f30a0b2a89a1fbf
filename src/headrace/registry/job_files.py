"""Jobs that are named by where they are: `jobs.py`, `jobs.py:late`, `parcels.jobs`, `parcels.jobs:late`, `late.sql`.

The jobs of a file or a module are the `Job` objects at its top level, and what a function `job(settings)` in it makes.
Behind the colon stands the name of one of these jobs, or of something at the top level of the module: a `Job`, a list
or a mapping of jobs, or a function that makes any of these from the settings. A file is imported under its own name,
with its directory on the path, as Python does with a script.

Of a file of SQL each INSERT INTO is a job, named after the file, and its table where there are several.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from headrace.errors import PlanError
from headrace.plugins import UnknownPlaceError, import_place, load_failure
from headrace.stream import Job, Stream
from headrace.streaming_sql.catalog import Catalog
from headrace.streaming_sql.script_jobs import load_script
from headrace.streaming_sql.user_functions import function_at

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from headrace.config import Settings


class MakeCatalog(Protocol):
    """Makes the catalog that a file of SQL begins with."""

    def __call__(self, *, load: Callable[[str], Callable[..., Any]] | None = None) -> Catalog:
        """Make it; `load` gives the function that `'module:attribute'` names."""
        ...


class UnknownJobError(UnknownPlaceError):
    """There is no such file, module or job."""


@dataclass(frozen=True)
class JobFile:
    """A module or a file of SQL with jobs.

    Args:
        module: The module; None for a file of SQL.
        jobs: Its jobs by name.
        chosen: Those that were asked for.
    """

    module: ModuleType | None
    jobs: dict[str, Job]
    chosen: tuple[Job, ...]


def is_job_file(word: str) -> bool:
    """Tell whether a word names a file or a module, and not only a job.

    >>> [is_job_file(word) for word in ("late", "jobs.py", "jobs.py:late", "parcels.jobs", "parcels:late")]
    [False, True, True, True, True]
    """
    return any(mark in word for mark in (".", ":", "/"))


def is_sql_file(place: str) -> bool:
    """Tell whether a word names a file of SQL.

    >>> is_sql_file("jobs/late.sql"), is_sql_file("jobs.py")
    (True, False)
    """
    return place.lower().endswith(".sql")


def load_jobs(word: str, settings: Settings, *, catalog: MakeCatalog = Catalog) -> JobFile:
    """Load the jobs that a word names.

    Args:
        word: A path or a module, with `:NAME` behind it for one of its jobs.
        settings: What functions that make jobs are called with.
        catalog: Makes the catalog that a file of SQL begins with.

    Raises:
        UnknownJobError: There is no such file, module or job.
        PlanError: The code cannot be imported, or has no job or two of one name.
    """
    place, _, name = word.partition(":")
    if is_sql_file(place):
        return _load_sql(place, name, settings, catalog)
    try:
        module = import_place(place, settings.project)
    except UnknownPlaceError as problem:
        raise UnknownJobError(problem.message, hint=problem.hint) from problem
    jobs = _jobs_of(module, place, settings)
    if not name:
        if not jobs:
            raise PlanError(f"there is no job in {place}", hint="Write `late = Job(...)` at the top level of it.")
        return JobFile(module, jobs, tuple(jobs.values()))
    if name in jobs:
        return JobFile(module, jobs, (jobs[name],))
    if not hasattr(module, name):
        raise _unknown_job(name, place, jobs)
    found = _gathered(getattr(module, name), word, settings)
    return JobFile(module, {**jobs, **found}, tuple(found.values()))


def _load_sql(place: str, name: str, settings: Settings, make: MakeCatalog) -> JobFile:
    """Load the jobs of a file of SQL; its functions are looked for in the project and beside the file."""
    path = Path(place).expanduser()
    path = path if path.is_absolute() or path.is_file() else settings.project / path
    if not path.is_file():
        raise UnknownJobError(f"there is no file {path.resolve()}", hint="Give the path of a file of SQL.")
    catalog = make(load=partial(function_at, directories=(settings.project, path.resolve().parent)))
    jobs = load_script(path, catalog, name=path.stem)
    if not jobs:
        raise PlanError(f"there is no job in {place}", hint="Write INSERT INTO a table, followed by a SELECT.")
    if not name:
        return JobFile(None, jobs, tuple(jobs.values()))
    if name not in jobs:
        raise _unknown_job(name, place, jobs)
    return JobFile(None, jobs, (jobs[name],))


def _unknown_job(name: str, place: str, jobs: Mapping[str, Job]) -> UnknownJobError:
    close = difflib.get_close_matches(name, jobs, n=1)
    guess = f"Did you mean {place}:{close[0]}? " if close else ""
    told = f"Jobs there: {', '.join(jobs)}." if jobs else "There is none in it."
    return UnknownJobError(f"there is no job {name!r} in {place}", hint=f"{guess}{told}")


def _jobs_of(module: ModuleType, place: str, settings: Settings) -> dict[str, Job]:
    """Find the jobs at the top level of a module."""
    found: list[Job] = []
    for name, value in vars(module).items():
        if isinstance(value, Job):
            found.append(value)
        elif name == "job" and callable(value):
            found += _gathered(value, f"{place}:job", settings).values()
    return _by_name(found, place)


def _gathered(value: Any, place: str, settings: Settings) -> dict[str, Job]:
    """Take jobs as they may be given: one, several, or a function that makes them."""
    if callable(value) and not isinstance(value, Job):
        try:
            value = value(settings)
        except Exception as problem:
            raise load_failure(place, problem) from problem
    several = value.values() if isinstance(value, Mapping) else value
    found = list(several) if isinstance(several, Iterable) and not isinstance(several, str) else [value]
    for each in found:
        if not isinstance(each, Job):
            hint = 'Give it a name: Job("late", stream).' if isinstance(each, Stream) else "Let it be a `Job`."
            raise PlanError(f"{place} is a {type(each).__name__}, not a job", hint=hint)
    if not found:
        raise PlanError(f"there is no job in {place}", hint="Let it have at least one `Job`.")
    return _by_name(found, place)


def _by_name(found: Iterable[Job], place: str) -> dict[str, Job]:
    jobs: dict[str, Job] = {}
    for job in found:
        if jobs.setdefault(job.name, job) is not job:
            raise PlanError(f"{place} has two jobs named {job.name!r}", hint="Give one of them another name.")
    return jobs
