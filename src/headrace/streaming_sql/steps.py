"""Steps of a stream, as the planner of queries needs them: columns by physical name, and keys that may be null."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import polars as pl

from headrace.engine.operator import EVENT_TIME, IS_RETRACTION
from headrace.stream import Stream, plan
from headrace.streaming_sql.relation import fresh_names

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: The column that all rows share where a query has no key.
ALL_ROWS: Final = "all_rows"


def unkeyed(stream: Stream) -> Stream:
    """Forget the key of a stream, so that its columns can be dropped."""
    node = stream.node
    while isinstance(node, plan.KeyBy):
        node = node.input
    if node.keys:
        node = plan.KeyBy(input=node, schema=node.schema, keys=())
    return Stream(node)


def projected(stream: Stream, columns: Mapping[str, pl.Expr]) -> Stream:
    """Keep some columns, with the event time and what says that a row is taken back."""
    stream = unkeyed(stream)
    plain = {name for name, value in columns.items() if value.meta.eq(pl.col(name))}
    kept = {*columns, EVENT_TIME, IS_RETRACTION}
    if (
        plain == set(columns)
        and set(stream.schema) <= kept
        and (stream.node.retracts or IS_RETRACTION not in stream.schema)
    ):
        return stream
    return stream.select(**{name: value for name, value in columns.items() if name != EVENT_TIME})


def with_columns(stream: Stream, columns: Mapping[str, pl.Expr]) -> Stream:
    """Add columns."""
    return unkeyed(stream).with_columns(**columns) if columns else stream


def keyed(stream: Stream, keys: Sequence[str]) -> Stream:
    """Key a stream by columns; null is a key like others."""
    stream = unkeyed(stream)
    return Stream(plan.KeyBy(input=stream.node, schema=stream.schema, keys=tuple(keys), null_keys=True))


def added(stream: Stream, wanted: Mapping[str, pl.Expr]) -> tuple[Stream, dict[str, str]]:
    """Add columns under names that are free; returns the name of each.

    A column that is there already is not added again.
    """
    found: dict[str, str] = {}
    new: dict[str, pl.Expr] = {}
    for name, value in wanted.items():
        own = value.meta.root_names() if value.meta.is_column() else []
        if own and own[0] in stream.schema:
            found[name] = own[0]
            continue
        (physical,) = fresh_names([name], [*stream.schema, *new])
        found[name] = physical
        new[physical] = value
    return with_columns(stream, new), found


class Keys:
    """Key columns for values of any type: those that cannot be keys are keyed by their text.

    Args:
        stream: The rows.
        values: The values by name, each with its type.
    """

    def __init__(self, stream: Stream, values: Mapping[str, tuple[pl.Expr, pl.DataType]]) -> None:
        wanted = {name: text_key(value, dtype) for name, (value, dtype) in values.items()}
        self.stream, named = added(stream, wanted)
        self.columns = named
        self._kinds = {name: dtype for name, (_, dtype) in values.items()}
        if not named:
            self.stream, named = added(stream, {ALL_ROWS: pl.lit(0, dtype=pl.Int8)})
            self.names: tuple[str, ...] = tuple(named.values())
        else:
            self.names = tuple(dict.fromkeys(named.values()))

    def keyed(self) -> Stream:
        """The rows, keyed."""
        return keyed(self.stream, self.names)

    def value(self, name: str) -> pl.Expr:
        """Give a value back from its key column."""
        return _decoded(pl.col(self.columns[name]), self._kinds[name])


def needs_text(dtype: pl.DataType) -> bool:
    """Tell whether values of a type cannot be keys as they are."""
    return dtype.is_float() or isinstance(dtype, pl.Decimal | pl.List | pl.Struct | pl.Array | pl.Null | pl.Duration)


def text_key(value: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Give a value as a key: as it is, or as its text where its type cannot be a key."""
    if not needs_text(dtype):
        return value
    if dtype.is_float():
        return (value + 0.0).cast(pl.String)  # -0.0 and 0.0 are one number
    if isinstance(dtype, pl.Duration):
        return value.dt.total_microseconds()
    if isinstance(dtype, pl.Decimal | pl.Null):
        return value.cast(pl.String)
    text = pl.struct(value.alias("value")).struct.json_encode()
    return pl.when(value.is_not_null()).then(text)


def _decoded(key: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    if not needs_text(dtype):
        return key
    if isinstance(dtype, pl.Duration):
        return key.cast(dtype)
    if dtype.is_float() or isinstance(dtype, pl.Decimal | pl.Null):
        return key.cast(dtype)
    return key.str.json_decode(pl.Struct({"value": dtype})).struct.field("value")
