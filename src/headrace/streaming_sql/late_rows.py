"""`LATE(view)`: the rows that came too late for the windows of a view, as a table."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import polars as pl

from headrace.engine import Outcome
from headrace.engine.operator import WINDOW_END
from headrace.stream import Stream, plan
from headrace.streaming_sql.relation import LateSource, Relation
from headrace.streaming_sql.steps import keyed, unkeyed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.engine import Segments, Turn
    from headrace.streaming_sql.dialect import LateTable
    from headrace.streaming_sql.query import Planner
    from headrace.windows.assigners import Assigner


@dataclass(frozen=True)
class LateRowsOperator:
    """Gives the rows all of whose windows had expired when they came, as the windows themselves judge it.

    Args:
        assigner: The windows.
        lateness: How long after its end a window takes rows, in microseconds.
    """

    assigner: Assigner
    lateness: int

    def prepare(self, rows: pl.DataFrame, watermark: int | None) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Rows stay as they are."""
        del watermark
        return rows, None

    def turn(self, state: Segments, turn: Turn) -> Outcome:
        """Give the rows that are late by the watermark of the turn before."""
        del state
        if not turn.rows.height:
            return Outcome()
        numbered = turn.rows.with_row_index("#row")
        windows = self.assigner.assign(numbered.drop("window_start", "window_end", strict=False))
        last = windows.group_by("#row").agg((pl.col(WINDOW_END).max().cast(pl.Int64) + self.lateness).alias("#last"))
        late = last.filter(pl.col("#last") <= turn.watermark_before)
        rows = numbered.join(late, on="#row", how="semi", maintain_order="left").drop("#row")
        return Outcome(rows=rows if rows.height else None)

    def resplit(self, old: Sequence[Segments], new: Sequence[Segments]) -> None:
        """There is nothing to spread."""

    def schema(self, rows: pl.Schema) -> pl.Schema:
        """The columns that come in."""
        return rows

    def fingerprint(self) -> dict[str, str]:
        """Name the windows; nothing is kept."""
        return {"operator": "late-rows", "windows": self.assigner.describe()}


def plan_late(planner: Planner, node: LateTable) -> Relation:
    """Plan LATE(view)."""
    name = node.this.name
    source = planner.table(node.this).late
    if source is None:
        raise planner.error(
            node,
            f"{name} is no view that groups in windows, so no row is too late for it",
            hint="LATE(view) takes a view whose query is a GROUP BY window_start, window_end.",
        )
    if source.assigner.merges:
        raise planner.error(
            node,
            f"the rows that come too late for the sessions of {name}",
            hint="Whether a session took a row is known to it only; the late topic of its job has them.",
        )
    operator = LateRowsOperator(source.assigner, source.lateness)
    stream = keyed(source.relation.stream, source.keys)
    made = plan.Processed(
        input=stream.node,
        does="late-rows",
        description=f"rows too late for {source.assigner.describe()}",
        make=lambda *_: operator,
        schema=stream.schema,
    )
    columns = tuple(replace(each, table=name) for each in source.relation.columns if each.physical)
    return Relation(unkeyed(Stream(made)), columns)


__all__ = ["LateRowsOperator", "LateSource", "plan_late"]
