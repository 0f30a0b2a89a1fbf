# ruff: noqa: E501, S608 - texts of SQL, made of our own parts
"""The answers to NEXMark's queries by DuckDB: SQL of a database, without windows of streams.

Pattern queries, and sessions, are answered by the plain loops of `reference`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import duckdb
from benchmarks.nexmark.reference import answers

if TYPE_CHECKING:
    import polars as pl

_TABLES: Final = """
CREATE VIEW bid AS SELECT auction, bidder, price, channel, url, extra, event_time AS t FROM events WHERE kind = 'bid';
CREATE VIEW auction AS SELECT id, price AS initial, seller, category, expires, event_time AS t FROM events
    WHERE kind = 'auction';
CREATE VIEW person AS SELECT id, name, city, state, event_time AS t FROM events WHERE kind = 'person';
CREATE VIEW joined AS SELECT A.id, A.seller, A.category, A.expires, B.bidder, B.price, B.t FROM auction A JOIN bid B
    ON A.id = B.auction WHERE B.t >= A.t AND B.t <= A.expires;
CREATE VIEW hopped AS SELECT auction, COUNT(*) AS num, w + INTERVAL 10 SECOND AS ended FROM (
    SELECT auction, unnest([time_bucket(INTERVAL 2 SECOND, t) - k * INTERVAL 2 SECOND for k in range(5)]) AS w FROM bid)
    GROUP BY auction, w;
"""
_COUNTED: Final = ", ".join(
    f"{what} AS {name}, {what} FILTER (WHERE price < 10000), "
    f"{what} FILTER (WHERE price >= 10000 AND price < 1000000), {what} FILTER (WHERE price >= 1000000)"
    for name, what in (
        ("bids", "COUNT(price)"),
        ("bidders", "COUNT(DISTINCT bidder)"),
        ("auctions", "COUNT(DISTINCT auction)"),
    )
)
_DAY: Final = "strftime(t, '%Y-%m-%d')"
_CHANNEL: Final = "nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '')"

QUERIES: Final[dict[str, str]] = {
    "q0": "SELECT auction, bidder, price, t, extra FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price, t, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE auction % 123 = 0",
    "q3": "SELECT P.name, city, state, A.id FROM auction A, person P WHERE seller = P.id AND category = 10 "
    "AND state IN ('OR', 'ID', 'CA')",
    "q4": "SELECT category, CAST(SUM(final) // COUNT(*) AS BIGINT) FROM (SELECT id, category, MAX(price) AS final "
    "FROM joined GROUP BY ALL) GROUP BY category",
    "q5": "SELECT auction, num, ended FROM hopped QUALIFY num = MAX(num) OVER (PARTITION BY ended)",
    "q6": "SELECT seller, id, CAST(SUM(final) OVER w // COUNT(*) OVER w AS BIGINT) FROM (SELECT id, seller, "
    "MAX(price) AS final, time_bucket(INTERVAL 1 SECOND, MAX(expires)) AS ended FROM joined GROUP BY id, seller) "
    "WINDOW w AS (PARTITION BY seller ORDER BY ended, id ROWS BETWEEN 10 PRECEDING AND CURRENT ROW)",
    "q7": "SELECT auction, price, bidder, t FROM bid QUALIFY price = MAX(price) OVER (PARTITION BY "
    "time_bucket(INTERVAL 10 SECOND, t))",
    "q8": "SELECT DISTINCT P.id, name, time_bucket(INTERVAL 10 SECOND, P.t) FROM person P, auction A WHERE P.id = seller "
    "AND time_bucket(INTERVAL 10 SECOND, P.t) = time_bucket(INTERVAL 10 SECOND, A.t)",
    "q9": "SELECT id, seller, bidder, price, t FROM joined QUALIFY ROW_NUMBER() OVER (PARTITION BY id ORDER BY price DESC, "
    "t) = 1",
    "q10": f"SELECT auction, bidder, price, t, {_DAY}, strftime(t, '%H:%M') FROM bid",
    "q13": "SELECT auction, bidder, price, 'side ' || (auction % 10000) FROM bid WHERE auction % 2 = 0",
    "q14": "SELECT auction, bidder, 0.908 * price, CASE WHEN hour(t) BETWEEN 8 AND 18 THEN 'day' WHEN hour(t) <= 6 OR "
    "hour(t) >= 20 THEN 'night' ELSE 'other' END, length(extra) FROM bid WHERE 0.908 * price > 1000000 "
    "AND 0.908 * price < 50000000",
    "q15": f"SELECT {_DAY} AS d, {_COUNTED} FROM bid GROUP BY d",
    "q16": f"SELECT channel, {_DAY} AS d, MAX(strftime(t, '%H:%M')), {_COUNTED} FROM bid GROUP BY channel, d",
    "q17": f"SELECT auction, {_DAY} AS d, COUNT(*), COUNT(*) FILTER (WHERE price < 10000), COUNT(*) FILTER (WHERE price "
    ">= 10000 AND price < 1000000), COUNT(*) FILTER (WHERE price >= 1000000), MIN(price), MAX(price), "
    "CAST(SUM(price) // COUNT(*) AS BIGINT), CAST(SUM(price) AS BIGINT) FROM bid GROUP BY auction, d",
    "q18": "SELECT auction, bidder, price, t FROM bid QUALIFY ROW_NUMBER() OVER (PARTITION BY bidder, auction "
    "ORDER BY t DESC) = 1",
    "q19": "SELECT auction, bidder, price, t, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC, t) AS n "
    "FROM bid QUALIFY n <= 10",
    "q20": "SELECT auction, bidder, B.price, B.t, seller, category FROM bid B, auction A WHERE auction = A.id "
    "AND category = 10",
    "q21": "SELECT auction, bidder, price, channel, CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' "
    f"WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3' ELSE {_CHANNEL} END AS c FROM bid WHERE c IS NOT NULL",
    "q22": "SELECT auction, bidder, price, channel, split_part(url, '/', 4), split_part(url, '/', 5), "
    "split_part(url, '/', 6) FROM bid",
    "q23": "SELECT auction, bidder, B.price, category, name FROM bid B, auction A, person P WHERE auction = A.id "
    "AND seller = P.id",
}


def expected(query: str, events: pl.DataFrame) -> list[tuple[Any, ...]]:
    """Give the answer to a query over all events, in any order.

    Args:
        query: Its name.
        events: The events, with the columns of `with_more_columns`.
    """
    if query in QUERIES:
        with duckdb.connect() as database:
            database.execute("SET TimeZone = 'UTC'")
            database.register("events", events.to_arrow())
            database.execute(_TABLES)
            return database.execute(QUERIES[query]).fetchall()
    plain = answers(query, events)
    if query == "q11":
        return [(bidder, bids, begin, end) for begin, end, bidder, bids in plain]
    return plain
