"""Run the comparison and write its table: python -m benchmarks.peers [--quick] [--part throughput|latency] ..."""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import engine, workload
from benchmarks.peers import build, flink, latency, native
from rich.console import Console
from rich.table import Table

from headrace.dev import SPARK_CONNECTOR, EmbeddedBroker, JarCache, ServerSettings
from headrace.kafka import Topics
from headrace_transit.jobs import all_jobs
from headrace_transit.topics import topics

RESULTS = Path(__file__).parents[1] / "results" / "peers.json"
JOBS = ("vehicle-distribution", "delay-quantiles", "emergency-stop-pattern")
LATENCY_JOBS = ("vehicle-distribution", "emergency-stop-pattern")
SYSTEMS = ("headrace", "flink", "spark")
console = Console()


def throughput(chosen: argparse.Namespace) -> dict[str, Any]:
    """Events a second of each system and job from the same filled topic."""
    jobs = {name: all_jobs().get(name) or engine.DELAYS for name in chosen.only or JOBS}
    figures: dict[str, dict[str, list[float | None]]] = {name: {system: [] for system in SYSTEMS} for name in jobs}
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        with EmbeddedBroker(ServerSettings(data_dir=home / "kafka", memory="1g")) as broker:
            Topics(broker.connection).ensure(topics([job.result_topic for job in jobs.values()]))
            events = engine.fill(broker, vehicles=chosen.vehicles, seconds=chosen.seconds)
            console.print(f"{events:,} events are in the topic")
            ground = engine.Ground(broker, list(JarCache().get(SPARK_CONNECTOR)), home, events, chosen.batch)
            for turn in range(chosen.repeat):
                for name, job in jobs.items():
                    for system in SYSTEMS:
                        if system not in chosen.systems:
                            continue
                        figure = _one(system, name, job, ground, events, chosen)
                        figures[name][system].append(figure)
                        text = "-" if figure is None else f"{figure:,.0f} events/s"
                        console.print(f"turn {turn + 1}: {name} on {system}: {text}")
    return {
        "conditions": workload.conditions(
            events=events,
            vehicles=chosen.vehicles,
            events_per_batch=chosen.batch,
            turns=chosen.repeat,
            flink=build.FLINK,
            note="Flink: mini-cluster, 2 slots, heap state, checkpoint every 10 s, exactly once, 10 GB (with 3 GB the "
            "quantiles ran out of memory); headrace and Spark: local[2], 3 GB; Spark alone writes at least once",
        ),
        "turns": figures,
    }


def _one(
    system: str, name: str, job: Any, ground: engine.Ground, events: int, chosen: argparse.Namespace
) -> float | None:
    if system == "headrace":
        return engine.streaming(ground, job)
    if system == "flink":
        return flink.throughput(
            ground.broker, name, events=events, directory=ground.directory, patience=chosen.patience
        )
    builds = {
        "vehicle-distribution": (native.vehicle_distribution, ground.batch),
        "delay-quantiles": (native.delay_quantiles, 20_000),
    }
    if name not in builds:
        return None  # Spark has no operator for patterns
    made, batch = builds[name]
    return native.throughput(ground, engine._session, made, batch=batch, patience=chosen.patience)  # noqa: SLF001


def latencies(chosen: argparse.Namespace) -> list[dict[str, Any]]:
    """Latency of each system and job under load, one job alone."""
    told = []
    for turn in range(chosen.latency_repeat):
        for job in chosen.only or LATENCY_JOBS:
            for system in ("headrace", "flink"):
                if system not in chosen.systems:
                    continue
                with tempfile.TemporaryDirectory() as directory:
                    found = latency.measured(
                        system,
                        job,
                        volume=chosen.volume,
                        seconds=chosen.latency_seconds,
                        warm_up=chosen.warm_up,
                        directory=Path(directory),
                    )
                told.append({"turn": turn + 1, **found})
                console.print(f"turn {turn + 1}: {job} on {system}: {_said(found)}")
                time.sleep(1)
    return told


def _said(found: dict[str, Any]) -> str:
    parts = [f"{kind} {_pair(summed)}" for kind, summed in found["latency"].items()]
    return ", ".join(parts) + ("" if found["valid"] else f"  NOT VALID: {'; '.join(found['reasons'])}")


def _pair(summed: dict[str, Any]) -> str:
    values = (summed[name]["value"] for name in ("p50", "p99"))
    return " / ".join("never" if value is None else f"{value:.2f}" for value in values) + " s"


def show(record: dict[str, Any]) -> None:
    """Print the tables."""
    if "throughput" in record:
        table = Table("job", *SYSTEMS, "headrace : flink", title="events/s (median of turns)")
        for job, medians in record["events_per_second"].items():
            cells = [f"{medians[system]:,}" if medians.get(system) else "-" for system in SYSTEMS]
            ratio = record["ratios"].get(job)
            table.add_row(job, *cells, "-" if ratio is None else f"{ratio:.2f}")
        console.print(table)
    if "latency" in record:
        table = Table("job", "system", "turn", "committed p50 / p99", "uncommitted p50 / p99", "valid", title="latency")
        for found in record["latency"]["runs"]:
            pairs = [_pair(found["latency"][kind]) for kind in ("committed", "uncommitted")]
            table.add_row(found["job"], found["system"], str(found["turn"]), *pairs, "yes" if found["valid"] else "NO")
        console.print(table)


def summed_up(record: dict[str, Any]) -> dict[str, Any]:
    """Add medians and ratios."""
    if "throughput" in record:
        medians: dict[str, dict[str, int | None]] = {}
        for job, systems in record["throughput"]["turns"].items():
            known = {system: [value for value in values if value] for system, values in systems.items()}
            medians[job] = {
                system: round(statistics.median(values)) if values else None for system, values in known.items()
            }
        record["events_per_second"] = medians
        record["ratios"] = {
            job: round(each["headrace"] / each["flink"], 2)
            for job, each in medians.items()
            if each.get("headrace") and each.get("flink")
        }
    return record


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.peers", description=__doc__)
    parser.add_argument("--part", choices=["throughput", "latency"], help="only this; both if not given")
    parser.add_argument("--only", action="append", default=[], choices=JOBS, help="jobs; all if none is named")
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="which systems")
    parser.add_argument("--vehicles", type=int, default=20_000)
    parser.add_argument("--seconds", type=int, default=120, help="event time to fill, at 1 Hz a vehicle")
    parser.add_argument("--batch", type=int, default=300_000)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--patience", type=float, default=90, help="seconds that one contestant may take")
    parser.add_argument("--volume", type=float, default=16)
    parser.add_argument("--latency-seconds", type=float, default=60)
    parser.add_argument("--latency-repeat", type=int, default=2)
    parser.add_argument("--warm-up", type=float, default=25)
    parser.add_argument("--output", type=Path, default=RESULTS, help="where the figures go")
    parser.add_argument("--quick", action="store_true", help="little data: to see that it works, not for figures")
    chosen = parser.parse_args()
    chosen.systems = chosen.systems.split(",")
    if chosen.quick:
        chosen.vehicles, chosen.seconds, chosen.batch, chosen.repeat, chosen.patience = 2_000, 60, 15_000, 1, 40
        chosen.volume, chosen.latency_seconds, chosen.latency_repeat, chosen.warm_up = 1, 20, 1, 10
    build.class_path()
    # What was measured in an earlier run, of the part that this one leaves out, is kept.
    record: dict[str, Any] = json.loads(chosen.output.read_text("utf-8")) if chosen.output.exists() else {}
    if chosen.part != "latency":
        record["throughput"] = throughput(chosen)
        record["conditions"] = record["throughput"].pop("conditions")
    if chosen.part != "throughput":
        record["latency"] = {"conditions": workload.conditions(volume=chosen.volume), "runs": latencies(chosen)}
    summed_up(record)
    show(record)
    if chosen.quick or chosen.only:
        console.print("Not written: --quick and --only are for looking, not for figures.")
        return
    chosen.output.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    console.print(f"written to {chosen.output}")


if __name__ == "__main__":
    main()
