"""UNION, INTERSECT and EXCEPT."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from headrace.streaming_sql import grouping
from headrace.streaming_sql.emission import refuse_emission
from headrace.streaming_sql.relation import Column, Relation, fresh_names
from headrace.streaming_sql.steps import projected, unkeyed
from headrace.streaming_sql.values import Bound, coerced, common, spoken
from headrace.tables import steps as table_steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlglot import exp

    from headrace.streaming_sql.query import Planner


def plan_set_operation(planner: Planner, node: exp.SetOperation) -> Relation:
    """Plan a set operation; columns go by their place, and have the names of the first query."""
    from headrace.streaming_sql import selects

    refuse_emission(planner, node)
    chain = _parts(node)
    relations = [selects.materialized(planner, planner.query(each), each) for each in chain]
    aligned = _aligned(planner, node, relations)
    if node.key == "union":
        united = aligned[0].stream.union(*(each.stream for each in aligned[1:]))
        result = Relation(united, aligned[0].columns)
        result = result if _keeps_all(node) else selects.distinct(planner, result, node)
    else:
        result = _counted(node, aligned)
    return selects.ordered(planner, node, result)


def _keeps_all(node: exp.Expr) -> bool:
    return node.args.get("distinct") is False


def _parts(node: exp.SetOperation) -> list[exp.Expr]:
    """Give the queries of a chain of the same operation; of others, the two."""
    if node.key != "union":
        return [node.this, node.expression]
    parts: list[exp.Expr] = []
    each: exp.Expr = node
    while each.key == "union" and _keeps_all(each) == _keeps_all(node) and (each is node or not _modified(each)):
        parts.append(each.expression)
        each = each.this
    return [each, *reversed(parts)]


def _modified(node: exp.Expr) -> bool:
    return any(node.args.get(name) for name in ("order", "limit", "offset", "with_"))


def _aligned(planner: Planner, node: exp.Expr, relations: Sequence[Relation]) -> list[Relation]:
    """Bring all parts to the same physical columns of the same types."""
    shown = [[column for column in each.columns if column.shown] for each in relations]
    for columns in shown:
        if len(columns) != len(shown[0]):
            raise planner.error(
                node,
                f"{node.key.upper()} of queries with {len(shown[0])} and {len(columns)} columns",
                hint="Both need the same number.",
            )
    names = [column.name for column in shown[0]]
    kinds = []
    for place, name in enumerate(names):
        types = [columns[place].dtype for columns in shown]
        merged = common(types)
        if merged is None:
            told = " and ".join(dict.fromkeys(spoken(dtype) for dtype in types))
            raise planner.error(
                node, f"{node.key.upper()}: column {place + 1} ({name}) is {told}", hint="CAST one of them."
            )
        kinds.append(merged)
    physical = fresh_names(names)
    aligned = []
    for relation, columns in zip(relations, shown, strict=True):
        made = {
            own: coerced(Bound(pl.col(column.physical), column.dtype), kind)
            for own, column, kind in zip(physical, columns, kinds, strict=True)
        }
        roles = [column.role if all(c[place].role == column.role for c in shown) else ""
                 for place, column in enumerate(shown[0])]  # fmt: skip
        stream = projected(relation.stream, made)
        aligned.append(
            Relation(
                stream,
                tuple(
                    Column(name, own, kind, role=role)
                    for name, own, kind, role in zip(names, physical, kinds, roles, strict=True)
                ),
            )
        )
    return aligned


def _counted(node: exp.SetOperation, relations: Sequence[Relation]) -> Relation:
    """INTERSECT and EXCEPT: rows are counted on both sides, whatever their time."""
    operation = f"{node.key}_all" if _keeps_all(node) else node.key
    sides = [grouping.without_time(each.stream) for each in relations]
    stream = unkeyed(table_steps.multiset(sides, operation))  # type: ignore[arg-type] # the keys of sqlglot are its names
    columns = tuple(replace(column, role="") for column in relations[0].columns)
    return Relation(stream, columns)
