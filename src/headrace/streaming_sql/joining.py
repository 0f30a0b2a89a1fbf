"""FROM with joins: which kind of join a condition asks for, and the steps that it becomes.

- equal bounds of windows on both sides: a window join;
- bounds of the time of one side around the time of the other: an interval join;
- FOR SYSTEM_TIME AS OF an event time: a temporal join; as of the time of arrival: a join with the newest rows;
- everything else: a join of tables, which keeps both sides and takes results back when they change.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import polars as pl
from sqlglot import exp

from headrace.engine.operator import EVENT_TIME, WINDOW_END, WINDOW_START
from headrace.joins import kinds
from headrace.streaming_sql import from_clause, window_tables
from headrace.streaming_sql.expressions import Binder
from headrace.streaming_sql.functions import ArgumentError
from headrace.streaming_sql.operators import comparable
from headrace.streaming_sql.relation import Column, Relation, fresh_names
from headrace.streaming_sql.scope import Scope
from headrace.streaming_sql.steps import ALL_ROWS, added, needs_text, projected, text_key, unkeyed
from headrace.streaming_sql.time_bounds import Bounds, time_bounds
from headrace.streaming_sql.values import (
    Bound,
    coerced,
    common,
    every,
)
from headrace.tables import Table
from headrace.tables.upserts import IS_DELETE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.stream import Stream
    from headrace.streaming_sql.query import Planner

_WINDOW_ROLES: Final = ("window_start", "window_end")


def plan_from(
    planner: Planner, node: exp.Select, conditions: list[exp.Expr], outer: Scope | None
) -> tuple[Relation, list[exp.Expr]]:
    """Plan FROM; returns the rows, and the conditions of WHERE that are still to be applied."""
    clause = node.args.get("from_") or node.args.get("from")
    if clause is None:
        one = from_clause.constant_rows(pl.DataFrame({"row": [1]}))
        return Relation(one, (Column("row", "row", pl.Int64(), shown=False),)), conditions
    first = clause.this
    relation = from_clause.plan_source(planner, first, outer)
    joins = [*(first.args.get("joins") or []), *(node.args.get("joins") or [])]
    laterals = node.args.get("laterals") or []
    rest = list(conditions)
    for place, join in enumerate(joins):
        later = joins[place + 1 :]
        relation, rest = _joined(planner, relation, join, rest, later, outer)
    for lateral in laterals:
        relation = unnested(planner, relation, lateral, "INNER")
    return relation, rest


def _joined(
    planner: Planner,
    left: Relation,
    join: exp.Join,
    rest: list[exp.Expr],
    later: Sequence[exp.Join],
    outer: Scope | None,
) -> tuple[Relation, list[exp.Expr]]:
    how = _how(planner, join)
    item = join.this
    if isinstance(item, exp.Unnest | exp.Lateral):
        return unnested(planner, left, item, "LEFT" if how == "left" else "INNER", join), rest
    from headrace.streaming_sql.selects import conjuncts, materialized

    left = materialized(planner, left, join) if left.ranking is not None else left
    right = from_clause.plan_source(planner, item, outer)
    right = materialized(planner, right, join) if right.ranking is not None else right
    scope = Scope(planner.text, [*left.columns, *right.columns], outer)
    on = join.args.get("on")
    wanted = conjuncts(on) if on is not None else []
    using = join.args.get("using") or []
    wanted += [_using(planner, left, right, each) for each in using]
    if join.method == "NATURAL":
        raise planner.error(join, "NATURAL JOIN is not supported", hint="Write ON or USING.")
    if how == "inner" and not any(_how(planner, each) in ("right", "full") for each in later):
        taken = [each for each in rest if _is_about(each, scope, left, right)]
        wanted += taken
        rest = [each for each in rest if not any(each is other for other in taken)]
    version = item.args.get("version")
    result = join_relations(planner, join, left, right, wanted, how, version=version, outer=outer)
    if using:
        result = _merged(result, left, [each.name for each in using], how)
    return result, rest


def _how(planner: Planner, join: exp.Join) -> str:
    side, kind = (join.side or "").upper(), (join.kind or "").upper()
    if kind in ("SEMI", "ANTI"):
        return kind.lower()
    if (join.method or "").upper() == "ASOF":
        raise planner.error(join, "ASOF JOIN is not supported",
                            hint="Write JOIN t FOR SYSTEM_TIME AS OF x.ts.")  # fmt: skip
    return {"": "inner", "LEFT": "left", "RIGHT": "right", "FULL": "full"}[side]


def _using(planner: Planner, left: Relation, right: Relation, name: exp.Expr) -> exp.Expr:
    parts = []
    for relation in (left, right):
        found = [column for column in relation.columns if column.name.lower() == name.name.lower()]
        if not found:
            raise planner.error(name, f"USING ({name.name}): a side has no such column")
        parts.append(exp.column(found[0].name, table=found[0].table or None, quoted=True))
    return exp.EQ(this=parts[0], expression=parts[1])


def _merged(result: Relation, left: Relation, names: Sequence[str], how: str) -> Relation:
    """Let the columns of USING be there once."""
    lowered = {name.lower() for name in names}
    width = len(left.columns)
    columns = []
    for place, column in enumerate(result.columns):
        is_second = place >= width and column.name.lower() in lowered
        hidden = is_second if how != "right" else (place < width and column.name.lower() in lowered)
        columns.append(replace(column, name=f"{column.name} of the other side", shown=False) if hidden else column)
    return replace(result, columns=tuple(columns))


def _is_about(node: exp.Expr, scope: Scope, left: Relation, right: Relation) -> bool:
    """Tell whether a condition of WHERE is about these two sides, and nothing else."""
    if any(True for _ in node.find_all(exp.Query, exp.Exists)):
        return False
    columns = list(node.find_all(exp.Column))
    if not columns or any(not scope.knows(column) for column in columns):
        return False
    names = {scope.find(column).column for column in columns}
    if any(column.role == "rank" for column in names):
        return False
    return bool(names & set(right.columns)) and bool(names & set(left.columns))


@dataclass
class _Parts:
    """A condition taken apart.

    Args:
        keys: Pairs of equal values, and whether null equals null.
        windows: The roles of window bounds that are compared.
        bounds: Bounds of the right time minus the left time.
        others: What is neither.
    """

    keys: list[tuple[exp.Expr, exp.Expr, bool]] = field(default_factory=list)
    windows: set[str] = field(default_factory=set)
    bounds: Bounds = field(default_factory=Bounds)
    timed: list[exp.Expr] = field(default_factory=list)
    others: list[exp.Expr] = field(default_factory=list)


def join_relations(
    planner: Planner,
    node: exp.Expr,
    left: Relation,
    right: Relation,
    conditions: Sequence[exp.Expr],
    how: str,
    *,
    version: exp.Expr | None = None,
    outer: Scope | None = None,
) -> Relation:
    """Join two relations.

    Args:
        planner: Plans queries.
        node: Where the join stands.
        left: The left side.
        right: The right side.
        conditions: What must hold, joined by AND.
        how: "inner", "left", "right", "full", "semi" or "anti".
        version: The FOR SYSTEM_TIME of the right side.
        outer: The columns of the query around.
    """
    scopes = Scope.of(planner.text, left), Scope.of(planner.text, right)
    parts = _parts(left, right, conditions, *scopes)
    is_window = version is None and parts.windows == set(_WINDOW_ROLES)
    if not is_window and parts.windows:
        parts = _parts(left, right, conditions, *scopes, windows=False)
    left, right = window_tables.expanded(planner, left), window_tables.expanded(planner, right)
    if is_window and (left.updating or right.updating):
        is_window = False
        parts = _parts(left, right, conditions, *scopes, windows=False)
    sides = _Sides(planner, left, right, outer)
    if version is not None:
        return _as_of(planner, node, sides, parts, how, version)
    if is_window:
        return _window_join(sides, parts, how)
    appends = not left.updating and not right.updating
    if parts.bounds.closed and appends:
        return _interval_join(sides, parts, how)
    return _table_join(planner, node, sides, parts, how)


def _parts(
    left: Relation,
    right: Relation,
    conditions: Sequence[exp.Expr],
    left_scope: Scope,
    right_scope: Scope,
    *,
    windows: bool = True,
) -> _Parts:
    parts = _Parts()
    for condition in conditions:
        pair = _equal(condition)
        sided = None if pair is None else _sided(pair[0], pair[1], left_scope, right_scope)
        if pair is not None and sided is not None:
            role = _window_role(sided, left_scope, right_scope) if windows else ""
            if role:
                parts.windows.add(role)
            else:
                parts.keys.append((*sided, pair[2]))
            continue
        found = time_bounds(condition, left_scope, right_scope)
        if found is not None:
            parts.bounds = parts.bounds.within(found)
            parts.timed.append(condition)
            continue
        parts.others.append(condition)
    del left, right
    return parts


def _equal(node: exp.Expr) -> tuple[exp.Expr, exp.Expr, bool] | None:
    """Read an equality: its sides, and whether null equals null."""
    if isinstance(node, exp.EQ):
        return node.this, node.expression, False
    if isinstance(node, exp.NullSafeEQ):
        return node.this, node.expression, True
    if isinstance(node, exp.Or):
        one, other = (each.unnest() for each in (node.this, node.expression))
        for nulls, equal in ((one, other), (other, one)):
            if isinstance(nulls, exp.And) and isinstance(equal, exp.EQ) and _both_null(nulls, equal):
                return equal.this, equal.expression, True
    return None


def _both_null(nulls: exp.And, equal: exp.EQ) -> bool:
    """Tell whether it is `a IS NULL AND b IS NULL` for the `a = b`."""
    tested = []
    for each in (nulls.this.unnest(), nulls.expression.unnest()):
        if not isinstance(each, exp.Is) or not isinstance(each.expression, exp.Null):
            return False
        tested.append(each.this)
    sides = [equal.this, equal.expression]
    return tested in (sides, sides[::-1])


def _sided(one: exp.Expr, other: exp.Expr, left: Scope, right: Scope) -> tuple[exp.Expr, exp.Expr] | None:
    """Tell which of two expressions is of the left side and which of the right; None if it is not one of each."""
    if any(True for each in (one, other) for _ in each.find_all(exp.Query)):
        return None
    sides = [_side(each, left, right) for each in (one, other)]
    if sides == ["left", "right"]:
        return one, other
    return (other, one) if sides == ["right", "left"] else None


def _side(node: exp.Expr, left: Scope, right: Scope) -> str:
    found = set()
    for column in node.find_all(exp.Column):
        knows_left, knows_right = _knows(left, column), _knows(right, column)
        if knows_left == knows_right:
            return "both"
        found.add("left" if knows_left else "right")
    return found.pop() if len(found) == 1 else "both"


def _knows(scope: Scope, column: exp.Column) -> bool:
    return scope.knows(column)


def _window_role(pair: tuple[exp.Expr, exp.Expr], left: Scope, right: Scope) -> str:
    roles = []
    for node, scope in zip(pair, (left, right), strict=True):
        if not isinstance(node, exp.Column):
            return ""
        roles.append(scope.find(node).column.role)
    return roles[0] if roles[0] == roles[1] and roles[0] in _WINDOW_ROLES else ""


class _Sides:
    """Two sides with columns of different names, and the conditions on pairs of their rows."""

    def __init__(self, planner: Planner, left: Relation, right: Relation, outer: Scope | None) -> None:
        self.planner = planner
        self.outer = outer
        self.left = self._named(left, [EVENT_TIME, WINDOW_START, WINDOW_END])
        self.right = self._named(right, [*self.left.stream.schema, WINDOW_START, WINDOW_END])
        self.pairs: list[tuple[str, str]] = []
        self.null_safe = False
        self._conditions: list[pl.Expr] = []

    def _named(self, relation: Relation, taken: Sequence[str]) -> Relation:
        own = list(dict.fromkeys(column.physical for column in relation.columns if column.physical))
        wanted = ["time" if name == EVENT_TIME else name for name in own]
        new = dict(zip(own, fresh_names(wanted, taken), strict=True))
        stream = projected(relation.stream, {name: pl.col(old) for old, name in new.items()})
        columns = tuple(replace(column, physical=new.get(column.physical, "")) for column in relation.columns)
        return replace(relation, stream=stream, columns=columns)

    @property
    def scope(self) -> Scope:
        """The columns of both sides."""
        return Scope(self.planner.text, [*self.left.columns, *self.right.columns], self.outer)

    def bind(self, node: exp.Expr, side: str) -> Bound:
        """Bind an expression over the columns of one side."""
        relation = self.left if side == "left" else self.right
        scope = Scope.of(self.planner.text, relation)
        return Binder(self.planner.text, scope.resolve, functions=self.planner.functions).bind(node)

    def add_keys(self, keys: Sequence[tuple[exp.Expr, exp.Expr, bool]]) -> None:
        """Compare values of both sides; without any, all rows meet."""
        self.null_safe = any(safe for _, _, safe in keys)
        for place, (one, other, safe) in enumerate(keys):
            bound = self.bind(one, "left"), self.bind(other, "right")
            merged = common(each.dtype for each in bound)
            if merged is None:
                try:
                    comparable(*bound, "=")
                except ArgumentError as problem:
                    raise self.planner.error(one, problem.message, hint=problem.hint) from None
                self._conditions.append(self._condition(exp.EQ(this=one, expression=other)))
                continue
            names = []
            for side, each in zip(("left", "right"), bound, strict=True):
                value = coerced(each, merged) if needs_text(merged) and not merged.is_float() else each.expr
                names.append(self._key_column(side, f"key_{place}", text_key(value, merged)))
            self.pairs.append((names[0], names[1]))
            if self.null_safe and not safe:
                self._conditions.append(pl.col(names[0]).is_not_null())
        if not self.pairs:
            names = [self._key_column(side, ALL_ROWS, pl.lit(0, dtype=pl.Int8)) for side in ("left", "right")]
            self.pairs.append((names[0], names[1]))

    def _key_column(self, side: str, wanted: str, value: pl.Expr) -> str:
        relation = self.left if side == "left" else self.right
        other = self.right if side == "left" else self.left
        own = value.meta.root_names() if value.meta.is_column() else []
        if own and own[0] in relation.stream.schema:
            return own[0]
        (name,) = fresh_names([wanted], [*relation.stream.schema, *other.stream.schema])
        stream, named = added(relation.stream, {name: value})
        changed = replace(relation, stream=stream)
        if side == "left":
            self.left = changed
        else:
            self.right = changed
        return named[name]

    def where(self, conditions: Sequence[exp.Expr]) -> pl.Expr | None:
        """Bind what must hold beside the keys; None if nothing must."""
        predicates = [*self._conditions, *(self._condition(each) for each in conditions)]
        if not predicates:
            return None
        return every(predicates)

    def _condition(self, node: exp.Expr) -> pl.Expr:
        return Binder(self.planner.text, self.scope.resolve, functions=self.planner.functions).condition(node)

    def options(self, parts: _Parts, how: str, *, timed: bool = True) -> dict[str, Any]:
        """Give what every kind of join is told."""
        self.add_keys(parts.keys)
        others = [*parts.others, *(parts.timed if timed else [])]
        return {
            "on": list(self.pairs),
            "how": how,
            "where": self.where(others),
            "null_safe": self.null_safe,
            "suffix": "",
        }

    def result(self, stream: Stream, how: str, *, keeps_time: bool = False) -> Relation:
        """Give the joined rows their columns."""
        columns: list[Column] = list(self.left.columns)
        if how not in ("semi", "anti"):
            columns += self.right.columns
        kept = []
        for place, column in enumerate(columns):
            is_left = place < len(self.left.columns)
            role = column.role
            if role == "rowtime" and not (keeps_time and is_left):
                role = ""
            kept.append(replace(column, role=role))
        return Relation(unkeyed(stream), tuple(kept))


def _window_join(sides: _Sides, parts: _Parts, how: str) -> Relation:
    """Join rows of the same window; both bounds of it stay columns of both sides."""
    from headrace.windows.assigners import SameWindow

    for which in ("left", "right"):
        relation = getattr(sides, which)
        start, end = (relation.role(role) for role in _WINDOW_ROLES)
        stream = unkeyed(relation.stream).with_columns(
            **{WINDOW_START: pl.col(start.physical), WINDOW_END: pl.col(end.physical)}
        )
        setattr(sides, which, replace(relation, stream=stream))
    options = sides.options(parts, how)
    stream = kinds.window_join(sides.left.stream, sides.right.stream, window=SameWindow(), grace=0, **options)
    return sides.result(stream, how)


def _interval_join(sides: _Sides, parts: _Parts, how: str) -> Relation:
    options = sides.options(parts, how, timed=False)
    lower, upper = parts.bounds.lower, parts.bounds.upper
    assert lower is not None  # noqa: S101 - the bounds are closed
    assert upper is not None  # noqa: S101
    if lower > upper:
        lower = upper = 0
        options["where"] = pl.lit(value=False)
    stream = kinds.interval_join(
        sides.left.stream, sides.right.stream, within=(lower, upper), grace=0, keep_for=None, **options
    )
    return sides.result(stream, how)


def _table_join(planner: Planner, node: exp.Expr, sides: _Sides, parts: _Parts, how: str) -> Relation:
    sources = [side.source.kind if side.source is not None else "" for side in (sides.left, sides.right)]
    if not all(kind in ("table", "versioned", "lookup") for kind in sources):
        planner.warn(
            node,
            "this join keeps both sides for ever; bound the times of both (a.ts BETWEEN b.ts - INTERVAL '1' HOUR AND "
            "b.ts), join windows, or use FOR SYSTEM_TIME AS OF",
        )
    options = sides.options(parts, how)
    stream = kinds.table_join(sides.left.stream, sides.right.stream, **options)
    return sides.result(stream, how)


def _as_of(planner: Planner, node: exp.Expr, sides: _Sides, parts: _Parts, how: str, version: exp.Expr) -> Relation:
    moment = version.expression if isinstance(version, exp.Version) else None
    if not isinstance(moment, exp.Column):
        raise planner.error(node, "FOR SYSTEM_TIME AS OF takes the time of the left side")
    column = Scope.of(planner.text, sides.left, sides.outer).find(moment).column
    if how not in ("inner", "left"):
        raise planner.error(node, f"a {how} join FOR SYSTEM_TIME AS OF", hint="Use INNER or LEFT.")
    if column.role == "proctime":
        options = sides.options(parts, how)
        stream = kinds.latest_join(sides.left.stream, sides.right.stream, **options)
        return sides.result(stream, how, keeps_time=True)
    if column.role not in ("rowtime", "window_time"):
        raise planner.error(moment, f"{column.name!r} is not the time of the left rows",
                            hint="Use its event time, or its time of arrival.")  # fmt: skip
    options = sides.options(parts, how)
    table = _versions(planner, node, sides)
    stream = kinds.temporal_join(sides.left.stream, table, grace=0, **options)
    return sides.result(stream, how, keeps_time=True)


def _versions(planner: Planner, node: exp.Expr, sides: _Sides) -> Table:
    """Make the right side a table of versions, with the names that its columns have here."""
    right = sides.right
    source = right.source.table if right.source is not None else None
    if source is None:
        raise planner.error(
            node,
            "FOR SYSTEM_TIME AS OF an event time needs a table with a PRIMARY KEY on the right",
            hint="Make it one: CREATE TABLE ... PRIMARY KEY (...) NOT ENFORCED, or as_table(..., versioned=True).",
        )
    compared = dict(sides.pairs)
    made: dict[str, pl.Expr] = {}
    names = {column.name: column.physical for column in right.columns if column.physical}
    for name in source.schema:
        if name in names:
            made[names[name]] = pl.col(name)
    computed = [name for name in compared.values() if name not in made]
    if computed:
        raise planner.error(node, "the key of the table is compared as it is", hint="Compute on the left side only.")
    marks = {IS_DELETE: pl.col(IS_DELETE)} if IS_DELETE in source.source.schema else {}
    stream = projected(source.source, {**made, **marks})
    return Table(stream, tuple(names[key] for key in source.key), versioned=True, retention=source.retention)


def unnested(planner: Planner, relation: Relation, node: exp.Expr, how: str, join: exp.Expr | None = None) -> Relation:
    """Give each element of an array or a map a row."""
    from headrace.streaming_sql.selects import materialized

    relation = materialized(planner, relation, node)
    alias = node.args.get("alias")
    inner = node.this if isinstance(node, exp.Lateral) else node
    if isinstance(inner, exp.Subquery) and isinstance(inner.this, exp.Select):
        raise planner.error(node, "LATERAL with a query is not supported",
                            hint="Rank with ROW_NUMBER, or join and group.")  # fmt: skip
    if isinstance(inner, exp.Anonymous) and inner.name.upper() in ("UNNEST", "EXPLODE"):
        inner = exp.Unnest(expressions=inner.expressions)
    if not isinstance(inner, exp.Unnest) or len(inner.expressions) != 1:
        raise planner.error(node, "only UNNEST(array) can stand here")
    scope = Scope.of(planner.text, relation)
    bound = Binder(planner.text, scope.resolve, functions=planner.functions).bind(inner.expressions[0])
    if not isinstance(bound.dtype, pl.List):
        raise planner.error(node, "UNNEST takes an array or a map")
    from headrace.streaming_sql.values import instance

    dtype = instance(bound.dtype.inner)
    names = [column.name for column in alias.columns] if alias is not None else []
    offset = inner.args.get("offset")
    if isinstance(offset, exp.Identifier) and names:
        names.append(offset.name)
    stream = unkeyed(relation.stream)
    (item, place) = fresh_names(["item", "place"], stream.schema)
    items = bound.expr
    if how == "LEFT":
        items = pl.when(items.list.len() > 0).then(items).otherwise(pl.lit([None], dtype=bound.dtype))
    fields = {each.name: each.dtype for each in dtype.fields} if isinstance(dtype, pl.Struct) else {}
    ordinality = bool(inner.args.get("offset") or (isinstance(node, exp.Lateral) and node.args.get("ordinality")))
    if ordinality:
        numbered = items.list.eval(
            pl.struct(pl.element().alias("item"), pl.int_range(1, pl.len() + 1, dtype=pl.Int64).alias("place"))
        )
        stream = stream.flat_map(item, numbered).with_columns(
            **{place: pl.col(item).struct.field("place"), item: pl.col(item).struct.field("item")}
        )
    else:
        stream = stream.flat_map(item, items)
    made: dict[str, pl.Expr] = {}
    columns: list[Column] = []
    table = (alias.name if alias is not None else "") or ""
    if fields:
        for own, (name, kind) in zip(fresh_names(list(fields), stream.schema), fields.items(), strict=True):
            made[own] = pl.col(item).struct.field(name)
            columns.append(Column(name, own, instance(kind), table))
        stream = stream.with_columns(**made)
    else:
        columns.append(Column("EXPR$0", item, dtype, table))
    if ordinality:
        columns.append(Column("ORDINALITY", place, pl.Int64(), table))
    for number, name in enumerate(names):
        if number >= len(columns):
            raise planner.error(node, f"{len(names)} names for {len(columns)} columns")
        columns[number] = replace(columns[number], name=name)
    on = join.args.get("on") if join is not None else None
    if on is not None and not (isinstance(on, exp.Boolean) and on.this):
        raise planner.error(on, "UNNEST with a condition", hint="Write ON TRUE, and filter in WHERE.")
    return Relation(stream, (*relation.columns, *columns))
