"""Events as JSON: for people who look into topics by hand, and for tools.

The form is protobuf's standard one for JSON, with the field names of the schema: timestamps are RFC 3339 texts, 64-bit
numbers are texts, bytes are base64, and `details` names its type in "@type". What JSON cannot carry is lost: fields
that this schema does not know (JSON has names, the wire has numbers). Binary events keep them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from google.protobuf import json_format

from headrace.events.letters import Reason, Rejection
from headrace.events.schemas.envelope_pb2 import Event

if TYPE_CHECKING:
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import Message

    from headrace.events.registry import TypeRegistry

#: Messages inside messages, at most so deep; more is a dead letter.
MAX_DEPTH = 64


def to_dict(event: Event, registry: TypeRegistry) -> dict[str, Any]:
    """An event as Python values that `json.dumps` takes; details of an unknown type or broken ones stay base64."""
    entry = registry.resolve(event.details.type_url)
    bare = Event()
    bare.CopyFrom(event)
    bare.ClearField("details")
    result: dict[str, Any] = json_format.MessageToDict(bare, preserving_proto_field_name=True)
    if event.HasField("details"):
        details: dict[str, Any] = {"@type": event.details.type_url}
        if entry is None:
            details["value"] = json_format.MessageToDict(event.details, preserving_proto_field_name=True)["value"]
        else:
            payload = entry.message_class.FromString(event.details.value)
            details |= message_to_dict(payload)
        result["details"] = details
    return result


def message_to_dict(message: Message) -> dict[str, Any]:
    """A message as Python values that `json.dumps` takes."""
    result: dict[str, Any] = json_format.MessageToDict(
        message, preserving_proto_field_name=True, descriptor_pool=_pool(message)
    )
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
    problem = _fill(event, content)
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
    problem = _fill(payload, details)
    if problem is not None:
        return Rejection(Reason.MALFORMED_JSON, f"{entry.name}: {problem}", entry.name)
    event.details.type_url = type_url
    event.details.value = payload.SerializeToString()
    return event


def _fill(message: Message, content: dict[str, Any]) -> str | None:
    """Fill a message from JSON values; returns what is wrong with them, or None."""
    try:
        json_format.ParseDict(
            content,
            message,
            ignore_unknown_fields=True,
            descriptor_pool=_pool(message),
            max_recursion_depth=MAX_DEPTH,
        )
    except (json_format.ParseError, ValueError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        return f"{type(error).__name__}: {error}"
    return None


def _pool(message: Message) -> DescriptorPool:
    """Where the types inside an `Any` of this message are looked up."""
    return cast("DescriptorPool", message.DESCRIPTOR.file.pool)
