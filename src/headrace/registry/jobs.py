"""`JobRegistry`: which jobs there are, and which one a word means.

A project that names its jobs in headrace.toml (`jobs = ["jobs.py"]`) has those and no others. Elsewhere the jobs are
those of the installed packages (entry points `headrace.jobs`). By its place (`jobs.py:late`) any job can be named
anywhere.
"""

from __future__ import annotations

import difflib
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import MissingExtraError, PlanError
from headrace.plugins import Plugin, entry_points_of, is_path, load_plugin, origin_of
from headrace.plugins.plugin import without_doubles
from headrace.registry.job_files import JobFile, MakeCatalog, UnknownJobError, is_job_file, load_jobs
from headrace.streaming_sql.catalog import Catalog

if TYPE_CHECKING:
    from collections.abc import Iterable
    from importlib.metadata import EntryPoint

    from headrace.config import Settings
    from headrace.stream import Job


class JobRegistry:
    """The jobs of a project, or those of the installed packages.

    Args:
        settings: Say which file names the project's jobs; functions that make jobs are called with them.
        given: Jobs that the program adds; a job of theirs comes before one of the same name that is found.
        catalog: Makes the catalog that files of SQL begin with.
    """

    def __init__(self, settings: Settings, *, given: Iterable[Job] = (), catalog: MakeCatalog = Catalog) -> None:
        self._settings = settings
        self._catalog = catalog
        self._given = tuple(given)
        self._files: dict[str, JobFile] = {}

    @cached_property
    def plugins(self) -> tuple[Plugin, ...]:
        """Where the jobs come from, those that failed to load included."""
        found = self._project_plugins() if self._settings.jobs else self.installed()
        given = [
            Plugin("jobs", job.name, "the program", "the program", (job.name,), content=(job,)) for job in self._given
        ]
        return tuple(without_doubles([*given, *found]))

    @cached_property
    def jobs(self) -> dict[str, Job]:
        """All jobs that could be loaded, by name, in the order of their names."""
        found = {job.name: job for plugin in reversed(self.plugins) for job in plugin.content}
        return dict(sorted(found.items()))

    @property
    def failed(self) -> list[Plugin]:
        """What could not be loaded. A package whose extra is not installed was not meant to be."""
        excused = () if self._settings.jobs else (MissingExtraError,)
        return [
            plugin for plugin in self.plugins if plugin.problem is not None and not isinstance(plugin.problem, excused)
        ]

    def every(self) -> list[Job]:
        """All jobs.

        Raises:
            HeadraceError: One of them cannot be loaded: to leave it out silently would be wrong.
        """
        problems = [plugin.problem for plugin in self.plugins if plugin.problem is not None]
        if self.failed or (problems and not self.jobs):
            raise next(iter(plugin.problem for plugin in self.failed if plugin.problem), problems[0])
        if not self.jobs:
            raise UnknownJobError(
                "there are no jobs here",
                hint='`headrace new NAME` writes a project with one; in a project of yours jobs = ["jobs.py"] in '
                "headrace.toml names some, and `headrace run jobs.py` takes a file.",
            )
        return list(self.jobs.values())

    def find(self, words: Iterable[str]) -> list[Job]:
        """Find the jobs that words name, each once: by name, or by where they are.

        Raises:
            HeadraceError: There is no such job, file or module, or it cannot be imported.
        """
        found: dict[str, Job] = {}
        for word in words:
            for job in self._load(word).chosen if is_job_file(word) else (self._by_name(word),):
                if found.setdefault(job.name, job) is not job:
                    raise PlanError(f"two different jobs are named {job.name!r}", hint="Give one of them another name.")
        return list(found.values())

    def installed(self) -> tuple[Plugin, ...]:
        """Load the jobs of the installed packages."""
        return tuple(without_doubles([self._of_package(point) for point in entry_points_of("jobs")]))

    def _project_plugins(self) -> tuple[Plugin, ...]:
        origin = "the settings" if self._settings.file is None else str(self._settings.file)
        return tuple(without_doubles([self._of_word(word, origin) for word in self._settings.jobs]))

    def _of_package(self, point: EntryPoint) -> Plugin:
        return load_plugin("jobs", point.name, point.value, origin_of(point), lambda: _content(self._load(point.value)))

    def _of_word(self, word: str, origin: str) -> Plugin:
        place, _, name = word.partition(":")
        short = name or (Path(place).stem if is_path(place) else place)
        return load_plugin("jobs", short, word, origin, lambda: self._named_content(word, origin))

    def _named_content(self, word: str, origin: str) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        """Load what the project's file names; what is not there is told with the file, which may be what is wrong."""
        try:
            return _content(self._load(word))
        except UnknownJobError as problem:
            hint = f"{problem.hint} Or correct {origin}, which names it: jobs = [...]."
            raise UnknownJobError(problem.message, hint=hint) from problem

    def _load(self, word: str) -> JobFile:
        place, _, name = word.partition(":")
        base = str(Path(place).expanduser().resolve()) if is_path(place) else place
        key = f"{base}:{name}"
        if key not in self._files:
            # A function that makes jobs is called once, or `late` and `jobs.py:late` would be two jobs.
            whole = self._files.get(f"{base}:")
            if whole is not None and name in whole.jobs:
                return JobFile(whole.module, whole.jobs, (whole.jobs[name],))
            self._files[key] = load_jobs(word, self._settings, catalog=self._catalog)
        return self._files[key]

    def _by_name(self, name: str) -> Job:
        if name in self.jobs:
            return self.jobs[name]
        close = difflib.get_close_matches(name, self.jobs, n=1)
        guess = f"Did you mean {close[0]}? " if close else ""
        listed = f"Jobs: {', '.join(self.jobs)}." if self.jobs else 'Name some: jobs = ["jobs.py"] in headrace.toml.'
        lost = [plugin for plugin in self.plugins if plugin.problem is not None]
        unread = "".join(f"\n  {plugin.origin}: {plugin.problem}" for plugin in lost)
        what = f"there is no job {name!r}" + (f"; what could not be loaded:{unread}" if lost else "")
        raise UnknownJobError(what, hint=f"{guess}{listed}")


def _content(file: JobFile) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    return tuple(job.name for job in file.chosen), file.chosen
