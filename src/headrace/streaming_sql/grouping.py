"""GROUP BY: in windows, over all rows, and in grouping sets."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import polars as pl
from sqlglot import exp

from headrace.engine.operator import EVENT_TIME, WINDOW_END, WINDOW_START
from headrace.streaming_sql import window_tables
from headrace.streaming_sql.aggregates import AGGREGATES, folded
from headrace.streaming_sql.emission import Emission, emission_of, refuse_emission
from headrace.streaming_sql.functions import ArgumentError
from headrace.streaming_sql.relation import Column, LateSource, Relation, fresh_names
from headrace.streaming_sql.row_lists import RowList
from headrace.streaming_sql.steps import Keys, added, projected, unkeyed
from headrace.streaming_sql.values import BIGINT, Bound
from headrace.tables import steps as table_steps
from headrace.windows.aggregates import count
from headrace.windows.assigners import SameWindow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.stream import Stream
    from headrace.streaming_sql.query import Planner
    from headrace.streaming_sql.selects import Select
    from headrace.windows.aggregates import Aggregate

#: CUBE of so many parts has as many sets as there may be.
_MOST_PARTS: Final = 6
_LEGACY: Final = ("TUMBLE", "HOP", "SESSION")
_READERS: Final = {"START": "window_start", "END": "window_end", "ROWTIME": "window_time", "PROCTIME": "window_time"}
_INSTANT: Final = pl.Datetime("us", "UTC")


def is_aggregate(node: exp.Expr) -> bool:
    """Tell whether an expression is the call of an aggregate function, and not OVER a window."""
    if not isinstance(node, exp.Anonymous) or node.name.upper() not in AGGREGATES:
        return False
    parent = node.parent
    while isinstance(parent, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
        parent = parent.parent
    return not (isinstance(parent, exp.Window) and node.arg_key == "this")


def calls_of(node: exp.Expr) -> list[exp.Expr]:
    """List the aggregate calls in an expression, with their FILTER, those of subqueries left out."""
    walked = node.walk(prune=lambda inner: isinstance(inner, exp.Query) and inner is not node)
    return [each.parent if isinstance(each.parent, exp.Filter) else each for each in walked if is_aggregate(each)]


def is_grouped(node: exp.Select) -> bool:
    """Tell whether a SELECT has groups."""
    if node.args.get("group") or node.args.get("having"):
        return True
    return any(calls_of(item) for item in node.expressions)


@dataclass
class _Plan:
    """What is grouped, by what, into what."""

    select: Select
    relation: Relation
    #: The items of GROUP BY that are no windows, by their canonical text.
    items: dict[str, exp.Expr] = field(default_factory=dict)
    #: The canonical texts of items that are a bound of the window, with its role.
    windows: dict[str, str] = field(default_factory=dict)
    sets: list[tuple[str, ...]] = field(default_factory=list)


def grouped(select: Select) -> Select:
    """Group the rows of a SELECT; what follows names groups and aggregates only."""
    planner, node = select.planner, select.node
    plan = _Plan(select, select.relation)
    _read_items(plan, node.args.get("group"))
    plan.select = select.with_relation(plan.relation)
    conditions = [node.args["having"].this] if node.args.get("having") else []
    wanted: list[exp.Expr] = [*node.expressions, *conditions]
    if node.args.get("order"):
        wanted += node.args["order"].expressions
    calls = _calls(plan, wanted)
    result, computed = _grouped(plan, calls)
    from headrace.streaming_sql.selects import Select as Behind

    behind = Behind(planner, node, result, select.outer, computed=computed, source=plan.relation)
    if conditions:
        from headrace.streaming_sql import subqueries

        stream, conditions = subqueries.scalars(behind, conditions)
        behind = stream
        predicate = behind.binder.condition(conditions[0])
        filtered = behind.relation.with_stream(unkeyed(behind.relation.stream).filter(predicate))
        behind = behind.with_relation(filtered)
    return behind


# What is grouped by


def _read_items(plan: _Plan, group: exp.Group | None) -> None:
    if group is None:
        plan.sets = [()]
        return
    listed = [*group.expressions]
    for clause in ("cube", "rollup", "grouping_sets"):
        listed += group.args.get(clause) or []
    plain = [each for each in listed if not isinstance(each, exp.Cube | exp.Rollup | exp.GroupingSets)]
    names = [_add_item(plan, _item(plan, each)) for each in plain]
    sets: list[list[tuple[str, ...]]] = [[tuple(name for name in names if name)]]
    sets += [_sets(plan, each) for each in listed if not any(each is other for other in plain)]
    plan.sets = [tuple(dict.fromkeys(itertools.chain(*chosen))) for chosen in itertools.product(*sets)]
    if len(plan.sets) > 64:
        raise plan.select.planner.error(group, f"{len(plan.sets)} grouping sets", hint="64 at most.")


def _sets(plan: _Plan, node: exp.Expr) -> list[tuple[str, ...]]:
    """List the grouping sets of CUBE, ROLLUP, GROUPING SETS, or one of its parts."""
    if isinstance(node, exp.GroupingSets):
        return [chosen for each in node.expressions for chosen in _sets(plan, each)]
    if not isinstance(node, exp.Cube | exp.Rollup):
        return [_names(plan, node)]
    parts = [_names(plan, each) for each in node.expressions]
    if len(parts) > _MOST_PARTS:
        raise plan.select.planner.error(node, f"{type(node).__name__.upper()} of more than {_MOST_PARTS} parts")
    sizes = range(len(parts), -1, -1)
    if isinstance(node, exp.Rollup):
        return [tuple(itertools.chain(*parts[:size])) for size in sizes]
    return [tuple(itertools.chain(*chosen)) for size in sizes for chosen in itertools.combinations(parts, size)]


def _names(plan: _Plan, node: exp.Expr) -> tuple[str, ...]:
    while isinstance(node, exp.Paren):
        node = node.this
    parts = node.expressions if isinstance(node, exp.Tuple) else [node]
    return tuple(name for part in parts if (name := _add_item(plan, _item(plan, part))))


def _item(plan: _Plan, node: exp.Expr) -> exp.Expr:
    """Read an item: a place in SELECT, an alias of SELECT where there is no such column, or an expression."""
    expressions = plan.select.node.expressions
    if isinstance(node, exp.Literal) and not node.is_string:
        place = int(node.name) if node.name.isdigit() else 0
        if not 1 <= place <= len(expressions):
            raise plan.select.planner.error(node, f"GROUP BY {node.name}: SELECT has {len(expressions)} columns")
        return expressions[place - 1].unalias()  # type: ignore[no-any-return]
    if isinstance(node, exp.Column) and not node.table and not plan.select.scope.knows(node):
        named = [each for each in expressions if each.alias and each.alias.lower() == node.name.lower()]
        if named:
            return named[0].unalias()  # type: ignore[no-any-return]
    return node


def _add_item(plan: _Plan, node: exp.Expr) -> str:
    """Add an item; returns its canonical text, or nothing for a bound of the window."""
    legacy = _legacy_window(plan, node)
    if legacy:
        return ""
    text = plan.select.canonical(node)
    if isinstance(node, exp.Column):
        column = plan.select.scope.find(node).column
        if column.role in ("window_start", "window_end", "window_time") and plan.relation.windowed:
            plan.windows[text] = column.role
            return ""
    plan.items[text] = node
    return text


def _legacy_window(plan: _Plan, node: exp.Expr) -> bool:
    """Read `TUMBLE(ts, INTERVAL ...)` in GROUP BY."""
    if not isinstance(node, exp.Anonymous) or node.name.upper() not in _LEGACY:
        return False
    planner, relation = plan.select.planner, plan.relation
    if relation.assigner is not None:
        raise planner.error(node, "rows are in windows already")
    kind = node.name.upper()
    if len(node.expressions) < 2:
        raise planner.error(node, f"{kind} needs a time and a length")
    time, *sizes = node.expressions
    timed = window_tables.retimed(planner, relation, time, plan.select.scope, kind)
    if timed.updating:
        raise planner.error(node, f"{kind} of rows that may be taken back", hint="Group by FLOOR(ts TO MINUTE).")
    assigner = window_tables.assigner_of(planner, node, kind, sizes, {})
    plan.relation = window_tables.windowed(timed, assigner)
    arguments = ", ".join(plan.select.canonical(each) for each in node.expressions)
    for end, role in _READERS.items():
        plan.windows[f"{kind}_{end}({arguments})"] = role
    return True


# Aggregates


@dataclass(frozen=True)
class _Call:
    """An aggregate call: our aggregates with their columns, and the value."""

    parts: dict[str, Aggregate]
    value: pl.Expr
    dtype: pl.DataType


def _calls(plan: _Plan, wanted: Sequence[exp.Expr]) -> dict[str, _Call]:
    """Bind the aggregate calls of all expressions, each once."""
    found: dict[str, _Call] = {}
    known: dict[str, str] = {}
    for item in wanted:
        for call in calls_of(item):
            text = plan.select.canonical(call)
            if text not in found:
                found[text] = _bound_call(plan, call, known)
    return found


def _bound_call(plan: _Plan, node: exp.Expr, known: dict[str, str]) -> _Call:
    select = plan.select
    call = node.this if isinstance(node, exp.Filter) else node
    inner = [each for argument in call.expressions for each in calls_of(argument)]
    if inner:
        raise select.planner.error(
            inner[0], "an aggregate of an aggregate", hint="Compute the inner one in a query in FROM."
        )
    if any(True for _ in call.find_all(exp.Query)):
        raise select.planner.error(call, "a query in an aggregate", hint="Join it in FROM.")
    binder = select.binder
    where = binder.condition(node.expression.this) if isinstance(node, exp.Filter) else None
    arguments = list(call.expressions)
    is_distinct = len(arguments) >= 1 and isinstance(arguments[0], exp.Distinct)
    if is_distinct:
        arguments = [*arguments[0].expressions, *arguments[1:]]
    arguments = [argument.this if isinstance(argument, exp.Order) else argument for argument in arguments]
    if len(arguments) == 1 and isinstance(arguments[0], exp.Star):
        arguments = []
    bound = [binder.bind(argument) for argument in arguments]
    try:
        made = folded(call.name.upper(), bound, is_distinct=is_distinct, where=where)
    except ArgumentError as problem:
        raise select.planner.error(call, problem.message, hint=problem.hint) from None
    columns: dict[str, str] = {}
    parts: dict[str, Aggregate] = {}
    for end, aggregate in made.parts.items():
        told = aggregate.describe()
        if told not in known:
            taken = [*select.relation.stream.schema, *known.values()]
            known[told] = fresh_names([f"{call.name.lower()}_{end}"], taken)[0]
        columns[end] = known[told]
        parts[known[told]] = aggregate
    return _Call(parts, made.read({end: pl.col(name) for end, name in columns.items()}), made.dtype)


# The groups


def _grouped(plan: _Plan, calls: dict[str, _Call]) -> tuple[Relation, dict[str, Column]]:
    select, relation = plan.select, plan.relation
    binder = select.binder
    names = {text: f"key_{place}" if not isinstance(node, exp.Column) else node.name
             for place, (text, node) in enumerate(plan.items.items())}  # fmt: skip
    bound = {text: binder.bind(node) for text, node in plan.items.items()}
    stream = relation.stream
    is_set = len(plan.sets) > 1
    if is_set:
        stream, bound, number = _spread(stream, plan.sets, bound)
        names[number] = "grouping_set"
        bound[number] = Bound(pl.col(number), BIGINT)
    aggregates: dict[str, Aggregate] = {}
    for call in calls.values():
        aggregates |= call.parts
    labels = dict(zip(bound, fresh_names([names[text] for text in bound], aggregates), strict=True))
    keys = Keys(stream, {labels[text]: (value.expr, value.dtype) for text, value in bound.items()})
    late = None
    if plan.windows and relation.windowed:
        emission = emission_of(select.planner, select.node)
        folded_stream = _in_windows(plan, keys, aggregates, emission)
        if relation.assigner is not None:
            late = LateSource(relation.with_stream(keys.stream), keys.names, relation.assigner, emission.lateness)
    elif plan.windows:
        raise select.planner.error(select.node, "a window in GROUP BY needs both its start and its end")
    else:
        refuse_emission(select.planner, select.node)
        folded_stream = _of_all(plan, keys, aggregates)
    result, computed = _result(plan, folded_stream, keys, labels, bound, calls, is_set=is_set)
    return replace(result, late=None if is_set else late), computed


def _in_windows(plan: _Plan, keys: Keys, aggregates: dict[str, Aggregate], emission: Emission) -> Stream:
    relation = plan.relation
    roles = set(plan.windows.values())
    if not {"window_start", "window_end"} & roles:
        raise plan.select.planner.error(plan.select.node, "GROUP BY window_time without window_start and window_end")
    counted = aggregates or {fresh_names(["rows"], keys.stream.schema)[0]: count()}
    stream = keys.stream
    if relation.assigner is None:
        if plan.select.node.args.get("emit") is not None:
            raise plan.select.planner.error(
                plan.select.node,
                "EMIT of a second GROUP BY in the same windows",
                hint="Write it behind the query that puts the rows into windows first.",
            )
        start, end = relation.role("window_start"), relation.role("window_end")
        assert start is not None  # noqa: S101 - windowed
        assert end is not None  # noqa: S101
        stream = _named_as(stream, {WINDOW_START: start.physical, WINDOW_END: end.physical})
        assigner: Any = SameWindow()
    else:
        assigner = relation.assigner
    from headrace.streaming_sql.steps import keyed

    windows = keyed(stream, keys.names).window(
        assigner, trigger=emission.trigger, mode=emission.mode, allowed_lateness=emission.lateness
    )
    return windows.aggregate(on_error="fail", keep_for=None, **counted)


def _named_as(stream: Stream, wanted: dict[str, str]) -> Stream:
    """Give columns the names that the engine knows them by."""
    moved = {name: pl.col(own) for name, own in wanted.items() if name != own}
    return unkeyed(stream).with_columns(**moved) if moved else stream


def _of_all(plan: _Plan, keys: Keys, aggregates: dict[str, Aggregate]) -> Stream:
    planner, node = plan.select.planner, plan.select.node
    if not aggregates:
        narrowed = projected(keys.stream, {name: pl.col(name) for name in keys.names})
        return unkeyed(table_steps.distinct(without_time(narrowed)))
    if keys.columns:
        planner.warn(
            node.args.get("group") or node,
            "GROUP BY without a window keeps each group for ever; group in a window to bound it",
        )
    return unkeyed(table_steps.aggregate(keys.keyed(), aggregates))


def without_time(stream: Stream) -> Stream:
    """Give all rows one time, so that equal rows are equal whenever they came."""
    return unkeyed(stream).with_columns(**{EVENT_TIME: pl.lit(0).cast(_INSTANT)})


def _result(
    plan: _Plan,
    stream: Stream,
    keys: Keys,
    labels: dict[str, str],
    bound: dict[str, Bound],
    calls: dict[str, _Call],
    *,
    is_set: bool,
) -> tuple[Relation, dict[str, Column]]:
    """Read keys and aggregates out of what was folded."""
    made: dict[str, pl.Expr] = {}
    columns: list[Column] = []
    computed: dict[str, Column] = {}
    for text, label in labels.items():
        made[label] = keys.value(label)
        node = plan.items.get(text)
        name = node.name if isinstance(node, exp.Column) else ""
        column = Column(name, label, bound[text].dtype)
        columns.append(column)
        computed[text] = column
    window_names = fresh_names(["window_start", "window_end", "window_time"], made)
    if plan.windows:
        last = pl.lit(window_tables._LAST)  # noqa: SLF001
        bounds = [pl.col(WINDOW_START), pl.col(WINDOW_END), pl.col(WINDOW_END) - last]
        for role, name, value in zip(("window_start", "window_end", "window_time"), window_names, bounds, strict=True):
            made[name] = value
            column = Column(role, name, _INSTANT, role=role, shown=role in plan.windows.values())  # type: ignore[arg-type]
            columns.append(column)
            for text, own in plan.windows.items():
                if own == role:
                    computed[text] = column
    for number, (text, call) in enumerate(calls.items()):
        (name,) = fresh_names([f"value_{number}"], made)
        made[name] = call.value
        column = Column("", name, call.dtype)
        columns.append(column)
        computed[text] = column
    if is_set:
        _grouping_calls(plan, labels, computed, columns, made)
    result = projected(stream, made)
    typed = {column.physical: replace(column, dtype=result.schema[column.physical]) for column in columns}
    return (
        Relation(result, tuple(typed[column.physical] for column in columns)),
        {text: typed[column.physical] for text, column in computed.items()},
    )


# Grouping sets


def _spread(
    stream: Stream, sets: Sequence[tuple[str, ...]], bound: dict[str, Bound]
) -> tuple[Stream, dict[str, Bound], str]:
    """Repeat each row once per grouping set, with null for the keys that are not in it."""
    (number,) = fresh_names(["grouping_set"], stream.schema)
    stream, named = added(stream, {f"key_{place}": value.expr for place, value in enumerate(bound.values())})
    repeated = unkeyed(stream).flat_map(number, pl.lit(list(range(len(sets))), dtype=pl.List(pl.Int64)))
    values: dict[str, Bound] = {}
    for (text, value), own in zip(bound.items(), named.values(), strict=True):
        within = [place for place, chosen in enumerate(sets) if text in chosen]
        values[text] = Bound(pl.when(pl.col(number).is_in(within)).then(pl.col(own)), value.dtype)
    return repeated, values, number


def _grouping_calls(
    plan: _Plan, labels: dict[str, str], computed: dict[str, Column], columns: list[Column], made: dict[str, pl.Expr]
) -> None:
    """Bind GROUPING(a, ...): 1 where a is not in the grouping set of the row."""
    number = next(label for text, label in labels.items() if text not in plan.items)
    found = [each for item in plan.select.node.expressions for each in item.find_all(exp.Anonymous)
             if each.name.upper() in ("GROUPING", "GROUPING_ID")]  # fmt: skip
    own = made[number]
    for call in found:
        total: pl.Expr = pl.lit(0, dtype=BIGINT)
        for argument in call.expressions:
            text = plan.select.canonical(argument)
            within = [place for place, chosen in enumerate(plan.sets) if text in chosen]
            total = total * 2 + (~own.is_in(within)).cast(BIGINT)
        (name,) = fresh_names(["grouping"], made)
        made[name] = total
        column = Column("", name, BIGINT)
        columns.append(column)
        computed[plan.select.canonical(call)] = column


# Rows of sessions, and distinct rows


def session_rows(planner: Planner, relation: Relation) -> Relation:
    """Give each row the session that it belongs to, when the session ends."""
    del planner
    assert relation.assigner is not None  # noqa: S101 - only asked for such
    own = [column.physical for column in relation.columns if column.physical]
    stream = unkeyed(relation.stream)
    keys = Keys(stream, {name: (pl.col(name), stream.schema[name]) for name in relation.partition})
    (rows,) = fresh_names(["rows"], keys.stream.schema)
    from headrace.streaming_sql.steps import keyed

    listed = RowList(tuple(dict.fromkeys([*own, EVENT_TIME])), ())
    ended = (
        keyed(keys.stream, keys.names)
        .window(relation.assigner)
        .aggregate(on_error="fail", keep_for=None, **{rows: listed})
    )
    return row_lists_taken_apart(relation, ended, rows)


def row_lists_taken_apart(relation: Relation, stream: Stream, rows: str, rank: str = "") -> Relation:
    """Make rows of lists of rows, with the window that they were collected in."""
    own = dict.fromkeys(
        column.physical for column in relation.columns if column.physical and not column.role.startswith("window")
    )
    stream = unkeyed(stream)
    held = [name for name in own if name != EVENT_TIME]
    physical = fresh_names(held, [WINDOW_START, WINDOW_END, rows])
    places = dict(zip(held, physical, strict=True))
    made = {new: pl.col(rows).struct.field(name) for name, new in places.items()}
    times = [name for name in own if name == EVENT_TIME]
    if times:
        (time,) = fresh_names(["time"], made)
        made[time] = pl.col(rows).struct.field(EVENT_TIME)
        places[EVENT_TIME] = time
    bounds = dict(zip(("window_start", "window_end", "window_time"),
                      fresh_names(["window_start", "window_end", "window_time"], made), strict=True))  # fmt: skip
    made |= {
        bounds["window_start"]: pl.col(WINDOW_START),
        bounds["window_end"]: pl.col(WINDOW_END),
        bounds["window_time"]: pl.col(WINDOW_END) - pl.lit(window_tables._LAST),  # noqa: SLF001
    }
    if rank:
        made[rank] = pl.col(rows).struct.field(RowList.RANK)
    stream = projected(stream.flat_map(rows, pl.col(rows)), made)
    columns = []
    for column in relation.columns:
        role = "" if column.role == "rowtime" else column.role
        name = bounds[column.role] if column.role in bounds else places.get(column.physical, "")
        columns.append(replace(column, physical=name, role=role))
    return Relation(stream, tuple(columns))


def distinct_rows(planner: Planner, relation: Relation) -> Relation:
    """Keep each row once."""
    del planner
    own = {column.physical: pl.col(column.physical) for column in relation.columns if column.shown}
    physical = dict(zip(own, fresh_names(own), strict=True))
    stream = projected(relation.stream, {physical[name]: value for name, value in own.items()})
    columns = tuple(
        replace(column, physical=physical[column.physical], role="" if column.role == "rowtime" else column.role)
        for column in relation.columns
        if column.shown
    )
    return Relation(unkeyed(table_steps.distinct(without_time(stream))), columns)
