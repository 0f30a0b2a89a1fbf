"""Joins of two tables: the result is a table too, and follows every change of both.

Both sides are kept by key, each different row once, with how often it is there and, where rows without a partner
matter, with how many partners. A turn reads the rows of the keys that changed. What it gives is the net change of the
joined rows: with counts a, b before and a', b' after, a pair changes by a'b' - ab; a row is given without a partner
when it has none any more, and taken back when it gets one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from headrace.engine.changelog import WEIGHT, net, unweighted
from headrace.engine.operator import IS_RETRACTION, Outcome
from headrace.engine.state import record_to_bytes
from headrace.joins.kept_rows import KeptRows
from headrace.joins.multiset import (
    CHANGE,
    COUNT,
    INDEX,
    PARTNERS,
    TAKEN,
    deltas,
    keep,
    kept_form,
    merged,
    resplit_sides,
    saved_sides,
)
from headrace.joins.sides import LEFT_PLACE, RIGHT_PLACE, JoinColumns, Side

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.engine.operator import Turn
    from headrace.engine.state import Segments

_LEFT = (COUNT, CHANGE)
_RIGHT = ("#right_count", "#right_change")


@dataclass(frozen=True)
class TableJoin:
    """Joins the rows of two tables.

    Args:
        columns: What is compared, and what a joined row has.
    """

    columns: JoinColumns

    def prepare(self, rows: pl.DataFrame, watermark: int | None) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Rows stay as they are."""
        del watermark
        return rows, None

    def turn(self, state: Segments, turn: Turn) -> Outcome:
        """Bring both sides up to date, and give what that changes."""
        if all(each.rows.is_empty() for each in turn.inputs):
            return Outcome()
        spec = self.columns
        saved = saved_sides(state)
        stores = [KeptRows(state, side.name, side.keys, saved.get(side.name)) for side in (spec.left, spec.right)]
        changes = [deltas(side, each.rows) for side, each in zip((spec.left, spec.right), turn.inputs, strict=True)]
        frames = [(changes[0], spec.left.keys), (changes[1], spec.right.keys)]
        held = [store.take(frames, kept_form(own)) for store, own in zip(stores, changes, strict=True)]
        left, right = (merged(kept, own) for kept, own in zip(held, changes, strict=True))
        pairs = self._pairs(left, right)
        parts: list[pl.DataFrame] = []
        if not spec.left_only:
            before = pl.col(_LEFT[0]) * pl.col(_RIGHT[0])
            after = (pl.col(_LEFT[0]) + pl.col(_LEFT[1])) * (pl.col(_RIGHT[0]) + pl.col(_RIGHT[1]))
            parts.append(_weighed(spec.matched(pairs), pairs.select(after - before).to_series()))
        partners = [
            self._partners(rows, pairs, place, theirs) if waits else None
            for rows, place, theirs, waits in (
                (left, LEFT_PLACE, _RIGHT, spec.waits_left),
                (right, RIGHT_PLACE, _LEFT, spec.pads_right),
            )
        ]
        for side, rows, counts in zip((spec.left, spec.right), (left, right), partners, strict=True):
            if counts is not None:
                parts.append(self._alone(side, rows, counts))
        for store, kept, rows, counts in zip(stores, held, (left, right), partners, strict=True):
            keep(store, kept, rows, counts)
        saved = {"left": stores[0].record(), "right": stores[1].record()}
        state.put(INDEX, record_to_bytes(saved))
        filled = [part for part in parts if part.height]
        found = net(pl.concat(filled)) if filled else None
        return Outcome(
            rows=found if found is not None and found.height else None, keys=sum(store.rows for store in stores)
        )

    def schema(self, rows: pl.Schema) -> pl.Schema:
        """Tell the columns of a joined row, and whether it is taken back."""
        del rows
        return pl.Schema({**self.columns.schema(), IS_RETRACTION: pl.Boolean()})

    def fingerprint(self) -> dict[str, str]:
        """Name what the kept rows depend on."""
        return {"operator": "table join", **self.columns.fingerprint()}

    def resplit(self, old: Sequence[Segments], new: Sequence[Segments]) -> None:
        """Spread the rows of both sides over other key groups."""
        resplit_sides(old, new, (self.columns.left, self.columns.right))

    def _pairs(self, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        """Find the pairs in which a side has changed."""
        spec = self.columns
        lefts = left.drop(PARTNERS, TAKEN).with_row_index(LEFT_PLACE)
        rights = right.drop(PARTNERS, TAKEN).rename(dict(zip(_LEFT, _RIGHT, strict=True))).with_row_index(RIGHT_PLACE)
        changed = pl.col(CHANGE) != 0
        return pl.concat(
            [
                spec.pairs(lefts.filter(changed), rights),
                spec.pairs(lefts.filter(~changed), rights.filter(pl.col(_RIGHT[1]) != 0)),
            ]
        )

    def _partners(self, rows: pl.DataFrame, pairs: pl.DataFrame, place: str, theirs: tuple[str, str]) -> pl.Series:
        """Count the partners of each row now: those that it had, and the change; of a new row all that there are."""
        count, change = theirs
        sums = pairs.group_by(place).agg(
            pl.col(change).sum().alias("#more"), (pl.col(count) + pl.col(change)).sum().alias("#all")
        )
        beside = rows.select(PARTNERS).with_row_index(place).join(sums, on=place, how="left", maintain_order="left")
        more, every = pl.col("#more").fill_null(0), pl.col("#all").fill_null(0)
        return beside.select(
            pl.when(pl.col(PARTNERS).is_null()).then(every).otherwise(pl.col(PARTNERS) + more).alias("#now")
        ).to_series()

    def _alone(self, side: Side, rows: pl.DataFrame, partners: pl.Series) -> pl.DataFrame:
        """Give the changes of the rows that are given by themselves: without a partner, or in a semi join with one."""
        spec = self.columns
        wanted_before = pl.col(PARTNERS).fill_null(0) == 0
        wanted_now = pl.col("#now") == 0
        if spec.how == "semi":
            wanted_before, wanted_now = pl.col(PARTNERS).fill_null(0) != 0, pl.col("#now") != 0
        before = pl.when(wanted_before).then(pl.col(COUNT)).otherwise(0)
        now = pl.when(wanted_now).then(pl.col(COUNT) + pl.col(CHANGE)).otherwise(0)
        told = rows.with_columns(partners.alias("#now")).with_columns((now - before).alias(WEIGHT))
        some = told.filter(pl.col(WEIGHT) != 0)
        padded = spec.padded_left(some) if side.name == "left" else spec.padded_right(some)
        return _weighed(padded, some.get_column(WEIGHT))


def _weighed(rows: pl.DataFrame, weights: pl.Series) -> pl.DataFrame:
    """Give rows as often as they weigh: additions where that is positive, retractions where it is negative."""
    return unweighted(rows.with_columns(weights.alias(WEIGHT)).filter(pl.col(WEIGHT) != 0))
