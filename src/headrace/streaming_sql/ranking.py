"""Top-N, deduplication, ORDER BY and LIMIT."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import polars as pl
from sqlglot import exp

from headrace.engine.operator import EVENT_TIME, WINDOW_END, WINDOW_START
from headrace.streaming_sql import grouping
from headrace.streaming_sql.relation import Column, Relation, fresh_names
from headrace.streaming_sql.row_lists import RowList
from headrace.streaming_sql.scope import Scope
from headrace.streaming_sql.steps import Keys, keyed, unkeyed
from headrace.streaming_sql.values import BIGINT
from headrace.tables import frames
from headrace.tables import steps as table_steps
from headrace.windows.assigners import SameWindow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.streaming_sql.query import Planner
    from headrace.streaming_sql.selects import Select

_FLIPPED: Final = {"LT": "GT", "LTE": "GTE", "GT": "LT", "GTE": "LTE", "EQ": "EQ"}


def filtered(
    planner: Planner, node: exp.Select, relation: Relation, conditions: list[exp.Expr]
) -> tuple[Relation, list[exp.Expr]]:
    """Keep the first ranks where WHERE asks for no more; returns the rows and the conditions that are left."""
    if relation.ranking is None:
        return relation, conditions
    scope = Scope.of(planner.text, relation)
    most: int | None = None
    rest: list[exp.Expr] = []
    for condition in conditions:
        limit = _limit(condition, scope)
        if limit is None:
            rest.append(condition)
            continue
        most = limit[0] if most is None else min(most, limit[0])
        if not limit[1]:
            rest.append(condition)
    if most is None:
        if any(_names_rank(each, scope) for each in conditions):
            return ranked(planner, relation, node), conditions
        return relation, conditions
    if most < 1:
        return ranked(planner, relation, node), conditions
    is_read = any(_names_rank(each, scope) for each in [*node.expressions, *rest])
    return _top(planner, relation, most, with_rank=is_read), rest


def _limit(node: exp.Expr, scope: Scope) -> tuple[int, bool] | None:
    """Read `rn <= 3`: the greatest rank, and whether that is all it says."""
    if isinstance(node, exp.Between) and _is_rank(node.this, scope):
        low, high = _whole(node.args["low"]), _whole(node.args["high"])
        return None if low is None or high is None else (high, low <= 1)
    kind = type(node).__name__
    if kind not in _FLIPPED:
        return None
    one, other = node.this.unnest(), node.expression.unnest()
    if _is_rank(other, scope):
        one, other, kind = other, one, _FLIPPED[kind]
    number = _whole(other)
    if not _is_rank(one, scope) or number is None:
        return None
    if kind == "EQ":
        return number, number == 1
    return {"LTE": (number, True), "LT": (number - 1, True)}.get(kind)


def _is_rank(node: exp.Expr, scope: Scope) -> bool:
    return isinstance(node, exp.Column) and scope.knows(node) and scope.find(node).column.role == "rank"


def _whole(node: exp.Expr) -> int | None:
    return int(node.name) if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit() else None


def _names_rank(node: exp.Expr, scope: Scope) -> bool:
    if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)):
        return True
    return any(_is_rank(column, scope) for column in node.find_all(exp.Column) if not isinstance(column.this, exp.Star))


def ranked(planner: Planner, relation: Relation, node: exp.Expr) -> Relation:
    """Compute a rank that was put off, for all rows."""
    ranking = relation.ranking
    assert ranking is not None  # noqa: S101 - only asked for such
    if ranking.by_time and not relation.updating and relation.assigner is None:
        (name,) = fresh_names(["rank"], relation.stream.schema)
        numbered = {name: frames.Numbered(ranking.function.lower())}  # type: ignore[arg-type]
        frame = frames.Frame("range", None)
        stream = table_steps.over(keyed(relation.stream, ranking.partition), numbered, frame)
        return _with_rank(relation, relation.with_stream(unkeyed(stream)), name)
    if not _in_window(relation):
        planner.warn(
            ranking.node or node, f"{ranking.function} of all rows keeps them for ever; filter its first ranks"
        )
    return _top(planner, relation, None, with_rank=True)


def _in_window(relation: Relation) -> bool:
    """Tell whether ranks are counted in each window."""
    ranking = relation.ranking
    assert ranking is not None  # noqa: S101
    if not relation.windowed or relation.updating:
        return False
    bounds = {column.physical or column.role for column in relation.columns
              if column.role in ("window_start", "window_end")}  # fmt: skip
    return bounds <= set(ranking.partition)


def _top(planner: Planner, relation: Relation, most: int | None, *, with_rank: bool) -> Relation:
    ranking = relation.ranking
    assert ranking is not None  # noqa: S101
    if _in_window(relation):
        return _top_of_windows(planner, relation, most)
    if relation.assigner is not None:
        from headrace.streaming_sql import window_tables

        relation = window_tables.expanded(planner, relation)
    (name,) = fresh_names(["rank"], relation.stream.schema)
    stream = table_steps.top(
        keyed(relation.stream, ranking.partition),
        most,
        [column for column, _ in ranking.order],
        [down for _, down in ranking.order],
        last_first=ranking.last_first and not ranking.order,
        rank=name if with_rank else "",
        numbering=ranking.function.lower(),  # type: ignore[arg-type]
    )
    result = relation.with_stream(unkeyed(stream))
    if not with_rank:
        return replace(result, ranking=None, columns=tuple(each for each in relation.columns if each.role != "rank"))
    return _with_rank(relation, result, name)


def _with_rank(relation: Relation, result: Relation, name: str) -> Relation:
    columns = tuple(
        replace(column, physical=name, role="", dtype=BIGINT) if column.role == "rank" else column
        for column in relation.columns
    )
    return replace(result, columns=columns, ranking=None)


def _top_of_windows(planner: Planner, relation: Relation, most: int | None) -> Relation:
    """Rank the rows of each window when it ends."""
    del planner
    ranking = relation.ranking
    assert ranking is not None  # noqa: S101
    start, end = relation.role("window_start"), relation.role("window_end")
    assert start is not None  # noqa: S101
    assert end is not None  # noqa: S101
    bounds = {start.physical or start.role, end.physical or end.role}
    own = [each.physical for each in relation.columns if each.physical and not each.role.startswith("window")]
    stream = unkeyed(relation.stream)
    partition = [name for name in ranking.partition if name not in bounds and name != "window_time"]
    keys = Keys(stream, {name: (pl.col(name), stream.schema[name]) for name in partition})
    stream = keys.stream
    if relation.assigner is None:
        moved = {WINDOW_START: pl.col(start.physical), WINDOW_END: pl.col(end.physical)}
        stream = stream.with_columns(
            **{name: value for name, value in moved.items() if not value.meta.eq(pl.col(name))}
        )
    names = tuple(dict.fromkeys([*own, *(name for name, _ in ranking.order), EVENT_TIME]))
    (rows,) = fresh_names(["rows"], stream.schema)
    listed = RowList(names, ranking.order or ((EVENT_TIME, ranking.last_first),), most, ranking.function.lower())
    ended = (
        keyed(stream, keys.names)
        .window(relation.assigner or SameWindow())
        .aggregate(on_error="fail", keep_for=None, **{rows: listed})
    )
    (rank,) = fresh_names(["rank"], [*own, rows])
    plain = replace(relation, ranking=None)
    result = grouping.row_lists_taken_apart(plain, ended, rows, rank)
    if most is not None and ranking.function != "ROW_NUMBER":
        result = result.with_stream(unkeyed(result.stream).filter(pl.col(rank) <= most))
    columns = tuple(
        replace(column, physical=rank, role="", dtype=BIGINT) if column.role == "rank" else column
        for column in result.columns
    )
    return replace(result, columns=columns, assigner=None, partition=(), ranking=None)


# ORDER BY and LIMIT


def ordered(planner: Planner, node: exp.Expr, relation: Relation, select: Select | None) -> Relation:
    """Do ORDER BY, LIMIT and OFFSET of a query."""
    order = node.args.get("order")
    limit, offset = _count(planner, node, "limit"), _count(planner, node, "offset") or 0
    columns = _order_columns(planner, relation, order.expressions if order is not None else [], select)
    if limit is None and not offset:
        return _sorted(planner, node, relation, columns)
    if limit is None:
        raise planner.error(node, "OFFSET without LIMIT", hint="A stream has no last row.")
    (name,) = fresh_names(["rank"], relation.stream.schema)
    own = [(column.physical, down) for column, down in columns if column.physical]
    stream = table_steps.top(
        keyed(relation.stream, ()),
        limit + offset,
        [each for each, _ in own],
        [down for _, down in own],
        rank=name if offset else "",
    )
    stream = unkeyed(stream)
    if offset:
        stream = stream.filter(pl.col(name) > offset)
    result = replace(relation, stream=stream)
    return replace(result, order=tuple(own))


def _count(planner: Planner, node: exp.Expr, name: str) -> int | None:
    clause = node.args.get(name)
    if clause is None:
        return None
    value = clause.args.get("count") if isinstance(clause, exp.Fetch) else clause.expression
    number = _whole(value) if value is not None else 1
    if number is None:
        raise planner.error(clause, f"{name.upper()} takes a whole number")
    if name == "limit" and number == 0:
        raise planner.error(clause, "LIMIT 0 gives nothing")
    return number


def _order_columns(
    planner: Planner,
    relation: Relation,
    items: Sequence[exp.Expr],
    select: Select | None,
) -> list[tuple[Column, bool]]:
    """Find the columns of the result that ORDER BY names."""
    shown = [column for column in relation.columns if column.shown]
    found: list[tuple[Column, bool]] = []
    for item in items:
        inner, down = item.this, bool(item.args.get("desc"))
        column = _order_column(planner, relation, inner, shown, select)
        found.append((column, down))
    return found


def _order_column(
    planner: Planner,
    relation: Relation,
    inner: exp.Expr,
    shown: Sequence[Column],
    select: Select | None,
) -> Column:
    if isinstance(inner, exp.Literal):
        place = _whole(inner) or 0
        if not 1 <= place <= len(shown):
            raise planner.error(inner, f"ORDER BY {inner.name}: the result has {len(shown)} columns")
        return shown[place - 1]
    if isinstance(inner, exp.Column) and not inner.table:
        named = [column for column in relation.columns if column.name.lower() == inner.name.lower()]
        if named:
            return named[0]
    if select is not None:
        text = select.canonical(inner)
        for place, item in enumerate(select.node.expressions):
            if select.canonical(item.unalias()) == text and place < len(relation.columns):
                return relation.columns[place]
        if isinstance(inner, exp.Column) and select.source is None:
            column = select.scope.find(inner).column
            if column.role in ("proctime", "rowtime") and column.physical in ("", EVENT_TIME):
                return column
            same = [each for each in relation.columns if each.physical == column.physical and column.physical]
            if same:
                return same[0]
    raise planner.error(inner, "ORDER BY names what SELECT does not have", hint="Add it to SELECT.")


def _sorted(planner: Planner, node: exp.Expr, relation: Relation, columns: Sequence[tuple[Column, bool]]) -> Relation:
    """Let rows leave in the order of time; any other order needs the end of the rows."""
    first, down = columns[0]
    by_time = first.role in ("rowtime", "proctime", "window_time") or first.physical == EVENT_TIME
    own = tuple((column.physical, down) for column, down in columns if column.physical)
    if by_time and not down and not relation.updating:
        if first.role == "proctime":
            return relation
        (name,) = fresh_names(["row_number"], relation.stream.schema)
        numbered = {name: frames.row_number()}
        stream = table_steps.over(keyed(relation.stream, ()), numbered, frames.Frame("rows", None))
        return replace(relation, stream=unkeyed(stream), order=own)
    if planner.bounded:
        return replace(relation, order=own)
    raise planner.error(
        node.args["order"],
        "ORDER BY of a stream, which has no end",
        hint="Order by its event time, ascending; or add LIMIT, which keeps the first rows up to date.",
    )
