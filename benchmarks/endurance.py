"""What a long run uses: open files, sockets, threads, memory, disk and batch time, and whether any of them grows.

    python -m benchmarks.endurance                   # 1,000 batches at 16 x; writes results/endurance.json
    python -m benchmarks.endurance --open-files 620  # the same with a limit on open files
    python -m benchmarks.endurance --quick           # little: to see that it works, not for figures

All jobs of the application run as `headrace run --all` does, on an embedded broker, with the load generator of the
evaluation and a dashboard that nobody looks at.
Every few seconds each process is looked at. After a warm-up a line is fitted to every figure by least
squares; its slope is given per 1,000 batches, with the figure's mean. A figure that grows without bound shows a slope
that is large beside its mean.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from headrace.dev import EmbeddedBroker, ServerSettings
from headrace.errors import HeadraceError
from headrace.evaluate.meter import tree
from headrace.evaluate.parts import Part, jobs_command
from headrace_transit.load import load as fleet_load
from headrace_transit.markers import recipes

RESULTS = Path(__file__).parent / "results" / "endurance.json"
BASE_RATE = 700
_START_PATIENCE = 240.0
#: The share of the batches that is warm-up: Java loads and compiles, workers start, caches fill.
_WARM_UP = 0.2
console = Console(width=140)


@dataclass(frozen=True)
class Sample:
    """What all processes of one role used at one moment."""

    batch: int
    role: str
    figures: dict[str, float]


def role_of(process: psutil.Process, parts: dict[int, str]) -> str:
    """Name what a process is: a part by itself, or Java and its Python workers below it."""
    if process.pid in parts:
        return parts[process.pid]
    return "Java" if "java" in process.name() else "Python workers"


def look(batch: int, parts: dict[int, str]) -> list[Sample]:
    """Look at all processes once."""
    totals: dict[str, dict[str, float]] = {}
    for pid in parts:
        for process in tree(pid):
            try:
                role = role_of(process, parts)
                figures = {
                    "processes": 1.0,
                    "open files": float(process.num_fds()),
                    "sockets": float(len(connections := process.net_connections("all"))),
                    "sockets in CLOSE_WAIT": float(sum(each.status == psutil.CONN_CLOSE_WAIT for each in connections)),
                    "threads": float(process.num_threads()),
                    "memory MB": process.memory_info().rss / 2**20,
                }
            except psutil.Error:
                continue  # it has just ended
            total = totals.setdefault(role, dict.fromkeys(figures, 0.0))
            for name, value in figures.items():
                total[name] += value
    return [Sample(batch, role, figures) for role, figures in totals.items()]


def disk(batch: int, home: Path) -> Sample:
    """Count what the run keeps on disk: checkpoint, local files and logs."""
    sizes = []
    for path in home.rglob("*"):
        try:
            if path.is_file():
                sizes.append(path.stat().st_size)
        except OSError:
            continue  # removed meanwhile
    return Sample(batch, "disk", {"files": float(len(sizes)), "MB": sum(sizes) / 2**20})


def slopes(samples: list[Sample]) -> dict[str, dict[str, dict[str, float]]]:
    """Fit a line to each figure of each role; slopes are per 1,000 batches."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for role in dict.fromkeys(sample.role for sample in samples):
        mine = [sample for sample in samples if sample.role == role]
        if len(mine) < 3:
            continue
        found[role] = {}
        for name in mine[0].figures:
            values = [sample.figures[name] for sample in mine]
            slope = statistics.linear_regression([sample.batch for sample in mine], values).slope
            found[role][name] = {
                "first": round(values[0], 1),
                "last": round(values[-1], 1),
                "mean": round(statistics.fmean(values), 1),
                "most": round(max(values), 1),
                "per 1,000 batches": round(slope * 1_000, 2),
            }
    return found


class Run:
    """One long run.

    Args:
        batches: How many.
        volume: Times the base load.
        open_files: The limit on open files of the jobs' processes; None: the machine's.
        every: Seconds between two looks.
    """

    def __init__(self, *, batches: int, volume: int, open_files: int | None, every: float) -> None:
        self._batches = batches
        self._volume = volume
        self._open_files = open_files
        self._every = every
        self._samples: list[Sample] = []

    def run(self, directory: Path) -> dict[str, Any]:
        home = directory / "home"
        broker = EmbeddedBroker(ServerSettings(data_dir=directory / "kafka"))
        parts: list[Part] = []
        broker.start()
        try:
            jobs = Part("headrace run", self._jobs_command(broker, home), log=directory / "jobs.log")
            parts.append(jobs)
            self._await_first_batch(jobs)
            rate = BASE_RATE * self._volume
            load = Part(
                "load", fleet_load.command(bootstrap=broker.bootstrap, rate=rate, seed=1), log=directory / "load.log"
            )
            parts.append(load)
            page = Part("dashboard", self._dashboard_command(broker, home), log=directory / "dashboard.log")
            parts.append(page)
            roles = {jobs.pid: "driver", load.pid: "load", broker.pid: "broker", page.pid: "dashboard"}
            self._watch(jobs, roles, parts, home)
            return self._report(jobs)
        finally:
            for part in reversed(parts):
                part.stop()
            broker.stop()

    def _jobs_command(self, broker: EmbeddedBroker, home: Path) -> list[str]:
        command = jobs_command(recipes(), bootstrap=broker.bootstrap, home=home, master="local[2]", settings=[])
        if self._open_files is None:
            return command
        # Both limits, hard and soft: Java raises the soft one to the hard one.
        return ["sh", "-c", f'ulimit -n {self._open_files} && exec "$@"', "headrace", *command]

    @staticmethod
    def _dashboard_command(broker: EmbeddedBroker, home: Path) -> list[str]:
        options = ["--bootstrap", broker.bootstrap, "--port", "0", "--json"]
        return [sys.executable, "-m", "headrace.cli", "--set", f"paths.home={home}", "dashboard", *options]

    @staticmethod
    def _await_first_batch(jobs: Part) -> None:
        deadline = time.monotonic() + _START_PATIENCE
        while not jobs.told("progress"):
            jobs.check()
            if time.monotonic() > deadline:
                raise TimeoutError("no batch was finished")
            time.sleep(0.2)

    def _watch(self, jobs: Part, roles: dict[int, str], parts: list[Part], home: Path) -> None:
        looks = 0
        while (batch := self._batch(jobs)) < self._batches:
            for part in parts:
                part.check()
            self._samples += [*look(batch, roles), disk(batch, home)]
            looks += 1
            if looks % 12 == 1:
                console.print(f"  batch {batch:,}")
            time.sleep(self._every)

    @staticmethod
    def _batch(jobs: Part) -> int:
        return max((int(line["batch"]) for line in jobs.told("progress")), default=0)

    def _report(self, jobs: Part) -> dict[str, Any]:
        warm = self._batches * _WARM_UP
        batches = jobs.told("progress")
        times = [
            Sample(int(line["batch"]), "batches", {"milliseconds": float(line["duration_ms"])})
            for line in batches
            if line.get("duration_ms") is not None
        ]
        restarts = sum(line.get("state") == "restarting" for line in jobs.told())
        return {
            "measured": datetime.now(UTC).isoformat(timespec="seconds"),
            "conditions": {
                "events per second": BASE_RATE * self._volume,
                "batches": self._batches,
                "limit of open files": self._open_files,
                "warm-up left out, batches": int(warm),
                "cores": psutil.cpu_count(),
                "python": platform.python_version(),
                "pyspark": version("pyspark"),
            },
            "last batch": self._batch(jobs),
            "restarts": restarts,
            "late": sum(int(line["late"]) for line in batches),
            "dead letters": sum(int(line["dead_letters"]) for line in batches),
            "slopes": slopes([sample for sample in [*self._samples, *times] if sample.batch >= warm]),
        }


def show(report: dict[str, Any]) -> None:
    table = Table(title=f"after {report['last batch']:,} batches, {report['restarts']} restarts")
    for heading in ("part", "figure", "first", "last", "mean", "most", "per 1,000 batches"):
        table.add_column(heading, justify="left" if heading in ("part", "figure") else "right")
    for role, figures in report["slopes"].items():
        for name, line in figures.items():
            table.add_row(
                role, name, *(f"{line[key]:,}" for key in ("first", "last", "mean", "most", "per 1,000 batches"))
            )
    console.print(table)


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks.endurance", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--batches", type=int, default=1_000, help="how many batches")
    parser.add_argument("--volume", type=int, default=16, help=f"times {BASE_RATE} events per second")
    parser.add_argument("--open-files", type=int, help="limit of open files for the jobs' processes")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between two looks")
    parser.add_argument("--quick", action="store_true", help="40 batches at the base load, nothing is written")
    chosen = parser.parse_args()
    batches, volume = (40, 1) if chosen.quick else (chosen.batches, chosen.volume)
    run = Run(batches=batches, volume=volume, open_files=chosen.open_files, every=1.0 if chosen.quick else chosen.every)
    with tempfile.TemporaryDirectory(prefix="headrace-endurance-") as directory:
        try:
            report = run.run(Path(directory))
        except HeadraceError as problem:
            console.print(f"[red]{problem}[/red]")
            return 1
    show(report)
    if not chosen.quick:
        known = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
        limit = "machine's limit" if chosen.open_files is None else f"{chosen.open_files} open files"
        known[limit] = report
        RESULTS.write_text(json.dumps(known, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
