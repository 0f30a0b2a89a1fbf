"""The type registry: which message types events may have, by the `type_url` in their envelope.

A type_url is "<anything>/<full name of the message type>"; only the name counts. The registry knows Headrace's own
types from the start; a user adds theirs, as generated classes or as descriptors, and one that is handed to the codec as
such is known from then on. An event of a type that is not
registered is a dead letter with the reason `unknown_type`, not a guess.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor

from headrace.errors import SchemaError
from headrace.events.schemas import records_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.protobuf.message import Message

#: In front of the type's name in every type_url that Headrace writes; readers ignore it.
TYPE_URL_PREFIX = "type.googleapis.com/"

#: Columns that every decoded frame has or may have besides those of its type.
RESERVED_COLUMNS = frozenset({"event_time", "ingestion_time"})
RESERVED_PREFIX = "kafka_"

BUILT_IN: tuple[type[Message], ...] = (
    records_pb2.Record,
    records_pb2.Result,
    records_pb2.DeadLetter,
    records_pb2.LateEvent,
)


@dataclass(frozen=True, slots=True)
class EventType:
    """A registered message type.

    Args:
        name: Its full name, such as "headrace.v1.Record".
        message_class: Its Python class.
    """

    name: str
    message_class: type[Message]

    @property
    def descriptor(self) -> Descriptor:
        """Its protobuf descriptor."""
        return cast("Descriptor", self.message_class.DESCRIPTOR)

    @property
    def type_url(self) -> str:
        """What stands in the envelope of its events."""
        return TYPE_URL_PREFIX + self.name


class TypeRegistry:
    """Message types by name.

    Args:
        types: Types to register besides Headrace's own.

    >>> registry = TypeRegistry()
    >>> registry.resolve("type.googleapis.com/headrace.v1.Record").name
    'headrace.v1.Record'
    >>> registry.resolve("type.googleapis.com/acme.Unheard") is None
    True
    """

    def __init__(self, *types: type[Message] | Descriptor) -> None:
        self._types: dict[str, EventType] = {}
        for message_class in (*BUILT_IN, *types):
            self.register(message_class)

    def register(self, message_type: type[Message] | Descriptor) -> EventType:
        """Add a type, or replace the one of the same name (a newer version of a schema).

        Raises:
            SchemaError: It is not a message type, or has a field whose name the frames need for themselves.
        """
        descriptor = message_type if isinstance(message_type, Descriptor) else getattr(message_type, "DESCRIPTOR", None)
        if not isinstance(descriptor, Descriptor):
            raise SchemaError(
                f"{message_type!r} is not a protobuf message type",
                hint="Give a generated message class, or a Descriptor of one.",
            )
        if descriptor.full_name.startswith("google.protobuf."):
            raise SchemaError(
                f"{descriptor.full_name} cannot be the type of an event: it has a JSON form of its own",
                hint="Wrap it in a message of yours.",
            )
        for field in descriptor.fields:
            if field.name in RESERVED_COLUMNS or field.name.startswith(RESERVED_PREFIX):
                raise SchemaError(
                    f"{descriptor.full_name}.{field.name} has a name that decoded frames need for themselves",
                    hint=f"Names to avoid: {', '.join(sorted(RESERVED_COLUMNS))} and {RESERVED_PREFIX}...",
                )
        entry = EventType(descriptor.full_name, message_factory.GetMessageClass(descriptor))
        self._types[entry.name] = entry
        return entry

    def include(self, other: TypeRegistry) -> None:
        """Add the types of another registry."""
        self._types |= other._types

    def resolve(self, type_url: str) -> EventType | None:
        """Find the type of a type_url; None if it is not registered."""
        _prefix, slash, name = type_url.rpartition("/")
        return self._types.get(name) if slash else None

    def get(self, which: str | type[Message] | Descriptor | EventType) -> EventType:
        """Find a type by its full name, its last name if only one has it, its class or its descriptor.

        A class or a descriptor of a type that is not registered is registered by this.

        Raises:
            SchemaError: There is no type of this name, or it cannot be one of an event.
        """
        if isinstance(which, EventType):
            name = which.name
        elif isinstance(which, str):
            name = which
        else:
            descriptor = which if isinstance(which, Descriptor) else getattr(which, "DESCRIPTOR", None)
            name = getattr(descriptor, "full_name", "")
        if name in self._types:
            return self._types[name]
        if not isinstance(which, str | EventType):
            return self.register(which)
        short = [entry for entry in self if entry.name.rpartition(".")[2] == name]
        if len(short) == 1:
            return short[0]
        raise SchemaError(
            f"event type {name!r} is not registered",
            hint=f"Register it with TypeRegistry.register(...). Registered: {', '.join(sorted(self._types))}.",
        )

    def __iter__(self) -> Iterator[EventType]:
        return iter(self._types.values())

    def __len__(self) -> int:
        return len(self._types)

    def __contains__(self, name: object) -> bool:
        return name in self._types

    def __getstate__(self) -> dict[str, Any]:
        """Types as descriptors, so that a registry can be sent to a worker that lacks the user's generated modules."""
        files: dict[str, bytes] = {}
        names = []
        built_in = {message_class.DESCRIPTOR.full_name: message_class for message_class in BUILT_IN}
        for entry in self:
            if built_in.get(entry.name) is entry.message_class:
                continue
            names.append((entry.name, _collect(entry.descriptor.file, {})))
        return {"types": names, "files": files}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._types = {}
        for message_class in BUILT_IN:
            self.register(message_class)
        for name, files in state["types"]:
            # A pool for each type: two types may come with different versions of the same file.
            pool = descriptor_pool.DescriptorPool()
            for content in files.values():
                pool.AddSerializedFile(content)
            self.register(pool.FindMessageTypeByName(name))


def _collect(file: Any, into: dict[str, bytes]) -> dict[str, bytes]:
    """The file and all it imports, the imported ones first."""
    for dependency in file.dependencies:
        if dependency.name not in into:
            _collect(dependency, into)
    proto = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(proto)
    into[file.name] = proto.SerializeToString()
    return into
