"""Web clicks: sessions of each visitor, and the pages of each site that were read most in the last five minutes.

In this process with data that is made up here, or from Kafka to Kafka:
    python examples/clicks.py                                    # an answer in this process
    python examples/clicks.py records | kcat -P -b HOST:PORT -t clicks
    headrace run examples/clicks.py --bootstrap HOST:PORT        # the same from Kafka to Kafka
"""

import json
import random
import sys
from datetime import UTC, datetime, timedelta

import polars as pl

import headrace
from headrace import Job, Stream, bounded, session, sliding
from headrace.formats import json as json_format
from headrace.windows import count, distinct, first, latest, top_k

columns = {"site": pl.String, "visitor": pl.String, "page": pl.String, "bot": pl.Boolean}
clicks = (
    Stream.topic("clicks", format=json_format(columns, time="meta.at"))
    .watermark(bounded("10s"), idle_after="10s")
    .filter(~pl.col("bot").fill_null(value=False), counted="bots")
)
visits = Job(
    "visits",
    clicks.key_by("site", "visitor").window(session("15min"))
    .aggregate(clicks=count(), pages=distinct("page"), entered=first("page"), left=latest("page")),
    format=json_format(),
)  # fmt: skip
top_pages = Job(
    "top-pages",
    clicks.key_by("site").window(sliding("5min", every="1min")).aggregate(pages=top_k("page", 3)),
    format=json_format(),
)


def records(visitors: int = 200) -> list[bytes]:
    """Make the clicks of visitors over two hours; each comes once or twice and reads a few pages."""
    chance, begin, rows = random.Random(4), datetime(2026, 3, 1, 8, tzinfo=UTC), []
    for number in range(visitors):
        who = {"site": chance.choice(["shop", "blog"]), "visitor": f"V{number}"} | (
            {"bot": True} if number % 9 == 0 else {}
        )
        for _ in range(chance.randrange(1, 3)):
            at = begin + timedelta(seconds=chance.randrange(7200))
            for _ in range(chance.randrange(1, 8)):
                rows.append((at, {"meta": {"at": f"{at:%FT%TZ}"}, "page": f"/{chance.choice('aabcd')}", **who}))
                at += timedelta(seconds=chance.randrange(1, 300))
    return [json.dumps(row).encode() for _, row in sorted(rows, key=lambda pair: pair[0])]


if __name__ == "__main__":
    if sys.argv[1:] == ["records"]:
        print("\n".join(record.decode() for record in records()))
    else:
        print(headrace.preview(visits, records()), headrace.preview(top_pages, records()), sep="\n")
