"""DISTINCT, UNION, INTERSECT and EXCEPT: how often a row is in the result follows from how often it is in each input.

The operator keeps each different row once, with the number of times that each input holds it. A turn adds the changes
of its rows, and tells by how much their number in the result has changed. Rows are compared by all columns but
`event_time`, nulls and NaN as equal; `event_time` of a result is the earliest of the rows that brought it in, and the
same for all copies of a row while there is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import polars as pl

from headrace.engine.changelog import WEIGHT, sign, unweighted
from headrace.engine.operator import EVENT_TIME, IS_RETRACTION, Outcome
from headrace.tables.held import Held, resplit_held
from headrace.time.duration import text
from headrace.time.instants import INSTANT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.engine import Segments, Turn

#: What is asked of several tables; `all` keeps copies of a row, the others give each row once.
SetOperation = Literal["distinct", "union", "intersect", "intersect_all", "except", "except_all"]

_SIDES = ("#left", "#right")
_SAID, _FIRST, _FRESH, _NEWEST = "#said", "#first", "#fresh", "#newest"


@dataclass(frozen=True)
class MultisetOperator:
    """Tells how the result of a set operation changes.

    Args:
        keys: The columns by which rows are spread over key groups and pages.
        columns: The columns of a row, the event time among them.
        operation: What is asked.
        keep_for: How long after its newest change a row is remembered, in microseconds of event time; None: for ever.

    >>> from headrace.engine import MemorySegments, Turn
    >>> state, operator = MemorySegments(), MultisetOperator(("v",), ("v", "event_time"), "distinct")
    >>> def turn(*rows):
    ...     frame = pl.DataFrame(rows, schema={"v": pl.String, "is_retraction": pl.Boolean}, orient="row")
    ...     frame = frame.with_columns(event_time=pl.lit(0).cast(INSTANT))
    ...     found = operator.turn(state, Turn(frame, watermark=0, now=0)).rows
    ...     return None if found is None else found.drop("event_time").rows()
    >>> turn(("a", False), ("a", False))
    [('a', False)]
    >>> turn(("a", True))
    >>> turn(("a", True))
    [('a', True)]
    """

    keys: tuple[str, ...]
    columns: tuple[str, ...]
    operation: SetOperation
    keep_for: int | None = None

    @cached_property
    def _compared(self) -> list[str]:
        return [name for name in self.columns if name != EVENT_TIME]

    def prepare(self, rows: pl.DataFrame, watermark: int | None) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Rows go to their key group as they are."""
        del watermark
        return rows, None

    def schema(self, rows: pl.Schema) -> pl.Schema:
        """The columns of a row, and whether it is taken back."""
        return pl.Schema({**{name: rows[name] for name in self.columns}, IS_RETRACTION: pl.Boolean()})

    def fingerprint(self) -> dict[str, str]:
        """Name what is asked, and the columns that rows are found by."""
        told = {"operator": "multiset", "operation": self.operation, "keys": ",".join(self.keys)}
        return told if self.keep_for is None else {**told, "keep_for": text(self.keep_for)}

    def turn(self, state: Segments, turn: Turn) -> Outcome:
        """Count the rows of a turn, and tell what entered the result and what left it."""
        held = Held.of(state, self.keys)
        parts = [part.rows for part in turn.inputs] if turn.inputs else [turn.rows]
        fresh = [self._signed(rows, side) for side, rows in enumerate(parts) if rows.height]
        if not fresh and not held.is_due(turn.watermark):
            return Outcome(keys=held.rows)
        found = None
        if fresh:
            found = self._count(held, pl.concat(fresh), turn.watermark)
        else:
            self._forget(held, turn.watermark)
        held.save()
        return Outcome(rows=found if found is not None and found.height else None, keys=held.rows)

    def resplit(self, old: Sequence[Segments], new: Sequence[Segments]) -> None:
        """Spread the rows over other key groups."""
        for held in resplit_held(old, new, self.keys, self.keys):
            held.save()

    def _signed(self, rows: pl.DataFrame, side: int) -> pl.DataFrame:
        weight = sign() if IS_RETRACTION in rows.columns else pl.lit(1, dtype=pl.Int64)
        time = pl.col(EVENT_TIME).to_physical()
        return rows.select(
            *self._compared,
            *(
                weight.alias(name) if place == side else pl.lit(0, pl.Int64).alias(name)
                for place, name in enumerate(_SIDES)
            ),
            pl.lit(0, pl.Int64).alias(_SAID),
            pl.lit(None, pl.Int64).alias(_FIRST),
            pl.when(weight > 0).then(time).alias(_FRESH),
            time.alias(_NEWEST),
        )

    def _count(self, held: Held, fresh: pl.DataFrame, watermark: int) -> pl.DataFrame:
        taken = held.take(fresh, watermark=watermark)
        if taken is not None:
            kept = taken.select(*self._compared, *_SIDES, _SAID, _FIRST, pl.lit(None, pl.Int64).alias(_FRESH), _NEWEST)
            fresh = pl.concat([kept, fresh])
        folds = [
            *(pl.col(name).sum() for name in (*_SIDES, _SAID)),
            pl.col(_FIRST).max(),
            pl.col(_FRESH).min(),
            pl.col(_NEWEST).max(),
        ]
        if self._compared:
            counted = fresh.group_by(self._compared, maintain_order=True).agg(folds)
        else:
            counted = fresh.select(folds)
        counted = counted.with_columns(self._number().alias(WEIGHT)).with_columns(
            # Copies of a row share the time at which the first of them came in.
            pl.when(pl.col(_SAID) > 0).then(pl.col(_FIRST)).otherwise(pl.coalesce(_FRESH, _NEWEST)).alias(_FIRST)
        )
        changed = counted.filter(pl.col(WEIGHT) != pl.col(_SAID)).select(
            pl.col(_FIRST).cast(INSTANT).alias(name) if name == EVENT_TIME else pl.col(name) for name in self.columns
        )
        steps = counted.filter(pl.col(WEIGHT) != pl.col(_SAID)).select(pl.col(WEIGHT) - pl.col(_SAID)).to_series()
        self._keep(held, counted.with_columns(pl.col(WEIGHT).alias(_SAID)), watermark)
        return unweighted(changed.with_columns(steps.alias(WEIGHT)))

    def _number(self) -> pl.Expr:
        """Tell how often a row is in the result."""
        left, right = (pl.col(name).clip(lower_bound=0) for name in _SIDES)
        match self.operation:
            case "distinct":
                return (left > 0).cast(pl.Int64)
            case "union":
                return ((left > 0) | (right > 0)).cast(pl.Int64)
            case "intersect":
                return ((left > 0) & (right > 0)).cast(pl.Int64)
            case "intersect_all":
                return pl.min_horizontal(left, right)
            case "except":
                return ((left > 0) & (right == 0)).cast(pl.Int64)
            case "except_all":
                return (left - right).clip(lower_bound=0)

    def _forget(self, held: Held, watermark: int) -> None:
        taken = held.take(None, watermark=watermark)
        if taken is not None:
            self._keep(held, taken, watermark)

    def _keep(self, held: Held, rows: pl.DataFrame, watermark: int) -> None:
        kept = rows.filter((pl.col(_SIDES[0]) != 0) | (pl.col(_SIDES[1]) != 0))
        kept = kept.select(*self._compared, *_SIDES, _SAID, _FIRST, _NEWEST)
        if self.keep_for is None:
            held.put(kept)
            return
        over = pl.col(_NEWEST) + self.keep_for
        kept = kept.filter(over.is_null() | (over > watermark))
        held.put(kept, kept.select(over).to_series())
