"""Rows that are added and taken back, as a multiset: each different row once, with how often it is there.

A join of tables keeps both sides so. A turn brings the weights of its changes; `merged` puts them beside what was kept,
so that what a pair was worth before and is worth now can be told from one frame.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import polars as pl

from headrace.engine.changelog import WEIGHT, weighted
from headrace.engine.state import record_from_bytes, record_to_bytes
from headrace.joins.kept_rows import resplit_kept

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.engine.state import Segments
    from headrace.joins.kept_rows import KeptRows
    from headrace.joins.sides import Side

#: How often a row was there before the turn, how often more it is there after it, and with how many partners.
COUNT, CHANGE, PARTNERS = "#count", "#change", "#partners"
#: The place of a row among those that were taken from the state; null for a new one.
TAKEN: Final = "#taken"
#: The segment that says where the rows of both sides are.
INDEX: Final = "index"


def deltas(side: Side, rows: pl.DataFrame) -> pl.DataFrame:
    """Give the changes of a side, with the names inside the join: each different row with its weight."""
    return weighted(side.taken_in_updating(rows)).rename({WEIGHT: CHANGE})


def kept_form(changes: pl.DataFrame) -> pl.DataFrame:
    """Tell the columns of rows as they are kept."""
    empty = changes.clear().drop(CHANGE)
    return empty.with_columns(*(pl.lit(None, dtype=pl.Int64).alias(name) for name in (COUNT, PARTNERS)))


def merged(held: pl.DataFrame, changes: pl.DataFrame) -> pl.DataFrame:
    """Put changes beside the rows that were kept.

    Args:
        held: Rows as they were kept.
        changes: What `deltas` gave.
    """
    none = pl.lit(None, dtype=pl.Int64)
    names = [name for name in changes.columns if name != CHANGE]
    before = held.select(
        *names,
        COUNT,
        pl.lit(0, dtype=pl.Int64).alias(CHANGE),
        PARTNERS,
        pl.int_range(held.height, dtype=pl.Int64).alias(TAKEN),
    )
    if changes.is_empty():
        return before
    after = changes.select(
        *names, pl.lit(0, dtype=pl.Int64).alias(COUNT), CHANGE, none.alias(PARTNERS), none.alias(TAKEN)
    )
    both = pl.concat([before, after], how="vertical_relaxed")
    grouped = both.group_by(names, maintain_order=True)
    return grouped.agg(pl.col(COUNT).sum(), pl.col(CHANGE).sum(), pl.col(PARTNERS).max(), pl.col(TAKEN).max())


def keep(store: KeptRows, held: pl.DataFrame, rows: pl.DataFrame, partners: pl.Series | None = None) -> None:
    """Keep what a turn leaves of the rows of one side.

    Args:
        store: Where they are kept.
        held: The rows that were taken.
        rows: What `merged` gave.
        partners: With how many partners each row is now; None where that does not matter.
    """
    now = rows.with_columns(
        (pl.lit(None, dtype=pl.Int64) if partners is None else partners.cast(pl.Int64)).alias("#now")
    )
    changed = (pl.col(CHANGE) != 0) | pl.col(TAKEN).is_null() | pl.col("#now").ne_missing(pl.col(PARTNERS))
    marked = now.with_columns(changed.alias("#changed"))
    same = marked.filter(~pl.col("#changed")).get_column(TAKEN)
    stays = pl.select(pl.int_range(held.height, dtype=pl.Int64).is_in(same.implode())).to_series().to_numpy()
    written = marked.filter(pl.col("#changed") & (pl.col(COUNT) + pl.col(CHANGE) != 0)).with_columns(
        (pl.col(COUNT) + pl.col(CHANGE)).alias(COUNT), pl.col("#now").alias(PARTNERS)
    )
    store.put(stays, written.select(held.columns))


def repeated(rows: pl.DataFrame, times: pl.Expr) -> pl.DataFrame:
    """Give each row as often as it counts."""
    counts = rows.select(times.alias("times")).to_series()
    if rows.is_empty() or (counts == 1).all():
        return rows
    places = pl.DataFrame({"place": range(rows.height), "times": counts})
    many = places.filter(pl.col("times") > 0).select(pl.col("place").repeat_by("times").explode())
    return rows[many.get_column("place")]


def saved_sides(state: Segments) -> dict[str, Any]:
    """Tell where the rows of both sides are; nothing at the beginning."""
    value = state.get(INDEX)
    return {} if value is None else record_from_bytes(value)


def resplit_sides(old: Sequence[Segments], new: Sequence[Segments], sides: Sequence[Side]) -> None:
    """Spread the rows of both sides of a join of tables over other key groups."""
    known = [saved_sides(state) for state in old]
    records = {
        side.name: resplit_kept(old, new, side.name, side.keys, [saved.get(side.name) for saved in known])
        for side in sides
    }
    for number, state in enumerate(new):
        state.put(INDEX, record_to_bytes({name: each[number] for name, each in records.items()}))
