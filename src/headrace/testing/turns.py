"""Turns of an operator over rows that are all there: cut into pieces, each with its watermark.

A case states rows and what must come out of them. To see that an operator gives it as a stream, too, its rows are cut
into pieces (`cut`), and whoever takes the turns (`Taker`) decides where: in this process (`take_turns`), or in Spark's
state store (`headrace.testing.spark_turns`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

from headrace.engine.operator import EVENT_TIME, Operator, Outcome, Turn
from headrace.engine.state import MemorySegments

if TYPE_CHECKING:
    import polars as pl

#: Lets an operator take turns, one after the other from an empty state.
Taker: TypeAlias = Callable[[Operator, Sequence[Turn]], list[Outcome]]

_PIECES = 3


def take_turns(operator: Operator, turns: Sequence[Turn]) -> list[Outcome]:
    """Take turns in this process."""
    segments = MemorySegments()
    return [operator.turn(segments, turn) for turn in turns]


def cut(rows: pl.DataFrame, *, end: int, pieces: int = _PIECES) -> list[Turn]:
    """Cut rows into turns; the last row of each has to wait for the next, as the watermark has not passed it.

    Args:
        rows: Rows in event-time order.
        end: The watermark of a last turn, which brings no rows.
        pieces: How many turns bring rows.

    >>> import polars as pl
    >>> rows = pl.DataFrame({"event_time": [3, 5, 9]}).cast(pl.Datetime("us", "UTC"))
    >>> [(turn.rows.height, turn.watermark) for turn in cut(rows, end=10, pieces=2)]
    [(1, 3), (2, 9), (0, 10)]
    """
    times = rows[EVENT_TIME].to_physical().to_list()
    places = [rows.height * number // pieces for number in range(pieces + 1)]
    turns = [
        Turn(rows[begin:stop], times[stop - 1], times[stop - 1]) for begin, stop in pairwise(places) if stop > begin
    ]
    return [*turns, Turn(rows[:0], end, end)]
