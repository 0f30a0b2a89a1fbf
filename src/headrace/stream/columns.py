"""Which columns of a source are used at all.

A vehicle's report has thirty fields, a job reads four. What nobody reads is not decoded and not sent to key groups. The
answer is worked out backwards, from what the first operator reads through the steps before it; a step that cannot tell
what it reads (a function on batches, a user's operator) needs everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.engine.operator import EVENT_TIME, Reader
from headrace.stream.enriching import Enrich
from headrace.stream.steps import Drop, Filter, FlatMap, Select, WithColumns
from headrace.time.strategies import Perfect, Punctuated
from headrace.windows.assigners import Aligned
from headrace.windows.operator import WindowOperator
from headrace.windows.sliced import SlicedOperator

if TYPE_CHECKING:
    import polars as pl

    from headrace.engine import Operator
    from headrace.stream.steps import Step
    from headrace.time.watermarks import WatermarkStrategy


def operator_columns(operator: Operator, schema: pl.Schema) -> list[str]:
    """Tell the columns that an operator reads, in the order of the schema."""
    if isinstance(operator, Reader):
        read = operator.reads(schema)
        return list(schema) if read is None else [name for name in schema if name in read]
    if isinstance(operator, SlicedOperator):
        aggregates = [aggregate for _, aggregate in operator.aggregates]
    elif isinstance(operator, WindowOperator) and isinstance(operator.assigner, Aligned):
        aggregates = list(operator.aggregates.values())
    else:
        return list(schema)
    used = {EVENT_TIME, *operator.keys}
    for aggregate in aggregates:
        # Its own word, and what its expressions say: an aggregate of a user may have forgotten to tell.
        read = _roots(*aggregate.partial("value"))
        if read is None:
            return list(schema)
        used |= {*aggregate.columns(), *read}
    return [name for name in schema if name in used]


def source_columns(
    steps: tuple[Step, ...], needed: list[str], schema: pl.Schema, strategy: WatermarkStrategy | None = None
) -> list[str]:
    """Tell the columns of a source that steps and what follows them read, in the order of the schema.

    Args:
        steps: The steps between the source and what follows.
        needed: The columns that must come out of them.
        schema: The columns of the source.
        strategy: The watermark strategy, which may read columns of its own.
    """
    used = {EVENT_TIME, *needed, *_strategy_columns(strategy)}
    for step in reversed(steps):
        made: set[str] = set()
        if isinstance(step, Filter):
            read = _roots(step.predicate)
        elif isinstance(step, WithColumns | Select):
            made = {name for name, _ in step.columns}
            read = _roots(*(expression for _, expression in step.columns))
        elif isinstance(step, FlatMap):
            made, read = {step.name}, _roots(step.items)
        elif isinstance(step, Drop):
            read = set()
        elif isinstance(step, Enrich):
            made, read = set(step.gives), step.reads
        else:
            read = None
        if read is None:
            return list(schema)
        used = (used - made) | read
    used |= {EVENT_TIME, *_strategy_columns(strategy)}
    return [name for name in schema if name in used]


def _roots(*expressions: pl.Expr) -> set[str] | None:
    """Tell the columns that expressions read; None where they choose by a pattern or a type (`pl.all()`)."""
    if any(expression.meta.has_multiple_outputs() for expression in expressions):
        return None
    return {root for expression in expressions for root in expression.meta.root_names()}


def _strategy_columns(strategy: WatermarkStrategy | None) -> set[str]:
    if isinstance(strategy, Punctuated):
        return set(strategy.mark.meta.root_names())
    return {strategy.column} if isinstance(strategy, Perfect) and strategy.column is not None else set()
