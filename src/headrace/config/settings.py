"""`Settings`: all settings, checked as a whole, each with its origin."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from headrace.config.sections import (
    KEYS,
    BrokerSettings,
    DashboardSettings,
    PathSettings,
    SimulatorSettings,
    SparkSettings,
    TransitSettings,
)
from headrace.config.sources import DEFAULT, JOBS, Found, Origin, config_error, file_to_read, unknown_key

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class _Sources:
    origins: dict[str, Origin]
    file: Path | None


class Settings(BaseModel):
    """All settings, checked, each with its origin.

    >>> settings = Settings.load(environ={"HEADRACE_SIMULATOR__VEHICLES": "20"}, directory=Path("/nowhere"))
    >>> settings.simulator.vehicles, str(settings.origin("simulator.vehicles"))
    (20, 'environment HEADRACE_SIMULATOR__VEHICLES')
    >>> settings.simulator.seed, str(settings.origin("simulator.seed"))
    (1, 'default')
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    broker: BrokerSettings = Field(default_factory=BrokerSettings)
    spark: SparkSettings = Field(default_factory=SparkSettings)
    simulator: SimulatorSettings = Field(default_factory=SimulatorSettings)
    transit: TransitSettings = Field(default_factory=TransitSettings)
    dashboard: DashboardSettings = Field(default_factory=DashboardSettings)
    paths: PathSettings = Field(default_factory=PathSettings)
    jobs: tuple[str, ...] = ()
    """The files and modules with the project's jobs, from `jobs = [...]` at the top of the file."""

    _origins: dict[str, Origin] = PrivateAttr(default_factory=dict)
    _file: Path | None = PrivateAttr(default=None)

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
        found = Found(directory)
        found.read_defaults(environ)
        path = file_to_read(file, environ, directory)
        if path is not None:
            found.read_file(path)
        found.read_environment(environ)
        for key, (value, flag) in (flags or {}).items():
            if value is not None:
                found.put(key, value, Origin("flag", flag), directory)
        if found.problems:
            raise config_error(found.problems)
        try:
            return cls.model_validate({**found.values, JOBS: found.jobs}, context=_Sources(found.origins, path))
        except ValidationError as error:
            raise config_error(found.explain(error)) from None

    def model_post_init(self, context: Any, /) -> None:
        """Remember the sources that `load` passes along."""
        if isinstance(context, _Sources):
            self._origins, self._file = context.origins, context.file

    @property
    def file(self) -> Path | None:
        """The file that was read, if there was one."""
        return self._file

    @property
    def project(self) -> Path:
        """The directory of the project: that of the file, or the working directory without one."""
        return Path.cwd() if self._file is None else self._file.absolute().parent

    def origin(self, key: str) -> Origin:
        """Where the value of a setting came from.

        Args:
            key: Section and name, such as `broker.port`.
        """
        if key not in KEYS:
            raise config_error([unknown_key(key, "origin()")])
        return self._origins.get(key, DEFAULT)

    def value(self, key: str) -> object:
        """The value of a setting by its key; a secret stays a `SecretStr`."""
        self.origin(key)
        section, _, name = key.partition(".")
        value: object = getattr(getattr(self, section), name)
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
    def routing_cache(self) -> Path:
        """Where answers of a routing service are kept."""
        return self.transit.routing_cache or self.paths.home / "cache" / "routing.sqlite"

    @property
    def log_directory(self) -> Path:
        """Where broker, simulator and jobs write their logs."""
        return self.paths.home / "logs"
