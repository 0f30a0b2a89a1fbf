"""Idempotency keys: what names a result, the same for every repetition of it and different for every other result.

A key is the BLAKE2b digest (128 bits, in hexadecimal) of these parts, one after the other:

    version, job, number of key columns, each key value, window_start, window_end, pane_index, is_retraction,
    event_time (only for results without a window), batch (only for results that may be taken back), ordinal

Each part is written as `<kind><length in bytes>:<text>`, a null as `n`. So no two sequences of parts give the same
text: `("x|y", "z")` differs from `("x", "y|z")`, 1 from "1", and null from "". Nothing depends on the process, the
machine or a version of Polars, whose own hashes and texts of types change. The ordinal tells results apart that are
alike in all other parts: rows of a `flat_map` after a window, or matches of one key that end at the same moment. They
leave a key group together, in an order that does not change. That does not hold for windows in order of arrival
(`order="arrival"`): docs/delivery.md names the exception.

A result of an updating stream (`is_retraction`) is told apart from later results of its key by the batch that gave it:
`batch` names what the batch has read, which is the same when it is repeated.

docs/delivery.md describes the format for readers; a change of it needs another `_VERSION`.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pyarrow as pa

from headrace.engine.operator import EVENT_TIME, IS_RETRACTION, PANE_INDEX, WINDOW_END, WINDOW_START

if TYPE_CHECKING:
    from collections.abc import Sequence

#: What the column is called.
KEY_COLUMN = "idempotency_key"
_VERSION = 2
_TEXT = "s"
_NULL = "n"


def idempotency_keys(frame: pl.DataFrame, keys: Sequence[str], job: str, *, batch: str = "") -> pl.Series:
    """Give each result of a batch its idempotency key.

    Args:
        frame: The results of one output in one batch.
        keys: The key columns.
        job: The name of the output: that of the job, or of its further output.
        batch: Names the batch, for results that may be taken back; empty for others.

    >>> frame = pl.DataFrame({"a": ["x|y", "x"], "b": ["z", "y|z"], "event_time": [None, None]})
    >>> idempotency_keys(frame, ["a", "b"], "job").to_list()
    ['667759ff4f61f45df10f5b01727dae19', 'a9f3f131891dc2064402b7e681f47f9f']
    """
    prefix = _part("i", str(_VERSION)) + _part(_TEXT, job) + _part("i", str(len(keys)))
    names = [*keys, WINDOW_START, WINDOW_END, PANE_INDEX, IS_RETRACTION, EVENT_TIME]
    # The window already says when a result with one happened.
    known = frame.drop(EVENT_TIME) if WINDOW_END in frame.columns else frame
    parts = [_encoded(name, known.schema[name]) if name in known.columns else pl.lit(_NULL) for name in names]
    parts += [pl.lit(_part("m", batch))] if batch else []
    texts = frame.select(pl.concat_str(pl.lit(prefix), *parts).alias("text")).to_series()
    texts = pl.select(pl.concat_str(texts, _written("i", _ordinals(texts)))).to_series()
    digests = b"".join([hashlib.blake2b(text, digest_size=16).digest() for text in texts.cast(pl.Binary).to_list()])
    return _hexadecimal(digests)


def _hexadecimal(digests: bytes) -> pl.Series:
    """Write digests of 16 bytes, one after the other, as 32 digits each."""
    rows = len(digests) // 16
    offsets = pa.py_buffer(np.arange(0, 32 * rows + 1, 32, dtype=np.int64))
    digits = pa.LargeStringArray.from_buffers(rows, offsets, pa.py_buffer(digests.hex().encode()))
    return pl.Series(KEY_COLUMN, pl.from_arrow(digits), dtype=pl.String)


def _ordinals(texts: pl.Series) -> pl.Expr:
    """Number the results that are alike; most batches have none."""
    if texts.is_unique().all():
        return pl.lit(0)
    return pl.lit(texts.to_frame().select(pl.int_range(pl.len()).over(texts.name)).to_series())


def _encoded(name: str, kind: pl.DataType) -> pl.Expr:
    """Write a column's values with their kind and length."""
    column = pl.col(name)
    if kind == pl.Boolean:
        return _written("b", column.cast(pl.Int8))
    if kind.is_integer():
        return _written("i", column)
    if kind == pl.Binary:
        return _written("x", column.bin.encode("hex"))
    if isinstance(kind, pl.Datetime | pl.Duration):
        letter = "t" if isinstance(kind, pl.Datetime) else "p"
        # "tu": microseconds since the epoch; the time zone is only how it is shown.
        return _written(letter + kind.time_unit[0], column.to_physical())
    if kind == pl.Date:
        return _written("d", column.to_physical())
    if kind == pl.Time:
        return _written("c", column.to_physical())
    return _written(_TEXT, column)


def _written(kind: str, values: pl.Expr) -> pl.Expr:
    text = values.cast(pl.String)
    whole = pl.concat_str(pl.lit(kind), text.str.len_bytes().cast(pl.String), pl.lit(":"), text)
    return whole.fill_null(_NULL)


def _part(kind: str, text: str) -> str:
    return f"{kind}{len(text.encode())}:{text}"
