"""What the raw data of a trial say: latencies per job and reader, throughput, backlog, cost.

Everything here is a function of what was written down during the trial, so figures can be computed again, and
otherwise, from the raw data alone.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from headrace.observe.quantiles import Summary, summarise
from headrace.time.duration import SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Fewer windows do not tell how far apart they are.
_FEWEST_WINDOWS = 3


def latencies(sightings: pl.DataFrame, job: str, *, begin: int, end: int) -> tuple[np.ndarray, np.ndarray]:
    """Give the latency of each result row that was due in a time, in seconds, and when it was due.

    Args:
        sightings: From `ResultWatch.sightings`.
        job: Whose results.
        begin: Of the time, in microseconds.
        end: Of the time; what is due then is not in it.
    """
    due = pl.col("due").dt.epoch("us")
    chosen = sightings.filter(pl.col("job") == job, due >= begin, due < end).select(
        due.alias("due"), seconds=(pl.col("seen") - pl.col("due")).dt.total_microseconds() / SECOND, rows="rows"
    )
    times = chosen.get_column("rows").to_numpy()
    return np.repeat(chosen["seconds"].to_numpy(), times), np.repeat(chosen["due"].to_numpy(), times)


def missing_windows(dues: np.ndarray, *, begin: int, end: int) -> list[int]:
    """Tell which windows that were due have no result at all, by the distance that most of them have.

    >>> missing_windows(np.array([5, 10, 15, 25]) * SECOND, begin=SECOND, end=30 * SECOND)
    [20000000]
    """
    seen = np.unique(dues)
    if len(seen) < _FEWEST_WINDOWS:
        return []
    step = int(np.median(np.diff(seen)))
    first = begin + (int(seen[0]) - begin) % step
    return sorted(set(range(first, end, step)) - set(seen.tolist()))


def all_latencies(
    sightings: pl.DataFrame, job: str, *, begin: int, end: int, windowed: bool
) -> tuple[np.ndarray, np.ndarray, int]:
    """Give latencies as `latencies` does, with those of windows that never came, which are infinite.

    Args:
        sightings: From `ResultWatch.sightings`.
        job: Whose results.
        begin: Of the time measured, in microseconds.
        end: Of the time measured.
        windowed: Whether the results are those of windows, whose rows come together.

    Returns:
        Latencies, due times, and how many windows are missing. A missing one has as many rows as others have.
    """
    values, dues = latencies(sightings, job, begin=begin, end=end)
    missing = missing_windows(dues, begin=begin, end=end) if windowed else []
    if missing:
        size = max(1, len(values) // len(np.unique(dues)))
        values = np.append(values, np.full(size * len(missing), math.inf))
        dues = np.append(dues, np.repeat(missing, size))
    return values, dues, len(missing)


def latency_summary(sightings: pl.DataFrame, job: str, *, begin: int, end: int, windowed: bool) -> dict[str, Any]:
    """Summarise the latency of a job's results; for the arguments see `all_latencies`."""
    values, dues, missing = all_latencies(sightings, job, begin=begin, end=end, windowed=windowed)
    summary = summarise(values, clusters=dues if windowed else None)
    windows = len(np.unique(dues)) - missing if windowed else 0
    return _told(summary, results=int(np.isfinite(values).sum()), windows=windows, missing=missing)


def _told(summary: Summary, **counts: int) -> dict[str, Any]:
    return summary.to_dict() | counts | {"warnings": summary.warnings}


def throughput(progress: Sequence[dict[str, Any]], *, begin: int, end: int) -> float:
    """Tell the events a second that the jobs took in, over whole batches within a time."""
    within = [line for line in progress if begin <= line["at"] <= end and line.get("rows_in") is not None]
    if len(within) < 2:
        return 0.0
    # The first batch speaks for a time before it.
    seconds = (within[-1]["at"] - within[0]["at"]) / SECOND
    return float(sum(line["rows_in"] for line in within[1:]) / seconds)


def backlog_series(samples: pl.DataFrame, *, begin: int, end: int) -> list[tuple[float, float]]:
    """Give the events that waited in Kafka, by seconds since `begin`.

    Args:
        samples: From `BacklogWatch.samples`.
        begin: Of the time measured, in microseconds.
        end: Of the time measured.
    """
    at = pl.col("at").dt.epoch("us")
    within = samples.filter(at.is_between(begin, end)).select((at - begin) / SECOND, pl.col("events").cast(pl.Float64))
    return within.rows()


def batch_times(progress: Sequence[dict[str, Any]], *, begin: int, end: int) -> dict[str, Any]:
    """Summarise how long micro-batches took, in milliseconds."""
    times = [float(line["duration_ms"]) for line in progress if begin <= line["at"] <= end and line.get("duration_ms")]
    return summarise(times).to_dict()
