"""What share of the reports is late for each job of the application, by clock tolerance.

    python -m benchmarks.late_share RECORDING...     # prints tables, writes benchmarks/results/late_share.json

Recordings are replayed in the order of arrival, in process: 4 partitions by vehicle, a micro-batch every second of
arrival, processing time is the time of arrival. Two made-up fleets come first: one in the shape of a recording of a
whole real fleet in which 13 clocks of 1,460 are ahead, and one of 200 vehicles of which 4 are 10 s ahead. A tolerance
of one day is the behaviour without `transit.clock_tolerance_ms`. Nothing is timed.
"""

from __future__ import annotations

import os

os.environ["POLARS_MAX_THREADS"] = "1"

import argparse
import json
import zlib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table

from headrace.config import Settings
from headrace.ingest.recording import Recording
from headrace.inprocess import Runner
from headrace.time import INSTANT
from headrace_transit.hfp import HfpProcessor, HfpSettings
from headrace_transit.jobs import all_jobs
from headrace_transit.settings import TransitSettings
from headrace_transit.simulator import Arrivals, Disorder, Fleet
from headrace_transit.topics import VEHICLE_POSITIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray

    from headrace.stream import Job

RESULTS = Path(__file__).parent / "results" / "late_share.json"
PARTITIONS = 4
CADENCE = 1_000_000
#: In milliseconds; a day is as good as no bound.
TOLERANCES = (0, 86_400_000)
MORE_TOLERANCES = (0, 250, 500, 1_000, 2_000, 86_400_000)
_SECOND = 1_000_000

Topics = dict[str, pl.DataFrame]
"""Events by topic, in the order of arrival."""


def whole_fleet(*, vehicles: int = 1_460, wrong: int = 13, seconds: float = 3.3, seed: int = 1) -> Topics:
    """Make a fleet in the shape of a real one: some clocks 1 to 4.4 s ahead, 1 % of the reports about 37 s old."""
    random = np.random.default_rng(seed)
    fleet = Fleet(vehicles=vehicles, seed=seed)
    rows = fleet.positions(0, seconds=int(seconds) + 1)
    number = rows["vehicle_id"].rank("dense").to_numpy().astype(np.int64) - 1
    sent = rows["event_time"].dt.timestamp("us").to_numpy()
    lag = 0.05 + random.exponential(0.1, rows.height)
    held_up = random.random(rows.height) < 0.012
    lag[held_up] = random.uniform(30.0, 60.0, int(held_up.sum()))
    ahead = np.zeros(vehicles)
    ahead[random.choice(vehicles, wrong, replace=False)] = random.uniform(1.0, 4.4, wrong)
    return _reported(rows, sent, sent - (lag * _SECOND).astype(np.int64), ahead[number], seconds)


def few_wrong_clocks(*, vehicles: int = 200, wrong: int = 4, by: float = 10.0, seconds: float = 60.0) -> Topics:
    """Make a fleet in which each partition has a vehicle whose clock is ahead, and reports travel for 0.1 s."""
    rows = Fleet(vehicles=vehicles, seed=1).positions(0, seconds=int(seconds))
    names = sorted(rows["vehicle_id"].unique())
    chosen = [next(name for name in names if _partition(name) == number % PARTITIONS) for number in range(wrong)]
    ahead = rows["vehicle_id"].is_in(chosen).to_numpy() * by
    sent = rows["event_time"].dt.timestamp("us").to_numpy()
    return _reported(rows, sent + _SECOND // 10, sent, ahead, seconds + 1)


def wrong_clocks(share: float, *, vehicles: int = 300, seconds: int = 120) -> Topics:
    """Make a fleet of which a share of the clocks is wrong by 1 s to 10 min, ahead and behind, on calm roads."""
    arrivals = Arrivals(Fleet(vehicles=vehicles, seed=1), replace(Disorder(), wrong_clocks=share), stop_events=False)
    made = arrivals.take(seconds).positions.rename({"arrival_time": "ingestion_time"})
    return {VEHICLE_POSITIONS: made}


def late_by_own_order(reports: pl.DataFrame) -> float:
    """Give the share of reports that come after a newer one of their own vehicle."""
    newest = pl.col("event_time").cum_max().shift().over("vehicle_id")
    return float(reports.select((pl.col("event_time") < newest).mean()).item() or 0.0)


def _reported(
    rows: pl.DataFrame, arrival: NDArray[Any], event: NDArray[Any], ahead: NDArray[Any], seconds: float
) -> Topics:
    made = rows.with_columns(
        pl.Series("event_time", event + (ahead * _SECOND).astype(np.int64)).cast(INSTANT),
        pl.Series("ingestion_time", arrival).cast(INSTANT),
    ).sort("ingestion_time", maintain_order=True)
    first = int(arrival.min())
    return {VEHICLE_POSITIONS: made.filter(pl.col("ingestion_time").to_physical() < first + int(seconds * _SECOND))}


def recorded(path: Path) -> Topics:
    """Read a recording of HFP messages."""
    processor = HfpProcessor(HfpSettings(max_behind=None))
    frames: dict[str, list[pl.DataFrame]] = {}
    for block in Recording(path).blocks():
        for events in processor.process(list(block)).events:
            frames.setdefault(events.topic, []).append(events.frame)
    return {topic: pl.concat(parts).sort("ingestion_time", maintain_order=True) for topic, parts in frames.items()}


def late_rows(job: Job, topics: Mapping[str, pl.DataFrame]) -> tuple[int, int]:
    """Run a job over events, and give how many it read and how many of them were late."""
    runner = Runner(job, key_groups=1)
    read = late = 0
    for now, batch in batches({topic: topics[topic] for topic in job.sources if topic in topics}):
        outcome = runner.step(batch, now=now)
        read += sum(part.height for parts in batch.values() for part in parts.values())
        late += 0 if outcome.late is None else outcome.late.height
    return read, late


def batches(topics: Topics) -> Iterator[tuple[int, dict[str, dict[str, pl.DataFrame]]]]:
    """Cut events into micro-batches by their arrival: the end of each, and its events by topic and partition."""
    times = {topic: frame["ingestion_time"].dt.timestamp("us").to_numpy() for topic, frame in topics.items()}
    if not times:
        return
    now, end = min(int(each[0]) for each in times.values()), max(int(each[-1]) for each in times.values())
    places = {
        topic: np.array([_partition(name) for name in frame["vehicle_id"].to_list()], np.int64)
        for topic, frame in topics.items()
    }
    while now <= end:
        # Nothing arrives for a while: on to the next report.
        ahead = min(int(each[at]) for each in times.values() if (at := int(np.searchsorted(each, now))) < len(each))
        now = max(now, ahead)
        batch: dict[str, dict[str, pl.DataFrame]] = {}
        for topic, frame in topics.items():
            here = slice(*np.searchsorted(times[topic], [now, now + CADENCE]).tolist())
            part, numbers = frame[here], places[topic][here]
            # A partition without rows in a batch is known all the same.
            batch[topic] = {str(number): part.filter(pl.Series(numbers == number)) for number in range(PARTITIONS)}
        now += CADENCE
        yield now, batch


def _partition(vehicle: str) -> int:
    return zlib.crc32(vehicle.encode()) % PARTITIONS


def shares(topics: Topics, tolerances: tuple[int, ...] = TOLERANCES) -> dict[str, dict[str, Any]]:
    """Give per job how many reports it read, and how many were late by each tolerance in milliseconds."""
    found: dict[str, dict[str, Any]] = {}
    for tolerance in tolerances:
        for name, job in all_jobs(Settings(sections=(TransitSettings(clock_tolerance_ms=tolerance),))).items():
            read, late = late_rows(job, topics)
            found.setdefault(name, {"read": read, "late": {}})["late"][str(tolerance)] = late
    return found


def main() -> None:
    """Read the command line, count, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recordings", nargs="*", type=Path)
    console = Console()
    made_up = {
        "made up: 13 of 1,460 clocks ahead": whole_fleet(),
        "made up: 4 of 200 clocks ahead": few_wrong_clocks(),
        **{f"simulated: {share:.0%} of 300 clocks wrong": wrong_clocks(share) for share in (0.01, 0.05, 0.2)},
    }
    parser.add_argument("--only", default="", help="inputs whose name contains this; nothing is written then")
    chosen = parser.parse_args()
    inputs = made_up | {path.name: recorded(path) for path in chosen.recordings}
    inputs = {name: topics for name, topics in inputs.items() if chosen.only in name}
    figures = {}
    for name, topics in inputs.items():
        tolerances = MORE_TOLERANCES if name.startswith("made up") else TOLERANCES
        figures[name] = shares(topics, tolerances)
        table = Table("job", "read", *(f"{tolerance:,} ms" for tolerance in tolerances), title=f"late: {name}")
        for job, figure in figures[name].items():
            late = (f"{count:,} ({count / max(figure['read'], 1):.1%})" for count in figure["late"].values())
            table.add_row(job, f"{figure['read']:,}", *late)
        console.print(table)
        if VEHICLE_POSITIONS in topics:
            console.print(
                f"by the order of their own vehicles {late_by_own_order(topics[VEHICLE_POSITIONS]):.2%} are late"
            )
    if chosen.only:
        return
    conditions = {
        "date": datetime.now(UTC).date().isoformat(),
        "partitions": PARTITIONS,
        "batch": "1 s of arrival, in process",
        "columns": "late reports by transit.clock_tolerance_ms; 86400000 is the behaviour without it",
    }
    RESULTS.write_text(json.dumps({"conditions": conditions, "figures": figures}, indent=2) + "\n")


if __name__ == "__main__":
    main()
