"""`Catalog`: the tables, views and functions that queries may name.

Names are compared without regard to case and kept as they were written. A table that is a topic or a file is made into
a stream when it is created, so that what is wrong with it is told there; a view is planned then, too. A query is given
only what it names.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import polars as pl

from headrace.cep.sql.lexer import tokenize
from headrace.cep.sql.query import as_polars
from headrace.engine.operator import EVENT_TIME, INGESTION_TIME
from headrace.errors import HeadraceError, PlanError
from headrace.stream import Stream
from headrace.stream import plan as nodes
from headrace.streaming_sql.options import Options
from headrace.streaming_sql.planning import Planned, add_column, plan
from headrace.streaming_sql.relation import CatalogTable
from headrace.streaming_sql.table_files import BoundedTable, file_table, frame_table
from headrace.streaming_sql.table_formats import OwnFormats
from headrace.streaming_sql.table_source import proctime_column, topic_table
from headrace.streaming_sql.user_functions import scalar_function

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from google.protobuf.message import Message

    from headrace.sinks.contract import Sink
    from headrace.streaming_sql import statements
    from headrace.streaming_sql.script import Fragment
    from headrace.streaming_sql.statements import Kind

CONNECTORS: Final = ("kafka", "upsert-kafka", "file", "filesystem", "print", "blackhole")
#: Connectors whose tables can only be written.
_SINKS: Final = ("print", "blackhole")


@dataclass(frozen=True)
class TableEntry:
    """A table.

    Args:
        name: Its name.
        stream: Its rows as a stream; None: it can only be written.
        connector: Which connector it has; empty for one that the program gave.
        definition: How it was created; None for one that the program gave.
        bounded: Gives the rows, if they are all there.
        notes: What was written and has no effect.
        relation: What queries read; None: the stream, or nothing.
        sink: The sink that it is written to, where a plug-in has its connector.
    """

    name: str
    stream: Stream | None
    connector: str = ""
    definition: statements.CreateTable | None = None
    bounded: BoundedTable | None = None
    notes: tuple[str, ...] = ()
    relation: CatalogTable | None = field(default=None, repr=False)
    sink: Sink | None = None

    @property
    def columns(self) -> dict[str, pl.DataType]:
        """Its columns and their types, in the order of the definition."""
        if self.definition is not None and not self.definition.columns and self.relation is not None:
            return {name: self.relation.stream.schema[name] for name in self.relation.columns}
        if self.definition is None or not self.definition.columns:
            return dict(self.stream.schema) if self.stream is not None else {}
        known = {} if self.stream is None else dict(self.stream.schema)
        return {each.name: known.get(each.name, getattr(each, "dtype", pl.Null())) for each in self.definition.columns}

    @property
    def what(self) -> str:
        """What it is, for people."""
        if self.bounded is not None:
            return self.bounded.what
        if self.definition is not None and "topic" in self.definition.options:
            return f"the topic {self.definition.options['topic'].value}"
        return self.connector or "a stream of the program"


@dataclass(frozen=True)
class ViewEntry:
    """A view: its definition, its query as it was planned, and the tables that it reads."""

    name: str
    definition: statements.CreateView | None
    planned: Planned
    tables: tuple[TableEntry, ...] = ()


@dataclass(frozen=True)
class FunctionEntry:
    """A function of a user: its definition and the function."""

    name: str
    definition: statements.CreateFunction | None
    function: Callable[..., Any]


Entry: TypeAlias = TableEntry | ViewEntry | FunctionEntry


class Catalog:
    """Tables, views and functions by name.

    Args:
        formats: Formats beside Headrace's own, by name: what makes them from columns and a time.
        sinks: Sinks that a table may name as its connector: what makes them from the other options of the table.
        load: Gives the function that `'module:attribute'` names.
        types: Gives the message type of a name, for tables of events in the envelope.
    """

    def __init__(
        self,
        *,
        formats: Mapping[str, Callable[..., Any]] | None = None,
        sinks: Mapping[str, Callable[..., Sink]] | None = None,
        load: Callable[[str], Callable[..., Any]] | None = None,
        types: Callable[[str], type[Message]] | None = None,
    ) -> None:
        self.formats = OwnFormats(dict(formats or {}), types)
        self._sinks = dict(sinks or {})
        self._load = load
        self._entries: dict[tuple[str, str], Entry] = {}

    # --- what there is

    @property
    def entries(self) -> list[Entry]:
        """All of them, in the order in which they were created."""
        return list(self._entries.values())

    @property
    def tables(self) -> list[TableEntry]:
        """The tables, in the order of their names."""
        return [each for each in self._sorted() if isinstance(each, TableEntry)]

    @property
    def views(self) -> list[ViewEntry]:
        """The views, in the order of their names."""
        return [each for each in self._sorted() if isinstance(each, ViewEntry)]

    @property
    def functions(self) -> list[FunctionEntry]:
        """The functions of users, in the order of their names."""
        return [each for each in self._sorted() if isinstance(each, FunctionEntry)]

    def find(self, name: str, at: Fragment | None = None) -> TableEntry | ViewEntry:
        """Give the table or view of a name.

        Raises:
            PlanError: There is none.
        """
        found = self._entries.get(("relation", name.lower()))
        if isinstance(found, TableEntry | ViewEntry):
            return found
        raise self._unknown("table", name, at)

    def _sorted(self) -> list[Entry]:
        return [self._entries[key] for key in sorted(self._entries)]

    def _unknown(self, kind: Kind, name: str, at: Fragment | None) -> PlanError:
        group = "function" if kind == "function" else "relation"
        names = [entry.name for (each, _), entry in self._entries.items() if each == group]
        close = difflib.get_close_matches(name, names, n=1)
        guess = f"Did you mean {close[0]}? " if close else ""
        known = ", ".join(names[:20]) or "none"
        message = f"there is no {kind} {name}"
        hint = f"{guess}{'Functions' if group == 'function' else 'Tables and views'}: {known}."
        return PlanError(message, hint=hint) if at is None else at.problem(message, hint=hint)

    # --- what comes and goes

    def add(self, name: str, relation: Any, *, time: str | None = None) -> None:
        """Add a stream or a frame under a name, in place of what was called so.

        Args:
            name: What queries call it.
            relation: A `Stream`, or a Polars, pyarrow or pandas frame.
            time: Of a frame: the column with the time of an event; None: `event_time`, if there is one.

        Raises:
            PlanError: It is neither.
        """
        if isinstance(relation, Stream):
            entry = TableEntry(name, relation)
        else:
            bounded = frame_table(name, as_polars(relation, name), time=time)
            entry = TableEntry(name, bounded.stream, bounded=bounded)
        self._entries["relation", name.lower()] = entry

    def add_function(self, name: str, function: Callable[..., Any]) -> None:
        """Add a function of Python under a name.

        Raises:
            PlanError: It does not say what it gives.
        """
        scalar_function(name, function)
        self._entries["function", name.lower()] = FunctionEntry(name, None, function)

    def create_table(self, table: statements.CreateTable) -> TableEntry:
        """Create a table.

        Raises:
            ScriptError: It is there already, or cannot be what it says.
        """
        if not self._is_new(table, "relation"):
            found = self.find(table.name)
            if isinstance(found, TableEntry):
                return found
        options = Options(table)
        connector = options.choice("connector", (*CONNECTORS, *self._sinks), "")
        stream, bounded, relation = None, None, None
        sink = self._sink(connector, options) if connector in self._sinks else None
        if connector in ("file", "filesystem") and self._is_file_to_read(options):
            bounded = file_table(table, options, self.formats, self._compute)
            stream = bounded.stream
            given = CatalogTable(stream, kind="lookup" if table.primary_key else "stream")
            relation = _read_as(table, given, has_time=bounded.has_time)
        elif connector in ("kafka", "upsert-kafka"):
            found_table = topic_table(table, options, self.formats, self._compute)
            stream = found_table.stream
            relation = _read_as(table, found_table)
        ask_for_output_options(options)
        options.finish()
        entry = TableEntry(table.name, stream, connector, table, bounded, tuple(options.notes), relation, sink)
        self._entries["relation", table.name.lower()] = entry
        return entry

    def _sink(self, connector: str, options: Options) -> Sink:
        try:
            return self._sinks[connector](**options.others("connector", "sink.delivery-guarantee"))
        except HeadraceError as wrong:
            raise options.problem("connector", wrong.message, hint=wrong.hint) from wrong

    @staticmethod
    def _is_file_to_read(options: Options) -> bool:
        """A file that is not there yet may be there to be written."""
        return Path(options.text("path")).is_file()

    def create_view(self, view: statements.CreateView) -> ViewEntry:
        """Create a view; its query is planned.

        Raises:
            ScriptError: It is there already, or its query is wrong.
        """
        if not view.or_replace and not self._is_new(view, "relation"):
            found = self.find(view.name)
            if isinstance(found, ViewEntry):
                return found
        planned = self.plan(view.query)
        if view.columns:
            planned = _renamed(view, planned)
        entry = ViewEntry(view.name, view, planned, self.read_by(planned))
        self._entries["relation", view.name.lower()] = entry
        return entry

    def create_function(self, function: statements.CreateFunction) -> FunctionEntry:
        """Create a function: the module is imported.

        Raises:
            ScriptError: It is there already, or there is no such function.
        """
        if not function.or_replace and not self._is_new(function, "function"):
            found = self._entries["function", function.name.lower()]
            if isinstance(found, FunctionEntry):
                return found
        if self._load is None:
            raise function.text.problem("functions cannot be loaded here", hint="Use add_function(name, function).")
        try:
            loaded = self._load(function.place)
        except HeadraceError as wrong:
            raise function.text.located(wrong) from wrong
        if not callable(loaded):
            raise function.text.problem(f"{function.place} is a {type(loaded).__name__} and no function")
        try:
            scalar_function(function.name, loaded)
        except HeadraceError as wrong:
            raise function.text.located(wrong) from wrong
        entry = FunctionEntry(function.name, function, loaded)
        self._entries["function", function.name.lower()] = entry
        return entry

    def drop(self, drop: statements.Drop) -> None:
        """Drop a table, view or function.

        Raises:
            ScriptError: There is none of this name, and not `IF EXISTS`.
        """
        group = "function" if drop.kind == "function" else "relation"
        kinds = {"table": TableEntry, "view": ViewEntry, "function": FunctionEntry}
        found = self._entries.get((group, drop.name.lower()))
        if found is None:
            if drop.if_exists:
                return
            raise self._unknown(drop.kind, drop.name, drop.text)
        if not isinstance(found, kinds[drop.kind]):
            other = "view" if isinstance(found, ViewEntry) else "table"
            raise drop.text.problem(f"{drop.name} is a {other}", hint=f"Write DROP {other.upper()} {drop.name}.")
        del self._entries[group, drop.name.lower()]

    def _is_new(
        self, made: statements.CreateTable | statements.CreateView | statements.CreateFunction, group: str
    ) -> bool:
        found = self._entries.get((group, made.name.lower()))
        if found is None or (made.temporary and getattr(found, "definition", None) is None):
            return True
        if made.if_not_exists:
            return False
        kind = "function" if group == "function" else "view" if isinstance(found, ViewEntry) else "table"
        hint = f"Write DROP {kind.upper()} {made.name} before it, or CREATE ... IF NOT EXISTS."
        raise made.text.problem(f"there is a {kind} {made.name} already", hint=hint)

    # --- queries

    def plan(self, query: Fragment) -> Planned:
        """Plan a query over the tables and views.

        Args:
            query: The query.

        Raises:
            ScriptError: It is wrong; the message says where.
        """
        bounded = all(each.bounded is not None for each in self.tables_under(query))
        relations = {name: self._relation(name) for name in self._readable()}
        try:
            self._refuse_sinks(query)
            planned = plan(query.text, relations, functions=self._functions(), bounded=bounded)
        except HeadraceError as wrong:
            raise query.located(wrong) from wrong
        return replace(planned, cautions=tuple(query.moved(each) for each in planned.cautions))

    def read_by(self, planned: Planned) -> tuple[TableEntry, ...]:
        """Tell which tables a planned query reads, also by way of views."""
        wanted = _sources(planned.stream)
        return tuple(each for each in self.tables if each.stream is not None and _sources(each.stream) & wanted)

    def _readable(self) -> list[str]:
        return [
            each.name
            for each in self.entries
            if isinstance(each, ViewEntry) or (isinstance(each, TableEntry) and each.stream is not None)
        ]

    def _refuse_sinks(self, query: Fragment) -> None:
        """Refuse a query that can only be about a table without rows."""
        names = self.names_in(query)
        found = [self.find(name) for name in names]
        if found and all(isinstance(each, TableEntry) and each.stream is None for each in found):
            raise PlanError(f"table {names[0]} can only be written", hint="Its connector has no rows to read.")

    def _functions(self) -> dict[str, Any]:
        return {each.name: scalar_function(each.name, each.function) for each in self.functions}

    def names_in(self, query: Fragment) -> list[str]:
        """Tell which tables and views a query may name: those whose names stand in it."""
        try:
            words = {token.value.lower() for token in tokenize(query.text) if token.kind in ("word", "quoted")}
        except PlanError as wrong:
            raise query.located(wrong) from wrong
        return [entry.name for (group, key), entry in self._entries.items() if group == "relation" and key in words]

    def tables_under(self, query: Fragment) -> list[TableEntry]:
        """Tell which tables a query may read, also by way of views."""
        found: dict[str, TableEntry] = {}
        for name in self.names_in(query):
            entry = self.find(name)
            under = [entry] if isinstance(entry, TableEntry) else entry.tables
            found |= {each.name: each for each in under}
        return list(found.values())

    def _relation(self, name: str) -> Any:
        entry = self.find(name)
        if isinstance(entry, ViewEntry):
            return entry.planned.relation
        return entry.stream if entry.relation is None else entry.relation

    def _compute(self, stream: Stream, expressions: Mapping[str, Fragment]) -> Stream:
        """Add computed columns, one after the other: each may name those before it."""
        for name, expression in expressions.items():
            try:
                stream = add_column(stream, name, expression.text, functions=self._functions())
            except HeadraceError as wrong:
                raise expression.located(wrong) from wrong
        return stream


def _renamed(view: statements.CreateView, planned: Planned) -> Planned:
    """Give the columns of a view the names that it declares."""
    if len(planned.columns) != len(view.columns):
        raise view.text.problem(
            f"view {view.name} names {len(view.columns)} columns, its query gives {len(planned.columns)}",
            hint=f"The query gives {', '.join(planned.schema)}.",
        )
    return planned.called(view.columns)


def _sources(stream: Stream) -> set[tuple[type, str]]:
    """Name the sources of a stream; a file and a topic may have the same name."""
    read = [each.source for each in nodes.nodes_of(stream.node) if isinstance(each, nodes.Read)]
    return {(type(source), source.name) for source in read}


def _read_as(table: statements.CreateTable, found: CatalogTable, *, has_time: bool = False) -> CatalogTable:
    """Say which columns of a stream are those of the table, and which of them is the time of its rows."""
    stream = found.stream
    proctime = proctime_column(table)
    names = [each.name for each in table.columns if each.name != proctime]
    if not names:  # a file without declared columns has those of its own
        own = () if has_time else (EVENT_TIME,)
        names = [name for name in stream.schema if name not in (*own, INGESTION_TIME)]
    time = "" if table.watermark is None else table.watermark.column
    columns = {name: name for name in names if name in stream.schema}
    return replace(found, time=time, proctime=proctime, columns=columns)


def ask_for_output_options(options: Options) -> None:
    """Name the options that are read when a table is written, so that they are not refused when it is created."""
    for name in ("sink.delivery-guarantee", "sink.partition-by", "print-identifier", "path", "topic", "format"):
        options.text(name)
