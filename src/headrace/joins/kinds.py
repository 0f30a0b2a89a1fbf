"""The kinds of joins, as `Stream.join` chooses among them; docs/joins.md has their rules."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl
from polars.exceptions import PolarsError

from headrace.engine.operator import EVENT_TIME, WINDOW_END, WINDOW_START
from headrace.errors import PlanError
from headrace.joins.interval import LONGEST, IntervalJoin
from headrace.joins.latest import LatestJoin
from headrace.joins.nearest import COMPARISONS, NearestJoin
from headrace.joins.planning import On, pairs_of, prepare
from headrace.joins.table import TableJoin
from headrace.joins.temporal import GONE, TemporalJoin
from headrace.joins.window import WindowJoin
from headrace.stream.updating import refuse_updating
from headrace.tables.table import Table
from headrace.tables.upserts import IS_DELETE
from headrace.time.duration import micros, text
from headrace.time.instants import INSTANT, instant, moment
from headrace.windows.assigners import Aligned, Cumulative, SameWindow

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from headrace.joins.sides import How
    from headrace.stream.stream import Stream
    from headrace.windows.assigners import Assigner

_WHICH = (
    'Say within=("-1h", "10m") for rows near in time, window=tumbling("5m") for rows of one window, or join a table '
    "(as_table) for its newest row; a stream joined with all of another one would be kept for ever."
)


def join(
    left: Stream,
    right: Stream | Table,
    *,
    on: On,
    within: tuple[Any, Any] | None,
    window: Assigner | None,
    as_of: str | None,
    how: How,
    where: pl.Expr | None,
    grace: str | timedelta | int,
    keep_for: str | timedelta | int | None,
    load_until: datetime | int | None,
    revise: bool,
    null_safe: bool,
    suffix: str,
    broadcast: bool,
) -> Stream:
    """Choose the kind of a join; see `Stream.join`."""
    said = [name for name, value in (("within", within), ("window", window), ("as_of", as_of)) if value is not None]
    said += ["revise"] if revise else []
    if len(said) > 1:
        raise PlanError(f"join with {' and '.join(said)}", hint="Say one of them.")
    if keep_for is not None and within is None:
        raise PlanError("keep_for without within", hint='It bounds an interval: within=("-1h", None), keep_for="1d".')
    if broadcast and said:
        raise PlanError(
            f"broadcast of a join with {said[0]}",
            hint="Only a table that is joined for its newest rows goes to all key groups; leave broadcast= out.",
        )
    common: dict[str, Any] = {"on": on, "how": how, "where": where, "null_safe": null_safe, "suffix": suffix}
    if within is not None or window is not None:
        if isinstance(right, Table):
            raise PlanError(
                f"join of a table with {said[0]}",
                hint='Leave it out for the newest rows, or say as_of="event_time" for the version at the row\'s time.',
            )
        if within is not None:
            return interval_join(left, right, within=within, grace=grace, keep_for=keep_for, **common)
        assert window is not None  # noqa: S101 - one of the two is given
        return window_join(left, right, window=window, grace=grace, **common)
    if not isinstance(right, Table) and not right.node.retracts:
        raise PlanError("join of two streams without a bound in time", hint=_WHICH)
    if as_of is not None:
        if as_of != EVENT_TIME or not isinstance(right, Table):
            raise PlanError(
                f"as_of={as_of!r}", hint='as_of="event_time" finds the version of a table: other.as_table("product").'
            )
        return temporal_join(left, right, grace=grace, **common)
    if grace:
        raise PlanError(
            "grace on a join with the newest rows of a table", hint="Its rows are never late; leave it out."
        )
    if revise:
        return table_join(left, right, **common)
    return latest_join(left, right, load_until=load_until, broadcast=broadcast, **common)


def join_asof(
    left: Stream,
    right: Stream | Table,
    *,
    on: On,
    tolerance: str | timedelta | int | None,
    how: How,
    where: pl.Expr | None,
    grace: str | timedelta | int,
    null_safe: bool,
    suffix: str,
) -> Stream:
    """Join rows with the nearest earlier row; see `Stream.join_asof`."""
    table = right
    if not isinstance(table, Table):
        refuse_updating(table.node, "join_asof", "Make a table of it: as_table(key).")
        table = Table(table, tuple(name for _, name in pairs_of(on)), versioned=True)
    common: dict[str, Any] = {"on": on, "how": how, "where": where, "null_safe": null_safe, "suffix": suffix}
    return temporal_join(left, table, grace=grace, tolerance=tolerance, **common)


def interval_join(
    left: Stream,
    right: Stream,
    *,
    on: On,
    within: tuple[Any, Any],
    how: How,
    where: pl.Expr | None,
    grace: str | timedelta | int,
    keep_for: str | timedelta | int | None,
    null_safe: bool,
    suffix: str,
) -> Stream:
    """Join rows whose times are near; see `Stream.join`."""
    _refuse_updates(left, right, "an interval join")
    lower, upper = _bounds(within, keep_for)
    behind = _not_negative(grace, "grace")
    prepared = prepare(left, right, on, how=how, where=where, null_safe=null_safe, suffix=suffix)
    told = f"within [{text(lower)}, {text(upper)}]" + (f", grace {text(behind)}" if behind else "")
    return prepared.stream(
        left, IntervalJoin(prepared.columns, lower, upper, behind), does="interval-join", description=told
    )


def window_join(
    left: Stream,
    right: Stream,
    *,
    on: On,
    window: Assigner,
    how: How,
    where: pl.Expr | None,
    grace: str | timedelta | int,
    null_safe: bool,
    suffix: str,
) -> Stream:
    """Join rows of the same window; see `Stream.join`."""
    _refuse_updates(left, right, "a window join")
    if not isinstance(window, Aligned | Cumulative | SameWindow):
        raise PlanError(
            f"a join in windows {window.describe()}",
            hint="Use tumbling, sliding or cumulative windows, or same_window() behind aggregates.",
        )
    if isinstance(window, SameWindow):
        for stream, side in ((left, "left"), (right, "right")):
            if any(stream.schema.get(name) != INSTANT for name in (WINDOW_START, WINDOW_END)):
                raise PlanError(
                    f"a join in the same window, and the {side} side has none",
                    hint="Let window(...).aggregate(...) come before it, or say window=tumbling(...).",
                )
    behind = _not_negative(grace, "grace")
    made = (WINDOW_START, WINDOW_END)
    prepared = prepare(left, right, on, how=how, where=where, null_safe=null_safe, suffix=suffix, made=made)
    told = f"window {window.describe()}" + (f", grace {text(behind)}" if behind else "")
    return prepared.stream(left, WindowJoin(prepared.columns, window, behind), does="window-join", description=told)


def temporal_join(
    left: Stream,
    right: Table,
    *,
    on: On,
    how: How,
    where: pl.Expr | None,
    grace: str | timedelta | int,
    null_safe: bool,
    suffix: str,
    tolerance: str | timedelta | int | None = None,
) -> Stream:
    """Join rows with the version of a table at their time; see `Stream.join`."""
    if how in ("right", "full"):
        raise PlanError(
            f"a {how} join with the versions of a table",
            hint="A version has no time of its own at which it is known to have no partner; use inner or left.",
        )
    refuse_updating(left.node, "a temporal join", "Join before the step that revises its results.")
    versions = right.upserts()
    pairs = pairs_of(on)
    missing = [key for key in right.key if key not in [name for _, name in pairs]]
    if missing:
        raise PlanError(
            f"a temporal join on {', '.join(name for _, name in pairs)} with a table by {', '.join(right.key)}",
            hint=f"Name all of the table's key in on=...: {', '.join(missing)} is missing.",
        )
    behind = _not_negative(grace, "grace")
    oldest = None if tolerance is None else _not_negative(tolerance, "tolerance")
    prepared = prepare(
        left, versions, on, how=how, where=where, null_safe=null_safe, suffix=suffix, later_time=False, route=right.key
    )
    spec = prepared.columns
    versioned = replace(spec, right=replace(spec.right, columns=(*spec.right.columns, (IS_DELETE, GONE))))
    routed = tuple(place for place, (_, name) in enumerate(pairs) if name in right.key)
    told = "as of event_time"
    told += f", at most {text(oldest)} old" if oldest is not None else ""
    told += f", grace {text(behind)}" if behind else ""
    operator = TemporalJoin(versioned, routed, behind, right.retention, oldest)
    return prepared.stream(left, operator, does="temporal-join", description=told)


def latest_join(
    left: Stream | Table,
    right: Table | Stream,
    *,
    on: On,
    how: How,
    where: pl.Expr | None,
    null_safe: bool,
    suffix: str,
    load_until: datetime | int | None = None,
    broadcast: bool = False,
) -> Stream:
    """Join rows with a table as it is when they are processed; see `Stream.join`."""
    if how in ("right", "full"):
        raise PlanError(
            f"a {how} join with the newest rows of a table",
            hint="Make a table of the left side too (as_table): a join of tables has all kinds.",
        )
    rows, table = _changes(left), _changes(right)
    updates = rows.node.retracts
    prepared = prepare(
        rows,
        table,
        on,
        how=how,
        where=where,
        null_safe=null_safe,
        suffix=suffix,
        later_time=False,
        broadcast=broadcast,
    )
    until = None if load_until is None else instant(load_until)
    told = "newest rows" + ("" if until is None else f", after loading until {moment(until)}")
    told += ", table on all key groups" if broadcast else ""
    operator = LatestJoin(prepared.columns, until, updates, rows.keys if broadcast else None)
    return prepared.stream(
        rows, operator, does="latest-join", description=told, gives_updates=updates, takes_updates=True
    )


def table_join(
    left: Stream | Table,
    right: Stream | Table,
    *,
    on: On,
    how: How,
    where: pl.Expr | None,
    null_safe: bool,
    suffix: str,
) -> Stream:
    """Join two tables: the result follows every change of both; see `Table.join`."""
    rows, others = _changes(left), _changes(right)
    prepared = prepare(rows, others, on, how=how, where=where, null_safe=null_safe, suffix=suffix)
    return prepared.stream(
        rows,
        TableJoin(prepared.columns),
        does="table-join",
        description="of tables",
        gives_updates=True,
        takes_updates=True,
    )


def nearest_join(
    left: Stream | Table,
    right: Table,
    *,
    on: On,
    by: tuple[str, str, str],
    how: How,
    where: pl.Expr | None,
    null_safe: bool,
    suffix: str,
) -> Stream:
    """Join rows of tables with the nearest row; see `Table.join_nearest`."""
    if how not in ("inner", "left"):
        raise PlanError(f"a {how} join with the nearest row", hint="Use inner or left.")
    rows, others = _changes(left), _changes(right)
    one, comparison, two = by
    if comparison not in COMPARISONS:
        raise PlanError(f"by={by!r}", hint=f"Give (left column, one of {', '.join(COMPARISONS)}, right column).")
    prepared = prepare(rows, others, on, how=how, where=where, null_safe=null_safe, suffix=suffix)
    spec = prepared.columns
    inside = dict(reversed(spec.right.columns))
    for name, side, stream in ((one, "left", rows), (two, "right", others)):
        if name not in stream.schema:
            raise PlanError(f"by={by!r}: the {side} side has no column {name!r}", hint=f"It has: {_listed(stream)}.")
    try:
        pl.concat(
            [rows.schema.to_frame().select(v=one), others.schema.to_frame().select(v=two)], how="vertical_relaxed"
        )
    except PolarsError as problem:
        raise PlanError(
            f"by={by!r}: {rows.schema[one]} cannot be compared with {others.schema[two]}",
            hint="Cast one of them with with_columns(...).",
        ) from problem
    order = tuple(inside[name] for name in right.key if name in inside)
    operator = NearestJoin(spec, one, comparison, inside[two], order)  # type: ignore[arg-type]
    return prepared.stream(
        rows,
        operator,
        does="nearest-join",
        description=f"nearest {one} {comparison} {two}",
        gives_updates=True,
        takes_updates=True,
    )


def _changes(side: Stream | Table) -> Stream:
    return side.changes() if isinstance(side, Table) else side


def _listed(stream: Stream) -> str:
    return ", ".join(stream.schema)


def _bounds(within: Any, keep_for: str | timedelta | int | None) -> tuple[int, int]:
    if not isinstance(within, tuple) or len(within) != 2:
        raise PlanError(f"within={within!r}", hint='Give two bounds: within=("-1h", "10m").')
    kept = None if keep_for is None else _not_negative(keep_for, "keep_for")
    found = []
    for bound, name, sign in ((within[0], "lower", -1), (within[1], "upper", 1)):
        if bound is None and kept is None:
            raise PlanError(
                f"an interval join without {name} bound: rows would be kept for ever",
                hint='Give the bound, or keep_for="1d": matches further apart than that are then not looked for.',
            )
        length = sign * (kept or 0) if bound is None else signed(bound, what=f"the {name} bound of within")
        if abs(length) > LONGEST:
            raise PlanError(f"the {name} bound of within is {text(length)}", hint="Give a shorter time.")
        found.append(length)
    return found[0], found[1]


def signed(duration: str | timedelta | int, *, what: str) -> int:
    """Turn a duration that may be negative into microseconds.

    >>> signed("-1h", what="the bound"), signed("10m", what="the bound")
    (-3600000000, 600000000)
    """
    if isinstance(duration, str) and duration.lstrip().startswith("-"):
        return -micros(duration.lstrip()[1:], what=what)
    return micros(duration, what=what)


def _not_negative(duration: str | timedelta | int, what: str) -> int:
    length = signed(duration, what=what)
    if not 0 <= length <= LONGEST:
        raise PlanError(f"{what} of {text(length)}", hint="Give a time of zero or more.")
    return length


def _refuse_updates(left: Stream, right: Stream, what: str) -> None:
    hint = "Make tables of both (as_table) and join these, or join before the step that revises its results."
    for stream in (left, right):
        refuse_updating(stream.node, what, hint)
