"""Which key the results of an INSERT INTO have.

Results of a job are told apart by the key columns of its last step that keeps state (docs/delivery.md), and records in
Kafka are keyed by them. A query may leave such a column out, or call it otherwise: then it is kept beside the columns
of the query, where only the job sees it. Where that cannot be done, and for queries without state, a last step is added
that keeps nothing and is keyed by the columns of the result.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from headrace.engine.operator import EVENT_TIME, PANE_INDEX, WINDOW_END, WINDOW_START
from headrace.stream import Stream, plan
from headrace.stream.pipeline import compile_outputs
from headrace.stream.steps import Drop, Select, replaces, schema_after
from headrace.streaming_sql.passing import runnable
from headrace.streaming_sql.steps import needs_text, unkeyed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.stream.steps import Step


def keyed_results(stream: Stream, columns: Sequence[str], named: Sequence[str] = ()) -> Stream:
    """See to it that results can be told apart.

    Args:
        stream: The results.
        columns: The columns of the stream that are written.
        named: Those of them that name a row, where it is known.
    """
    if stream.node.stateful:
        kept = _with_keys(stream)
        if not _loses_keys(kept):
            return kept
    keys = [each for each in named or columns if each != EVENT_TIME and not needs_text(stream.schema[each])]
    return runnable(unkeyed(stream), keys=dict.fromkeys(keys), always=True)


def _with_keys(stream: Stream) -> Stream:
    """Keep the keys of the last step with state through the steps behind it."""
    steps: list[Step] = []
    node = stream.node
    while isinstance(node, plan.Stateless | plan.KeyBy) and not isinstance(node, plan.Changelog):
        if isinstance(node, plan.Stateless):
            steps.append(node.step)
        node = node.input
    pipeline = compile_outputs({"": stream.node})
    if len(pipeline.outputs) != 1:
        return stream
    (way,) = pipeline.outputs
    # Results of a window that fires again are told apart by the window and the number of the pane.
    panes = (WINDOW_START, WINDOW_END, PANE_INDEX) if pipeline.stages[way.stage].fires_again else ()
    keys = [key for key in (*way.keys, *panes) if key in node.schema]
    if not keys or all(key in stream.schema for key in keys):
        return stream
    for step in reversed(steps):
        if isinstance(step, Drop):
            step = Drop(tuple(name for name in step.names if name not in keys))
        elif isinstance(step, Select):
            chosen = dict(step.columns)
            missing = {key: pl.col(key) for key in keys if key not in chosen}
            step = replace(step, columns=tuple({**chosen, **missing}.items()))
        schema = schema_after(step, node.schema, where=step.text)
        node = plan.Stateless(input=node, step=step, schema=schema, keys=())
    return Stream(node)


def _loses_keys(stream: Stream) -> bool:
    """Tell whether results lack a key column, or have other values in it."""
    for way in compile_outputs({"": stream.node}).outputs:
        for key in way.keys:
            if key not in way.schema or any(replaces(step, key) or _drops(step, key) for step in way.after_key):
                return True
    return False


def _drops(step: Step, key: str) -> bool:
    if isinstance(step, Select):
        return key not in dict(step.columns)
    return isinstance(step, Drop) and key in step.names
