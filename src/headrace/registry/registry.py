"""`Registry`: everything that can be added to Headrace, in one object that every command asks.

It is filled in this order, and the first of two things of one name has it: what a program hands over, what the
project's headrace.toml names, what installed packages offer by entry points. Jobs are an exception: a project that
names its jobs has those and no others. Nothing is loaded before somebody asks for its kind.
"""

from __future__ import annotations

import difflib
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from headrace.errors import PlanError
from headrace.events.registry import TypeRegistry
from headrace.formats.format import Format
from headrace.plugins import KINDS, Plugin, find_plugins
from headrace.plugins.plugin import load_plugin, without_doubles
from headrace.registry.jobs import JobRegistry
from headrace.registry.kinds import check
from headrace.sinks.contract import Sink
from headrace.streaming_sql.catalog import Catalog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from headrace.config import Settings
    from headrace.stream import Job

_PROGRAM = "the program"


class Registry:
    """Everything that can be added: by packages, by the project's file, and by the program itself.

    Args:
        settings: Those of the project.
        jobs: Jobs beside those that are found.
        given: By kind, what the program adds: a mapping from names where things have no name of their own (formats,
            sinks), else any iterable.

    >>> from headrace.config import Settings
    >>> from headrace.formats import text
    >>> registry = Registry(Settings(), formats={"lines": text()})
    >>> registry.format("lines") == text()
    True
    """

    def __init__(
        self, settings: Settings, *, jobs: Iterable[Job] = (), **given: Iterable[Any] | Mapping[str, Any]
    ) -> None:
        unknown = [kind for kind in given if kind not in KINDS or kind in ("settings", "commands")]
        if unknown:
            raise TypeError(f"Registry() has no {unknown[0]!r}; there are: {', '.join(KINDS)}")
        self._settings = settings
        self._given = given
        self._jobs = JobRegistry(settings, given=jobs, catalog=self.catalog)
        self._found: dict[str, tuple[Plugin, ...]] = {}

    @property
    def settings(self) -> Settings:
        """The settings of the project."""
        return self._settings

    def plugins_of(self, kind: str) -> tuple[Plugin, ...]:
        """Find what was added of a kind, and from where; what could not be loaded is among it.

        Args:
            kind: One of `headrace.plugins.KINDS`.
        """
        if kind == "jobs":
            return self._jobs.plugins
        if kind == "settings":
            return self._settings.section_plugins
        if kind not in self._found:
            found = find_plugins(
                kind,
                check(kind),
                words=self._settings.words(kind),
                origin="the settings" if self._settings.file is None else str(self._settings.file),
                project=self._settings.project,
            )
            self._found[kind] = tuple(without_doubles([*self._from_program(kind), *found]))
        return self._found[kind]

    @property
    def plugins(self) -> list[Plugin]:
        """Everything that was found, kind by kind. This loads all of it."""
        return [plugin for kind in KINDS for plugin in self.plugins_of(kind)]

    def things(self, kind: str) -> dict[str, Any]:
        """Give what was added of a kind, by name.

        Args:
            kind: One of `headrace.plugins.KINDS`.
        """
        found = self.plugins_of(kind)
        return {name: thing for plugin in found for name, thing in zip(plugin.provides, plugin.content, strict=True)}

    # --- jobs

    @property
    def jobs(self) -> dict[str, Job]:
        """All jobs that could be loaded, by name, in the order of their names."""
        return self._jobs.jobs

    @property
    def failed_jobs(self) -> list[Plugin]:
        """The plug-ins of jobs that could not be loaded. A package whose extra is not installed was not meant to be."""
        return self._jobs.failed

    @property
    def unused_jobs(self) -> list[Plugin]:
        """The jobs of installed packages, where a project names its own and has no others."""
        return list(self._jobs.installed()) if self._settings.jobs else []

    def every(self) -> list[Job]:
        """All jobs.

        Raises:
            HeadraceError: One of them cannot be loaded: to leave it out silently would be wrong.
        """
        return self._jobs.every()

    def find(self, words: Iterable[str]) -> list[Job]:
        """Find the jobs that words name, each once: by name, or by where they are (`jobs.py:late`).

        Raises:
            HeadraceError: There is no such job, file or module, or it cannot be imported.
        """
        return self._jobs.find(words)

    # --- what decodes

    @property
    def types(self) -> TypeRegistry:
        """The message types of the envelope: Headrace's own and those that were added."""
        return TypeRegistry(*self.things("types").values())

    def format(self, name: str, **options: Any) -> Format:
        """Give a format by its name.

        Args:
            name: The name.
            options: What it is made with, if it is made.

        Raises:
            PlanError: There is none of this name, or it cannot be made so.
        """
        made: Format = self._made("formats", name, Format, options)
        return made

    # --- where results go, and what SQL knows

    def sink(self, name: str, **options: Any) -> Sink:
        """Give a sink by its name.

        Args:
            name: The name.
            options: What it is made with, if it is made.

        Raises:
            PlanError: There is none of this name, or it cannot be made so.
        """
        made: Sink = self._made("sinks", name, Sink, options)
        return made

    def catalog(self, *, load: Callable[[str], Callable[..., Any]] | None = None) -> Catalog:
        """Make a catalog of SQL that knows the formats, sinks and functions that were added.

        Args:
            load: Gives the function that `'module:attribute'` of CREATE FUNCTION names.
        """
        made = Catalog(
            formats={name: partial(self.format, name) for name in self.things("formats")},
            sinks={name: partial(self.sink, name) for name in self.things("sinks")},
            load=load,
            types=lambda name: self.types.get(name).message_class,
        )
        for name, function in self.things("functions").items():
            made.add_function(name, function)
        return made

    def one_of(self, kind: str, name: str) -> Any:
        """Give one thing of a kind by its name.

        Args:
            kind: One of `headrace.plugins.KINDS`.
            name: The name.

        Raises:
            PlanError: There is none of this name; the message names what is there, and what failed to load.
        """
        known = self.things(kind)
        if name in known:
            return known[name]
        word = kind.removesuffix("s")
        lost = [plugin for plugin in self.plugins_of(kind) if plugin.problem is not None]
        unread = "".join(f"\n  {plugin.place} of {plugin.origin}: {plugin.problem}" for plugin in lost)
        what = f"there is no {word} {name!r}" + (f"; what could not be loaded:{unread}" if lost else "")
        close = difflib.get_close_matches(name, known, n=1)
        guess = f"Did you mean {close[0]}? " if close else ""
        raise PlanError(what, hint=f"{guess}There are: {', '.join(sorted(known)) or 'none'}. See `headrace plugins`.")

    def _made(self, kind: str, name: str, base: type, options: Mapping[str, Any]) -> Any:
        """Give what is called so, made with options where it is a class or a function."""
        word = kind.removesuffix("s")
        made = self.one_of(kind, name)
        if isinstance(made, base):
            if options:
                raise PlanError(f"the {word} {name!r} takes no options", hint="Leave them out.")
            return made
        try:
            chosen = cast("Callable[..., object]", made)(**options)
        except TypeError as problem:
            raise PlanError(
                f"the {word} {name!r} cannot be made: {problem}", hint="Give what it asks for."
            ) from problem
        if not isinstance(chosen, base):
            raise PlanError(
                f"the {word} {name!r} made a {type(chosen).__name__}", hint=f"Let it make a {base.__name__}."
            )
        return chosen

    def _from_program(self, kind: str) -> list[Plugin]:
        given = self._given.get(kind, ())
        named = given.items() if hasattr(given, "items") else ((getattr(each, "__name__", ""), each) for each in given)

        def load(name: str, thing: Any) -> tuple[tuple[str, ...], tuple[Any, ...]]:
            return (check(kind)(name, thing),), (thing,)

        found = []
        for name, thing in named:
            plugin = load_plugin(kind, name, _PROGRAM, _PROGRAM, lambda name=name, thing=thing: load(name, thing))  # type: ignore[misc]
            if plugin.problem is not None:
                raise plugin.problem
            found.append(plugin)
        return found
