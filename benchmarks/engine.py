"""Events per second end to end, from a filled Kafka topic, beside what Spark alone reaches on it in the same run.

    python -m benchmarks.engine            # prints a table, writes benchmarks/results/engine.json

The topic is filled first (20,000 vehicles at 1 Hz), the broker runs on the same cores. Contestants take turns; each
figure is the median of its turns. A streaming contestant reads the topic in batches that grow to a target time, as any
job does after an outage; it is timed from the batch in which it has read a quarter of the topic (the first ones start
Java code and Python workers) to its last full one. Beside each stands the most memory that it took: the driver, its
Java process and the Python workers together (RSS, so shared pages count more than once).

- `read`: Spark sums the lengths of the values. Nothing can be faster through Spark's Kafka source.
- `vehicle-distribution`: newest position per vehicle, vehicles per cell, sliding 30 s every 5 s; results to Kafka,
  exactly once.
- `emergency-stop-pattern`, `emergency-stop-sql`: cruising, braking, stopped within 10 s, by the pattern builder and by
  MATCH_RECOGNIZE; results to Kafka, exactly once.
- `delay-quantiles`: p50, p90, p99 of the delay per cell, sliding 5 min every 5 s; results to Kafka, exactly once.
- `native tumbling count`: Spark's own window operator counts per vehicle in 5 s windows, by Kafka's key and timestamp,
  so it decodes nothing; results to nowhere.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import statistics
import tempfile
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import polars as pl
import psutil
from benchmarks.workload import conditions
from rich.console import Console
from rich.table import Table

from headrace.dev import SPARK_CONNECTOR, EmbeddedBroker, JarCache, ServerSettings
from headrace.geo import h3_cell
from headrace.kafka import Topics
from headrace.spark.run.progress import BatchDone
from headrace.spark.run.runner import RunOptions, run_jobs
from headrace.spark.session.session import spark_settings, start_session
from headrace.stream import Job, Stream
from headrace.time import bounded
from headrace.windows import count, sliding
from headrace.windows.sketches import quantile
from headrace_transit.jobs import all_jobs
from headrace_transit.schemas import VehiclePosition
from headrace_transit.simulator import Fleet
from headrace_transit.simulator.disorder import Disorder
from headrace_transit.simulator.feed import simulate
from headrace_transit.topics import VEHICLE_POSITIONS, topics

if TYPE_CHECKING:
    from headrace.spark.run.progress import RunEvent

RESULTS = Path(__file__).parent / "results" / "engine.json"
console = Console()

DELAYS = Job(
    name="delay-quantiles",
    description="Delay per cell",
    stream=(
        Stream.topic(VEHICLE_POSITIONS, VehiclePosition)
        .watermark(bounded("1s"), idle_after="30s")
        .with_columns(cell=h3_cell("latitude", "longitude", resolution=9))
        .filter(pl.col("cell").is_not_null() & pl.col("delay").is_not_null())
        .key_by("cell")
        .window(sliding("5min", every="5s"))
        .aggregate(delay=quantile("delay", [0.5, 0.9, 0.99], method="kll"), n=count())
    ),
)


@dataclass(frozen=True)
class Ground:
    """What every contestant stands on."""

    broker: EmbeddedBroker
    jars: list[Path]
    directory: Path
    events: int
    batch: int | None


def fill(broker: EmbeddedBroker, *, vehicles: int, seconds: int) -> int:
    """Fill the topic as fast as possible; returns the number of events."""
    fleet = Fleet(vehicles=vehicles, seed=1, start=datetime.now(UTC) - timedelta(seconds=seconds + 10))
    report = simulate(
        fleet,
        broker.connection,
        speed=math.inf,
        duration=seconds,
        disorder=Disorder.none(),
        stop_events=False,
    )
    return report.positions


def read_only(ground: Ground, topic: str = VEHICLE_POSITIONS) -> float:
    """Events/s when Spark only sums the lengths of the values."""
    spark = _session(ground)

    def count_all() -> int:
        # A new frame each time: Spark would skip the reading of one that it has already run.
        rows = spark.read.format("kafka").options(**ground.broker.connection.spark_options())
        summed = rows.option("subscribe", topic).load().selectExpr("sum(length(value))", "count(*) AS events")
        return int(summed.collect()[0]["events"])

    try:
        count_all()
        started = time.perf_counter()
        return count_all() / (time.perf_counter() - started)
    finally:
        spark.stop()


def native_tumbling(ground: Ground) -> float:
    """Events/s of Spark's own window operator, which decodes nothing."""
    from pyspark.sql.functions import window

    spark = _session(ground)
    try:
        rows = (
            spark.readStream.format("kafka")
            .options(**ground.broker.connection.spark_options())
            .option("subscribe", VEHICLE_POSITIONS)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", ground.batch or 800_000)
            .load()
        )
        counted = rows.withWatermark("timestamp", "1 second").groupBy("key", window("timestamp", "5 seconds"))
        with tempfile.TemporaryDirectory(dir=ground.directory) as checkpoint:
            query = (
                counted.count()
                .writeStream.format("noop")
                .outputMode("update")
                .option("checkpointLocation", checkpoint)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            done = [p for p in query.recentProgress if p.numInputRows][1:]
            seconds = sum(p.durationMs["triggerExecution"] for p in done) / 1000
            return float(sum(p.numInputRows for p in done) / seconds)
    finally:
        spark.stop()


def streaming(ground: Ground, job: Job) -> float:
    """Events/s of a job, from Kafka to Kafka."""
    marks: list[tuple[float, int]] = []
    stop = threading.Event()

    def report(event: RunEvent) -> None:
        if isinstance(event, BatchDone) and event.rows_in:
            total = event.rows_in + (marks[-1][1] if marks else 0)
            marks.append((time.perf_counter(), total))
            if total >= ground.events:
                stop.set()

    with tempfile.TemporaryDirectory(dir=ground.directory) as directory:
        options = RunOptions(
            connection=ground.broker.connection,
            checkpoint=Path(directory) / "checkpoint",
            take_over=True,
            jars=ground.jars,
            max_events_per_batch=ground.batch,
            driver_memory="3g",
        )
        run_jobs([job], options, report, stop)
    # The last batch reads what is left, which may be little.
    timed = [mark for mark in marks[:-1] if mark[1] >= ground.events / 4]
    if len(timed) < 3:
        raise SystemExit(f"{len(marks)} batches are too few to time; raise --seconds or lower --batch")
    return (timed[-1][1] - timed[0][1]) / (timed[-1][0] - timed[0][0])


class Memory:
    """Watches the memory of this process and all it has started, but not of the broker."""

    def __init__(self, without: set[int]) -> None:
        self.peak_mb = 0
        self._without = without
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        me = psutil.Process()
        while not self._stop.wait(0.5):
            total = 0
            for process in [me, *me.children(recursive=True)]:
                with contextlib.suppress(psutil.Error):
                    total += process.memory_info().rss if process.pid not in self._without else 0
            self.peak_mb = max(self.peak_mb, total >> 20)


def _session(ground: Ground) -> Any:
    # All contestants share a Java process, the first one's: Spark's own operators want the better compiler.
    settings = spark_settings(
        jars=ground.jars,
        state_partitions=2,
        driver_memory="3g",
        local_directory=ground.directory / "local",
        thrifty=False,
    )
    return start_session("benchmark", master="local[2]", settings=settings)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--vehicles", type=int, default=20_000)
    parser.add_argument("--seconds", type=int, default=240, help="event time to fill, at 1 Hz a vehicle")
    parser.add_argument("--batch", type=int, help="the most events of a batch; as memory and time allow if not given")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", action="append", default=[], help="contestants to run; all if none is named")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.vehicles, chosen.seconds, chosen.batch, chosen.repeat = 2_000, 60, 15_000, 1
    known = all_jobs()
    names = ("vehicle-distribution", "emergency-stop-pattern", "emergency-stop-sql")
    jobs = {**{name: known[name] for name in names}, "delay-quantiles": DELAYS}
    contestants: dict[str, Any] = {
        "read": read_only,
        **{name: (lambda ground, job=job: streaming(ground, job)) for name, job in jobs.items()},
        "native tumbling count": native_tumbling,
    }
    contestants = {name: run for name, run in contestants.items() if not chosen.only or name in chosen.only}
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        with EmbeddedBroker(ServerSettings(data_dir=home / "kafka", memory="1g")) as broker:
            Topics(broker.connection).ensure(topics([job.result_topic for job in jobs.values()]))
            started = time.perf_counter()
            events = fill(broker, vehicles=chosen.vehicles, seconds=chosen.seconds)
            console.print(f"{events:,} events in {time.perf_counter() - started:.1f} s")
            ground = Ground(broker, list(JarCache().get(SPARK_CONNECTOR)), home, events, chosen.batch)
            figures: dict[str, list[float]] = {name: [] for name in contestants}
            memory: dict[str, list[int]] = {name: [] for name in contestants}
            others = {child.pid for child in psutil.Process().children(recursive=True)}
            for turn in range(chosen.repeat):
                for name, run in contestants.items():
                    with Memory(others) as used:
                        figures[name].append(run(ground))
                    memory[name].append(used.peak_mb)
                    console.print(f"turn {turn + 1}: {name} {figures[name][-1]:,.0f} events/s, {used.peak_mb:,} MB")
    show(figures, memory, chosen, events)


def show(
    figures: dict[str, list[float]], memory: dict[str, list[int]], chosen: argparse.Namespace, events: int
) -> None:
    medians = {name: statistics.median(values) for name, values in figures.items() if values}
    floor = medians.get("read")
    table = Table("contestant", "events/s (median)", "of reading alone", "turns")
    for name, median in medians.items():
        share = f"{median / floor:.2f}" if floor else "-"
        table.add_row(name, f"{median:,.0f}", share, ", ".join(f"{value:,.0f}" for value in figures[name]))
    console.print(table)
    if chosen.quick or chosen.only:
        console.print("Not written: --quick and --only are for looking, not for figures.")
        return
    RESULTS.parent.mkdir(exist_ok=True)
    record = {
        "conditions": conditions(
            events=events,
            vehicles=chosen.vehicles,
            events_per_batch=chosen.batch or "as many as take 2.5 s",
            turns=chosen.repeat,
        ),
        "events_per_second": {name: round(value) for name, value in medians.items()},
        "turns": {name: [round(value) for value in values] for name, values in figures.items()},
        "peak_memory_mb": {name: max(values) for name, values in memory.items()},
    }
    RESULTS.write_text(json.dumps(record, indent=2) + "\n")
    console.print(f"written to {RESULTS.relative_to(Path.cwd())}")


if __name__ == "__main__":
    main()
