"""Intake: what happens to the rows of a batch before they reach the books.

Rows are sorted out (no timestamp, no key: dismissed with a reason), put into their windows, told from late ones, and
folded into partials, all keys at once. Rows of aligned windows are folded into slices first and spread over their
windows then, so that a row costs the same in a window of 30 s every 5 s as in one that tumbles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from headrace.engine.operator import EVENT_TIME, WINDOW_END, WINDOW_START
from headrace.errors import JobError
from headrace.time.instants import INSTANT
from headrace.windows.assigners import Aligned, SameWindow
from headrace.windows.ledger import EARLIEST, LATEST, ROWS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.windows.aggregates import Aggregate
    from headrace.windows.assigners import Assigner

SLICE = "#slice"
_NUMBER = "#number"
REASON = "reason"


@dataclass(frozen=True)
class Sorted:
    """Rows after a first look.

    Args:
        rows: Those that can be used, with their unit of folding: a slice, or each of their windows.
        dismissed: Those that cannot, with the reason; None where all can.
    """

    rows: pl.DataFrame
    dismissed: pl.DataFrame | None


@dataclass(frozen=True)
class Intake:
    """Sorts out, places and folds the rows of a window step.

    Args:
        step: Name of the step, for messages.
        keys: The key columns.
        assigner: The windows.
        aggregates: The result columns.
        timed: Whether the earliest and latest timestamps are needed.
        null_keys: Whether null is a key like others; otherwise rows without a key are dismissed.
    """

    step: str
    keys: tuple[str, ...]
    assigner: Assigner
    aggregates: tuple[tuple[str, Aggregate], ...]
    timed: bool
    null_keys: bool = False

    @property
    def unit(self) -> list[str]:
        """The columns that rows are folded by, beside the keys."""
        return [SLICE] if isinstance(self.assigner, Aligned) else [WINDOW_START, WINDOW_END]

    def sort_out(self, rows: pl.DataFrame) -> Sorted:
        """Dismiss the rows that have no timestamp, key or window; place the others."""
        reasons = [pl.when(pl.col(EVENT_TIME).is_null()).then(pl.lit("event_time is null"))]
        needed = () if self.null_keys else self.keys
        reasons += [pl.when(pl.col(key).is_null()).then(pl.lit(f"key column {key!r} is null")) for key in needed]
        looked = rows.with_columns(pl.coalesce(reasons).alias(REASON))
        bad = looked.filter(pl.col(REASON).is_not_null())
        good = rows if bad.is_empty() else looked.filter(pl.col(REASON).is_null()).drop(REASON)
        placed, homeless = self._place(good)
        dismissed = [frame for frame in (bad, homeless) if frame is not None and frame.height]
        return Sorted(placed, pl.concat(dismissed, how="diagonal_relaxed") if dismissed else None)

    def _place(self, rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        if isinstance(self.assigner, Aligned):
            time = pl.col(EVENT_TIME).cast(INSTANT).cast(pl.Int64)
            width, offset = self.assigner.slice, self.assigner.offset
            return rows.with_columns((time - (time - offset).mod(width)).alias(SLICE)), None
        numbered = rows.with_row_index(_NUMBER)
        bounds = pl.col(WINDOW_START, WINDOW_END).cast(INSTANT).cast(pl.Int64)
        assigned = self.assigner.assign(numbered).with_columns(bounds)
        placed = assigned.filter(pl.col(WINDOW_START) < pl.col(WINDOW_END))
        homeless = numbered.join(placed, on=_NUMBER, how="anti").drop(_NUMBER)
        return placed, homeless.with_columns(pl.lit("the row belongs to no window").alias(REASON))

    def windows(self, units: pl.DataFrame) -> pl.DataFrame:
        """Spread folded units over their windows: each once per window, with Int64 bounds."""
        if isinstance(self.assigner, Aligned):
            spread = self.assigner.spread(units, pl.col(SLICE)).drop(SLICE)
            return spread.with_columns(pl.col(WINDOW_START, WINDOW_END).cast(pl.Int64))
        return units

    def last_end(self) -> pl.Expr:
        """When the last window of a placed row ends."""
        if isinstance(self.assigner, Aligned):
            start = pl.col(SLICE)
            return start - (start - self.assigner.offset).mod(self.assigner.every) + self.assigner.size
        return pl.col(WINDOW_END)

    def fold(self, rows: pl.DataFrame, by: Sequence[str], watermark: int) -> pl.DataFrame:
        """Fold rows by the keys and further columns into partials, their number, and their timestamps."""
        folds = [expr for name, aggregate in self.aggregates for expr in aggregate.partial(name)]
        folds.append(pl.len().cast(pl.Int64).alias(ROWS))
        if self.timed:
            time = pl.col(EVENT_TIME).cast(INSTANT).cast(pl.Int64)
            # A row behind the watermark cannot give its timestamp to a result: that would be behind the watermark too.
            held = time.filter(time >= watermark) if self.assigner.ends else time
            folds += [held.min().alias(EARLIEST), held.max().alias(LATEST)]
        return rows.group_by(*self.keys, *by, maintain_order=True).agg(folds)

    def fold_or_dismiss(
        self, rows: pl.DataFrame, by: Sequence[str], watermark: int, *, dismiss: bool
    ) -> tuple[pl.DataFrame, pl.DataFrame | None]:
        """Fold rows; where a user's aggregate raises, name the step and a row, or dismiss such rows and go on."""
        try:
            return self.fold(rows, by, watermark), None
        except JobError as error:
            first = error
        bad: list[int] = []
        reasons: list[str] = []
        for number in range(rows.height):
            try:
                self.fold(rows.slice(number, 1), by, watermark)
            except JobError as error:
                bad.append(number)
                reasons.append(error.message)
                if not dismiss:
                    break
        if not dismiss or not bad:
            example = self.without_units(rows.slice(bad[0] if bad else 0, 1)).to_dicts()[0]
            raise JobError(
                f"step {self.step!r}: {first.message}; an example row: {example}",
                hint='Mend the aggregate, or let the step go on without such rows: on_error="dead_letter".',
            ) from first
        good = rows.with_row_index(_BAD).filter(~pl.col(_BAD).is_in(bad)).drop(_BAD)
        dismissed = rows[bad].with_columns(pl.Series(REASON, reasons, dtype=pl.String))
        return self.fold(good, by, watermark), self.without_units(dismissed)

    def without_units(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Take away what placing added, and count each row once."""
        if _NUMBER in rows.columns:
            rows = rows.unique(_NUMBER, keep="first", maintain_order=True).drop(_NUMBER)
        return rows.drop(SLICE, strict=False).drop(*self._added(), strict=False)

    def late(self, rows: pl.DataFrame, watermark: int) -> pl.DataFrame:
        """Describe rows that came too late: their last window, the lateness, and the watermark they met."""
        end = self.last_end()
        mark = pl.lit(watermark, dtype=pl.Int64)
        start = end - self.assigner.size if isinstance(self.assigner, Aligned) else pl.col(WINDOW_START)
        told = rows.with_columns(
            start.alias("#start"),
            end.alias("#end"),
            (mark - end).cast(pl.Duration("us")).alias("lateness"),
            mark.cast(INSTANT).alias("watermark"),
        )
        if _NUMBER in told.columns:
            told = told.sort("#end").unique(_NUMBER, keep="last", maintain_order=True).sort(_NUMBER).drop(_NUMBER)
        return (
            told.drop(SLICE, WINDOW_START, WINDOW_END, strict=False)
            .with_columns(
                pl.col("#start").cast(INSTANT).alias(WINDOW_START), pl.col("#end").cast(INSTANT).alias(WINDOW_END)
            )
            .drop("#start", "#end")
        )

    def _added(self) -> list[str]:
        # A same-window step finds the bounds in its rows; every other step adds them.
        return [] if isinstance(self.assigner, SameWindow | Aligned) else [WINDOW_START, WINDOW_END]


_BAD = "#bad"


def counted_numbers(rows: pl.DataFrame) -> pl.DataFrame | None:
    """Return the numbers of placed rows, where one row may stand in several windows."""
    return rows.select(_NUMBER).unique() if _NUMBER in rows.columns else None


def without_numbers(rows: pl.DataFrame, numbers: pl.DataFrame) -> pl.DataFrame:
    """Return the placed rows whose number is not among the given ones."""
    return rows.join(numbers, on=_NUMBER, how="anti")
