"""Window functions in FROM: TUMBLE, HOP, CUMULATE and SESSION.

Rows are not put into their windows at once: an aggregate behind puts them into windows itself, slice by slice. Only
where something else reads the window columns, rows are put into their windows one by one.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl
from sqlglot import exp

from headrace.engine.operator import EVENT_TIME, WINDOW_END, WINDOW_START
from headrace.streaming_sql.dialect import written
from headrace.streaming_sql.intervals import interval_of
from headrace.streaming_sql.relation import Column, Relation, fresh_names
from headrace.streaming_sql.scope import Scope
from headrace.streaming_sql.steps import unkeyed
from headrace.windows import assigners

if TYPE_CHECKING:
    from headrace.streaming_sql.dialect import WindowTable
    from headrace.streaming_sql.query import Planner
    from headrace.windows.assigners import Assigner

_INSTANT = pl.Datetime("us", "UTC")
#: `window_time` is the last millisecond of a window.
_LAST = dt.timedelta(milliseconds=1)


def plan_window_table(planner: Planner, node: WindowTable) -> Relation:
    """Plan a window function in FROM."""
    from headrace.streaming_sql import from_clause, selects

    relation = from_clause.plan_source(planner, node.args["data"], None)
    relation = selects.materialized(planner, relation, node)
    if relation.updating:
        raise planner.error(
            node,
            f"{node.this} of rows that may be taken back",
            hint="Put the rows into windows first, or group by FLOOR(ts TO MINUTE), which takes rows back.",
        )
    scope = Scope.of(planner.text, relation)
    relation = retimed(planner, relation, node.args["time"], scope, node.this)
    partition = tuple(scope.find(column).column.physical for column in node.args.get("partition") or [])
    assigner = assigner_of(planner, node, node.this, node.args["sizes"], node.args.get("named") or {})
    return windowed(relation, assigner, partition)


def windowed(relation: Relation, assigner: Assigner, partition: tuple[str, ...] = ()) -> Relation:
    """Say that rows belong to windows; they are put into them later."""
    columns = [replace(column, role="" if column.role.startswith("window") else column.role)
               for column in relation.columns]  # fmt: skip
    columns += [
        Column(name, "", _INSTANT, role=name)  # type: ignore[arg-type] # the roles have these names
        for name in (WINDOW_START, WINDOW_END, "window_time")
    ]
    return Relation(relation.stream, tuple(columns), assigner, partition)


def retimed(planner: Planner, relation: Relation, node: exp.Expr, scope: Scope, what: str) -> Relation:
    """Let a column be the time of the rows, where it is not yet."""
    if not isinstance(node, exp.Column):
        raise planner.error(node, f"{what} takes the name of a time column")
    column = scope.find(node).column
    if column.role in ("rowtime", "proctime", "window_time"):
        if column.role == "proctime" and relation.role("rowtime") is not None:
            raise planner.error(node, f"{what} by processing time of rows that have an event time",
                                hint="Use the event time; see docs/sql.md.")  # fmt: skip
        return relation
    if not isinstance(column.dtype, pl.Datetime):
        raise planner.error(node, f"{what} by {column.name!r}, which is no timestamp",
                            hint="Windows are of the event time; CAST it to TIMESTAMP in a view.")  # fmt: skip
    stream = unkeyed(relation.stream).with_columns(**{EVENT_TIME: pl.col(column.physical)})
    columns = tuple(
        replace(each, role="rowtime" if each == column else ("" if each.role == "rowtime" else each.role))
        for each in relation.columns
    )
    return Relation(stream, columns)


def assigner_of(
    planner: Planner, node: exp.Expr, kind: str, sizes: list[exp.Expr], named: dict[str, exp.Expr]
) -> Assigner:
    """Make the windows that a window function describes."""
    lengths = [_length(planner, size) for size in sizes]
    by_name = {name: _length(planner, size) for name, size in named.items()}
    order = {"TUMBLE": ("size", "offset"), "HOP": ("slide", "size", "offset"),
             "CUMULATE": ("step", "size", "offset"), "SESSION": ("gap",)}[kind]  # fmt: skip
    if len(lengths) > len(order):
        raise planner.error(node, f"{kind} takes {', '.join(order)}")
    given = {**dict(zip(order, lengths, strict=False)), **by_name}
    missing = [name for name in order if name not in given and name != "offset"]
    if missing:
        raise planner.error(node, f"{kind} needs {' and '.join(missing)}", hint=_FORMS[kind])
    for name, length in given.items():
        if name != "offset" and length <= 0:
            raise planner.error(node, f"the {name} of {kind} must be above zero")
    return _assigner(planner, node, kind, given)


_FORMS = {
    "TUMBLE": "Write TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '5' MINUTE).",
    "HOP": "Write HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '5' MINUTE): slide, then size.",
    "CUMULATE": "Write CUMULATE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '1' DAY): step, then size.",
    "SESSION": "Write SESSION(TABLE t PARTITION BY user, DESCRIPTOR(ts), INTERVAL '10' MINUTE).",
}


def _assigner(planner: Planner, node: exp.Expr, kind: str, given: dict[str, int]) -> Assigner:
    offset = given.get("offset", 0)
    if kind == "TUMBLE":
        return assigners.tumbling(given["size"], offset=offset % given["size"])
    if kind == "SESSION":
        return assigners.session(given["gap"])
    step, size = given["slide" if kind == "HOP" else "step"], given["size"]
    if step > size:
        raise planner.error(node, f"{kind} with a size smaller than its {'slide' if kind == 'HOP' else 'step'}",
                            hint=_FORMS[kind])  # fmt: skip
    if kind == "HOP":
        return assigners.sliding(size, every=step, offset=offset % step)
    if size % step:
        raise planner.error(node, "the size of CUMULATE must be a multiple of its step", hint=_FORMS[kind])
    return assigners.cumulative(size, step=step, offset=offset % size)


def _length(planner: Planner, node: exp.Expr) -> int:
    value = interval_of(node)
    if not isinstance(value, dt.timedelta):
        raise planner.error(node, f"{written(node)} is no length of a window",
                            hint="Write INTERVAL '5' MINUTE; months have no fixed length.")  # fmt: skip
    return value // dt.timedelta(microseconds=1)


def expanded(planner: Planner, relation: Relation) -> Relation:
    """Put rows into their windows one by one."""
    if relation.assigner is None:
        return relation
    assigner = relation.assigner
    if assigner.merges:
        from headrace.streaming_sql import grouping

        return grouping.session_rows(planner, relation)
    stream = unkeyed(relation.stream)
    moved = [column.physical for column in relation.columns if column.physical in (WINDOW_START, WINDOW_END)]
    free = dict(zip(moved, fresh_names(moved, stream.schema), strict=True))
    if free:
        stream = stream.with_columns(**{new: pl.col(old) for old, new in free.items()})
    stream = stream.map_batches(assigner.assign, name=assigner.describe())
    (time,) = fresh_names(["window_time"], stream.schema)
    stream = stream.with_columns(**{time: pl.col(WINDOW_END) - pl.lit(_LAST)})
    return replace(
        relation,
        stream=stream,
        columns=tuple(_placed(column, free, time) for column in relation.columns),
        assigner=None,
        partition=(),
    )


def _placed(column: Column, moved: dict[str, str], time: str) -> Column:
    places = {"window_start": WINDOW_START, "window_end": WINDOW_END, "window_time": time}
    if column.physical:
        return replace(column, physical=moved.get(column.physical, column.physical))
    return replace(column, physical=places.get(column.role, ""))
