"""Payments: a small payment that tries a card out, then a large one within a minute, with the same card.

In this process with data that is made up here, or from Kafka to Kafka:
    python examples/payments.py                                  # an answer in this process
    python examples/payments.py records | kcat -P -b HOST:PORT -t payments
    headrace run examples/payments.py --bootstrap HOST:PORT      # the same from Kafka to Kafka
"""

import json
import random
import sys
from datetime import UTC, datetime

import polars as pl

import headrace
from headrace import Job, Pattern, Stream, bounded
from headrace.formats import json as json_format
from headrace.patterns import first, last

columns = {"card": pl.String, "amount": pl.Float64, "shop": pl.Struct({"id": pl.Int64, "country": pl.String})}
payments = Stream.topic("payments", format=json_format(columns, time="at", time_format="ms"))

tried_out = (
    Pattern.begin("small", pl.col("amount") < 2).next("large", pl.col("amount") > 500).within("1min").skip("past_last")
)
suspects = Job(
    "suspect-payments",
    payments.watermark(bounded("2s"), idle_after="10s")
    .with_columns(country=pl.col("shop").struct.field("country"))
    .key_by("card")
    .match(tried_out)
    .select(
        at=last("large.event_time"),
        tried=first("small.amount"),
        amount=last("large.amount"),
        country=last("large.country"),
    ),
    format=json_format(),
)


def records(count: int = 2000) -> list[bytes]:
    """Make payments with 40 cards; about one in ten is small, and one in ten large."""
    chance, at, rows = random.Random(2), int(datetime(2026, 3, 1, tzinfo=UTC).timestamp() * 1000), []
    for _ in range(count):
        at += chance.randrange(1, 2000)
        amount = chance.choice([round(chance.uniform(0.1, 3), 2), *[round(chance.uniform(5, 600), 2)] * 9])
        shop = {"id": chance.randrange(100), "country": chance.choice(["fi", "se", "ee"])}
        rows.append({"at": at, "card": f"C{chance.randrange(40)}", "amount": amount, "shop": shop})
    return [json.dumps(row).encode() for row in rows]


if __name__ == "__main__":
    if sys.argv[1:] == ["records"]:
        print("\n".join(record.decode() for record in records()))
    else:
        print(headrace.preview(suspects, records()))
