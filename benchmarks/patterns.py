"""What the pattern operators take: events per second of one core, growth with keys and partial matches, and memory.

    python -m benchmarks.patterns            # prints a table, writes benchmarks/results/patterns.json

The operators run in process, with state in memory and one thread, as each of them does in a worker of Spark: what is
measured is the work of the operator itself, saved state included, without Kafka and Spark (`benchmarks.engine` has
these). Times are of processor time. Every case runs in a process of its own, so that its memory is its own: `resident`
is the peak of the whole process, `with data` what it had when the rows were made and nothing had run.

The rows are those of a fleet that reports once a second: vehicles accelerate, cruise, brake gently, and dwell; one stop
in a hundred is an emergency stop, from more than 10 m/s to a stand within 10 s.
"""

from __future__ import annotations

import os

os.environ["POLARS_MAX_THREADS"] = "1"

import argparse
import json
import logging
import platform
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import psutil
from polars import col
from rich.console import Console
from rich.table import Table

from headrace import sql
from headrace.cep import Pattern, current, matched
from headrace.cep.measures import count, first, last, smallest
from headrace.engine import MemorySegments, Turn
from headrace.engine.keygroups import split_by_group
from headrace.stream import Stream
from headrace.stream.pipeline import compile_plan
from headrace.time import bounded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RESULTS = Path(__file__).parent / "results" / "patterns.json"
START = 1_772_000_000_000_000
SECOND = 1_000_000
GROUPS = 4
COLUMNS = {
    "vehicle_id": pl.String,
    "speed": pl.Float64,
    "acceleration": pl.Float64,
    "latitude": pl.Float64,
    "longitude": pl.Float64,
    "line": pl.String,
}
console = Console()


@dataclass(frozen=True)
class Figure:
    """What one case took.

    Args:
        group: What it shows.
        case: Its name.
        events: Events that were timed.
        events_per_batch: In each batch.
        microseconds_per_event: Of processor time.
        events_per_second: Of one core.
        matches: What came out.
        state_mb: Saved state at the end.
        with_data_mb: Memory of the process before the operator ran.
        resident_mb: Peak memory of the process.
    """

    group: str
    case: str
    events: int
    events_per_batch: int
    microseconds_per_event: float
    events_per_second: int
    matches: int
    state_mb: float
    with_data_mb: int
    resident_mb: int


# Rows


def fleet(vehicles: int, seconds: int, *, seed: int = 1) -> Iterator[pl.DataFrame]:
    """The reports of each second."""
    random = np.random.default_rng(seed)
    top, rise = random.uniform(9, 16, vehicles), random.uniform(0.7, 1.1, vehicles)
    cruise, dwell = random.uniform(15, 60, vehicles), random.uniform(8, 30, vehicles)
    brake, up = 0.85, top / rise
    cycle = up + cruise + top / brake + dwell
    phase, luck = random.uniform(0, 1, vehicles) * cycle, random.integers(0, 100, vehicles)
    names = pl.Series("vehicle_id", [f"{number % 60}/{number}" for number in range(vehicles)])
    lines = pl.Series("line", [str(number % 300) for number in range(vehicles)])
    for second in range(seconds):
        stops = ((phase + second) // cycle).astype(np.int64)
        place = phase + second - stops * cycle
        rate = np.where((luck + stops) % 100 == 0, 4.0, brake)
        stages = [place < up, place < up + cruise, place < up + cruise + top / rate]
        speed = np.select(stages, [place * rise, top + 0.3 * np.sin(place), top - (place - up - cruise) * rate], 0.0)
        gained = np.select(stages, [rise, 0.3 * np.cos(place), -rate], 0.0)
        yield pl.DataFrame(
            {
                "vehicle_id": names,
                "speed": np.maximum(speed, 0),
                "acceleration": gained,
                "latitude": 60.1 + speed / 1e4,
                "longitude": 24.9 - speed / 1e4,
                "line": lines,
                "event_time": pl.Series(np.full(vehicles, START + second * SECOND)).cast(pl.Datetime("us", "UTC")),
            }
        )


def batches(vehicles: int, seconds: int, *, per_batch: int = 15) -> list[pl.DataFrame]:
    """The reports of some seconds, several in each batch."""
    every = list(fleet(vehicles, seconds))
    return [pl.concat(every[begin : begin + per_batch]) for begin in range(0, seconds, per_batch)]


def source() -> Stream:
    return Stream.rows("positions", COLUMNS).watermark(bounded("1s"))


# Patterns


def emergency_stop(gentle: float = 0.0) -> Pattern:
    return (
        Pattern.begin("cruising", col("speed") >= 10)
        .next("braking", col("acceleration") < -gentle)
        .one_or_more()
        .consecutive()
        .next("stopped", col("speed") < 1)
        .within("10s")
        .skip("past_last")
    )


def by_builder() -> Stream:
    return (
        source()
        .key_by("vehicle_id")
        .match(emergency_stop())
        .select(
            stopped=last("stopped.event_time"),
            line=last("stopped.line"),
            latitude=last("stopped.latitude"),
            longitude=last("stopped.longitude"),
            speed=first("cruising.speed"),
            acceleration=smallest("braking.acceleration"),
        )
    )


def by_sql() -> Stream:
    query = """
        SELECT * FROM positions MATCH_RECOGNIZE (
          PARTITION BY vehicle_id ORDER BY event_time
          MEASURES stopped.event_time AS stopped, stopped.line AS line, stopped.latitude AS latitude,
            stopped.longitude AS longitude, cruising.speed AS speed, MIN(braking.acceleration) AS acceleration
          ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
          PATTERN (cruising braking+? stopped) WITHIN INTERVAL '10' SECOND
          DEFINE cruising AS speed >= 10, braking AS acceleration < 0, stopped AS speed < 1)
        """
    stream: Stream = sql(query, {"positions": source()})
    return stream


def iterative() -> Stream:
    """Braking that gets harder from report to report, compared with what was matched before."""
    pattern = (
        Pattern.begin("cruising", col("speed") >= 10)
        .next("braking", col("acceleration") < -0.2)
        .where(current("speed") < matched("cruising").last("speed"))
        .one_or_more()
        .consecutive()
        .next("slow", (col("speed") < 5))
        .where(matched("braking").mean("acceleration") < -1)
        .within("10s")
        .skip("past_last")
    )
    return source().key_by("vehicle_id").match(pattern).select(at=last("slow.event_time"), n=count("braking"))


def iterative_sql() -> Stream:
    query = """
        SELECT * FROM positions MATCH_RECOGNIZE (
          PARTITION BY vehicle_id ORDER BY event_time
          MEASURES slow.event_time AS at, COUNT(braking.*) AS n
          PATTERN (cruising braking+? slow) WITHIN INTERVAL '10' SECOND
          DEFINE cruising AS speed >= 10, braking AS acceleration < -0.2 AND speed < cruising.speed,
            slow AS speed < 5 AND AVG(braking.acceleration) < -1)
        """
    stream: Stream = sql(query, {"positions": source()})
    return stream


def waiting() -> Stream:
    """A vehicle that stands, and within an hour drives very fast: a partial match of every vehicle waits for long."""
    pattern = (
        Pattern.begin("stands", col("speed") < 0.1)
        .followed_by("fast", col("speed") > 100)
        .within("1h")
        .skip("past_last")
    )
    return source().key_by("vehicle_id").match(pattern).select(at=last("fast.event_time"))


# Measuring


def resident() -> int:
    return round(psutil.Process().memory_info().rss / 2**20)


def peak() -> int:
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def timed(group: str, case: str, streams: list[Stream], rows: list[pl.DataFrame], *, warm: int = 1) -> Figure:
    """Let the operators of streams take a turn for each batch and key group; the first batches are not timed."""
    stages = [compile_plan(stream.node, stream.schema).stages[0] for stream in streams]
    parts = [split_by_group(batch, ("vehicle_id",), GROUPS) for batch in rows]
    marks = [int(batch["event_time"].to_physical().max()) - SECOND for batch in rows]
    states = [[MemorySegments() for _ in range(GROUPS)] for _ in stages]
    before, matches, took = resident(), 0, 0.0
    for number, (batch, mark) in enumerate(zip(parts, marks, strict=True)):
        begun = time.process_time()
        for stage, state in zip(stages, states, strict=True):
            empty = rows[0].select(stage.schema.names())[:0]
            for place in range(GROUPS):
                part = batch[place].select(stage.schema.names()) if place in batch else empty
                outcome = stage.operator.turn(state[place], Turn(part, mark, mark))
                matches += 0 if outcome.rows is None else outcome.rows.height
        took += time.process_time() - begun if number >= warm else 0.0
    done = sum(batch.height for batch in rows[warm:])
    kept = sum(len(value) for state in states for segments in state for value in segments.content.values())
    return Figure(
        group,
        case,
        done,
        rows[-1].height,
        round(took / done * 1e6, 2),
        round(done / took),
        matches,
        round(kept / 2**20, 1),
        before,
        peak(),
    )


def one_key(rows: int, stream: Callable[[], Stream], name: str) -> Figure:
    """One vehicle that reports once a second for as long as it takes: the days of many, one after the other."""
    days = pl.concat(list(fleet(1_000, rows // 1_000))).sort("vehicle_id", "event_time")
    table = days.with_columns(
        vehicle_id=pl.lit("0/0"),
        event_time=pl.Series(START + np.arange(rows) * SECOND).cast(pl.Datetime("us", "UTC")),
    )
    parts = [table[begin : begin + rows // 10] for begin in range(0, rows, rows // 10)]
    return timed("one key", f"{name}, {rows:,} rows", [stream()], parts)


def many_keys(keys: int, stream: Callable[[], Stream], name: str, seconds: int) -> Figure:
    """The same number of events a batch, over more and more keys."""
    size = 10_000
    every = list(fleet(keys, max(seconds * size // keys, 1) + 1))
    table = pl.concat(every)[: (seconds + 1) * size]
    stamped = table.with_columns(
        pl.Series("event_time", START + np.arange(table.height) // size * SECOND).cast(pl.Datetime("us", "UTC"))
    )
    parts = [stamped[begin : begin + size] for begin in range(0, stamped.height, size)]
    return timed("growth with keys", f"{name}, {keys:,} keys", [stream()], parts, warm=15)


def partial_matches(vehicles: int, seconds: int) -> Figure:
    """Batches of 10,000 events of vehicles that drive, while partial matches of others wait for an hour."""
    standing = next(iter(fleet(vehicles, 1))).with_columns(speed=pl.lit(0.0))
    driving = [
        part.with_columns(speed=pl.lit(20.0), event_time=pl.col("event_time") + pl.duration(seconds=5))
        for part in fleet(10_000, seconds)
    ]
    return timed("growth with partial matches", f"{vehicles:,} waiting", [waiting()], [standing, *driving], warm=3)


def cases(*, quick: bool) -> dict[str, Callable[[], Figure]]:
    vehicles, seconds = (2_000, 45) if quick else (20_000, 90)
    long = 20_000 if quick else 1_000_000
    sizes = (1_000, 5_000) if quick else (1_000, 50_000, 1_000_000)
    group = "emergency stop"
    found: dict[str, Callable[[], Figure]] = {
        "builder": lambda: timed(group, "builder", [by_builder()], batches(vehicles, seconds)),
        "sql": lambda: timed(group, "SQL", [by_sql()], batches(vehicles, seconds)),
        "iterative": lambda: timed("iterative condition", "builder", [iterative()], batches(vehicles, seconds)),
        "iterative-sql": lambda: timed("iterative condition", "SQL", [iterative_sql()], batches(vehicles, seconds)),
        "twenty": lambda: timed("20 patterns at once", "builder", twenty(), batches(vehicles, 45)),
        "one-key-builder": lambda: one_key(long, by_builder, "builder"),
        "one-key-sql": lambda: one_key(long, by_sql, "SQL"),
    }
    for size in sizes:
        found[f"keys-{size}-builder"] = lambda size=size: many_keys(size, by_builder, "builder", 40)  # type: ignore[misc]
        found[f"keys-{size}-sql"] = lambda size=size: many_keys(size, by_sql, "SQL", 40)  # type: ignore[misc]
        found[f"partial-{size}"] = lambda size=size: partial_matches(size, 20)  # type: ignore[misc]
    return found


def twenty() -> list[Stream]:
    """Twenty emergency stops of different hardness."""
    patterns = [emergency_stop(gentle / 10) for gentle in range(20)]
    return [
        source().key_by("vehicle_id").match(each).select(at=last("stopped.event_time"), speed=first("cruising.speed"))
        for each in patterns
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", action="append", default=[], help="cases to run; all if none is named")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    logging.disable(logging.WARNING)
    every = cases(quick=chosen.quick)
    if chosen.case:
        sys.stdout.write(json.dumps(asdict(every[chosen.case]())) + "\n")
        return
    unknown = set(chosen.only) - set(every)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(every)}")
    figures = []
    for name in chosen.only or every:
        words = [sys.executable, "-m", "benchmarks.patterns", "--case", name, *(["--quick"] if chosen.quick else [])]
        done = subprocess.run(words, check=True, capture_output=True, text=True)
        figures.append(Figure(**json.loads(done.stdout.splitlines()[-1])))
        console.print(f"{name}: {figures[-1].microseconds_per_event} us an event")
    show(figures, written=not (chosen.quick or chosen.only))


def show(figures: list[Figure], *, written: bool) -> None:
    table = Table(
        "what", "case", "us/event", "events/s of a core", "matches", "state MB", "with data MB", "resident MB"
    )
    for each in figures:
        cells = (each.microseconds_per_event, f"{each.events_per_second:,}", f"{each.matches:,}", each.state_mb)
        table.add_row(each.group, each.case, *map(str, (*cells, each.with_data_mb, each.resident_mb)))
    console.print(table)
    if not written:
        console.print("Not written: --quick and --only are for looking, not for figures.")
        return
    record = {
        "conditions": {
            "date": datetime.now(UTC).date().isoformat(),
            "cores": f"1 of {psutil.cpu_count()}",
            "load_average_1min": round(os.getloadavg()[0], 1),
            "memory_gb": round(psutil.virtual_memory().total / 2**30),
            "python": platform.python_version(),
            "polars": version("polars"),
            "key_groups": GROUPS,
            "seconds": "of processor time, in process, state in memory, one thread",
        },
        "figures": [asdict(figure) for figure in figures],
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(record, indent=2) + "\n")
    console.print(f"written to {RESULTS.relative_to(Path.cwd())}")


if __name__ == "__main__":
    main()
