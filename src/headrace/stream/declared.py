"""The columns of a topic: those of its message type, or those that the reader declares.

Most types say in their schema which columns they have. The events of an *open* type (`Record`, `Result`) bring columns
of their own; there the reader says which it expects, and the codec holds every event to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import polars as pl

from headrace.engine.operator import EVENT_TIME, INGESTION_TIME
from headrace.errors import PlanError, SchemaError
from headrace.events import Layout
from headrace.events.dtype import to_text
from headrace.events.layout import OPEN_FIELD
from headrace.events.registry import RESERVED_PREFIX

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message

_INSTANT = pl.Datetime("us", "UTC")


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
    times = {EVENT_TIME: _INSTANT, INGESTION_TIME: _INSTANT}
    if not layout.is_open:
        if declared is not None:
            raise PlanError(
                f"topic({topic!r}) of {layout.name} has a schema of its own, which cannot be declared again",
                hint="Leave schema= out, or narrow the columns with select().",
            )
        return pl.Schema({**times, **layout.schema})
    if not declared:
        raise PlanError(
            f"topic({topic!r}) of {layout.name}: its events bring columns of their own",
            hint='Say which of them to read: schema={"sensor": pl.String, "value": pl.Float64}.',
        )
    columns = pl.Schema({name: kind for name, kind in declared.items() if name not in times})
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
    return pl.Schema({**times, **columns})
