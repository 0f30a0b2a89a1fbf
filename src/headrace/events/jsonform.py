"""Events as JSON: for people who look into topics by hand, and for tools.

The form is protobuf's standard one for JSON, with the field names of the schema: timestamps are RFC 3339 texts, 64-bit
numbers are texts, bytes are base64, and `details` names its type in "@type". What JSON cannot carry is lost: fields
that this schema does not know (JSON has names, the wire has numbers). Binary events keep them.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, cast

from google.protobuf import json_format
from google.protobuf.message import DecodeError

from headrace.events.letters import Reason, Rejection
from headrace.events.schemas.envelope_pb2 import Event

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import Message

    from headrace.events.registry import TypeRegistry

#: Messages inside messages, at most so deep; more is a dead letter.
MAX_DEPTH = 64


class NoJsonFormError(Exception):
    """An event cannot be written as JSON: a time out of range, or an inner `Any` of an unknown type."""


def to_dict(event: Event, registry: TypeRegistry) -> dict[str, Any]:
    """An event as Python values that `json.dumps` takes; details of an unknown type stay base64.

    Raises:
        NoJsonFormError: The event holds something that JSON cannot say.
    """
    bare = Event()
    bare.CopyFrom(event)
    bare.ClearField("details")
    result = message_to_dict(bare, registry)
    if event.HasField("details"):
        entry = registry.resolve(event.details.type_url)
        details: dict[str, Any] = {"@type": event.details.type_url}
        if entry is None:
            details["value"] = base64.b64encode(event.details.value).decode()
        else:
            try:
                payload = entry.message_class.FromString(event.details.value)
            except DecodeError as error:
                raise NoJsonFormError(str(error)) from error
            details |= message_to_dict(payload, registry)
        result["details"] = details
    return result


def message_to_dict(message: Message, registry: TypeRegistry) -> dict[str, Any]:
    """A message as Python values that `json.dumps` takes.

    Raises:
        NoJsonFormError: The message holds something that JSON cannot say.
    """
    try:
        result: dict[str, Any] = json_format.MessageToDict(
            message, preserving_proto_field_name=True, descriptor_pool=_pool(message, registry)
        )
    except (json_format.Error, DecodeError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise NoJsonFormError(f"{type(error).__name__}: {error}") from error
    return result


def text(content: dict[str, Any]) -> str:
    """Python values as one line of JSON."""
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def dumps(event: Event, registry: TypeRegistry) -> bytes:
    """An event as one line of JSON."""
    return text(to_dict(event, registry)).encode()


def loads(value: bytes, registry: TypeRegistry) -> Event | Rejection:
    """Read one event from JSON; fields that the schema does not know are ignored, as a binary reader skips them."""
    try:
        content = json.loads(value)
    except (ValueError, RecursionError) as error:
        return Rejection(Reason.MALFORMED_JSON, f"not JSON: {type(error).__name__}: {error}")
    if not isinstance(content, dict):
        return Rejection(Reason.MALFORMED_JSON, f"an event is a JSON object, not {type(content).__name__}")
    details = content.pop("details", None)
    event = Event()
    problem = _fill(event, content, registry)
    if problem is not None:
        return Rejection(Reason.MALFORMED_JSON, problem)
    if details is None:
        return event
    type_url = details.pop("@type", None) if isinstance(details, dict) else None
    if not isinstance(type_url, str):
        return Rejection(Reason.MALFORMED_JSON, 'details is not a JSON object with the text "@type"')
    entry = registry.resolve(type_url)
    if entry is None:
        return Rejection(Reason.UNKNOWN_TYPE, f"type {type_url!r} is not registered", type_url.rpartition("/")[2])
    payload = entry.message_class()
    problem = _fill(payload, details, registry)
    if problem is not None:
        return Rejection(Reason.MALFORMED_JSON, f"{entry.name}: {problem}", entry.name)
    event.details.type_url = type_url
    event.details.value = payload.SerializeToString()
    return event


def _fill(message: Message, content: dict[str, Any], registry: TypeRegistry) -> str | None:
    """Fill a message from JSON values; returns what is wrong with them, or None."""
    try:
        json_format.ParseDict(
            content,
            message,
            ignore_unknown_fields=True,
            descriptor_pool=_pool(message, registry),
            max_recursion_depth=MAX_DEPTH,
        )
    except (
        json_format.Error,
        DecodeError,
        ValueError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        return f"{type(error).__name__}: {error}"
    return None


class _Pool:
    """Finds the types inside an `Any`: registered ones first, then those of the outer message's own pool."""

    def __init__(self, pool: DescriptorPool, registry: TypeRegistry) -> None:
        self.pool = pool
        self.registry = registry

    def FindMessageTypeByName(self, full_name: str) -> Descriptor:  # noqa: N802  protobuf's name
        """What protobuf's JSON code asks for."""
        if full_name in self.registry:
            return self.registry.get(full_name).descriptor
        return self.pool.FindMessageTypeByName(full_name)


def _pool(message: Message, registry: TypeRegistry) -> DescriptorPool:
    return cast("DescriptorPool", _Pool(cast("DescriptorPool", message.DESCRIPTOR.file.pool), registry))
