"""Joins of two tables by the nearest row: of the right rows with an equal key, the one whose value is closest.

"Closest" is by an inequality: of the right values that are at most (or at least, below, above) the left one the
nearest, and of equally near ones that with the smallest key. The result follows every change of both tables: when a
nearer row comes or the nearest one goes, the old pair is taken back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import polars as pl

from headrace.engine.changelog import WEIGHT, net, unweighted
from headrace.engine.operator import IS_RETRACTION, Outcome
from headrace.engine.state import record_to_bytes
from headrace.joins.kept_rows import KeptRows, key_numbers
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
from headrace.joins.sides import LEFT_PLACE, JoinColumns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.engine.operator import Turn
    from headrace.engine.state import Segments

#: left op right
Comparison: TypeAlias = Literal["<", "<=", ">", ">="]
COMPARISONS: Final = ("<", "<=", ">", ">=")
_KEY, _LEFT, _RIGHT = "#key", "#left_value", "#right_value"


@dataclass(frozen=True)
class NearestJoin:
    """Joins each left row with the nearest right row.

    Args:
        columns: What is compared, and what a joined row has.
        left: The left column of the inequality, inside the join.
        comparison: How the left value compares with the right one.
        right: The right column.
        order: The right columns that decide between equally near rows.
    """

    columns: JoinColumns
    left: str
    comparison: Comparison
    right: str
    order: tuple[str, ...]

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
        before = self._given(left, right, pl.col(COUNT)).with_columns(-pl.col(WEIGHT))
        after = self._given(left, right, pl.col(COUNT) + pl.col(CHANGE))
        for store, kept, rows in zip(stores, held, (left, right), strict=True):
            keep(store, kept, rows)
        state.put(INDEX, record_to_bytes({"left": stores[0].record(), "right": stores[1].record()}))
        found = net(unweighted(pl.concat([before, after])))
        return Outcome(rows=found if found.height else None, keys=sum(store.rows for store in stores))

    def schema(self, rows: pl.Schema) -> pl.Schema:
        """Tell the columns of a joined row, and whether it is taken back."""
        del rows
        return pl.Schema({**self.columns.schema(), IS_RETRACTION: pl.Boolean()})

    def fingerprint(self) -> dict[str, str]:
        """Name what the kept rows depend on."""
        told = {"nearest": f"{self.left} {self.comparison} {self.right}", "order": ",".join(self.order)}
        return {"operator": "nearest join", **self.columns.fingerprint(), **told}

    def _given(self, left: pl.DataFrame, right: pl.DataFrame, count: pl.Expr) -> pl.DataFrame:
        """Give the joined rows of the tables as they are with these counts, with their weights."""
        spec = self.columns
        lefts = left.with_columns(count.alias(WEIGHT)).filter(pl.col(WEIGHT) > 0)
        lefts = lefts.drop(COUNT, CHANGE, PARTNERS, TAKEN).with_row_index(LEFT_PLACE)
        rights = right.filter(count > 0).drop(COUNT, CHANGE, PARTNERS, TAKEN)
        pairs = self._pairs(lefts, rights)
        parts = [spec.matched(pairs).with_columns(pairs.get_column(WEIGHT))]
        if spec.how == "left":
            alone = lefts.join(pairs, on=LEFT_PLACE, how="anti", maintain_order="left")
            parts.append(spec.padded_left(alone).with_columns(alone.get_column(WEIGHT)))
        return pl.concat(parts)

    def resplit(self, old: Sequence[Segments], new: Sequence[Segments]) -> None:
        """Spread the rows of both sides over other key groups."""
        resplit_sides(old, new, (self.columns.left, self.columns.right))

    def _pairs(self, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        """Find the nearest right row of each left row that has one."""
        spec = self.columns
        if spec.where is not None:
            return self._among_all(left, right)
        if not spec.null_safe:
            left, right = left.filter(spec.left.has_key), right.filter(spec.right.has_key)
        lefts, rights = key_numbers(left, spec.left.keys, right, spec.right.keys, _KEY)
        kind = pl.concat(
            [left.select(pl.col(self.left).alias("v")).clear(), right.select(pl.col(self.right).alias("v")).clear()],
            how="vertical_relaxed",
        ).schema["v"]
        lefts = lefts.with_columns(pl.col(self.left).cast(kind).alias(_LEFT)).drop_nulls(_LEFT)
        rights = rights.with_columns(pl.col(self.right).cast(kind).alias(_RIGHT)).drop_nulls(_RIGHT)
        rights = rights.sort(_KEY, _RIGHT, *self.order, maintain_order=True)
        rights = rights.unique([_KEY, _RIGHT], keep="first", maintain_order=True).with_columns(
            pl.lit(value=True).alias("#met")
        )
        found = lefts.sort(_LEFT, maintain_order=True).join_asof(
            rights.sort(_RIGHT, maintain_order=True),
            left_on=_LEFT,
            right_on=_RIGHT,
            by=_KEY,
            strategy="backward" if self.comparison.startswith(">") else "forward",
            allow_exact_matches=self.comparison.endswith("="),
            coalesce=False,
            check_sortedness=False,
        )
        return found.filter("#met").sort(LEFT_PLACE)

    def _among_all(self, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        """Find the nearest among the pairs that fulfil the further condition."""
        one, two = pl.col(self.left), pl.col(self.right)
        near = {"<": one < two, "<=": one <= two, ">": one > two, ">=": one >= two}[self.comparison]
        pairs = self.columns.pairs(left, right, near)
        return pairs.sort(
            LEFT_PLACE,
            self.right,
            *self.order,
            descending=[False, self.comparison.startswith(">"), *[False] * len(self.order)],
        ).unique(LEFT_PLACE, keep="first", maintain_order=True)
