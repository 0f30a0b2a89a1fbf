"""Changelogs: rows that add to a table, and rows that take back what was added before.

A row of an updating stream carries `is_retraction`: False adds the row, True takes back an equal row that was added
before. An update of a row is a retraction of the old row and an addition of the new one. Within a batch there is no
order: its rows are a multiset with the weights +1 and -1, and what counts is their sum. A batch that has passed `net`
adds no row that it also takes back.

Rows with `#weight` are the compact form: each different row once, with the sum of its weights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from headrace.engine.operator import IS_RETRACTION

if TYPE_CHECKING:
    from collections.abc import Sequence

#: A column beside a row's own: how often it was added, less how often it was taken back.
WEIGHT = "#weight"
_PLACE = "#place"


def sign() -> pl.Expr:
    """Give -1 for a row that takes back, 1 for any other; needs the column `is_retraction`."""
    back = pl.col(IS_RETRACTION).fill_null(value=False)
    return pl.when(back).then(pl.lit(-1, dtype=pl.Int64)).otherwise(pl.lit(1, dtype=pl.Int64))


def has_retractions(rows: pl.DataFrame) -> bool:
    """Tell whether any row takes one back."""
    return IS_RETRACTION in rows.columns and bool(rows.get_column(IS_RETRACTION).any())


def weighted(rows: pl.DataFrame, *, ignoring: Sequence[str] = ()) -> pl.DataFrame:
    """Give each different row once, with the sum of its weights in `#weight`; those whose sum is 0 are left out.

    Args:
        rows: Rows with `is_retraction`, or without it: then each adds itself.
        ignoring: Columns by which rows do not differ; one value of the equal rows is kept, that of an addition if the
            weight is positive.

    >>> rows = pl.DataFrame({"v": ["a", "a", "b", "c"], "is_retraction": [False, True, False, True]})
    >>> weighted(rows).rows()
    [('b', 1), ('c', -1)]
    """
    own = [name for name in rows.columns if name != IS_RETRACTION]
    compared = [name for name in own if name not in ignoring]
    weight = sign() if IS_RETRACTION in rows.columns else pl.lit(1, dtype=pl.Int64)
    signed = rows.select(*own, weight.alias(WEIGHT))
    # The value that is kept is the last of a row with the sign of the sum.
    kept = [pl.col(name).filter(pl.col(WEIGHT).sign() == pl.col(WEIGHT).sum().sign()).last() for name in ignoring]
    if not compared:
        total = signed.select(*kept, pl.col(WEIGHT).sum()) if signed.height else signed
        return total.filter(pl.col(WEIGHT) != 0).select(*own, WEIGHT)
    summed = signed.group_by(compared, maintain_order=True).agg(*kept, pl.col(WEIGHT).sum())
    return summed.filter(pl.col(WEIGHT) != 0).select(*own, WEIGHT)


def unweighted(rows: pl.DataFrame) -> pl.DataFrame:
    """Give rows with `#weight` as rows with `is_retraction`, each as often as it weighs.

    >>> unweighted(pl.DataFrame({"v": ["a", "b"], "#weight": [2, -1]})).rows()
    [('a', False), ('a', False), ('b', True)]
    """
    weights = rows.get_column(WEIGHT)
    marked = rows.drop(WEIGHT).with_columns((weights < 0).alias(IS_RETRACTION))
    times = weights.abs()
    if rows.height == 0 or times.max() == 1:
        return marked.filter(times > 0)
    places = pl.select(pl.int_range(rows.height, dtype=pl.get_index_type()).alias(_PLACE)).to_series()
    repeated = pl.DataFrame([places, times.alias(WEIGHT)]).select(pl.col(_PLACE).repeat_by(WEIGHT).explode())
    return marked[repeated.get_column(_PLACE).drop_nulls()]


def net(rows: pl.DataFrame, *, ignoring: Sequence[str] = ()) -> pl.DataFrame:
    """Leave out rows that are added and taken back in the same batch.

    Args:
        rows: Rows with `is_retraction`.
        ignoring: Columns by which rows do not differ, such as `event_time`.

    >>> rows = pl.DataFrame({"v": ["a", "a", "b"], "is_retraction": [False, True, False]})
    >>> net(rows).rows()
    [('b', False)]
    """
    if not has_retractions(rows):
        return rows
    return unweighted(weighted(rows, ignoring=ignoring)).select(rows.columns)


def marked(rows: pl.DataFrame, *, retraction: bool) -> pl.DataFrame:
    """Give rows the column `is_retraction`, with one value."""
    return rows.with_columns(pl.lit(retraction).alias(IS_RETRACTION))


def changes(old: pl.DataFrame, new: pl.DataFrame, *, ignoring: Sequence[str] = ()) -> pl.DataFrame:
    """Tell what turns some rows into others: retractions of the old, additions of the new, none for those in both.

    Args:
        old: Rows as they were.
        new: Rows as they are, with the same columns.
        ignoring: Columns by which rows do not differ.

    >>> changes(pl.DataFrame({"k": ["a", "b"], "n": [1, 1]}), pl.DataFrame({"k": ["a", "b"], "n": [2, 1]})).rows()
    [('a', 1, True), ('a', 2, False)]
    """
    both = pl.concat([marked(old, retraction=True), marked(new.select(old.columns), retraction=False)])
    return both if new.is_empty() or old.is_empty() else net(both, ignoring=ignoring)


def newest_rows(rows: pl.DataFrame, key: Sequence[str]) -> pl.DataFrame:
    """Choose of each key the row that was added last, or else one that was taken back: an upsert or a delete.

    Args:
        rows: The net changes of one batch of a table of which each key has one row at most.
        key: The columns that name a row.

    >>> rows = pl.DataFrame({"k": ["a", "a", "b"], "n": [2, 1, 5], "is_retraction": [False, True, True]})
    >>> newest_rows(rows, ["k"]).rows()
    [('b', 5, True), ('a', 2, False)]
    """
    if has_retractions(rows):
        rows = rows.sort(IS_RETRACTION, descending=True, nulls_last=True, maintain_order=True)
    return rows.unique(list(key), keep="last", maintain_order=True)


def final(rows: pl.DataFrame) -> pl.DataFrame:
    """Fold a changelog from its beginning to the rows that are left: the table as it is now.

    >>> rows = pl.DataFrame({"v": ["a", "b", "a"], "is_retraction": [False, False, True]})
    >>> final(rows).rows()
    [('b',)]
    """
    left = unweighted(weighted(rows)) if has_retractions(rows) else rows
    gone = left.filter(pl.col(IS_RETRACTION)) if IS_RETRACTION in left.columns else left.clear()
    return left.drop(IS_RETRACTION, strict=False) if gone.is_empty() else left
