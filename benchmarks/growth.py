"""How the time of a batch grows: with keys, with windows per event, with the lateness that is allowed.

    python -m benchmarks.growth            # prints a table, writes benchmarks/results/growth.json

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
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np
import polars as pl
import psutil
from rich.console import Console
from rich.table import Table

from headrace.inprocess import Runner
from headrace.stream import Stream
from headrace.time import bounded
from headrace.windows import Assigner, count, latest, sliding, tumbling

RESULTS = Path(__file__).parent / "results" / "growth.json"
START = 1_772_000_000_000_000
SECOND = 1_000_000
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
    kept = sum(len(value) for stage in runner.snapshot() for group in stage for value in group.values())
    return Figure(
        case.curve,
        case.name,
        round(statistics.median(quiet or firing), 1),
        round(statistics.median(firing), 1) if firing else None,
        round(kept / 2**20, 1),
        round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    )


def _rows(keys: np.ndarray, second: int) -> pl.DataFrame:
    times = START + second * SECOND + np.arange(len(keys)) % SECOND
    return pl.DataFrame({"key": keys, "value": keys * 0.5, "event_time": times}).cast(
        {"event_time": pl.Datetime("us", "UTC")}
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--events", type=int, default=10_000, help="events a batch")
    parser.add_argument("--batches", type=int, default=150)
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.events, chosen.batches = 1_000, 20
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
    record = {
        "conditions": {
            "date": datetime.now(UTC).date().isoformat(),
            "cores": f"1 of {psutil.cpu_count()}",
            "python": platform.python_version(),
            "polars": version("polars"),
            "events_per_batch": chosen.events,
            "batches": chosen.batches,
            "key_groups": 8,
            "seconds": "of processor time, in process, state in memory",
        },
        "figures": [asdict(figure) for figure in figures],
    }
    RESULTS.write_text(json.dumps(record, indent=2) + "\n")
    console.print(f"written to {RESULTS.relative_to(Path.cwd())}")


if __name__ == "__main__":
    main()
