"""Plug-ins: what other packages and the project bring along, each with where it came from.

A package offers something by an entry point in one of the groups `headrace.jobs` and `headrace.topics`. One that cannot
be loaded is kept with its problem, and the others go on: a package that is broken, or that needs an extra that is not
installed, must not keep a user from running what is not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError, PlanError
from headrace.extras import explain

if TYPE_CHECKING:
    from collections.abc import Callable

#: What can be added, with what it is. The group of a kind is `headrace.<kind>`.
KINDS = {
    "jobs": "jobs that can be run by their names",
    "topics": "source topics as `headrace run` and `headrace topics create` make them",
}


@dataclass(frozen=True)
class Plugin:
    """Something that was found, loaded or not.

    Args:
        kind: One of `KINDS`.
        name: What it is called.
        place: Where its code is: `parcels.jobs:late`.
        origin: Who named it: a package with its version, or the settings file.
        provides: The names of what it brings.
        problem: Why it cannot be used; None if it can.
    """

    kind: str
    name: str
    place: str
    origin: str
    provides: tuple[str, ...] = ()
    problem: HeadraceError | None = None
    content: tuple[Any, ...] = field(default=(), repr=False, compare=False)


def entry_points_of(kind: str) -> list[EntryPoint]:
    """List the entry points of a kind, by name and package."""
    return sorted(entry_points(group=f"headrace.{kind}"), key=lambda point: (point.name, point.value))


def origin_of(point: EntryPoint) -> str:
    """Say which package has an entry point."""
    return "an unknown package" if point.dist is None else f"{point.dist.name} {point.dist.version}"


def load_plugin(
    kind: str, name: str, place: str, origin: str, load: Callable[[], tuple[tuple[str, ...], tuple[Any, ...]]]
) -> Plugin:
    """Load something, and keep what went wrong.

    Args:
        kind: One of `KINDS`.
        name: What it is called.
        place: Where its code is.
        origin: Who named it.
        load: Gives the names of what it brings, and what it brings.
    """
    try:
        provides, content = load()
    except HeadraceError as problem:
        return Plugin(kind, name, place, origin, problem=problem)
    except (Exception, SystemExit) as problem:  # noqa: BLE001 - whatever a plug-in raises is its own failure, and told
        missing = explain(problem) if isinstance(problem, ModuleNotFoundError) else None
        told = missing or PlanError(
            f"{place} cannot be loaded: {type(problem).__name__}: {problem}", hint="Correct it."
        )
        return Plugin(kind, name, place, origin, problem=told)
    return Plugin(kind, name, place, origin, provides, content=content)


def find_objects(kind: str) -> list[Plugin]:
    """Load what packages bring of a kind: each entry point names an object, a list of them, or a function for these.

    Args:
        kind: One of `KINDS`.
    """
    return [
        load_plugin(kind, point.name, point.value, origin_of(point), lambda point=point: _objects(point))  # type: ignore[misc]
        for point in entry_points_of(kind)
    ]


def _objects(point: EntryPoint) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    found = point.load()
    found = found() if callable(found) else found
    several = tuple(found) if isinstance(found, list | tuple) else (found,)
    return tuple(str(getattr(each, "name", each)) for each in several), several
