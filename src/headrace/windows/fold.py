"""Folding rows into results by mergeable aggregates, over all keys at once.

The same three moves serve pre-aggregation in a source task, slices, sessions and a same-window chain: `partials`
folds raw rows, `merged` folds partials, `results` reads the values out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.engine.frames import columns_read
from headrace.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import polars as pl

    from headrace.windows.aggregates import Aggregate, Bulk


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

    def reads(self) -> set[str] | None:
        """Tell the columns that the keys and aggregates read; None where it may be all."""
        used = set(self.keys)
        for _, aggregate in self.aggregates:
            # Its own word, and what its expressions say: an aggregate of a user may have forgotten to tell.
            read = columns_read(*aggregate.partial("value"))
            if read is None:
                return None
            used |= {*aggregate.columns(), *read}
        return used

    def partials(self, rows: pl.DataFrame, extra: Sequence[str] = ()) -> pl.DataFrame:
        """Fold raw rows by the keys and the extra columns."""
        folds, settled = _moves([(each.gather(name), each.partial(name)) for name, each in self.aggregates])
        folded = rows.group_by(*self.keys, *extra, maintain_order=True).agg(folds)
        return folded.with_columns(settled) if settled else folded

    def partials_of(self, step: str, rows: pl.DataFrame, extra: Sequence[str] = ()) -> pl.DataFrame:
        """Fold raw rows; where a user's aggregate raises, name the step and show a row that makes it do so."""
        try:
            return self.partials(rows, extra)
        except JobError as error:
            problem = error
        # Halve what fails until one row does, or until only rows together do.
        while rows.height > 1:
            half = rows.height // 2
            for part in (rows.slice(0, half), rows.slice(half)):
                try:
                    self.partials(part, extra)
                except JobError as error:
                    rows, problem = part, error
                    break
            else:
                break
        example = rows.drop(*extra).row(0, named=True)
        raise JobError(
            # Polars adds lines of its own to the message.
            f"step {step!r}: {problem.message.splitlines()[0]}; an example row: {example}",
            hint='Mend the aggregate, or let the step go on without such rows: on_error="dead_letter".',
        ) from problem

    def merged(self, partials: pl.DataFrame, extra: Sequence[str] = (), *, compact: bool = False) -> pl.DataFrame:
        """Fold partials by the keys and the extra columns; `compact` them where they are kept for long."""
        folds, settled = _moves([(each.regather(name), each.merge(name)) for name, each in self.aggregates])
        merged = partials.group_by(*self.keys, *extra, maintain_order=True).agg(folds)
        if settled:
            merged = merged.with_columns(settled)
        shrink = [expr for name, aggregate in self.aggregates for expr in aggregate.compact(name)] if compact else []
        return merged.with_columns(shrink) if shrink else merged

    def results(self, partials: pl.DataFrame, extra: Sequence[str] = ()) -> pl.DataFrame:
        """Read the values out of merged partials."""
        values = [aggregate.result(name) for name, aggregate in self.aggregates]
        return partials.select(*self.keys, *extra, *values)


def _moves(choices: list[tuple[Bulk | None, list[pl.Expr]]]) -> tuple[list[pl.Expr], list[pl.Expr]]:
    """Take each aggregate's bulk way where it has one, else its plain one."""
    folds: list[pl.Expr] = []
    settled: list[pl.Expr] = []
    for bulk, plain in choices:
        folds += plain if bulk is None else bulk.gather
        settled += [] if bulk is None else bulk.settle
    return folds, settled
