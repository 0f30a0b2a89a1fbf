"""Modules that are named by where they are: a path such as `jobs.py`, or a module such as `parcels.jobs`.

A file is imported under its own name, with its directory on the path, as Python does with a script. Whatever fails in
somebody else's code becomes an error that says which line of it failed.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import sysconfig
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import ExitCode, HeadraceError, PlanError, SchemaError
from headrace.extras import explain

if TYPE_CHECKING:
    from types import ModuleType


class UnknownPlaceError(HeadraceError, LookupError):
    """There is no such file or module."""

    exit_code = ExitCode.USAGE

    def __str__(self) -> str:
        return HeadraceError.__str__(self)


def is_path(place: str) -> bool:
    """Tell whether the part before the colon is a path, and not the name of a module."""
    return place.endswith((".py", ".sql")) or "/" in place


def import_place(place: str, project: Path) -> ModuleType:
    """Import a file or a module.

    Args:
        place: Its path or its name.
        project: A directory to look for modules in, besides Python's path.

    Raises:
        UnknownPlaceError: There is none.
        HeadraceError: It cannot be imported.
    """
    return _file(Path(place)) if is_path(place) else _module(place, project)


def _file(path: Path) -> ModuleType:
    path = path.expanduser().resolve()
    if not path.is_file():
        raise UnknownPlaceError(f"there is no file {path}", hint="Give the path of a Python file.")
    name = path.stem
    known = sys.modules.get(name)
    if known is not None:
        if known.__file__ is not None and Path(known.__file__).resolve() == path.resolve():
            return known
        raise PlanError(f"{path} has the name of another module, {name!r}", hint="Rename the file.")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PlanError(f"{path} is not a Python file", hint="Give a file that ends in .py.")
    put_on_path(path.parent)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as problem:
        del sys.modules[name]
        raise load_failure(str(path), problem) from problem
    return module


def _module(name: str, project: Path) -> ModuleType:
    put_on_path(project)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as problem:
        if problem.name is None or not f"{name}.".startswith(f"{problem.name}."):
            raise load_failure(name, problem) from problem
        raise UnknownPlaceError(
            f"there is no module {name!r}", hint="Give a path such as jobs.py, or run it in the project's directory."
        ) from problem
    except (Exception, SystemExit) as problem:
        raise load_failure(name, problem) from problem


def put_on_path(directory: Path) -> None:
    """Let modules of a directory be imported."""
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))


_OURS = Path(__file__).resolve().parents[1]
_LIBRARIES = tuple(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib"))


def _is_library(file: Path) -> bool:
    """Tell whether a file is of Python or of an installed package, and not the user's."""
    return any(place in file.resolve().parents for place in _LIBRARIES)


def load_failure(place: str, problem: BaseException) -> HeadraceError:
    """Make the error that says where in somebody's code something failed; a missing extra is named as such.

    Args:
        place: What was to be loaded.
        problem: What it raised.
    """
    missing = explain(problem) if isinstance(problem, ModuleNotFoundError) else None
    if missing is not None:
        return missing
    if isinstance(problem, HeadraceError) and not isinstance(problem, PlanError | SchemaError):
        return problem
    frames = [each for each in traceback.extract_tb(problem.__traceback__) if "importlib" not in each.filename]
    # The line of the user's own code; of a package that is installed, the line in it.
    outside = [each for each in frames if each.line and _OURS not in Path(each.filename).resolve().parents]
    theirs = [each for each in outside if not _is_library(Path(each.filename))] or outside
    last = theirs[-1] if theirs else None
    where = f", at {last.filename}:{last.lineno}: {last.line}" if last is not None else ""
    if isinstance(problem, SyntaxError):
        where = f", at {problem.filename}:{problem.lineno}"
    hint = problem.hint if isinstance(problem, HeadraceError) else "Correct it."
    if isinstance(problem, ModuleNotFoundError) and problem.name:
        hint = f"Install what brings {problem.name} into this environment ({sys.prefix}), or correct the name."
    if isinstance(problem, TypeError) and "Job.__init__()" in str(problem):
        hint = 'A job has a name and a stream: Job("late", stream).'
    told = problem.message if isinstance(problem, HeadraceError) else f"{type(problem).__name__}: {problem}"
    return PlanError(f"{place} cannot be imported: {told}{where}", hint=hint)
