"""`Table`: the newest row of each key, of a stream of upserts and deletes.

A table is a description, as a stream is. Steps that need its rows as they change read `changes()`, an updating stream;
those that look up the row of a key, now or at some time, read `upserts()`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import polars as pl

from headrace.engine.operator import EVENT_TIME, IS_RETRACTION
from headrace.errors import PlanError
from headrace.formats.debezium import DebeziumFormat
from headrace.formats.record import RecordFormat
from headrace.formats.tombstones import TombstoneFormat
from headrace.joins import kinds as joins
from headrace.stream import plan
from headrace.stream.declared import check_format
from headrace.stream.steps import Drop, WithColumns, schema_after
from headrace.tables.steps import keyed as _keyed
from headrace.tables.upserts import IS_DELETE, LatestRowsOperator, UpsertOperator
from headrace.time.duration import text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from headrace.formats import Format
    from headrace.joins.planning import On
    from headrace.joins.sides import How
    from headrace.stream.stream import Stream
    from headrace.windows.aggregates import Aggregate


@dataclass(frozen=True)
class Table:
    """The newest row of each key.

    Args:
        source: The rows: upserts, of which those with `is_delete` delete their key; or the changes of a table
            (`source.node.updating`), of which each key has one row at most.
        key: The columns that name a row.
        versioned: Whether of two rows of a key the one with the later event time counts, and not the last to arrive;
            a temporal join finds the version that held at a time.
        retention: How long an older version, and a delete, is kept, in microseconds of event time; None: a delete for
            ever, an older version as long as a row before the watermark may need it.
        name: What the state of the table is found by; empty: it is derived.
        null_keys: Whether null is a key like others; otherwise rows without a key are dismissed.

    >>> from headrace.stream import Stream
    >>> from headrace.time import bounded
    >>> prices = Stream.rows("prices", {"product": pl.String, "price": pl.Int64, "gone": pl.Boolean})
    >>> table = prices.watermark(bounded("1s")).as_table("product", deletes=pl.col("gone"))
    >>> print(table.changes().explain())
    rows prices
      watermark bounded(1s)
      deletes where col("gone")
      key_by product
      changes of table by product
      key_by product
    """

    source: Stream
    key: tuple[str, ...]
    versioned: bool = False
    retention: int | None = None
    name: str = ""
    null_keys: bool = False

    @property
    def schema(self) -> pl.Schema:
        """The columns of its rows, without those that say what becomes of them."""
        own = self.source.schema
        return pl.Schema({name: kind for name, kind in own.items() if name not in (IS_DELETE, IS_RETRACTION)})

    def named(self, name: str) -> Table:
        """Name the step that keeps the rows; a checkpoint finds its state by this name."""
        return replace(self, name=name)

    def changes(self) -> Stream:
        """Give the updating stream of its rows: additions, and retractions of what they replace; keyed by the key."""
        keyed = _keyed(self.source, self.key, null_keys=self.null_keys)
        if self.source.node.updating:
            return keyed
        operator = UpsertOperator(self.key, tuple(self.schema), self.versioned, self.retention)
        versions = " by event time" if self.versioned else ""
        kept = f", deletes kept for {text(self.retention)}" if self.versioned and self.retention is not None else ""
        node = plan.Processed(
            input=keyed.node,
            does="table",
            description=f"changes of table by {', '.join(self.key)}{versions}{kept}",
            make=lambda *_: operator,
            schema=operator.schema(keyed.schema),
            gives_updates=True,
            name=self.name,
        )
        return _keyed(replace(keyed, node=node), self.key, null_keys=self.null_keys)

    def join(
        self,
        other: Table | Stream,
        *,
        on: On = (),
        how: How = "inner",
        where: pl.Expr | None = None,
        null_safe: bool = False,
        suffix: str = "",
    ) -> Stream:
        """Join with another table: an updating stream that follows every change of both. See docs/joins.md.

        Args:
            other: The other table, or an updating stream.
            on: The key columns, of the tables or others; a mapping, or pairs, where the names differ.
            how: What becomes of rows without a partner: "inner", "left", "right", "full", "semi" or "anti".
            where: A further condition on pairs.
            null_safe: Whether null is equal to null in keys.
            suffix: What the names of right columns get that the left side has, too.
        """
        return joins.table_join(self, other, on=on, how=how, where=where, null_safe=null_safe, suffix=suffix)

    def join_nearest(
        self,
        other: Table,
        *,
        by: tuple[str, str, str],
        on: On = (),
        how: How = "inner",
        where: pl.Expr | None = None,
        null_safe: bool = False,
        suffix: str = "",
    ) -> Stream:
        """Join each row with the nearest row of another table: an updating stream that follows changes of both.

        Args:
            other: The other table.
            by: The left column, "<", "<=", ">" or ">=", and the right column: of the rows for which that holds the
                closest counts, and of equally close ones that with the smallest key.
            on: The key columns that must be equal.
            how: "inner" or "left".
            where: A further condition on pairs.
            null_safe: Whether null is equal to null in keys.
            suffix: What the names of right columns get that the left side has, too.
        """
        return joins.nearest_join(self, other, on=on, by=by, how=how, where=where, null_safe=null_safe, suffix=suffix)

    def upserts(self) -> Stream:
        """Give its rows as upserts and deletes (`is_delete`), as they came, keyed by the key.

        Of a table that is made of changes it is the row of each key that a turn ends with, or its delete.
        """
        keyed = _keyed(self.source, self.key, null_keys=self.null_keys)
        if not self.source.node.updating:
            if IS_DELETE in keyed.schema:
                return keyed
            return keyed.with_columns(**{IS_DELETE: pl.lit(value=False)})
        operator = LatestRowsOperator(self.key, tuple(self.schema))
        node = plan.Processed(
            input=keyed.node,
            does="upserts",
            description=f"upserts by {', '.join(self.key)}",
            make=lambda *_: operator,
            schema=operator.schema(keyed.schema),
            takes_updates=True,
        )
        return _keyed(replace(keyed, node=node), self.key, null_keys=self.null_keys)

    def aggregate(
        self, *, by: str | Sequence[str] = (), keep_for: str | timedelta | int | None = None, **aggregates: Aggregate
    ) -> Stream:
        """Fold its rows, as they are now, by some columns; the result is updating.

        Args:
            by: The columns to group by; none: one group of all rows. Null is a group of its own.
            keep_for: See `Stream.aggregate`.
            **aggregates: The result columns, such as `orders=count()`.
        """
        names = (by,) if isinstance(by, str) else tuple(by)
        changed = self.changes()
        if names:
            changed.key_by(*names)  # says what is wrong with the columns
        return _keyed(changed, names, null_keys=True).aggregate(on_error="fail", keep_for=keep_for, **aggregates)


def as_table(
    source: Stream,
    key: tuple[str, ...],
    *,
    deletes: pl.Expr | None,
    versioned: bool,
    retention: int | None,
    null_keys: bool = False,
) -> Table:
    """Make a table of a stream; see `Stream.as_table`."""
    if not key:
        raise PlanError("as_table without a key", hint='Name the columns of which each row is the newest: "product".')
    for reserved in (EVENT_TIME, IS_RETRACTION, IS_DELETE):
        if reserved in key:
            raise PlanError(f"as_table by {reserved!r}", hint="Copy it to a column of another name, and key by that.")
    updating = source.node.updating
    if updating and (deletes is not None or versioned):
        raise PlanError(
            "as_table with deletes or versioned of a stream that takes rows back itself",
            hint="Its retractions say which rows are gone; leave deletes= and versioned= out.",
        )
    source.key_by(*key)  # says what is wrong with the columns
    if deletes is not None:
        source = mark(source, IS_DELETE, deletes, text=f"deletes where {deletes}")
    return Table(source, key, versioned, retention, null_keys=null_keys)


def topic_format(format: Format, key: tuple[str, ...]) -> tuple[Format, pl.Expr | None, tuple[str, ...]]:  # noqa: A002
    """Tell how the topic of a table is read.

    Returns:
        The format with tombstones, which rows delete their key, and the columns that only say so.
    """
    check_format(format, "table(...)")
    inner = format.value if isinstance(format, RecordFormat) else format
    if isinstance(inner, DebeziumFormat):
        return format, pl.col(inner.op) == "delete", (inner.op,)
    return TombstoneFormat(format, key), pl.col(IS_DELETE), ()


def as_changelog(source: Stream, retraction: pl.Expr) -> Stream:
    """Say which rows of a stream take back an earlier one; see `Stream.as_changelog`."""
    return mark(source, IS_RETRACTION, retraction, text=f"takes back where {retraction}")


def mark(source: Stream, name: str, condition: pl.Expr, *, text: str) -> Stream:
    """Add a column that says what becomes of a row, in place of the columns of the condition that are only for it."""
    step = _Mark(((name, condition.fill_null(value=False)),), text)
    schema = schema_after(step, source.schema, where=text)
    if schema[name] != pl.Boolean:
        raise PlanError(f"{text}: that is {schema[name]}, not true or false", hint='Compare: pl.col("op") == "delete".')
    kind = plan.Changelog if name == IS_RETRACTION else plan.Stateless
    return replace(source, node=kind(input=source.node, step=step, schema=schema, keys=source.keys))


@dataclass(frozen=True)
class _Mark(WithColumns):
    """A column that says what becomes of a row."""

    told: str = ""

    @property
    def text(self) -> str:
        """Show the condition."""
        return self.told


def without_marks(source: Stream) -> Stream:
    """Leave out the columns that say what becomes of a row."""
    names = tuple(name for name in (IS_DELETE, IS_RETRACTION) if name in source.schema)
    if not names:
        return source
    step = Drop(names)
    schema = schema_after(step, source.schema, where="drop")
    return replace(source, node=plan.Stateless(input=source.node, step=step, schema=schema, keys=source.keys))
