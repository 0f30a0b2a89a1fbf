"""Settings: one TOML file, environment variables, flags.

A setting has a key such as `broker.port` and one value. Sources are read in this order, and a later one wins:

1. the default, which is written beside the setting in this module;
2. the file: `headrace.toml` in the working directory, or the one that `--config` or `HEADRACE_CONFIG` names;
3. the environment: `HEADRACE_BROKER__PORT=9093`, two underscores between section and name;
4. flags: `--bootstrap HOST` of a command, or `--set broker.port=9093` before any command.

Settings are checked as a whole before anything starts. An unknown key or a bad value is a `ConfigError` that names the
source, the key, the value and what is allowed there. `Settings.origin` tells afterwards where each value came from.
Passwords are `SecretStr`: they are never printed, neither by `headrace config` nor in an error.

Relative paths in the file are relative to the file; elsewhere they are relative to the working directory.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    ValidationError,
    model_validator,
)

from headrace.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE_NAME = "headrace.toml"
FILE_VARIABLE = "HEADRACE_CONFIG"
HOME_VARIABLE = "HEADRACE_HOME"
PREFIX = "HEADRACE_"

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]

_MEMORY = r"^[1-9][0-9]*[mMgG]$"
_HOSTS = r"^([^\s,:]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5}(,([^\s,:]+|\[[0-9a-fA-F:.]+\]):[0-9]{1,5})*$"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the value of a setting came from.

    >>> str(Origin("environment", "HEADRACE_BROKER__PORT"))
    'environment HEADRACE_BROKER__PORT'
    """

    kind: Literal["default", "file", "environment", "flag"]
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".rstrip()


DEFAULT = Origin("default")


def _no_bool(value: object) -> object:
    # pydantic takes true for the number 1, which in a port or a count can only be a mistake.
    if isinstance(value, bool):
        raise ValueError("true and false are not numbers")
    return value


Number = BeforeValidator(_no_bool)


def _setting(default: Any, doc: str, allowed: str, **limits: Any) -> Any:
    return Field(default, description=doc, json_schema_extra={"allowed": allowed}, **limits)


class Section(BaseModel):
    """One table of the file; frozen, and unknown names are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class BrokerSettings(Section):
    """`[broker]`: which Kafka to use, and how to reach it."""

    bootstrap: str = _setting(
        "",
        "An external Kafka to use; empty means the embedded broker.",
        'HOST:PORT, or several with commas: "kafka1:9092,kafka2:9092"',
        pattern=rf"^$|{_HOSTS}",
    )
    port: Annotated[int, Number] = _setting(
        9092,
        "Port of the embedded broker on 127.0.0.1. If you do not set it and 9092 is taken, a free one is used.",
        "a whole number from 0 to 65535; 0 means any free port",
        ge=0,
        le=65535,
    )
    data_directory: Path | None = _setting(
        None, "Where the embedded broker keeps its data; `broker` in paths.home if not set.", "a directory"
    )
    memory: str = _setting("512m", "Heap of the embedded broker.", 'a size such as "512m" or "1g"', pattern=_MEMORY)
    security_protocol: SecurityProtocol = _setting(
        "PLAINTEXT", "How to talk to an external Kafka.", ", ".join(get_args(SecurityProtocol))
    )
    tls_ca: Path | None = _setting(None, "Certificate authorities that signed the broker's certificate.", "a PEM file")
    tls_certificate: Path | None = _setting(None, "Your certificate, if the broker asks for one.", "a PEM file")
    tls_key: Path | None = _setting(None, "The private key of your certificate.", "a PEM file")
    tls_key_password: SecretStr | None = _setting(None, "Password of the private key.", "text")
    sasl_mechanism: SaslMechanism | None = _setting(
        None, "How to log in, with SASL_PLAINTEXT or SASL_SSL.", ", ".join(get_args(SaslMechanism))
    )
    sasl_username: str = _setting("", "Who to log in as.", "text")
    sasl_password: SecretStr | None = _setting(None, "The password to log in with.", "text")

    @model_validator(mode="after")
    def _security_is_complete(self) -> Self:
        if self.security_protocol.startswith("SASL"):
            missing = [name for name in ("sasl_mechanism", "sasl_username", "sasl_password") if not getattr(self, name)]
            if missing:
                raise _IncompleteError(
                    f"broker.security_protocol is {self.security_protocol!r}, but "
                    + " and ".join(f"broker.{name}" for name in missing)
                    + (" is" if len(missing) == 1 else " are")
                    + " not set",
                    "A login needs broker.sasl_mechanism, broker.sasl_username and broker.sasl_password.",
                    "broker.security_protocol",
                )
        elif self.sasl_mechanism is not None:
            raise _IncompleteError(
                f"broker.sasl_mechanism is {self.sasl_mechanism!r}, but broker.security_protocol is "
                f"{self.security_protocol!r}, which does not log in",
                "Set broker.security_protocol to SASL_SSL or SASL_PLAINTEXT, or remove broker.sasl_mechanism.",
                "broker.sasl_mechanism",
            )
        if (self.tls_certificate is None) != (self.tls_key is None):
            have, lack = ("tls_certificate", "tls_key") if self.tls_certificate else ("tls_key", "tls_certificate")
            raise _IncompleteError(
                f"broker.{have} is set, but broker.{lack} is not",
                "A client certificate needs both files.",
                f"broker.{have}",
            )
        return self


class SparkSettings(Section):
    """`[spark]`: where jobs run, and how finely they are cut."""

    master: str = _setting(
        "local[*]",
        "Where Spark runs.",
        'a master URL: "local[*]", "local[2]", "spark://HOST:PORT", "yarn", "k8s://HOST:PORT"',
        pattern=r"^(local(\[(\*|[1-9][0-9]*)(,[0-9]+)?\])?|local-cluster\[.+\]|spark://.+|yarn|k8s://.+)$",
    )
    driver_memory: str = _setting("2g", "Heap of the driver.", 'a size such as "2g" or "800m"', pattern=_MEMORY)
    cadence_ms: Annotated[int, Number] = _setting(
        500,
        "Milliseconds between the starts of two micro-batches; 0 starts the next one at once.",
        "a whole number from 0 to 3600000",
        ge=0,
        le=3_600_000,
    )
    key_groups: Annotated[int, Number] = _setting(
        4,
        "Units of state and parallelism of a job. It cannot change once a checkpoint exists.",
        "a whole number from 1 to 4096",
        ge=1,
        le=4096,
    )
    state_partitions: Annotated[int, Number] = _setting(
        2,
        "Spark partitions that share the key groups: as many as you have cores. Fixed once a checkpoint exists.",
        "a whole number from 1 to 1024, and not more than spark.key_groups",
        ge=1,
        le=1024,
    )
    checkpoint_directory: Path | None = _setting(
        None, "Where jobs keep offsets and state; `checkpoints` in paths.home if not set.", "a directory"
    )
    max_events_per_batch: Annotated[int, Number] | None = _setting(
        None, "The most events that one micro-batch reads; no limit if not set.", "a whole number from 1", ge=1
    )

    @model_validator(mode="after")
    def _every_partition_has_a_group(self) -> Self:
        if self.state_partitions > self.key_groups:
            raise _IncompleteError(
                f"spark.state_partitions is {self.state_partitions}, more than spark.key_groups ({self.key_groups})",
                "A key group lives in one state partition: set spark.key_groups to the same number or a larger one.",
                "spark.state_partitions",
            )
        return self


class SimulatorSettings(Section):
    """`[simulator]`: the made-up fleet of `headrace simulate` and `headrace demo`."""

    vehicles: Annotated[int, Number] = _setting(
        300, "How many vehicles drive.", "a whole number from 1 to 1000000", ge=1, le=1_000_000
    )
    rate: Annotated[float, Number] | None = _setting(
        None,
        "Positions per second of the clock, of all vehicles together; decides how many vehicles there are.",
        "a number above 0, up to 1000000",
        gt=0,
        le=1_000_000,
    )
    speed_up: Annotated[float, Number] = _setting(
        1.0,
        "Seconds of event time per second of the clock.",
        "a number above 0, up to 1000",
        gt=0,
        le=1000,
    )
    seed: Annotated[int, Number] = _setting(
        1, "The same seed gives the same fleet.", "a whole number from 0", ge=0, le=2**63 - 1
    )


class PathSettings(Section):
    """`[paths]`: where Headrace keeps what it writes."""

    home: Path = _setting(
        Path(),
        "Data, checkpoints and logs. `.headrace` in a clone of Headrace, or in a directory that has a headrace.toml; "
        "elsewhere $XDG_DATA_HOME/headrace, which is mostly ~/.local/share/headrace.",
        "a directory",
    )
    jars: Path = _setting(
        Path(),
        "Java archives of Kafka and of Spark's connector, shared by all projects. "
        "`jars` in paths.home if that is there, else $XDG_CACHE_HOME/headrace/jars, mostly ~/.cache/headrace/jars.",
        "a directory",
    )


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
    paths: PathSettings = Field(default_factory=PathSettings)

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
        found = _Found(directory)
        found.read_defaults(environ)
        path = _file_to_read(file, environ, directory)
        if path is not None:
            found.read_file(path)
        found.read_environment(environ)
        for key, (value, flag) in (flags or {}).items():
            if value is not None:
                found.put(key, value, Origin("flag", flag), directory)
        if found.problems:
            raise _config_error(found.problems)
        try:
            return cls.model_validate(found.values, context=_Sources(found.origins, path))
        except ValidationError as error:
            raise _config_error(found.explain(error)) from None

    def model_post_init(self, context: Any, /) -> None:
        """Remember the sources that `load` passes along."""
        if isinstance(context, _Sources):
            self._origins, self._file = context.origins, context.file

    @property
    def file(self) -> Path | None:
        """The file that was read, if there was one."""
        return self._file

    def origin(self, key: str) -> Origin:
        """Where the value of a setting came from.

        Args:
            key: Section and name, such as `broker.port`.
        """
        if key not in KEYS:
            raise _config_error([_unknown_key(key, "origin()")])
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
    def log_directory(self) -> Path:
        """Where broker, simulator and jobs write their logs."""
        return self.paths.home / "logs"


@dataclass(frozen=True, slots=True)
class _Sources:
    origins: dict[str, Origin]
    file: Path | None


@dataclass(frozen=True, slots=True)
class Setting:
    """The description of one setting, for `headrace config` and the messages."""

    key: str
    doc: str
    allowed: str
    is_path: bool
    is_secret: bool

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return PREFIX + self.key.upper().replace(".", "__")


def _describe() -> dict[str, Setting]:
    keys: dict[str, Setting] = {}
    for section, holder in Settings.model_fields.items():
        model = holder.annotation
        if not (isinstance(model, type) and issubclass(model, Section)):
            raise TypeError(f"{section} is not a Section")
        for name, field in model.model_fields.items():
            extra = field.json_schema_extra
            kinds = {field.annotation, *get_args(field.annotation)}
            keys[f"{section}.{name}"] = Setting(
                key=f"{section}.{name}",
                doc=field.description or "",
                allowed=str(extra["allowed"]) if isinstance(extra, dict) else "",
                is_path=Path in kinds,
                is_secret=SecretStr in kinds,
            )
    return keys


#: Every setting by its key, in the order of the documentation.
KEYS: dict[str, Setting] = _describe()
SECTIONS: tuple[str, ...] = tuple(Settings.model_fields)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with the settings: what, and what to do."""

    what: str
    remedy: str


class _IncompleteError(ValueError):
    """Two settings contradict each other; carries its own remedy through pydantic."""

    def __init__(self, what: str, remedy: str, key: str) -> None:
        super().__init__(what)
        self.what, self.remedy, self.key = what, remedy, key


class _Found:
    """The raw values of all sources, merged, with their origins."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.values: dict[str, dict[str, object]] = {}
        self.origins: dict[str, Origin] = {}
        self.problems: list[Problem] = []

    def put(self, key: str, value: object, origin: Origin, base: Path) -> None:
        if key not in KEYS:
            self.problems.append(_unknown_key(key, str(origin)))
            return
        if KEYS[key].is_path and isinstance(value, str | Path) and str(value):
            value = base / Path(value).expanduser()
        section, _, name = key.partition(".")
        self.values.setdefault(section, {})[name] = value
        self.origins[key] = origin

    def read_defaults(self, environ: Mapping[str, str]) -> None:
        if named := environ.get(HOME_VARIABLE):
            origin = Origin("environment", HOME_VARIABLE)
            self.put("paths.home", named, origin, self.directory)
            self.put("paths.jars", Path(named) / "jars", origin, self.directory)
            return
        home = _default_home(self.directory, environ)
        jars = Path(environ.get("XDG_CACHE_HOME") or "~/.cache") / "headrace" / "jars"
        # `make run` keeps everything in the clone; the command without make must find the same jars there.
        jars = home / "jars" if (home / "jars").is_dir() else jars
        self.put("paths.home", home, DEFAULT, self.directory)
        self.put("paths.jars", jars, DEFAULT, self.directory)

    def read_file(self, path: Path) -> None:
        try:
            text = path.read_text(encoding="utf-8")
            document = tomllib.loads(text)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise ConfigError(
                f"cannot read the settings file {path}: {reason}",
                hint=f"Give a readable TOML file with --config or {FILE_VARIABLE}.",
            ) from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"{path} is not valid TOML: {error}", hint="Correct the line; docs/configuration.md has an example."
            ) from None
        for section, table in document.items():
            where = f"{path}{_line_of(text, section, None)}"
            if section not in SECTIONS:
                self.problems.append(_unknown_section(section, table, where))
            elif not isinstance(table, dict):
                self.problems.append(
                    Problem(
                        f"{where}: {section} is {table!r}, but it is the name of a section",
                        f"Write a line [{section}] and below it lines such as name = value.",
                    )
                )
            else:
                for name, value in table.items():
                    origin = Origin("file", f"{path}{_line_of(text, section, name)}")
                    self.put(f"{section}.{name}", value, origin, path.parent)

    def read_environment(self, environ: Mapping[str, str]) -> None:
        variables = {setting.variable: setting for setting in KEYS.values()}
        for variable, value in sorted(environ.items()):
            if not variable.startswith(PREFIX) or variable == FILE_VARIABLE or not value:
                continue
            if variable in variables:
                self.put(variables[variable].key, value, Origin("environment", variable), self.directory)
                continue
            # Other HEADRACE_ variables may exist for other purposes, so only what looks like a setting is an error.
            names = {known.removeprefix(PREFIX): known for known in variables}
            name = _close(variable.removeprefix(PREFIX), names, 0.7 if "__" in variable else 0.9)
            close = names.get(name)
            if "__" in variable or close:
                key = variable.removeprefix(PREFIX).lower().replace("__", ".")
                remedy = f"Did you mean {close}? " if close else ""
                self.problems.append(
                    Problem(
                        f"environment {variable}: there is no setting {key}",
                        f"{remedy}Every setting is listed in docs/configuration.md and by `headrace config`.",
                    )
                )

    def explain(self, error: ValidationError) -> list[Problem]:
        problems = []
        for item in error.errors():
            incomplete = item.get("ctx", {}).get("error")
            if isinstance(incomplete, _IncompleteError):
                origin = self.origins.get(incomplete.key, DEFAULT)
                problems.append(Problem(f"{_place(origin)}: {incomplete.what}", incomplete.remedy))
                continue
            key = ".".join(str(part) for part in item["loc"][:2])
            setting = KEYS[key]
            value = "bad (not shown, it is a secret)" if setting.is_secret else repr(_plain(item["input"]))
            problems.append(
                Problem(f"{_place(self.origins.get(key, DEFAULT))}: {key} is {value}", f"Allowed: {setting.allowed}.")
            )
        return problems


def _place(origin: Origin) -> str:
    return origin.name if origin.kind in {"file", "flag"} else str(origin)


def _plain(value: object) -> object:
    return str(value) if isinstance(value, Path) else value


def _default_home(directory: Path, environ: Mapping[str, str]) -> Path:
    if (directory / FILE_NAME).is_file() or (directory / ".headrace").is_dir() or _is_clone(directory):
        return directory / ".headrace"
    return Path(environ.get("XDG_DATA_HOME") or "~/.local/share") / "headrace"


def _is_clone(directory: Path) -> bool:
    try:
        project = tomllib.loads((directory / "pyproject.toml").read_text(encoding="utf-8")).get("project", {})
    except (OSError, ValueError):
        return False
    return isinstance(project, dict) and project.get("name") == "headrace"


def _file_to_read(file: Path | None, environ: Mapping[str, str], directory: Path) -> Path | None:
    if file is not None:
        return directory / file.expanduser()
    if named := environ.get(FILE_VARIABLE):
        return directory / Path(named).expanduser()
    usual = directory / FILE_NAME
    return usual if usual.is_file() else None


def _line_of(text: str, section: str, name: str | None) -> str:
    """`:LINE` of a setting in the file, or nothing where it is written in an unusual way."""
    current = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[\s*([\w.-]+)\s*\]", line):
            current = header[1]
            if name is None and current == section:
                return f":{number}"
        elif assignment := re.match(r"\s*([\w.-]+?)\s*=", line):
            dotted = f"{current}.{assignment[1]}" if current else assignment[1]
            if dotted == (section if name is None else f"{section}.{name}"):
                return f":{number}"
    return ""


def _close(word: str, known: Mapping[str, object] | tuple[str, ...], cutoff: float = 0.6) -> str:
    matches = difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return matches[0] if matches else ""


def _bare(where: str) -> str:
    # A file or a flag is known by its name; a variable needs the word.
    return where.removeprefix("file ").removeprefix("flag ")


def _unknown_section(section: str, table: object, where: str) -> Problem:
    names = {setting.key.partition(".")[2]: setting.key for setting in KEYS.values()}
    if not isinstance(table, dict) and section in names:
        remedy = f"Did you mean {names[section]}? Put it below a line [{names[section].partition('.')[0]}]."
    else:
        close = _close(section, SECTIONS)
        remedy = f"Did you mean [{close}]? " if close else ""
        remedy += f"Sections: {', '.join(SECTIONS)}."
    return Problem(f"{where}: there is no section {section!r}", remedy)


def _unknown_key(key: str, where: str) -> Problem:
    section, _, name = key.partition(".")
    if section not in SECTIONS:
        close = _close(key, KEYS)
        remedy = f"Did you mean {close}? " if close else ""
        return Problem(
            f"{_bare(where)}: there is no setting {key!r}", f"{remedy}Sections: {', '.join(SECTIONS)}."
        )
    names = tuple(known.partition(".")[2] for known in KEYS if known.startswith(f"{section}."))
    close = _close(name, names)
    remedy = f"Did you mean {section}.{close}? " if close else ""
    return Problem(
        f"{_bare(where)}: there is no setting {key!r}",
        f"{remedy}Settings of [{section}]: {', '.join(names)}.",
    )


def _config_error(problems: list[Problem]) -> ConfigError:
    if len(problems) == 1:
        return ConfigError(problems[0].what, hint=problems[0].remedy)
    lines = "".join(f"\n  {problem.what}. {problem.remedy}" for problem in problems)
    return ConfigError(
        f"{len(problems)} settings are wrong:{lines}",
        hint="docs/configuration.md lists every setting and what it allows.",
    )
