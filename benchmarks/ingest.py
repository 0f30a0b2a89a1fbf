"""How fast ingestion is: from MQTT, from a file, and the simulator straight to Kafka; and how well a replay keeps time.

    python -m benchmarks.ingest           # prints a table, writes benchmarks/results/ingest.json

Everything is real: an embedded Kafka broker, mosquitto with all messages under way it can have, events encoded and
acknowledged by Kafka. For MQTT a backlog waits in the ingester's session, so that what is measured is the ingester and
not who publishes. Both brokers share the machine with what is measured; processor time is that of the measured process
alone, all its threads together, and says what one core would reach. Messages are those of the simulated fleet, as HFP.
"""

from __future__ import annotations

import os

# Before Polars is imported: one core means one thread.
os.environ["POLARS_MAX_THREADS"] = "1"

import argparse
import json
import math
import platform
import shutil
import socket
import statistics
import subprocess
import tempfile
import threading
import time
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.table import Table

from headrace.dev import EmbeddedBroker, ServerSettings
from headrace.ingest import Cause
from headrace.ingest.connectors.mqtt import MqttConnector, MqttSettings
from headrace.ingest.connectors.replay import ReplayConnector, ReplaySettings
from headrace.ingest.publisher import MqttPublisher, sink
from headrace.ingest.replay import ReplayPlan
from headrace.ingest.runner import Ingestion
from headrace.kafka import Producer, Topics
from headrace_transit.hfp import HfpProcessor, HfpSettings
from headrace_transit.simulator.feed import simulate
from headrace_transit.simulator.fleet import Fleet
from headrace_transit.simulator_connector import SimulatorConnector, SimulatorSettings
from headrace_transit.topics import input_topics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.ingest.connector import Connector
    from headrace.ingest.message import RawMessage
    from headrace.kafka import Connection

RESULTS = Path(__file__).parent / "results" / "ingest.json"
START = datetime(2026, 5, 4, 6, tzinfo=UTC)
MOSQUITTO = shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/sbin")


@contextmanager
def mosquitto(folder: Path) -> Iterator[int]:
    """A broker that keeps any number of messages, and sends any number ahead."""
    assert MOSQUITTO is not None
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    config = folder / "mosquitto.conf"
    config.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_inflight_messages 0\nmax_queued_messages 0\n"
        f"log_dest none\nuser root\n"
    )
    process = subprocess.Popen([MOSQUITTO, "-c", config], stderr=subprocess.DEVNULL)
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.02)
        yield port
    finally:
        process.terminate()
        process.wait(20)


def fleet_messages(count: int) -> list[RawMessage]:
    settings = SimulatorSettings(
        vehicles=1000, seed=1, start=START.isoformat(), seconds=max(2, count // 1000), speed=math.inf
    )
    return list(SimulatorConnector(settings).messages())[:count]


def ingested(connector: Connector[Any], connection: Connection, count: int) -> dict[str, float]:
    """Bring so many messages to Kafka, and say how fast."""
    stop = threading.Event()

    def enough(report: Any) -> None:
        if report.messages >= count:
            stop.set()

    class Counted(HfpProcessor):
        seen = 0

        def process(self, messages: Any) -> Any:
            Counted.seen += len(messages)
            if Counted.seen >= count:
                stop.set()
            return super().process(messages)

    processor = Counted(HfpSettings(max_behind=None, max_ahead="100000d"))
    with Producer(connection, client_id="benchmark") as producer:
        wall, cpu = time.perf_counter(), time.process_time()
        report = Ingestion(connector, processor, producer).run(stop, enough)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert report.messages == count, f"{report.messages} of {count}"
    # Traffic lights and drivers are no events of these topics; each becomes a dead letter.
    assert set(report.dismissed) <= {Cause.OTHER_EVENT}, report.dismissed
    assert report.events + report.dismissed.get(Cause.OTHER_EVENT, 0) == count
    return {
        "messages": count,
        "events": report.events,
        "per_second": count / wall,
        "cpu_us_per_message": cpu / count * 1e6,
    }


def from_mqtt(protocol: Any, messages: list[RawMessage], connection: Connection, folder: Path) -> dict[str, float]:
    with mosquitto(folder) as port:
        settings = MqttSettings(
            host="127.0.0.1", port=port, topics=("/hfp/#",), client_id="benchmark", protocol=protocol
        )
        with MqttConnector(settings):
            pass  # now there is a session, in which messages wait
        with MqttPublisher(f"mqtt://127.0.0.1:{port}") as publisher:
            wall = time.perf_counter()
            publisher.write(messages)
            publisher.flush()
            published = len(messages) / (time.perf_counter() - wall)
        return {**ingested(MqttConnector(settings), connection, len(messages)), "published_per_second": published}


def from_file(messages: list[RawMessage], connection: Connection, folder: Path, *, copies: int) -> dict[str, float]:
    path = folder / "fleet.dump"
    with sink(str(path)) as out:
        out.write(messages)
    plan = ReplayPlan(copies=copies)
    connector = ReplayConnector(ReplaySettings(paths=(str(path),), speed=math.inf, plan=plan))
    return ingested(connector, connection, len(messages) * copies)


def simulated(connection: Connection, *, vehicles: int, seconds: int) -> dict[str, float]:
    fleet = Fleet(vehicles=vehicles, seed=1, start=START)
    wall, cpu = time.perf_counter(), time.process_time()
    report = simulate(fleet, connection, speed=math.inf, duration=seconds)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {
        "messages": report.events,
        "per_second": report.events / wall,
        "cpu_us_per_message": cpu / report.events * 1e6,
    }


def timing(folder: Path, *, vehicles: int, seconds: int, copies: int) -> dict[str, float]:
    """How far the gaps between arrivals differ from the recorded ones at speed 1, in milliseconds."""
    path = folder / "timed.dump"
    settings = SimulatorSettings(vehicles=vehicles, start=START.isoformat(), seconds=seconds, speed=math.inf)
    with sink(str(path)) as out:
        out.write(list(SimulatorConnector(settings).messages()))
    connector = ReplayConnector(ReplaySettings(paths=(str(path),), plan=ReplayPlan(copies=copies)))
    left, due = [], []
    with connector:
        for batch in connector.batches(threading.Event()):
            now = time.perf_counter()
            for message in batch.messages:
                left.append(now)
                due.append(message.arrival / 1e6)
    first = np.array(left) - left[0]
    wanted = np.array(due) - due[0]
    gaps = np.abs(np.diff(first) - np.diff(wanted)) * 1000
    late = (first - wanted) * 1000
    return {
        "messages": len(left),
        "gap_error_ms_p50": float(np.quantile(gaps, 0.5)),
        "gap_error_ms_p99": float(np.quantile(gaps, 0.99)),
        "late_ms_p99": float(np.quantile(late, 0.99)),
        "late_ms_max": float(late.max()),
    }


def median(runs: list[dict[str, float]]) -> dict[str, float]:
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.ingest", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="little data: to see that it works, not for figures")
    parser.add_argument("--turns", type=int, default=3)
    chosen = parser.parse_args()
    count, turns = (5_000, 1) if chosen.quick else (100_000, chosen.turns)
    load = os.getloadavg()[0]
    messages = fleet_messages(count)
    results: dict[str, Any] = {}
    with (
        tempfile.TemporaryDirectory() as name,
        EmbeddedBroker(ServerSettings(data_dir=Path(name) / "kafka")) as kafka,
    ):
        folder, connection = Path(name), kafka.connection
        Topics(connection).ensure(input_topics())
        if MOSQUITTO is not None:
            for protocol in ("3.1.1", "5"):
                runs = [from_mqtt(protocol, messages, connection, folder) for _ in range(turns)]
                results[f"MQTT {protocol} to Kafka"] = median(runs)
        runs = [from_file(messages, connection, folder, copies=1) for _ in range(turns)]
        results["file replay to Kafka"] = median(runs)
        runs = [from_file(messages, connection, folder, copies=16) for _ in range(1 if chosen.quick else turns)]
        results["file replay to Kafka, 16 copies"] = median(runs)
        size = (2_000, 5) if chosen.quick else (20_000, 30)
        runs = [simulated(connection, vehicles=size[0], seconds=size[1]) for _ in range(turns)]
        results["simulator straight to Kafka"] = median(runs)
    with tempfile.TemporaryDirectory() as name:
        seconds = 3 if chosen.quick else 20
        for label, copies in (("replay at 1 x", 1), ("replay at 1 x, 16 copies", 16)):
            results[label] = timing(Path(name), vehicles=700, seconds=seconds, copies=copies)
    table = Table("what", "messages/s", "µs of processor time each", "gap error p99, ms")
    for label, figures in results.items():
        table.add_row(
            label,
            f"{figures['per_second']:,.0f}" if "per_second" in figures else "",
            f"{figures['cpu_us_per_message']:.1f}" if "cpu_us_per_message" in figures else "",
            f"{figures['gap_error_ms_p99']:.2f}" if "gap_error_ms_p99" in figures else "",
        )
    Console().print(table)
    conditions = {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "load_before": round(load, 2),
        "messages": count,
        "turns": turns,
        "payload_bytes": round(statistics.mean(len(message.payload) for message in messages)),
        "note": "both brokers run on the same cores; per_second is wall time, processor time that of the process",
    }
    if not chosen.quick:
        RESULTS.write_text(json.dumps({"conditions": conditions, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
