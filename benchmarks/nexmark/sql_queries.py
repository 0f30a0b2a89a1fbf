# ruff: noqa: E501, S608 - texts of SQL, made of our own parts
"""NEXMark in SQL: q0 to q23 and the four pattern queries, in the form that Flink reads where it can.

The texts read the tables `bid`, `auction` and `person`, which are views of `events`: a topic, or a file to check the
answers. q6 is written so that it needs no OVER of rows that are revised: an auction's final price is known when it
expires, which is 20 s after it began at most. q12 reads `bid_by_arrival`, whose time is that of arrival. q13 looks up in `side_input`.
"""

from __future__ import annotations

from typing import Final

import polars as pl
from benchmarks.nexmark.queries import BOUND
from polars import col

#: Columns of events, beside those of the generator: when an auction expires, and where a bid was made.
_COLUMNS: Final = """
    kind STRING, id BIGINT, auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, seller BIGINT,
    category BIGINT, reserve BIGINT, expires TIMESTAMP(3), name STRING, city STRING, `state` STRING, extra STRING
"""
_VIEWS: Final = """
CREATE VIEW bid AS SELECT auction, bidder, price, channel, url, extra, dateTime FROM events WHERE kind = 'bid';
CREATE VIEW auction AS SELECT id, price AS initialBid, seller, category, reserve, expires, extra, dateTime
    FROM events WHERE kind = 'auction';
CREATE VIEW person AS SELECT id, name, city, `state`, extra, dateTime FROM events WHERE kind = 'person';
CREATE VIEW bid_by_arrival AS SELECT auction, bidder, price, p_time FROM events_by_arrival WHERE kind = 'bid';
"""


def tables_of_topics(topic: str, side: str) -> str:
    """Give the definitions over topics: events in the envelope, the side input by key.

    Args:
        topic: The topic of events.
        side: The topic of the side input.
    """
    events = f"'connector' = 'kafka', 'topic' = '{topic}', 'format' = 'headrace'"
    return f"""
CREATE TABLE events ({_COLUMNS}, dateTime TIMESTAMP(3) METADATA FROM 'event-time' VIRTUAL,
    p_time AS PROCTIME(), WATERMARK FOR dateTime AS dateTime - INTERVAL '1' SECOND) WITH ({events});
CREATE TABLE events_by_arrival ({_COLUMNS}, p_time AS PROCTIME()) WITH ({events});
CREATE TABLE side_input (key BIGINT, `value` STRING, PRIMARY KEY (key) NOT ENFORCED)
    WITH ('connector' = 'upsert-kafka', 'topic' = '{side}', 'format' = 'json');
{_VIEWS}"""


def tables_of_files(events: str, side: str) -> str:
    """Give the definitions over files of Parquet.

    Args:
        events: The path of the file of events.
        side: That of the side input.
    """
    return f"""
CREATE TABLE events ({_COLUMNS}, dateTime TIMESTAMP(3), p_time AS PROCTIME(),
    WATERMARK FOR dateTime AS dateTime - INTERVAL '1' SECOND) WITH ('connector' = 'file', 'path' = '{events}');
CREATE TABLE events_by_arrival ({_COLUMNS}, p_time AS PROCTIME()) WITH ('connector' = 'file', 'path' = '{events}');
CREATE TABLE side_input (key BIGINT, `value` STRING, PRIMARY KEY (key) NOT ENFORCED)
    WITH ('connector' = 'file', 'path' = '{side}');
{_VIEWS}"""


def with_more_columns(events: pl.DataFrame) -> pl.DataFrame:
    """Add what the generator leaves out, computed from the numbers of an event alone.

    Args:
        events: Events of the generator.
    """
    url = pl.concat_str(
        pl.lit("https://www.nexmark.com/"), col("auction") % 7, pl.lit("/"), col("bidder") % 5, pl.lit("/item.htm?query=1"),
        pl.when(col("bidder") % 3 == 0).then(pl.concat_str(pl.lit("&channel_id="), col("auction") % 100)).otherwise(pl.lit("")),
    )  # fmt: skip
    return events.with_columns(
        url=pl.when(col("kind") == "bid").then(url),
        expires=pl.when(col("kind") == "auction").then(col("event_time") + pl.duration(seconds=2 + col("id") % 8)),
        channel=pl.when((col("kind") == "bid") & (col("bidder") % 3 == 0))
        .then(pl.lit("channel"))
        .otherwise(col("channel")),
    )


def side_input() -> pl.DataFrame:
    """Give the rows that q13 looks up."""
    return pl.DataFrame({"key": range(0, 10_000, 2), "value": [f"side {key}" for key in range(0, 10_000, 2)]})


_HOP = "TABLE(HOP(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '2' SECOND, INTERVAL '10' SECOND))"
_JOINED = "auction AS A JOIN bid AS B ON A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND A.expires"
_RANGES = """
    COUNT({0}) FILTER (WHERE price < 10000) AS {1}_1,
    COUNT({0}) FILTER (WHERE price >= 10000 AND price < 1000000) AS {1}_2,
    COUNT({0}) FILTER (WHERE price >= 1000000) AS {1}_3"""
_COUNTED = ",".join(
    [
        "COUNT(*) AS bids",
        _RANGES.format("*", "bids"),
        "COUNT(DISTINCT bidder) AS bidders",
        _RANGES.format("DISTINCT bidder", "bidders"),
        "COUNT(DISTINCT auction) AS auctions",
        _RANGES.format("DISTINCT auction", "auctions"),
    ]
)


def _pattern(body: str) -> str:
    return f"SELECT * FROM bid MATCH_RECOGNIZE (PARTITION BY auction, bidder ORDER BY dateTime {body})"


_CHEAP = """
    MEASURES FIRST(cheap.dateTime) AS begun, LAST(cheap.dateTime) AS ended, AVG(CAST(cheap.price AS DOUBLE)) AS mean_price
    ONE ROW PER MATCH AFTER MATCH SKIP {}
    PATTERN (cheap+ dear)
    DEFINE cheap AS AVG(cheap.price) < {}
"""

SQL: Final[dict[str, str]] = {
    "q0": "SELECT auction, bidder, price, dateTime, extra FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, dateTime, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0",
    "q3": """SELECT P.name, P.city, P.`state`, A.id FROM auction AS A JOIN person AS P ON A.seller = P.id
        WHERE A.category = 10 AND (P.`state` = 'OR' OR P.`state` = 'ID' OR P.`state` = 'CA')""",
    "q4": f"""SELECT Q.category, AVG(Q.final) AS mean_price FROM (
          SELECT MAX(B.price) AS final, A.category FROM {_JOINED} GROUP BY A.id, A.category) AS Q
        GROUP BY Q.category""",
    "q5": f"""SELECT counted.auction, counted.num, counted.endtime FROM (
          SELECT auction, COUNT(*) AS num, window_start AS starttime, window_end AS endtime FROM {_HOP}
          GROUP BY auction, window_start, window_end) AS counted
        JOIN (
          SELECT MAX(num) AS maxn, starttime, endtime FROM (
            SELECT COUNT(*) AS num, window_start AS starttime, window_end AS endtime FROM {_HOP}
            GROUP BY auction, window_start, window_end) AS counts
          GROUP BY starttime, endtime) AS most
        ON counted.starttime = most.starttime AND counted.endtime = most.endtime AND counted.num >= most.maxn""",
    "q6": """SELECT seller, id,
          AVG(final) OVER (PARTITION BY seller ORDER BY ended, id ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS mean_price
        FROM (
          SELECT id, seller, MAX(price) AS final, window_time AS ended FROM TABLE(TUMBLE(
            (SELECT A.id, A.seller, B.price, A.expires FROM auction AS A JOIN bid AS B ON A.id = B.auction
              AND B.dateTime BETWEEN A.dateTime AND A.dateTime + INTERVAL '20' SECOND WHERE B.dateTime <= A.expires),
            DESCRIPTOR(expires), INTERVAL '1' SECOND))
          GROUP BY id, seller, window_start, window_end, window_time)""",
    "q7": """SELECT B.auction, B.price, B.bidder, B.dateTime FROM bid AS B JOIN (
          SELECT MAX(price) AS maxprice, window_time AS ended FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(dateTime),
            INTERVAL '10' SECOND)) GROUP BY window_start, window_end, window_time) AS highest
        ON B.price = highest.maxprice
          AND B.dateTime BETWEEN highest.ended - INTERVAL '9.999' SECOND AND highest.ended""",
    "q8": """SELECT P.id, P.name, P.starttime FROM (
          SELECT id, name, window_start AS starttime, window_end AS endtime FROM TABLE(TUMBLE(TABLE person,
            DESCRIPTOR(dateTime), INTERVAL '10' SECOND)) GROUP BY id, name, window_start, window_end) AS P
        JOIN (
          SELECT seller, window_start AS starttime, window_end AS endtime FROM TABLE(TUMBLE(TABLE auction,
            DESCRIPTOR(dateTime), INTERVAL '10' SECOND)) GROUP BY seller, window_start, window_end) AS A
        ON P.id = A.seller AND P.starttime = A.starttime AND P.endtime = A.endtime""",
    "q9": f"""SELECT id, seller, bidder, price, bid_time FROM (
          SELECT A.id, A.seller, B.bidder, B.price, B.dateTime AS bid_time,
            ROW_NUMBER() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.dateTime ASC) AS n FROM {_JOINED})
        WHERE n <= 1""",
    "q10": """SELECT auction, bidder, price, dateTime, DATE_FORMAT(dateTime, 'yyyy-MM-dd') AS `day`,
          DATE_FORMAT(dateTime, 'HH:mm') AS `minute` FROM bid""",
    "q11": """SELECT bidder, COUNT(*) AS bids, SESSION_START(dateTime, INTERVAL '10' SECOND) AS starttime,
          SESSION_END(dateTime, INTERVAL '10' SECOND) AS endtime
        FROM bid GROUP BY bidder, SESSION(dateTime, INTERVAL '10' SECOND)""",
    "q12": """SELECT bidder, COUNT(*) AS bids, window_start, window_end FROM TABLE(TUMBLE(TABLE bid_by_arrival,
          DESCRIPTOR(p_time), INTERVAL '10' SECOND)) GROUP BY bidder, window_start, window_end""",
    "q13": """SELECT B.auction, B.bidder, B.price, S.`value` FROM (
          SELECT auction, bidder, price, p_time FROM events WHERE kind = 'bid') AS B
        JOIN side_input FOR SYSTEM_TIME AS OF B.p_time AS S ON MOD(B.auction, 10000) = S.key""",
    "q14": """SELECT auction, bidder, 0.908 * price AS price,
          CASE WHEN EXTRACT(HOUR FROM dateTime) BETWEEN 8 AND 18 THEN 'day'
            WHEN EXTRACT(HOUR FROM dateTime) <= 6 OR EXTRACT(HOUR FROM dateTime) >= 20 THEN 'night'
            ELSE 'other' END AS time_of_day,
          CHAR_LENGTH(extra) - CHAR_LENGTH(REPLACE(extra, 'x', '')) AS xs
        FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000""",
    "q15": f"SELECT DATE_FORMAT(dateTime, 'yyyy-MM-dd') AS `day`, {_COUNTED} FROM bid "
    "GROUP BY DATE_FORMAT(dateTime, 'yyyy-MM-dd')",
    "q16": f"""SELECT channel, DATE_FORMAT(dateTime, 'yyyy-MM-dd') AS `day`,
          MAX(DATE_FORMAT(dateTime, 'HH:mm')) AS `minute`, {_COUNTED}
        FROM bid GROUP BY channel, DATE_FORMAT(dateTime, 'yyyy-MM-dd')""",
    "q17": f"""SELECT auction, DATE_FORMAT(dateTime, 'yyyy-MM-dd') AS `day`, COUNT(*) AS bids, {_RANGES.format("*", "bids")},
          MIN(price) AS min_price, MAX(price) AS max_price, AVG(price) AS mean_price, SUM(price) AS sum_price
        FROM bid GROUP BY auction, DATE_FORMAT(dateTime, 'yyyy-MM-dd')""",
    "q18": """SELECT auction, bidder, price, dateTime FROM (
          SELECT *, ROW_NUMBER() OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC) AS n FROM bid)
        WHERE n <= 1""",
    "q19": """SELECT auction, bidder, price, dateTime, n FROM (
          SELECT *, ROW_NUMBER() OVER (PARTITION BY auction ORDER BY price DESC) AS n FROM bid)
        WHERE n <= 10""",
    "q20": """SELECT B.auction, B.bidder, B.price, B.dateTime, A.seller, A.category
        FROM bid AS B JOIN auction AS A ON B.auction = A.id WHERE A.category = 10""",
    "q21": """SELECT auction, bidder, price, channel, CASE
            WHEN LOWER(channel) = 'apple' THEN '0' WHEN LOWER(channel) = 'google' THEN '1'
            WHEN LOWER(channel) = 'facebook' THEN '2' WHEN LOWER(channel) = 'baidu' THEN '3'
            ELSE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) END AS channel_id
        FROM bid WHERE REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2) IS NOT NULL
          OR LOWER(channel) IN ('apple', 'google', 'facebook', 'baidu')""",
    "q22": """SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3) AS dir1, SPLIT_INDEX(url, '/', 4) AS dir2,
          SPLIT_INDEX(url, '/', 5) AS dir3 FROM bid""",
    "q23": """SELECT B.auction, B.bidder, B.price, A.category, P.name AS seller_name
        FROM bid AS B JOIN auction AS A ON B.auction = A.id JOIN person AS P ON A.seller = P.id""",
    "cep0": _pattern("""
        MEASURES FIRST(begun.dateTime) AS begun, LAST(falling.dateTime) AS lowest, rising.dateTime AS risen
        ONE ROW PER MATCH AFTER MATCH SKIP TO LAST rising
        PATTERN (begun falling+ rising)
        DEFINE falling AS price < PREV(price), rising AS price > PREV(price)"""),
    "cep1": _pattern(_CHEAP.format("PAST LAST ROW", BOUND)),
    "cep2": _pattern(_CHEAP.format("TO NEXT ROW", BOUND)),
    "cep3": _pattern("""
        MEASURES dropped.dateTime AS dropped_at, high.price - dropped.price AS difference
        ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
        PATTERN (high near* dropped) WITHIN INTERVAL '5' SECOND
        DEFINE near AS near.price > high.price - 50, dropped AS dropped.price < high.price - 50"""),
}
