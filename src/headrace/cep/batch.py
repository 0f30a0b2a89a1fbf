"""A pattern over a frame that is all there: for notebooks, tests, and data at rest.

The rows are sorted by event time, and matched as a stream would be that ends with the last row: time goes on to its end
then, so what must not come has not come (`not_followed_by` at the end of a pattern). With `watermark` time stops there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from headrace.cep.operator import PatternOperator
from headrace.engine.operator import EVENT_TIME, Turn
from headrace.engine.state import MemorySegments
from headrace.errors import PlanError
from headrace.time.instants import END

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.cep.measures import Measure
    from headrace.cep.pattern import Pattern

_INSTANT = pl.Datetime("us", "UTC")


def find(
    pattern: Pattern,
    rows: pl.DataFrame,
    *,
    key: str | Sequence[str] = (),
    measures: Mapping[str, Measure] | None = None,
    watermark: int | None = None,
) -> pl.DataFrame:
    """Find a pattern in a frame.

    Args:
        pattern: What to find.
        rows: Rows in any order, with the event time in `event_time` (an instant in UTC).
        key: The key column or columns; each key is matched by itself.
        measures: The columns of a match; its first and last event time if none is given.
        watermark: Time, in microseconds since the epoch, up to which it is known that no row is missing; the rows are
            all there if none is given.

    Returns:
        A row per match: the key, the time at which it was decided as `event_time`, and the measures.

    >>> from headrace.cep import Pattern
    >>> from headrace.cep.measures import collect
    >>> rows = pl.DataFrame({"v": [1, 9, 1, 8], "event_time": [0, 1, 2, 3]}).cast({"event_time": _INSTANT})
    >>> up = Pattern.begin("low", pl.col("v") < 2).next("high", pl.col("v") > 5)
    >>> find(up, rows, measures={"values": collect("v")})["values"].to_list()
    [[1, 9], [1, 8]]
    """
    if rows.schema.get(EVENT_TIME) != _INSTANT:
        raise PlanError(
            f"the rows' {EVENT_TIME} is {rows.schema.get(EVENT_TIME)}, not {_INSTANT}",
            hint=f'Make it one: rows.with_columns(pl.col("...").cast(pl.Datetime("us", "UTC")).alias("{EVENT_TIME}")).',
        )
    operator = PatternOperator(pattern, key=[key] if isinstance(key, str) else key, measures=measures)
    schema = operator.schema(rows.schema)
    newest = rows[EVENT_TIME].dt.epoch("us").max()
    if newest is None:
        return pl.DataFrame(schema=schema)
    state, end = MemorySegments(), int(str(newest)) + 1
    turns = [Turn(rows, end, end)]
    watermark = END if watermark is None else watermark
    if watermark > end:
        turns.append(Turn(rows[:0], watermark, watermark))
    found = [outcome.rows for turn in turns if (outcome := operator.turn(state, turn)).rows is not None]
    return pl.concat([frame for frame in found if frame is not None]) if found else pl.DataFrame(schema=schema)
