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
        """List the rows."""
        return [pl.struct(*self.names).implode().alias(f"{name}.rows")]

    def merge(self, name: str) -> list[pl.Expr]:
        """Join the lists."""
        return [pl.col(f"{name}.rows").explode(empty_as_null=False, keep_nulls=False).implode()]

    def compact(self, name: str) -> list[pl.Expr]:
        """Keep the first rows."""
        rows = f"{name}.rows"
        return [pl.col(rows).map_batches(self._trimmed, return_dtype=pl.dtype_of(rows))]

    def result(self, name: str) -> pl.Expr:
        """Give the rows in order, with their ranks."""
        rows = f"{name}.rows"
        inner = pl.dtype_of(rows).list.inner_dtype()
        fields = {each: inner.struct.field_dtype(each) for each in self.names}
        kind = pl.struct_with_fields({**fields, self.RANK: pl.Int64}).wrap_in_list()
        return pl.col(rows).map_batches(self._ranked, return_dtype=kind).alias(name)

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

    def _trimmed(self, lists: pl.Series) -> pl.Series:
        """Cut lists to the rows that can be among the first."""
        return self._numbered(lists, with_rank=False).cast(lists.dtype)

    def _ranked(self, lists: pl.Series) -> pl.Series:
        return self._numbered(lists, with_rank=True)

    def _numbered(self, lists: pl.Series, *, with_rank: bool) -> pl.Series:
        rows = lists.alias("#row").to_frame().with_row_index("#list")
        flat = rows.explode("#row", empty_as_null=False, keep_nulls=False).unnest("#row")
        down = [each for _, each in self.order]
        # Nulls are the smallest: first if ascending, last if descending.
        flat = flat.sort(
            "#list",
            *(name for name, _ in self.order),
            descending=[False, *down],
            nulls_last=[False, *down],
            maintain_order=True,
        )
        place = pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over("#list")
        flat = flat.with_columns(place.alias(self.RANK))
        if self.numbering != "row_number":
            peers = list(dict.fromkeys(["#list", *(name for name, _ in self.order)]))
            number = pl.struct(peers).rle_id().cast(pl.Int64)
            dense = number - number.first().over("#list") + 1
            rank = dense if self.numbering == "dense_rank" else pl.col(self.RANK).min().over(number)
            flat = flat.with_columns(rank.alias(self.RANK))
        if self.most is not None:
            flat = flat.filter(pl.col(self.RANK) <= self.most)
        shown = [*self.names, *([self.RANK] if with_rank else [])]
        listed = flat.group_by("#list", maintain_order=True).agg(pl.struct(shown).implode().alias("#rows"))
        every = pl.DataFrame({"#list": pl.int_range(lists.len(), dtype=pl.get_index_type(), eager=True)})
        found = every.join(listed, on="#list", how="left", maintain_order="left").get_column("#rows")
        return found.fill_null(pl.Series([[]], dtype=found.dtype).first()) if found.null_count() else found
