"""Which columns of a source are used at all.

A vehicle's report has thirty fields, a job reads four. What nobody reads is not decoded and not sent to key groups. The
answer is worked out backwards, from what the first operator reads through the steps before it; a step that cannot tell
what it reads (a function on batches, a user's operator) needs everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.engine.operator import EVENT_TIME, Reader
from headrace.time.strategies import Perfect, Punctuated

if TYPE_CHECKING:
    import polars as pl

    from headrace.engine import Operator
    from headrace.stream.steps import Step
    from headrace.time.watermarks import WatermarkStrategy


def operator_columns(operator: Operator, schema: pl.Schema) -> list[str]:
    """Tell the columns that an operator reads, in the order of the schema."""
    read = operator.reads(schema) if isinstance(operator, Reader) else None
    return list(schema) if read is None else [name for name in schema if name in read]


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
        read = step.reads
        if read is None:
            return list(schema)
        used = (used - {*step.gives}) | read
    used |= {EVENT_TIME, *_strategy_columns(strategy)}
    return [name for name in schema if name in used]


def _strategy_columns(strategy: WatermarkStrategy | None) -> set[str]:
    return _read_columns(strategy) | ({strategy.clock} if strategy is not None and strategy.clock else set())


def _read_columns(strategy: WatermarkStrategy | None) -> set[str]:
    if isinstance(strategy, Punctuated):
        return set(strategy.mark.meta.root_names())
    return {strategy.column} if isinstance(strategy, Perfect) and strategy.column is not None else set()
