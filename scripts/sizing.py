"""Fits the model of `headrace size` to the measurements in benchmarks/results: `python scripts/sizing.py`.

It writes src/headrace/sizing/fitted.json. A test fits again and compares. The error of the model is that on
measurements that it was not fitted to: each is left out once and foretold from the others.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
FITTED = ROOT / "src" / "headrace" / "sizing" / "fitted.json"
KINDS = ("windows", "patterns", "every")
#: What a query of the NEXMark suite does, as far as its cost goes.
_NEXMARK = {"q0": "every", "q1": "every", "q2": "windows", "q5": "windows", "q7": "windows", "q11": "windows"}
_NEXMARK |= {"q12": "windows", "cep0": "patterns", "cep1": "patterns", "cep2": "patterns", "cep3": "patterns"}


@dataclass(frozen=True)
class Measured:
    """One measurement: what was run, and what it took."""

    name: str
    features: tuple[float, ...]
    value: float


def _read(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


def _events(rate: float, kind: str) -> tuple[float, ...]:
    return tuple(rate / 1e6 if each == kind else 0.0 for each in (*KINDS, "six"))


def cores() -> list[Measured]:
    """Cores that runs kept busy: 1, number of jobs, millions of events a second by kind."""
    found = []
    for name, query in _read("nexmark")["queries"].items():
        spark = query["on Spark"]
        rate = spark["events_per_second"]
        found.append(Measured(name, (1, 1, *_events(rate, _NEXMARK[name])), rate / spark["events_per_core"]))
    for run in _read("peers")["latency"]["runs"]:
        if run["system"] == "headrace":
            kind = "patterns" if "pattern" in run["job"] else "windows"
            found.append(Measured(run["job"], (1, 1, *_events(run["rate"], kind)), run["cores"]["system"]))
    for name in ("evaluation", "evaluation-10-minutes"):
        report = _read(name)
        jobs = len(report["plan"]["jobs"])
        for volume in report["volumes"]:
            rate = volume["throughput"]
            found.append(
                Measured(f"{jobs} jobs, {rate:.0f}/s", (1, jobs, *_events(rate, "six")), volume["cores"]["jobs"])
            )
    return found


def memory() -> list[Measured]:
    """Resident megabytes of runs with few keys: 1, millions of events a second."""
    found = []
    for name in ("evaluation", "evaluation-10-minutes"):
        for volume in _read(name)["volumes"]:
            rate = volume["throughput"]
            found.append(Measured(f"{rate:.0f}/s", (1, rate / 1e6), volume["memory_mb"]["jobs"]))
    engine = _read("engine")
    for name in ("vehicle-distribution", "emergency-stop-pattern", "emergency-stop-sql", "delay-quantiles"):
        rate = engine["events_per_second"][name]
        found.append(Measured(name, (1, rate / 1e6), engine["peak_memory_mb"][name]))
    few, _ = _state()
    found.append(Measured(few["case"], (1, _state_rate(few)), few["resident_mb"]))
    return found


def _state() -> tuple[Any, Any]:
    """The runs with 10,000 and with 1,000,000 keys, otherwise alike."""
    figures = {each["case"]: each for each in _read("state")["figures"]}
    return figures["10,000 keys"], figures["1,000,000 keys"]


def _state_rate(figure: Any) -> float:
    return float(_read("state")["conditions"]["events_per_batch"] / figure["batch_ms"] / 1000)


def megabytes_per_million_keys() -> float:
    """What a million keys more take in memory; two runs, so there is no error to tell."""
    few, many = _state()
    return round((many["resident_mb"] - few["resident_mb"]) / 0.99)


def bytes_per_key() -> dict[str, float]:
    """State by key of each kind: the largest of its operators, each with its largest number of keys."""
    most: dict[str, dict[str, Any]] = {}
    for figure in _read("growth_keyed")["figures"]:
        known = most.get(figure["operator"])
        if known is None or figure["keys"] > known["keys"]:
            most[figure["operator"]] = figure
    each = {name: figure["state_mb"] * 1e6 / figure["keys"] for name, figure in most.items()}
    patterns = each.pop("partial matches")
    return {"windows": round(max(each.values())), "patterns": round(patterns), "every": round(each["previous"])}


def fit(points: list[Measured]) -> tuple[list[float], dict[str, float]]:
    """Fit by least squares of relative errors; give the coefficients and the errors on points that are left out."""

    def solved(some: list[Measured]) -> Any:
        rows = np.array([each.features for each in some])
        values = np.array([each.value for each in some])
        return np.linalg.lstsq(rows / values[:, None], np.ones(len(some)), rcond=None)[0]

    whole = solved(points)
    errors = []
    for place, point in enumerate(points):
        others = points[:place] + points[place + 1 :]
        foretold = float(np.dot(solved(others), point.features))
        errors.append(abs(foretold / point.value - 1))
    told = {"points": len(points), "median": round(float(np.median(errors)), 3), "largest": round(max(errors), 3)}
    return [float(f"{each:.4g}") for each in whole], told


def fitted() -> dict[str, Any]:
    """Fit everything."""
    of_cores, cores_error = fit(cores())
    of_memory, memory_error = fit(memory())
    return {
        "cores": {
            "fixed": of_cores[0],
            "per_job": of_cores[1],
            "seconds_per_million_events": dict(zip((*KINDS, "six"), of_cores[2:], strict=True)),
            "error": cores_error,
        },
        "memory_mb": {
            "fixed": of_memory[0],
            "per_million_events_a_second": of_memory[1],
            "per_million_keys": megabytes_per_million_keys(),
            "error": memory_error,
        },
        "bytes_per_key": bytes_per_key(),
        "measured": {"cores": 2, "most_events_per_second": round(max(_read("engine")["events_per_second"].values()))},
    }


if __name__ == "__main__":
    FITTED.write_text(json.dumps(fitted(), indent=1) + "\n")
