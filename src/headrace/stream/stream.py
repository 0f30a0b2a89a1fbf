"""`Stream`: what a user writes.

A stream reads like a sentence and does nothing until a runner takes it: every method returns a new stream, checks
what it can against the columns known so far, and refuses what cannot work with a message that says why.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, NoReturn, get_args

import polars as pl
from polars.exceptions import PolarsError

from headrace.cep.operator import PatternOperator
from headrace.engine.keygroups import check_key
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
from headrace.errors import HeadraceError, PlanError
from headrace.joins import kinds as joins
from headrace.stream import plan
from headrace.stream.declared import topic_source
from headrace.stream.enriching import enrich
from headrace.stream.explain import explain
from headrace.stream.expressions import refuse_other_rows, refuse_unnamed
from headrace.stream.order import key_time_of
from headrace.stream.other_names import instead
from headrace.stream.steps import Drop, Filter, FlatMap, MapBatches, Select, WithColumns, first_line, schema_after
from headrace.stream.updating import kept_mark, refuse_updating, union_parts
from headrace.tables import steps
from headrace.tables import table as tables
from headrace.tables.frames import Frame
from headrace.time.duration import micros, text
from headrace.time.key_time import KeyTime
from headrace.time.watermarks import AllIdle
from headrace.windows import same_window
from headrace.windows.aggregates import Aggregate, check_values
from headrace.windows.deduplicate import DeduplicateOperator
from headrace.windows.fold import Fold
from headrace.windows.previous import PreviousOperator
from headrace.windows.triggers import check_trigger, default

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime, timedelta

    from google.protobuf.message import Message

    from headrace.cep.measures import Measure
    from headrace.cep.pattern import Pattern
    from headrace.engine import Operator
    from headrace.enrich import Enrichment
    from headrace.formats import Format
    from headrace.joins.planning import On
    from headrace.joins.sides import How
    from headrace.stream.steps import Step
    from headrace.tables.frames import OverFunction
    from headrace.tables.ranks import Numbering
    from headrace.tables.table import Table
    from headrace.time.watermarks import WatermarkStrategy
    from headrace.windows.assigners import Assigner
    from headrace.windows.panes import Mode
    from headrace.windows.triggers import Trigger

_INSTANT = pl.Datetime("us", "UTC")

_STEP_NAME = re.compile(r"[a-z][a-z0-9.-]{0,62}")

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

    @property
    def schema(self) -> pl.Schema:
        """The columns of its rows."""
        return self.node.schema

    @property
    def keys(self) -> tuple[str, ...]:
        """The key columns of its rows, where a key was set."""
        return self.node.keys

    @classmethod
    def topic(
        cls,
        topic: str,
        kind: type[Message] | None = None,
        *,
        schema: dict[str, Any] | pl.Schema | None = None,
        format: Format | None = None,  # noqa: A002
    ) -> Stream:
        """Read a Kafka topic: events of one type in Headrace's envelope, or records of another format.

        Args:
            topic: The topic's name.
            kind: The protobuf message class of the events' details; `Record` unless told otherwise.
            schema: The columns to read, with their types, of events that bring columns of their own (`Record`, and
                the `Result` of another job). An event without one of them has null there; one with a value of another
                type is a dead letter.
            format: How records that others write are read, such as `json(schema={...}, time="scanned_at")`; it says
                which columns there are. What cannot be read is a dead letter.

        >>> flights = Stream.topic("input.aircraft", schema={"icao24": pl.String, "altitude": pl.Float64})
        >>> flights.schema.names()
        ['event_time', 'ingestion_time', 'icao24', 'altitude']
        >>> from headrace.formats import json
        >>> scans = Stream.topic("scans", format=json(schema={"parcel": pl.String}, time="scanned_at"))
        >>> print(scans.explain())
        topic scans as json, time from scanned_at
        """
        source = topic_source(topic, kind, schema, format)
        return cls(plan.Read(source=source, schema=source.schema))

    @classmethod
    def table(
        cls,
        topic: str,
        *,
        key: str | Sequence[str],
        format: Format,  # noqa: A002
        watermark: WatermarkStrategy,
        idle_after: str | timedelta | None = None,
        versioned: bool = False,
        retention: str | timedelta | int | None = None,
    ) -> Table:
        """Read a topic that holds the newest row of each key: a compacted topic, or changes as Debezium writes them.

        A record without a value deletes the row of its key. See docs/tables.md.

        Args:
            topic: The topic's name.
            key: The columns that name a row.
            format: How records are read, such as `json(schema={...})`; its columns hold the key. With `debezium(...)`
                what was done says which rows are deleted.
            watermark: How event time advances.
            idle_after: See `watermark`.
            versioned: See `as_table`.
            retention: See `as_table`.

        >>> from headrace.formats import json
        >>> from headrace.time import bounded
        >>> columns = {"product": pl.String, "price": pl.Int64}
        >>> prices = Stream.table("prices", key="product", format=json(columns), watermark=bounded("1s"))
        >>> prices.schema.names()
        ['event_time', 'ingestion_time', 'product', 'price']
        """
        names = (key,) if isinstance(key, str) else tuple(key)
        read, deletes, extra = tables.topic_format(format, names)
        stream = cls.topic(topic, format=read).watermark(watermark, idle_after=idle_after)
        made = stream.as_table(*names, deletes=deletes, versioned=versioned, retention=retention)
        return replace(made, source=made.source.drop(*extra)) if extra else made

    @classmethod
    def rows(cls, name: str, schema: dict[str, Any] | pl.Schema) -> Stream:
        """Read rows that the caller feeds under a name; `event_time` is added to the schema if it is not there."""
        columns = pl.Schema({**dict(schema), EVENT_TIME: pl.Datetime("us", "UTC")})
        _refuse_hidden(columns, f"rows({name!r})")
        return cls(plan.Read(source=plan.FrameSource(name, columns), schema=columns))

    @classmethod
    def from_spark(cls, frame: Any, *, time: str, name: str = "frame") -> Stream:
        """Read a Spark DataFrame, streaming or batch: any source that Spark can read.

        Args:
            frame: The DataFrame.
            time: Its column that says when a row happened; it becomes `event_time`.
            name: What to call the source.
        """
        stream: Stream = _bridge().stream_of(frame, time=time, name=name)
        return stream

    def to_spark(self, spark: Any, *, output: Literal["results", "late"] = "results", key_groups: int = 4) -> Any:
        """Give the results as a Spark DataFrame: write it to any sink that Spark can write, in update mode.

        Args:
            spark: The session of the DataFrames that the stream began with.
            output: The results, or the rows that came too late.
            key_groups: How many key groups to spread keys over.
        """
        return _bridge().frame_of(self, spark, output=output, key_groups=key_groups)

    def watermark(
        self,
        strategy: WatermarkStrategy,
        *,
        idle_after: str | timedelta | None = None,
        all_idle: AllIdle = "max",
        per: Literal["source", "key"] = "source",
        tolerance: str | timedelta | int = 0,
        patience: str | timedelta | int = 0,
    ) -> Stream:
        """Say how event time advances in each partition of the source, by its rows as they are here.

        Args:
            strategy: For example `bounded("1s")`.
            idle_after: A partition without events for this long no longer holds the others back; None: it always does.
            all_idle: What the watermark does when every partition is idle: "max" goes to that of the furthest
                partition and stays, "hold" stays where it is, "clock" goes on with the clock, so that the last windows
                fire without another event; events after an outage may be late then.
            per: "key": rows mostly come in order within the key of the `key_by` that follows, and patterns by that key
                need not wait for the watermark: a key's rows are complete up to its own newest time. See docs/time.md.
            tolerance: With `per="key"`, how far behind its key's newest time a row may come; one that is further
                behind is late.
            patience: With `per="key"`, how far behind the watermark a key may be that has been silent.
        """
        self._refuse_if(self.keys != (), "watermark after key_by", "Set the watermark right after the source.")
        self._refuse_if(
            self.node.stateful, "watermark after an aggregate", "Set it at the source; later steps inherit it."
        )
        self._refuse_if(
            not hasattr(strategy, "observe"),
            f"watermark({strategy!r}): that is no strategy",
            'Write .watermark(bounded("5s")) for events that come up to 5 s out of order.',
        )
        try:
            strategy.observe(self.schema.to_frame().clear(1).with_columns(pl.lit(0).cast(_INSTANT).alias(EVENT_TIME)))
        except PolarsError as problem:
            raise PlanError(
                f"watermark {strategy.describe()} cannot work: {first_line(problem)}",
                hint=f"The columns here are: {', '.join(self.schema)}.",
            ) from problem
        self._refuse_if(
            strategy.clock_tolerance is not None and INGESTION_TIME not in self.schema,
            f"watermark {strategy.describe()} without the column {INGESTION_TIME!r}",
            f"Keep {INGESTION_TIME!r} up to the watermark, or leave clock_tolerance out.",
        )
        idle = None if idle_after is None else micros(idle_after, what="idle_after")
        self._refuse_if(idle is not None and idle <= 0, f"idle_after {idle_after!r}", "Give a time above zero.")
        self._refuse_if(
            all_idle not in get_args(AllIdle),
            f"all_idle={all_idle!r}",
            f"Choose one of {', '.join(get_args(AllIdle))}.",
        )
        self._refuse_if(
            all_idle != "max" and idle is None,
            f"all_idle={all_idle!r} without idle_after",
            "Say after which time without events a partition is idle: idle_after=.",
        )
        self._refuse_if(per not in ("source", "key"), f"per={per!r}", 'Choose "source" or "key".')
        key_time = KeyTime(micros(tolerance, what="tolerance"), micros(patience, what="patience"))
        for name, length in (("tolerance", key_time.tolerance), ("patience", key_time.patience)):
            self._refuse_if(length < 0, f"{name}={text(length)}", "Give zero or more.")
            self._refuse_if(length > 0 and per != "key", f"{name}= without per='key'", "It is about time by key.")
        node = plan.Watermark(
            input=self.node,
            strategy=strategy,
            idle_after=idle,
            all_idle=all_idle,
            key_time=key_time if per == "key" else None,
            schema=self.schema,
            keys=self.keys,
        )
        return Stream(node)

    def with_columns(self, *unnamed: Any, **columns: pl.Expr) -> Stream:
        """Add or replace columns by Polars expressions, each of which looks at one row."""
        refuse_unnamed(unnamed, "with_columns", 'with_columns(fahrenheit=pl.col("celsius") * 1.8 + 32)')
        refuse_other_rows(columns.values(), "with_columns")
        return self._step(WithColumns(tuple(columns.items())), "with_columns")

    def select(self, *names: str, **columns: pl.Expr) -> Stream:
        """Keep columns by name or expression and drop the others; `event_time` always stays.

        In an updating stream `is_retraction` stays as well.
        """
        unnamed = tuple(name for name in names if not isinstance(name, str))
        refuse_unnamed(unnamed, "select", 'select("oven", warm=pl.col("celsius") > 9)')
        refuse_other_rows(columns.values(), "select")
        named = tuple((name, pl.col(name)) for name in (*names, *kept_mark(self.node, (*names, *columns))))
        return self._step(Select(named + tuple(columns.items())), "select")

    def drop(self, *names: str) -> Stream:
        """Leave out columns, and keep all others."""
        for name in names:
            self._known(name, "drop")
        return self._step(Drop(names), "drop")

    def filter(self, predicate: pl.Expr, *, counted: str = "") -> Stream:
        """Keep the rows for which the predicate is true.

        Args:
            predicate: An expression of booleans; null counts as false.
            counted: Count the rows that are dropped, under this name; the figures are told with each batch.
        """
        self._refuse_if(
            not isinstance(predicate, pl.Expr),
            f"filter({predicate!r}): that is no expression",
            'Write one of Polars: pl.col("celsius") > 10. For a function of rows see map_batches.',
        )
        refuse_other_rows([predicate], "filter")
        return self._step(Filter(predicate, counted), "filter")

    def flat_map(self, name: str, items: pl.Expr) -> Stream:
        """Give every element of a list-valued expression a row of its own, in column `name`."""
        refuse_other_rows([items], "flat_map")
        return self._step(FlatMap(name, items), "flat_map")

    def map_batches(self, function: Callable[[pl.DataFrame], pl.DataFrame], *, name: str = "") -> Stream:
        """Run a function on batches of rows; it is also called with no rows, to learn its columns."""
        return self._step(MapBatches(function, name or getattr(function, "__name__", "function")), "map_batches")

    def enrich(self, source: Enrichment, *, on: str | Sequence[str] | Mapping[str, str]) -> Stream:
        """Add columns that somebody else knows by key: a table, a function, a service over HTTP.

        A row whose key is not known, or cannot be looked up in time, goes on with nulls; how many is counted. See
        docs/enrich.md.

        Args:
            source: `table(...)`, `bulk(...)` or `http(...)` of `headrace.enrich`.
            on: The key columns; a mapping from the stream's names to the source's where they differ.

        >>> from headrace.enrich import table
        >>> stops = table(pl.DataFrame({"line": ["6"], "ends": ["Arabia"]}), name="stops")
        >>> trips = Stream.rows("trips", {"line": pl.String}).enrich(stops, on="line")
        >>> print(trips.explain())
        rows trips
          enrich by table stops on line -> ends
        """
        return self._step(enrich(source, on, self.schema), "enrich")

    def union(self, *others: Stream) -> Stream:
        """Join streams of the same columns into one; its watermark is the least of theirs.

        The streams may come from topics, from stateful steps, or from one stream that was used twice. If one of them is
        updating, so is the union.
        """
        for other in (self, *others):
            _refuse_in_window(other.node, "union")
        nodes = union_parts((self.node, *(other.node for other in others)))
        for node in nodes:
            if dict(node.schema) != dict(nodes[0].schema):
                different = sorted(set(nodes[0].schema.items()) ^ set(node.schema.items()), key=str)
                listed = ", ".join(f"{name} {kind}" for name, kind in different)
                raise PlanError(
                    f"union of streams with different columns: {listed}",
                    hint="Bring both to the same columns with select() first.",
                )
        return Stream(plan.Union(parts=nodes, schema=nodes[0].schema))

    def join(
        self,
        other: Stream | Table,
        *,
        on: On = (),
        within: tuple[Any, Any] | None = None,
        window: Assigner | None = None,
        as_of: str | None = None,
        how: How = "inner",
        where: pl.Expr | None = None,
        grace: str | timedelta | int = 0,
        keep_for: str | timedelta | int | None = None,
        load_until: datetime | int | None = None,
        revise: bool = False,
        null_safe: bool = False,
        suffix: str = "",
        broadcast: bool = False,
    ) -> Stream:
        """Join with another stream, or with a table. See docs/joins.md.

        Of `within`, `window` and `as_of` one says which rows meet; a table is joined without any of them, then its
        newest rows count.

        Args:
            other: The right side.
            on: The key columns; a mapping, or pairs, from the left names to the right ones where they differ.
            within: The least and the greatest difference of the right row's time to the left one's, both included:
                ("-1h", "10m"). None for no bound, with `keep_for`.
            window: Rows of the same window meet: tumbling, sliding, cumulative, or the one they come from
                (`same_window()`).
            as_of: "event_time": the version of the table meets that held at the row's time.
            how: What becomes of rows without a partner: "inner", "left", "right", "full", "semi" or "anti".
            where: A further condition on pairs.
            grace: How far the join stays behind the watermark.
            keep_for: How long rows of an interval without bound are kept.
            load_until: The time that a table must have been read to before the first row is joined with it.
            revise: Whether results follow later changes of the table, instead of staying as they were given.
            null_safe: Whether null is equal to null in keys.
            suffix: What the names of right columns get that the left side has, too.
            broadcast: Whether every key group keeps the whole table, and rows stay where their own key is: for a small
                table that many rows meet by few keys.

        >>> from headrace.time import bounded
        >>> scans = Stream.rows("scans", {"parcel": pl.String, "depot": pl.String}).watermark(bounded("1s"))
        >>> orders = Stream.rows("orders", {"parcel": pl.String, "price": pl.Int64}).watermark(bounded("1s"))
        >>> joined = scans.join(orders, on="parcel", within=("-1h", "10m"), how="left")
        >>> joined.schema.names()
        ['parcel', 'depot', 'price', 'event_time', 'pane_index']
        """
        return joins.join(
            self,
            other,
            on=on,
            within=within,
            window=window,
            as_of=as_of,
            how=how,
            where=where,
            grace=grace,
            keep_for=keep_for,
            load_until=load_until,
            revise=revise,
            null_safe=null_safe,
            suffix=suffix,
            broadcast=broadcast,
        )

    def join_asof(
        self,
        other: Stream | Table,
        *,
        on: On = (),
        tolerance: str | timedelta | int | None = None,
        how: How = "left",
        where: pl.Expr | None = None,
        grace: str | timedelta | int = 0,
        null_safe: bool = False,
        suffix: str = "",
    ) -> Stream:
        """Join each row with the nearest earlier row of another stream, in event time.

        A row is given when the watermark has passed it, and is not revised. Of right rows with the same time the one
        that came last counts.

        Args:
            other: The right side.
            on: The key columns.
            tolerance: How much earlier the right row may be at most.
            how: "left", "inner", "semi" or "anti".
            where: A further condition on the pair.
            grace: How far the join stays behind the watermark.
            null_safe: Whether null is equal to null in keys.
            suffix: What the names of right columns get that the left side has, too.
        """
        return joins.join_asof(
            self,
            other,
            on=on,
            tolerance=tolerance,
            how=how,
            where=where,
            grace=grace,
            null_safe=null_safe,
            suffix=suffix,
        )

    def as_table(
        self,
        *key: str,
        deletes: pl.Expr | None = None,
        versioned: bool = False,
        retention: str | timedelta | int | None = None,
        null_keys: bool = False,
    ) -> Table:
        """Take the rows as upserts, and deletes, of a table: the newest row of each key counts. See docs/tables.md.

        Args:
            *key: The columns that name a row.
            deletes: Which rows delete the row of their key; none do if not given. Of such a row only the key and the
                time count.
            versioned: Whether the row with the latest event time is the newest, and not the last to arrive.
            retention: How long an older version, and a delete, of a versioned table is remembered.
            null_keys: Whether null is a key like others; otherwise rows without a key are dismissed.

        >>> from headrace.time import bounded
        >>> prices = Stream.rows("prices", {"product": pl.String, "price": pl.Int64}).watermark(bounded("1s"))
        >>> prices.as_table("product").changes().schema.names()
        ['product', 'price', 'event_time', 'is_retraction']
        """
        _refuse_in_window(self.node, "as_table")
        kept = None if retention is None else micros(retention, what="retention")
        self._refuse_if(kept is not None and kept < 0, f"retention of {kept} us", "It cannot be negative.")
        self._refuse_if(
            kept is not None and not versioned,
            "retention of a table that is not versioned",
            "Only versions have a time to be kept for: add versioned=True, or leave retention= out.",
        )
        return tables.as_table(self, key, deletes=deletes, versioned=versioned, retention=kept, null_keys=null_keys)

    def as_changelog(self, retraction: pl.Expr) -> Stream:
        """Say which rows take back an equal row that came before: from here on the stream is updating.

        Args:
            retraction: Which rows take back; the others add.

        >>> moves = Stream.rows("moves", {"account": pl.String, "what": pl.String})
        >>> moves.as_changelog(pl.col("what") == "undo").drop("what").schema.names()
        ['account', 'event_time', 'is_retraction']
        """
        _refuse_in_window(self.node, "as_changelog")
        self._refuse_if(self.node.updating, "as_changelog of a stream that is updating already", "Leave this step out.")
        return tables.as_changelog(self, retraction)

    def __getattr__(self, name: str) -> NoReturn:
        told = f"streams have no {name}"
        if not name.startswith("_") and (hint := instead(name, [each for each in dir(type(self)) if each[0] != "_"])):
            told = f"{told}. {hint}"
        raise AttributeError(told, name=name, obj=None)

    def key_by(self, *keys: str, null_keys: bool = False) -> Stream:
        """Say which columns' values belong together in the steps that follow.

        Args:
            *keys: The columns.
            null_keys: Whether null is a key like others, as in GROUP BY; otherwise rows without a key are dismissed.
        """
        _refuse_in_window(self.node, "key_by")
        self._refuse_if(not keys, "key_by without a column", "Name at least one column.")
        for key in keys:
            _refuse_key(key)
            self._known(key, "key_by")
            self._refuse_if(keys.count(key) > 1, f"key_by names {key!r} twice", "Name each column once.")
            check_key(key, self.schema[key])
        return Stream(plan.KeyBy(input=self.node, schema=self.schema, keys=keys, null_keys=null_keys))

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
        _refuse_in_window(self.node, "window")
        self._refuse_if(not self.keys, "window without a key", "Call key_by(...) before window(...).")
        self._refuse_reserved_keys()
        lateness = micros(allowed_lateness, what="allowed_lateness")
        self._refuse_if(lateness < 0, f"allowed_lateness of {lateness} us", "It cannot be negative.")
        self._refuse_if(
            not assigner.ends and lateness > 0,
            f"allowed_lateness on a window without end ({assigner.describe()})",
            "Such a window never expires, so nothing is late for it; leave allowed_lateness out.",
        )
        check_trigger(trigger or default(), ends=assigner.ends, lateness=lateness)
        return self._window(assigner, trigger, mode, lateness)

    def same_window(self) -> Stream:
        """Keep the windows of the aggregate before, for a second aggregate by another key."""
        _refuse_in_window(self.node, "same_window")
        self._refuse_if(not self.keys, "same_window without a key", "Call key_by(...) before same_window().")
        self._refuse_reserved_keys()
        self._refuse_if(
            any(self.schema.get(bound) != _INSTANT for bound in (WINDOW_START, WINDOW_END)),
            "same_window without an aggregate before it",
            "Use window(...) here; same_window() continues the windows of an earlier aggregate.",
        )
        return self._window(same_window(), None, "value", 0)

    def aggregate(
        self,
        *unnamed: Any,
        on_error: plan.OnError = "fail",
        keep_for: str | timedelta | int | None = None,
        **aggregates: Aggregate,
    ) -> Stream:
        """Fold the rows of each key and window into one row per firing; without a window, all rows of each key.

        Without a window the result is updating: when rows come, the row of their key that was given before is taken
        back, and a new one is added (`is_retraction`). Without a key there is one row for all. See docs/tables.md.

        Args:
            *unnamed: Refused: every aggregate has a name.
            on_error: What a failing user-defined aggregate does: "fail" the job, or send its rows to "dead_letter",
                which needs a window.
            keep_for: Without a window: forget a key when the watermark is so far past its newest row. Its result
                stays as it was given; a row that comes later begins anew, and takes nothing back.
            **aggregates: The result columns, such as `vehicles=count()`.

        >>> from headrace.time import bounded
        >>> from headrace.windows import count
        >>> scans = Stream.rows("scans", {"depot": pl.String}).watermark(bounded("1s"))
        >>> print(scans.key_by("depot").aggregate(scans=count()).explain())
        rows scans
          watermark bounded(1s)
          key_by depot
          aggregate scans=count() of all rows
          key_by depot
        """
        refuse_unnamed(
            tuple(each.describe() for each in unnamed if isinstance(each, Aggregate)) or unnamed,
            "aggregate",
            "aggregate(n=count())",
        )
        check_values(aggregates, self.schema)
        window = self.node
        if not isinstance(window, plan.Window):
            self._refuse_if(
                on_error != "fail", "on_error of an aggregate without a window", "Leave it out, or call window(...)."
            )
            return steps.aggregate(self, aggregates, keep_for=_kept_for(keep_for))
        self._refuse_if(
            keep_for is not None, "keep_for of an aggregate of a window", "A window ends by itself; leave it out."
        )
        self._refuse_if(not aggregates, "aggregate of nothing", "Name at least one, such as scans=count().")
        reserved = {*PANE_COLUMNS, EVENT_TIME, *self.keys}
        for name in aggregates:
            self._refuse_if(name in reserved, f"aggregate column {name!r} is taken", "Give it another name.")
        _refuse_hidden(aggregates, "aggregate")
        fold = Fold(self.keys, tuple(aggregates.items()))
        try:
            values = fold.results(fold.partials(self.schema.to_frame())).schema
        except HeadraceError as problem:
            raise PlanError(f"aggregate cannot work: {problem.message}", hint=problem.hint) from problem
        except PolarsError as problem:
            raise PlanError(
                f"aggregate cannot work: {first_line(problem)}",
                hint=f"The columns here are: {', '.join(self.schema)}.",
            ) from problem
        schema = {**dict(values), EVENT_TIME: pl.Datetime("us", "UTC"), **PANE_COLUMNS}
        node = plan.Aggregated(
            input=window, aggregates=tuple(aggregates.items()), on_error=on_error, schema=pl.Schema(schema)
        )
        return Stream(node)

    def top(
        self,
        n: int | None,
        *,
        by: str | Sequence[str] = (),
        descending: bool | Sequence[bool] = True,
        last_first: bool = False,
        rank: str = "",
        numbering: Numbering = "row_number",
        keep_for: str | timedelta | int | None = None,
    ) -> Stream:
        """Keep the first `n` rows of each key in some order, revised as rows come; without a key, of all rows.

        Of rows that are equal in the order the first to arrive comes first. Null is smaller than any value. The result
        is updating, but for the first to arrive of rows that stay.

        Args:
            n: How many; with another numbering than "row_number", the greatest rank. None: all rows, with their rank.
            by: The columns that order the rows; none: as they arrive.
            descending: Whether the largest come first; for each column, or for all.
            last_first: Whether of rows that nothing else tells apart the last to arrive comes first.
            rank: The name of a new column with the rank of each row; empty: without one.
            numbering: How equal rows are ranked: "row_number" (by arrival), "rank" (alike, with gaps), "dense_rank".
            keep_for: Forget a key when the watermark is so far past its newest row.

        >>> from headrace.time import bounded
        >>> bids = Stream.rows("bids", {"auction": pl.Int64, "price": pl.Int64}).watermark(bounded("1s"))
        >>> bids.key_by("auction").top(3, by="price", rank="place").schema.names()
        ['auction', 'price', 'event_time', 'place', 'is_retraction']
        """
        _refuse_in_window(self.node, "top")
        order = (by,) if isinstance(by, str) else tuple(by)
        return steps.top(
            self,
            n,
            order,
            descending,
            last_first=last_first,
            rank=rank,
            numbering=numbering,
            keep_for=_kept_for(keep_for),
        )

    def over(
        self,
        *,
        rows: int | Literal["all"] | None = None,
        range: str | timedelta | int | None = None,  # noqa: A002 - as in SQL
        order: Literal["event_time", "arrival"] = "event_time",
        **functions: OverFunction,
    ) -> Stream:
        """Add to each row what the rows of its key before it say: aggregates of a frame, numbers, neighbours.

        In the order of event time a row goes on when the watermark has passed it; rows behind it are late. In the order
        of arrival it goes on at once.

        Args:
            rows: Take this many rows before each row, or all, and the row itself.
            range: Take the rows so far back in time, or "all", and those of the row's own time. This is the default,
                with "all"; in order of arrival the default is all rows before.
            order: What orders the rows of a key.
            **functions: The new columns: aggregates such as `sum("price")`, or of `headrace.tables` `row_number()`,
                `rank()`, `dense_rank()`, `lag(...)`, `lead(...)`, `first_value(...)`, `last_value(...)`.

        >>> from headrace.tables import lag
        >>> from headrace.time import bounded
        >>> from headrace.windows import mean
        >>> positions = Stream.rows("positions", {"bus": pl.String, "speed": pl.Float64}).watermark(bounded("1s"))
        >>> smooth = positions.key_by("bus").over(range="1min", speed_1min=mean("speed"), before=lag("speed"))
        >>> smooth.schema.names()
        ['bus', 'speed', 'event_time', 'speed_1min', 'before']
        """
        _refuse_in_window(self.node, "over")
        self._refuse_if(rows is not None and range is not None, "over with rows and range", "Give one of them.")
        arrival = order == "arrival"
        if rows is not None or (range is None and arrival):
            frame = Frame("rows", None if rows is None or rows == "all" else rows)
        else:
            frame = Frame("range", None if range is None or range == "all" else micros(range, what="range"))
        return steps.over(self, functions, frame, arrival=arrival)

    def distinct(self, *, keep_for: str | timedelta | int | None = None) -> Stream:
        """Give each different row once, whatever its time; it is taken back when the last of its kind is.

        Args:
            keep_for: Forget a row when the watermark is so far past its newest copy; it may then be given again.

        >>> from headrace.time import bounded
        >>> scans = Stream.rows("scans", {"depot": pl.String, "parcel": pl.Int64}).watermark(bounded("1s"))
        >>> print(scans.select("depot").distinct().explain())
        rows scans
          watermark bounded(1s)
          select depot
          key_by depot
          distinct rows
        """
        _refuse_in_window(self.node, "distinct")
        return steps.distinct(self, keep_for=_kept_for(keep_for))

    def intersect(self, other: Stream, *, all: bool = False) -> Stream:  # noqa: A002 - as in SQL
        """Give the rows that are in both streams, compared by all columns but the event time.

        Args:
            other: A stream of the same columns.
            all: Keep copies: a row is given as often as it is in both. Otherwise once.
        """
        _refuse_in_window(self.node, "intersect")
        return steps.multiset((self, other), "intersect_all" if all else "intersect")

    def subtract(self, other: Stream, *, all: bool = False) -> Stream:  # noqa: A002 - as in SQL
        """Give the rows that are not in the other stream (EXCEPT), compared by all columns but the event time.

        Args:
            other: A stream of the same columns.
            all: Keep copies: each row of the other takes out one. Otherwise it takes out all, and rows are given once.
        """
        _refuse_in_window(self.node, "subtract")
        return steps.multiset((self, other), "except_all" if all else "except")

    def match(self, pattern: Pattern) -> Matches:
        """Find a pattern in the rows of each key, in event-time order; `select` says what a match gives.

        >>> from headrace.cep import Pattern
        >>> from headrace.cep.measures import first, last
        >>> from headrace.time import bounded
        >>> stop = Pattern.begin("moving", pl.col("speed") > 10).next("stopped", pl.col("speed") < 1).within("10s")
        >>> stops = (
        ...     Stream.rows("positions", {"vehicle": pl.String, "speed": pl.Float64})
        ...     .watermark(bounded("1s"))
        ...     .key_by("vehicle")
        ...     .match(stop)
        ...     .select(at=last("stopped.event_time"), from_speed=first("moving.speed"))
        ... )
        >>> stops.schema.names()
        ['vehicle', 'event_time', 'at', 'from_speed']
        """
        self._refuse_if(not self.keys, "match without a key", "Call key_by(...) before match(...).")
        refuse_updating(self.node, "match", "Match the rows that the table is made of, or the results of a window.")
        return Matches(self, pattern)

    def process(
        self,
        build: Callable[[tuple[str, ...], pl.Schema], Operator],
        *,
        schema: dict[str, Any] | None = None,
        name: str = "",
        takes_updates: bool = False,
        gives_updates: bool = False,
    ) -> Stream:
        """Run an operator of your own on every key group.

        Args:
            build: Makes the operator from the key columns and the columns that come in; called more than once.
            schema: The columns you expect the operator's results to have, beside `event_time`; refused if it says
                others.
            name: What to call it in `explain()`.
            takes_updates: Whether the operator understands rows that take back earlier ones (`is_retraction`).
            gives_updates: Whether its results may be taken back, by rows with `is_retraction`.
        """
        _refuse_in_window(self.node, "process")
        if not takes_updates:
            refuse_updating(
                self.node,
                f"process {name}".rstrip(),
                "Let the operator subtract rows with is_retraction, and say takes_updates=True.",
            )
        self._refuse_if(not self.keys, "process without a key", "Call key_by(...) before process(...).")
        columns = build(self.keys, self.schema).schema(self.schema)
        self._refuse_if(
            columns.get(EVENT_TIME) != _INSTANT,
            f"process {name}: the operator's results have no {EVENT_TIME}",
            f"Let its schema() name {EVENT_TIME} as {_INSTANT}: what follows needs it.",
        )
        if schema is not None:
            expected = pl.Schema({**schema, EVENT_TIME: _INSTANT})
            self._refuse_if(
                dict(expected) != dict(columns),
                f"process {name}: the operator's results have the columns {dict(columns)}, not {dict(expected)}",
                "Correct schema=, or leave it out.",
            )
        kind = "-".join(["process", *re.findall(r"[a-z0-9]+", name.lower())])
        return Stream(
            plan.Processed(
                input=self.node,
                does=kind,
                description=f"process {name}".rstrip(),
                make=build,
                schema=columns,
                takes_updates=takes_updates,
                gives_updates=gives_updates,
            )
        )

    def process_with(
        self,
        *others: Stream,
        build: Callable[[tuple[tuple[str, ...], ...], tuple[pl.Schema, ...]], Operator],
        schema: pl.Schema,
        name: str,
        takes_updates: bool = False,
        gives_updates: bool = False,
    ) -> Stream:
        """Run an operator with several inputs on every key group.

        Rows of all inputs whose keys have the same values meet in one key group: the keys need the same types in the
        same order, not the same names.

        Args:
            others: The streams beside this one, each with a key.
            build: Makes the operator from the key columns and the columns of each input, this stream's first.
            schema: The columns of the operator's results, `event_time` among them.
            name: What to call it in `explain()`.
            takes_updates: Whether the operator understands rows that take back earlier ones (`is_retraction`).
            gives_updates: Whether its results may be taken back, by rows with `is_retraction`.
        """
        streams = (self, *others)
        for stream in streams:
            if not takes_updates:
                refuse_updating(
                    stream.node,
                    f"process_with {name}",
                    "Let the operator subtract rows with is_retraction, and say takes_updates=True.",
                )
            _refuse_in_window(stream.node, "process_with")
            self._refuse_if(
                not stream.keys, "process_with without a key", "Call key_by(...) on every stream before it."
            )
        types = [[stream.schema[key] for key in stream.keys] for stream in streams]
        self._refuse_if(
            any(each != types[0] for each in types),
            f"process_with of keys of different types: {'; '.join(_typed(stream) for stream in streams)}",
            "Cast them to the same types with with_columns(...) before key_by(...).",
        )
        self._refuse_if(
            schema.get(EVENT_TIME) != _INSTANT,
            f"process_with {name}: the results have no {EVENT_TIME}",
            f"Name {EVENT_TIME} as {_INSTANT}: what follows needs it.",
        )
        kind = "-".join(["process", *re.findall(r"[a-z0-9]+", name.lower())])
        return Stream(
            plan.Combined(
                parts=tuple(stream.node for stream in streams),
                does=kind,
                description=f"process {name}".rstrip(),
                make=build,
                schema=schema,
                takes_updates=takes_updates,
                gives_updates=gives_updates,
            )
        )

    def deduplicate(self, *columns: str, within: str | timedelta | int) -> Stream:
        """Let the first of the rows with the same values in some columns pass, and drop those near it in time.

        A row is dropped if one with the same values was let through whose event time is less than `within` before or
        after its own. A row more than `within` behind the watermark cannot be told from a duplicate any more and is
        late. Rows keep their event time, and the key that was set before stays.

        Args:
            columns: Those that make two rows the same, such as an event's number.
            within: How far apart in event time duplicates may be; state is kept for twice this time.

        >>> from headrace.time import bounded
        >>> doors = Stream.rows("doors", {"door": pl.String, "event": pl.Int64}).watermark(bounded("1s"))
        >>> print(doors.deduplicate("door", "event", within="10min").explain())
        rows doors
          watermark bounded(1s)
          key_by door, event
          deduplicate by door, event within 10min
        """
        self._refuse_if(not columns, "deduplicate without a column", "Name those that make two rows the same.")
        length = micros(within, what="within")
        self._refuse_if(length <= 0, f"deduplicate within {text(length)}", "Give a time above zero.")
        refuse_updating(self.node, "deduplicate", "Use distinct(), which subtracts; it keeps every row for ever.")
        self._refuse_if(
            IS_RETRACTION in self.schema, "deduplicate after an aggregate", "Deduplicate the rows before the window."
        )
        keyed = self.key_by(*columns)
        node = plan.Processed(
            input=keyed.node,
            does="deduplicate",
            description=f"deduplicate by {', '.join(columns)} within {text(length)}",
            make=lambda keys, _: DeduplicateOperator(keys, length),
            schema=self.schema,
        )
        passed = Stream(node)
        return passed.key_by(*self.keys) if self.keys else passed

    def previous(self, *, within: str | timedelta | int, **columns: str) -> Stream:
        """Give each row values of the row before it: of the same key, in the order of event time.

        A row goes on when the watermark has passed it, since until then another may come between; with time by key
        (`watermark(..., per="key")`) when its key has come to it. The first row of a
        key, and one further than `within` from the row before, has null there. The key stays.

        Args:
            within: How far before in event time the row before may be; a key is remembered for as long.
            **columns: New columns, and the column of the row before that each is taken from.

        >>> from headrace.time import bounded
        >>> moves = (
        ...     Stream.rows("positions", {"vehicle": pl.String, "cell": pl.UInt64})
        ...     .watermark(bounded("1s"))
        ...     .key_by("vehicle")
        ...     .previous(came_from="cell", since="event_time", within="5min")
        ... )
        >>> print(moves.explain())
        rows positions
          watermark bounded(1s)
          key_by vehicle
          previous came_from=cell, since=event_time within 5min
          key_by vehicle
        """
        self._refuse_if(not self.keys, "previous without a key", "Call key_by(...) before previous(...).")
        self._refuse_if(not columns, "previous of nothing", 'Name a column, such as came_from="cell".')
        refuse_updating(self.node, "previous", "Use it on the rows that the table is made of.")
        self._refuse_if(
            IS_RETRACTION in self.schema, "previous after an aggregate", "Use it on rows, before the window."
        )
        length = micros(within, what="within")
        self._refuse_if(length <= 0, f"previous within {text(length)}", "Give a time above zero.")
        _refuse_hidden(columns, "previous")
        for name, source in columns.items():
            self._known(source, "previous")
            self._refuse_if(name in self.schema, f"previous: column {name!r} is taken", "Give it another name.")
        operator = PreviousOperator(
            self.keys, tuple(columns.items()), length, key_time=key_time_of(self.node, self.keys)
        )
        told = ", ".join(f"{name}={source}" for name, source in columns.items())
        node = plan.Processed(
            input=self.node,
            does="previous",
            description=f"previous {told} within {text(length)}",
            make=lambda *_: operator,
            schema=operator.schema(self.schema),
        )
        return Stream(node).key_by(*self.keys)

    def named(self, name: str) -> Stream:
        """Name the stateful step before this call: what a checkpoint keeps of it is found by this name.

        Without a name a step is found by what it does, its keys, and a number among its likes; that name changes if
        the keys do, or if a step like it is put before it.

        Args:
            name: Lower-case letters, digits, dashes and dots; different for each step of a job.

        >>> from headrace.time import bounded
        >>> from headrace.windows import count, tumbling
        >>> scans = Stream.rows("scans", {"depot": pl.String}).watermark(bounded("1s")).key_by("depot")
        >>> print(scans.window(tumbling("10s")).aggregate(scans=count()).named("per-depot").explain())
        rows scans
          watermark bounded(1s)
          key_by depot
          window tumbling(10s)
          aggregate scans=count() named per-depot
        """
        self._refuse_if(
            not _STEP_NAME.fullmatch(name),
            f"the name {name!r} of a step",
            "Begin with a letter and use lower-case letters, digits, dashes and dots, 63 at most.",
        )
        node = self.node
        if isinstance(node, plan.Stateful):
            return Stream(replace(node, name=name))
        before = node.inputs[0] if node.inputs else node
        if isinstance(node, plan.KeyBy) and isinstance(before, plan.Stateful):  # as deduplicate() and previous() end
            return Stream(replace(node, input=replace(before, name=name)))
        raise PlanError(
            f"named({name!r}) after {node.text}, which keeps no state",
            hint="Call it right after aggregate(), select() of a match, deduplicate(), previous() or process().",
        )

    def explain(self) -> str:
        """Show the plan, one step a line."""
        return explain(self.node)

    def _step(self, step: Step, where: str) -> Stream:
        _refuse_in_window(self.node, where)
        schema = schema_after(step, self.schema, where=where)
        _refuse_hidden(schema, where)
        self._refuse_if(
            EVENT_TIME not in schema, f"{where} drops {EVENT_TIME}", "Keep it: windows and watermarks need it."
        )
        self._refuse_if(
            schema[EVENT_TIME] != _INSTANT,
            f"{where} makes {EVENT_TIME} a {schema[EVENT_TIME]}",
            f"It must be a {_INSTANT}: microseconds, UTC.",
        )
        self._refuse_if(
            self.node.retracts and schema.get(IS_RETRACTION) != pl.Boolean,
            f"{where} loses {IS_RETRACTION} of an updating stream",
            "Keep it as it is: it tells which rows are taken back.",
        )
        lost = [key for key in self.keys if key not in schema]
        self._refuse_if(
            bool(lost), f"{where} drops the key {', '.join(lost)}", "Keep it, or call key_by after this step."
        )
        for key in self.keys:
            check_key(key, schema[key])
        return Stream(plan.Stateless(input=self.node, step=step, schema=schema, keys=self.keys))

    def _window(self, assigner: Assigner, trigger: Trigger | None, mode: Mode, lateness: int) -> Stream:
        return Stream(
            plan.Window(
                input=self.node,
                assigner=assigner,
                trigger=trigger,
                mode=mode,
                allowed_lateness=lateness,
                schema=self.schema,
                keys=self.keys,
            )
        )

    def _known(self, column: str, where: str) -> None:
        if column not in self.schema:
            outer, _, inner = column.partition(".")
            nested = (
                f'A field of {outer!r} becomes one by with_columns({inner}=pl.col("{outer}").struct.field("{inner}")). '
                if inner.isidentifier() and isinstance(self.schema.get(outer), pl.Struct)
                else ""
            )
            raise PlanError(
                f"{where}({column!r}): there is no such column",
                hint=f"{nested}The columns here are: {', '.join(self.schema)}.",
            )

    def _refuse_reserved_keys(self) -> None:
        taken = [key for key in self.keys if key in PANE_COLUMNS or key == EVENT_TIME]
        self._refuse_if(
            bool(taken),
            f"the key {', '.join(taken)} has the name of a column that every result has",
            "Copy it with with_columns(...) to a column of another name, and key by that.",
        )

    def _refuse_if(self, wrong: bool, message: str, hint: str) -> None:
        if wrong:
            raise PlanError(message, hint=hint)


def _refuse_in_window(node: plan.Node, where: str) -> None:
    if not node.complete:
        raise PlanError(
            f"{where} between window and aggregate",
            hint="Call aggregate(...) right after window(...) or same_window().",
        )


def _refuse_key(key: object) -> None:
    if isinstance(key, str):
        return
    what = "an expression" if isinstance(key, pl.Expr) else f"the {type(key).__name__} {key!r}"
    raise PlanError(
        f"key_by of {what}",
        hint="Name columns; compute one before it: "
        '.with_columns(depot=pl.col("depot").str.to_lowercase()).key_by("depot").',
    )


def _refuse_hidden(names: Iterable[str], where: str) -> None:
    for name in names:
        if name.startswith("#"):
            raise PlanError(f"{where} has a column {name!r}", hint="Names that begin with # are ours; choose another.")


def _kept_for(time: str | timedelta | int | None) -> int | None:
    kept = None if time is None else micros(time, what="keep_for")
    if kept is not None and kept <= 0:
        raise PlanError(f"keep_for of {kept} us", hint="Give a time above zero.")
    return kept


def _typed(stream: Stream) -> str:
    return ", ".join(f"{key} {stream.schema[key]}" for key in stream.keys)


def _bridge() -> Any:
    """Look up the part that knows Spark, at the moment it is asked for: this layer runs without Spark."""
    return import_module("headrace.spark.run.bridge")


@dataclass(frozen=True)
class Matches:
    """Matches of a pattern, before it is said what each gives."""

    stream: Stream
    pattern: Pattern
    timed_out: bool = False

    def with_timed_out(self) -> Matches:
        """Also give partial matches whose time bound has ended, told apart by a column `timed_out`.

        Their event time is the end of the time bound. Measures of an element that had no row yet are null, or empty.

        >>> from headrace.cep import Pattern
        >>> from headrace.cep.measures import first
        >>> paid = Pattern.begin("order", pl.col("what") == "order").followed_by("payment", pl.col("what") == "payment")
        >>> orders = Stream.rows("orders", {"id": pl.Int64, "what": pl.String}).key_by("id")
        >>> matches = orders.match(paid.within("1h")).with_timed_out().select(paid_at=first("payment.event_time"))
        >>> matches.schema.names()
        ['id', 'event_time', 'timed_out', 'paid_at']
        """
        return replace(self, timed_out=True)

    def select(self, **measures: Measure) -> Stream:
        """Give each match a row: its key, when it was decided, and these measures."""
        if not measures:
            raise PlanError("select() of nothing", hint='Name a measure, such as at=last("stopped.event_time").')
        operator = PatternOperator(self.pattern, key=self.stream.keys, measures=measures, mark_timed_out=self.timed_out)
        schema = operator.schema(self.stream.schema)
        node = plan.Matched(
            input=self.stream.node,
            pattern=self.pattern,
            measures=tuple(measures.items()),
            timed_out=self.timed_out,
            key_time=key_time_of(self.stream.node, self.stream.keys),
            schema=schema,
        )
        return Stream(node)
