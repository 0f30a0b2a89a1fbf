"""NEXMark's queries on Headrace's public interface: those that need no join, and those with MATCH_RECOGNIZE.

| query | what |
|---|---|
| q0 | every bid as it is: what the engine costs when it does nothing |
| q1 | prices in another currency |
| q2 | bids on certain auctions |
| q5 | hot items: the auctions with most bids in the last 10 s, every 2 s |
| q7 | the highest bid of each 10 s |
| q11 | how many bids each bidder makes in a session, which ends after 10 s without a bid |
| q12 | how many bids each bidder makes in 10 s by the clock on the wall |
| cep0 | periods in which the price of a bidder's bids on an auction falls, then rises |
| cep1 | the longest periods in which the mean price of a bidder's bids on an auction stays below a bound |
| cep2 | the same, with a period that may begin at every bid |
| cep3 | a price that falls by more than 50 within 5 s |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
from benchmarks.nexmark.generator import SCHEMA
from polars import col

from headrace import sql
from headrace.engine import Operator
from headrace.engine.operator import Outcome, Turn
from headrace.stream import Job, Stream
from headrace.time import bounded
from headrace.windows import (
    after_processing_time,
    count,
    global_,
    latest,
    repeatedly,
    session,
    sliding,
    top_k,
    tumbling,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.engine.state import Segments

TOPIC = "nexmark"
#: Dollars to euros, as in the original.
RATE = 0.908
BOUND = 10_000


class PassOn(Operator):
    """Gives every row as it comes. An aggregate has something to keep; this has nothing."""

    def turn(self, state: Segments, turn: Turn) -> Outcome:
        del state
        return Outcome(rows=turn.rows)

    def schema(self, rows: pl.Schema) -> pl.Schema:
        return rows

    def fingerprint(self) -> dict[str, str]:
        return {"step": "pass on"}


def _pass_on(keys: tuple[str, ...], rows: pl.Schema) -> Operator:
    del keys, rows
    return PassOn()


def q0(bids: Stream) -> Stream:
    return bids.select("auction", "bidder", "price", "channel").key_by("auction").process(_pass_on, name="pass on")


def q1(bids: Stream) -> Stream:
    euros = bids.select("auction", "bidder", price=col("price") * RATE)
    return euros.key_by("auction").process(_pass_on, name="pass on")


def q2(bids: Stream) -> Stream:
    chosen = bids.filter(col("auction") % 123 == 0).select("auction", "price")
    return chosen.key_by("auction").process(_pass_on, name="pass on")


def q5(bids: Stream) -> Stream:
    top = (
        bids.key_by("auction")
        .window(sliding("10s", every="2s"))
        .aggregate(bids=count())
        .with_columns(all=pl.lit(0))
        .key_by("all")
        .same_window()
        .aggregate(top=top_k("auction", 100, by="bids"))
    )
    # All that have as many bids as the first one.
    return (
        top.with_columns(most=col("top").list.first().struct.field("count"))
        .flat_map("item", col("top"))
        .filter(col("item").struct.field("count") == col("most"))
        .select("all", "window_start", "window_end", auction=col("item").struct.field("value"), bids=col("most"))
    )


def q7(bids: Stream) -> Stream:
    return (
        bids.with_columns(all=pl.lit(0), bid=pl.struct("price", "auction", "bidder"))
        .key_by("all")
        .window(tumbling("10s"))
        .aggregate(bid=latest("bid", by="price"))
    )


def q11(bids: Stream) -> Stream:
    return bids.key_by("bidder").window(session("10s")).aggregate(bids=count())


def q12(bids: Stream) -> Stream:
    every_10_s = repeatedly(after_processing_time(every="10s"))
    return bids.key_by("bidder").window(global_(), trigger=every_10_s, mode="delta").aggregate(bids=count())


def _match(body: str) -> Callable[[Stream], Stream]:
    def query(bids: Stream) -> Stream:
        clause = f"MATCH_RECOGNIZE (PARTITION BY auction, bidder ORDER BY event_time {body})"
        return sql(f"SELECT * FROM bids {clause}", {"bids": bids})  # noqa: S608 - our own text

    return query


cep0 = _match("""
    MEASURES FIRST(begun.event_time) AS begun, LAST(falling.event_time) AS lowest, rising.event_time AS risen
    ONE ROW PER MATCH AFTER MATCH SKIP TO LAST rising
    PATTERN (begun falling+ rising)
    DEFINE falling AS price < PREV(price), rising AS price > PREV(price)
""")
_CHEAP = f"""
    MEASURES FIRST(cheap.event_time) AS begun, LAST(cheap.event_time) AS ended, AVG(cheap.price) AS mean_price
    ONE ROW PER MATCH AFTER MATCH SKIP {{}}
    PATTERN (cheap+ dear)
    DEFINE cheap AS AVG(cheap.price) < {BOUND}
"""
cep1 = _match(_CHEAP.format("PAST LAST ROW"))
cep2 = _match(_CHEAP.format("TO NEXT ROW"))
cep3 = _match("""
    MEASURES dropped.event_time AS dropped_at, high.price - dropped.price AS difference
    ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
    PATTERN (high near* dropped) WITHIN INTERVAL '5' SECOND
    DEFINE near AS near.price > high.price - 50, dropped AS dropped.price < high.price - 50
""")

QUERIES: dict[str, Callable[[Stream], Stream]] = {
    "q0": q0,
    "q1": q1,
    "q2": q2,
    "q5": q5,
    "q7": q7,
    "q11": q11,
    "q12": q12,
    "cep0": cep0,
    "cep1": cep1,
    "cep2": cep2,
    "cep3": cep3,
}
_COLUMNS: dict[str, Any] = {name: SCHEMA[name] for name in ("kind", "auction", "bidder", "price", "channel")}


def bids_of_rows() -> Stream:
    """Bids among events that are fed by hand."""
    return _bids(Stream.rows("events", _COLUMNS))


def bids_of_topic() -> Stream:
    """Bids among events in Kafka."""
    return _bids(Stream.topic(TOPIC, schema=_COLUMNS))


def _bids(events: Stream) -> Stream:
    return events.watermark(bounded("1s")).filter(col("kind") == "bid").drop("kind")


def job(query: str) -> Job:
    """A query as a job from Kafka to Kafka."""
    return Job(f"nexmark-{query}", QUERIES[query](bids_of_topic()), description=f"NEXMark {query}")
