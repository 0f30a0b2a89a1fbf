"""SELECT: the order in which its clauses are done, its projection, DISTINCT, ORDER BY and LIMIT."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import polars as pl
from sqlglot import exp

from headrace.engine.operator import EVENT_TIME
from headrace.streaming_sql import from_clause, grouping, joining, overs, ranking, subqueries, window_tables
from headrace.streaming_sql.dialect import written
from headrace.streaming_sql.emission import refuse_emission
from headrace.streaming_sql.expressions import Binder
from headrace.streaming_sql.relation import Column, Relation, fresh_names
from headrace.streaming_sql.scope import Scope
from headrace.streaming_sql.steps import projected, unkeyed
from headrace.streaming_sql.values import (
    Bound,
    every,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.streaming_sql.query import Planner

_REFUSED: Final = {
    "qualify": ("QUALIFY", "Put the query into FROM, and filter in WHERE of the query around."),
    "connect": ("CONNECT BY", "A stream has no fixed point."),
    "cluster": ("CLUSTER BY", "Leave it out."),
    "distribute": ("DISTRIBUTE BY", "Leave it out."),
    "sort": ("SORT BY", "Use ORDER BY."),
    "locks": ("FOR UPDATE", "Leave it out."),
    "into": ("SELECT INTO", "Use INSERT INTO."),
    "kind": ("SELECT AS STRUCT", "Write ROW(...)."),
    "pivots": ("PIVOT", "Use CASE or FILTER (WHERE ...) in aggregates."),
}


def plan_select(planner: Planner, node: exp.Select, outer: Scope | None) -> Relation:
    """Plan a SELECT."""
    for name, (clause, hint) in _REFUSED.items():
        if node.args.get(name):
            raise planner.error(node.args[name] if isinstance(node.args[name], exp.Expr) else node,
                                f"{clause} is not supported", hint=hint)  # fmt: skip
    node = _without_named_windows(planner, node)
    where = node.args.get("where")
    conditions = conjuncts(where.this) if where is not None else []
    relation, conditions = joining.plan_from(planner, node, conditions, outer)
    relation, conditions = ranking.filtered(planner, node, relation, conditions)
    relation, conditions = subqueries.filtered(planner, relation, conditions, outer)
    select, conditions = subqueries.scalars(Select(planner, node, relation, outer), conditions)
    select = select.with_relation(filtered_rows(planner, select.relation, conditions, outer, select))
    if grouping.is_grouped(node):
        select = grouping.grouped(select)
    else:
        refuse_emission(planner, node)
    select, _ = subqueries.scalars(select, node.expressions)
    select = overs.with_windows(select)
    result = _projected(select)
    if node.args.get("distinct"):
        result = distinct(planner, result, node)
    return ordered(planner, node, result, select)


class Select:
    """A SELECT on its way: what is left of it, and the rows so far.

    Args:
        planner: Plans queries.
        node: The SELECT.
        relation: The rows.
        outer: The columns of the query around.
        computed: Expressions that are columns by now, such as aggregates: their text and the column.
        strict: Whether only computed expressions can be named, as behind GROUP BY.
    """

    def __init__(
        self,
        planner: Planner,
        node: exp.Select,
        relation: Relation,
        outer: Scope | None = None,
        *,
        computed: dict[str, Column] | None = None,
        source: Relation | None = None,
    ) -> None:
        self.planner = planner
        self.node = node
        self.relation = relation
        self.outer = outer
        self.computed = computed or {}
        #: The rows before they were grouped, to tell which columns of them an expression means.
        self.source = source
        self.scope = Scope.of(planner.text, relation, outer)

    @property
    def binder(self) -> Binder:
        """Binds expressions over the rows so far."""
        return Binder(self.planner.text, self._resolve, functions=self.planner.functions, replaced=self._replaced)

    def with_relation(self, relation: Relation, computed: dict[str, Column] | None = None) -> Select:
        """Go on with other rows."""
        return Select(
            self.planner,
            self.node,
            relation,
            self.outer,
            computed={**self.computed, **(computed or {})},
            source=self.source,
        )

    def canonical(self, node: exp.Expr) -> str:
        """Write an expression with its columns resolved, so that equal ones have equal texts."""
        scope = self.scope if self.source is None else Scope.of(self.planner.text, self.source, self.outer)
        return canonical(node, scope)

    def _resolve(self, node: exp.Column) -> Bound:
        if self.source is not None:
            raise self.planner.error(
                node,
                f"column {node.name!r} is neither in GROUP BY nor in an aggregate",
                hint=f"Add it to GROUP BY, or write FIRST_VALUE({written(node)}) or MAX({written(node)}).",
            )
        return self.scope.resolve(node)

    def _replaced(self, node: exp.Expr) -> Bound | None:
        if not self.computed:
            return None
        if isinstance(node, exp.Literal | exp.Null | exp.Boolean | exp.Interval):
            return None
        column = self.computed.get(self.canonical(node))
        if column is None:
            return None
        return Bound(pl.col(column.physical), column.dtype)


def canonical(node: exp.Expr, scope: Scope) -> str:
    """Write an expression with its columns resolved to physical ones."""

    def resolved(each: Any) -> Any:
        if isinstance(each, exp.Column) and not isinstance(each.this, exp.Star):
            found = scope._find(each)  # noqa: SLF001
            if found is not None:
                name = ".".join([found.column.physical or f"?{found.column.table}.{found.column.name}", *found.fields])
                return exp.column(exp.to_identifier(name, quoted=True))
        if isinstance(each, exp.Paren):
            return each.this
        return each

    return written(node.copy().transform(resolved))


def conjuncts(node: exp.Expr) -> list[exp.Expr]:
    """Take a condition apart into those that are joined by AND."""
    found: list[exp.Expr] = []
    rest = [node]
    while rest:
        each = rest.pop()
        while isinstance(each, exp.Paren):
            each = each.this
        if isinstance(each, exp.And):
            rest += [each.expression, each.this]
        else:
            found.append(each)
    return found


def filtered_rows(
    planner: Planner,
    relation: Relation,
    conditions: Sequence[exp.Expr],
    outer: Scope | None = None,
    select: Select | None = None,
) -> Relation:
    """Keep the rows for which conditions hold; of a SELECT, they can name what it has computed."""
    if not conditions:
        return relation
    if any(_names_window(condition, relation) for condition in conditions):
        relation = window_tables.expanded(planner, relation)
    scope = Scope.of(planner.text, relation, outer)
    binder = Binder(planner.text, scope.resolve, functions=planner.functions)
    if select is not None and select.computed:
        binder = select.with_relation(relation).binder
    for condition in conditions:
        _refuse_aggregates(planner, condition)
    predicates = [binder.condition(condition) for condition in conditions]
    predicate = every(predicates)
    return relation.with_stream(unkeyed(relation.stream).filter(predicate))


def _refuse_aggregates(planner: Planner, condition: exp.Expr) -> None:
    for each in condition.walk(prune=lambda inner: isinstance(inner, exp.Query)):
        if grouping.is_aggregate(each):
            raise planner.error(
                each, f"the aggregate {written(each)} in WHERE", hint="Conditions on groups are in HAVING."
            )
        if isinstance(each, exp.Window):
            raise planner.error(
                each,
                "a window function in WHERE",
                hint="Compute it in a query in FROM, and filter in the query around.",
            )


def _names_window(node: exp.Expr, relation: Relation) -> bool:
    """Tell whether an expression reads a window column that rows do not have yet."""
    if relation.assigner is None:
        return False
    names = {
        column.name.lower() for column in relation.columns if column.role.startswith("window") and not column.physical
    }
    return any(column.name.lower() in names for column in node.find_all(exp.Column))


def materialized(planner: Planner, relation: Relation, node: exp.Expr) -> Relation:
    """Compute what was put off: windows of rows, and ranks."""
    if relation.ranking is not None:
        relation = ranking.ranked(planner, relation, node)
    if relation.assigner is not None:
        relation = window_tables.expanded(planner, relation)
    return relation


def _projected(select: Select) -> Relation:
    """Compute the columns of SELECT."""
    relation = select.relation
    if relation.ranking is not None and not _passes_rank(select):
        relation = ranking.ranked(select.planner, relation, select.node)
        select = select.with_relation(relation)
    if relation.assigner is not None and not _passes_window(select):
        relation = window_tables.expanded(select.planner, relation)
        select = select.with_relation(relation)
    items = _items(select)
    pending = [column for _, _, column in items if column is not None and not column.physical]
    values = [(name, bound, column) for name, bound, column in items if column not in pending or column is None]
    physical = _physical_names(relation, [(name, column) for name, _, column in values])
    made: dict[str, pl.Expr] = {}
    columns: list[Column] = []
    place = 0
    for name, bound, column in items:
        if column is not None and not column.physical:
            columns.append(replace(column, name=name, table="", shown=True))
            continue
        own = physical[place]
        place += 1
        assert bound is not None  # noqa: S101 - only pending columns have none
        made[own] = bound.expr
        role = column.role if column is not None else ""
        columns.append(Column(name, own, bound.dtype, role=role))
    stream = relation.stream
    kept = _kept_for_later(relation)
    kept_names = {name: pl.col(name) for name in kept if name not in made}
    clash = [name for name in kept if name in made and not made[name].meta.eq(pl.col(name))]
    if clash:
        raise select.planner.error(select.node, f"column {clash[0]!r} is needed for a rank, and has a new value",
                                   hint="Give the new value another name.")  # fmt: skip
    stream = projected(stream, {**made, **kept_names})
    typed = tuple(
        replace(column, dtype=stream.schema[column.physical]) if column.physical else column for column in columns
    )
    return replace(relation, stream=stream, columns=typed, source=None, order=())


def _kept_for_later(relation: Relation) -> list[str]:
    """Name the physical columns that what is put off will need."""
    kept = list(relation.partition) if relation.assigner is not None else []
    if relation.ranking is not None:
        kept += [*relation.ranking.partition, *(name for name, _ in relation.ranking.order)]
    there = relation.stream.schema
    return [name for name in dict.fromkeys(kept) if name != EVENT_TIME and name in there]


def _passes_rank(select: Select) -> bool:
    """Whether the rank is only passed on, and nothing that it needs is lost."""
    if any(select.node.args.get(name) for name in ("distinct", "order", "limit")):
        return False
    return not any(_reads_role(item, select, ("rank",)) for item in select.node.expressions)


def _passes_window(select: Select) -> bool:
    """Whether window columns are only passed on."""
    if any(select.node.args.get(name) for name in ("distinct", "order", "limit")):
        return False
    roles = ("window_start", "window_end", "window_time")
    return not any(_reads_role(item, select, roles) for item in select.node.expressions)


def _reads_role(item: exp.Expr, select: Select, roles: Sequence[str]) -> bool:
    """Tell whether an item of SELECT computes with a column that is not there yet."""
    inner = item.unalias()
    if isinstance(inner, exp.Column | exp.Star):
        return False
    if select.computed and select.canonical(inner) in select.computed:
        return False
    for column in inner.find_all(exp.Column):
        found = None if isinstance(column.this, exp.Star) else select.scope._find(column)  # noqa: SLF001
        if found is not None and found.column.role in roles and not found.column.physical:
            return True
    return False


def _items(select: Select) -> list[tuple[str, Bound | None, Column | None]]:
    """Give the columns of SELECT: the name, the value, and the column if it is one as it is."""
    items: list[tuple[str, Bound | None, Column | None]] = []
    binder = select.binder
    for place, item in enumerate(select.node.expressions):
        inner = item.unalias()
        star = _star(inner)
        if star is not None:
            items += [
                (column.name, Bound(pl.col(column.physical), column.dtype) if column.physical else None, column)
                for column in _starred(select, inner, star)
            ]
            continue
        name = item.alias or _name_of(inner, place)
        if isinstance(inner, exp.Anonymous) and inner.name.upper() == "PROCTIME" and not inner.expressions:
            items.append((name, None, Column(name, "", pl.Datetime("us", "UTC"), role="proctime")))
            continue
        column = _plain_column(select, inner)
        if column is not None and (
            not column.physical and column.role in ("rank", "window_start", "window_end", "window_time", "proctime")
        ):
            items.append((name, None, column))
        else:
            items.append((name, binder.bind(inner), column))
    if not items:
        raise select.planner.error(select.node, "SELECT of nothing")
    return items


def _star(node: exp.Expr) -> exp.Star | None:
    if isinstance(node, exp.Star):
        return node
    if isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
        return node.this
    return None


def _starred(select: Select, node: exp.Expr, star: exp.Star) -> list[Column]:
    if select.source is not None:
        raise select.planner.error(node, "* with GROUP BY", hint="Name the columns of GROUP BY, and aggregates.")
    table = node.table if isinstance(node, exp.Column) else ""
    found = [
        column
        for column in select.relation.columns
        if column.shown and (not table or column.table.lower() == table.lower())
    ]
    if not found:
        raise select.planner.error(node, f"unknown table {table!r}" if table else "* without FROM")
    left_out = {each.name.lower() for each in star.args.get("except_") or star.args.get("except") or []}
    return [column for column in found if column.name.lower() not in left_out]


def _plain_column(select: Select, node: exp.Expr) -> Column | None:
    """Give the column that an item is, unchanged."""
    while isinstance(node, exp.Paren):
        node = node.this
    if select.source is not None or select.computed:
        computed = select.computed.get(select.canonical(node)) if not isinstance(node, exp.Literal | exp.Null) else None
        if computed is not None:
            return computed
        if select.source is not None:
            return None
    if not isinstance(node, exp.Column):
        return None
    found = select.scope.find(node)
    return found.column if not found.fields else None


def _name_of(node: exp.Expr, place: int) -> str:
    if isinstance(node, exp.Column | exp.Dot):
        return str(node.name if isinstance(node, exp.Column) else node.expression.name)
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Column):
        return str(node.this.name)
    return f"EXPR${place}"


def _physical_names(relation: Relation, wanted: Sequence[tuple[str, Column | None]]) -> list[str]:
    """Name the columns of a result: the time of the rows stays where it is, others get a name like their own."""
    names: list[str] = []
    taken: set[str] = set()
    for name, column in wanted:
        if column is not None and column.physical == EVENT_TIME and EVENT_TIME not in taken:
            names.append(EVENT_TIME)
        elif name in relation.stream.schema and column is not None and column.physical == name and name not in taken:
            names.append(name)
        else:
            names.append(fresh_names([name], {*taken, *_kept_for_later(relation)})[0])
        taken.add(names[-1])
    return names


def distinct(planner: Planner, relation: Relation, node: exp.Expr) -> Relation:
    """Keep each row once."""
    clause = node.args.get("distinct")
    if isinstance(clause, exp.Distinct) and clause.args.get("on"):
        raise planner.error(clause, "DISTINCT ON is not supported", hint="Use ROW_NUMBER() and filter on 1.")
    return grouping.distinct_rows(planner, materialized(planner, relation, node))


def ordered(planner: Planner, node: exp.Expr, relation: Relation, select: Select | None = None) -> Relation:
    """Do ORDER BY, LIMIT and OFFSET."""
    if not any(node.args.get(name) for name in ("order", "limit", "offset")):
        return relation
    return ranking.ordered(planner, node, materialized(planner, relation, node), select)


def _without_named_windows(planner: Planner, node: exp.Select) -> exp.Select:
    """Put the definitions of WINDOW in the place of their names."""
    windows = node.args.get("windows")
    if not windows:
        return node
    node = node.copy()
    named = {each.name.lower(): each for each in node.args.pop("windows")}
    for over in list(node.find_all(exp.Window)):
        name = over.args.get("alias")
        if name is None:
            continue
        if name.name.lower() not in named:
            raise planner.error(over, f"unknown window {name.name!r}", hint=f"WINDOW defines {', '.join(named)}.")
        definition = named[name.name.lower()]
        over.set("alias", None)
        for part in ("partition_by", "order", "spec"):
            if over.args.get(part) is None and definition.args.get(part) is not None:
                value = definition.args[part]
                over.set(part, [each.copy() for each in value] if isinstance(value, list) else value.copy())
    return node


__all__ = ["Select", "canonical", "conjuncts", "distinct", "from_clause", "materialized", "ordered", "plan_select"]
