"""Frames in columns: where the frame of each row begins and ends, and aggregates over many frames at once.

Rows are sorted by key and by their order, so a frame is a stretch of rows. Aggregates of bounded frames are folded over
the rows of each stretch, many stretches at a time; those of frames without bound are carried from row to row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from headrace.windows.fold import Fold

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from headrace.tables.frames import Frame

#: Rows of stretches that are folded at once.
_PAIRS = 500_000
#: Rows of one key that are carried on in one round.
_BLOCK = 128
_STRETCH, _ROW = "#stretch", "#row"


@dataclass(frozen=True)
class Spans:
    """The frame of each row, by places of rows; those of rows that are not fresh mean nothing.

    Args:
        firsts: Where the key of each row begins.
        starts: Where its frame begins.
        ends: Where its frame ends, that row included.
        fresh: The places of the rows that are asked for.
    """

    firsts: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    fresh: NDArray[np.int64]

    @classmethod
    def of(cls, rows: pl.DataFrame, keys: Sequence[str], frame: Frame, *, fresh: str, time: str, peers: bool) -> Spans:
        """Find the frames.

        Args:
            rows: Sorted by key, and by their order.
            keys: The key columns.
            frame: Which rows count.
            fresh: The column that says which rows are asked for.
            time: The column of their times.
            peers: Whether rows of one time count for each other in a frame of time.
        """
        places = np.arange(rows.height, dtype=np.int64)
        asked = np.flatnonzero(rows.get_column(fresh).to_numpy())
        if rows.height == 0:
            return cls(places, places, places, asked)
        key = rows.select(pl.struct(keys).alias("key")).to_series()
        begins = (key.ne_missing(key.shift())).to_numpy().copy()
        begins[0] = True
        number = np.cumsum(begins) - 1
        firsts = np.flatnonzero(begins)[number]
        if frame.unit == "rows":
            starts = firsts if frame.preceding is None else np.maximum(firsts, places - frame.preceding)
            return cls(firsts, starts, places, asked)
        times = rows.get_column(time).to_numpy()
        back = times if frame.preceding is None else times - frame.preceding
        # Keys and times as one ascending number, so that one search finds all places.
        _, dense = np.unique(np.concatenate([times, back]), return_inverse=True)
        wide = int(dense.max()) + 1
        own, wanted = number * wide + dense[: len(times)], number * wide + dense[len(times) :]
        starts = firsts if frame.preceding is None else np.searchsorted(own, wanted, "left")
        ends = np.searchsorted(own, own, "right") - 1 if peers else places
        return cls(firsts, starts, ends, asked)


def folded(rows: pl.DataFrame, fold: Fold, spans: Spans) -> pl.DataFrame:
    """Fold the rows of each frame; gives a row per row, null for those that are not fresh."""
    by_stretch = Fold((_STRETCH,), fold.aggregates)
    starts, ends = spans.starts[spans.fresh], spans.ends[spans.fresh]
    # Rows of one time have one frame.
    stretches, which = np.unique(np.stack([starts, ends], axis=1), axis=0, return_inverse=True)
    which = which.reshape(-1)
    lengths = stretches[:, 1] - stretches[:, 0] + 1 if len(stretches) else np.zeros(0, dtype=np.int64)
    parts = [by_stretch.results(by_stretch.partials(_with(rows.clear(), _STRETCH, np.zeros(0, dtype=np.int64))))]
    for low, high in _chunks(lengths):
        own = lengths[low:high]
        number = np.repeat(np.arange(low, high, dtype=np.int64), own)
        within = np.arange(own.sum(), dtype=np.int64) - np.repeat(np.cumsum(own) - own, own)
        chosen = rows[np.repeat(stretches[low:high, 0], own) + within]
        parts.append(by_stretch.results(by_stretch.partials(_with(chosen, _STRETCH, number))))
    return _spread(pl.concat(parts).drop(_STRETCH)[which], rows.height, spans.fresh)


def cumulated(rows: pl.DataFrame, fold: Fold, spans: Spans) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Fold all rows of the key up to each row, from what the last kept row of the key has come to.

    Returns:
        The rows with what the aggregates have come to in columns of their partials, and the results of fresh rows.
    """
    by_row = Fold((_ROW,), fold.aggregates)
    none = np.zeros(0, dtype=np.int64)
    empty = by_row.partials(_with(rows.clear(), _ROW, none))
    names = [name for name in empty.columns if name != _ROW]
    # The carried partials: of a kept row those that were saved with it.
    carried = [empty]
    if rows.height and names[0] in rows.columns:
        kept = rows.with_columns(pl.int_range(pl.len(), dtype=pl.Int64).alias(_ROW))
        kept = kept[np.setdiff1d(np.arange(rows.height), spans.fresh)]
        carried.append(kept.select(empty.columns).cast(empty.schema))
    begins = np.searchsorted(spans.fresh, spans.firsts[spans.fresh])
    nth = np.arange(len(spans.fresh), dtype=np.int64) - begins
    for round_ in range(int(nth.max(initial=-1)) // _BLOCK + 1):
        chosen = np.flatnonzero(nth // _BLOCK == round_)
        first = spans.fresh[chosen] - nth[chosen] % _BLOCK
        lengths = spans.fresh[chosen] - first + 1
        for low, high in _chunks(lengths):
            own = lengths[low:high]
            number = np.repeat(spans.fresh[chosen][low:high], own)
            within = np.arange(own.sum(), dtype=np.int64) - np.repeat(np.cumsum(own) - own, own)
            parts = by_row.partials(_with(rows[np.repeat(first[low:high], own) + within], _ROW, number))
            # What the row before the stretch has come to, if it is one of the same key.
            before = np.stack([spans.fresh[chosen][low:high], first[low:high] - 1], axis=1)
            before = before[first[low:high] > spans.firsts[spans.fresh[chosen][low:high]]]
            links = pl.DataFrame({"#to": before[:, 0], _ROW: before[:, 1]})
            history = pl.concat(carried)
            came = links.join(history, on=_ROW, how="inner").drop(_ROW).rename({"#to": _ROW})
            both = pl.concat([came.select(parts.columns), parts])
            carried.append(by_row.merged(both, compact=True).select(empty.columns))
    partials = pl.concat(carried).sort(_ROW).unique(_ROW, keep="last", maintain_order=True)
    every = pl.DataFrame({_ROW: np.arange(rows.height, dtype=np.int64)})
    aligned = every.join(partials, on=_ROW, how="left", maintain_order="left")
    results = by_row.results(aligned).drop(_ROW)
    # Rows of one time share what the last of them has come to.
    return rows.with_columns(aligned.drop(_ROW).get_columns()), results[spans.ends]


def _with(rows: pl.DataFrame, name: str, values: NDArray[Any]) -> pl.DataFrame:
    return rows.with_columns(pl.Series(name, values, dtype=pl.Int64))


def _chunks(lengths: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Cut stretches into chunks of some number of rows, each stretch whole."""
    if len(lengths) == 0:
        return []
    number = np.cumsum(lengths) // _PAIRS
    edges = np.flatnonzero(np.diff(number)) + 1
    return list(zip([0, *edges.tolist()], [*edges.tolist(), len(lengths)], strict=True))


def _spread(values: pl.DataFrame, height: int, places: NDArray[np.int64]) -> pl.DataFrame:
    """Give values their places among rows, null at the others."""
    every = pl.DataFrame({_ROW: np.arange(height, dtype=np.int64)})
    at = values.with_columns(pl.Series(_ROW, places, dtype=pl.Int64))
    return every.join(at, on=_ROW, how="left", maintain_order="left").drop(_ROW)
