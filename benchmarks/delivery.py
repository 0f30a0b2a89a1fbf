"""What the promises cost: exactly once, at least once and at most once side by side, in one run.

    python -m benchmarks.delivery            # prints tables, writes benchmarks/results/delivery.json

Each contestant runs the same job on the same topic, in turns, in one Java process that a run before the first turn has
warmed up. A turn has two parts. First the job catches up with a filled topic: events per second from the end of its
second batch to the end of the backlog. Then it follows a steady feed: the time from the end of a window until a
consumer has its result, which holds the watermark's bound of 1 s in all cases. The consumer reads committed records
where the promise is exactly once, and all records otherwise.

The second table is about results that are many: a job that gives about one result per event, exactly once, written by
the driver or by the tasks of the state partitions.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from benchmarks.workload import conditions
from rich.console import Console
from rich.table import Table

from headrace.dev import SPARK_CONNECTOR, EmbeddedBroker, JarCache, ServerSettings
from headrace.events import Codec
from headrace.geo import h3_cell
from headrace.kafka import Consumer, Topics, TopicSpec
from headrace.kafka.producer import Producer
from headrace.kafka.topics import commit_spec, dead_letter_spec, late_spec
from headrace.spark.run.progress import BatchDone
from headrace.spark.run.runner import RunOptions, run_jobs
from headrace.stream import Job, Stream
from headrace.time import bounded
from headrace.windows import count, latest, sliding, tumbling
from headrace_transit.schemas import VehiclePosition

if TYPE_CHECKING:
    from headrace.spark.run.progress import RunEvent
    from headrace.stream import Delivery

RESULTS = Path(__file__).parent / "results" / "delivery.json"
TOPIC = "input.delivery"
PARTITIONS = 4
console = Console()


def few() -> Job:
    """Vehicles per cell: few results."""
    stream = (
        Stream.topic(TOPIC, VehiclePosition)
        .watermark(bounded("1s"))
        .with_columns(cell=h3_cell("latitude", "longitude", resolution=9))
        .key_by("vehicle_id")
        .window(sliding("30s", every="5s"))
        .aggregate(cell=latest("cell"))
        .key_by("cell")
        .same_window()
        .aggregate(vehicles=count())
    )
    return Job("delivery-few", stream)


def many() -> Job:
    """Reports per vehicle and second: about as many results as events."""
    stream = Stream.topic(TOPIC, VehiclePosition).watermark(bounded("1s")).key_by("vehicle_id")
    return Job("delivery-many", stream.window(tumbling("1s")).aggregate(reports=count()))


@dataclass(frozen=True)
class Contestant:
    """A job under a promise, and who writes its results."""

    name: str
    job: Job
    delivery: Delivery = "exactly_once"
    apart: bool = False
    steady: bool = True


@dataclass
class Turn:
    """What one contestant did in one turn."""

    events_per_second: float
    latencies: list[float] = field(default_factory=list)


class Feed:
    """Fills the topic, and keeps on writing."""

    def __init__(self, broker: EmbeddedBroker, *, vehicles: int) -> None:
        self._producer = Producer(broker.connection)
        self._codec = Codec()
        self._chance = np.random.default_rng(1)
        self._vehicles = np.array([f"{number % 90}/{number}" for number in range(vehicles)])

    def write(self, at: datetime, vehicles: np.ndarray[Any, Any]) -> int:
        size = len(vehicles)
        spread = self._chance.integers(0, 1_000_000, size)
        times = pl.Series([at], dtype=pl.Datetime("us", "UTC")).to_physical()[0] + spread
        rows = pl.DataFrame(
            {
                "event_time": pl.Series(times).cast(pl.Datetime("us", "UTC")),
                "ingestion_time": pl.Series(times).cast(pl.Datetime("us", "UTC")),
                "vehicle_id": vehicles,
                "latitude": 60.15 + 0.2 * self._chance.random(size),
                "longitude": 24.7 + 0.4 * self._chance.random(size),
            }
        )
        for number, value in enumerate(self._codec.encode(rows, VehiclePosition).to_pylist()):
            self._producer.send(TOPIC, value, partition=number % PARTITIONS)
        return size

    def fill(self, seconds: int) -> int:
        begin = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=seconds + 120)
        written = sum(self.write(begin + timedelta(seconds=each), self._vehicles) for each in range(seconds))
        self._producer.flush()
        return written

    def follow(self, rate: int, stop: threading.Event) -> None:
        """Write events of the last tenth of a second, again and again."""
        while not stop.wait(0.1):
            chosen = self._chance.choice(self._vehicles, rate // 10, replace=False)
            self.write(datetime.now(UTC) - timedelta(seconds=1), chosen)
            self._producer.flush()


class Latencies(threading.Thread):
    """Reads results as they come, and takes the time since the end of their windows."""

    def __init__(self, broker: EmbeddedBroker, topic: str, *, committed: bool) -> None:
        super().__init__(daemon=True)
        self._consumer = Consumer(broker.connection, [topic], start="end", follow=True, committed=committed)
        self._codec = Codec()
        self.stop = threading.Event()
        self.since = time.time()
        self.found: list[float] = []

    def run(self) -> None:
        with self._consumer:
            while not self.stop.is_set():
                records = self._consumer.read(timeout=0.2)
                now = time.time()
                for frame in self._codec.decode([record.value for record in records]).frames.values():
                    ends = frame.get_column("window_end").dt.timestamp("us").to_numpy() / 1e6
                    self.found += list(now - ends[ends > self.since])


def turn(ground: Ground, contestant: Contestant, events: int, *, steady_seconds: float) -> Turn:
    marks: list[tuple[float, int]] = []
    stop = threading.Event()
    caught_up = threading.Event()

    def report(event: RunEvent) -> None:
        if isinstance(event, BatchDone) and event.rows_in and not caught_up.is_set():
            marks.append((time.perf_counter(), event.rows_in))
            if sum(rows for _, rows in marks) >= events:
                caught_up.set()
                if not contestant.steady:
                    stop.set()

    def follow() -> None:
        caught_up.wait()
        if not contestant.steady:
            return
        reader.since = time.time() + 3.0  # windows that were open before have another story
        feeding = threading.Thread(target=ground.feed.follow, args=(ground.rate, stop), daemon=True)
        feeding.start()
        time.sleep(steady_seconds)
        stop.set()
        feeding.join()

    committed = contestant.delivery == "exactly_once"
    reader = Latencies(ground.broker, contestant.job.result_topic, committed=committed)
    reader.start()
    following = threading.Thread(target=follow, daemon=True)
    following.start()
    with tempfile.TemporaryDirectory(dir=ground.directory) as directory:
        options = RunOptions(
            connection=ground.broker.connection,
            checkpoint=Path(directory) / "checkpoint",
            take_over=True,
            jars=ground.jars,
            driver_memory="3g",
            delivery=contestant.delivery,
            apart_rows=0 if contestant.apart else None,
            first_batch_events=100_000,
            max_events_per_batch=300_000,
        )
        run_jobs([contestant.job], options, report, stop)
    following.join()
    reader.stop.set()
    reader.join()
    speed = sum(rows for _, rows in marks[2:]) / (marks[-1][0] - marks[1][0])
    return Turn(speed, reader.found)


@dataclass(frozen=True)
class Ground:
    """What every contestant stands on."""

    broker: EmbeddedBroker
    jars: list[Path]
    directory: Path
    feed: Feed
    rate: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--vehicles", type=int, default=20_000)
    parser.add_argument("--seconds", type=int, default=60, help="event time to fill, at 1 Hz a vehicle")
    parser.add_argument("--rate", type=int, default=5_000, help="events per second of the steady feed")
    parser.add_argument("--steady", type=float, default=16.0, help="seconds of the steady feed in a turn")
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.vehicles, chosen.seconds, chosen.rate, chosen.steady, chosen.repeat = 4_000, 60, 1_000, 12.0, 1
    contestants = [
        Contestant("exactly once", few()),
        Contestant("at least once", few(), "at_least_once"),
        Contestant("at most once", few(), "at_most_once"),
        Contestant("many results, by the driver", many(), steady=False),
        Contestant("many results, by the tasks", many(), apart=True, steady=False),
    ]
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        with EmbeddedBroker(ServerSettings(data_dir=home / "kafka", memory="1g")) as broker:
            specs = [TopicSpec(name=TOPIC, partitions=PARTITIONS), dead_letter_spec(), commit_spec()]
            for job in (few(), many()):
                specs += [TopicSpec(name=job.result_topic, partitions=PARTITIONS), late_spec(job.result_topic)]
            Topics(broker.connection).ensure(specs)
            feed = Feed(broker, vehicles=chosen.vehicles)
            events = feed.fill(chosen.seconds)
            console.print(f"{events:,} events in the topic")
            ground = Ground(broker, list(JarCache().get(SPARK_CONNECTOR)), home, feed, chosen.rate)
            turn(ground, contestants[3], events, steady_seconds=0)
            turns: dict[str, list[Turn]] = {each.name: [] for each in contestants}
            for number in range(chosen.repeat):
                for each in contestants:
                    done = turn(ground, each, events, steady_seconds=chosen.steady)
                    turns[each.name].append(done)
                    p50, p99 = quantile(done.latencies, 0.5), quantile(done.latencies, 0.99)
                    console.print(
                        f"turn {number + 1}: {each.name}: {done.events_per_second:,.0f}/s, p50 {p50}, p99 {p99}"
                    )
    show(turns, chosen, events)


def quantile(values: list[float], q: float) -> float | None:
    return round(float(np.quantile(values, q)), 3) if values else None


def show(turns: dict[str, list[Turn]], chosen: argparse.Namespace, events: int) -> None:
    table = Table("contestant", "events/s (median)", "latency p50 (s)", "p99 (s)", "results timed")
    figures: dict[str, Any] = {}
    for name, those in turns.items():
        latencies = [value for each in those for value in each.latencies]
        speed = statistics.median(each.events_per_second for each in those)
        figures[name] = {
            "events_per_second": round(speed),
            "turns": [round(each.events_per_second) for each in those],
            "latency_p50_s": quantile(latencies, 0.5),
            "latency_p99_s": quantile(latencies, 0.99),
            "latency_p50_s_by_turn": [quantile(each.latencies, 0.5) for each in those],
            "results_timed": len(latencies),
        }
        told = figures[name]
        table.add_row(
            name, f"{speed:,.0f}", str(told["latency_p50_s"]), str(told["latency_p99_s"]), f"{len(latencies):,}"
        )
    console.print(table)
    if chosen.quick:
        console.print("Not written: --quick is for looking, not for figures.")
        return
    record = {
        "conditions": conditions(
            events=events,
            vehicles=chosen.vehicles,
            steady_events_per_second=chosen.rate,
            steady_seconds=chosen.steady,
            turns=chosen.repeat,
        ),
        "figures": figures,
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(record, indent=2) + "\n")
    console.print(f"written to {RESULTS}")


if __name__ == "__main__":
    main()
