"""Window functions: what is computed OVER the rows before a row.

In the order of event time, results are final when the watermark has passed a row. In any other order, and over rows
that may be taken back, results are revised. ROW_NUMBER, RANK and DENSE_RANK are put off: where the query around keeps
the first ranks only, no more than these are ever kept.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import polars as pl
from sqlglot import exp

from headrace.engine.operator import EVENT_TIME
from headrace.streaming_sql.aggregates import AGGREGATES, folded
from headrace.streaming_sql.functions import ArgumentError
from headrace.streaming_sql.intervals import interval_of
from headrace.streaming_sql.ordered_over import OrderedOverOperator
from headrace.streaming_sql.relation import Column, Ranking, fresh_names
from headrace.streaming_sql.steps import added, keyed, needs_text, text_key, unkeyed
from headrace.streaming_sql.values import BIGINT, UNKNOWN, Bound
from headrace.tables import frames
from headrace.tables import steps as table_steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.streaming_sql.selects import Select

_RANKS: Final = ("ROW_NUMBER", "RANK", "DENSE_RANK")
_NEIGHBOURS: Final = ("LAG", "LEAD")
_EDGES: Final = ("FIRST_VALUE", "LAST_VALUE")


def with_windows(select: Select) -> Select:
    """Compute the window functions of a SELECT."""
    items = [*select.node.expressions]
    if select.node.args.get("order"):
        items += select.node.args["order"].expressions
    found: dict[str, exp.Window] = {}
    for item in items:
        for over in item.walk(prune=lambda inner: isinstance(inner, exp.Query)):
            if isinstance(over, exp.Window):
                found.setdefault(select.canonical(over), over)
    if not found:
        return select
    ranked = {text: over for text, over in found.items() if _name(over) in _RANKS}
    if len(found) == 1 and ranked and select.relation.ranking is None:
        (text, over) = next(iter(found.items()))
        return _put_off(select, text, over)
    from headrace.streaming_sql import selects

    select = select.with_relation(selects.materialized(select.planner, select.relation, select.node))
    groups: dict[str, list[tuple[str, exp.Window]]] = {}
    for text, over in found.items():
        groups.setdefault(_definition(select, over), []).append((text, over))
    for group in groups.values():
        select = _computed(select, group)
    return select


def _name(over: exp.Window) -> str:
    call = over.this
    while isinstance(call, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
        call = call.this
    return str(call.name).upper() if isinstance(call, exp.Anonymous) else str(call.key).upper()


def _definition(select: Select, over: exp.Window) -> str:
    bare = over.copy()
    bare.set("this", exp.Null())
    return select.canonical(bare)


@dataclass(frozen=True)
class _Order:
    """The order of a window: columns, and whether it is that of time or of arrival."""

    columns: tuple[tuple[str, bool], ...]
    by_time: bool = False
    by_arrival: bool = False
    last_first: bool = False


class _Window:
    """A window with its columns in the stream."""

    def __init__(self, select: Select, over: exp.Window) -> None:
        self.select = select
        self.relation = select.relation
        self.partition = self._partition(over)
        self.order = self._order(over)

    def _partition(self, over: exp.Window) -> tuple[str, ...]:
        names: list[str] = []
        for item in over.args.get("partition_by") or []:
            role = self._role(item)
            if role is not None and not role.physical and role.role.startswith("window"):
                names.append(role.role)
                continue
            bound = self.select.binder.bind(item)
            names.append(self._column("partition", bound, key=True))
        return tuple(dict.fromkeys(names))

    def _role(self, node: exp.Expr) -> Column | None:
        if not isinstance(node, exp.Column) or self.select.source is not None:
            return None
        return self.select.scope.find(node).column

    def _column(self, name: str, bound: Bound, *, key: bool = False) -> str:
        value = text_key(bound.expr, bound.dtype) if key and needs_text(bound.dtype) else bound.expr
        stream, named = added(self.relation.stream, {name: value})
        self.relation = self.relation.with_stream(stream)
        self.select = self.select.with_relation(self.relation)
        return named[name]

    def _order(self, over: exp.Window) -> _Order:
        clause = over.args.get("order")
        items = clause.expressions if clause is not None else []
        columns: list[tuple[str, bool]] = []
        by_time = by_arrival = last_first = False
        for place, item in enumerate(items):
            node, down = item.this, bool(item.args.get("desc"))
            column = self._role(node)
            if column is not None and column.role == "proctime":
                by_arrival, last_first = place == 0, down
                continue
            if column is not None and column.role == "rowtime" and column.physical == EVENT_TIME:
                by_time = place == 0 and not down and len(items) == 1
            elif column is not None and column.role == "rowtime" and place == 0 and not down and len(items) == 1:
                by_time = True
            bound = self.select.binder.bind(node)
            columns += self._nulls(bound, item, down=down)
            columns.append((self._column("order", bound), down))
        return _Order(tuple(columns), by_time, by_arrival and not columns, last_first)

    def _nulls(self, bound: Bound, item: exp.Ordered, *, down: bool) -> list[tuple[str, bool]]:
        """Order nulls as NULLS FIRST and NULLS LAST ask; else they are the smallest values."""
        written = item.args.get("nulls_first")
        if not item.meta.get("nulls_written") or written is None or bool(written) != down:
            return []
        return [(self._column("is_null", Bound(bound.expr.is_null(), pl.Boolean())), bool(written))]


def _put_off(select: Select, text: str, over: exp.Window) -> Select:
    """Leave a rank to the query around, which may say how many rows it wants."""
    if not over.args.get("order") and _name(over) != "ROW_NUMBER":
        raise select.planner.error(over, f"{_name(over)} without ORDER BY", hint="Say what ranks the rows.")
    window = _Window(select, over)
    order = window.order
    column = Column("", "", BIGINT, role="rank")
    ranking = Ranking(
        window.partition,
        order.columns,
        over,
        _name(over),
        by_time=order.by_time,
        last_first=order.last_first,
    )
    relation = replace(
        window.relation, ranking=ranking, columns=(*window.relation.columns, replace(column, shown=False))
    )
    return select.with_relation(relation, {text: column})


def _computed(select: Select, group: Sequence[tuple[str, exp.Window]]) -> Select:
    """Compute the functions of one window."""
    planner = select.planner
    over = group[0][1]
    window = _Window(select, over)
    frame, distance = _frame(select, over, window.order)
    made: dict[str, Any] = {}
    reads: dict[str, tuple[Any, pl.DataType]] = {}
    taken = list(window.relation.stream.schema)
    for text, each in group:
        functions, read, dtype = _functions(window.select, each, [*taken, *made])
        made |= functions
        reads[text] = (read, dtype)
    relation = window.relation
    appends = not relation.updating
    if appends and (window.order.by_time or (window.order.by_arrival and not window.order.last_first)):
        stream = table_steps.over(
            keyed(relation.stream, window.partition), made, frame, arrival=window.order.by_arrival
        )
    else:
        if not window.order.columns and not over.args.get("order"):
            frame = frames.Frame("range", None)
        planner.warn(over, "OVER in this order keeps all rows for ever, and revises results; order by the event time")
        operator = OrderedOverOperator(
            window.partition,
            tuple(name for name in relation.stream.schema if name != "is_retraction"),
            window.order.columns,
            frame,
            tuple(made.items()),
            distance,
        )
        stream = table_steps.stateful(
            keyed(relation.stream, window.partition), "ordered-over", _told(window, frame, made), operator
        )
    stream = unkeyed(stream)
    computed: dict[str, Column] = {}
    values: dict[str, pl.Expr] = {}
    for text, (read, dtype) in reads.items():
        (name,) = fresh_names(["over"], [*stream.schema, *values])
        values[name] = read
        computed[text] = Column("", name, dtype, shown=False)
    stream = stream.with_columns(**values)
    columns = (*relation.columns, *computed.values())
    result = replace(relation, stream=stream, columns=columns)
    return select.with_relation(result, computed)


def _told(window: _Window, frame: frames.Frame, made: dict[str, Any]) -> str:
    order = ", ".join(f"{name} descending" if down else name for name, down in window.order.columns)
    told = ", ".join(f"{name}={each.describe()}" for name, each in made.items())
    return f"over {frame.describe()} by {order or 'nothing'} {told}"


def _frame(select: Select, over: exp.Window, order: _Order) -> tuple[frames.Frame, str]:
    """Read the frame; and the column that its distance is measured in."""
    spec = over.args.get("spec")
    if spec is None:
        return frames.Frame("range", None), ""
    error = select.planner.error
    kind = str(spec.args.get("kind") or "RANGE").upper()
    start, side = spec.args.get("start"), str(spec.args.get("start_side") or "").upper()
    end = spec.args.get("end")
    if kind not in ("ROWS", "RANGE"):
        raise error(over, f"{kind} frames are not supported", hint="Use ROWS or RANGE.")
    if end is not None and end != "CURRENT ROW":
        raise error(over, "a frame that ends after the current row", hint="End it at CURRENT ROW.")
    if start == "CURRENT ROW":
        return frames.Frame("rows" if kind == "ROWS" else "range", 0), ""
    if side != "PRECEDING":
        raise error(over, "a frame that begins after the current row", hint="Begin it PRECEDING.")
    unit = "rows" if kind == "ROWS" else "range"
    if start == "UNBOUNDED":
        return frames.Frame(unit, None), ""  # type: ignore[arg-type]
    if kind == "ROWS":
        if not isinstance(start, exp.Literal) or start.is_string or not start.name.isdigit():
            raise error(over, "the number of rows of a frame must be a whole number")
        return frames.Frame("rows", int(start.name)), ""
    length = interval_of(start)
    if isinstance(length, dt.timedelta):
        distance = length // dt.timedelta(microseconds=1)
    elif isinstance(start, exp.Literal) and not start.is_string and start.name.isdigit():
        distance = int(start.name)
    else:
        raise error(over, "the distance of a RANGE frame must be an interval of fixed length or a whole number")
    if not order.by_time and len(order.columns) != 1:
        raise error(over, "a RANGE frame with a distance needs one column in ORDER BY")
    if distance < 0:
        raise error(over, "a frame that begins after the current row")
    return frames.Frame("range", distance), "" if order.by_time else order.columns[0][0]


def _functions(select: Select, over: exp.Window, taken: Sequence[str]) -> tuple[dict[str, Any], pl.Expr, pl.DataType]:
    """Make one function of a window: its columns, and how its value is read from them."""
    name = _name(over)
    error = select.planner.error
    call = over.this
    where = None
    while isinstance(call, exp.Filter | exp.IgnoreNulls | exp.RespectNulls):
        if isinstance(call, exp.Filter):
            where = select.binder.condition(call.expression.this)
        elif isinstance(call, exp.IgnoreNulls):
            raise error(over, "IGNORE NULLS is not supported")
        call = call.this
    (own,) = fresh_names([f"{name.lower()}_over"], taken)
    if name in _RANKS:
        return {own: frames.Numbered(name.lower())}, pl.col(own), BIGINT  # type: ignore[arg-type]
    arguments = list(call.expressions)
    if name in _NEIGHBOURS:
        return _neighbour(select, name, arguments, over, own)
    if name in _EDGES:
        bound = select.binder.bind(arguments[0])
        edge = frames.last_value(bound.expr) if name == "LAST_VALUE" else frames.first_value(bound.expr)
        return {own: edge}, pl.col(own), bound.dtype
    if name not in AGGREGATES:
        known = "aggregates, ROW_NUMBER, RANK, DENSE_RANK, LAG, LEAD, FIRST_VALUE and LAST_VALUE"
        raise error(over, f"{name} OVER is not supported", hint=f"Known are {known}.")
    is_distinct = bool(arguments) and isinstance(arguments[0], exp.Distinct)
    if is_distinct:
        arguments = [*arguments[0].expressions, *arguments[1:]]
    if len(arguments) == 1 and isinstance(arguments[0], exp.Star):
        arguments = []
    try:
        made = folded(name, [select.binder.bind(each) for each in arguments], is_distinct=is_distinct, where=where)
    except ArgumentError as problem:
        raise error(over, problem.message, hint=problem.hint) from None
    names = dict(zip(made.parts, fresh_names([f"{name.lower()}_{end}" for end in made.parts], taken), strict=True))
    parts = {names[end]: aggregate for end, aggregate in made.parts.items()}
    return parts, made.read({end: pl.col(own) for end, own in names.items()}), made.dtype


def _neighbour(
    select: Select, name: str, arguments: Sequence[exp.Expr], over: exp.Window, own: str
) -> tuple[dict[str, Any], pl.Expr, pl.DataType]:
    if not 1 <= len(arguments) <= 3:
        raise select.planner.error(over, f"{name} takes a value, a number of rows and a default")
    value = select.binder.bind(arguments[0])
    places = select.binder.bind(arguments[1]).value if len(arguments) > 1 else 1
    if not isinstance(places, int):
        raise select.planner.error(over, f"the number of rows of {name} must be a whole number")
    default = select.binder.bind(arguments[2]).value if len(arguments) > 2 else None
    if default is UNKNOWN:
        raise select.planner.error(over, f"the default of {name} must be a constant")
    make = frames.lag if name == "LAG" else frames.lead
    return {own: make(value.expr, places, default=default)}, pl.col(own), value.dtype
