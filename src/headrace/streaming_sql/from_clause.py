"""FROM: tables, subqueries, VALUES, window functions, UNNEST."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
from sqlglot import exp

from headrace.streaming_sql import late_rows, matching, window_tables
from headrace.streaming_sql.constants import constant_rows
from headrace.streaming_sql.dialect import LateTable, MatchTable, WindowTable, written
from headrace.streaming_sql.expressions import Binder
from headrace.streaming_sql.relation import Column, Relation
from headrace.streaming_sql.values import common, spoken

if TYPE_CHECKING:
    from headrace.streaming_sql.query import Planner
    from headrace.streaming_sql.scope import Scope


def plan_source(planner: Planner, node: exp.Expr, outer: Scope | None) -> Relation:
    """Plan one item of FROM."""
    if isinstance(node, WindowTable):
        relation = window_tables.plan_window_table(planner, node)
    elif isinstance(node, MatchTable):
        return matching.plan_match(planner, node)
    elif isinstance(node, LateTable):
        relation = late_rows.plan_late(planner, node)
    elif isinstance(node, exp.Table) and isinstance(node.this, exp.Anonymous):
        raise planner.error(node, f"unknown table function {node.this.name}",
                            hint="Known are TUMBLE, HOP, CUMULATE, SESSION, UNNEST.")  # fmt: skip
    elif isinstance(node, exp.Table):
        relation = planner.table(node)
    elif isinstance(node, exp.Subquery):
        relation = planner.query(node, outer)
    elif isinstance(node, exp.Values):
        relation = values(planner, node)
    elif isinstance(node, exp.TableFromRows):
        return plan_source(planner, node.this, outer)
    else:
        raise planner.error(node, f"{written(node)[:40]} cannot stand in FROM")
    return aliased(planner, node, relation)


def aliased(planner: Planner, node: exp.Expr, relation: Relation) -> Relation:
    """Give a relation the alias that is written behind it."""
    alias = node.args.get("alias")
    if alias is None:
        name = node.name if isinstance(node, exp.Table) else ""
        return relation.called(name) if name else relation.called("")
    names = [column.name for column in alias.columns]
    shown = sum(column.shown for column in relation.columns)
    if len(names) > shown:
        raise planner.error(node, f"{len(names)} names for {shown} columns")
    return relation.called(alias.name or "", names)


def values(planner: Planner, node: exp.Values) -> Relation:
    """Plan VALUES: rows that are there from the beginning."""
    rows = [each.expressions if isinstance(each, exp.Tuple) else [each] for each in node.expressions]
    width = len(rows[0])
    if any(len(row) != width for row in rows):
        raise planner.error(node, "the rows of VALUES have different lengths")

    def no_columns(column: exp.Column) -> Any:
        raise planner.error(column, f"column {column.name!r} in VALUES, which has no table")

    binder = Binder(planner.text, no_columns, functions=planner.functions)
    bound = [[binder.bind(item) for item in row] for row in rows]
    names = [f"EXPR${place}" for place in range(width)]
    columns = []
    for place in range(width):
        kind = common(row[place].dtype for row in bound)
        if kind is None:
            told = " and ".join(dict.fromkeys(spoken(row[place].dtype) for row in bound))
            raise planner.error(node, f"column {place + 1} of VALUES is {told}", hint="CAST one of them.")
        columns.append(kind)
    physical = [f"column_{place}" for place in range(width)]
    frame = pl.concat(
        [
            pl.select(
                [item.expr.cast(kind).alias(name) for name, item, kind in zip(physical, row, columns, strict=True)]
            )
            for row in bound
        ]
    )
    found = tuple(Column(name, own, kind) for name, own, kind in zip(names, physical, columns, strict=True))
    return Relation(constant_rows(frame), found)


__all__ = ["aliased", "constant_rows", "plan_source", "values"]
