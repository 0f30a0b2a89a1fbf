"""How a table is read: its columns, time and watermark as steps of a stream.

A physical column comes from the value of a record, or from its key with `'key.format'` and `'key.fields'`; a metadata
column from what Kafka has beside them. Computed columns are the SELECT list of a query over these. The column of the
WATERMARK becomes the time of the events: a field of the value is read as that by the format, so that a record without
it is a dead letter; any other column is put in its place. Without a WATERMARK the time is Kafka's, with a delay of 1 s.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import polars as pl

from headrace.engine.operator import EVENT_TIME, INGESTION_TIME
from headrace.errors import HeadraceError
from headrace.formats import record, text
from headrace.formats.times import ISO
from headrace.stream import Stream
from headrace.streaming_sql.relation import CatalogTable
from headrace.streaming_sql.statements import ComputedColumn, MetadataColumn, PhysicalColumn
from headrace.streaming_sql.table_formats import OwnFormats, TimeOfEvents, choose_format
from headrace.tables.table import topic_format
from headrace.time import ascending, bounded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.formats import Format
    from headrace.streaming_sql.options import Options
    from headrace.streaming_sql.script import Fragment, ScriptError
    from headrace.streaming_sql.statements import CreateTable, Watermark
    from headrace.streaming_sql.table_formats import FormatChoice

    #: Adds columns to a stream: their expressions by name.
    Compute = Callable[[Stream, Mapping[str, Fragment]], Stream]

INSTANT: Final = pl.Datetime("us", "UTC")
#: What a record has beside its value, by the name in FROM '...'.
_FIGURES: Final = ("partition", "offset", "timestamp")
_OWN_TIMES: Final = {"event-time": EVENT_TIME, "ingestion-time": INGESTION_TIME}
_TIMES_OF_DAY: Final = ("%H:%M:%S%.f", "%H:%M")
_HEADER: Final = "headers."
_PROCTIME: Final = re.compile(r"PROCTIME\s*\(\s*\)", re.IGNORECASE)
#: How far event time is behind without a WATERMARK, and how long a partition may be silent before it holds back nobody.
_DELAY: Final = "1s"
_IDLE_AFTER: Final = "10s"
#: A double holds decimals of so many digits exactly.
_EXACT_DIGITS: Final = 15


@dataclass(frozen=True)
class SourceColumns:
    """The columns of a table by where they come from.

    Args:
        table: The table.
        key: The physical columns that are read from the key.
    """

    table: CreateTable
    key: tuple[str, ...] = ()
    physical: dict[str, PhysicalColumn] = field(init=False)
    metadata: dict[str, MetadataColumn] = field(init=False)
    computed: dict[str, ComputedColumn] = field(init=False)

    def __post_init__(self) -> None:
        for name, kind in (("physical", PhysicalColumn), ("metadata", MetadataColumn), ("computed", ComputedColumn)):
            found = {each.name: each for each in self.table.columns if isinstance(each, kind)}
            object.__setattr__(self, name, found)

    @property
    def value(self) -> dict[str, PhysicalColumn]:
        """The columns that are read from the value."""
        return {name: column for name, column in self.physical.items() if name not in self.key}


def proctime_column(table: CreateTable) -> str:
    """Name the column that is `AS PROCTIME()`: it stands for the time of arrival."""
    for column in table.columns:
        if isinstance(column, ComputedColumn) and _PROCTIME.fullmatch(column.expression.text):
            return column.name
    return ""


def topic_table(table: CreateTable, options: Options, own: OwnFormats, compute: Compute) -> CatalogTable:
    """Read a table that is a topic.

    Args:
        table: The table.
        options: Its options.
        own: Formats beside Headrace's own.
        compute: Adds the computed columns.

    Raises:
        ScriptError: The table cannot be read so.
    """
    topic = options.needed("topic", hint="Name it: 'topic' = 'scans'.")
    choice = choose_format(options, own)
    columns = SourceColumns(table, _key_columns(table, options))
    if not columns.physical:
        raise table.text.problem(f"table {table.name} has no columns", hint="Name those of its records, with types.")
    time = time_of_events(columns, options)
    deletes: pl.Expr | None = None
    extra: tuple[str, ...] = ()
    if options.text("connector") == "upsert-kafka" and not table.primary_key:
        raise table.text.problem(
            f"table {table.name} of upsert-kafka has no PRIMARY KEY",
            hint="Name the columns that name a row: PRIMARY KEY (product) NOT ENFORCED.",
        )
    keyed = bool(table.primary_key) and (choice.is_changelog or options.text("connector") == "upsert-kafka")
    try:
        if choice.is_envelope:
            stream = _of_envelope(topic, columns, options, own)
        else:
            read = _record_format(columns, options, choice, own, time)
            if keyed:
                read, deletes, extra = topic_format(read, table.primary_key)
            stream = Stream.topic(topic, format=read)
    except HeadraceError as wrong:
        raise table.text.located(wrong) from wrong
    stream = finish_columns(stream, columns, options, compute, time)
    if not keyed or deletes is None:
        return CatalogTable(stream)
    made = stream.as_table(*table.primary_key, deletes=deletes, versioned=table.watermark is not None)
    made = replace(made, source=made.source.drop(*extra)) if extra else made
    return CatalogTable(stream, table=made, kind="versioned" if made.versioned else "table")


def finish_columns(
    stream: Stream, columns: SourceColumns, options: Options, compute: Compute, time: TimeOfEvents
) -> Stream:
    """Bring what was read to the declared types, add the computed columns, and set time and watermark.

    Args:
        stream: What was read.
        columns: The columns.
        options: The options of the table.
        compute: Adds the computed columns.
        time: Where the format has the time of an event.

    Raises:
        ScriptError: A column cannot be computed, or the watermark is of a column that is no time.
    """
    table = columns.table
    casts = {
        name: _cast(name, each.dtype)
        for name, each in columns.physical.items()
        if name in stream.schema and stream.schema[name] != each.dtype
    }
    casts |= {
        name: pl.col(_OWN_TIMES.get(each.key, name)).cast(each.dtype)
        for name, each in columns.metadata.items()
        if each.key in _OWN_TIMES or each.key in _FIGURES
    }
    try:
        stream = stream.with_columns(**casts) if casts else stream
    except HeadraceError as wrong:
        raise table.text.located(wrong) from wrong
    proctime = proctime_column(table)
    computed = {name: each.expression for name, each in columns.computed.items() if name != proctime}
    if computed:
        stream = compute(stream, computed)
    idle = options.duration("scan.watermark.idle-timeout")
    if table.watermark is None:
        return stream.watermark(
            bounded(_DELAY), idle_after=_IDLE_AFTER if idle is None else f"{idle}us" if idle else None
        )
    return _with_watermark(stream, table.watermark, time, idle)


def _with_watermark(stream: Stream, watermark: Watermark, time: TimeOfEvents, idle: int | None) -> Stream:
    name = watermark.column
    if name != EVENT_TIME and stream.schema[name] != INSTANT:
        raise watermark.at.problem(
            f"WATERMARK FOR {name}, which is {stream.schema[name]} and no timestamp",
            hint=f"Compute one from it: ts AS TO_TIMESTAMP_LTZ({name}, 3), and WATERMARK FOR ts.",
        )
    if name not in (EVENT_TIME, time.field):
        stream = stream.with_columns(**{EVENT_TIME: pl.col(name)})
    strategy = bounded(watermark.delay) if watermark.delay else ascending()
    return stream.watermark(strategy, idle_after=_IDLE_AFTER if idle is None else f"{idle}us" if idle else None)


def time_of_events(columns: SourceColumns, options: Options) -> TimeOfEvents:
    """Find the field with the time of an event: that of the option, or else that of the watermark."""
    pattern, zone = options.text("time.format", ISO), options.text("time.zone", "UTC")
    named = options.text("time")
    if named:
        return TimeOfEvents(named, pattern, zone)
    watermark = columns.table.watermark
    if watermark is None or watermark.column not in columns.value:
        return TimeOfEvents()
    if columns.value[watermark.column].dtype != INSTANT:
        return TimeOfEvents()  # refused with the watermark, where it is known what else it may be
    return TimeOfEvents(watermark.column, pattern, zone)


def _record_format(
    columns: SourceColumns, options: Options, choice: FormatChoice, own: OwnFormats, time: TimeOfEvents
) -> Format:
    value_columns = stored_columns(columns.value, choice.name)
    if time.field == EVENT_TIME:
        value_columns.pop(EVENT_TIME, None)
    elif EVENT_TIME in value_columns:
        raise columns.table.text.problem(
            f"table {columns.table.name} has a column {EVENT_TIME}, the name of the time of the events",
            hint=f"Say WATERMARK FOR {EVENT_TIME} AS {EVENT_TIME} - INTERVAL ..., or give the column another name.",
        )
    if choice.is_changelog and "op" in value_columns:
        value_columns.pop("op")
    value = choice.make(value_columns, time)
    headers: dict[str, str] = {}
    figures: dict[str, str] = {}
    key: Format | None = None
    for name, column in columns.metadata.items():
        if column.key in _FIGURES:
            figures[column.key] = name
        elif column.key.startswith(_HEADER) and len(column.key) > len(_HEADER):
            headers[name] = column.key.removeprefix(_HEADER)
        elif column.key == "key":
            key = text(name)
        elif column.key not in _OWN_TIMES:
            raise _unknown_metadata(column)
    if columns.key:
        chosen = choose_format(options, own, prefix="key.")
        keys = {name: columns.physical[name] for name in columns.key}
        key = chosen.make(stored_columns(keys, chosen.name), TimeOfEvents())
    if key is None and not headers and not figures:
        return value
    return record(value, key=key, headers=headers, **figures)


def _of_envelope(topic: str, columns: SourceColumns, options: Options, own: OwnFormats) -> Stream:
    for column in columns.metadata.values():
        if column.key not in _OWN_TIMES:
            raise column.at.problem(
                f"METADATA FROM {column.key!r} of records in Headrace's envelope",
                hint="There it is 'event-time' or 'ingestion-time'.",
            )
    if columns.key:
        raise options.problem("key.format", "the envelope has no format of the key", hint="Leave 'key.format' out.")
    schema = {name: each.dtype for name, each in columns.physical.items() if name not in (EVENT_TIME, INGESTION_TIME)}
    named = options.text("headrace.type")
    if not named:
        return Stream.topic(topic, schema=schema)
    if own.types is None:
        raise options.problem("headrace.type", f"the type {named} is not known here")
    stream = Stream.topic(topic, own.types(named))
    missing = [name for name in schema if name not in stream.schema]
    if missing:
        hint = f"It has {', '.join(stream.schema)}."
        raise options.problem("headrace.type", f"{named} has no column {missing[0]}", hint=hint)
    casts = {name: pl.col(name).cast(dtype) for name, dtype in schema.items() if stream.schema[name] != dtype}
    return stream.with_columns(**casts) if casts else stream


def _unknown_metadata(column: MetadataColumn) -> ScriptError:
    known = [*_FIGURES, *_OWN_TIMES, "key", "headers.NAME"]
    hint = f"It can be {', '.join(map(repr, known))}."
    if column.key == "headers":
        hint = "Name one header: trace STRING METADATA FROM 'headers.trace-id'."
    return column.at.problem(f"there is no metadata {column.key!r} of a record", hint=hint)


def _key_columns(table: CreateTable, options: Options) -> tuple[str, ...]:
    """Tell which physical columns are read from the key of a record."""
    named = [each.strip() for each in options.text("key.fields").split(";") if each.strip()]
    prefix = options.text("key.fields-prefix")
    included = options.choice("value.fields-include", ("ALL", "EXCEPT_KEY"), "ALL" if not prefix else "EXCEPT_KEY")
    upsert = options.text("connector") == "upsert-kafka"
    if upsert and not named:
        named = list(table.primary_key)
    physical = [each.name for each in table.columns if isinstance(each, PhysicalColumn)]
    for name in named:
        if name not in physical:
            raise options.problem("key.fields", f"'key.fields' names {name}, which is no physical column")
    if "key.format" in options and not named:
        raise options.problem("key.format", "'key.format' without 'key.fields'", hint="Name the columns of the key.")
    options.text("key.format")
    return tuple(named) if named and included == "EXCEPT_KEY" else ()


def stored_columns(columns: Mapping[str, PhysicalColumn], format_name: str) -> dict[str, pl.DataType]:
    """Give the types that columns are read with, before they are cast to those declared."""
    return stored_types({name: each.dtype for name, each in columns.items()}, format_name)


def stored_types(types: Mapping[str, pl.DataType], format_name: str) -> dict[str, pl.DataType]:
    """Give the types that records have columns in: a DECIMAL of up to 15 digits is a number, a TIME a text."""
    return {name: dtype if format_name.startswith("avro") else _stored(dtype) for name, dtype in types.items()}


def _stored(dtype: pl.DataType) -> pl.DataType:
    if isinstance(dtype, pl.Decimal) and dtype.precision is not None and dtype.precision <= _EXACT_DIGITS:
        return pl.Float64()
    return pl.String() if dtype == pl.Time else dtype


def _cast(name: str, dtype: pl.DataType) -> pl.Expr:
    column = pl.col(name)
    if isinstance(dtype, pl.Decimal):
        return column.cast(pl.Float64).round(dtype.scale).cast(dtype)
    return pl.coalesce(column.str.to_time(each, strict=False) for each in _TIMES_OF_DAY)
