"""What every connector and every processor keeps; new ones are found by themselves."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from typing import Any

import pytest
from pydantic import TypeAdapter

import headrace.ingest
import headrace_transit
from headrace.ingest import Connector, Processor, RawMessage

for _package in (headrace.ingest, headrace_transit):
    for _module in pkgutil.walk_packages(_package.__path__, f"{_package.__name__}."):
        importlib.import_module(_module.name)


def subclasses(kind: type) -> list[type]:
    found = []
    for part in kind.__subclasses__():
        found += [part, *subclasses(part)]
    return [
        part
        for part in found
        if not inspect.isabstract(part) and part.__module__.startswith(("headrace.", "headrace_transit."))
    ]


CONNECTORS, PROCESSORS = subclasses(Connector), subclasses(Processor)

#: Processors that cannot be made without settings.
EXAMPLES: dict[str, dict[str, object]] = {
    "json": {"topic": "input.x", "fields": {"id": {"type": "str"}, "n": {"type": "i32"}}, "key": ["id"]},
    "csv": {"topic": "input.x", "fields": {"id": {"type": "str"}, "n": {"type": "i32"}}, "columns": ["id", "n"]},
}

HOSTILE = [
    b"",
    b"\x00",
    b"\xff\xfe",
    b"{",
    b"null",
    b"[" * 5000,
    b"{}" * 50_000,
    b'{"a":1e999}',
    "a".encode("utf-16"),
]


def test_they_are_found() -> None:
    assert {part.name for part in CONNECTORS} >= {"replay"}
    assert {part.name for part in PROCESSORS} >= {"hfp", "json", "csv"}
    for kinds in (CONNECTORS, PROCESSORS):
        names = [part.name for part in kinds]
        assert len(set(names)) == len(names)


@pytest.mark.parametrize("connector", CONNECTORS)
def test_settings_are_frozen_typed_and_have_defaults(connector: type[Connector[object]]) -> None:
    settings = connector.Settings
    assert dataclasses.is_dataclass(settings)
    assert settings.__dataclass_params__.frozen  # type: ignore[attr-defined]
    fields = dataclasses.fields(settings)
    needed = [field.name for field in fields if _needed(field)]
    assert len(needed) <= 2, f"{needed} have no defaults"
    assert settings.__doc__
    for field in fields:
        assert f"{field.name}:" in settings.__doc__, f"{field.name} is not explained"


def _needed(field: dataclasses.Field[object]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


@pytest.mark.parametrize("connector", CONNECTORS)
def test_a_connector_says_what_it_is(connector: type[Connector[object]]) -> None:
    assert connector.name.isidentifier()
    assert connector.__doc__


def example(processor: type[Processor]) -> Processor:
    """A processor, with its defaults or the settings of an example."""
    make: Any = processor
    if processor.Settings is None or processor.name not in EXAMPLES:
        made: Processor = make()
        return made
    settings = TypeAdapter(processor.Settings).validate_python(EXAMPLES[processor.name])
    configured: Processor = make(settings)
    return configured


@pytest.mark.parametrize("processor", PROCESSORS)
def test_a_processor_answers_for_every_message(processor: type[Processor]) -> None:
    batch = [
        RawMessage(topic, payload, 0) for payload in HOSTILE for topic in ("", "/", "\ud800", "/hfp/v2/a/b/vp/c/1/2")
    ]
    made = example(processor)
    result = made.process(batch)
    assert result.count + len(result.dismissed) == len(batch)
    assert list(result.dismissed) == sorted(result.dismissed)
    assert all(dismissal.text for dismissal in result.dismissed.values())
    assert {part.topic for part in result.events} <= set(made.topics)
    assert made.process([]).count == 0
    # What becomes of a message does not depend on the others.
    alone = [made.process([message]) for message in batch]
    causes = {number: part.dismissed[0].cause for number, part in enumerate(alone) if part.dismissed}
    assert {number: dismissal.cause for number, dismissal in result.dismissed.items()} == causes
