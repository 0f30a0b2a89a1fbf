"""NEXMark's answers by plain Polars, and by plain loops where the question is about sequences.

Nothing of Headrace is used here. Each function gets all events and gives the rows that a query must answer, as a sorted
list of tuples of the columns named in `COLUMNS`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
from benchmarks.nexmark.queries import BOUND, RATE
from polars import col

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Rows = list[tuple[Any, ...]]

#: The columns of each query's answers that are compared.
COLUMNS = {
    "q0": ["event_time", "auction", "bidder", "price", "channel"],
    "q1": ["event_time", "auction", "bidder", "price"],
    "q2": ["event_time", "auction", "price"],
    "q5": ["window_end", "auction", "bids"],
    "q7": ["window_end", "price", "auction", "bidder"],
    "q11": ["window_start", "window_end", "bidder", "bids"],
    "q12": ["bidder", "bids"],
    "cep0": ["auction", "bidder", "begun", "lowest", "risen"],
    "cep1": ["auction", "bidder", "begun", "ended", "mean_price"],
    "cep2": ["auction", "bidder", "begun", "ended", "mean_price"],
    "cep3": ["auction", "bidder", "dropped_at", "difference"],
}


def answers(query: str, events: pl.DataFrame) -> Rows:
    """What a query must answer over all events.

    Args:
        query: Its name.
        events: All events, in order.
    """
    bids = events.filter(col("kind") == "bid")
    return sorted(_ANSWERS[query](bids))


def shown(query: str, results: pl.DataFrame) -> Rows:
    """What a query did answer, in the same form."""
    if query == "q7":
        results = results.unnest("bid")
    if query == "q12":
        # When a window by the clock ends is nobody's business but the clock's: what counts is that no bid is missing.
        results = results.group_by("bidder").agg(col("bids").sum())
    return sorted(results.select(COLUMNS[query]).rows())


def _q0(bids: pl.DataFrame) -> Rows:
    return bids.select(COLUMNS["q0"]).rows()


def _q1(bids: pl.DataFrame) -> Rows:
    return bids.select("event_time", "auction", "bidder", col("price") * RATE).rows()


def _q2(bids: pl.DataFrame) -> Rows:
    return bids.filter(col("auction") % 123 == 0).select("event_time", "auction", "price").rows()


def _q5(bids: pl.DataFrame) -> Rows:
    ends = [
        bids.with_columns(end=col("event_time").dt.truncate("2s") + pl.duration(seconds=2 * n)) for n in range(1, 6)
    ]
    counted = pl.concat(ends).group_by("end", "auction").len()
    return counted.filter(col("len") == col("len").max().over("end")).select("end", "auction", "len").rows()


def _q7(bids: pl.DataFrame) -> Rows:
    windowed = bids.with_columns(end=col("event_time").dt.truncate("10s") + pl.duration(seconds=10))
    best = windowed.sort("price", "auction", "bidder").group_by("end", maintain_order=True).last()
    return best.select("end", "price", "auction", "bidder").rows()


def _q11(bids: pl.DataFrame) -> Rows:
    gap = pl.duration(seconds=10)
    begins = (col("event_time") - col("event_time").shift(1) >= gap).fill_null(value=True).over("bidder")
    numbered = bids.sort("event_time").with_columns(number=begins.cum_sum().over("bidder"))
    sessions = numbered.group_by("bidder", "number").agg(
        begin=col("event_time").min(), end=col("event_time").max() + gap, bids=pl.len()
    )
    return sessions.select("begin", "end", "bidder", "bids").rows()


def _q12(bids: pl.DataFrame) -> Rows:
    return bids.group_by("bidder").len().rows()


def _sequences(bids: pl.DataFrame) -> Iterator[tuple[int, int, list[tuple[Any, int]]]]:
    ordered = bids.sort("event_time")
    for (auction, bidder), rows in ordered.group_by("auction", "bidder", maintain_order=True):
        yield auction, bidder, rows.select("event_time", "price").rows()


def _cep0(bids: pl.DataFrame) -> Rows:
    found = []
    for auction, bidder, rows in _sequences(bids):
        begin = 0
        while begin < len(rows):
            last = begin
            while last + 1 < len(rows) and rows[last + 1][1] < rows[last][1]:
                last += 1
            if last > begin and last + 1 < len(rows) and rows[last + 1][1] > rows[last][1]:
                found.append((auction, bidder, rows[begin][0], rows[last][0], rows[last + 1][0]))
                begin = last + 1
            else:
                begin += 1
    return found


def _cheap(bids: pl.DataFrame, after: Callable[[int, int], int]) -> Rows:
    found = []
    for auction, bidder, rows in _sequences(bids):
        begin = 0
        while begin < len(rows):
            total, last = 0, begin - 1
            while last + 1 < len(rows) and (total + rows[last + 1][1]) / (last + 2 - begin) < BOUND:
                last += 1
                total += rows[last][1]
            # One more bid is needed, whatever its price; if there is none, the last cheap one serves as it.
            if last + 1 >= len(rows) and last > begin:
                total -= rows[last][1]
                last -= 1
            if begin <= last < len(rows) - 1:
                found.append((auction, bidder, rows[begin][0], rows[last][0], total / (last + 1 - begin)))
                begin = after(begin, last + 1)
            else:
                begin += 1
    return found


def _cep1(bids: pl.DataFrame) -> Rows:
    return _cheap(bids, lambda _, last: last + 1)


def _cep2(bids: pl.DataFrame) -> Rows:
    return _cheap(bids, lambda begin, _: begin + 1)


def _cep3(bids: pl.DataFrame) -> Rows:
    found = []
    for auction, bidder, rows in _sequences(bids):
        begin = 0
        while begin < len(rows):
            high = rows[begin][1]
            end = begin + 1
            while end < len(rows) and rows[end][1] > high - 50:
                end += 1
            # The match as a whole takes 5 s at most.
            fits = end < len(rows) and rows[end][1] < high - 50 and (rows[end][0] - rows[begin][0]).total_seconds() <= 5
            if fits:
                found.append((auction, bidder, rows[end][0], high - rows[end][1]))
                begin = end + 1
            else:
                begin += 1
    return found


_ANSWERS: dict[str, Callable[[pl.DataFrame], Rows]] = {
    "q0": _q0,
    "q1": _q1,
    "q2": _q2,
    "q5": _q5,
    "q7": _q7,
    "q11": _q11,
    "q12": _q12,
    "cep0": _cep0,
    "cep1": _cep1,
    "cep2": _cep2,
    "cep3": _cep3,
}
