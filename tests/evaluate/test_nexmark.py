"""NEXMark and Yahoo: the generator keeps the published proportions, queries give what plain computations give."""

from __future__ import annotations

import polars as pl
import pytest
from benchmarks import workload, yahoo
from benchmarks.nexmark.generator import Auctions
from benchmarks.nexmark.queries import QUERIES, bids_of_rows
from benchmarks.nexmark.reference import COLUMNS, answers, shown
from polars import col

from headrace.inprocess import Runner
from headrace.stream import Stream
from headrace.time.instants import instant

EVENTS = Auctions(rate=1_000, seed=3).events(0, 30_000)


def test_the_generator_keeps_the_proportions() -> None:
    counts = dict(EVENTS["kind"].value_counts().rows())
    assert counts == {"person": 600, "auction": 1_800, "bid": 27_600}
    bids = EVENTS.filter(col("kind") == "bid")
    hot = bids.with_columns(hot=(col("auction") - 1000) % 100 == 0)["hot"].mean()
    assert hot == pytest.approx(0.5, abs=0.03)  # half by choice, and one in a hundred of the others
    assert bids.with_columns(hot=(col("bidder") - 1000) % 100 == 0)["hot"].mean() == pytest.approx(0.75, abs=0.03)
    assert bids["price"].min() >= 100  # type: ignore[operator]
    assert bids["price"].max() <= 100_000_000  # type: ignore[operator]
    # Nobody bids on what is not there yet.
    newest = EVENTS.filter(col("kind") == "auction").select("event_time", newest="id")
    joined = bids.filter(col("auction") > 1000).join_asof(newest, on="event_time")
    assert (joined["auction"] <= joined["newest"]).all()
    assert EVENTS.filter(col("kind") != "bid")["bidder"].null_count() == 2_400


def test_an_event_is_the_same_however_many_are_asked_for() -> None:
    parts = pl.concat([Auctions(seed=3, rate=1_000).events(first, 7_500) for first in range(0, 30_000, 7_500)])
    assert parts.equals(EVENTS)
    assert not Auctions(seed=4, rate=1_000).events(0, 30_000).equals(EVENTS)


@pytest.mark.filterwarnings("ignore:.*may go on for ever")
@pytest.mark.parametrize("query", QUERIES)
def test_a_query_gives_what_a_plain_computation_gives(query: str) -> None:
    runner = Runner(QUERIES[query](bids_of_rows()))
    steps = []
    for first in range(0, EVENTS.height, 4_000):
        rows = EVENTS.slice(first, 4_000)
        steps.append(runner.step(rows, now=instant(rows["event_time"][-1])))
    steps.append(runner.finish())
    if query == "q12":
        # The clock goes on.
        steps.append(runner.step(now=instant(EVENTS["event_time"][-1]) + 60_000_000))
    results = pl.concat([step.results for step in steps])
    expected = answers(query, EVENTS)
    assert len(expected) >= 3
    found = shown(query, results)
    assert len(found) == len(expected)
    assert _close(found, expected)
    assert len(COLUMNS[query]) == len(expected[0])


def test_yahoos_query_gives_what_plain_polars_gives() -> None:
    events = yahoo.events(30_000, rate=1_000)
    _, results = workload.in_process(yahoo.query(Stream.rows("events", yahoo.SCHEMA)), events, batch=7_000)
    found = sorted(pl.concat(results).select("window_end", "campaign_id", "views").rows())
    assert found == yahoo.expected(events)
    assert len(found) == 300  # 100 campaigns in three windows


def _close(found: list[tuple[object, ...]], expected: list[tuple[object, ...]]) -> bool:
    """Means are sums in another order."""
    return all(
        one == two or (isinstance(two, float) and one == pytest.approx(two, rel=1e-12))
        for left, right in zip(found, expected, strict=True)
        for one, two in zip(left, right, strict=True)
    )
