"""Partial matches as a table for people: where each began, what it has matched, and what it waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from headrace.cep.program import Accept, Consume, Rest
from headrace.engine.contents import instants
from headrace.engine.operator import EVENT_TIME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.cep.program import Program
    from headrace.cep.streaming import Progress


def partial_matches(program: Program, progress: Progress, key: Sequence[str]) -> pl.DataFrame | None:
    """Show what is under way, one row per partial match; None where nothing is.

    Args:
        program: The pattern.
        progress: What is under way.
        key: The key columns.
    """
    rows = progress.rows
    if rows is None or progress.idle:
        return None
    parent, label, row = (progress.nodes[name].to_numpy().astype(np.int64) for name in ("parent", "label", "row"))
    depth = np.ones(len(parent), dtype=np.int64)
    up = parent.copy()
    while (up >= 0).any():
        depth += up >= 0
        up = np.where(up >= 0, parent[np.maximum(up, 0)], -1)
    parts = []
    for held, threads in ((False, progress.threads), (True, progress.held)):
        at, node, start, deadline = (threads[name].to_numpy().astype(np.int64) for name in threads.columns)
        waits = {place: "an earlier partial match" if held else waits_for(program, place) for place in np.unique(at)}
        began, newest = rows[start], rows[row[node]]
        parts.append(
            began.select(*key, pl.col(EVENT_TIME).alias("began")).with_columns(
                pl.Series("rows", depth[node]),
                pl.Series("last", [program.labels[number] for number in label[node]], dtype=pl.String),
                newest.get_column(EVENT_TIME).alias("last_time"),
                pl.Series("waits_for", [waits[place] for place in at], dtype=pl.String),
                instants(pl.Series("deadline", deadline, dtype=pl.Int64)),
                pl.lit(held).alias("complete"),
            )
        )
    return pl.concat(parts)


def waits_for(program: Program, at: int) -> str:
    """Name what a partial match that stands at an instruction waits for.

    >>> from headrace.cep.program import Accept, Consume, Program
    >>> waits_for(Program((Consume("a"), Consume("b"), Accept())), 1)
    'b'
    """
    return " or ".join(dict.fromkeys(_ahead(program, at))) or "the end of its time"


def _ahead(program: Program, at: int) -> list[str]:
    todo, seen, found = [at], {at}, []
    while todo:
        place = todo.pop(0)
        instruction = program.instructions[place]
        if isinstance(instruction, Consume):
            found.append(instruction.label)
            continue
        if isinstance(instruction, Accept) or (isinstance(instruction, Rest) and instruction.completes):
            found.append("the end of its time")
        new = [target for target in program.targets(place) if target not in seen]
        seen.update(new)
        todo.extend(new)
    return found
