"""Plug-ins: what other packages and a project bring along, each with where it came from.

A package offers something by an entry point in the group of its kind (`headrace.formats`), a project by a list at the
top of its headrace.toml (`formats = ["parcels.formats:semicolons"]`). What cannot be loaded is kept with its problem,
and the others go on: a package that is broken, or that needs an extra that is not installed, must not keep a user from
running what is not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError, PlanError
from headrace.plugins.modules import import_place, is_path, load_failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of thing that can be added.

    Args:
        doc: What these things are.
        is_made: Whether a function in place of such a thing is called, and gives one or several of them.
        in_file: Whether a project's headrace.toml may name some.
    """

    doc: str
    is_made: bool = True
    in_file: bool = True


#: What can be added. The group of entry points of a kind is `headrace.<kind>`.
KINDS: dict[str, Kind] = {
    "jobs": Kind("jobs that can be run by their names"),
    "topics": Kind("source topics as `headrace run` and `headrace topics create` make them"),
    "formats": Kind("formats of records that others write", is_made=False),
    "types": Kind("message types of events in the envelope", is_made=False),
    "connectors": Kind("sources of raw messages that a file of feeds may name", is_made=False),
    "processors": Kind("makers of events from raw messages that a file of feeds may name", is_made=False),
    "sinks": Kind("sinks that a program makes by name, and a table of SQL by 'connector'", is_made=False),
    "functions": Kind("functions that queries of SQL may call", is_made=False),
    "settings": Kind("sections of headrace.toml", is_made=False),
    "commands": Kind("commands of the command line", is_made=False, in_file=False),
    "markers": Kind("latency markers of jobs, for `headrace latency` and `headrace evaluate`", is_made=False),
    "loads": Kind("generators of load, for `headrace evaluate`", is_made=False),
    "pages": Kind("what the live page shows beside results: a base map, places", is_made=False),
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
        content: What it brings, in the order of the names.
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
        return Plugin(kind, name, place, origin, problem=load_failure(place, problem))
    return Plugin(kind, name, place, origin, provides, content=content)


def find_plugins(
    kind: str,
    check: Callable[[str, Any], str],
    *,
    words: Iterable[str] = (),
    origin: str = "the settings",
    project: Path | None = None,
) -> list[Plugin]:
    """Load all plug-ins of a kind: those that a project names, and those of the installed packages.

    Of two that bring something of the same name the first one has it, a project's before a package's, and the other one
    is kept as broken.

    Args:
        kind: One of `KINDS`, but not jobs, which have more ways to be named.
        check: Says what an object of the plug-in of a name is called, or raises a `HeadraceError`.
        words: What a project's file names: `parcels.formats:semicolons`, `formats.py:semicolons`.
        origin: The file.
        project: The project's directory.
    """
    home = Path.cwd() if project is None else project
    named = [
        load_plugin(kind, _short(word), word, origin, lambda word=word: _content(kind, _short(word), word, home, check))  # type: ignore[misc]
        for word in words
    ]
    packaged = [
        load_plugin(
            kind,
            point.name,
            point.value,
            origin_of(point),
            lambda point=point: _content(kind, point.name, point.value, home, check),  # type: ignore[misc]
        )
        for point in entry_points_of(kind)
    ]
    return without_doubles([*named, *packaged])


def without_doubles(plugins: Iterable[Plugin]) -> list[Plugin]:
    """Let the first of two things of one name have it, and call the other plug-in broken."""
    owners: dict[str, Plugin] = {}
    checked: list[Plugin] = []
    for plugin in plugins:
        brought = dict(zip(plugin.provides, plugin.content, strict=True))
        taken = [
            name
            for name, thing in brought.items()
            if name in owners and not any(thing is other for other in owners[name].content)
        ]
        if taken:
            first = owners[taken[0]]
            problem = PlanError(
                f"{plugin.place} has a {plugin.kind.removesuffix('s')} {taken[0]!r}, as {first.place} of "
                f"{first.origin} has",
                hint="Give one of them another name.",
            )
            checked.append(Plugin(plugin.kind, plugin.name, plugin.place, plugin.origin, problem=problem))
            continue
        owners |= dict.fromkeys(plugin.provides, plugin)
        checked.append(plugin)
    return checked


def _short(word: str) -> str:
    place, _, name = word.partition(":")
    return name or (Path(place).stem if is_path(place) else place)


def _content(
    kind: str, name: str, word: str, project: Path, check: Callable[[str, Any], str]
) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    place, _, attribute = word.partition(":")
    module = import_place(place, project)
    if not attribute:
        raise PlanError(f"{word} names a module, and nothing in it", hint=f"Write {place}:NAME.")
    thing: Any = module
    for part in attribute.split("."):
        if not hasattr(thing, part):
            raise PlanError(f"there is no {attribute!r} in {place}", hint="Correct the name behind the colon.")
        thing = getattr(thing, part)
    if KINDS[kind].is_made and callable(thing):
        thing = thing()
    several = tuple(thing) if isinstance(thing, list | tuple) else (thing,)
    return tuple(check(name, each) for each in several), several
