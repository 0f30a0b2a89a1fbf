"""Measures: the values of MEASURES for all output rows at once.

Every output row stands at a place in a match: the last row of it in ONE ROW PER MATCH, each of its rows in ALL ROWS
PER MATCH. A navigation is then arithmetic on places (how many rows of A are there up to here?), done for all output
rows with a few array operations, and what is left of a measure is a plain column expression over the results.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from headrace.cep.sql.aggregates import AGGREGATES, stepwise
from headrace.cep.sql.bound import (
    Aggregate,
    Bound,
    ColumnValue,
    Constant,
    MatchNumber,
    Navigation,
    RowLabel,
    leaves,
    walk,
)
from headrace.cep.sql.datatypes import INTEGER, STRING, column_of, python_values
from headrace.cep.sql.expressions import compile_columns, compile_function
from headrace.cep.sql.matching import TIMED_OUT, UNMATCHED, Matches

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from headrace.cep.sql.table import Table

_NOWHERE: Final = -1


@dataclass(frozen=True)
class Places:
    """Where the output rows stand.

    Args:
        matches: The match of each output row, by its index.
        current: The place of the current row within the match; -1 in an empty match.
        rows: The row whose input columns are shown.
    """

    matches: NDArray[np.int64]
    current: NDArray[np.int64]
    rows: NDArray[np.int64]


class MeasureEvaluator:
    """Computes measures.

    Args:
        table: The rows.
        matches: The matches found in it.
        places: The output rows.
    """

    def __init__(self, table: Table, matches: Matches, places: Places) -> None:
        self._table = table
        self._matches = matches
        self._places = places
        self._count = len(places.rows)
        self._begin = matches.offsets[places.matches]
        self._end = matches.offsets[places.matches + 1]
        self._columns: dict[Bound, pl.Series] = {}
        self._labels = pl.Series(list(matches.labels), dtype=STRING)

    def evaluate(self, measures: Sequence[tuple[str, Bound]]) -> list[pl.Series]:
        """The measures as columns, named."""
        unmatched = pl.Series(self._matches.kinds[self._places.matches] == UNMATCHED)
        nothing = unmatched if unmatched.any() else None
        return [self._measure(node, nothing).alias(name) for name, node in measures]

    def _measure(self, node: Bound, nothing: pl.Series | None) -> pl.Series:
        series = self._value(node)
        if nothing is not None:
            series = pl.select(pl.when(~nothing).then(series)).to_series()
        return series

    def _value(self, node: Bound) -> pl.Series:
        if isinstance(node, Navigation | Aggregate | MatchNumber):
            return self._leaf(node)
        names = {leaf: f"leaf {number}" for number, leaf in enumerate(dict.fromkeys(leaves(node)))}
        frame = pl.DataFrame([self._leaf(leaf).alias(name) for leaf, name in names.items()])
        expression = compile_columns(node, lambda leaf: pl.col(names[leaf]))
        if expression is not None:
            series = frame.select(expression.alias("value")).to_series() if names else pl.select(expression).to_series()
            if series.len() != self._count:
                series = series.new_from_index(0, self._count)
            return series
        lists = {leaf: python_values(self._leaf(leaf)) for leaf in names}
        function = compile_function(node, lambda leaf: lists[leaf].__getitem__)
        return column_of([function(place) for place in range(self._count)], node.type)

    def _leaf(self, leaf: Bound) -> pl.Series:
        found = self._columns.get(leaf)
        if found is None:
            found = self._columns[leaf] = self._compute(leaf)
        return found

    def _compute(self, leaf: Bound) -> pl.Series:
        match leaf:
            case MatchNumber():
                return self._numbers(self._places.matches)
            case Navigation():
                return self._navigation(leaf)
            case Aggregate():
                return self._aggregate(leaf)
            case _:
                raise TypeError(f"{leaf} cannot stand alone in a measure")

    def _numbers(self, matches: NDArray[np.int64]) -> pl.Series:
        """The numbers of some matches; a partial match has none."""
        numbers = pl.Series(self._matches.numbers[matches], dtype=INTEGER)
        partial = self._matches.kinds[matches] == TIMED_OUT
        return numbers.set(pl.Series(partial), None) if partial.any() else numbers

    # Navigations

    def _navigation(self, leaf: Navigation) -> pl.Series:
        flat = self._find(leaf)
        shown = self._places.matches
        rows = self._matches.starts[shown] + flat - self._begin + leaf.shift
        valid = (flat != _NOWHERE) & (rows >= self._matches.lows[shown]) & (rows < self._matches.highs[shown])
        inside = [item for item in walk(leaf.body) if isinstance(item, RowLabel | MatchNumber)]
        if not inside:
            return self._at(leaf.body, rows, valid)
        place = flat + leaf.shift
        labelled = valid & (place >= self._begin) & (place < self._end)
        labels = _gather(self._labels, self._codes_at(place, labelled), labelled)
        if isinstance(leaf.body, RowLabel):
            return labels
        return self._body_with_labels(leaf.body, rows, valid, labels)

    def _at(self, body: Bound, rows: NDArray[np.int64], valid: NDArray[np.bool_]) -> pl.Series:
        """The values of an expression at rows, null where a row is not valid."""
        if bool(valid.all()):
            return self._table.series_at(body, rows)
        return _gather(self._table.series(body), rows, valid)

    def _codes_at(self, place: NDArray[np.int64], valid: NDArray[np.bool_]) -> NDArray[np.int64]:
        codes = np.zeros(len(place), dtype=np.int64)
        codes[valid] = self._matches.codes[place[valid]]
        return codes

    def _body_with_labels(
        self, body: Bound, rows: NDArray[np.int64], valid: NDArray[np.bool_], labels: pl.Series
    ) -> pl.Series:
        """A body that mixes columns of the row with its label."""
        values: dict[Bound, list[Any]] = {}
        for item in walk(body):
            if isinstance(item, ColumnValue):
                values[item] = python_values(self._at(item, rows, valid))
        values[RowLabel()] = labels.to_list()
        values[MatchNumber()] = self._leaf(MatchNumber()).to_list()
        function = compile_function(body, lambda leaf: values[leaf].__getitem__)
        return column_of([function(place) if there else None for place, there in enumerate(valid.tolist())], body.type)

    def _find(self, leaf: Navigation) -> NDArray[np.int64]:
        """The place, among the rows of all matches, from which a navigation starts; -1 if there is none."""
        begin, empty = self._begin, self._begin == self._end
        last = self._end - 1 if leaf.final else np.where(empty, begin - 1, begin + self._places.current)
        if leaf.labels is None:
            found = begin + leaf.offset if leaf.first else last - leaf.offset
            return np.where(empty | (found < begin) | (found > last), _NOWHERE, found)
        selected = self._selected(leaf.labels)
        places = np.flatnonzero(selected)
        if not len(places):
            return np.full(self._count, _NOWHERE, dtype=np.int64)
        before = np.concatenate(([0], np.cumsum(selected)))
        low, high = before[begin], before[last + 1] - 1
        wanted = low + leaf.offset if leaf.first else high - leaf.offset
        valid = ~empty & (wanted >= low) & (wanted <= high)
        return np.where(valid, places[np.clip(wanted, 0, len(places) - 1)], _NOWHERE)

    def _selected(self, labels: frozenset[str]) -> NDArray[np.bool_]:
        wanted = [code for code, label in enumerate(self._matches.labels) if label in labels]
        return np.isin(self._matches.codes, wanted)

    # Aggregates

    def _aggregate(self, leaf: Aggregate) -> pl.Series:
        whole = leaf.final or bool(np.all(self._places.current == self._end - self._begin - 1))
        if whole:
            fast = self._whole_matches(leaf)
            if fast is not None:
                return fast
        return self._row_by_row(leaf, whole)

    def _flat_rows(self) -> NDArray[np.int64]:
        """The table row of every row of every match."""
        matches = self._matches
        return np.repeat(matches.starts - matches.offsets[:-1], matches.lengths) + np.arange(len(matches.codes))

    def _whole_matches(self, leaf: Aggregate) -> pl.Series | None:
        """The common aggregates over whole matches, by grouping; None for the others."""
        if leaf.function not in ("count", "sum", "avg", "min", "max") or len(leaf.arguments) > 1:
            return None
        if any(isinstance(item, RowLabel | MatchNumber) for argument in leaf.arguments for item in walk(argument)):
            return None
        argument = leaf.arguments[0] if leaf.arguments else None
        if argument is not None and not (argument.type.is_integer() or argument.type.is_float()):
            return None
        if argument is not None and not any(True for _ in leaves(argument)):
            return None
        owner = np.repeat(np.arange(self._matches.count), self._matches.lengths)
        rows = self._flat_rows()
        if leaf.labels is not None:
            selected = self._selected(leaf.labels)
            owner, rows = owner[selected], rows[selected]
        frame = pl.DataFrame({"owner": owner})
        if argument is not None:
            values = self._table.series_at(argument, rows)
            # The sum of small integers is a large one, and the mean of short floats a long one.
            widen = leaf.function == "sum" or (leaf.function == "avg" and argument.type.is_float())
            frame = frame.with_columns((values.cast(leaf.type) if widen else values).alias("value"))
        result = pl.len() if argument is None else _GROUPED[leaf.function](pl.col("value"))
        grouped = frame.group_by("owner").agg(result.cast(leaf.type).alias("result"))
        # A sum of nothing but nulls is null in SQL and zero in Polars.
        if argument is not None and leaf.function == "sum":
            counted = frame.group_by("owner").agg(pl.col("value").count().alias("known"))
            grouped = grouped.join(counted, on="owner").select(
                "owner", pl.when(pl.col("known") > 0).then(pl.col("result")).alias("result")
            )
        shown = pl.DataFrame({"owner": self._places.matches})
        column = shown.join(grouped, on="owner", how="left", maintain_order="left")["result"]
        return column.fill_null(0) if leaf.function == "count" else column

    def _row_by_row(self, leaf: Aggregate, whole: bool) -> pl.Series:
        """Any aggregate, by going through the rows of each match once."""
        items = self._argument_tuples(leaf)
        selected = None if leaf.labels is None else self._selected(leaf.labels).tolist()
        steps = stepwise(leaf.function, len(leaf.arguments))
        finish_all = AGGREGATES[leaf.function].evaluate
        results: list[Any] = []
        shown, current = self._places.matches.tolist(), self._places.current.tolist()
        begins, ends = self._begin.tolist(), self._end.tolist()
        owner, done, state = -1, 0, None
        kept: list[tuple[Any, ...]] = []
        for place, match in enumerate(shown):
            if match != owner:
                owner, done = match, begins[place]
                state, kept = (steps.initial if steps else None), []
            target = ends[place] if whole else begins[place] + current[place] + 1
            for row in range(done, target):
                if selected is not None and not selected[row]:
                    continue
                if steps is None:
                    kept.append(items[row])
                else:
                    value = items[row][0] if leaf.arguments else True
                    state = state if value is None else steps.step(state, value)
            done = max(done, target)
            results.append(finish_all(kept) if steps is None else steps.finish(state))
        return column_of(results, leaf.type)

    def _argument_tuples(self, leaf: Aggregate) -> list[tuple[Any, ...]]:
        """The arguments of an aggregate at every row of every match."""
        rows = self._flat_rows()
        everywhere = np.ones(len(rows), dtype=np.bool_)
        columns: list[list[Any]] = []
        for argument in leaf.arguments:
            if isinstance(argument, Constant):
                columns.append([argument.value] * len(rows))
            elif any(isinstance(item, RowLabel | MatchNumber) for item in walk(argument)):
                columns.append(self._labelled_arguments(argument, rows, everywhere))
            elif not any(True for _ in leaves(argument)):
                value = compile_function(argument, _no_leaf)(None)
                columns.append([value] * len(rows))
            else:
                columns.append(python_values(self._table.series_at(argument, rows)))
        if not columns:
            return [()] * len(rows)
        return list(zip(*columns, strict=True))

    def _labelled_arguments(self, argument: Bound, rows: NDArray[np.int64], valid: NDArray[np.bool_]) -> list[Any]:
        values: dict[Bound, list[Any]] = {
            RowLabel(): self._labels.gather(self._matches.codes.astype(np.int64)).to_list(),
            MatchNumber(): self._numbers(np.repeat(np.arange(self._matches.count), self._matches.lengths)).to_list(),
        }
        for item in walk(argument):
            if isinstance(item, ColumnValue):
                values[item] = python_values(self._at(item, rows, valid))
        function = compile_function(argument, lambda leaf: values[leaf].__getitem__)
        return [function(place) for place in range(len(rows))]


_GROUPED: Final = {
    "count": lambda value: value.count(),
    "sum": lambda value: value.sum(),
    "avg": lambda value: value.mean(),
    "min": lambda value: value.min(),
    "max": lambda value: value.max(),
}


def _no_leaf(leaf: Bound) -> Any:
    raise TypeError(f"{leaf} is no constant")


def _gather(series: pl.Series, rows: NDArray[np.int64], valid: NDArray[np.bool_]) -> pl.Series:
    """The values at rows, null where a row is not valid."""
    if bool(valid.all()):
        return series.gather(rows)
    if not series.len():
        return pl.Series([None] * len(rows), dtype=series.dtype)
    indices = pl.Series(rows).set(pl.Series(~valid), None)
    return series.gather(indices)
