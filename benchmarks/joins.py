"""What joins cost: how the time of a batch grows with the keys in state, and joins from Kafka to Kafka.

    python -m benchmarks.joins                  # both; writes benchmarks/results/joins.json
    python -m benchmarks.joins --no-spark       # the growth alone, in process
    python -m benchmarks.joins --only interval --keys 10000,1000000
    python -m benchmarks.joins --quick

Growth: state of so many keys is filled, then batches of 1,000 events come with keys from all of them. Median and mean
processor time of a batch, with the key groups of a real run and state in memory; a join is as it should be if a batch
costs with 1,000,000 keys at most twice what it costs with 10,000.

From Kafka to Kafka, exactly once: an interval join of two topics with 50,000 keys, a stream with a versioned table of
1,000,000 rows, and a stream with a small table on all key groups. Topics are filled before, as in `nexmark`; events are
those of both topics.
"""

from __future__ import annotations

import os

os.environ["POLARS_MAX_THREADS"] = "1"

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from benchmarks import workload
from rich.console import Console
from rich.table import Table as Shown

from headrace.config import SparkSettings
from headrace.dev import EmbeddedBroker, ServerSettings
from headrace.inprocess import Runner
from headrace.stream import Job, Stream
from headrace.time import bounded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RESULTS = Path(__file__).parent / "results" / "joins.json"
START = 1_772_000_000_000_000
SECOND = 1_000_000
BATCH = 1_000
#: Filling brings many keys a batch, and pages then take a while to get as small as few keys need them.
WARM_UP, TIMED = 100, 40
_CHUNK = 50_000
console = Console()


def source(name: str, columns: dict[str, Any]) -> Stream:
    """A stream of rows in memory."""
    return Stream.rows(name, columns).watermark(bounded("1s"))


def rows(keys: np.ndarray[Any, Any], begin: int, span: int, **columns: Any) -> pl.DataFrame:
    """Rows with these keys, their times spread over a span."""
    times = begin + np.arange(len(keys), dtype=np.int64) * span // max(len(keys), 1)
    frame = pl.DataFrame({"k": keys, "event_time": times}, schema_overrides={"k": pl.Int64})
    return frame.with_columns(pl.col("event_time").cast(pl.Datetime("us", "UTC")), **columns)


@dataclass(frozen=True)
class Case:
    """A join whose state grows with its keys.

    Args:
        stream: The join.
        fill: Gives the batches that fill the state, for a number of keys.
        batch: Gives a batch for a number of keys, with its number.
    """

    stream: Stream
    fill: Callable[[int], Iterator[dict[str, pl.DataFrame]]]
    batch: Callable[[int, np.random.Generator, int], dict[str, pl.DataFrame]]


_LEFT = source("left", {"k": pl.Int64, "v": pl.Int64})
_RIGHT = source("right", {"k": pl.Int64, "w": pl.Int64})
_ORDERS = source("orders", {"o": pl.Int64, "k": pl.Int64})
_V, _W = pl.int_range(pl.len(), dtype=pl.Int64).alias("v"), pl.int_range(pl.len(), dtype=pl.Int64).alias("w")


def _pieces(keys: int) -> Iterator[np.ndarray[Any, Any]]:
    for first in range(0, keys, _CHUNK):
        yield np.arange(first, min(first + _CHUNK, keys))


def _both(keys: int) -> Iterator[dict[str, pl.DataFrame]]:
    for piece in _pieces(keys):
        yield {"left": rows(piece, START, SECOND, v=_V), "right": rows(piece, START, SECOND, w=_W)}


def _table(keys: int) -> Iterator[dict[str, pl.DataFrame]]:
    for piece in _pieces(keys):
        yield {"right": rows(piece, START, SECOND, w=_W)}


def _orders(keys: int) -> Iterator[dict[str, pl.DataFrame]]:
    for piece in _pieces(keys):
        yield {"orders": rows(piece // 10, START, SECOND).with_columns(o=pl.Series(piece))}
    for piece in _pieces(keys // 10):
        yield {"right": rows(piece, START, SECOND, w=_W)}


def _halves(keys: int, chance: np.random.Generator, number: int) -> dict[str, pl.DataFrame]:
    begin = START + (number + 2) * SECOND
    one, two = (chance.integers(0, keys, BATCH // 2) for _ in range(2))
    return {"left": rows(one, begin, SECOND, v=_V), "right": rows(two, begin, SECOND, w=_W)}


def _lookups(keys: int, chance: np.random.Generator, number: int) -> dict[str, pl.DataFrame]:
    begin = START + (number + 2) * SECOND
    one, two = chance.integers(0, keys, BATCH - BATCH // 20), chance.integers(0, keys, BATCH // 20)
    return {"left": rows(one, begin, SECOND, v=_V), "right": rows(two, begin, SECOND, w=_W)}


def _changes(keys: int, chance: np.random.Generator, number: int) -> dict[str, pl.DataFrame]:
    begin = START + (number + 2) * SECOND
    orders, customers = chance.integers(0, keys, BATCH - BATCH // 20), chance.integers(0, keys // 10, BATCH // 20)
    return {
        "orders": rows(orders // 10, begin, SECOND).with_columns(o=pl.Series(orders)),
        "right": rows(customers, begin, SECOND, w=_W),
    }


CASES = {
    "interval": Case(_LEFT.join(_RIGHT, on="k", within=("-1h", "1h"), how="left"), _both, _halves),
    "versions": Case(
        _LEFT.join(_RIGHT.as_table("k", versioned=True), on="k", as_of="event_time", how="left"), _table, _lookups
    ),
    "newest row": Case(_LEFT.join(_RIGHT.as_table("k"), on="k", how="left"), _table, _lookups),
    "foreign key": Case(_ORDERS.as_table("o").join(_RIGHT.as_table("k"), on="k", how="left"), _orders, _changes),
}


def growth(case: Case, keys: int) -> dict[str, float]:
    """Measure batches over state of so many keys."""
    runner = Runner(case.stream, key_groups=SparkSettings().key_groups)
    for batch in case.fill(keys):
        runner.step(batch)
    chance = np.random.default_rng(5)
    seconds, results = [], 0
    for number in range(WARM_UP + TIMED):
        batch = case.batch(keys, chance, number)
        began = time.process_time()
        results += runner.step(batch).results.height
        seconds.append(time.process_time() - began)
    counted = seconds[WARM_UP:]
    return {
        "keys": keys,
        "median_ms": round(1000 * statistics.median(counted), 1),
        "mean_ms": round(1000 * statistics.mean(counted), 1),
        "results": results,
    }


def topic(name: str, columns: dict[str, Any]) -> Stream:
    """A topic of records that bring their own columns."""
    return Stream.topic(name, schema=columns).watermark(bounded("1s"), idle_after="5s").drop("ingestion_time")


LEFT, RIGHT, VERSIONS, PLACES = "joins.left", "joins.right", "joins.versions", "joins.places"


def jobs() -> dict[str, tuple[Job, tuple[str, ...]]]:
    """The joins that run on Spark, each with its topics."""
    left, right, versions, places = (
        topic(name, {"k": pl.Int64, value: pl.Int64})
        for name, value in ((LEFT, "v"), (RIGHT, "w"), (VERSIONS, "w"), (PLACES, "w"))
    )
    near = left.join(right, on="k", within=("-10s", "10s"))
    then = left.join(versions.as_table("k", versioned=True), on="k", as_of="event_time", how="left")
    keyed = left.with_columns(place=pl.col("k") % 100).key_by("k")
    everywhere = keyed.join(places.as_table("k").named("places"), on={"place": "k"}, suffix="_place", broadcast=True)
    return {
        "interval": (Job("joins-interval", near), (LEFT, RIGHT)),
        "versions": (Job("joins-versions", then), (LEFT, VERSIONS)),
        "small table": (Job("joins-small", everywhere), (LEFT, PLACES)),
    }


def inputs(events: int, table: int, keys: int, rate: int) -> dict[str, pl.DataFrame]:
    """The rows of each topic.

    Args:
        events: How many of each stream.
        table: How many rows the versioned table has.
        keys: How many keys the streams have.
        rate: Events of a stream a second of event time.
    """
    chance = np.random.default_rng(7)
    span = events * SECOND // rate
    return {
        LEFT: rows(chance.integers(0, keys, events), START, span, v=_V),
        RIGHT: rows(chance.integers(0, keys, events), START, span, w=_W),
        VERSIONS: rows(chance.permutation(table), START, span, w=_W),
        PLACES: rows(np.arange(100), START, span, w=_W),
    }


def on_spark(chosen: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Run the joins from Kafka to Kafka."""
    told = {}
    frames = inputs(chosen.events, chosen.table, chosen.stream_keys, chosen.rate)
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        with EmbeddedBroker(ServerSettings(data_dir=home / "kafka", memory="1g")) as broker:
            for name, frame in frames.items():
                workload.fill(broker, name, frame, key="k")
            for name, (job, topics) in jobs().items():
                if chosen.only and name not in chosen.only:
                    continue
                events = sum(frames[each].height for each in topics)
                figure, results, _ = workload.on_spark(broker, job, events=events, batch=chosen.batch, directory=home)
                told[name] = {**figure.to_dict(), "final_results": results.height}
                console.print(f"{name}: {figure.events_per_second:,.0f} events/s, {results.height:,} final results")
                if not results.height:
                    raise SystemExit(f"{name} gave no results")
    return told


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.joins", description=__doc__)
    parser.add_argument("--keys", default="10000,1000000", help="numbers of keys in state, for the growth")
    parser.add_argument("--events", type=int, default=2_000_000, help="of each stream, on Spark")
    parser.add_argument("--table", type=int, default=1_000_000, help="rows of the versioned table, on Spark")
    parser.add_argument("--stream-keys", type=int, default=50_000, help="keys of the streams, on Spark")
    parser.add_argument("--rate", type=int, default=100_000, help="events of a stream a second of event time")
    parser.add_argument("--batch", type=int, default=200_000, help="the most events of a batch, on Spark")
    parser.add_argument("--only", action="append", default=[], help="joins to run; all if none is named")
    parser.add_argument("--no-spark", action="store_true")
    parser.add_argument("--quick", action="store_true", help="little data: to see that it works, not for figures")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.keys, chosen.events, chosen.table = "1000,20000", 40_000, 20_000
        chosen.stream_keys, chosen.rate, chosen.batch = 1_000, 1_000, 10_000
    grown: dict[str, list[dict[str, float]]] = {}
    for name, case in CASES.items():
        if chosen.only and name not in chosen.only:
            continue
        grown[name] = [growth(case, int(keys)) for keys in chosen.keys.split(",")]
    show(grown)
    spark = {} if chosen.no_spark else on_spark(chosen)
    if chosen.quick or chosen.only or chosen.no_spark:
        console.print("Not written: --quick, --only and --no-spark are for looking, not for figures.")
        return
    record = {
        "conditions": workload.conditions(
            events_per_stream=chosen.events, table_rows=chosen.table, keys=chosen.stream_keys, per_batch=chosen.batch
        ),
        "growth": grown,
        "from Kafka to Kafka": spark,
    }
    RESULTS.write_text(json.dumps(record, indent=2) + "\n")


def show(grown: dict[str, list[dict[str, float]]]) -> None:
    """Print how the time of a batch grows."""
    table = Shown("join", "keys", "median, ms", "mean, ms", "times the smallest", "results")
    for name, figures in grown.items():
        for figure in figures:
            ratio = figure["median_ms"] / figures[0]["median_ms"]
            table.add_row(
                name,
                f"{figure['keys']:,}",
                str(figure["median_ms"]),
                str(figure["mean_ms"]),
                f"{ratio:.1f}",
                f"{figure['results']:,}",
            )
    console.print(table)


if __name__ == "__main__":
    main()
