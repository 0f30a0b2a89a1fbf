"""How the time of a batch grows: with keys, with windows per event, with the lateness that is allowed.

    python -m benchmarks.growth            # prints a table, writes benchmarks/results/growth.json
    python -m benchmarks.growth --keyed    # state by key: sessions, deduplication, previous, global and count
                                           # windows, partial matches, tables; in results/growth_keyed.json
    python -m benchmarks.growth --keyed --only session --keys 10000,2000000

State by key is measured with the key groups of a real run and 1,000 events a batch: median, mean and largest time of
a batch, beside the ratio to the smallest state.

The operators run in process, with state in memory, one thread: what is measured is the engine's own work, without
Spark's fixed cost. Every batch has the same number of events over one second of event time; the median over the batches
that fire no window is the cost of taking rows in, that over those that do includes the firing, which grows with what
comes out. Seconds are of processor time.
"""

from __future__ import annotations

import os

os.environ["POLARS_MAX_THREADS"] = "1"

import argparse
import json
import platform
import resource
import statistics
import time
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np
import polars as pl
import psutil
from polars import col
from rich.console import Console
from rich.table import Table

from headrace.cep import Pattern
from headrace.cep.measures import first, last
from headrace.config import SparkSettings
from headrace.inprocess import Runner
from headrace.stream import Stream
from headrace.time import bounded
from headrace.windows import (
    Assigner,
    after_count,
    count,
    count_window,
    global_,
    latest,
    repeatedly,
    session,
    sliding,
    tumbling,
)
from headrace.windows import min as least
from headrace.windows import sum as total

RESULTS = Path(__file__).parent / "results" / "growth.json"
KEYED_RESULTS = RESULTS.with_name("growth_keyed.json")
START = 1_772_000_000_000_000
SECOND = 1_000_000
#: Batches that are not counted: the first takes in what waited for the watermark.
WARM_UP = 3
#: How many of the rows of a batch have a key that was not there.
_FRESH_SHARES = {"deduplicate": 0.1, "deduplicate, all new": 1.0}
console = Console()


@dataclass(frozen=True)
class Case:
    """One point of a curve."""

    curve: str
    name: str
    keys: int
    window: Assigner
    lateness: str = "0s"


@dataclass(frozen=True)
class Figure:
    """What one point took."""

    curve: str
    case: str
    batch_ms: float
    firing_batch_ms: float | None
    state_mb: float
    resident_mb: float


CASES = [
    *(Case("keys", f"{keys:,} keys", keys, tumbling("1min")) for keys in (1_000, 10_000, 50_000, 1_000_000)),
    Case("windows per event", "1", 10_000, tumbling("5s")),
    Case("windows per event", "6", 10_000, sliding("30s", every="5s")),
    Case("windows per event", "60", 10_000, sliding("5min", every="5s")),
    Case("windows per event", "720", 10_000, sliding("1h", every="5s")),
    Case("allowed lateness", "none", 10_000, tumbling("5s")),
    Case("allowed lateness", "1 h", 10_000, tumbling("5s"), "1h"),
]


def run(case: Case, *, events: int, batches: int) -> Figure:
    """Fill the state with every key, then time batches of a fixed size."""
    stream = (
        Stream.rows("rows", {"key": pl.Int64, "value": pl.Float64})
        .watermark(bounded("1s"))
        .key_by("key")
        .window(case.window, allowed_lateness=case.lateness)
        .aggregate(n=count(), value=latest("value"))
    )
    runner = Runner(stream, key_groups=8)
    random = np.random.default_rng(7)
    runner.step(_rows(np.arange(case.keys), 0))
    quiet, firing = [], []
    for batch in range(1, batches + 1):
        rows = _rows(random.integers(0, case.keys, events), batch)
        started = time.process_time()
        done = runner.step(rows)
        took = (time.process_time() - started) * 1000
        (firing if done.results.height else quiet).append(took)
    kept = sum(len(value) for stage in runner.snapshot().values() for group in stage for value in group.values())
    return Figure(
        case.curve,
        case.name,
        round(statistics.median(quiet or firing), 1),
        round(statistics.median(firing), 1) if firing else None,
        round(kept / 2**20, 1),
        round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    )


@dataclass(frozen=True)
class KeyedFigure:
    """What a batch of one operator took over a state of so many keys."""

    operator: str
    keys: int
    median_ms: float
    mean_ms: float
    max_ms: float
    ratio: float
    state_mb: float


def _keyed_streams() -> dict[str, Stream]:
    rows = Stream.rows("rows", {"key": pl.Int64, "value": pl.Float64}).watermark(bounded("1s"))
    keyed = rows.key_by("key")
    return {
        "session": keyed.window(session("1h")).aggregate(n=count(), value=latest("value")),
        "deduplicate": rows.deduplicate("key", within="1h"),
        "deduplicate, all new": rows.deduplicate("key", within="1h"),
        "previous": keyed.previous(before="value", within="1h"),
        "global": keyed.window(global_(), trigger=repeatedly(after_count(3))).aggregate(
            n=count(), value=latest("value")
        ),
        "count_window": keyed.window(count_window(5)).aggregate(n=count(), value=latest("value")),
        "partial matches": keyed.match(
            Pattern.begin("low", col("value") < 1).followed_by("high", col("value") > 100).within("1h")
        ).select(value=first("low.value"), at=last("high.event_time")),
        "table": rows.as_table("key").changes(),
        "aggregate": keyed.aggregate(n=count(), total=total("value"), least=least("value")),
        "aggregate of a table": rows.as_table("key").changes().key_by("key").aggregate(n=count(), least=least("value")),
        "distinct": rows.select("key").distinct(),
        "top 3": keyed.top(3, by="value"),
        "over 3 rows": keyed.over(rows=3, total=total("value")),
    }


def run_keyed(name: str, keys: int, *, events: int, batches: int, key_groups: int) -> KeyedFigure:
    """Fill the state with every key, then time batches of random keys.

    For patterns, every key has a partial match that waits; then one row in ten begins one, one in twenty completes one,
    and the others leave them as they are. For deduplication one row in ten has a key that was not there, or all have
    ("all new", where the state also grows by what the batches bring); the others are duplicates.
    """
    fresh_share = _FRESH_SHARES.get(name, 0.0)
    runner = Runner(_keyed_streams()[name], key_groups=key_groups)
    random = np.random.default_rng(7)
    runner.step(_rows(np.arange(keys), 0, np.zeros(keys)))
    took = []
    for batch in range(1, batches + WARM_UP + 1):
        luck = random.random(events)
        values = np.select([luck < 0.1, luck < 0.15], [0.5, 200.0], 50.0)
        fresh = keys + batch * events + np.arange(events)
        chosen = np.where(random.random(events) < fresh_share, fresh, random.integers(0, keys, events))
        rows = _rows(chosen, batch + 1, values)
        started = time.process_time()
        runner.step(rows)
        took.append((time.process_time() - started) * 1000)
    took = took[WARM_UP:]
    kept = sum(len(value) for stage in runner.snapshot().values() for group in stage for value in group.values())
    figures = (statistics.median(took), statistics.mean(took), max(took))
    return KeyedFigure(name, keys, *(round(figure, 1) for figure in figures), 1.0, round(kept / 2**20, 1))


def keyed(names: list[str], sizes: list[int], *, events: int, batches: int, key_groups: int, write: bool) -> None:
    """Measure state by key, and print the table."""
    figures: list[KeyedFigure] = []
    for name in names:
        smallest = None
        for keys in sizes:
            figure = run_keyed(name, keys, events=events, batches=batches, key_groups=key_groups)
            smallest = smallest or figure
            figures.append(replace(figure, ratio=round(figure.median_ms / smallest.median_ms, 2)))
            console.print(f"{name}, {keys:,} keys: {figure.median_ms} ms, {figures[-1].ratio} x")
    table = Table("operator", "keys", "ms a batch (median)", "mean", "max", "ratio", "state MB")
    for figure in figures:
        table.add_row(*map(str, asdict(figure).values()))
    console.print(table)
    if write:
        _write(KEYED_RESULTS, [asdict(figure) for figure in figures], events, batches, key_groups)


def _rows(keys: np.ndarray, second: int, values: np.ndarray | None = None) -> pl.DataFrame:
    times = START + second * SECOND + np.arange(len(keys)) % SECOND
    values = keys * 0.5 if values is None else values
    return pl.DataFrame({"key": keys, "value": values, "event_time": times}).cast(
        {"event_time": pl.Datetime("us", "UTC")}
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--events", type=int, default=10_000, help="events a batch")
    parser.add_argument("--batches", type=int, default=150)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--keyed", action="store_true", help="state by key, 1,000 events a batch")
    parser.add_argument("--only", help="operators of --keyed, separated by semicolons")
    parser.add_argument("--keys", default="10000,100000,500000,2000000", help="sizes of the state for --keyed")
    parser.add_argument("--key-groups", type=int, default=SparkSettings().key_groups, help="for --keyed")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.events, chosen.batches = 1_000, 20
    if chosen.keyed:
        names = chosen.only.split(";") if chosen.only else list(_keyed_streams())
        sizes = [int(size) for size in chosen.keys.split(",")]
        whole = not chosen.quick and not chosen.only
        batches = min(chosen.batches, 60)
        keyed(names, sizes, events=1_000, batches=batches, key_groups=chosen.key_groups, write=whole)
        return
    figures = []
    for case in CASES:
        figures.append(run(case, events=chosen.events, batches=chosen.batches))
        console.print(f"{case.curve}: {case.name}: {figures[-1].batch_ms} ms")
    table = Table("curve", "case", "ms a batch", "ms with firing", "state MB", "resident MB (peak so far)")
    for figure in figures:
        table.add_row(*(str(value) if value is not None else "-" for value in asdict(figure).values()))
    console.print(table)
    if chosen.quick:
        console.print("Not written: --quick is for looking, not for figures.")
        return
    _write(RESULTS, [asdict(figure) for figure in figures], chosen.events, chosen.batches, 8)


def _write(path: Path, figures: list[dict[str, object]], events: int, batches: int, key_groups: int) -> None:
    record = {
        "conditions": {
            "date": datetime.now(UTC).date().isoformat(),
            "cores": f"1 of {psutil.cpu_count()}",
            "python": platform.python_version(),
            "polars": version("polars"),
            "events_per_batch": events,
            "batches": batches,
            "key_groups": key_groups,
            "seconds": "of processor time, in process, state in memory",
        },
        "figures": figures,
    }
    path.write_text(json.dumps(record, indent=2) + "\n")
    console.print(f"written to {path.relative_to(Path.cwd())}")


if __name__ == "__main__":
    main()
