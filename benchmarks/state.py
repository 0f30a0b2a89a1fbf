"""How the time of a batch on Spark depends on the state: the same small batches over few keys and over many.

    python -m benchmarks.state            # prints a table, writes benchmarks/results/state.json

For each case a topic is filled with one event of every key, a job counts per key in windows of an hour and reads them,
and stops. Then batches of a fixed size follow, with keys drawn at random, and the job goes on from its checkpoint; what
counts is the time of each of these batches from Kafka to Kafka, state kept durably, the first ones left out. The last
case bounds the state store's memory far below what the state takes.

`resident` is the peak of the driver, its Java process and its Python workers together.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import psutil
from benchmarks.engine import Memory
from benchmarks.workload import conditions
from rich.console import Console
from rich.table import Table

from headrace.dev import EmbeddedBroker, ServerSettings
from headrace.events import Codec
from headrace.kafka import Producer, Topics, TopicSpec
from headrace.kafka.topics import commit_spec, dead_letter_spec, late_spec
from headrace.spark.run.progress import BatchDone
from headrace.spark.run.runner import RunOptions, run_jobs
from headrace.stream import Job, Stream
from headrace.time import bounded
from headrace.windows import count, latest, tumbling
from headrace_transit.schemas import VehiclePosition

if TYPE_CHECKING:
    from headrace.spark.run.progress import RunEvent

RESULTS = Path(__file__).parent / "results" / "state.json"
START = 1_772_000_000_000_000
SECOND = 1_000_000
#: Batches that are not counted: Java and the workers are still warming up.
COLD = 15
console = Console()


@dataclass(frozen=True)
class Case:
    """One set-up."""

    name: str
    keys: int
    state_memory_mb: int = 512


@dataclass(frozen=True)
class Figure:
    """What it took."""

    case: str
    batches: int
    batch_ms: float
    batch_p90_ms: float
    state_mb: float
    resident_mb: int


TOPIC = "input.state"
JOB = Job(
    "state",
    Stream.topic(TOPIC, VehiclePosition)
    .watermark(bounded("1s"))
    .key_by("vehicle_id")
    .window(tumbling("1h"))
    .aggregate(n=count(), speed=latest("speed")),
)
_FIGURE = "figure: "


def send(broker: EmbeddedBroker, keys: np.ndarray, second: int) -> None:
    """Send an event of each key, spread over a second."""
    codec = Codec()
    with Producer(broker.connection) as producer:
        for begin in range(0, len(keys), 100_000):
            part = keys[begin : begin + 100_000]
            times = START + second * SECOND + np.arange(len(part)) % SECOND
            frame = pl.DataFrame({"event_time": times, "vehicle_id": part, "speed": part * 0.01}).cast(
                {"event_time": pl.Datetime("us", "UTC"), "vehicle_id": pl.String}
            )
            frame = frame.with_columns(ingestion_time=pl.col("event_time"))
            values = codec.encode(frame, VehiclePosition).to_pylist()
            producer.send_all(TOPIC, values, keys=frame["vehicle_id"].to_list())


def run(case: Case, broker: EmbeddedBroker, home: Path, *, events: int, batches: int) -> Figure:
    Topics(broker.connection).ensure(
        [
            TopicSpec(name=TOPIC, partitions=4),
            TopicSpec(name=JOB.result_topic, partitions=4),
            late_spec(JOB.result_topic),
            commit_spec(),
            dead_letter_spec(),
        ]
    )
    base = RunOptions(
        connection=broker.connection,
        checkpoint=home / "checkpoint",
        take_over=True,
        state_memory_mb=case.state_memory_mb,
    )
    send(broker, np.arange(case.keys), 0)
    _follow(base, case.keys)
    random = np.random.default_rng(7)
    for batch in range(1, batches + 1):
        send(broker, random.integers(0, case.keys, events), batch)
    others = {child.pid for child in psutil.Process().children(recursive=True)}
    with Memory(others) as used:
        small = RunOptions(
            **{name: getattr(base, name) for name in ("connection", "checkpoint", "state_memory_mb")},
            max_events_per_batch=events,
            first_batch_events=events,
        )
        done = _follow(small, events * batches)
    # A batch tells how long the one before it took.
    took = [each.duration_ms for each in done[COLD + 1 :] if each.duration_ms is not None]
    return Figure(
        case.name,
        len(took),
        statistics.median(took),
        round(statistics.quantiles(took, n=10)[-1]),
        round(max((each.state_bytes or 0) for each in done) / 2**20, 1),
        used.peak_mb,
    )


def _follow(options: RunOptions, events: int) -> list[BatchDone]:
    """Run the job until it has read so many events."""
    done: list[BatchDone] = []
    stop = threading.Event()
    left = events

    def report(event: RunEvent) -> None:
        nonlocal left
        if isinstance(event, BatchDone) and event.rows_in:
            done.append(event)
            left -= event.rows_in
            if left <= 0:
                stop.set()

    run_jobs([JOB], options, report, stop)
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--events", type=int, default=10_000, help="events a batch")
    parser.add_argument("--batches", type=int, default=75)
    parser.add_argument("--keys", type=int, default=1_000_000, help="of the large state")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--case", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.events, chosen.batches, chosen.keys = 1_000, 25, 50_000
    cases = [
        Case("10,000 keys", 10_000),
        Case(f"{chosen.keys:,} keys", chosen.keys),
        Case(f"{chosen.keys:,} keys, state store bounded to 64 MB", chosen.keys, 64),
    ]
    if chosen.case is not None:
        with tempfile.TemporaryDirectory() as directory:
            home = Path(directory)
            with EmbeddedBroker(ServerSettings(data_dir=home / "kafka", memory="1g")) as broker:
                figure = run(cases[chosen.case], broker, home, events=chosen.events, batches=chosen.batches)
        print(_FIGURE + json.dumps(asdict(figure)))
        return
    figures = []
    for number, case in enumerate(cases):
        # A process each: its memory is its own, and what bounds the state store is fixed when Java starts.
        command = [sys.executable, "-m", "benchmarks.state", *sys.argv[1:], "--case", str(number)]
        told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        line = next(line for line in told.splitlines() if line.startswith(_FIGURE))
        figures.append(Figure(**json.loads(line.removeprefix(_FIGURE))))
        console.print(f"{case.name}: {figures[-1].batch_ms} ms a batch")
    table = Table("case", "batches", "ms a batch (median)", "p90", "state store MB", "resident MB")
    for figure in figures:
        table.add_row(*map(str, asdict(figure).values()))
    console.print(table)
    if chosen.quick:
        console.print("Not written: --quick is for looking, not for figures.")
        return
    record = {
        "conditions": conditions(
            events_per_batch=chosen.events, window="tumbling 1 h, count and latest per key; exactly once"
        ),
        "figures": [asdict(figure) for figure in figures],
        "readme": [
            {
                "what": f"a micro-batch of {chosen.events:,} events over {figures[1].case} of state, Kafka to Kafka",
                "value": figures[1].batch_ms,
                "unit": "ms",
                "beside": {"what": f"over {figures[0].case}", "value": figures[0].batch_ms},
            }
        ],
    }
    RESULTS.write_text(json.dumps(record, indent=2) + "\n")
    console.print(f"written to {RESULTS.relative_to(Path.cwd())}")


if __name__ == "__main__":
    main()
