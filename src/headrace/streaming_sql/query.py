"""From the text of a query to a stream: `plan_query`.

A query is read by `dialect`, its names are resolved in scopes, and each part becomes steps and operators of a stream:
what Python writes with `Stream` and what SQL writes is the same plan, with the same state and the same guarantees.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import polars as pl
from sqlglot import exp

from headrace.engine.operator import EVENT_TIME
from headrace.errors import HeadraceError
from headrace.streaming_sql import from_clause, selects, set_operations
from headrace.streaming_sql.dialect import parse_query
from headrace.streaming_sql.errors import QueryError, error_at, similar
from headrace.streaming_sql.relation import HIDDEN, relation_of
from headrace.streaming_sql.steps import projected

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.stream import Stream
    from headrace.streaming_sql.functions import ScalarFunction
    from headrace.streaming_sql.relation import Relation
    from headrace.streaming_sql.scope import Scope

_log = logging.getLogger(__name__)
#: Queries nested more deeply in one another are refused.
MAX_DEPTH: Final = 50


class Planner:
    """Plans one query.

    Args:
        text: The query.
        tables: What it can name: streams, tables, or `CatalogTable`s.
        functions: Functions beside the built-in ones.
        bounded: Whether the rows come to an end, so that ORDER BY and LIMIT have a meaning.
        warn: Told of what would keep state without bound.
    """

    def __init__(
        self,
        text: str,
        tables: Mapping[str, Any],
        *,
        functions: Mapping[str, ScalarFunction] | None = None,
        bounded: bool = False,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        self.text = text
        self.functions = {name.upper(): function for name, function in (functions or {}).items()}
        self.bounded = bounded
        self._tables = dict(tables)
        #: Frames among the tables, which subqueries of MATCH_RECOGNIZE can read.
        self.frames = {name: table for name, table in tables.items() if isinstance(table, pl.DataFrame)}
        self._planned: dict[str, Relation] = {}
        self._ctes: list[dict[str, exp.CTE]] = []
        self._depth = 0
        self._warn = warn or (lambda caution: _log.warning("%s", caution))

    def query(self, node: exp.Expr, outer: Scope | None = None) -> Relation:
        """Plan a query or a part of one."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self.error(node, f"queries are nested more than {MAX_DEPTH} deep")
        ctes = self._common_tables(node)
        if ctes:
            self._ctes.append(ctes)
        try:
            return self._of_kind(node, outer)
        finally:
            if ctes:
                self._ctes.pop()
            self._depth -= 1

    def table(self, node: exp.Table) -> Relation:
        """Give a table by its name."""
        name = ".".join(part.name for part in node.parts)
        for place in range(len(self._ctes) - 1, -1, -1):
            for known, cte in self._ctes[place].items():
                if known.lower() == name.lower():
                    return self._common_table(known, cte, place)
        found = [known for known in self._tables if known == name] or [
            known for known in self._tables if known.lower() == name.lower()
        ]
        if not found:
            listed = [*self._tables, *(known for ctes in self._ctes for known in ctes)]
            raise self.error(node, f"unknown table {name!r}", hint=similar(name, listed))
        if found[0] not in self._planned:
            self._planned[found[0]] = relation_of(found[0], self._tables[found[0]])
        return self._planned[found[0]].called(found[0])

    def warn(self, node: exp.Expr, caution: str) -> None:
        """Tell of something that works, but not for ever."""
        found = self.error(node, caution)
        self._warn(f"line {found.line}, column {found.column}: {caution}" if self.text else caution)

    def error(self, node: exp.Expr | None, message: str, *, hint: str = "") -> QueryError:
        """Make an error that points at a part of the query."""
        return error_at(self.text, node, message, hint=hint)

    def _of_kind(self, node: exp.Expr, outer: Scope | None) -> Relation:
        if isinstance(node, exp.Subquery):
            return self._subquery(node, outer)
        if isinstance(node, exp.SetOperation):
            return set_operations.plan_set_operation(self, node)
        if isinstance(node, exp.Select):
            return selects.plan_select(self, node, outer)
        if isinstance(node, exp.Values):
            return from_clause.values(self, node)
        if isinstance(node, exp.Table):
            return self.table(node)
        raise self.error(node, f"{node.key.upper()} is no query")

    def _subquery(self, node: exp.Subquery, outer: Scope | None) -> Relation:
        relation = self.query(node.this, outer)
        modified = [name for name in ("order", "limit", "offset", "where", "group", "emit") if node.args.get(name)]
        if modified:
            raise self.error(node, f"{modified[0].upper()} behind a query in brackets", hint="Write it inside.")
        return relation

    def _common_tables(self, node: exp.Expr) -> dict[str, exp.CTE]:
        found = node.args.get("with_") or node.args.get("with")
        if found is None:
            return {}
        if found.args.get("recursive"):
            raise self.error(node, "recursive queries are not supported", hint="A stream has no fixed point.")
        return {cte.alias: cte for cte in found.expressions}

    def _common_table(self, name: str, cte: exp.CTE, place: int) -> Relation:
        key = f"with {place} {id(cte)}"
        if key not in self._planned:
            # A common table sees those before it, and those of the queries around.
            names = list(self._ctes[place])
            visible = {each: self._ctes[place][each] for each in names[: names.index(name)]}
            kept, self._ctes = self._ctes, [*self._ctes[:place], visible]
            try:
                relation = self.query(cte.this)
            finally:
                self._ctes = kept
            alias = cte.args.get("alias")
            named = [column.name for column in (alias.columns if alias is not None else [])]
            self._planned[key] = relation.called(name, named)
        return self._planned[key].called(name)


def plan_relation(
    query: str | exp.Expr,
    tables: Mapping[str, Any],
    *,
    functions: Mapping[str, ScalarFunction] | None = None,
    bounded: bool = False,
    warn: Callable[[str], None] | None = None,
) -> Relation:
    """Plan a query; the relation says which columns of the stream are its columns, in order.

    Args:
        query: The text, or the tree of `parse_query`.
        tables: Streams, tables, or `CatalogTable`s by name.
        functions: Functions beside the built-in ones, by name.
        bounded: Whether the rows come to an end, so that ORDER BY and LIMIT of the whole result have a meaning.
        warn: Told of what would keep state without bound; by default it is logged.

    Raises:
        QueryError: It is wrong, or cannot be done on a stream; the message says where and what to write instead.
    """
    text = query if isinstance(query, str) else ""
    tree = parse_query(query) if isinstance(query, str) else query
    planner = Planner(text, tables, functions=functions, bounded=bounded, warn=warn)
    try:
        relation = selects.materialized(planner, planner.query(tree), tree)
        return _with_arrival(relation)
    except QueryError:
        raise
    except HeadraceError as problem:
        raise QueryError(problem.message, text, *_span(text), hint=problem.hint) from problem
    except RecursionError:
        raise QueryError("the query is nested too deeply", text, hint="Use WITH to name parts of it.") from None


def _with_arrival(relation: Relation) -> Relation:
    """Hide the columns that stand for the time of arrival: they say how rows are looked up, and have no value."""
    if all(column.physical or column.role != "proctime" for column in relation.columns):
        return relation
    columns = [each if each.physical else replace(each, shown=False) for each in relation.columns]
    return replace(relation, columns=tuple(columns))


def plan_query(
    query: str | exp.Expr,
    tables: Mapping[str, Any],
    *,
    functions: Mapping[str, ScalarFunction] | None = None,
    bounded: bool = False,
    warn: Callable[[str], None] | None = None,
) -> Stream:
    """Plan a query as a stream, whose columns have the names that the query gives them.

    Beside them the stream has `event_time`, and `is_retraction` where its rows may be taken back.

    Args:
        query: The text, or the tree of `parse_query`.
        tables: Streams, tables, or `CatalogTable`s by name.
        functions: Functions beside the built-in ones, by name.
        bounded: Whether the rows come to an end, so that ORDER BY and LIMIT of the whole result have a meaning.
        warn: Told of what would keep state without bound; by default it is logged.

    Raises:
        QueryError: It is wrong, or cannot be done on a stream; the message says where and what to write instead.

    >>> import polars as pl
    >>> from headrace.stream import Stream
    >>> scans = Stream.rows("scans", {"depot": pl.String, "parcels": pl.Int64})
    >>> print(plan_query("SELECT UPPER(depot) AS depot FROM scans WHERE parcels > 10", {"scans": scans}).explain())
    rows scans
      filter [(col("parcels")) > (10)]
      select depot
    """
    relation = plan_relation(query, tables, functions=functions, bounded=bounded, warn=warn)
    text = query if isinstance(query, str) else ""
    columns: dict[str, Any] = {}
    for column in relation.columns:
        if not column.shown or not column.physical:
            continue
        name = column.name or "column"
        if name == EVENT_TIME and column.physical != EVENT_TIME:
            raise QueryError(
                f"a column of the result is named {EVENT_TIME}, but is not the time of its rows",
                text,
                hint="Give it another name with AS.",
            )
        if name in HIDDEN or name.startswith("#"):
            raise QueryError(f"a column of the result is named {name!r}", text, hint="Give it another name with AS.")
        number, unique = 1, name
        while unique in columns:
            number += 1
            unique = f"{name}_{number}"
        columns[unique] = pl.col(column.physical)
    return projected(relation.stream, columns)


def _span(text: str) -> tuple[int, int]:
    begin = len(text) - len(text.lstrip())
    return begin, 1
