"""MATCH_RECOGNIZE in FROM; its clauses are read and compiled by `headrace.cep.sql`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from headrace.cep.sql import surroundings
from headrace.cep.sql.lexer import Cursor, Position, tokenize
from headrace.cep.sql.operator import MatchRecognizeOperator
from headrace.cep.sql.output import impossible
from headrace.cep.sql.output import plan as compiled
from headrace.cep.sql.parser import ClauseParser
from headrace.cep.sql.query import as_polars
from headrace.cep.sql.table import SortKey
from headrace.engine.operator import EVENT_TIME
from headrace.errors import PlanError
from headrace.stream import Stream
from headrace.stream import plan as nodes
from headrace.streaming_sql.dialect import _positioned
from headrace.streaming_sql.relation import Column, Relation, fresh_names
from headrace.streaming_sql.steps import keyed, projected

if TYPE_CHECKING:
    from headrace.cep.sql.output import Plan
    from headrace.cep.sql.syntax import MatchRecognize
    from headrace.streaming_sql.dialect import MatchTable
    from headrace.streaming_sql.query import Planner

_MAX_ROWS: Final = 100_000


def plan_match(planner: Planner, node: MatchTable) -> Relation:
    """Plan a MATCH_RECOGNIZE."""
    from headrace.streaming_sql import from_clause, selects

    relation = from_clause.plan_source(planner, node.this, None)
    relation = selects.materialized(planner, relation, node)
    if relation.updating:
        raise planner.error(node, "MATCH_RECOGNIZE of rows that may be taken back",
                            hint="Match the rows that the table is made of, or results of windows.")  # fmt: skip
    if not planner.text:
        raise planner.error(node, "MATCH_RECOGNIZE needs the text of the query")
    start, end = int(node.args["start"].name), int(node.args["end"].name)
    try:
        return _planned(planner, node, relation, start, end)
    except PlanError as problem:
        if problem.message.startswith("line "):
            raise _positioned(problem, planner.text) from None
        raise


def _planned(planner: Planner, node: MatchTable, relation: Relation, start: int, end: int) -> Relation:
    from headrace.streaming_sql import from_clause

    text = planner.text
    tokens = tokenize(text)
    first = next(place for place, token in enumerate(tokens) if token.start >= start)
    last = next(place for place, token in enumerate(tokens) if token.start >= end)
    clause = ClauseParser(Cursor(tokens, first, last), text, tokens[first - 2].at).parse()
    relation, times = _named(relation)
    schema = {column.name: relation.stream.schema[column.physical] for column in relation.columns if column.shown}
    schema |= {name: pl.Datetime("us", "UTC") for name in times}

    def run(query: str, at: Position) -> pl.DataFrame:
        frames = {name: as_polars(table, name) for name, table in planner.frames.items()}
        return surroundings.run(surroundings.Rewritten.whole(query, text, at), frames)

    table = relation.columns[0].table if relation.columns else ""
    plan = compiled(clause, schema, table_name=table, run=run)
    if (why := impossible(clause, plan)) is not None:
        raise why
    plan = _ordered(planner, node, plan, times)
    return from_clause.aliased(planner, node, _matched(planner, relation, plan, clause))


def _named(relation: Relation) -> tuple[Relation, list[str]]:
    """Give the columns of the stream the names of the query; returns those that are the time of the rows."""
    times = [column.name for column in relation.columns if column.role in ("rowtime", "proctime")]
    columns = []
    made: dict[str, pl.Expr] = {}
    for column in relation.columns:
        if column.role == "proctime" and not column.physical:
            columns.append(replace(column, physical=EVENT_TIME))
            continue
        if column.physical == EVENT_TIME and column.name == EVENT_TIME:
            columns.append(column)
            continue
        made[column.name] = pl.col(column.physical)
        columns.append(replace(column, physical=column.name))
    for column in relation.columns:
        if column.role == "proctime" and not column.physical and column.name not in made:
            made[column.name] = pl.col(EVENT_TIME)
    return replace(relation, stream=projected(relation.stream, made), columns=tuple(columns)), times


def _ordered(planner: Planner, node: MatchTable, plan: Plan, times: list[str]) -> Plan:
    first = plan.order_by[0] if plan.order_by else None
    if first is None or first.descending or first.column not in (*times, EVENT_TIME):
        raise planner.error(
            node,
            "ORDER BY of MATCH_RECOGNIZE must begin with the time of the rows, ascending",
            hint=f"Rows are matched as time passes. Write ORDER BY {times[0] if times else EVENT_TIME}, then others.",
        )
    by_time = SortKey(EVENT_TIME, descending=False, nulls_first=False)
    return replace(plan, order_by=(by_time, *plan.order_by[1:]))


def _matched(planner: Planner, relation: Relation, plan: Plan, clause: MatchRecognize) -> Relation:
    del planner

    def build(keys: tuple[str, ...], schema: pl.Schema) -> Any:
        del keys, schema
        return MatchRecognizeOperator(plan, max_rows=_MAX_ROWS)

    stream = keyed(relation.stream, plan.partition_by)
    labels = " ".join(label.lower() for label in plan.labels)
    name = f"match_recognize {labels} -> {', '.join(name for name, _ in plan.measures) or 'all rows'}"
    schema = build(stream.keys, stream.schema).schema(stream.schema)
    node = nodes.Processed(input=stream.node, does="match-recognize", description=name, make=build, schema=schema)
    result = Stream(node)
    own = [each for each in schema if each != EVENT_TIME or clause.rows != "one"]
    physical = fresh_names([each for each in own if each != EVENT_TIME])
    by_name = dict(zip([each for each in own if each != EVENT_TIME], physical, strict=True))
    made = {new: pl.col(old) for old, new in by_name.items()}
    result = projected(result, made)
    columns = tuple(
        Column(each, by_name.get(each, EVENT_TIME), result.schema[by_name.get(each, EVENT_TIME)],
               role="rowtime" if each == EVENT_TIME else "")
        for each in own
    )  # fmt: skip
    return Relation(result, columns)
