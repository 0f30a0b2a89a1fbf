"""Feeds: connectors and processors put together by a file.

A file of feeds is TOML. Each feed names a connector and a processor; a table with the name of either holds its
settings, `delivery` those of the way to Kafka. Everything has a default but what cannot have one.

    [[feed]]
    name = "depots"
    connector = "mqtt"
    processor = "json"
    delivery = {deduplicate = "2m", silent = ["filtered"]}

    [feed.mqtt]
    host = "mqtt.example.org"
    tls = true
    topics = ["depots/+/scans"]

    [feed.json]
    topic = "input.scans"
    fields = {parcel = "str", weight = "f64"}
"""

from __future__ import annotations

import dataclasses
import importlib
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from headrace.errors import ConfigError, EnvironmentProblem
from headrace.events.registry import TypeRegistry
from headrace.ingest.connector import Connector
from headrace.ingest.processor import Processor
from headrace.ingest.runner import RunnerSettings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from os import PathLike

    from headrace.plugins import Plugin


@dataclass(frozen=True, slots=True)
class Feed:
    """One feed, ready to be built; a connector serves one run, so every run gets a new one.

    Args:
        name: Its name in reports and dead letters.
        connector: The kind of connector.
        connector_settings: Its settings.
        processor: The kind of processor.
        processor_settings: Its settings; None if it has none.
        delivery: How events go to Kafka.
        types: The message types that events may have.
    """

    name: str
    connector: type[Connector[Any]]
    connector_settings: Any
    processor: type[Processor]
    processor_settings: Any
    delivery: RunnerSettings
    types: TypeRegistry = field(default_factory=TypeRegistry)

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that it writes events to."""
        return self.make_processor().topics

    def make_connector(self) -> Connector[Any]:
        """A new connector."""
        return self.connector(self.connector_settings)

    def make_processor(self) -> Processor:
        """A new processor."""
        make: Any = self.processor
        words = {"types": self.types} if self.processor.names_types else {}
        made = make(**words) if self.processor_settings is None else make(self.processor_settings, **words)
        processor: Processor = made
        return processor


def load(
    path: str | PathLike[str],
    *,
    connectors: Mapping[str, type[Connector[Any]]],
    processors: Mapping[str, type[Processor]],
    types: TypeRegistry | None = None,
    failed: Sequence[Plugin] = (),
) -> list[Feed]:
    """Read a file of feeds.

    Args:
        path: The file.
        connectors: Those that a feed may name; besides, "package.module:Class" names any other.
        processors: Likewise.
        types: The message types that a feed may name; Headrace's own if not given.
        failed: Plug-ins that could not be loaded, for the message about a name that is not known.

    Raises:
        EnvironmentProblem: The file cannot be read.
        ConfigError: Something in it is wrong; the message says where.
    """
    try:
        content = tomllib.loads(Path(path).read_text())
    except OSError as error:
        raise EnvironmentProblem(f"cannot read {path}: {error.strerror}", hint="Check the name.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    tables = content.pop("feed", None)
    if content or not isinstance(tables, list) or not tables:
        what = f"{path} has {next(iter(content))!r}" if content else f"{path} has no feeds"
        raise ConfigError(what, hint="A file of feeds consists of [[feed]] tables.")
    known = _Known(connectors, processors, types or TypeRegistry(), tuple(failed))
    feeds = [_feed(f"{path}, feed {number}", table, known) for number, table in enumerate(tables, 1)]
    names = [feed.name for feed in feeds]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{path} has two feeds named {name!r}", hint="Names tell them apart in reports.")
    return feeds


@dataclass(frozen=True)
class _Known:
    """What a feed may name."""

    connectors: Mapping[str, type[Connector[Any]]]
    processors: Mapping[str, type[Processor]]
    types: TypeRegistry
    failed: tuple[Plugin, ...]


def _feed(where: str, table: Any, known: _Known) -> Feed:
    if not isinstance(table, dict):
        raise ConfigError(f"{where} is not a table", hint="Write [[feed]].")
    rest = dict(table)
    connector: type[Connector[Any]] = _choose(where, "connector", rest, known, Connector)
    processor: type[Processor] = _choose(where, "processor", rest, known, Processor)
    name = rest.pop("name", connector.name)
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{where}: name is {name!r}", hint="Give a text.")
    source = _settings(f"{where}, {connector.name}", connector.Settings, rest.pop(connector.name, {}))
    kind = processor.Settings
    rules = None if kind is None else _settings(f"{where}, {processor.name}", kind, rest.pop(processor.name, {}))
    delivery = _settings(
        f"{where}, delivery", RunnerSettings, {"feed": name, **_table(where, rest.pop("delivery", {}))}
    )
    if rest:
        raise ConfigError(
            f"{where} has {next(iter(rest))!r}",
            hint=f"It may have name, connector, processor, delivery, {connector.name}, {processor.name}.",
        )
    feed = Feed(name, connector, source, processor, rules, delivery, known.types)
    try:
        feed.make_processor()
    except ConfigError as error:  # a mapping is checked as a whole when its processor is made
        raise ConfigError(f"{where}, {processor.name}: {error.message}", hint=error.hint) from error
    return feed


def _choose(where: str, what: str, table: dict[str, Any], there: _Known, base: type) -> Any:
    known: Mapping[str, Any] = there.connectors if what == "connector" else there.processors
    name = table.pop(what, None)
    if isinstance(name, str) and ":" in name:
        return _imported(f"{where}, {what} {name!r}", name, base)
    if not isinstance(name, str) or name not in known:
        said = f"has no {what}" if name is None else f"has {what} {name!r}"
        lost = [plugin for plugin in there.failed if plugin.kind == f"{what}s"]
        said += "".join(f"\n  {plugin.place} of {plugin.origin} failed to load: {plugin.problem}" for plugin in lost)
        raise ConfigError(f"{where} {said}", hint=f"There are: {', '.join(sorted(known))}; or package.module:Class.")
    return known[name]


def _imported(where: str, name: str, base: type) -> Any:
    """A class of somebody else's module."""
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except ImportError as error:
        raise ConfigError(f"{where} cannot be imported: {error}", hint="Is its folder in PYTHONPATH?") from error
    if not isinstance(found, type) or not issubclass(found, base):
        raise ConfigError(f"{where} is no {base.__name__}", hint=f"Name a subclass of headrace.ingest.{base.__name__}.")
    return found


def _table(where: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{where} is not a table", hint="Write key = value pairs.")
    return value


def _settings(where: str, kind: type, table: Any) -> Any:
    names = {field.name for field in dataclasses.fields(kind)}
    unknown = [key for key in _table(where, table) if key not in names]
    if unknown:
        raise ConfigError(f"{where} has {unknown[0]!r}", hint=f"It may have: {', '.join(sorted(names))}.")
    try:
        return TypeAdapter(kind).validate_python(table)
    except ValidationError as error:
        first = error.errors()[0]
        place = "".join(f", {part}" for part in first["loc"])
        # What the settings themselves refuse comes with its own hint.
        said = first["msg"].removeprefix("Value error, ")
        if first["type"] in ("unexpected_keyword_argument", "extra_forbidden"):
            said = "there is no such setting"
        raise ConfigError(f"{where}{place}: {said}") from error
