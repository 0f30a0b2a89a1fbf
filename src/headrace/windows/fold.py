"""Folding rows into results by mergeable aggregates, over all keys at once.

The same three moves serve pre-aggregation in a source task, slices, sessions and a same-window chain: `partials`
folds raw rows, `merged` folds partials, `results` reads the values out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from headrace.windows.aggregates import Aggregate


@dataclass(frozen=True)
class Fold:
    """Aggregates by key columns.

    >>> import polars as pl
    >>> from headrace.windows.aggregates import count
    >>> fold = Fold(("cell",), (("vehicles", count()),))
    >>> rows = pl.DataFrame({"cell": ["a", "b", "a"]})
    >>> halves = pl.concat([fold.partials(rows), fold.partials(rows)])
    >>> fold.results(fold.merged(halves)).sort("cell").rows()
    [('a', 4), ('b', 2)]
    """

    keys: tuple[str, ...]
    aggregates: tuple[tuple[str, Aggregate], ...]

    def partials(self, rows: pl.DataFrame, extra: Sequence[str] = ()) -> pl.DataFrame:
        """Fold raw rows by the keys and the extra columns."""
        folds = [expr for name, aggregate in self.aggregates for expr in aggregate.partial(name)]
        return rows.group_by(*self.keys, *extra, maintain_order=True).agg(folds)

    def merged(self, partials: pl.DataFrame, extra: Sequence[str] = ()) -> pl.DataFrame:
        """Fold partials by the keys and the extra columns."""
        folds = [expr for name, aggregate in self.aggregates for expr in aggregate.merge(name)]
        return partials.group_by(*self.keys, *extra, maintain_order=True).agg(folds)

    def results(self, partials: pl.DataFrame, extra: Sequence[str] = ()) -> pl.DataFrame:
        """Read the values out of merged partials."""
        values = [aggregate.result(name) for name, aggregate in self.aggregates]
        return partials.select(*self.keys, *extra, *values)
