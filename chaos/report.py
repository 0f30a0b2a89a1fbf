"""The report: all runs in one file, and what they say together."""

from __future__ import annotations

import json
import platform
from collections import defaultdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import quantiles
from typing import Any

import psutil

RESULTS = Path(__file__).parent.parent / "benchmarks" / "results" / "chaos.json"


def add(path: Path, run: dict[str, Any]) -> None:
    """Add a run to the file."""
    report = json.loads(path.read_text()) if path.exists() else {"runs": []}
    conditions = {
        "date": datetime.now(UTC).date().isoformat(),
        "cores": psutil.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30),
        "load_before": round(psutil.getloadavg()[2], 1),
        "python": platform.python_version(),
        "pyspark": version("pyspark"),
    }
    report["runs"].append({"conditions": conditions, **run})
    report["summary"] = summary(report["runs"])
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """What all runs say together, by promise."""
    by_promise: dict[str, Any] = {}
    for promise in dict.fromkeys(run["delivery"] for run in runs):
        those = [run for run in runs if run["delivery"] == promise]
        times: dict[str, list[float]] = defaultdict(list)
        for run in those:
            for each in run["kills"]:
                times[each["kind"]].append(each["recovery_s"])
        by_promise[promise] = {
            "runs": len(those),
            "kills": sum(len(run["kills"]) for run in those),
            "events": sum(run["events"] for run in those),
            "results": sum(run["expected"] for run in those),
            "lost": sum(run["lost"] for run in those),
            "duplicated": sum(run["duplicated"] for run in those),
            "recovery_s": {name: spread(values) for name, values in sorted(times.items())}
            | {"all": spread([value for values in times.values() for value in values])},
        }
    return by_promise


def spread(values: list[float]) -> dict[str, float]:
    """Smallest, middle, nine tenths, largest.

    >>> spread([1.0, 2.0, 3.0])
    {'n': 3, 'min': 1.0, 'p50': 2.0, 'p90': 3.0, 'max': 3.0}
    """
    if not values:
        return {"n": 0}
    ordered = sorted(values)
    cuts = quantiles(ordered, n=10, method="inclusive") if len(ordered) > 1 else ordered * 9
    return {
        "n": len(ordered),
        "min": ordered[0],
        "p50": round(cuts[4], 1),
        "p90": ordered[min(len(ordered) - 1, -(-9 * len(ordered) // 10) - 1)],
        "max": ordered[-1],
    }


def show(path: Path) -> None:
    """Print the summary as a table that the documentation can hold."""
    for promise, told in json.loads(path.read_text())["summary"].items():
        print(f"\n{promise}: {told['runs']} runs, {told['kills']} kills, {told['results']} results expected, ", end="")
        print(f"{told['lost']} lost, {told['duplicated']} duplicated")
        print("\n| killed | times | recovery p50 | p90 | max |\n|---|---|---|---|---|")
        for kind, times in told["recovery_s"].items():
            told_times = " | ".join(f"{times.get(name, '-')} s" for name in ("p50", "p90", "max"))
            print(f"| {kind} | {times['n']} | {told_times} |")
