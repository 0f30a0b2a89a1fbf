"""`Stream`: what a user writes.

A stream reads like a sentence and does nothing until a runner takes it: every method returns a new stream, checks
what it can against the columns known so far, and refuses what cannot work with a message that says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import polars as pl
from polars.exceptions import PolarsError

from headrace.engine.operator import (
    EVENT_TIME,
    INGESTION_TIME,
    IS_RETRACTION,
    PANE_INDEX,
    PANE_IS_LAST,
    PANE_MODE,
    PANE_TIMING,
    WINDOW_END,
    WINDOW_START,
)
from headrace.errors import PlanError
from headrace.events import Layout
from headrace.stream import plan
from headrace.stream.explain import explain
from headrace.stream.steps import Filter, FlatMap, MapBatches, Select, WithColumns, schema_after
from headrace.time.duration import micros
from headrace.windows import same_window
from headrace.windows.fold import Fold

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from google.protobuf.descriptor import Descriptor
    from google.protobuf.message import Message

    from headrace.engine import Operator
    from headrace.stream.steps import Step
    from headrace.time.watermarks import WatermarkStrategy
    from headrace.windows.aggregates import Aggregate
    from headrace.windows.assigners import Assigner
    from headrace.windows.panes import Mode
    from headrace.windows.triggers import Trigger

#: What every windowed result carries besides its keys and values.
PANE_COLUMNS: dict[str, pl.DataType] = {
    WINDOW_START: pl.Datetime("us", "UTC"),
    WINDOW_END: pl.Datetime("us", "UTC"),
    PANE_INDEX: pl.Int64(),
    PANE_TIMING: pl.String(),
    PANE_IS_LAST: pl.Boolean(),
    PANE_MODE: pl.String(),
    IS_RETRACTION: pl.Boolean(),
}


@dataclass(frozen=True)
class Stream:
    """An unbounded table of events, and what is to be done with it.

    >>> from headrace.time import bounded
    >>> from headrace.windows import count, tumbling
    >>> readings = Stream.rows("readings", {"sensor": pl.String, "value": pl.Float64})
    >>> per_sensor = (
    ...     readings.watermark(bounded("1s"))
    ...     .filter(pl.col("value") > 0)
    ...     .key_by("sensor")
    ...     .window(tumbling("10s"))
    ...     .aggregate(readings=count())
    ... )
    >>> print(per_sensor.explain())
    rows readings
      watermark bounded(1s)
      filter [(col("value")) > (dyn int: 0)]
      key_by sensor
      window tumbling(10s)
      aggregate readings=count()
    """

    node: plan.Node
    schema: pl.Schema
    keys: tuple[str, ...] = ()

    @classmethod
    def topic(cls, topic: str, kind: type[Message]) -> Stream:
        """Read events of one type from a Kafka topic.

        Args:
            topic: The topic's name.
            kind: The protobuf message class of the events' details.
        """
        instant = pl.Datetime("us", "UTC")
        columns = Layout(cast("Descriptor", kind.DESCRIPTOR)).schema
        schema = pl.Schema({EVENT_TIME: instant, INGESTION_TIME: instant, **columns})
        return cls(plan.Read(plan.TopicSource(topic, kind.DESCRIPTOR.full_name, schema)), schema)

    @classmethod
    def rows(cls, name: str, schema: dict[str, Any] | pl.Schema) -> Stream:
        """Read rows that the caller feeds under a name; `event_time` is added to the schema if it is not there."""
        columns = pl.Schema({**dict(schema), EVENT_TIME: pl.Datetime("us", "UTC")})
        return cls(plan.Read(plan.FrameSource(name, columns)), columns)

    def watermark(
        self,
        strategy: WatermarkStrategy,
        *,
        idle_after: str | timedelta | None = None,
    ) -> Stream:
        """Say how event time advances in each partition of the source.

        Args:
            strategy: For example `bounded("1s")`.
            idle_after: A partition without events for this long no longer holds the others back; None: it always does.
        """
        self._refuse_if(self.keys != (), "watermark after key_by", "Set the watermark right after the source.")
        idle = None if idle_after is None else micros(idle_after, what="idle_after")
        return self._next(plan.Watermark(self.node, strategy, idle), self.schema)

    def with_columns(self, **columns: pl.Expr) -> Stream:
        """Add or replace columns by Polars expressions."""
        return self._step(WithColumns(tuple(columns.items())), "with_columns")

    def select(self, *names: str, **columns: pl.Expr) -> Stream:
        """Keep columns by name or expression and drop the others; `event_time` always stays."""
        named = tuple((name, pl.col(name)) for name in names)
        return self._step(Select(named + tuple(columns.items())), "select")

    def filter(self, predicate: pl.Expr) -> Stream:
        """Keep the rows for which the predicate is true."""
        return self._step(Filter(predicate), "filter")

    def flat_map(self, name: str, items: pl.Expr) -> Stream:
        """Give every element of a list-valued expression a row of its own, in column `name`."""
        return self._step(FlatMap(name, items), "flat_map")

    def map_batches(self, function: Callable[[pl.DataFrame], pl.DataFrame], *, name: str = "") -> Stream:
        """Run a function on batches of rows; it is also called with no rows, to learn its columns."""
        return self._step(MapBatches(function, name or getattr(function, "__name__", "function")), "map_batches")

    def union(self, *others: Stream) -> Stream:
        """Join streams of the same columns into one; its watermark is the least of theirs."""
        for other in others:
            if dict(other.schema) != dict(self.schema):
                different = sorted(set(self.schema.items()) ^ set(other.schema.items()), key=str)
                listed = ", ".join(f"{name} {kind}" for name, kind in different)
                raise PlanError(
                    f"union of streams with different columns: {listed}",
                    hint="Bring both to the same columns with select() first.",
                )
        return Stream(plan.Union((self.node, *(other.node for other in others))), self.schema)

    def key_by(self, *keys: str) -> Stream:
        """Say which columns' values belong together in the steps that follow."""
        self._refuse_if(not keys, "key_by without a column", "Name at least one column.")
        for key in keys:
            self._known(key, "key_by")
        return Stream(plan.KeyBy(self.node, keys), self.schema, keys)

    def window(
        self,
        assigner: Assigner,
        *,
        trigger: Trigger | None = None,
        mode: Mode = "value",
        allowed_lateness: str | timedelta | int = 0,
    ) -> Stream:
        """Sort rows into windows.

        Args:
            assigner: For example `sliding("30s", every="5s")`.
            trigger: When windows fire; None: once, when the watermark passes their end, and again for late rows.
            mode: What a later firing holds: "value" (all so far), "delta" (what is new), "value_and_retraction".
            allowed_lateness: How long after its end a window still takes rows.
        """
        self._refuse_if(not self.keys, "window without a key", "Call key_by(...) before window(...).")
        lateness = micros(allowed_lateness, what="allowed_lateness")
        self._refuse_if(lateness < 0, f"allowed_lateness of {lateness} us", "It cannot be negative.")
        self._refuse_if(
            not assigner.ends and lateness > 0,
            f"allowed_lateness on a window without end ({assigner.describe()})",
            "Such a window never expires, so nothing is late for it; leave allowed_lateness out.",
        )
        return self._next(plan.Window(self.node, assigner, trigger, mode, lateness), self.schema)

    def same_window(self) -> Stream:
        """Keep the windows of the aggregate before, for a second aggregate by another key."""
        self._refuse_if(not self.keys, "same_window without a key", "Call key_by(...) before same_window().")
        self._refuse_if(
            WINDOW_END not in self.schema,
            "same_window without an aggregate before it",
            "Use window(...) here; same_window() continues the windows of an earlier aggregate.",
        )
        return self._next(plan.Window(self.node, same_window(), None, "value", 0), self.schema)

    def aggregate(self, *, on_error: plan.OnError = "fail", **aggregates: Aggregate) -> Stream:
        """Fold the rows of each key and window into one row per firing.

        Args:
            on_error: What a failing user-defined aggregate does: "fail" the job, or send its rows to "dead_letter".
            **aggregates: The result columns, such as `vehicles=count()`.
        """
        window = self.node
        if not isinstance(window, plan.Window):
            raise PlanError("aggregate without a window", hint="Call window(...) or same_window() right before it.")
        self._refuse_if(not aggregates, "aggregate of nothing", "Name at least one, such as vehicles=count().")
        reserved = {*PANE_COLUMNS, EVENT_TIME, *self.keys}
        for name in aggregates:
            self._refuse_if(name in reserved, f"aggregate column {name!r} is taken", "Give it another name.")
        fold = Fold(self.keys, tuple(aggregates.items()))
        try:
            values = fold.results(fold.partials(self.schema.to_frame())).schema
        except PolarsError as problem:
            raise PlanError(
                f"aggregate cannot work: {str(problem).splitlines()[0]}",
                hint=f"The columns here are: {', '.join(self.schema)}.",
            ) from problem
        schema = {**dict(values), EVENT_TIME: pl.Datetime("us", "UTC"), **PANE_COLUMNS}
        return Stream(plan.Aggregated(window, tuple(aggregates.items()), on_error), pl.Schema(schema))

    def process(
        self,
        build: Callable[[tuple[str, ...], pl.Schema], Operator],
        *,
        schema: dict[str, Any],
        name: str = "process",
    ) -> Stream:
        """Run an operator of your own on every key group.

        Args:
            build: Makes the operator from the key columns and the columns that come in.
            schema: The columns that the operator's results have; `event_time` is among them.
            name: What to call it in `explain()`.
        """
        self._refuse_if(not self.keys, "process without a key", "Call key_by(...) before process(...).")
        columns = pl.Schema({**schema, EVENT_TIME: pl.Datetime("us", "UTC")})
        return Stream(plan.Processed(self.node, build, name), columns)

    def explain(self) -> str:
        """Show the plan, one step a line."""
        return explain(self.node)

    def _step(self, step: Step, where: str) -> Stream:
        schema = schema_after(step, self.schema, where=where)
        self._refuse_if(
            EVENT_TIME not in schema, f"{where} drops {EVENT_TIME}", "Keep it: windows and watermarks need it."
        )
        lost = [key for key in self.keys if key not in schema]
        self._refuse_if(
            bool(lost), f"{where} drops the key {', '.join(lost)}", "Keep it, or call key_by after this step."
        )
        return self._next(plan.Stateless(self.node, step), schema)

    def _next(self, node: plan.Node, schema: pl.Schema) -> Stream:
        return Stream(node, schema, self.keys)

    def _known(self, column: str, where: str) -> None:
        if column not in self.schema:
            raise PlanError(
                f"{where}({column!r}): there is no such column",
                hint=f"The columns here are: {', '.join(self.schema)}.",
            )

    def _refuse_if(self, wrong: bool, message: str, hint: str) -> None:
        if wrong:
            raise PlanError(message, hint=hint)
