"""The columns of a topic: those of its format or of its message type, or those that the reader declares.

A format of records that others write says which columns it reads. Of Headrace's own events, most types say in their
schema which columns they have. The events of an *open* type (`Record`, `Result`) bring columns of their own; there the
reader says which it expects, and the codec holds every event to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import polars as pl

from headrace.engine.operator import EVENT_TIME, INGESTION_TIME, ORIGINAL
from headrace.errors import PlanError, SchemaError
from headrace.events import Layout, Record
from headrace.events.dtype import to_text
from headrace.events.layout import OPEN_FIELD
from headrace.events.registry import RESERVED_PREFIX, TypeRegistry
from headrace.formats.envelope import EnvelopeFormat
from headrace.formats.format import Format
from headrace.stream.plan import TopicSource

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message

_INSTANT = pl.Datetime("us", "UTC")
_TIMES = {EVENT_TIME: _INSTANT, INGESTION_TIME: _INSTANT}


def check_format(format: object, what: str) -> None:  # noqa: A002
    """Refuse what is no format, such as `json` instead of `json()`.

    Args:
        format: What was given; None is fine.
        what: What it was given to.
    """
    if format is not None and not isinstance(format, Format):
        name = getattr(format, "__name__", None)
        hint = (
            f"Call it: format={name}(...)." if callable(format) else "Give one of headrace.formats: format=json(...)."
        )
        raise PlanError(f"{what} has the format {name or repr(format)}, which is no Format", hint=hint)


def topic_source(
    topic: str,
    kind: type[Message] | None,
    declared: dict[str, Any] | pl.Schema | None,
    format: Format | None,  # noqa: A002
) -> TopicSource:
    """Say how a topic is read.

    Args:
        topic: The topic.
        kind: The type of its events, if they are in the envelope; None: `Record`.
        declared: The columns that the reader expects of an open type.
        format: The format of records that others write; None: the envelope.

    Raises:
        PlanError: What is given contradicts itself, or has no columns.
    """
    if kind is not None and not hasattr(kind, "DESCRIPTOR"):
        raise PlanError(
            f"topic({topic!r}) has {kind!r} for the type of its events",
            hint="For JSON give format=json(schema={...}); for events in the envelope a message class or schema=.",
        )
    check_format(format, f"topic({topic!r})")
    if format is None:
        kind = Record if kind is None else kind
        columns = topic_columns(topic, kind, declared)
        own = tuple((name, dtype) for name, dtype in columns.items() if name not in _TIMES)
        return TopicSource(topic, EnvelopeFormat(kind.DESCRIPTOR.full_name, own, TypeRegistry(kind)), columns)
    if kind is not None or declared is not None:
        what = "schema=" if kind is None else kind.DESCRIPTOR.name
        raise PlanError(
            f"topic({topic!r}) has a format, and {what} beside it",
            hint=f"The format says which columns there are: {format.name}(schema={{...}}). Leave {what} out.",
        )
    if not format.schema:
        raise PlanError(
            f"topic({topic!r}): the format {format.name} has no columns to read",
            hint='Say which there are: schema={"parcel": pl.String, "weight": pl.Float64}.',
        )
    for name in format.schema:
        if name in (*_TIMES, ORIGINAL) or name.startswith((RESERVED_PREFIX, "#")):
            raise PlanError(
                f"topic({topic!r}): a column cannot be called {name!r}, a name that Headrace uses itself",
                hint="Leave it out of the schema, or give it another name.",
            )
    return TopicSource(topic, format, pl.Schema({**_TIMES, **format.schema}))


def topic_columns(topic: str, kind: type[Message], declared: dict[str, Any] | pl.Schema | None) -> pl.Schema:
    """Tell the columns that a stream from a topic begins with, both times included.

    Args:
        topic: The topic, for messages.
        kind: The type of its events.
        declared: What the reader expects of an open type.

    Raises:
        PlanError: Columns are declared for a type that has its own, or not declared for one that has none, or a
            declaration cannot be right.
    """
    layout = Layout(cast("Descriptor", kind.DESCRIPTOR))
    if not layout.is_open:
        if declared is not None:
            raise PlanError(
                f"topic({topic!r}) of {layout.name} has a schema of its own, which cannot be declared again",
                hint="Leave schema= out, or narrow the columns with select().",
            )
        return pl.Schema({**_TIMES, **layout.schema})
    if not declared:
        raise PlanError(
            f"topic({topic!r}) of {layout.name}: its events bring columns of their own",
            hint='Say which of them to read: schema={"sensor": pl.String, "value": pl.Float64}.',
        )
    columns = pl.Schema({name: kind for name, kind in declared.items() if name not in _TIMES})
    for name, dtype in columns.items():
        if name == OPEN_FIELD or name.startswith(RESERVED_PREFIX):
            raise PlanError(f"topic({topic!r}): a column cannot be called {name!r}", hint="Rename it at its source.")
        if name in layout.field_names and layout.schema[name] != dtype:
            raise PlanError(
                f"topic({topic!r}): {layout.name} has {name!r} as {layout.schema[name]}, not {dtype}",
                hint="Declare it so, or leave it out.",
            )
        try:
            to_text(dtype)
        except SchemaError as problem:
            raise PlanError(f"topic({topic!r}), column {name!r}: {problem.message}", hint=problem.hint) from problem
    return pl.Schema({**_TIMES, **columns})
