"""The input of a MATCH_RECOGNIZE clause: rows of all partitions one after the other, each partition in its order.

Rows are numbered over the whole table, so a condition on the row alone is one column expression for all partitions. A
partition is a range of rows; PREV and NEXT do not leave it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from headrace.cep.sql.bound import Bound, ColumnValue, Navigation
from headrace.cep.sql.datatypes import column_of, python_values
from headrace.cep.sql.expressions import compile_columns, compile_function

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class SortKey:
    """One column to order by."""

    column: str
    descending: bool
    nulls_first: bool


class Table:
    """Sorted rows.

    Args:
        frame: The input rows in any order.
        partition_by: Columns that part them; rows with null in them belong together.
        order_by: Order within a partition; rows that are equal in it keep their input order.
    """

    def __init__(self, frame: pl.DataFrame, partition_by: Sequence[str], order_by: Sequence[SortKey]) -> None:
        # A name that no column of the input has.
        self._partition = "_" * (1 + max((len(name) for name in frame.columns), default=0))
        self.frame = _sorted(frame, partition_by, order_by, self._partition)
        self.count = self.frame.height
        self.starts = self._partition_starts(partition_by)
        self.ends: NDArray[np.int64] = np.append(self.starts[1:], self.count).astype(np.int64)
        if not self.count:
            self.starts = self.ends = np.empty(0, dtype=np.int64)
        self.columns = [name for name in self.frame.columns if name != self._partition]
        self._series: dict[Bound, pl.Series] = {}
        self._lists: dict[Bound, list[Any]] = {}

    def _partition_starts(self, partition_by: Sequence[str]) -> NDArray[np.int64]:
        if not partition_by:
            return np.zeros(1, dtype=np.int64)
        first = self.frame[self._partition].to_numpy()
        return np.flatnonzero(np.append([True], first[1:] != first[:-1])[: self.count]).astype(np.int64)

    def series(self, body: Bound) -> pl.Series:
        """The value of an expression on the row alone, for every row."""
        found = self._series.get(body)
        if found is None:
            found = self._series[body] = self._evaluate(body)
        return found

    def values(self, body: Bound) -> list[Any]:
        """The same as a list, for reading one by one."""
        found = self._lists.get(body)
        if found is None:
            found = self._lists[body] = python_values(self.series(body))
        return found

    def _evaluate(self, node: Bound) -> pl.Series:
        if isinstance(node, ColumnValue):
            return self.frame[node.name]
        expression = compile_columns(node, self._column)
        if expression is not None:
            series = self.frame.select(expression.alias("value")).to_series()
            if series.len() != self.count:
                series = series.new_from_index(0, self.count) if series.len() else series.clear()
            return series
        function = compile_function(node, self._reader)
        return column_of([function(row) for row in range(self.count)], node.type)

    def _column(self, leaf: Bound) -> pl.Expr | None:
        """A leaf as a column expression: of the row itself, or of its physical neighbour."""
        if isinstance(leaf, ColumnValue):
            return pl.col(leaf.name)
        if not isinstance(leaf, Navigation):
            return None
        body = compile_columns(leaf.body, self._column)
        if body is None or leaf.shift == 0:
            return body
        neighbour = body.shift(-leaf.shift)
        if len(self.starts) <= 1:
            return neighbour
        same = pl.col(self._partition) == pl.col(self._partition).shift(-leaf.shift)
        return pl.when(same).then(neighbour)

    def _reader(self, leaf: Bound) -> Any:
        """A leaf as a function of the row number."""
        if isinstance(leaf, ColumnValue):
            return self.values(leaf).__getitem__
        if not isinstance(leaf, Navigation):
            raise TypeError(f"{leaf} depends on the match")
        values, shift = self.values(leaf.body), leaf.shift
        if shift == 0:
            return values.__getitem__
        lowest, highest = self._reach()

        def neighbour(row: int) -> Any:
            place = row + shift
            return values[place] if lowest[row] <= place < highest[row] else None

        return neighbour

    def _reach(self) -> tuple[list[int], list[int]]:
        sizes = self.ends - self.starts
        return np.repeat(self.starts, sizes).tolist(), np.repeat(self.ends, sizes).tolist()

    def mask(self, condition: Bound) -> NDArray[np.bool_]:
        """Where a condition on the row and its neighbours is true (and neither false nor unknown)."""
        series = self.series(condition)
        if isinstance(series.dtype, pl.Null):
            return np.zeros(self.count, dtype=np.bool_)
        return series.fill_null(value=False).to_numpy().astype(np.bool_, copy=False)


def _sorted(
    frame: pl.DataFrame, partition_by: Sequence[str], order_by: Sequence[SortKey], partition: str
) -> pl.DataFrame:
    if partition_by:
        # The row in which a partition is met first stands for it: partitions come out in the order of the input.
        frame = frame.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(partition))
        frame = frame.with_columns(pl.col(partition).min().over(list(partition_by)))
    keys = [partition] if partition_by else []
    keys += [key.column for key in order_by]
    if not keys:
        return frame
    return frame.sort(
        keys,
        descending=[False] * bool(partition_by) + [key.descending for key in order_by],
        nulls_last=[True] * bool(partition_by) + [not key.nulls_first for key in order_by],
        maintain_order=True,
    )
