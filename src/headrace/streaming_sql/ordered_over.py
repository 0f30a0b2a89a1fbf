"""OVER in an order that is not that of time, or over rows that may be taken back: results are revised.

A row that comes changes what is computed for the rows behind it, so the operator keeps all rows of each partition and
computes those that a turn touches anew. What it gives is the difference. A turn costs as much as the partitions that it
touches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import polars as pl

from headrace.engine import MemorySegments, Outcome
from headrace.engine.changelog import changes
from headrace.engine.operator import EVENT_TIME, IS_RETRACTION, Turn
from headrace.tables.held import Held, of_keys, resplit_held
from headrace.tables.over import OverOperator
from headrace.time.instants import END, INSTANT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.engine import Segments
    from headrace.tables.frames import Frame, OverFunction

_ARRIVED, _BACK, _TIME, _COPY, _ONE = "#arrived", "#back", "row_time", "#copy", "#one"
#: The order of rows is told as microseconds from here.
_ORIGIN: Final = 0


@dataclass(frozen=True)
class OrderedOverOperator:
    """Adds what a frame says to each row, in any order, and takes back what is no longer so.

    Args:
        keys: The columns to partition by; none for one partition of all rows.
        columns: The columns of a row, the event time among them.
        order: The columns to order by, each with whether it descends; null is the smallest value.
        frame: Which rows count.
        functions: The new columns.
        range_of: The column that a frame of a distance is measured in; empty for frames without one.
    """

    keys: tuple[str, ...]
    columns: tuple[str, ...]
    order: tuple[tuple[str, bool], ...]
    frame: Frame
    functions: tuple[tuple[str, OverFunction], ...]
    range_of: str = ""

    def prepare(self, rows: pl.DataFrame, watermark: int | None) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Rows go to their key group as they are."""
        del watermark
        return rows, None

    def schema(self, rows: pl.Schema) -> pl.Schema:
        """The columns of a row, the new ones, and whether it is taken back."""
        own = pl.Schema({name: rows[name] for name in self.columns})
        inner = self._over.schema(pl.Schema({**own, _TIME: INSTANT, _ARRIVED: pl.Int64()}))
        made = {name: inner[name] for name, _ in self.functions}
        return pl.Schema({**own, **made, IS_RETRACTION: pl.Boolean()})

    def fingerprint(self) -> dict[str, str]:
        """Name the partitions, the order, and what is computed."""
        return {
            "operator": "ordered-over",
            "keys": ",".join(self.keys),
            "order": ", ".join(f"{name} descending" if down else name for name, down in self.order),
            "frame": self.frame.describe(),
            **{f"function {name}": each.describe() for name, each in self.functions},
        }

    def turn(self, state: Segments, turn: Turn) -> Outcome:
        """Compute the partitions anew that rows of the turn belong to."""
        held = Held.of(state, self.keys or (_ONE,))
        if turn.rows.is_empty():
            return Outcome(keys=held.rows)
        start = held.beside.get("arrived", 0)
        held.beside["arrived"] = start + turn.rows.height
        back = (
            pl.col(IS_RETRACTION).fill_null(value=False) if IS_RETRACTION in turn.rows.columns else pl.lit(value=False)
        )
        fresh = turn.rows.select(
            *self.columns, pl.int_range(start, start + pl.len(), dtype=pl.Int64).alias(_ARRIVED), back.alias(_BACK)
        )
        if not self.keys:
            fresh = fresh.with_columns(pl.lit(0, dtype=pl.Int8).alias(_ONE))
        taken = held.take(fresh)
        before = fresh.clear() if taken is None else taken.select(fresh.columns)
        after = self._without_retracted(pl.concat([before, fresh]))
        held.put(after)
        held.save()
        touched = held.keys
        old, new = (self._computed(of_keys(rows, fresh, touched)) for rows in (before, after))
        found = changes(old, new)
        return Outcome(rows=found if found.height else None, keys=held.rows)

    def resplit(self, old: Sequence[Segments], new: Sequence[Segments]) -> None:
        """Spread the partitions over other key groups."""
        keys = self.keys or (_ONE,)
        counted = max(Held.of(state, keys).beside.get("arrived", 0) for state in old)
        for held in resplit_held(old, new, keys, self.keys):
            held.beside["arrived"] = counted
            held.save()

    @property
    def _over(self) -> OverOperator:
        columns = (*(name for name in self.columns if name != EVENT_TIME), _TIME, EVENT_TIME)
        return OverOperator(self.keys, columns, self.frame, self.functions)

    def _without_retracted(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Take out each row that is taken back, the last to arrive of equal ones."""
        if not rows.get_column(_BACK).any():
            return rows
        own = [name for name in self.columns if name != EVENT_TIME]
        rows = rows.with_columns(pl.col(_ARRIVED).rank("ordinal").over([*own, _BACK]).alias(_COPY))
        counted = rows.with_columns(
            pl.col(_BACK).sum().over(own).alias("#gone"), (~pl.col(_BACK)).sum().over(own).alias("#there")
        )
        kept = counted.filter(~pl.col(_BACK) & (pl.col(_COPY) <= pl.col("#there").cast(pl.Int64) - pl.col("#gone")))
        return kept.drop(_COPY, "#gone", "#there")

    def _computed(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Compute the new columns of whole partitions."""
        shown = [*self.columns, *(name for name, _ in self.functions)]
        by = [*(name for name, _ in self.order), _ARRIVED]
        down = [*(each for _, each in self.order), False]
        ordered = rows.sort(by, descending=down, nulls_last=down, maintain_order=True)
        timed = ordered.with_columns(
            pl.col(EVENT_TIME).alias(_TIME), self._moment().cast(INSTANT).alias(EVENT_TIME)
        ).select(*self._over.columns)
        outcome = self._over.turn(MemorySegments(), Turn(timed, watermark=END, now=0)).rows
        if outcome is None:
            return self.schema(rows.select(self.columns).schema).to_frame().select(shown)
        return outcome.with_columns(pl.col(_TIME).alias(EVENT_TIME)).select(shown)

    def _moment(self) -> pl.Expr:
        """Tell the order of rows as times: peers have the same one."""
        if self.range_of:
            down = next((down for name, down in self.order if name == self.range_of), False)
            value = pl.col(self.range_of).to_physical().cast(pl.Int64)
            return -value if down else value
        if not self.order:
            return pl.lit(_ORIGIN, dtype=pl.Int64)
        return pl.struct(name for name, _ in self.order).rle_id().cast(pl.Int64)
