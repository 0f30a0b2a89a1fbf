"""Queries in conditions: EXISTS, IN, and queries that stand for a value."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl
from sqlglot import exp

from headrace.streaming_sql import grouping, joining, window_tables
from headrace.streaming_sql.scope import Scope
from headrace.streaming_sql.steps import unkeyed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.streaming_sql.query import Planner
    from headrace.streaming_sql.relation import Relation
    from headrace.streaming_sql.selects import Select

_INNER = "inner query"
_COUNTS = ("COUNT", "APPROX_COUNT_DISTINCT")


def filtered(
    planner: Planner, relation: Relation, conditions: Sequence[exp.Expr], outer: Scope | None
) -> tuple[Relation, list[exp.Expr]]:
    """Do EXISTS and IN as semi and anti joins; returns the rows and the conditions that are left."""
    rest: list[exp.Expr] = []
    for condition in conditions:
        negated, inner = False, condition
        while isinstance(inner, exp.Not | exp.Paren):
            negated ^= isinstance(inner, exp.Not)
            inner = inner.this
        if isinstance(inner, exp.Exists):
            relation = _exists(planner, relation, inner, "anti" if negated else "semi")
        elif isinstance(inner, exp.In) and inner.args.get("query"):
            relation = _in(planner, relation, inner, negated=negated)
        else:
            rest.append(condition)
    del outer
    return relation, rest


def _select_of(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Subquery | exp.Paren):
        node = node.this
    return node


def _exists(planner: Planner, relation: Relation, node: exp.Exists, how: str) -> Relation:
    inner, correlated = _inner(planner, _select_of(node.this))
    return joining.join_relations(planner, node, relation, inner, correlated, how)


def _in(planner: Planner, relation: Relation, node: exp.In, *, negated: bool) -> Relation:
    query = _select_of(node.args["query"])
    if isinstance(query, exp.Select) and _is_plain(query) and len(query.expressions) == 1:
        value = query.expressions[0].unalias()
        if not isinstance(value, exp.Star) and not grouping.calls_of(value):
            inner, correlated, other = _plain_inner(planner, query, value)
            return _matched(planner, relation, inner, node, other, correlated, negated=negated)
    from headrace.streaming_sql import selects

    planned = selects.materialized(planner, planner.query(query), query)
    shown = [column for column in planned.columns if column.shown]
    if len(shown) != 1:
        raise planner.error(node, f"IN with a query of {len(shown)} columns", hint="It needs one.")
    inner = _renamed(planned)
    place = planned.columns.index(shown[0])
    name = exp.column(inner.columns[place].name, table=_INNER, quoted=True)
    return _matched(planner, relation, inner, node, name, [], negated=negated)


def _matched(
    planner: Planner,
    relation: Relation,
    inner: Relation,
    node: exp.In,
    other: exp.Expr,
    correlated: Sequence[exp.Expr],
    *,
    negated: bool,
) -> Relation:
    equal: exp.Expr = exp.EQ(this=node.this.copy(), expression=other)
    if not negated:
        return joining.join_relations(planner, node, relation, inner, [*correlated, equal], "semi")
    # NOT IN is true where no value is equal, and none could be: a null on either side could.
    unknown = exp.or_(
        equal,
        exp.Is(this=node.this.copy(), expression=exp.Null()),
        exp.Is(this=other.copy(), expression=exp.Null()),
        copy=False,
    )
    return joining.join_relations(planner, node, relation, inner, [*correlated, unknown], "anti")


def _is_plain(query: exp.Select) -> bool:
    """Tell whether a query only filters and joins, so that it can look at the rows around it."""
    if any(query.args.get(name) for name in ("group", "having", "limit", "offset", "with_", "with", "windows")):
        return False
    items = [] if any(isinstance(item, exp.Star) for item in query.expressions) else query.expressions
    return not any(grouping.calls_of(item) or item.find(exp.Window) for item in items)


def _inner(planner: Planner, query: exp.Expr) -> tuple[Relation, list[exp.Expr]]:
    """Plan the query of EXISTS; returns its rows and the conditions on the rows around."""
    if isinstance(query, exp.Select) and _is_plain(query):
        inner, correlated, _ = _plain_inner(planner, query, None)
        return inner, correlated
    from headrace.streaming_sql import selects

    return _renamed(selects.materialized(planner, planner.query(query), query)), []


def _plain_inner(
    planner: Planner, query: exp.Select, value: exp.Expr | None
) -> tuple[Relation, list[exp.Expr], exp.Expr]:
    """Plan the rows of a query, without the conditions that name the rows around it.

    Returns:
        The rows, those conditions, and the value, both with the names that the rows have now.
    """
    from headrace.streaming_sql import selects
    from headrace.streaming_sql.ranking import filtered as by_rank

    where = query.args.get("where")
    conditions = selects.conjuncts(where.this) if where is not None else []
    probe, _ = joining.plan_from(planner, query, [], None)
    scope = Scope.of(planner.text, probe)
    own = [each for each in conditions if _is_own(each, scope)]
    others = [each for each in conditions if not any(each is mine for mine in own)]
    inner, own = joining.plan_from(planner, query, own, None)
    inner, own = by_rank(planner, query, inner, own)
    inner, own = filtered(planner, inner, own, None)
    inner = selects.filtered_rows(planner, inner, own)
    inner = selects.materialized(planner, inner, query)
    scope = Scope.of(planner.text, inner)
    renamed = _renamed(inner)
    told = [_requalified(each, scope, renamed) for each in others]
    return renamed, told, _requalified(value, scope, renamed) if value is not None else exp.Null()


def _is_own(node: exp.Expr, scope: Scope) -> bool:
    """Tell whether a condition names columns of the query only."""
    for column in node.walk(prune=lambda each: isinstance(each, exp.Query)):
        if isinstance(column, exp.Column) and not scope.knows(column):
            return False
    return True


def _renamed(relation: Relation) -> Relation:
    """Give each column a name of its own, so that none is mistaken for one of the rows around."""
    columns = tuple(
        replace(column, name=f"column {place}", table=_INNER) for place, column in enumerate(relation.columns)
    )
    return replace(relation, columns=columns)


def _requalified(node: exp.Expr, scope: Scope, renamed: Relation) -> exp.Expr:
    def qualified(each: exp.Expr) -> exp.Expr:
        if not isinstance(each, exp.Column) or not scope.knows(each):
            return each
        found = scope.find(each)
        place = scope.columns.index(found.column)
        made: exp.Expr = exp.column(renamed.columns[place].name, table=_INNER, quoted=True)
        made.meta.update(each.this.meta)
        for name in found.fields:
            made = exp.Dot(this=made, expression=exp.to_identifier(name))
        return made

    return node.copy().transform(qualified)


# Queries that stand for a value


def scalars(select: Select, nodes: Sequence[exp.Expr]) -> tuple[Select, list[exp.Expr]]:
    """Compute the queries in expressions that stand for a value; each is joined to every row."""
    for node in nodes:
        for each in node.walk(prune=lambda inner: isinstance(inner, exp.Query)):
            if isinstance(each, exp.Subquery) and not isinstance(
                each.parent, exp.In | exp.Exists | exp.From | exp.Join
            ):
                text = select.canonical(each)
                if text not in select.computed:
                    select = _joined(select, each, text)
    return select, list(nodes)


def _joined(select: Select, node: exp.Subquery, text: str) -> Select:
    planner = select.planner
    query = _select_of(node)
    if not isinstance(query, exp.Select) or query.args.get("group") or not _is_one_row(query):
        raise planner.error(
            node,
            "a query that stands for a value must give one row",
            hint="Aggregate it without GROUP BY, such as (SELECT MAX(price) FROM bids); or join it in FROM.",
        )
    from headrace.streaming_sql import selects

    relation = window_tables.expanded(planner, selects.materialized(planner, select.relation, node))
    correlated = _correlated(select, query)
    if correlated:
        inner, conditions = _by_key(select, node, query, correlated)
    else:
        inner, conditions = selects.materialized(planner, planner.query(query), query), []
    shown = [column for column in inner.columns if column.shown]
    if len(shown) - len(conditions) != 1:
        raise planner.error(node, f"a query that stands for a value has {len(shown)} columns")
    joined = joining.join_relations(planner, node, relation, inner, conditions, "left")
    place = len(relation.columns) + inner.columns.index(shown[0])
    column = joined.columns[place]
    if query.expressions[0].unalias().name.upper() in _COUNTS:
        # No rows are counted as 0; any other aggregate of them is null.
        counted = unkeyed(joined.stream).with_columns(**{column.physical: pl.col(column.physical).fill_null(0)})
        joined = joined.with_stream(counted)
    columns = tuple(
        replace(each, shown=each.shown and number < len(relation.columns)) for number, each in enumerate(joined.columns)
    )
    moved = {old.physical: new.physical for old, new in zip(relation.columns, joined.columns, strict=False)}
    computed = {
        known: replace(each, physical=moved.get(each.physical, each.physical))
        for known, each in select.computed.items()
    }
    return select.with_relation(replace(joined, columns=columns), {**computed, text: replace(column, shown=False)})


def _correlated(select: Select, query: exp.Select) -> list[exp.Expr]:
    """List the conditions of a query that name columns of the rows around it."""
    from headrace.streaming_sql import selects

    where = query.args.get("where")
    if where is None or query.args.get("from_") is None:
        return []
    probe, _ = joining.plan_from(select.planner, query, [], None)
    scope = Scope.of(select.planner.text, probe)
    return [each for each in selects.conjuncts(where.this) if not _is_own(each, scope)]


def _by_key(
    select: Select, node: exp.Expr, query: exp.Select, correlated: Sequence[exp.Expr]
) -> tuple[Relation, list[exp.Expr]]:
    """Compute an aggregate for each value that the rows around are compared with; returns it and the comparisons."""
    from headrace.streaming_sql import selects

    planner = select.planner
    value = query.expressions[0].unalias()
    probe, _ = joining.plan_from(planner, query, [], None)
    scope = Scope.of(planner.text, probe)
    pairs = [_pair(each, scope) for each in correlated]
    if not grouping.is_aggregate(value) or len(query.expressions) != 1 or None in pairs or select.source is not None:
        raise planner.error(
            node,
            "a query that stands for a value and names the rows around it",
            hint="It can be one aggregate whose WHERE compares by =, such as (SELECT MAX(b.price) FROM bids AS b WHERE "
            "b.item = a.item); or group it in a query in FROM, and join.",
        )
    names = [f"key {place}" for place in range(len(pairs))]
    keys = [pair[0] for pair in pairs if pair is not None]
    grouped = query.copy()
    own = [each for each in selects.conjuncts(query.args["where"].this) if not any(each is one for one in correlated)]
    grouped.set("where", exp.Where(this=exp.and_(*own)) if own else None)
    grouped.set(
        "expressions",
        [
            exp.alias_(value.copy(), "value", quoted=True),
            *(exp.alias_(key.copy(), name, quoted=True) for key, name in zip(keys, names, strict=True)),
        ],
    )
    grouped.set("group", exp.Group(expressions=[key.copy() for key in keys]))
    inner = selects.materialized(planner, planner.query(grouped), grouped).called(_INNER)
    conditions: list[exp.Expr] = [
        exp.EQ(this=pair[1].copy(), expression=exp.column(name, table=_INNER, quoted=True))
        for pair, name in zip(pairs, names, strict=True)
        if pair is not None
    ]
    return inner, conditions


def _pair(node: exp.Expr, scope: Scope) -> tuple[exp.Expr, exp.Expr] | None:
    """Read `inner = outer`, in either order; None if it is anything else."""
    if not isinstance(node, exp.EQ):
        return None
    for own, other in ((node.this, node.expression), (node.expression, node.this)):
        inner = list(own.find_all(exp.Column))
        outer = list(other.find_all(exp.Column))
        if inner and outer and all(scope.knows(each) for each in inner) and not any(scope.knows(x) for x in outer):
            return own, other
    return None


def _is_one_row(query: exp.Select) -> bool:
    if any(grouping.calls_of(item) for item in query.expressions):
        return True
    return query.args.get("from_") is None and query.args.get("from") is None
