"""Jobs that are named by where they are: `jobs.py`, `jobs.py:late`, `parcels.jobs`, `parcels.jobs:late`.

The jobs of a file or a module are the `Job` objects at its top level, and what a function `job(settings)` in it makes.
Behind the colon stands the name of one of these jobs, or of something at the top level of the module: a `Job`, a list
or a mapping of jobs, or a function that makes any of these from the settings. A file is imported under its own name,
with its directory on the path, as Python does with a script.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import ExitCode, HeadraceError, PlanError
from headrace.extras import explain
from headrace.stream import Job, Stream

if TYPE_CHECKING:
    from types import ModuleType

    from headrace.config import Settings


class UnknownJobError(HeadraceError, LookupError):
    """There is no such file, module or job."""

    exit_code = ExitCode.USAGE

    def __str__(self) -> str:
        return HeadraceError.__str__(self)


@dataclass(frozen=True)
class JobFile:
    """A module with jobs.

    Args:
        module: The module.
        jobs: Its jobs by name.
        chosen: Those that were asked for.
    """

    module: ModuleType
    jobs: dict[str, Job]
    chosen: tuple[Job, ...]


def is_job_file(word: str) -> bool:
    """Tell whether a word names a file or a module, and not only a job.

    >>> [is_job_file(word) for word in ("late", "jobs.py", "jobs.py:late", "parcels.jobs", "parcels:late")]
    [False, True, True, True, True]
    """
    return any(mark in word for mark in (".", ":", "/"))


def is_path(place: str) -> bool:
    """Tell whether the part before the colon is a path, and not the name of a module."""
    return place.endswith(".py") or "/" in place


def load_jobs(word: str, settings: Settings) -> JobFile:
    """Load the jobs that a word names.

    Args:
        word: A path or a module, with `:NAME` behind it for one of its jobs.
        settings: What functions that make jobs are called with.

    Raises:
        UnknownJobError: There is no such file, module or job.
        PlanError: The code cannot be imported, or has no job or two of one name.
    """
    place, _, name = word.partition(":")
    module = _file(Path(place)) if is_path(place) else _module(place, settings)
    jobs = _jobs_of(module, place, settings)
    if not name:
        if not jobs:
            raise PlanError(f"there is no job in {place}", hint="Write `late = Job(...)` at the top level of it.")
        return JobFile(module, jobs, tuple(jobs.values()))
    if name in jobs:
        return JobFile(module, jobs, (jobs[name],))
    if not hasattr(module, name):
        close = difflib.get_close_matches(name, jobs, n=1)
        guess = f"Did you mean {place}:{close[0]}? " if close else ""
        told = f"Jobs there: {', '.join(jobs)}." if jobs else "There is none in it."
        raise UnknownJobError(f"there is no job {name!r} in {place}", hint=f"{guess}{told}")
    found = _gathered(getattr(module, name), word, settings)
    return JobFile(module, {**jobs, **found}, tuple(found.values()))


def _file(path: Path) -> ModuleType:
    path = path.expanduser().resolve()
    if not path.is_file():
        raise UnknownJobError(f"there is no file {path}", hint="Give the path of a Python file with a `Job` in it.")
    name = path.stem
    known = sys.modules.get(name)
    if known is not None:
        if known.__file__ is not None and Path(known.__file__).resolve() == path.resolve():
            return known
        raise PlanError(f"{path} has the name of another module, {name!r}", hint="Rename the file.")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PlanError(f"{path} is not a Python file", hint="Give a file that ends in .py.")
    _put_on_path(path.parent)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as problem:
        del sys.modules[name]
        raise _failed(str(path), problem) from problem
    return module


def _module(name: str, settings: Settings) -> ModuleType:
    _put_on_path(settings.project)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as problem:
        if problem.name is None or not f"{name}.".startswith(f"{problem.name}."):
            raise _failed(name, problem) from problem
        raise UnknownJobError(
            f"there is no module {name!r}", hint="Give a path such as jobs.py, or run it in the project's directory."
        ) from problem
    except (Exception, SystemExit) as problem:
        raise _failed(name, problem) from problem


def _put_on_path(directory: Path) -> None:
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))


_LIBRARIES = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib"))


def _is_library(file: Path) -> bool:
    """Tell whether a file is of Headrace, of Python or of another package, and not the user's."""
    return any(place in file.resolve().parents for place in (Path(__file__).resolve().parents[1], *_LIBRARIES))


def _failed(place: str, problem: BaseException) -> HeadraceError:
    """Say where in the user's code something failed; a missing extra is told as such."""
    missing = explain(problem) if isinstance(problem, ModuleNotFoundError) else None
    if missing is not None:
        return missing
    if isinstance(problem, HeadraceError) and not isinstance(problem, PlanError):
        return problem
    frames = [each for each in traceback.extract_tb(problem.__traceback__) if "importlib" not in each.filename]
    theirs = [each for each in frames if each.line and not _is_library(Path(each.filename))]
    last = theirs[-1] if theirs else None
    where = f", at {last.filename}:{last.lineno}: {last.line}" if last is not None else ""
    if isinstance(problem, SyntaxError):
        where = f", at {problem.filename}:{problem.lineno}"
    hint = problem.hint if isinstance(problem, HeadraceError) else "Correct it."
    if isinstance(problem, TypeError) and "Job.__init__()" in str(problem):
        hint = 'A job has a name and a stream: Job("late", stream).'
    told = problem.message if isinstance(problem, HeadraceError) else f"{type(problem).__name__}: {problem}"
    return PlanError(f"{place} cannot be imported: {told}{where}", hint=hint)


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
            raise _failed(place, problem) from problem
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
