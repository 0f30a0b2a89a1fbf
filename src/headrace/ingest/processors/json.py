"""The JSON processor: messages that are JSON, by a mapping.

[[feed]]
name = "weather"
connector = "mqtt"
processor = "json"

[feed.json]
topic = "input.weather"
time = {field = "at", format = "epoch_ms"}
key = ["station"]
where = "quality >= 2"

[feed.json.fields]
station = {field = "@topic.1", type = "str"}
temperature = {field = "air.temperature", type = "f64", unit = "degF", min = -80, max = 60}
quality = "i32"
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, with_config
from pydantic_core import from_json

from headrace.ingest.mapping import MappingProcessor, MappingSettings
from headrace.ingest.processor import Cause, Dismissal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.events.registry import TypeRegistry


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True, kw_only=True)
class JsonSettings(MappingSettings):
    """What JSON messages become; see `MappingSettings`.

    Args:
        parse_text: Whether numbers, times and truths may be written as texts ("12.5").
    """

    parse_text: bool = False


class JsonProcessor(MappingProcessor):
    """Makes events of JSON messages.

    Args:
        settings: The mapping.
        types: The message types that it may name; Headrace's own if not given.

    >>> from headrace.ingest.message import RawMessage
    >>> from headrace.ingest.rules import FieldRule
    >>> mapping = JsonSettings(topic="input.doors", fields={"door": FieldRule(field="id", type="str")}, key=("door",))
    >>> result = JsonProcessor(mapping).process([RawMessage("", b'{"id": "north"}', 0), RawMessage("", b"{}", 0)])
    >>> result.events[0].frame["door"].to_list(), result.dismissed[1].text
    (['north'], 'door: the message has none')
    """

    name = "json"
    Settings = JsonSettings

    def __init__(self, settings: JsonSettings, *, types: TypeRegistry | None = None) -> None:
        super().__init__(settings, text=settings.parse_text, types=types)

    def _read(self, payload: bytes) -> Any:
        return read_json(payload)

    def _values(self, path: tuple[str | int, ...]) -> Callable[[Sequence[Any]], list[Any]]:
        return values_at(path)


def values_at(path: tuple[str | int, ...]) -> Callable[[Sequence[Any]], list[Any]]:
    """Give a function that takes the value at a path out of each of some JSON values; None where there is none.

    >>> values_at(("a", 1))([{"a": [5, 6]}, {"a": 7}, None])
    [6, None, None]
    """
    if not path:
        return list
    if len(path) == 1:
        (name,) = path
        return lambda bodies: [_step(body, name) for body in bodies]

    def deep(bodies: Sequence[Any]) -> list[Any]:
        for step in path:
            bodies = [_step(body, step) for body in bodies]
        return list(bodies)

    return deep


def _step(body: Any, name: str | int) -> Any:
    if type(body) is dict:
        return body.get(name if type(name) is str else str(name))
    if type(body) is list and type(name) is int and name < len(body):
        return body[name]
    return None


def read_json(payload: bytes) -> Any:
    """Read a payload, or give a `Dismissal` that says why it is no JSON.

    NaN and infinity are none, nor is what is nested more than 200 deep or holds half of a character.

    >>> read_json(b'{"a": [1, 2.5]}'), read_json(b"{'a'}").cause
    ({'a': [1, 2.5]}, <Cause.MALFORMED: 'malformed_json'>)
    """
    try:
        return from_json(payload, allow_inf_nan=False)
    except ValueError as error:
        try:
            payload.decode()
        except UnicodeDecodeError as problem:
            return Dismissal(Cause.NOT_UTF8, f"byte {problem.start} is not UTF-8")
        return Dismissal(Cause.MALFORMED, str(error)[:200])
