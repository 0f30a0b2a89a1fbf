"""The keys of records that are written as upserts: for a topic that holds the newest row of each key.

Of each key a batch gives one record (`headrace.engine.changelog.newest_rows`): the row that was added, or where only an
old row was taken back, a delete, which in Kafka is a record without a value (a tombstone).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Sequence


def upsert_keys(rows: pl.DataFrame, key: Sequence[str]) -> pl.Series:
    """Write the key of each record: a single text as it is, anything else as JSON.

    >>> upsert_keys(pl.DataFrame({"k": ["a|b", None]}), ["k"]).to_list()
    ['a|b', '{"k":null}']
    >>> upsert_keys(pl.DataFrame({"k": ["a"], "n": [1]}), ["k", "n"]).to_list()
    ['{"k":"a","n":1}']
    """
    whole = pl.struct(list(key)).struct.json_encode()
    text = pl.coalesce(pl.col(key[0]).cast(pl.String), whole) if len(key) == 1 else whole
    return rows.select(text.alias("key")).to_series()
