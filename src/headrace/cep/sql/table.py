"""The input of a MATCH_RECOGNIZE clause: rows of all partitions one after the other, each partition in its order.

Rows are numbered over the whole table, so a condition on the row alone is one column expression for all partitions. A
partition is a range of rows; PREV and NEXT do not leave it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from headrace.cep.sql.bound import Bound, ColumnValue, Navigation
from headrace.cep.sql.datatypes import column_of, python_values
from headrace.cep.sql.expressions import compile_columns, compile_function

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


_INDEX: Final = "#index"
_OWNER: Final = "#owner"


@dataclass(frozen=True, slots=True)
class SortKey:
    """One column to order by."""

    column: str
    descending: bool
    nulls_first: bool


class Table:
    """Sorted rows.

    Most columns are looked at in few rows: a column is put into the order when it is first asked for as a whole.

    Args:
        frame: The input rows in any order.
        partition_by: Columns that part them; rows with null in them belong together.
        order_by: Order within a partition; rows that are equal in it keep their input order.
    """

    def __init__(self, frame: pl.DataFrame, partition_by: Sequence[str], order_by: Sequence[SortKey]) -> None:
        self._source = frame
        self.schema = frame.schema
        self.columns = frame.columns
        self.count = frame.height
        self._order, self._sizes = _sorted(frame, partition_by, order_by)
        self.ends: NDArray[np.int64] = np.cumsum(self._sizes)
        self.starts: NDArray[np.int64] = self.ends - self._sizes
        # A name that no column of the input has.
        self._partition = "_" * (1 + max((len(name) for name in frame.columns), default=0))
        self._sorted: dict[str, pl.Series] = {}
        self._series: dict[Bound, pl.Series] = {}
        self._lists: dict[Bound, list[Any]] = {}

    def column(self, name: str) -> pl.Series:
        """A column of all rows, in their order."""
        found = self._sorted.get(name)
        if found is None:
            if name == self._partition:
                found = pl.Series(name, np.repeat(np.arange(len(self._sizes)), self._sizes))
            else:
                found = self._source[name] if self._order is None else self._source[name].gather(self._order)
            self._sorted[name] = found
        return found

    def take(self, rows: NDArray[np.int64], columns: Sequence[str] | None = None) -> pl.DataFrame:
        """Some rows, with all columns or some."""
        if columns is not None and not columns:
            return pl.DataFrame(height=len(rows))
        source = self._source if columns is None else self._source.select(columns)
        return source[rows if self._order is None else self._order[rows]]

    def series(self, body: Bound) -> pl.Series:
        """The value of an expression on the row alone, for every row."""
        found = self._series.get(body)
        if found is None:
            found = self._series[body] = self._evaluate(body)
        return found

    def series_at(self, body: Bound, rows: NDArray[np.int64]) -> pl.Series:
        """The value of an expression on the row alone, at some rows."""
        if isinstance(body, ColumnValue) and body.name not in self._sorted:
            return self._source[body.name].gather(rows if self._order is None else self._order[rows])
        return self.series(body).gather(rows)

    def values(self, body: Bound) -> list[Any]:
        """The same as a list, for reading one by one."""
        found = self._lists.get(body)
        if found is None:
            found = self._lists[body] = python_values(self.series(body))
        return found

    def _evaluate(self, node: Bound) -> pl.Series:
        if isinstance(node, ColumnValue):
            return self.column(node.name)
        expression = compile_columns(node, self._column)
        if expression is not None:
            names = dict.fromkeys(expression.meta.root_names())
            frame = pl.DataFrame([self.column(name).alias(name) for name in names])
            series = frame.select(expression.alias("value")).to_series()
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
    frame: pl.DataFrame, partition_by: Sequence[str], order_by: Sequence[SortKey]
) -> tuple[NDArray[np.int64] | None, NDArray[np.int64]]:
    """The order of the rows (None for as they are), partitions as they are met first, and the sizes of partitions."""
    order: NDArray[np.int64] | None = None
    sizes = np.array([frame.height] if frame.height else [], dtype=np.int64)
    if partition_by and frame.height:
        keys = frame.select(partition_by).with_row_index(_INDEX)
        groups = keys.group_by(list(partition_by), maintain_order=True).agg(_INDEX)[_INDEX]
        order = groups.explode(empty_as_null=False).to_numpy().astype(np.int64)
        sizes = groups.list.len().to_numpy().astype(np.int64)
    if not order_by or not frame.height:
        return order, sizes
    owner = np.repeat(np.arange(len(sizes)), sizes)
    if _in_order(frame, order, owner, order_by):
        return order, sizes
    columns = [pl.Series(_OWNER, owner)]
    columns += [
        (frame[key.column] if order is None else frame[key.column].gather(order)).alias(f"{place}")
        for place, key in enumerate(order_by)
    ]
    columns.append(pl.Series(_INDEX, np.arange(frame.height) if order is None else order))
    by_order = pl.DataFrame(columns).sort(
        [_OWNER, *(f"{place}" for place in range(len(order_by)))],
        descending=[False, *(key.descending for key in order_by)],
        nulls_last=[True, *(not key.nulls_first for key in order_by)],
        maintain_order=True,
    )
    return by_order[_INDEX].to_numpy(), sizes


def _in_order(
    frame: pl.DataFrame, order: NDArray[np.int64] | None, owner: NDArray[np.int64], order_by: Sequence[SortKey]
) -> bool:
    """Whether the rows of each partition are in order already, as those of a stream mostly are; no if that is dear."""
    first = frame[order_by[0].column]
    if order_by[0].descending or first.null_count() or not (first.dtype.is_integer() or first.dtype.is_temporal()):
        return False
    values = first.to_physical().to_numpy()
    values = values if order is None else values[order]
    same = owner[1:] == owner[:-1]
    wrong = values[1:] < values[:-1] if len(order_by) == 1 else values[1:] <= values[:-1]
    return not bool((same & wrong).any())
