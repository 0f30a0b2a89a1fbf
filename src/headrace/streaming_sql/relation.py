"""What a part of a query gives: a stream, and what its columns are called.

A column has a name in the query and a physical one in the stream; two columns may have the same name in the query, as
`SELECT *` of a join does. A column has a role where it is more than a value: the time of the rows, the bounds of their
window.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import polars as pl

from headrace.engine.operator import EVENT_TIME, INGESTION_TIME, IS_RETRACTION, ORIGINAL
from headrace.stream import Stream
from headrace.tables import Table
from headrace.tables.upserts import IS_DELETE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from headrace.streaming_sql.values import DataType
    from headrace.windows.assigners import Assigner

#: What a column is beside a value. `rank` is a ROW_NUMBER that is not computed yet.
Role: TypeAlias = Literal["", "rowtime", "proctime", "window_start", "window_end", "window_time", "rank"]

#: Columns of a stream that are no columns of a table.
HIDDEN: frozenset[str] = frozenset({IS_RETRACTION, IS_DELETE, ORIGINAL})


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a relation.

    Args:
        name: What the query calls it.
        physical: What the stream calls it; empty for one that is not there yet.
        dtype: Its type.
        table: The alias of the table that it is from.
        role: What it is beside a value.
        shown: Whether `*` includes it.
    """

    name: str
    physical: str
    dtype: DataType
    table: str = ""
    role: Role = ""
    shown: bool = True


@dataclass(frozen=True)
class Ranking:
    """A ROW_NUMBER that is computed when it is known how many rows are wanted.

    Args:
        partition: The physical columns of PARTITION BY.
        order: The physical columns of ORDER BY, each with whether it is descending.
        node: Where it stands.
        function: ROW_NUMBER, RANK or DENSE_RANK.
        by_time: Whether the order is that of event time, ascending.
        last_first: Where the order is that of arrival, whether the last comes first.
    """

    partition: tuple[str, ...]
    order: tuple[tuple[str, bool], ...]
    node: Any = field(compare=False, repr=False, default=None)
    function: str = "ROW_NUMBER"
    by_time: bool = False
    last_first: bool = False


@dataclass(frozen=True)
class LateSource:
    """The rows that a GROUP BY in windows reads, of which some may come too late.

    Args:
        relation: The rows.
        keys: The physical columns that the windows are by.
        assigner: The windows.
        lateness: How long after its end a window takes rows, in microseconds.
    """

    relation: Relation
    keys: tuple[str, ...]
    assigner: Assigner
    lateness: int


@dataclass(frozen=True)
class Relation:
    """A part of a query.

    Args:
        stream: Its rows.
        columns: Its columns.
        assigner: Windows that rows are not put into yet: their window columns are not in the stream.
        partition: The physical columns that sessions are told apart by.
        ranking: A ROW_NUMBER that is not computed yet.
        source: The table that it is, unchanged, for joins that look up rows.
        order: The physical columns that order the whole result, each with whether it descends, where a query asks so.
        late: What its windows read, where it is a GROUP BY in windows.
    """

    stream: Stream
    columns: tuple[Column, ...]
    assigner: Assigner | None = None
    partition: tuple[str, ...] = ()
    ranking: Ranking | None = None
    source: CatalogTable | None = None
    order: tuple[tuple[str, bool], ...] = ()
    late: LateSource | None = None

    @property
    def updating(self) -> bool:
        """Whether rows may be taken back."""
        return self.stream.node.updating

    def role(self, role: Role) -> Column | None:
        """Give the first column with a role."""
        return next((column for column in self.columns if column.role == role), None)

    @property
    def windowed(self) -> bool:
        """Whether rows carry the window that they belong to."""
        return self.role("window_start") is not None and self.role("window_end") is not None

    def called(self, alias: str, names: Sequence[str] = ()) -> Relation:
        """Give it an alias, and its columns names."""
        renamed = list(self.columns)
        shown = [place for place, column in enumerate(renamed) if column.shown]
        for place, name in zip(shown, names, strict=False):
            renamed[place] = replace(renamed[place], name=name)
        return replace(self, columns=tuple(replace(column, table=alias) for column in renamed))

    def with_stream(self, stream: Stream) -> Relation:
        """Give it other rows with the same columns."""
        return replace(self, stream=stream)


@dataclass(frozen=True)
class CatalogTable:
    """A table that a query can name, where there is more to say than a stream does.

    Args:
        stream: Its rows; upserts where there is a `table`.
        time: The column that is the event time of its rows, beside `event_time` itself; empty if it has none.
        proctime: The name of a column that stands for the time of arrival; it is not among the columns of rows.
        columns: The columns that a query sees, in order: their names in the stream and in the query; empty: those of
            the stream.
        table: Its rows by key, where it is a table of upserts.
        kind: "stream" for rows that add; "table" for a table of upserts; "versioned" for one whose rows are valid from
            their event time on; "lookup" for one that is only looked up in.
    """

    stream: Stream
    time: str = ""
    proctime: str = ""
    columns: Mapping[str, str] = field(default_factory=dict)
    table: Table | None = None
    kind: Literal["stream", "table", "versioned", "lookup"] = "stream"


def relation_of(name: str, given: Any) -> Relation:
    """Make a relation of what a query may name: a stream, a table, or a `CatalogTable`."""
    if isinstance(given, Relation):
        return given
    if isinstance(given, Table):
        given = CatalogTable(given.source, table=given, kind="versioned" if given.versioned else "table")
    if isinstance(given, Stream):
        given = CatalogTable(given)
    from headrace.streaming_sql.steps import projected

    stream = given.table.changes() if given.table is not None else given.stream
    names = dict(given.columns) or {
        column: column
        for column in stream.schema
        if column not in HIDDEN
        and not column.startswith("#")
        and not (column == EVENT_TIME and given.time not in ("", EVENT_TIME))
    }
    extra = [name for name in stream.schema if name not in {*names, *HIDDEN, EVENT_TIME}]
    if extra:
        stream = projected(stream, {name: pl.col(name) for name in names})
    columns = tuple(_column(name, column, called, stream, given) for column, called in names.items())
    if not given.time and EVENT_TIME not in names and given.columns:
        # The time of rows that declare none: queries can name it, * leaves it out.
        columns += (Column(EVENT_TIME, EVENT_TIME, stream.schema[EVENT_TIME], name, "rowtime", shown=False),)
    if given.proctime:
        columns += (Column(given.proctime, "", pl.Datetime("us", "UTC"), name, "proctime", shown=False),)
    return Relation(stream, columns, source=given)


def _column(table: str, name: str, called: str, stream: Stream, given: CatalogTable) -> Column:
    dtype = stream.schema[name]
    is_time = name == given.time or (name == EVENT_TIME and not given.time and not given.proctime)
    role: Role = "rowtime" if is_time and dtype == pl.Datetime("us", "UTC") else ""
    shown = name != INGESTION_TIME or INGESTION_TIME in given.columns
    return Column(called, name, dtype, table, role, shown=shown)


def fresh_names(wanted: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """Give physical names, each once, that are like the wanted ones and none of those the engine needs.

    >>> fresh_names(["a", "a", "event_time"])
    ['a', 'a_2', 'event_time_2']
    """
    used = {*taken, EVENT_TIME, *HIDDEN}
    found: list[str] = []
    for name in wanted:
        base = name.lstrip("#") or "column"
        each, number = base, 1
        while each in used:
            number += 1
            each = f"{base}_{number}"
        used.add(each)
        found.append(each)
    return found
