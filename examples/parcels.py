"""Parcels: scans per depot, and parcels that arrived at a depot and did not leave it within 30 minutes.

In this process with data that is made up here, or from Kafka to Kafka:
    python examples/parcels.py                                   # an answer in this process
    python examples/parcels.py records | kcat -P -b HOST:PORT -t parcels.scans
    headrace run examples/parcels.py --bootstrap HOST:PORT       # the same from Kafka to Kafka
"""

import json
import random
import sys
from datetime import UTC, datetime, timedelta

import polars as pl

import headrace
from headrace import Job, Pattern, Stream, bounded, tumbling
from headrace.formats import json as json_format
from headrace.patterns import first
from headrace.windows import count

scans = Stream.topic(
    "parcels.scans",
    format=json_format(schema={"parcel": pl.String, "depot": pl.String, "what": pl.String}, time="scanned_at"),
).watermark(bounded("5s"), idle_after="10s")

per_depot = Job(
    "parcels-per-depot",
    scans.key_by("depot").window(tumbling("10min")).aggregate(scans=count()).select("depot", "scans", "window_end"),
    format=json_format(),
)
stay = Pattern.begin("in", pl.col("what") == "in").followed_by("out", pl.col("what") == "out").within("30min")
stuck = Job(
    "parcels-stuck",
    scans.key_by("depot", "parcel").match(stay).with_timed_out().select(since=first("in.event_time"))
    .filter(pl.col("timed_out")).select("depot", "parcel", "since"),
    format=json_format(),
)  # fmt: skip


def records(parcels: int = 60) -> list[bytes]:
    """Make scans of parcels that pass a depot; every tenth one stays."""
    chance, begin, rows = random.Random(1), datetime(2026, 3, 1, 8, tzinfo=UTC), []
    for number in range(parcels):
        arrival = begin + timedelta(seconds=chance.randrange(3600))
        departure = {} if number % 10 == 3 else {"out": arrival + timedelta(minutes=number % 25)}
        times = {"in": arrival} | departure
        depot = chance.choice(["north", "south", "harbour"])
        rows += [
            {"scanned_at": f"{at:%FT%TZ}", "parcel": f"P{number}", "depot": depot, "what": w} for w, at in times.items()
        ]
    return [json.dumps(row).encode() for row in sorted(rows, key=lambda row: row["scanned_at"])]


if __name__ == "__main__":
    if sys.argv[1:] == ["records"]:
        print("\n".join(record.decode() for record in records()))
    else:
        print(headrace.preview(per_depot, records()), headrace.preview(stuck, records()), sep="\n")
