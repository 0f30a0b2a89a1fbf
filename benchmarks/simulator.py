"""How many events a second the simulated fleet makes, on one core, from arithmetic to Kafka.

    python -m benchmarks.simulator            # prints a table, writes benchmarks/results/simulator.json

The process is bound to one core, with all its threads: those of the Kafka client, too. The embedded broker has the
others. Stages are timed one after the other in one run, the whole way into Kafka in runs of its own:

- `generate`: reports of all vehicles, positions and events at stops, with their arrivals (`Arrivals.sent`).
- `encode`: reports to the values that go to Kafka, with their keys (`EventWriter.packets`).
- `send`: handing values over and delivering them; the producer alone, with values that were made before.
- `to Kafka`: everything, as `headrace simulate --fast` does it; all events acknowledged.
- `uncompressed`: the same with `--compression none`: of the time on our core, compression is the largest single part.
- `16 copies to Kafka`: 16-fold load by copies.
- `HFP messages`: topic and JSON payload instead of events, as for a file or an MQTT broker; nothing is sent.

Each figure is the median of its turns, by the clock on the wall of an otherwise quiet machine.
"""

from __future__ import annotations

import os

# Before Polars is imported: one core means one thread.
os.environ["POLARS_MAX_THREADS"] = "1"

import argparse
import json
import math
import platform
import statistics
import tempfile
import threading
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from rich.console import Console
from rich.table import Table

from headrace.dev import EmbeddedBroker, ServerSettings
from headrace.kafka import Topics
from headrace_transit.hfp_writer import written
from headrace_transit.simulator import Arrivals, Disorder, Fleet
from headrace_transit.simulator.feed import simulate
from headrace_transit.simulator.outlet import KafkaOutlet
from headrace_transit.simulator.writers import EventWriter
from headrace_transit.topics import VEHICLE_POSITIONS, input_topics

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.kafka import Connection
    from headrace.kafka.producer import Compression

RESULTS = Path(__file__).parent / "results" / "simulator.json"
console = Console()


class Nowhere:
    """An outlet that keeps nothing."""

    def send_all(self, topic: str, keys: Any, values: Any, *, headers: Any = None) -> int:  # noqa: ARG002
        return len(keys)

    def flush(self, timeout: float | None = None) -> None: ...

    def __len__(self) -> int:
        return 0


def stages(fleet: Fleet, seconds: int, connection: Connection) -> dict[str, float]:
    """Events per second of each stage by itself."""
    at_once = max(1, 50_000 // fleet.vehicles)
    arrivals = Arrivals(fleet, Disorder.hsl())
    writer = EventWriter(Nowhere())
    arrivals.sent(at_once)
    took = {"generate": 0.0, "encode": 0.0}
    events = 0
    packets = []
    for _ in range(max(1, seconds // at_once)):
        began = time.perf_counter()
        sent = arrivals.sent(at_once)
        made = time.perf_counter()
        packets = writer.packets(sent)
        done = time.perf_counter()
        took["generate"] += made - began
        took["encode"] += done - made
        events += sum(frame.height for frame in packets)
    rates = {name: events / spent for name, spent in took.items()}
    keys, values = packets[0]["key"].to_list(), packets[0]["value"].to_list()
    with KafkaOutlet(connection, stop=threading.Event()) as outlet:
        outlet.send_all(VEHICLE_POSITIONS, keys[:10], values[:10])
        outlet.flush()
        turns = max(1, events // len(keys))
        began = time.perf_counter()
        for _ in range(turns):
            outlet.send_all(VEHICLE_POSITIONS, keys, values)
        outlet.flush()
        rates["send"] = turns * len(keys) / (time.perf_counter() - began)
    return rates


def to_kafka(
    fleet: Fleet, seconds: int, connection: Connection, *, copies: int = 1, compression: Compression = "lz4"
) -> dict[str, float]:
    process = psutil.Process()
    before = process.cpu_times()
    report = simulate(
        fleet,
        connection,
        speed=math.inf,
        duration=seconds,
        disorder=Disorder.hsl(),
        copies=copies,
        compression=compression,
    )
    after = process.cpu_times()
    busy = after.user + after.system - before.user - before.system
    return {
        "events_per_second": report.events / report.elapsed,
        "cpu_seconds_per_million": 1e6 * busy / report.events,
        "bytes_per_event": report.value_bytes / report.events,
    }


def messages(fleet: Fleet, seconds: int) -> dict[str, float]:
    at_once = max(1, 50_000 // fleet.vehicles)
    arrivals = Arrivals(fleet, Disorder.hsl(), elsewhere=True)
    count = size = 0
    began = time.perf_counter()
    for _ in range(max(1, seconds // at_once)):
        for frame in arrivals.sent(at_once).frames:
            found = written(frame)
            payloads = found["payload"].to_list()
            found["topic"].to_list()
            count += len(payloads)
            size += sum(map(len, payloads))
    return {"events_per_second": count / (time.perf_counter() - began), "bytes_per_event": size / count}


def turns(repeat: int, run: Callable[[], dict[str, float]]) -> list[dict[str, float]]:
    return [run() for _ in range(repeat)]


def median(found: list[dict[str, float]], name: str) -> float:
    return statistics.median(figures[name] for figures in found)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.simulator", description=__doc__)
    parser.add_argument("--vehicles", type=int, default=20_000, help="the size of the large fleet")
    parser.add_argument("--seconds", type=int, default=50, help="seconds of its time")
    parser.add_argument("--repeat", type=int, default=3, help="turns")
    parser.add_argument("--quick", action="store_true", help="little data: to see that it works, not for figures")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.vehicles, chosen.seconds, chosen.repeat = 500, 40, 1
    start = datetime(2025, 9, 1, 5, tzinfo=UTC)
    fleets = {
        "large": Fleet(vehicles=chosen.vehicles, seed=1, start=start),
        "small": Fleet(vehicles=300, seed=1, start=start),
    }
    seconds = {"large": chosen.seconds, "small": max(40, chosen.vehicles * chosen.seconds // 300)}
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="headrace-simulator-") as folder:
        settings = ServerSettings(data_dir=Path(folder) / "kafka", memory="1g")
        with EmbeddedBroker(settings) as broker:
            Topics(broker.connection).ensure(input_topics())
            cores = sorted(os.sched_getaffinity(0))
            # The broker keeps the first cores, we the last one, with every thread that is started from here on.
            os.sched_setaffinity(0, cores[-1:])
            for name, fleet in fleets.items():
                span = seconds[name]
                parts = turns(chosen.repeat, lambda: stages(fleet, span, broker.connection))  # noqa: B023
                whole = turns(chosen.repeat, lambda: to_kafka(fleet, span, broker.connection))  # noqa: B023
                plain = turns(
                    chosen.repeat,
                    lambda: to_kafka(fleet, span, broker.connection, compression="none"),  # noqa: B023
                )
                figures[name] = {
                    "vehicles": fleet.vehicles,
                    "seconds": span,
                    "stages": {stage: round(median(parts, stage)) for stage in parts[0]},
                    "to_kafka": {key: round(median(whole, key), 2) for key in whole[0]},
                    "to_kafka_turns": [round(turn["events_per_second"]) for turn in whole],
                    "uncompressed": {key: round(median(plain, key), 2) for key in plain[0]},
                    "uncompressed_turns": [round(turn["events_per_second"]) for turn in plain],
                }
            small, span = fleets["small"], max(3, seconds["small"] // 16)
            copied = turns(chosen.repeat, lambda: to_kafka(small, span, broker.connection, copies=16))
            figures["copies"] = {"copies": 16, "to_kafka": {key: round(median(copied, key), 2) for key in copied[0]}}
    raw = turns(chosen.repeat, lambda: messages(fleets["small"], seconds["small"] // 3))
    figures["messages"] = {key: round(median(raw, key), 2) for key in raw[0]}
    show(figures)
    result = {
        "what": "the simulated fleet on one core, --lateness hsl, positions and stop events",
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": chosen.quick,
        "machine": {
            "processor": processor(),
            "cores": os.cpu_count(),
            "bound_to": 1,
            "python": platform.python_version(),
            **{name: version(name) for name in ("polars", "numpy", "ptars", "confluent-kafka")},
        },
        "turns": chosen.repeat,
        "load_average_after": [round(load, 2) for load in os.getloadavg()],
        **figures,
    }
    if not chosen.quick:
        RESULTS.write_text(json.dumps(result, indent=2) + "\n")
        console.print(f"wrote {RESULTS}")


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def show(figures: dict[str, Any]) -> None:
    table = Table("", "large fleet, events/s", "small fleet, events/s", title="One core")
    for stage in ("generate", "encode", "send"):
        table.add_row(stage, *(f"{figures[name]['stages'][stage]:,}" for name in ("large", "small")))
    for way in ("to_kafka", "uncompressed"):
        for key in ("events_per_second", "cpu_seconds_per_million", "bytes_per_event"):
            table.add_row(f"{way}: {key}", *(f"{figures[name][way][key]:,}" for name in ("large", "small")))
    table.add_row("16 copies to Kafka", "", f"{figures['copies']['to_kafka']['events_per_second']:,}")
    table.add_row("HFP messages", "", f"{figures['messages']['events_per_second']:,}")
    console.print(table)


if __name__ == "__main__":
    main()
