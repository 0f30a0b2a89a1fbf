"""The Yahoo streaming benchmark: views of advertisements per campaign, in windows of 10 s.

    python -m benchmarks.yahoo            # prints a table, writes benchmarks/results/yahoo.json

100 campaigns have 10 advertisements each. Events tell that somebody viewed, clicked or bought; a third are views. The
query keeps the views, looks up the campaign of the advertisement (the original asks Redis; here it is a table that
every worker holds) and counts per campaign and 10 s of event time. Its answers are compared with plain Polars.
"""

from __future__ import annotations

import os

os.environ["POLARS_MAX_THREADS"] = "1"

import argparse
import json
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from benchmarks import workload
from polars import col
from rich.console import Console

from headrace.dev import EmbeddedBroker, ServerSettings
from headrace.enrich import table
from headrace.evaluate.parity import until
from headrace.stream import Job, Stream
from headrace.time import bounded
from headrace.windows import count, tumbling
from headrace_transit.simulator.chance import uniform

RESULTS = Path(__file__).parent / "results" / "yahoo.json"
TOPIC = "yahoo"
CAMPAIGNS, ADS = 100, 10
START = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)
SCHEMA: dict[str, Any] = {
    "user_id": pl.String,
    "page_id": pl.String,
    "ad_id": pl.String,
    "ad_type": pl.String,
    "event_type": pl.String,
    "ip_address": pl.String,
}
COLUMNS = ("window_end", "campaign_id", "views")
console = Console()


def campaigns() -> pl.DataFrame:
    """Which advertisement belongs to which campaign."""
    number = np.arange(CAMPAIGNS * ADS)
    ads = [f"ad-{each:08x}" for each in (number * 2_654_435_761) % 2**32]
    return pl.DataFrame({"ad_id": ads, "campaign_id": [f"campaign-{each:03d}" for each in number // ADS]})


def events(count_: int, *, rate: int, seed: int = 1) -> pl.DataFrame:
    """Make events, `rate` of them in a second of event time."""
    number = np.arange(count_)

    def pick(most: int, purpose: str) -> np.ndarray:
        return (uniform(seed, purpose, number) * most).astype(np.int64)

    begin = (START - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    return pl.DataFrame(
        {
            "user_id": [f"user-{each:08d}" for each in pick(100_000, "user")],
            "page_id": [f"page-{each:08d}" for each in pick(1_000, "page")],
            "ad_id": campaigns()["ad_id"].gather(pick(CAMPAIGNS * ADS, "ad")),
            "ad_type": np.array(["banner", "modal", "sponsored-search", "mail", "mobile"])[pick(5, "kind")],
            "event_type": np.array(["view", "click", "purchase"])[pick(3, "event")],
            "ip_address": "1.2.3.4",
            "event_time": pl.Series(begin + number * 1_000_000 // rate).cast(pl.Datetime("us", "UTC")),
        }
    )


def query(stream: Stream) -> Stream:
    """Views per campaign and 10 s."""
    return (
        stream.watermark(bounded("1s"))
        .filter(col("event_type") == "view")
        .select("ad_id")
        .enrich(table(campaigns(), gives={"campaign_id": pl.String}, name="campaigns"), on="ad_id")
        .key_by("campaign_id")
        .window(tumbling("10s"))
        .aggregate(views=count())
    )


def expected(all_events: pl.DataFrame) -> list[tuple[Any, ...]]:
    """The same by plain Polars."""
    views = all_events.filter(col("event_type") == "view").join(campaigns(), on="ad_id")
    end = col("event_time").dt.truncate("10s") + pl.duration(seconds=10)
    return sorted(views.group_by(end.alias("end"), "campaign_id").len().rows())


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.yahoo", description=__doc__)
    parser.add_argument("--events", type=int, default=500_000)
    parser.add_argument("--batch", type=int, default=50_000)
    parser.add_argument("--rate", type=int, default=10_000, help="events a second of event time")
    parser.add_argument("--quick", action="store_true", help="little data: to see that it works, not for figures")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.events, chosen.batch = 60_000, 10_000
    all_events = events(chosen.events, rate=chosen.rate)
    figure, results = workload.in_process(query(Stream.rows("events", SCHEMA)), all_events, batch=chosen.batch)
    found = sorted(pl.concat(results).select(COLUMNS).rows())
    if found != expected(all_events):
        raise SystemExit("the answers are not those of plain Polars")
    console.print(f"in process: {figure.events_per_core:,.0f} events/s per core; answers as by plain Polars")
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        with EmbeddedBroker(ServerSettings(data_dir=home / "kafka", memory="1g")) as broker:
            workload.fill(broker, TOPIC, all_events, key="ad_id")
            job = Job("yahoo", query(Stream.topic(TOPIC, schema=SCHEMA)))
            spark, final, watermark = workload.on_spark(
                broker, job, events=chosen.events, batch=chosen.batch, directory=home
            )
    known = until(pl.concat(results), watermark)
    if final.is_empty() or sorted(final.select(COLUMNS).rows()) != sorted(known.select(COLUMNS).rows()):
        raise SystemExit("the answers on Spark are not those of plain Polars")
    console.print(f"on Spark: {spark.events_per_second:,.0f} events/s, {spark.events_per_core:,.0f} per core")
    if chosen.quick:
        console.print("Not written: --quick is for looking, not for figures.")
        return
    record = {
        "conditions": workload.conditions(
            events=chosen.events, events_per_batch=chosen.batch, rate=chosen.rate, cores_used="1 in process, 2 on Spark"
        ),
        "views per campaign": {"in process": figure.to_dict(), "on Spark": spark.to_dict(), "right": True},
    }
    RESULTS.write_text(json.dumps(record, indent=2) + "\n", "utf-8")
    console.print(f"written to {RESULTS}")


if __name__ == "__main__":
    main()
