"""Which columns of a source are used at all.

A vehicle's report has thirty fields, a job reads four. What nobody reads is not decoded and not sent to key groups. The
answer is worked out backwards, from what the first operator reads through the steps before it; a step that cannot tell
what it reads (a function on batches, a user's operator) needs everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.engine.operator import EVENT_TIME
from headrace.stream.steps import Filter, FlatMap, MapBatches, Select, WithColumns
from headrace.windows.assigners import Aligned
from headrace.windows.operator import WindowOperator
from headrace.windows.sliced import SlicedOperator

if TYPE_CHECKING:
    import polars as pl

    from headrace.engine import Operator
    from headrace.stream.steps import Step


def operator_columns(operator: Operator, schema: pl.Schema) -> list[str]:
    """Tell the columns that an operator reads, in the order of the schema."""
    if isinstance(operator, SlicedOperator):
        aggregates = [aggregate for _, aggregate in operator.aggregates]
    elif isinstance(operator, WindowOperator) and isinstance(operator.assigner, Aligned):
        aggregates = list(operator.aggregates.values())
    else:
        return list(schema)
    used = {EVENT_TIME, *operator.keys, *(column for aggregate in aggregates for column in aggregate.columns())}
    return [name for name in schema if name in used]


def source_columns(steps: tuple[Step, ...], needed: list[str], schema: pl.Schema) -> list[str]:
    """Tell the columns of a source that steps and what follows them read, in the order of the schema.

    Args:
        steps: The steps between the source and what follows.
        needed: The columns that must come out of them.
        schema: The columns of the source.
    """
    used = {EVENT_TIME, *needed}
    for step in reversed(steps):
        if isinstance(step, MapBatches):
            return list(schema)
        if isinstance(step, Filter):
            used |= set(step.predicate.meta.root_names())
        elif isinstance(step, WithColumns | Select):
            used -= {name for name, _ in step.columns}
            used |= {root for _, expression in step.columns for root in expression.meta.root_names()}
        elif isinstance(step, FlatMap):
            used = (used - {step.name}) | set(step.items.meta.root_names())
        else:
            return list(schema)
    return [name for name in schema if name in used]
