"""`Settings`: all settings, checked as a whole, each with its origin."""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from headrace.config.sections import (
    KEYS,
    SECTIONS,
    BrokerSettings,
    DashboardSettings,
    PathSettings,
    Section,
    Setting,
    SparkSettings,
    describe,
)
from headrace.config.sources import DEFAULT, JOBS, Found, Origin, config_error, file_to_read, read_document, unknown_key
from headrace.errors import PlanError
from headrace.plugins import Plugin, find_plugins

if TYPE_CHECKING:
    from collections.abc import Mapping


SectionT = TypeVar("SectionT", bound=Section)


@dataclass(frozen=True, slots=True)
class _Sources:
    origins: dict[str, Origin]
    file: Path | None
    plugins: tuple[Plugin, ...]


class Settings(BaseModel):
    """All settings, checked, each with its origin.

    >>> settings = Settings.load(environ={"HEADRACE_SPARK__KEY_GROUPS": "8"}, directory=Path("/nowhere"))
    >>> settings.spark.key_groups, str(settings.origin("spark.key_groups"))
    (8, 'environment HEADRACE_SPARK__KEY_GROUPS')
    >>> settings.spark.state_partitions, str(settings.origin("spark.state_partitions"))
    (2, 'default')
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    broker: BrokerSettings = Field(default_factory=BrokerSettings)
    spark: SparkSettings = Field(default_factory=SparkSettings)
    dashboard: DashboardSettings = Field(default_factory=DashboardSettings)
    paths: PathSettings = Field(default_factory=PathSettings)
    jobs: tuple[str, ...] = ()
    """The files and modules with the project's jobs, from `jobs = [...]` at the top of the file."""
    added: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """What else the project adds, by kind, from such lists as `formats = [...]` at the top of the file."""
    sections: tuple[Section, ...] = ()
    """The sections that plug-ins add, as far as they are not left to their defaults."""

    _origins: dict[str, Origin] = PrivateAttr(default_factory=dict)
    _file: Path | None = PrivateAttr(default=None)
    _plugins: tuple[Plugin, ...] = PrivateAttr(default=())

    @classmethod
    def load(
        cls,
        *,
        file: Path | None = None,
        environ: Mapping[str, str] | None = None,
        flags: Mapping[str, tuple[object, str]] | None = None,
        directory: Path | None = None,
    ) -> Settings:
        """Read all sources and check them.

        Args:
            file: The file to read; without it `HEADRACE_CONFIG`, then `headrace.toml` in the directory if it is there.
            environ: Environment variables; those of the process without it.
            flags: Key to (value, name of the flag); a value of None means that the flag was not given.
            directory: The working directory.
        """
        environ = os.environ if environ is None else environ
        directory = Path.cwd() if directory is None else directory
        path = file_to_read(file, environ, directory)
        document = None if path is None else read_document(path)
        words = () if document is None else document.words("settings")
        plugins = find_sections(words, path, directory)
        models = {**SECTIONS, **{model.section: model for plugin in plugins for model in plugin.content}}
        found = Found(directory, models, failed=[plugin for plugin in plugins if plugin.problem is not None])
        found.read_defaults(environ)
        if document is not None:
            found.read_file(document)
        found.read_environment(environ)
        for key, (value, flag) in (flags or {}).items():
            if value is not None:
                found.put(key, value, Origin("flag", flag), directory)
        problems = list(found.problems)
        if problems:
            raise config_error(problems)
        sections = []
        for name, model in models.items():
            if name not in SECTIONS:
                try:
                    sections.append(model.model_validate(found.values.pop(name, {})))
                except ValidationError as error:
                    problems += found.explain(error, section=name)
        given = {**found.values, JOBS: found.jobs, "added": tuple(sorted(found.added.items())), "sections": sections}
        try:
            settings = cls.model_validate(given, context=_Sources(found.origins, path, tuple(plugins)))
        except ValidationError as error:
            problems += found.explain(error)
        if problems:
            raise config_error(problems)
        return settings

    def model_post_init(self, context: Any, /) -> None:
        """Remember the sources that `load` passes along."""
        if isinstance(context, _Sources):
            self._origins, self._file, self._plugins = context.origins, context.file, context.plugins

    if not TYPE_CHECKING:  # for a type checker the sections that plug-ins add are no attributes

        def __getattr__(self, name: str) -> Any:
            """Find a section of a plug-in by its name, as it was while Headrace had it: for one release."""
            found = next((each for each in self.__dict__.get("sections", ()) if each.section == name), None)
            if found is None:
                return super().__getattr__(name)
            home = f"{type(found).__module__}.{type(found).__name__}"
            warnings.warn(
                f"settings.{name} goes with the next release; write settings.section({home})",
                DeprecationWarning,
                stacklevel=2,
            )
            return found

    @property
    def file(self) -> Path | None:
        """The file that was read, if there was one."""
        return self._file

    @property
    def project(self) -> Path:
        """The directory of the project: that of the file, or the working directory without one."""
        return Path.cwd() if self._file is None else self._file.absolute().parent

    @property
    def section_plugins(self) -> tuple[Plugin, ...]:
        """The sections that plug-ins add, those that failed to load included."""
        return self._plugins

    @property
    def keys(self) -> dict[str, Setting]:
        """Every setting there is, by its key: Headrace's own, then those of plug-ins."""
        return {**KEYS, **describe({each.section: type(each) for each in self.sections})}

    def section(self, model: type[SectionT]) -> SectionT:
        """Give a section that a plug-in adds; with its defaults where nothing of it is set.

        Args:
            model: Its class.
        """
        return next((each for each in self.sections if isinstance(each, model)), None) or model()

    def words(self, kind: str) -> tuple[str, ...]:
        """Tell what the project's file adds of a kind: `module:attribute`, or `path.py:attribute`.

        Args:
            kind: One of `headrace.plugins.KINDS`.
        """
        return self.jobs if kind == JOBS else dict(self.added).get(kind, ())

    def origin(self, key: str) -> Origin:
        """Where the value of a setting came from.

        Args:
            key: Section and name, such as `broker.port`.
        """
        keys = self.keys
        if key not in keys:
            raise config_error([unknown_key(key, "origin()", keys)])
        return self._origins.get(key, DEFAULT)

    def value(self, key: str) -> object:
        """The value of a setting by its key; a secret stays a `SecretStr`."""
        self.origin(key)
        section, _, name = key.partition(".")
        own = getattr(self, section, None) if section in SECTIONS else None
        holder = own or next(each for each in self.sections if each.section == section)
        value: object = getattr(holder, name)
        return value

    @property
    def broker_directory(self) -> Path:
        """Where the embedded broker keeps its data."""
        return self.broker.data_directory or self.paths.home / "broker"

    @property
    def checkpoint_directory(self) -> Path:
        """Where jobs keep their checkpoints."""
        return self.spark.checkpoint_directory or self.paths.home / "checkpoints"

    @property
    def savepoint_place(self) -> str:
        """Where savepoints are kept: a directory or a URL."""
        return self.spark.savepoints or str(self.paths.home / "savepoints")

    @property
    def log_directory(self) -> Path:
        """Where broker, simulator and jobs write their logs."""
        return self.paths.home / "logs"


def find_sections(words: tuple[str, ...], file: Path | None, directory: Path) -> list[Plugin]:
    """Find the sections that packages and the project add.

    Args:
        words: What the project's file names: `parcels.settings:ParcelSettings`.
        file: The file, if there is one.
        directory: The working directory.
    """
    origin = "the settings" if file is None else str(file)
    project = directory if file is None else file.absolute().parent
    return find_plugins("settings", _check_section, words=words, origin=origin, project=project)


def _check_section(_: str, model: Any) -> str:
    if not isinstance(model, type) or not issubclass(model, Section):
        raise PlanError(f"{model!r} is not a subclass of headrace.config.Section", hint="Name one, for settings.")
    name = getattr(model, "section", "")
    if not name or name in SECTIONS:
        what = "is Headrace's own" if name else "is missing"
        raise PlanError(f"{model.__name__}: its name {name!r} {what}", hint='Give it one: section = "parcels".')
    return str(name)
