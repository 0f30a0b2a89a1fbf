"""The steps of tables as they are put into a plan; `Stream` and `Table` delegate to these."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from polars.exceptions import PolarsError

from headrace.engine.keygroups import check_key
from headrace.engine.operator import EVENT_TIME, IS_RETRACTION
from headrace.errors import HeadraceError, PlanError
from headrace.stream import plan
from headrace.stream.steps import first_line
from headrace.stream.updating import refuse_updating
from headrace.tables.groups import GroupOperator
from headrace.tables.multisets import MultisetOperator
from headrace.tables.over import OverOperator
from headrace.tables.ranks import RankOperator
from headrace.time.duration import text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import polars as pl

    from headrace.engine import Operator
    from headrace.stream.stream import Stream
    from headrace.tables.frames import Frame, OverFunction
    from headrace.tables.multisets import SetOperation
    from headrace.tables.ranks import Numbering
    from headrace.windows.aggregates import Aggregate


def aggregate(source: Stream, aggregates: Mapping[str, Aggregate], *, keep_for: int | None = None) -> Stream:
    """Fold all rows of each key; see `Stream.aggregate`."""
    if not aggregates:
        raise PlanError("aggregate of nothing", hint="Name at least one, such as scans=count().")
    for name in aggregates:
        if name in {EVENT_TIME, IS_RETRACTION, *source.keys} or name.startswith("#"):
            raise PlanError(f"aggregate column {name!r} is taken", hint="Give it another name.")
    told = f"aggregate {', '.join(f'{name}={each.describe()}' for name, each in aggregates.items())}"
    kept = "" if keep_for is None else f", groups kept for {text(keep_for)}"
    operator = GroupOperator(source.keys, tuple(aggregates.items()), source.node.updating, keep_for, told)
    return stateful(source, "group", f"{told} of all rows{kept}", operator)


def top(
    source: Stream,
    n: int | None,
    by: Sequence[str],
    descending: bool | Sequence[bool],
    *,
    last_first: bool = False,
    rank: str = "",
    numbering: Numbering = "row_number",
    keep_for: int | None = None,
) -> Stream:
    """Keep the first rows of each key; see `Stream.top`."""
    if n is not None and n < 1:
        raise PlanError(f"top of {n} rows", hint="Give a number of 1 or more.")
    downs = [descending] * len(by) if isinstance(descending, bool) else list(descending)
    if len(downs) != len(by):
        raise PlanError(
            f"top by {len(by)} columns with {len(downs)} values of descending",
            hint="Give one value, or one per column.",
        )
    _known(source, by, "top")
    columns = _own(source.schema)
    if rank and (rank in columns or rank == IS_RETRACTION or rank.startswith("#")):
        raise PlanError(f"top: the column {rank!r} is taken", hint="Give the rank another name.")
    operator = RankOperator(
        source.keys,
        columns,
        n,
        tuple(zip(by, downs, strict=True)),
        last_first,
        rank,
        numbering,
        source.node.updating,
        keep_for,
    )
    order = ", ".join(f"{name} descending" if down else name for name, down in zip(by, downs, strict=True))
    told = f"top {n if n is not None else 'all'} by {order or ('arrival, last first' if last_first else 'arrival')}"
    told += f" as {numbering} {rank}" if rank else ""
    told += f", groups kept for {text(keep_for)}" if keep_for is not None else ""
    return stateful(source, "top", told, operator, gives_updates=not operator.appends)


def over(source: Stream, functions: Mapping[str, OverFunction], frame: Frame, *, arrival: bool = False) -> Stream:
    """Add what a frame of earlier rows says; see `Stream.over`."""
    refuse_updating(
        source.node, "over", "Use it on the rows that the table is made of, or take top(...) or aggregate(...)."
    )
    if not functions:
        raise PlanError("over of nothing", hint='Name a column, such as total=sum("price").')
    for name in functions:
        if name in source.schema or name.startswith("#"):
            raise PlanError(f"over: the column {name!r} is taken", hint="Give it another name.")
    operator = OverOperator(source.keys, tuple(source.schema), frame, tuple(functions.items()), arrival)
    told = ", ".join(f"{name}={each.describe()}" for name, each in functions.items())
    order = "arrival" if arrival else "event time"
    return stateful(source, "over", f"over {frame.describe()} by {order} {told}", operator, gives_updates=False)


def distinct(source: Stream, *, keep_for: int | None = None) -> Stream:
    """Give each different row once; see `Stream.distinct`."""
    return multiset((source,), "distinct", keep_for=keep_for)


def multiset(sources: Sequence[Stream], operation: SetOperation, *, keep_for: int | None = None) -> Stream:
    """Put a set operation into the plan.

    The key of the result is that of the first stream.

    Args:
        sources: One stream for "distinct", two for the others, with the same columns.
        operation: What is asked.
        keep_for: How long after its newest change a row is remembered, in microseconds of event time.
    """
    first = sources[0]
    columns = _own(first.schema)
    for other in sources[1:]:
        if {name: other.schema[name] for name in _own(other.schema)} != {name: first.schema[name] for name in columns}:
            raise PlanError(
                f"{operation.replace('_', ' ')} of streams with different columns: {', '.join(columns)} and "
                f"{', '.join(_own(other.schema))}",
                hint="Bring both to the same columns, with the same types, with select() first.",
            )
    keys = tuple(name for name in columns if name != EVENT_TIME and _can_be_key(name, first.schema[name]))
    operator = MultisetOperator(keys, columns, operation, keep_for)
    kept = "" if keep_for is None else f", rows kept for {text(keep_for)}"
    spread = [keyed(source, keys, null_keys=True) for source in sources]
    # A row stays where no row is ever taken back, unless it is taken out by one of the other side.
    updating = any(source.node.updating for source in sources) or operation in ("except", "except_all")
    if len(sources) == 1:
        result = stateful(spread[0], "distinct", f"distinct rows{kept}", operator, gives_updates=updating)
        node = result.node.inputs[0] if isinstance(result.node, plan.KeyBy) else result.node
        result = replace(first, node=node)
    else:
        both = plan.Combined(
            parts=tuple(source.node for source in spread),
            does=operation.replace("_", "-"),
            description=f"{operation.replace('_', ' ')} of{kept}",
            make=lambda *_: operator,
            schema=operator.schema(first.schema),
            takes_updates=True,
            gives_updates=updating,
        )
        result = replace(first, node=both)
    return keyed(result, first.keys, null_keys=first.node.null_keys) if first.keys else result


def _own(schema: pl.Schema) -> tuple[str, ...]:
    return tuple(name for name in schema if name != IS_RETRACTION)


def _can_be_key(name: str, kind: pl.DataType) -> bool:
    try:
        check_key(name, kind)
    except PlanError:
        return False
    return True


def _known(source: Stream, columns: Sequence[str], where: str) -> None:
    for name in columns:
        if name not in source.schema:
            raise PlanError(
                f"{where} by {name!r}: there is no such column",
                hint=f"The columns here are: {', '.join(source.schema)}.",
            )


def stateful(source: Stream, does: str, description: str, operator: Operator, *, gives_updates: bool = True) -> Stream:
    """Put an operator that takes rows back into the plan, keyed as what comes before."""
    where = description.partition(" ")[0]
    try:
        schema = operator.schema(source.schema)
    except HeadraceError as problem:
        raise PlanError(f"{where} cannot work: {problem.message}", hint=problem.hint) from problem
    except PolarsError as problem:
        raise PlanError(
            f"{where} cannot work: {first_line(problem)}", hint=f"The columns here are: {', '.join(source.schema)}."
        ) from problem
    node = plan.Processed(
        input=source.node,
        does=does,
        description=description,
        make=_giving(operator),
        schema=schema,
        takes_updates=not isinstance(operator, OverOperator),
        gives_updates=gives_updates,
    )
    result = replace(source, node=node)
    return keyed(result, source.keys, null_keys=source.node.null_keys) if source.keys else result


def _giving(operator: Operator) -> Callable[[tuple[str, ...], pl.Schema], Operator]:
    return lambda *_: operator


def keyed(source: Stream, keys: tuple[str, ...], *, null_keys: bool = False) -> Stream:
    """Set the key of a stream, without a look at what was set before."""
    node = source.node
    if isinstance(node, plan.KeyBy):
        node = node.input
    return replace(source, node=plan.KeyBy(input=node, schema=node.schema, keys=keys, null_keys=null_keys))
