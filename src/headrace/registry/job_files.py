"""Jobs that are named by where they are: `jobs.py`, `jobs.py:late`, `parcels.jobs`, `parcels.jobs:late`.

The jobs of a file or a module are the `Job` objects at its top level, and what a function `job(settings)` in it makes.
A file is imported under its own name, with its directory on the path, as Python does with a script.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import ExitCode, HeadraceError, PlanError
from headrace.stream import Job

if TYPE_CHECKING:
    from types import ModuleType

    from headrace.config import Settings


class UnknownJobError(HeadraceError, LookupError):
    """There is no such file, module or job."""

    exit_code = ExitCode.USAGE


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


def load_jobs(word: str, settings: Settings) -> JobFile:
    """Load the jobs that a word names.

    Args:
        word: A path or a module, with `:NAME` behind it for one of its jobs.
        settings: What functions `job(settings)` are called with.

    Raises:
        UnknownJobError: There is no such file, module or job.
        PlanError: The code cannot be imported, or has no job or two of one name.
    """
    place, _, name = word.partition(":")
    module = _file(Path(place)) if place.endswith(".py") or "/" in place else _module(place)
    jobs = _jobs(module, place, settings)
    if not name:
        return JobFile(module, jobs, tuple(jobs.values()))
    found = jobs.get(name) or getattr(module, name, None)
    if not isinstance(found, Job):
        close = difflib.get_close_matches(name, jobs, n=1)
        guess = f"Did you mean {place}:{close[0]}? " if close else ""
        raise UnknownJobError(f"there is no job {name!r} in {place}", hint=f"{guess}Jobs there: {', '.join(jobs)}.")
    return JobFile(module, jobs, (found,))


def _file(path: Path) -> ModuleType:
    path = path.expanduser().absolute()
    if not path.is_file():
        raise UnknownJobError(f"there is no file {path}", hint="Give the path of a Python file with a `Job` in it.")
    name = path.stem
    known = sys.modules.get(name)
    if known is not None:
        if known.__file__ is not None and Path(known.__file__) == path:
            return known
        raise PlanError(f"{path} has the name of another module, {name!r}", hint="Rename the file.")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PlanError(f"{path} is not a Python file", hint="Give a file that ends in .py.")
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as problem:
        del sys.modules[name]
        raise _failed(str(path), problem) from problem
    return module


def _module(name: str) -> ModuleType:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
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


def _failed(place: str, problem: BaseException) -> PlanError:
    """Say where in the user's code an import failed."""
    frames = [each for each in traceback.extract_tb(problem.__traceback__) if "importlib" not in each.filename]
    last = next((each for each in reversed(frames) if Path(__file__).parent not in Path(each.filename).parents), None)
    where = f", at {last.filename}:{last.lineno}: {last.line}" if last is not None else ""
    if isinstance(problem, SyntaxError):
        where = f", at {problem.filename}:{problem.lineno}"
    return PlanError(f"{place} cannot be imported: {type(problem).__name__}: {problem}{where}", hint="Correct it.")


def _jobs(module: ModuleType, place: str, settings: Settings) -> dict[str, Job]:
    jobs: dict[str, Job] = {}
    for name, value in vars(module).items():
        job = value(settings) if name == "job" and callable(value) and not isinstance(value, Job) else value
        if not isinstance(job, Job):
            continue
        if jobs.setdefault(job.name, job) is not job:
            raise PlanError(f"{place} has two jobs named {job.name!r}", hint="Give one of them another name.")
    if not jobs:
        raise PlanError(f"there is no job in {place}", hint="Write `late = Job(...)` at the top level of it.")
    return jobs
