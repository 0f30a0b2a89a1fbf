"""A stream without a stateful step, made one that a runner can run: its rows pass through as they come.

A job without a stateful step is refused, as filtering alone needs no Headrace; whoever only wants to look at a stream
(`headrace sql --follow`) still does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.engine.operator import ORIGINAL, Outcome, Turn
from headrace.stream import plan
from headrace.stream.stream import Stream

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from headrace.engine.state import Segments


class PassingOperator:
    """Gives the rows it is given."""

    def prepare(self, rows: pl.DataFrame, watermark: int | None) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Rows go on as they are."""
        del watermark
        return rows, None

    def turn(self, state: Segments, turn: Turn) -> Outcome:
        """Pass the rows on."""
        del state
        return Outcome(rows=turn.rows.drop(ORIGINAL, strict=False) if turn.rows.height else None)

    def resplit(self, old: Sequence[Segments], new: Sequence[Segments]) -> None:
        """There is nothing to spread."""

    def schema(self, rows: pl.Schema) -> pl.Schema:
        """The columns of the rows."""
        return rows

    def fingerprint(self) -> dict[str, str]:
        """There is no state."""
        return {"operator": "pass"}


def _build(keys: tuple[str, ...], schema: pl.Schema) -> PassingOperator:
    del keys, schema
    return PassingOperator()


def runnable(stream: Stream) -> Stream:
    """The same stream, with a step that passes rows on where it has no stateful one.

    >>> import polars as pl
    >>> from headrace.inprocess import run
    >>> from headrace.time import bounded
    >>> stream = Stream.rows("doors", {"door": pl.String}).watermark(bounded("1s")).filter(pl.col("door") != "b")
    >>> rows = pl.DataFrame({"door": ["a", "b"], "event_time": [0, 1]}).cast({"event_time": pl.Datetime("us", "UTC")})
    >>> run(runnable(stream), rows).results["door"].to_list()
    ['a']
    """
    if stream.node.stateful:
        return stream
    keyed = plan.KeyBy(input=stream.node, schema=stream.schema)
    return Stream(plan.Processed(input=keyed, does="pass", description="pass", make=_build, schema=stream.schema))
