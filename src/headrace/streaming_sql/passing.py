"""Queries that keep nothing: a runner needs a step that does, so their rows pass through one that has no state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.engine import Outcome
from headrace.engine.operator import ORIGINAL
from headrace.stream import Stream, plan

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import polars as pl

    from headrace.engine import Segments, Turn


@dataclass(frozen=True)
class PassOperator:
    """Lets all rows pass."""

    def prepare(self, rows: pl.DataFrame, watermark: int | None) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Rows stay as they are."""
        del watermark
        return rows, None

    def turn(self, state: Segments, turn: Turn) -> Outcome:
        """Give the rows that came."""
        del state
        return Outcome(rows=turn.rows.drop(ORIGINAL, strict=False) if turn.rows.height else None)

    def resplit(self, old: Sequence[Segments], new: Sequence[Segments]) -> None:
        """There is nothing to spread."""

    def schema(self, rows: pl.Schema) -> pl.Schema:
        """The columns that come in."""
        return rows

    def fingerprint(self) -> dict[str, str]:
        """It keeps nothing."""
        return {"operator": "pass"}


def runnable(stream: Stream, keys: Iterable[str] = (), *, always: bool = False) -> Stream:
    """Make a stream without state one that a runner takes; any other stays as it is.

    Args:
        stream: The stream.
        keys: The columns by which its rows are spread and told apart.
        always: Whether a stream with state gets such a step, too.
    """
    if stream.node.stateful and not always:
        return stream
    keyed = plan.KeyBy(input=stream.node, schema=stream.schema, keys=tuple(keys), null_keys=True)
    operator = PassOperator()
    node = plan.Processed(
        input=keyed,
        does="pass",
        description="pass rows on",
        make=lambda *_: operator,
        schema=stream.schema,
        takes_updates=True,
        gives_updates=stream.node.retracts,
    )
    return Stream(node)
