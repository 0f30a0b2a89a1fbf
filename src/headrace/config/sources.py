"""Where settings come from: defaults, the file, the environment, flags; merged, each with its origin.

Nothing is decided here about what a value may be; only that its key exists. Problems are collected, so that a user
hears of all of them at once.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from headrace.config.sections import PREFIX, IncompleteError, describe
from headrace.errors import ConfigError
from headrace.plugins import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pydantic import ValidationError

    from headrace.config.sections import Section, Setting
    from headrace.plugins import Plugin

FILE_NAME = "headrace.toml"
FILE_VARIABLE = "HEADRACE_CONFIG"
HOME_VARIABLE = "HEADRACE_HOME"
#: The list at the top of the file that names a project's jobs.
JOBS = "jobs"


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


@dataclass(frozen=True, slots=True)
class Document:
    """A file that was read, and is TOML."""

    path: Path
    text: str
    content: dict[str, object]

    def words(self, kind: str) -> tuple[str, ...]:
        """The plug-ins of a kind that the file names; none if what stands there is no list of texts."""
        words = self.content.get(kind)
        if not isinstance(words, list) or not all(isinstance(word, str) and word.strip() for word in words):
            return ()
        return tuple(_located(word.strip(), self.path.parent) for word in words)


def read_document(path: Path) -> Document:
    """Read a file of settings.

    Raises:
        ConfigError: It cannot be read, or is not TOML.
    """
    try:
        text = path.read_text(encoding="utf-8")
        return Document(path, text, tomllib.loads(text))
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


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with the settings: what, and what to do."""

    what: str
    remedy: str


class Found:
    """The raw values of all sources, merged, with their origins.

    Args:
        directory: The working directory.
        sections: All sections by name.
        failed: The plug-ins whose sections could not be loaded.
    """

    def __init__(
        self, directory: Path, sections: Mapping[str, type[Section]], *, failed: Iterable[Plugin] = ()
    ) -> None:
        self.directory = directory
        self.sections = sections
        self.keys = describe(sections)
        self.failed = tuple(failed)
        self.values: dict[str, dict[str, object]] = {}
        self.origins: dict[str, Origin] = {}
        self.problems: list[Problem] = []
        #: Where the project's jobs are: paths, made absolute, and modules.
        self.jobs: tuple[str, ...] = ()
        #: What else the project adds, by kind.
        self.added: dict[str, tuple[str, ...]] = {}

    def put(self, key: str, value: object, origin: Origin, base: Path) -> None:
        """Take a value of a source, in place of what an earlier one said."""
        if key not in self.keys:
            self.problems.append(unknown_key(key, str(origin), self.keys))
            return
        if self.keys[key].is_path and isinstance(value, str | Path) and str(value):
            try:
                value = base / Path(value).expanduser()
            except RuntimeError:
                what = f"{_place(origin)}: {key} is {str(value)!r}, whose home directory is not known"
                self.problems.append(Problem(what, f"Allowed: {self.keys[key].allowed}; write it out instead of ~."))
                return
        section, _, name = key.partition(".")
        self.values.setdefault(section, {})[name] = value
        self.origins[key] = origin

    def read_defaults(self, environ: Mapping[str, str]) -> None:
        """Take the defaults that depend on where we are."""
        if named := environ.get(HOME_VARIABLE):
            origin = Origin("environment", HOME_VARIABLE)
            self.put("paths.home", named, origin, self.directory)
            self.put("paths.jars", Path(named) / "jars", origin, self.directory)
            return
        home = default_home(self.directory, environ)
        jars = Path(environ.get("XDG_CACHE_HOME") or "~/.cache") / "headrace" / "jars"
        # `make run` keeps everything in the clone; the command without make must find the same jars there.
        jars = home / "jars" if (home / "jars").is_dir() else jars
        self.put("paths.home", home, DEFAULT, self.directory)
        self.put("paths.jars", jars, DEFAULT, self.directory)

    def read_file(self, document: Document) -> None:
        """Take every setting of a file."""
        path, text = document.path, document.text
        for section, table in document.content.items():
            where = f"{path}{_line_of(text, section, None)}"
            if section in KINDS and not (isinstance(table, dict) and section in self.sections):
                self._take_words(section, table, where, document)
            elif section not in self.sections:
                self.problems.append(self._unknown_section(section, table, where))
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

    def _take_words(self, kind: str, words: object, where: str, document: Document) -> None:
        found = document.words(kind)
        if words != [] and not found:
            what = "files and modules" if kind == JOBS else "plug-ins"
            example = '["jobs.py", "parcels.jobs:late"]' if kind == JOBS else f'["parcels.{kind}:NAME"]'
            self.problems.append(
                Problem(
                    f"{where}: {kind} is {words!r}, but it is a list of {what}",
                    f"Write it at the top: {kind} = {example}",
                )
            )
        elif not KINDS[kind].in_file:
            self.problems.append(
                Problem(f"{where}: {kind} cannot be named here", f"Let a package offer headrace.{kind}.")
            )
        elif kind == JOBS:
            self.jobs = found
        else:
            self.added[kind] = found

    def read_environment(self, environ: Mapping[str, str]) -> None:
        """Take every variable that is a setting."""
        variables = {setting.variable: setting for setting in self.keys.values()}
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

    def _unknown_section(self, section: str, table: object, where: str) -> Problem:
        names = {setting.key.partition(".")[2]: setting.key for setting in self.keys.values()}
        broken = next((plugin for plugin in self.failed if plugin.name == section), None)
        if broken is not None:
            return Problem(
                f"{where}: the section {section!r} of {broken.origin} failed to load: {broken.problem}",
                "`headrace plugins` lists all plug-ins.",
            )
        if not isinstance(table, dict) and section in names:
            remedy = f"Did you mean {names[section]}? Put it below a line [{names[section].partition('.')[0]}]."
        elif isinstance(table, list) and (kind := _close(section, KINDS)):
            example = '["jobs.py"]' if kind == JOBS else f'["parcels.{kind}:NAME"]'
            return Problem(f"{where}: there is no setting {section!r}", f"Did you mean {kind}? {kind} = {example}")
        else:
            close = _close(section, self.sections)
            remedy = f"Did you mean [{close}]? " if close else ""
            remedy += f"Sections: {', '.join(self.sections)}."
        return Problem(f"{where}: there is no section {section!r}", remedy)

    def explain(self, error: ValidationError, *, section: str = "") -> list[Problem]:
        """Say what pydantic found in words of the file, the variable or the flag.

        Args:
            error: What it found.
            section: The section, if only that was looked at.
        """
        problems = []
        for item in error.errors():
            incomplete = item.get("ctx", {}).get("error")
            if isinstance(incomplete, IncompleteError):
                origin = self.origins.get(incomplete.key, DEFAULT)
                problems.append(Problem(f"{_place(origin)}: {incomplete.what}", incomplete.remedy))
                continue
            place = (section, *item["loc"]) if section else item["loc"]
            key = ".".join(str(part) for part in place[:2])
            setting = self.keys[key]
            value = "bad (not shown, it is a secret)" if setting.is_secret else repr(_plain(item["input"]))
            problems.append(
                Problem(f"{_place(self.origins.get(key, DEFAULT))}: {key} is {value}", f"Allowed: {setting.allowed}.")
            )
        return problems


def _located(word: str, base: Path) -> str:
    """Make the path in the name of a job absolute; the name of a module is left as it is.

    >>> _located("jobs.py:late", Path("/project")), _located("parcels.jobs:late", Path("/project"))
    ('/project/jobs.py:late', 'parcels.jobs:late')
    """
    place, colon, name = word.partition(":")
    is_path = place.endswith(".py") or "/" in place
    return f"{base / _expanded(Path(place))}{colon}{name}" if is_path else word


def _place(origin: Origin) -> str:
    return origin.name if origin.kind in {"file", "flag"} else str(origin)


def _plain(value: object) -> object:
    return str(value) if isinstance(value, Path) else value


def default_home(directory: Path, environ: Mapping[str, str]) -> Path:
    """Where data goes if nothing else is said: into the project, or the user's data directory."""
    if (directory / FILE_NAME).is_file() or (directory / ".headrace").is_dir() or _is_clone(directory):
        return directory / ".headrace"
    return Path(environ.get("XDG_DATA_HOME") or "~/.local/share") / "headrace"


def _is_clone(directory: Path) -> bool:
    try:
        project = tomllib.loads((directory / "pyproject.toml").read_text(encoding="utf-8")).get("project", {})
    except (OSError, ValueError):
        return False
    return isinstance(project, dict) and project.get("name") == "headrace"


def _expanded(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:  # the home of nobody: it will not be found, and the message shows what was written
        return path


def file_to_read(file: Path | None, environ: Mapping[str, str], directory: Path) -> Path | None:
    """The settings file: the one that is named, or the usual one if it is there."""
    if file is not None:
        return directory / _expanded(file)
    if named := environ.get(FILE_VARIABLE):
        return directory / _expanded(Path(named))
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


def _close(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    matches = difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return matches[0] if matches else ""


def _bare(where: str) -> str:
    # A file or a flag is known by its name; a variable needs the word.
    return where.removeprefix("file ").removeprefix("flag ")


def unknown_key(key: str, where: str, keys: Mapping[str, Setting]) -> Problem:
    """The problem of a key that no setting has.

    Args:
        key: The key.
        where: Where it stands.
        keys: All settings by key.
    """
    section, _, name = key.partition(".")
    sections = list(dict.fromkeys(known.partition(".")[0] for known in keys))
    if section not in sections:
        close = _close(key, keys)
        remedy = f"Did you mean {close}? " if close else ""
        return Problem(f"{_bare(where)}: there is no setting {key!r}", f"{remedy}Sections: {', '.join(sections)}.")
    names = tuple(known.partition(".")[2] for known in keys if known.startswith(f"{section}."))
    close = _close(name, names)
    remedy = f"Did you mean {section}.{close}? " if close else ""
    return Problem(
        f"{_bare(where)}: there is no setting {key!r}",
        f"{remedy}Settings of [{section}]: {', '.join(names)}.",
    )


def config_error(problems: list[Problem]) -> ConfigError:
    """One error for all problems."""
    if len(problems) == 1:
        return ConfigError(problems[0].what, hint=problems[0].remedy)
    lines = "".join(f"\n  {problem.what}. {problem.remedy}" for problem in problems)
    return ConfigError(
        f"{len(problems)} settings are wrong:{lines}",
        hint="docs/configuration.md lists every setting and what it allows.",
    )
