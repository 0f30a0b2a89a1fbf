"""How a table is written: `INSERT INTO` as a job.

The columns of the query are those of the table by their place, as SQL has it, and are cast to their types where the
record is encoded. The key and the times by which Headrace tells results apart stay with the job: they need not be
columns of the table.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final

import polars as pl
from polars.exceptions import PolarsError

from headrace.errors import HeadraceError, SchemaError
from headrace.formats.format import Format
from headrace.sinks import parquet
from headrace.stream import Job
from headrace.streaming_sql.column_types import type_name
from headrace.streaming_sql.options import Options
from headrace.streaming_sql.result_keys import keyed_results
from headrace.streaming_sql.statements import PhysicalColumn
from headrace.streaming_sql.steps import projected
from headrace.streaming_sql.table_formats import OwnFormats, TimeOfEvents, choose_format
from headrace.streaming_sql.table_source import stored_types

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from headrace.delivery import Delivery
    from headrace.formats import Records
    from headrace.formats.format import DecodedRecords, RecordPart
    from headrace.sinks.contract import Sink
    from headrace.stream import Stream
    from headrace.streaming_sql.catalog import TableEntry
    from headrace.streaming_sql.planning import Planned
    from headrace.streaming_sql.statements import CreateTable, Insert
    from headrace.streaming_sql.table_formats import FormatChoice

_DELIVERIES: Final[dict[str, Delivery]] = {
    "exactly-once": "exactly_once",
    "at-least-once": "at_least_once",
    "none": "at_most_once",
}


@dataclass(frozen=True)
class TargetColumn:
    """A column of a table that is written.

    Args:
        name: Its name in the table.
        source: The column of the query; None: it is null.
        dtype: Its type in the table.
        stored: The type that a record has it in; None: the same.
    """

    name: str
    source: str | None
    dtype: pl.DataType
    stored: pl.DataType | None = None

    @property
    def expression(self) -> pl.Expr:
        """Compute it from the columns of the query."""
        value = pl.lit(None) if self.source is None else pl.col(self.source)
        typed = value.cast(self.dtype)
        return (typed if self.stored in (None, self.dtype) else typed.cast(self.stored)).alias(self.name)


@dataclass(frozen=True)
class TableFormat(Format):
    """Writes the columns of a table, and nothing else, in another format.

    Args:
        inner: The format.
        columns: The columns.
    """

    name: ClassVar[str] = "table"
    inner: Format
    columns: tuple[TargetColumn, ...]

    def __post_init__(self) -> None:
        # Tools speak of the format of the value.
        object.__setattr__(self, "name", self.inner.name)

    @property
    def schema(self) -> pl.Schema:
        """The columns that the inner format reads."""
        return self.inner.schema

    @property
    def reads(self) -> frozenset[RecordPart]:
        """What the inner format needs."""
        return self.inner.reads

    @property
    def text(self) -> str:
        """Describe the format in a line of `explain()`."""
        return f"{self.inner.name} of {', '.join(each.name for each in self.columns)}"

    def decode(self, records: Records, columns: Sequence[str] | None = None) -> DecodedRecords:
        """Read records by the inner format."""
        return self.inner.decode(records, columns)

    def encode(self, frame: pl.DataFrame) -> pa.BinaryArray:
        """Write the columns of the table.

        Raises:
            SchemaError: A value does not fit the type of its column.
        """
        return self.inner.encode(target_rows(frame, self.columns))


def target_rows(frame: pl.DataFrame, columns: Sequence[TargetColumn]) -> pl.DataFrame:
    """Give the rows of a query as the rows of a table.

    Raises:
        SchemaError: A value does not fit the type of its column.
    """
    try:
        return frame.select(each.expression for each in columns)
    except PolarsError as problem:
        raise SchemaError(
            f"the results do not fit the table: {str(problem).splitlines()[0]}",
            hint="CAST the column in the query, or give the column of the table a wider type.",
        ) from problem


def target_columns(table: TableEntry, insert: Insert, planned: Planned) -> tuple[TargetColumn, ...]:
    """Match the columns of a query with those of the table that it is inserted into.

    Raises:
        ScriptError: Their numbers differ, or a type cannot be cast to that of its column.
    """
    definition = table.definition
    physical = (
        {}
        if definition is None
        else {each.name: each.dtype for each in definition.columns if isinstance(each, PhysicalColumn)}
    )
    given = [name for name, _ in planned.columns]
    schema = planned.stream.schema
    if not physical:  # a table without columns takes those of the query
        return tuple(TargetColumn(name, source, schema[source]) for name, source in planned.columns)
    names = insert.columns or tuple(physical)
    for name in names:
        if name not in physical:
            hint = f"Columns that can be written: {', '.join(physical)}."
            raise insert.text.problem(f"table {table.name} has no column {name} that can be written", hint=hint)
    if len(names) != len(given):
        raise insert.query.problem(
            f"the query gives {len(given)} columns, {insert.table} takes {len(names)}",
            hint=f"The query gives {', '.join(given)}; the table has {', '.join(names)}. Columns match by their place.",
        )
    sources = dict(zip(names, (source for _, source in planned.columns), strict=True))
    for name, shown, source in zip(names, given, sources.values(), strict=True):
        _check_cast(insert, name, physical[name], shown, schema[source])
    return tuple(TargetColumn(name, sources.get(name), dtype) for name, dtype in physical.items())


def _check_cast(insert: Insert, name: str, dtype: pl.DataType, source: str, given: pl.DataType) -> None:
    """Refuse a cast that SQL has not without CAST: only numbers become numbers, and so on."""
    pairs = (
        given == dtype,
        given == pl.Null,
        given.is_numeric() and dtype.is_numeric(),
        given.is_nested() and type(given) is type(dtype),
        isinstance(given, pl.Categorical | pl.Enum) and dtype == pl.String,
        isinstance(given, pl.Datetime | pl.Date) and isinstance(dtype, pl.Datetime),
    )
    if not any(pairs):
        raise insert.query.problem(
            f"column {source} is {type_name(given)}, and column {name} of {insert.table} is {type_name(dtype)}",
            hint=f"Write CAST({source} AS {type_name(dtype)}).",
        )


def insert_job(
    name: str, table: TableEntry, insert: Insert, planned: Planned, own: OwnFormats, *, description: str = ""
) -> Job:
    """Make the job of an INSERT INTO.

    Args:
        name: The name of the job.
        table: The table.
        insert: The statement.
        planned: Its query.
        own: Formats beside Headrace's own.
        description: A sentence for people; empty: the comment of the table.

    Raises:
        ScriptError: The table cannot be written so.
    """
    definition = table.definition
    is_own = table.sink is not None or table.connector in ("kafka", "upsert-kafka", "file", "filesystem")
    if definition is None or not is_own:
        what = "was given by the program" if definition is None else f"has the connector {table.connector}"
        raise insert.text.problem(
            f"INSERT INTO {insert.table}, which {what}, cannot be run as a job",
            hint="Give the table 'connector' = 'kafka' and a 'topic'.",
        )
    options = Options(definition)
    columns = target_columns(table, insert, planned)
    stream = planned.stream
    delivery = _DELIVERIES[options.choice("sink.delivery-guarantee", _DELIVERIES, "exactly-once")]
    topic, output = "", None
    sinks: tuple[Sink, ...] = (table.sink,) if table.sink is not None else ()
    if table.connector in ("file", "filesystem"):
        sinks = _sinks(options)
    upsert = definition.primary_key if stream.node.updating else ()
    if not sinks:
        topic = options.needed("topic", hint="Name it: 'topic' = 'late'.")
        _check_updates(definition, insert, stream)
        if upsert:  # the key of a record names the columns of the table
            stream = projected(stream, {each.name: each.expression for each in columns})
            columns = tuple(TargetColumn(each.name, each.name, each.dtype) for each in columns)
        output = _output_format(options, own, columns)
    try:
        if output is None:
            stream = _named_like(insert, stream, columns)
        written = {each.source for each in columns if each.source is not None}
        named = [each.source for each in columns if each.name in definition.primary_key and each.source is not None]
        return Job(
            name,
            keyed_results(stream, [each for each in stream.schema if each in written], named),
            description=description or definition.comment,
            result_topic=topic,
            delivery=delivery,
            format=output,
            sinks=sinks,
            upsert=() if sinks else upsert,
        )
    except HeadraceError as wrong:
        raise insert.text.located(wrong) from wrong


def writer_of(table: TableEntry, insert: Insert, own: OwnFormats) -> tuple[str, Format]:
    """Tell the topic of a table, and what writes its rows as values of records.

    Raises:
        ScriptError: It is no topic, or its format cannot be written by one process.
    """
    if table.definition is None:
        raise insert.text.problem(f"{insert.table} is no table with a topic")
    options = Options(table.definition)
    choice = choose_format(options, own)
    if choice.is_envelope or choice.is_changelog:
        raise insert.text.problem(
            f"rows of files are not written as {choice.name}", hint="Give the table 'format' = 'json', 'csv' or 'avro'."
        )
    columns = {each.name: each.dtype for each in table.definition.columns if isinstance(each, PhysicalColumn)}
    topic = options.needed("topic", hint="Name it: 'topic' = 'late'.")
    return topic, _table_format(choice, tuple(TargetColumn(name, name, dtype) for name, dtype in columns.items()))


def _check_updates(definition: CreateTable, insert: Insert, stream: Stream) -> None:
    if stream.node.updating and not definition.primary_key:
        raise insert.text.problem(
            f"the query takes back rows that it gave before, and table {insert.table} has no PRIMARY KEY",
            hint="Declare one: PRIMARY KEY (...) NOT ENFORCED, with the columns that name a row; or use a window.",
        )


def _output_format(options: Options, own: OwnFormats, columns: tuple[TargetColumn, ...]) -> Format | None:
    choice = choose_format(options, own)
    if choice.is_envelope:
        return None
    if choice.is_changelog:
        raise options.problem("format", "results are not written as changes of Debezium", hint="Write them as 'json'.")
    return _table_format(choice, columns)


def _table_format(choice: FormatChoice, columns: Sequence[TargetColumn]) -> TableFormat:
    stored = stored_types({each.name: each.dtype for each in columns}, choice.name)
    written = tuple(replace(each, stored=stored[each.name]) for each in columns)
    return TableFormat(choice.make(stored, TimeOfEvents()), written)


def _sinks(options: Options) -> tuple[Sink, ...]:
    path = options.needed("path", hint="Name a directory: 'path' = 'out'.")
    kind = options.text("format", "parquet")
    if kind != "parquet":
        raise options.problem(
            "format", f"a job writes files of Parquet, not of {kind}", hint="Write 'format' = 'parquet'."
        )
    by_date = options.choice("sink.partition-by", ("", "date"), "")
    return (parquet(path, partition_by="date" if by_date else None),)


def _named_like(insert: Insert, stream: Stream, columns: tuple[TargetColumn, ...]) -> Stream:
    """Give results in the envelope the names of the table."""
    renamed = [each for each in columns if each.source != each.name]
    taken = [each.name for each in renamed if each.name in stream.schema]
    if taken or any(each.source in stream.keys for each in renamed):
        wrong = (taken or [each.name for each in renamed])[0]
        raise insert.query.problem(
            f"column {wrong} of {insert.table} has another name in the query",
            hint=f"Results in Headrace's envelope have the names of the query: write ... AS {wrong}.",
        )
    return stream.with_columns(**{each.name: each.expression for each in columns}) if renamed else stream


def job_name(text: str) -> str:
    """Make the name of a job of any text.

    >>> job_name("Late_parcels 2.sql"), job_name("2026")
    ('late-parcels-2-sql', 'job-2026')
    """
    found = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return (found if found[:1].isalpha() else f"job-{found}")[:63].rstrip("-")
