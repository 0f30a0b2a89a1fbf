"""The figures of an evaluation: what its trials say together.

Per volume and job the latency is that of all valid trials together, with one confidence interval, and the range of the
trials' own medians beside it: the interval says how sure the figure is for these runs, the range how much runs differ.
"""

from __future__ import annotations

import json
import statistics
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from headrace.evaluate import measures
from headrace.evaluate.campaign import held_and_lost
from headrace.evaluate.meter import OTHERS
from headrace.observe.latency import latency_report
from headrace.observe.quantiles import summarise

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

#: The parts of a pipeline whose cost is that of the product; the load and the measuring are ours.
PRODUCT = ("broker", "jobs")


def summary(
    directory: Path, records: Sequence[dict[str, Any]], *, failures: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    """Sum up an evaluation.

    Args:
        directory: Its directory.
        records: Of its trials.
        failures: Trials that failed.
    """
    kept = json.loads((directory / "plan.json").read_text("utf-8"))
    held, lost = held_and_lost(list(records))
    best = max(held, default=None)
    planned = {record["volume"] for record in records if not record["searching"]}
    volumes = sorted(planned | ({best} if best is not None else set()))
    told = {
        "plan": kept["plan"],
        "conditions": kept["conditions"],
        "volumes": [volume_figures(directory, records, volume) for volume in volumes],
        "highest": {"held": best, "not_held": sorted(lost)},
        "sizes": _sizes(directory),
        "trials": [
            {name: record[name] for name in ("name", "valid", "held", "reasons", "warnings")} for record in records
        ],
        "failures": list(failures),
    }
    return told | {"readme": readme_rows(told)}


def volume_figures(directory: Path, records: Sequence[dict[str, Any]], volume: float) -> dict[str, Any]:
    """Sum up the trials of one volume; those that are not valid are only counted, those of the search if no others."""
    found = [record for record in records if record["volume"] == volume]
    every = [record for record in found if not record["searching"]] or found
    valid = [record for record in every if record["valid"]]
    jobs = list(every[0]["latency"])
    return {
        "volume": volume,
        "rate": every[0]["rate"],
        "searched": every[0]["searching"],
        "trials": len(every),
        "valid": len(valid),
        "held": sum(bool(record["held"]) for record in valid),
        "throughput": _mean([record["throughput"] for record in valid]),
        "backlog": _mean([record["backlog"]["last"] for record in valid]),
        "batch_ms": _mean([record["batches"]["p50"]["value"] or 0.0 for record in valid]),
        "cores": _parts([record["cores"] for record in valid], statistics.fmean),
        "memory_mb": _parts([record["memory_mb"] for record in valid], max),
        "jobs": {job: job_figures(directory, valid, job) for job in jobs},
        "right": _right(valid),
    }


def job_figures(directory: Path, valid: Sequence[dict[str, Any]], job: str) -> dict[str, Any]:
    """Sum up what valid trials of a volume say about a job: its results by reader, its markers."""
    windowed = any(job in record.get("windowed", ()) for record in valid)
    readers = {}
    for kind in ("committed", "uncommitted"):
        values, clusters = pooled(directory, valid, job, kind, windowed=windowed)
        if len(values):
            told = summarise(values, clusters=clusters if windowed else None)
            medians = [record["latency"][job][kind]["p50"]["value"] for record in valid]
            spread = [median for median in medians if median is not None]
            missing = sum(record["latency"][job][kind]["missing"] for record in valid)
            warnings = told.warnings + ([f"{missing} windows had no result in time"] if missing else [])
            readers[kind] = told.to_dict() | {"medians": spread, "missing": missing, "warnings": warnings}
    frames = [markers(directory, record) for record in valid]
    outcomes = pl.concat(frames) if frames else None
    report = latency_report(outcomes.filter(pl.col("job") == job)) if outcomes is not None else {}
    return {"results": readers, "markers": report[job].to_dict() if job in report else None}


def pooled(
    directory: Path, records: Sequence[dict[str, Any]], job: str, kind: str, *, windowed: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Give the latencies of a job's results in several trials, and when each was due."""
    values, clusters = [np.empty(0)], [np.empty(0, dtype=np.int64)]
    for record in records:
        path = directory / "trials" / record["name"] / f"results-{kind}.parquet"
        if path.exists():
            seconds, due, _ = measures.all_latencies(
                pl.read_parquet(path), job, begin=record["begin"], end=record["end"], windowed=windowed
            )
            values.append(seconds)
            # Trials follow each other in time, so no two have a window in common.
            clusters.append(due)
    return np.concatenate(values), np.concatenate(clusters)


def markers(directory: Path, record: dict[str, Any]) -> pl.DataFrame:
    """Give what became of the markers of a trial."""
    return pl.read_parquet(directory / "trials" / record["name"] / "markers.parquet")


def readme_rows(told: dict[str, Any]) -> list[dict[str, Any]]:
    """Choose the figures that the front page shows: those of the highest planned volume with a valid trial."""
    usable = [volume for volume in told["volumes"] if volume["valid"] and not volume["searched"]]
    if not usable:
        return []
    top = usable[-1]
    rows = []
    for job, figures in top["jobs"].items():
        committed = figures["results"].get("committed")
        if committed is None or committed["p50"]["value"] is None:
            continue
        row: dict[str, Any] = {
            "what": f"{job} at {top['rate']:,} events/s, all jobs at once: result visible (read_committed) "
            "after it was due, p50",
            "value": committed["p50"]["value"],
            "unit": "s",
        }
        if committed["p99"]["value"] is not None:
            row["beside"] = {"what": "p99", "value": committed["p99"]["value"], "unit": "s"}
        rows.append(row)
    if told["highest"]["held"]:
        rate = told["highest"]["held"] * 700
        rows.append(
            {"what": "highest volume held with a flat backlog, all jobs at once", "value": rate, "unit": "events/s"}
        )
    return rows


def _sizes(directory: Path) -> dict[str, Any]:
    path = directory / "sizes.json"
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def _parts(each: Sequence[dict[str, float]], together: Any) -> dict[str, float]:
    names = dict.fromkeys(name for parts in each for name in parts)
    return {name: together([parts.get(name, 0.0) for parts in each]) for name in names}


def _right(valid: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Sum up the comparisons with a batch."""
    found: dict[str, Any] = {}
    for record in valid:
        for job, parity in record["parity"].items():
            sums = found.setdefault(job, {"rows": 0, "missing": 0, "extra": 0, "different": 0, "approximate": 0})
            for name in sums:
                sums[name] += parity[name]
    return found


def product_cores(cores: dict[str, float]) -> float:
    """The cores that the product itself used."""
    return sum(value for part, value in cores.items() if part in PRODUCT)


def foreign_cores(cores: dict[str, float]) -> float:
    """The cores that somebody else used."""
    return cores.get(OTHERS, 0.0)
