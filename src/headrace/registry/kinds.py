"""What an object must be to be added as one of a kind, and what it is called then.

The registry lies below the parts that it registers things for, so a base class is named here and not imported: what
extends a class has imported the module of that class already.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from headrace.errors import PlanError
from headrace.events.registry import TypeRegistry
from headrace.formats.format import Format
from headrace.sinks.contract import Sink
from headrace.streaming_sql.catalog import CONNECTORS
from headrace.streaming_sql.user_functions import scalar_function

if TYPE_CHECKING:
    from collections.abc import Callable

_BASES = {
    "topics": ("headrace.kafka.topics", "TopicSpec"),
    "connectors": ("headrace.ingest.connector", "Connector"),
    "processors": ("headrace.ingest.processor", "Processor"),
    "markers": ("headrace.observe.recipes", "Markers"),
    "loads": ("headrace.observe.recipes", "Load"),
    "pages": ("headrace.dashboard.defaults", "PageDefaults"),
}

#: A longer description of an object says no more.
_LONGEST = 80


def _told(thing: object) -> str:
    """Describe an object in a few words: the repr of a job is longer than a screen."""
    text = repr(thing)
    return text if len(text) <= _LONGEST else f"a {type(thing).__name__}"


def check(kind: str) -> Callable[[str, Any], str]:
    """Give the check of a kind: it says what an object is called, or raises what is wrong with it.

    Args:
        kind: One of `headrace.plugins.KINDS`.
    """
    return _CHECKS[kind]


def _base(kind: str) -> tuple[type | None, str]:
    module, name = _BASES[kind]
    return getattr(sys.modules.get(module), name, None), f"{module}.{name}"


def _instance(kind: str) -> Callable[[str, Any], str]:
    def checked(_: str, given: object) -> str:
        base, name = _base(kind)
        thing: Any = given
        if base is None or not isinstance(given, base):
            raise PlanError(f"{_told(thing)} is not a {name}", hint=f"Name an object of that class, for {kind}.")
        return str(thing.name)

    return checked


def _subclass(kind: str) -> Callable[[str, Any], str]:
    def checked(_: str, thing: Any) -> str:
        base, name = _base(kind)
        if base is None or not isinstance(thing, type) or not issubclass(thing, base):
            raise PlanError(
                f"{_told(thing)} is not a subclass of {name}", hint=f"Name a class that extends it, for {kind}."
            )
        called = getattr(thing, "name", None)
        if not isinstance(called, str) or not called:
            raise PlanError(
                f"{_told(thing)} has no name", hint=f'Say what a file of feeds calls it: name = "{kind[:-1]}".'
            )
        return called

    return checked


def _format(name: str, thing: Any) -> str:
    if not isinstance(thing, Format) and not callable(thing):
        raise PlanError(
            f"{_told(thing)} is neither a Format nor a function that makes one", hint="Name one of these, for formats."
        )
    return name


def _sink(name: str, thing: Any) -> str:
    if not isinstance(thing, Sink) and not callable(thing):
        raise PlanError(
            f"{_told(thing)} is neither a Sink nor a class or a function that makes one",
            hint="Name one of these, for sinks.",
        )
    if name in CONNECTORS:
        raise PlanError(
            f"a sink is called {name!r}, as a connector of tables is", hint="Give the entry point another name."
        )
    return name


def _function(name: str, thing: Any) -> str:
    scalar_function(name, thing)
    return name


def _type(_: str, thing: Any) -> str:
    return TypeRegistry().register(thing).name


def _callable(name: str, thing: Any) -> str:
    if not callable(thing):
        raise PlanError(f"{_told(thing)} cannot be called", hint="Name a function or a class.")
    return name


_CHECKS: dict[str, Callable[[str, Any], str]] = {
    "topics": _instance("topics"),
    "formats": _format,
    "types": _type,
    "connectors": _subclass("connectors"),
    "processors": _subclass("processors"),
    "sinks": _sink,
    "functions": _function,
    "commands": _callable,
    "markers": _instance("markers"),
    "loads": _instance("loads"),
    "pages": _instance("pages"),
}
