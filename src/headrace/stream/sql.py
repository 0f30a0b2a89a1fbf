"""SQL over streams: a query whose tables are streams gives a stream.

`sql("SELECT ... FROM positions MATCH_RECOGNIZE (...)", {"positions": stream})` makes a stage of the MATCH_RECOGNIZE,
keyed by its PARTITION BY; a projection and a WHERE around it, or on its input, become `select` and `filter` steps. What
would need the end of the stream (ORDER BY, aggregates, joins) is refused, with the place in the query.

Rows are matched in event-time order as the watermark passes them, so ORDER BY begins with `event_time`. A row of ONE
ROW PER MATCH has, after the key, the `event_time` at which the match was decided.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import polars as pl
from polars.exceptions import PolarsError
from sqlglot import exp

from headrace.cep.program import AnchorEnd
from headrace.cep.sql import query as over_frames
from headrace.cep.sql import surroundings
from headrace.cep.sql.lexer import problem
from headrace.cep.sql.operator import DEFAULT_MAX_ROWS, MatchRecognizeOperator
from headrace.cep.sql.output import execute, impossible
from headrace.cep.sql.pattern import Quantified, walk
from headrace.cep.sql.query import as_polars, run
from headrace.engine.operator import EVENT_TIME
from headrace.errors import PlanError
from headrace.stream import plan as nodes
from headrace.stream.order import key_time_of
from headrace.stream.stream import Stream
from headrace.time.duration import micros

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import timedelta

    from headrace.cep.limits import AtLimit
    from headrace.cep.sql.lexer import Position
    from headrace.cep.sql.output import Plan
    from headrace.cep.sql.surroundings import Rewritten
    from headrace.cep.sql.syntax import MatchRecognize
    from headrace.engine import Operator

_log = logging.getLogger(__name__)

Relation: TypeAlias = "Stream | pl.DataFrame"

#: Parts of a SELECT that a stream cannot have, by sqlglot's name for them.
_REFUSED: Final = {
    "distinct": "DISTINCT",
    "group": "GROUP BY",
    "having": "HAVING",
    "order": "ORDER BY",
    "limit": "LIMIT",
    "offset": "OFFSET",
    "joins": "a join",
    "laterals": "a join",
    "windows": "WINDOW",
    "qualify": "QUALIFY",
}
_HINT: Final = (
    "A stream has no end: around MATCH_RECOGNIZE it can have a projection and WHERE. Use window(...).aggregate(...) "
    "on the stream that comes out."
)


def sql(
    query: str,
    tables: Mapping[str, Any],
    *,
    max_rows: int = DEFAULT_MAX_ROWS,
    at_limit: AtLimit = "fail",
    forget_after: str | timedelta | int | None = None,
) -> Any:
    """Run a query with MATCH_RECOGNIZE: over frames at once, over streams as a step of a stream.

    Args:
        query: One SELECT.
        tables: Streams, or Polars, pyarrow or pandas frames, by the name the query has for them. Beside a stream,
            frames can be used in subqueries of conditions.
        max_rows: Of a stream: bound on the rows of one key that wait for a match to be decided.
        at_limit: What to do where a match needs more rows: "fail" the job, or "give_up" on these rows, which are
            dismissed with the reason; matching goes on behind them.
        forget_after: Of a stream: a key that had no row for so long ("1h", a timedelta, microseconds) begins anew, as
            if it had never been there; None to remember for ever what MATCH_NUMBER(), `^` and PREV ask for.

    Returns:
        A `Stream` if any table is one; else a frame of the same kind as the first table.

    Raises:
        PlanError: The query is wrong; the message names line and column.

    >>> from headrace.time import bounded
    >>> readings = Stream.rows("readings", {"sensor": pl.String, "value": pl.Int64}).watermark(bounded("1s"))
    >>> rises = sql(
    ...     '''
    ...     SELECT sensor, top FROM readings MATCH_RECOGNIZE (
    ...       PARTITION BY sensor ORDER BY event_time
    ...       MEASURES LAST(up.value) AS top, COUNT(*) AS n
    ...       PATTERN (low up+?) WITHIN INTERVAL '10' SECOND
    ...       DEFINE up AS value > PREV(value))
    ...     WHERE n > 1
    ...     ''',
    ...     {"readings": readings},
    ... )
    >>> print(rises.explain())
    rows readings
      watermark bounded(1s)
      key_by sensor
      match_recognize low up -> top, n
      filter [(col("n")) > (dyn int: 1)]
      select sensor, top
    """
    if not any(isinstance(table, Stream) for table in tables.values()):
        return over_frames(query, tables)
    relations: dict[str, Relation] = {
        name: table if isinstance(table, Stream) else as_polars(table, name) for name, table in tables.items()
    }
    forget = None if forget_after is None else micros(forget_after, what="forget_after")
    found = run(query, relations, _Streams(max_rows, at_limit, forget))
    if not isinstance(found, Stream):
        raise PlanError("the query reads none of the streams", hint="Give only the frames, to get a frame.")
    return found


class AroundMatchError(PlanError):
    """What stands around MATCH_RECOGNIZE is more than a projection and conditions."""


class _Streams:
    """Tables that are streams, and frames beside them."""

    def __init__(self, max_rows: int, at_limit: AtLimit, forget_after: int | None) -> None:
        self._max_rows = max_rows
        self._at_limit = at_limit
        self._forget_after = forget_after

    def columns(self, table: Relation) -> Mapping[str, pl.DataType]:
        return dict(table.schema)

    def renamed(self, table: Relation, names: Mapping[str, str], at: Position) -> Relation:
        if isinstance(table, Stream):
            raise problem("a list of column names behind a stream", at, hint="Name them in SELECT, with AS.")
        return table.rename(names)

    def select(self, query: Rewritten, tables: Mapping[str, Relation]) -> Relation:
        tree = surroundings.parse(query)
        frames = {name: table for name, table in tables.items() if isinstance(table, pl.DataFrame)}
        lowered = {name.lower(): table for name, table in tables.items()}
        if not any(isinstance(lowered.get(table.name.lower()), Stream) for table in tree.find_all(exp.Table)):
            return surroundings.run(query, frames)
        surroundings.fit(tree, {name: pl.DataFrame(schema=table.schema) for name, table in tables.items()})
        return _Select(query, tables).of(tree)

    def values(self, query: Rewritten, tables: Mapping[str, Relation]) -> pl.DataFrame:
        found = self.select(query, tables)
        if isinstance(found, Stream):
            raise problem("a subquery over a stream", query.at_offset(0), hint="It can only read frames.")
        return found

    def match(self, clause: MatchRecognize, plan: Plan, table: Relation) -> Relation:
        if isinstance(table, pl.DataFrame):
            return execute(plan, table)
        if (why := impossible(clause, plan)) is not None:
            raise why
        _check_order(clause, plan)
        _check_names(clause, plan)
        for caution in _cautions(clause, plan):
            _log.warning("%s: %s", clause.at, caution)
        max_rows, at_limit, forget_after = self._max_rows, self._at_limit, self._forget_after

        def build(keys: tuple[str, ...], schema: pl.Schema) -> Operator:
            del schema
            return MatchRecognizeOperator(
                plan,
                max_rows=max_rows,
                at_limit=at_limit,
                forget_after=forget_after,
                key_time=key_time_of(keyed.node, keys),
            )

        if plan.partition_by:
            keyed = table.key_by(*plan.partition_by)
        else:
            keyed = Stream(nodes.KeyBy(input=table.node, schema=table.schema))
        labels = " ".join(label.lower() for label in plan.labels)
        name = f"match_recognize {labels} -> {', '.join(name for name, _ in plan.measures) or 'all rows'}"
        schema = build(keyed.keys, table.schema).schema(table.schema)
        node = nodes.Processed(input=keyed.node, does="match-recognize", description=name, make=build, schema=schema)
        return Stream(node)


def _check_order(clause: MatchRecognize, plan: Plan) -> None:
    first = plan.order_by[0] if plan.order_by else None
    if first is None or first.column != EVENT_TIME or first.descending:
        raise problem(
            f"over a stream, ORDER BY must begin with {EVENT_TIME}, ascending",
            clause.order_by[0].column.at if clause.order_by else clause.at,
            hint=f"Rows are matched as time passes. Write ORDER BY {EVENT_TIME}, then further columns for equal times.",
        )


def _check_names(clause: MatchRecognize, plan: Plan) -> None:
    for column, written in zip(plan.partition_by, clause.partition_by, strict=True):
        if column == EVENT_TIME:
            raise problem(f"a stream cannot be partitioned by {EVENT_TIME}", written.at)
    for measure in clause.measures:
        if clause.rows == "one" and measure.alias.text == EVENT_TIME:
            raise problem(
                f"a measure is named {EVENT_TIME}, like the column that says when a match was decided",
                measure.alias.at,
                hint="Give it another name.",
            )
        if measure.alias.text.startswith("#"):
            raise problem(f"a measure is named {measure.alias.text!r}", measure.alias.at, hint="Names with # are ours.")


def _cautions(clause: MatchRecognize, plan: Plan) -> Iterator[str]:
    if any(isinstance(instruction, AnchorEnd) for instruction in plan.program.instructions):
        yield "$ is known at the end of the stream only; until then matches wait, and state grows"
    elif plan.program.within is None and any(
        isinstance(node, Quantified) and node.maximum is None for node in walk(clause.pattern)
    ):
        yield "without WITHIN a repetition without bound may go on for ever, and state grows"


class _Select:
    """A SELECT around a stream as steps."""

    def __init__(self, query: Rewritten, tables: Mapping[str, Relation]) -> None:
        self._query = query
        self._tables = tables

    def of(self, tree: exp.Expr) -> Stream:
        if not isinstance(tree, exp.Select):
            raise self._refuse(tree, f"{tree.key.upper()} of a stream")
        for part, name in _REFUSED.items():
            if tree.args.get(part):
                found = tree.args[part]
                raise self._refuse(found[0] if isinstance(found, list) else found, f"{name} on a stream")
        for node in [*tree.expressions, tree.args.get("where")]:
            inner = None if node is None else node.find(exp.AggFunc, exp.Window, exp.Query)
            if inner is not None:
                what = "a subquery" if isinstance(inner, exp.Query) else inner.sql(dialect="trino")
                raise self._refuse(inner, f"{what} on a stream")
        stream, name = self._source(tree.args.get("from_") or tree.args.get("from"))
        for column in list(tree.find_all(exp.Column)):
            if column.table:
                if column.table.lower() != name.lower():
                    raise self._refuse(column, f"unknown table {column.table}", hint=f"The table here is {name}.")
                column.set("table", None)
        where = tree.args.get("where")
        if where is not None:
            stream = stream.filter(self._expression(where.this))
        return self._project(tree, stream)

    def _source(self, node: exp.Expr | None) -> tuple[Stream, str]:
        source = None if node is None else node.this
        if isinstance(source, exp.Subquery):
            return self.of(source.this), source.alias
        if not isinstance(source, exp.Table):
            raise self._refuse(source, "this on a stream")
        found = {name.lower(): table for name, table in self._tables.items()}.get(source.name.lower())
        if found is None:
            known = ", ".join(name for name in self._tables if not name.startswith("__match_"))
            raise self._refuse(source, f"unknown table {source.name}", hint=f"Tables: {known}.")
        if not isinstance(found, Stream):
            raise self._refuse(source, "a frame and a stream in one FROM")
        return found, source.alias or source.name

    def _project(self, tree: exp.Select, stream: Stream) -> Stream:
        columns: dict[str, pl.Expr] = {}
        for node in tree.expressions:
            if node.is_star:
                columns |= {name: pl.col(name) for name in stream.schema}
                continue
            name = node.alias_or_name
            if not name:
                raise self._refuse(node, "a column without a name", hint="Give it one, with AS.")
            columns[name] = self._expression(node.unalias())
        plain = list(columns) == list(stream.schema) and all(node.is_star for node in tree.expressions)
        return stream if plain else stream.select(**columns)

    def _expression(self, node: exp.Expr) -> pl.Expr:
        text = node.sql(dialect="duckdb", identify=True)
        try:
            return pl.sql_expr(text)
        except PolarsError as error:
            first = str(error).strip().split("\n")[0]
            raise self._refuse(node, f"this cannot be computed: {first}", hint=f"It was read as: {text}") from error

    def _refuse(self, node: exp.Expr | None, message: str, *, hint: str = _HINT) -> PlanError:
        starts = [] if node is None else [each.meta.get("start") for each in node.find_all(exp.Identifier)]
        known = [start for start in starts if isinstance(start, int)]
        found = problem(message, self._query.at_offset(min(known, default=0)), hint=hint)
        return AroundMatchError(found.message, hint=found.hint)
