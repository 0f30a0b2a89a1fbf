"""Aggregates without a window: one row per group, revised whenever rows of the group come or are taken back.

The operator keeps, of each group, what its aggregates need, how many rows it has, and when its newest one happened. A
turn folds its rows, adds them to what is kept, and tells the net change: the row of the group as it was said last is
taken back, and the one that holds now is added. A group whose rows are all gone is only taken back. A group of all
rows (no key) stays, once it has had a row: the count of nothing is 0.

`event_time` of a result is that of the newest row of its group by then. A change of it alone is not told.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from headrace.engine.changelog import marked, sign
from headrace.engine.operator import EVENT_TIME, IS_RETRACTION, Outcome
from headrace.tables.held import Held, not_of_keys, of_keys, resplit_held
from headrace.time.duration import text
from headrace.time.instants import INSTANT
from headrace.windows.fold import Fold

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.engine import Segments, Turn
    from headrace.windows.aggregates import Aggregate

#: The key of the group of all rows.
_ALL = "#all"
_SIZE, _NEWEST, _SAID, _OLD = "#size", "#newest", "#said", "#old"


@dataclass(frozen=True)
class GroupOperator:
    """Folds all rows of each key into one row.

    Args:
        keys: The columns to group by; none for one group of all rows.
        aggregates: The result columns.
        signed: Whether rows may take back earlier ones.
        keep_for: How long after its newest row a group is kept, in microseconds of event time; None: for ever.
        step: Names the step in messages.

    >>> from headrace.engine import MemorySegments, Turn
    >>> from headrace.windows import count
    >>> state, operator = MemorySegments(), GroupOperator(("depot",), (("n", count()),))
    >>> def turn(*depots):
    ...     rows = pl.DataFrame({"depot": depots}).with_columns(event_time=pl.lit(0).cast(INSTANT))
    ...     return operator.turn(state, Turn(rows, watermark=0, now=0)).rows.drop("event_time").rows()
    >>> turn("a", "b", "a")
    [('a', 2, False), ('b', 1, False)]
    >>> turn("a")
    [('a', 2, True), ('a', 3, False)]
    """

    keys: tuple[str, ...]
    aggregates: tuple[tuple[str, Aggregate], ...]
    signed: bool = False
    keep_for: int | None = None
    step: str = "aggregate"

    @cached_property
    def _own_keys(self) -> tuple[str, ...]:
        return self.keys or (_ALL,)

    @cached_property
    def _fold(self) -> Fold:
        moves = ((name, each.retracting() if self.signed else each) for name, each in self.aggregates)
        return Fold(self._own_keys, tuple(moves))

    def reads(self, rows: pl.Schema) -> set[str] | None:
        """The keys, what the aggregates read, the time, and what is taken back."""
        read = self._fold.reads()
        if read is None:
            return None
        return (read | {*self.keys, EVENT_TIME} | ({IS_RETRACTION} if self.signed else set())) & set(rows)

    def schema(self, rows: pl.Schema) -> pl.Schema:
        """The keys, the aggregates, the time of the newest row, and whether the result is taken back."""
        found = self._fold.results(self._fold.partials(self._with_key(rows.to_frame()))).select(
            *self.keys, *(name for name, _ in self.aggregates)
        )
        return pl.Schema({**found.schema, EVENT_TIME: INSTANT, IS_RETRACTION: pl.Boolean()})

    def fingerprint(self) -> dict[str, str]:
        """Name what the groups that are kept depend on."""
        told = {"operator": "group", "keys": ",".join(self.keys), "signed": str(self.signed)}
        if self.keep_for is not None:
            told["keep_for"] = text(self.keep_for)
        return told | {f"aggregate {name}": aggregate.describe() for name, aggregate in self.aggregates}

    def prepare(self, rows: pl.DataFrame, watermark: int | None) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Fold rows of a batch before they are sent: none of them can be late."""
        del watermark
        return (rows.clear(), self._folded(rows)) if rows.height else (rows, None)

    def turn(self, state: Segments, turn: Turn) -> Outcome:
        """Add the rows of a turn to their groups, and tell how the results changed."""
        held = Held.of(state, self._own_keys)
        parts = [] if turn.partials is None or turn.partials.is_empty() else [turn.partials]
        if turn.rows.height:
            parts.append(self._folded(turn.rows))
        found = None
        if parts:
            found = self._add(held, self._merged(pl.concat(parts)), turn.watermark)
            held.save()
        elif held.is_due(turn.watermark):
            taken = held.take(None, watermark=turn.watermark)
            if taken is not None:
                self._keep(held, taken, turn.watermark)
            held.save()
        return Outcome(rows=found, keys=held.rows)

    def resplit(self, old: Sequence[Segments], new: Sequence[Segments]) -> None:
        """Spread the groups over other key groups."""
        for held in resplit_held(old, new, self._own_keys, self.keys):
            held.save()

    def _with_key(self, rows: pl.DataFrame) -> pl.DataFrame:
        return rows if self.keys else rows.with_columns(pl.lit(0, dtype=pl.Int8).alias(_ALL))

    def _folded(self, rows: pl.DataFrame) -> pl.DataFrame:
        keyed = self._with_key(rows)
        weight = sign().sum() if self.signed else pl.len().cast(pl.Int64)
        sizes = keyed.group_by(self._own_keys, maintain_order=True).agg(
            weight.alias(_SIZE), pl.col(EVENT_TIME).to_physical().max().alias(_NEWEST)
        )
        folded = self._fold.partials_of(self.step, keyed)
        return folded.with_columns(sizes.get_column(_SIZE), sizes.get_column(_NEWEST))

    def _merged(self, parts: pl.DataFrame, *, compact: bool = False) -> pl.DataFrame:
        sizes = parts.group_by(self._own_keys, maintain_order=True).agg(
            pl.col(_SIZE).sum(), pl.col(_NEWEST).max(), *([pl.col(_SAID).max()] if _SAID in parts.columns else [])
        )
        merged = self._fold.merged(parts, compact=compact)
        return merged.with_columns(sizes.get_columns()[len(self._own_keys) :])

    def _add(self, held: Held, fresh: pl.DataFrame, watermark: int) -> pl.DataFrame | None:
        keys = self._own_keys
        taken = held.take(fresh, watermark=watermark)
        fresh = fresh.with_columns(pl.lit(None, dtype=pl.Int64).alias(_SAID))
        if taken is None:
            old, others, now = fresh.clear(), None, self._compacted(fresh)
        else:
            old = of_keys(taken, fresh, keys)
            others = not_of_keys(taken, fresh, keys)
            now = self._merged(pl.concat([old, fresh.select(old.columns)], how="vertical_relaxed"), compact=True)
        changed = self._changes(old, now)
        said = changed.filter(~pl.col(IS_RETRACTION)).select(*keys, pl.col(EVENT_TIME).to_physical().alias("#now"))
        now = now.join(said, on=list(keys), how="left", nulls_equal=True, maintain_order="left")
        now = now.with_columns(pl.coalesce("#now", _SAID).alias(_SAID)).drop("#now")
        kept = now if others is None or others.is_empty() else pl.concat([others, now.select(others.columns)])
        self._keep(held, kept, watermark)
        found = changed.select(*self.keys, *(name for name, _ in self.aggregates), EVENT_TIME, IS_RETRACTION)
        return found if found.height else None

    def _compacted(self, parts: pl.DataFrame) -> pl.DataFrame:
        shrink = [expr for name, aggregate in self._fold.aggregates for expr in aggregate.compact(name)]
        return parts.with_columns(shrink) if shrink else parts

    def _changes(self, old: pl.DataFrame, now: pl.DataFrame) -> pl.DataFrame:
        """Compare the results of groups before and after; a row per group in each frame."""
        names = [name for name, _ in self.aggregates]
        before, after = self._results(old, _SAID), self._results(now, _NEWEST)
        if before.is_empty():
            return marked(after, retraction=False)
        keys = list(self._own_keys)
        beside = before.select(*keys, *(pl.col(name).alias(f"{_OLD}{name}") for name in names), pl.lit(1).alias(_OLD))
        met = after.join(beside, on=keys, how="left", nulls_equal=True, maintain_order="left")
        differs = pl.col(_OLD).is_null()
        for name in names:
            differs |= pl.col(name).ne_missing(pl.col(f"{_OLD}{name}"))
        added = met.filter(differs).select(after.columns)
        same = met.filter(~differs)
        gone = not_of_keys(before, same, keys)
        both = pl.concat([marked(gone, retraction=True), marked(added, retraction=False)])
        return both.sort(keys, maintain_order=True) if gone.height and added.height else both

    def _results(self, groups: pl.DataFrame, time: str) -> pl.DataFrame:
        there = groups.filter(pl.col(_SIZE) > 0) if self.keys else groups
        values = self._fold.results(there)
        return values.with_columns(there.get_column(time).cast(INSTANT).alias(EVENT_TIME))

    def _keep(self, held: Held, groups: pl.DataFrame, watermark: int) -> None:
        kept = groups.filter(pl.col(_SIZE) != 0) if self.keys else groups
        if self.keep_for is None:
            held.put(kept)
            return
        over = pl.col(_NEWEST) + self.keep_for
        kept = kept.filter(over.is_null() | (over > watermark))
        held.put(kept, kept.select(over).to_series())
