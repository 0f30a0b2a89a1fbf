"""An aggregate of whole rows: the first rows of a window in some order, or all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import polars as pl

from headrace.errors import PlanError
from headrace.windows.aggregates import Aggregate


@dataclass(frozen=True)
class RowList(Aggregate):
    """The first rows in some order, as a list of rows with their rank.

    Args:
        names: The columns of the rows.
        order: The columns to order by, each with whether it is descending; nulls are the smallest values.
        most: How many rows at most; None for all.
        numbering: How equal rows are numbered: "row_number", "rank" or "dense_rank".

    >>> rows = pl.DataFrame({"v": [3, 1, 2]})
    >>> first = RowList(("v",), (("v", True),), 2)
    >>> rows.select(first.partial("r")).select(first.result("r")).item().to_list()
    [{'v': 3, '#rank': 1}, {'v': 2, '#rank': 2}]
    """

    RANK: ClassVar[str] = "#rank"

    names: tuple[str, ...]
    order: tuple[tuple[str, bool], ...]
    most: int | None = None
    numbering: str = "row_number"

    def partial(self, name: str) -> list[pl.Expr]:
        """Take the first rows."""
        return [self._first(pl.struct(*self.names)).implode().alias(f"{name}.rows")]

    def merge(self, name: str) -> list[pl.Expr]:
        """Take the first rows of several lists."""
        rows = pl.col(f"{name}.rows").explode(empty_as_null=False, keep_nulls=False)
        return [self._first(rows).implode()]

    def result(self, name: str) -> pl.Expr:
        """Give the rows in order, with their ranks."""
        row = pl.element()
        fields = [row.struct.field(each) for each in self.names]
        if self.numbering == "row_number":
            rank = pl.int_range(1, pl.len() + 1, dtype=pl.Int64)
        else:
            told = pl.struct([row.struct.field(each) for each, _ in self.order])
            started = pl.int_range(1, pl.len() + 1, dtype=pl.Int64)
            number = told.rle_id().cast(pl.Int64) + 1
            rank = number if self.numbering == "dense_rank" else started.min().over(told)
        return pl.col(f"{name}.rows").list.eval(pl.struct(*fields, rank.alias(self.RANK))).alias(name)

    def retracting(self) -> Aggregate:
        """Refuse: rows that were left out cannot come back."""
        raise PlanError(
            "the first rows of windows whose rows may be taken back",
            hint="Let the windows before it fire once, when they are complete.",
        )

    def columns(self) -> list[str]:
        """Name the columns of the rows."""
        return list(dict.fromkeys([*self.names, *(name for name, _ in self.order)]))

    def describe(self) -> str:
        """Write the aggregate with its order."""
        order = ", ".join(f"{name} desc" if down else name for name, down in self.order)
        told = "all" if self.most is None else str(self.most)
        return f"rows({told} by {order or 'arrival'}, {self.numbering}: {', '.join(self.names)})"

    def _first(self, rows: pl.Expr) -> pl.Expr:
        if self.order:
            by = [rows.struct.field(name) for name, _ in self.order]
            down = [down for _, down in self.order]
            # Nulls are the smallest: first if ascending, last if descending.
            rows = rows.sort_by(by, descending=down, nulls_last=down, maintain_order=True)
        return rows if self.most is None or self.numbering != "row_number" else rows.head(self.most)
