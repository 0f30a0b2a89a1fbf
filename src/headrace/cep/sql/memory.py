"""What MATCH_RECOGNIZE over a stream remembers of a key beside its rows: the number of matches, and that it was there.

A key that is remembered for ever costs a number for ever. With `forget_after` a key that had no row for so long is
forgotten: its next row begins a new partition, so MATCH_NUMBER() begins at 1 again, `^` fits, and PREV finds nothing.
That depends on the times of the rows alone and not on when state is freed: a gap between two rows of a key parts them
into two **runs**, and each run is a partition. The time bound of the pattern is not longer than the gap, so no match
goes over it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import polars as pl

from headrace.engine.operator import EVENT_TIME
from headrace.time.instants import INSTANT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from headrace.cep.sql.table import Table

RUN: Final = "#run"
_NUMBER: Final = "#number"
_BEGINS: Final = "#begins"
_LAST: Final = "#last"


@dataclass(frozen=True)
class Memory:
    """How keys are remembered; what is remembered is a frame that the operator keeps.

    Args:
        key: The key columns.
        needed: Whether the query asks for anything that must be remembered.
        forget_after: A key without rows for so many microseconds is forgotten.
    """

    key: list[str]
    needed: bool
    forget_after: int | None

    @property
    def partition_by(self) -> list[str]:
        """The columns of a partition."""
        return self.key if self.forget_after is None else [*self.key, RUN]

    def with_runs(self, rows: pl.DataFrame, memory: pl.DataFrame | None, *, is_new: pl.Expr) -> pl.DataFrame:
        """Number the runs of each key; 0 goes on with what is remembered.

        Args:
            rows: The rows at hand.
            memory: What is remembered.
            is_new: Which of the rows came now.
        """
        if self.forget_after is None:
            return rows
        rows = rows.sort(EVENT_TIME, maintain_order=True)
        time = pl.col(EVENT_TIME).to_physical()
        gap = self._over(time.diff())
        if memory is None:
            rows = rows.with_columns(pl.lit(None, dtype=INSTANT).alias(_LAST))
        elif self.key:
            last = memory.select(*self.key, _LAST)
            rows = rows.join(last, on=self.key, how="left", nulls_equal=True, maintain_order="left")
        else:
            rows = rows.with_columns(pl.lit(memory[_LAST][0], dtype=INSTANT).alias(_LAST))
        # Before the first row at hand there may have been one that is only remembered, or none at all.
        before = pl.when(is_new).then(time - pl.col(_LAST).to_physical()).otherwise(0)
        parted = gap.fill_null(before).fill_null(0) >= self.forget_after
        return rows.with_columns(self._over(parted.cum_sum()).cast(pl.Int64).alias(RUN)).drop(_LAST)

    def known(self, table: Table, memory: pl.DataFrame | None) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """For each partition of a table how many matches it had, and whether it begins here."""
        count = len(table.starts)
        if memory is None:
            return np.zeros(count, dtype=np.int64), np.ones(count, dtype=np.bool_)
        known = memory
        if self.key:
            keys = table.take(table.starts, self.key)
            known = keys.join(memory, on=self.key, how="left", nulls_equal=True, maintain_order="left")
        elif count != 1:
            known = memory[np.zeros(count, dtype=np.int64)]
        numbers = known[_NUMBER].fill_null(0).to_numpy()
        begins = known[_BEGINS].fill_null(True).to_numpy()
        if self.forget_after is not None:
            anew = table.column(RUN).to_numpy()[table.starts] > 0
            numbers, begins = np.where(anew, 0, numbers), begins | anew
        return numbers, begins

    def updated(
        self,
        memory: pl.DataFrame | None,
        table: Table,
        numbers: NDArray[np.int64],
        begins: NDArray[np.bool_],
    ) -> pl.DataFrame | None:
        """What is remembered after a search; None where nothing needs to be."""
        if not self.needed:
            return None
        columns = [pl.Series(_NUMBER, numbers, dtype=pl.Int64), pl.Series(_BEGINS, begins)]
        if self.forget_after is not None:
            columns.append(table.take(table.ends - 1, [EVENT_TIME])[EVENT_TIME].alias(_LAST))
        if not self.key:
            return pl.DataFrame(columns)[-1:]
        new = table.take(table.starts, self.key).with_columns(columns)
        if self.forget_after is not None:
            new = new.unique(subset=self.key, keep="last", maintain_order=True)
        if memory is None:
            return new
        return pl.concat([memory.join(new, on=self.key, how="anti", nulls_equal=True), new])

    def is_last_run(self, table: Table) -> NDArray[np.bool_]:
        """Which rows belong to the last run of their key."""
        if self.forget_after is None:
            return np.ones(table.count, dtype=np.bool_)
        run = pl.col(RUN)
        columns = pl.DataFrame([table.column(name) for name in (*self.key, RUN)])
        return columns.select(run == self._over(run.max()))[RUN].to_numpy()

    def forget(
        self, rows: pl.DataFrame | None, memory: pl.DataFrame | None, watermark: int
    ) -> tuple[pl.DataFrame | None, pl.DataFrame | None]:
        """Leave out the keys that were quiet for too long."""
        if self.forget_after is None:
            return rows, memory
        horizon = watermark - self.forget_after
        if rows is not None and rows.height:
            rows = rows.filter(self._over(pl.col(EVENT_TIME).to_physical().max()) > horizon)
        if memory is not None:
            memory = memory.filter(pl.col(_LAST).to_physical() > horizon)
        return rows, memory

    def _over(self, expression: pl.Expr) -> pl.Expr:
        return expression.over(self.key) if self.key else expression
