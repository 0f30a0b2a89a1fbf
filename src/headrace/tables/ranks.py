"""Top-N: the first rows of each group in some order, revised as rows come and are taken back.

The operator keeps the rows of each group, in the order of their ranks. A turn adds its rows, takes out what is taken
back, ranks the groups that it touched, and tells what entered the first `n` and what left them. Where no row is ever
taken back, only rows that can still be among the first are kept.

Rows that are equal in the order are ranked by arrival, the earlier first; of equal rows the last to arrive is taken
back. Null is the smallest value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import polars as pl

from headrace.engine.changelog import changes, sign
from headrace.engine.operator import EVENT_TIME, IS_RETRACTION, Outcome
from headrace.tables.held import Held, resplit_held
from headrace.time.duration import text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.engine import Segments, Turn

#: How equal rows are numbered: each by its own, or all alike, with gaps or without.
Numbering = Literal["row_number", "rank", "dense_rank"]

_ARRIVED, _SIGN, _RANK, _COPY, _ALL, _BACK, _NEW = "#arrived", "#sign", "#rank", "#copy", "#all", "#back", "#new"


@dataclass(frozen=True)
class RankOperator:
    """Tells how the first rows of each group change.

    Args:
        keys: The columns to group by; none for one group of all rows.
        columns: The columns of a row, the event time among them.
        n: The greatest rank of the result; None for all rows.
        by: The columns that order the rows, each with whether it descends; none: as they arrive.
        last_first: Where nothing else tells rows apart, whether the last to arrive comes first.
        rank: The name of a column with the rank; empty for none.
        numbering: How equal rows are numbered.
        signed: Whether rows may take back earlier ones.
        keep_for: How long after its newest row a group is kept, in microseconds of event time; None: for ever.

    >>> from headrace.engine import MemorySegments, Turn
    >>> from headrace.time.instants import INSTANT
    >>> state, operator = MemorySegments(), RankOperator(("k",), ("k", "v", "event_time"), 1, (("v", True),))
    >>> def turn(*rows):
    ...     frame = pl.DataFrame(rows, schema=["k", "v"], orient="row").with_columns(event_time=pl.lit(0).cast(INSTANT))
    ...     return operator.turn(state, Turn(frame, watermark=0, now=0)).rows.drop("event_time").rows()
    >>> turn(("a", 1), ("a", 3), ("b", 2))
    [('a', 3, False), ('b', 2, False)]
    >>> turn(("a", 5))
    [('a', 3, True), ('a', 5, False)]
    """

    keys: tuple[str, ...]
    columns: tuple[str, ...]
    n: int | None
    by: tuple[tuple[str, bool], ...] = ()
    last_first: bool = False
    rank: str = ""
    numbering: Numbering = "row_number"
    signed: bool = False
    keep_for: int | None = None

    @property
    def appends(self) -> bool:
        """Whether no result is ever taken back: the first to arrive stay the first."""
        return not (self.signed or self.by or self.last_first)

    def prepare(self, rows: pl.DataFrame, watermark: int | None) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Rows go to their key group as they are: which one came first is known only there."""
        del watermark
        return rows, None

    def schema(self, rows: pl.Schema) -> pl.Schema:
        """The columns of a row, its rank, and whether it is taken back."""
        own = {name: rows[name] for name in self.columns}
        ranked = {self.rank: pl.Int64()} if self.rank else {}
        return pl.Schema({**own, **ranked, IS_RETRACTION: pl.Boolean()})

    def fingerprint(self) -> dict[str, str]:
        """Name the groups, the order, and how many rows are kept."""
        order = ", ".join(f"{name} descending" if down else name for name, down in self.by)
        told = {
            "operator": "top",
            "keys": ",".join(self.keys),
            "by": order + (", last first" if self.last_first else ""),
            "n": str(self.n),
            "numbering": self.numbering,
            "signed": str(self.signed),
        }
        return told if self.keep_for is None else {**told, "keep_for": text(self.keep_for)}

    def turn(self, state: Segments, turn: Turn) -> Outcome:
        """Rank the groups that rows of the turn belong to."""
        held = Held.of(state, self.keys)
        if turn.rows.is_empty() and not held.is_due(turn.watermark):
            return Outcome(keys=held.rows)
        found = None
        if turn.rows.is_empty():
            taken = held.take(None, watermark=turn.watermark)
            if taken is not None:
                self._keep(held, taken, turn.watermark)
        else:
            found = self._rank(held, turn.rows, turn.watermark)
        held.save()
        return Outcome(rows=found if found is not None and found.height else None, keys=held.rows)

    def resplit(self, old: Sequence[Segments], new: Sequence[Segments]) -> None:
        """Spread the rows over other key groups.

        Each key group has counted arrivals for itself. The numbers are made unique, and keep their order in a group.
        """
        counted = max(Held.of(state, self.keys).beside.get("arrived", 0) for state in old)
        renumbered = pl.col(_ARRIVED) * len(old)
        for held in resplit_held(
            old, new, self.keys, self.keys, change=lambda number, rows: rows.with_columns(renumbered + number)
        ):
            held.beside["arrived"] = counted * len(old)
            held.save()

    def _rank(self, held: Held, rows: pl.DataFrame, watermark: int) -> pl.DataFrame:
        start = held.beside.get("arrived", 0)
        held.beside["arrived"] = start + rows.height
        weight = sign() if self.signed and IS_RETRACTION in rows.columns else pl.lit(1, dtype=pl.Int64)
        fresh = rows.select(
            *self.columns,
            pl.int_range(start, start + pl.len(), dtype=pl.Int64).alias(_ARRIVED),
            weight.cast(pl.Int8).alias(_SIGN),
        )
        taken = held.take(fresh, watermark=watermark)
        before = fresh.clear() if taken is None else taken.select(fresh.columns)
        # Groups that are not touched come along as they are: their ranks do not change.
        after = self._without_retracted(pl.concat([before, fresh]))
        old, new = self._ranked(before), self._ranked(after)
        kept = after if self.signed or self.n is None else new.select(fresh.columns)
        self._keep(held, kept, watermark)
        shown = [*self.columns, *([self.rank] if self.rank else [])]
        return self._changes(old, new, shown)

    def _changes(self, old: pl.DataFrame, new: pl.DataFrame, shown: list[str]) -> pl.DataFrame:
        if self.appends:
            fresh = new.join(old.select(_ARRIVED), on=_ARRIVED, how="anti", maintain_order="left")
            return fresh.select(shown).with_columns(pl.lit(value=False).alias(IS_RETRACTION))
        # A row that stays has its number of arrival, and where ranks are told, its rank.
        same = [_ARRIVED, self.rank] if self.rank else [_ARRIVED]
        gone = old.join(new, on=same, how="anti", maintain_order="left")
        come = new.join(old, on=same, how="anti", maintain_order="left")
        return changes(gone.select(shown), come.select(shown))

    def _without_retracted(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Match each retraction with an equal row, the last to arrive first; one without a match waits for its row."""
        back = rows.get_column(_SIGN) < 0
        if not back.any():
            return rows
        columns = list(self.columns)
        suspects = rows.join(rows.filter(back).select(columns).unique(), on=columns, how="semi", nulls_equal=True)
        placed = suspects.sort(_ARRIVED, descending=True).with_columns(
            pl.int_range(pl.len()).over([*columns, _SIGN]).alias(_COPY),
            (pl.col(_SIGN) > 0).sum().over(columns).alias(_NEW),
            (pl.col(_SIGN) < 0).sum().over(columns).alias(_BACK),
        )
        matched = pl.col(_COPY) < pl.min_horizontal(_NEW, _BACK)
        return rows.join(placed.filter(matched), on=_ARRIVED, how="anti", maintain_order="left")

    def _ranked(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Give the first rows of each group, with their ranks."""
        there = rows.filter(pl.col(_SIGN) > 0) if self.signed else rows
        names = [name for name, _ in self.by]
        grouped = [*self.keys] or [_ALL]
        if not self.keys:
            there = there.with_columns(pl.lit(0).alias(_ALL))
        ordered = there.sort(
            *grouped,
            *names,
            _ARRIVED,
            descending=[*(False for _ in grouped), *(down for _, down in self.by), self.last_first],
            nulls_last=[*(False for _ in grouped), *(down for _, down in self.by), False],
        )
        name = self.rank or _RANK
        ranked = ordered.with_columns(pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over(grouped).alias(name))
        if self.numbering != "row_number":
            alike = pl.struct(*dict.fromkeys([*grouped, *names]))
            begins = alike.ne_missing(alike.shift()) | (pl.int_range(pl.len()) == 0)
            if self.numbering == "dense_rank":
                ranked = ranked.with_columns(begins.cast(pl.Int64).cum_sum().over(grouped).alias(name))
            else:
                ranked = ranked.with_columns(pl.when(begins).then(name).alias(name)).with_columns(
                    pl.col(name).forward_fill()
                )
        return ranked if self.n is None else ranked.filter(pl.col(name) <= self.n)

    def _keep(self, held: Held, rows: pl.DataFrame, watermark: int) -> None:
        kept = rows.select(*self.columns, _ARRIVED, _SIGN)
        if self.keep_for is None:
            held.put(kept)
            return
        time = pl.col(EVENT_TIME).to_physical()
        over = (time.max().over(list(self.keys)) if self.keys else time.max()) + self.keep_for
        kept = kept.with_columns(over.alias(_BACK)).filter(pl.col(_BACK).is_null() | (pl.col(_BACK) > watermark))
        held.put(kept.drop(_BACK), kept.get_column(_BACK))
