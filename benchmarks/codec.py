"""How fast the codec is on one core, against protobuf's ordinary Python classes, in the same run.

    python -m benchmarks.codec            # prints a table, writes benchmarks/results/codec.json

Both sides start from the same Kafka values and end with the same Polars frame of typed columns; that they are the same
is checked before anything is timed. The contestants take turns, so that a busy machine slows them alike, and each
figure is the median of its turns. Seconds are of processor time, so that other programs on the machine count as little
as possible. `parse only` parses envelope and details with the Python classes and reads no field: it does less than the
codec does, and is there as the floor below which no reader with those classes can come.
"""

from __future__ import annotations

import os

# Before Polars is imported: one core means one thread.
os.environ["POLARS_MAX_THREADS"] = "1"

import argparse
import json
import platform
import statistics
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from headrace.events import Codec, Event, Result
from headrace_transit.schemas import VehiclePosition

if TYPE_CHECKING:
    from collections.abc import Callable

RESULTS = Path(__file__).parent / "results" / "codec.json"
BATCH = 10_000  # what Spark hands to Python at a time
FEW = ["vehicle_id", "latitude", "longitude", "speed"]
NAME = "headrace.v1.VehiclePosition"


def positions(rows: int) -> pl.DataFrame:
    """Vehicle positions with the fields that HFP fills and values of HFP's precision; one in fifty without GPS."""
    k = pl.int_range(rows)
    lost = k % 50 == 49
    start = 1_600_657_200_963_000
    return pl.select(
        event_time=(start + k * 1_000).cast(pl.Datetime("us", "UTC")),
        ingestion_time=(start + k * 1_000 + 63_000 + k % 997).cast(pl.Datetime("us", "UTC")),
        vehicle_id=pl.format("{}/{}", 12 + k % 40, 100 + k % 1_300),
        latitude=pl.when(~lost).then((60.15 + (k * 7_919 % 200_000) * 1e-6).round(6)),
        longitude=pl.when(~lost).then((24.65 + (k * 104_729 % 500_000) * 1e-6).round(6)),
        speed=(k % 2_100 / 100).round(2),
        heading=(k * 31 % 360).cast(pl.Int32),
        acceleration=(k % 300 / 100 - 1.5).round(2),
        delay=(k % 600 - 120).cast(pl.Int32),
        odometer=(k % 25_000).cast(pl.Float64),
        doors_open=k % 9 == 0,
        line=(k % 600).cast(pl.String),
        route=(1_000 + k % 6_000).cast(pl.String),
        direction=(1 + k % 2).cast(pl.Int32),
        mode=pl.when(k % 4 == 0).then(pl.lit("tram")).otherwise(pl.lit("bus")),
        operator=(12 + k % 40).cast(pl.Int32),
        vehicle_number=(100 + k % 1_300).cast(pl.Int32),
        operating_day=pl.lit("2020-09-21"),
        trip_start=pl.format("0{}:{}", 5 + k % 5, 10 + k % 50),
        next_stop=(1_111_000 + k % 5_000).cast(pl.String),
        stop=pl.when(k % 3 == 0).then((1_111_000 + k % 5_000).cast(pl.String)),
        occupancy=pl.lit(0, pl.Int32),
        location_source=pl.lit("GPS"),
        headsign=pl.lit("Arabia"),
        line_number=(k % 1_000).cast(pl.Int32),
        journey_number=(k % 900).cast(pl.Int32),
        trip_operator=(12 + k % 40).cast(pl.Int32),
    )


def by_classes(values: pa.Array, columns: list[str], schema: pl.Schema) -> pl.DataFrame:
    """What one writes without the codec: parse envelope and details, read the fields into lists, make a frame."""
    fields = [VehiclePosition.DESCRIPTOR.fields_by_name[name] for name in columns]
    optional = [(field.name, field.has_presence) for field in fields]
    data: dict[str, list[Any]] = {name: [] for name in ("event_time", "ingestion_time", *columns)}
    appends = [(name, presence, data[name].append) for name, presence in optional]
    event_time, ingestion_time = data["event_time"].append, data["ingestion_time"].append
    for value in values.to_pylist():
        event = Event.FromString(value)
        event_time(event.event_timestamp.ToMicroseconds())
        ingestion_time(event.ingestion_timestamp.ToMicroseconds())
        payload = VehiclePosition.FromString(event.details.value)
        for name, presence, append in appends:
            append(getattr(payload, name) if not presence or payload.HasField(name) else None)
    return pl.DataFrame(data, schema_overrides={name: schema[name] for name in columns}).with_columns(
        pl.col("event_time", "ingestion_time").cast(pl.Datetime("us", "UTC"))
    )


def parse_only(values: pa.Array) -> None:
    for value in values.to_pylist():
        VehiclePosition.FromString(Event.FromString(value).details.value)


def write_by_classes(frame: pl.DataFrame) -> list[bytes]:
    """What one writes without the codec: a message per row, packed into an envelope."""
    names = [name for name in frame.columns if name not in ("event_time", "ingestion_time")]
    result = []
    for row in frame.with_columns(pl.col("event_time", "ingestion_time").cast(pl.Int64)).iter_rows(named=True):
        payload = VehiclePosition(**{name: row[name] for name in names})
        event = Event()
        event.event_timestamp.FromMicroseconds(row["event_time"])
        event.ingestion_timestamp.FromMicroseconds(row["ingestion_time"])
        event.details.type_url = f"type.googleapis.com/{NAME}"
        event.details.value = payload.SerializeToString()
        result.append(event.SerializeToString())
    return result


def race(contestants: dict[str, tuple[int, Callable[[], object]]], *, turns: int) -> dict[str, float]:
    """Rows per second of processor time of each contestant: the median of its turns."""
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(turns + 1):
        for name, (_, work) in contestants.items():
            begin = time.process_time()
            work()
            if turn:  # the first turn warms up
                times[name].append(time.process_time() - begin)
    return {name: contestants[name][0] / statistics.median(times[name]) for name in contestants}


def conditions(turns: int, batches: int) -> dict[str, Any]:
    cpu = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores_of_the_machine": os.cpu_count(),
        "cores_used": 1,
        "seconds_are": "of processor time, all threads of the process",
        "cpu": cpu[0] if cpu else platform.processor(),
        "load_average_before": [round(load, 2) for load in os.getloadavg()],
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("protobuf", "ptars", "pyarrow", "polars")},
        "events": batches * BATCH,
        "batch": BATCH,
        "turns": turns,
    }


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def measure(*, turns: int, batches: int) -> dict[str, Any]:
    found: dict[str, Any] = {"conditions": conditions(turns, batches)}
    codec = Codec(engine="arrow")
    frames = [positions(batches * BATCH)[k * BATCH : (k + 1) * BATCH] for k in range(batches)]
    values = [codec.encode(frame, VehiclePosition) for frame in frames]
    schema = codec.decode(values[0]).frame.schema
    every = [name for name in schema if name not in ("event_time", "ingestion_time")]
    rows = batches * BATCH

    for columns in (every, FEW):
        ours = codec.decode(values[0], types=[VehiclePosition], columns=columns).frame
        if not ours.equals(by_classes(values[0], columns, schema)):
            raise SystemExit("the two ways do not give the same frame: nothing to compare")
    bad = [pa.array([b"rubbish", *batch.to_pylist()[1:]], pa.binary()) for batch in values]
    text = codec.encode(frames[0], VehiclePosition, encoding="json")

    def decode(columns: list[str], what: list[pa.Array] = values) -> Callable[[], object]:
        return lambda: [codec.decode(batch, types=[VehiclePosition], columns=columns) for batch in what]

    found["decode"] = race(
        {
            "codec, all columns": (rows, decode(every)),
            "codec, 4 columns": (rows, decode(FEW)),
            "codec, all columns, 1 bad in 10,000": (rows, decode(every, bad)),
            "Python classes, all columns": (BATCH, lambda: by_classes(values[0], every, schema)),
            "Python classes, 4 columns": (BATCH, lambda: by_classes(values[0], FEW, schema)),
            "Python classes, parse only": (BATCH, lambda: parse_only(values[0])),
            "codec, JSON": (1_000, lambda: codec.decode(text.slice(0, 1_000), types=[VehiclePosition])),
        },
        turns=turns,
    )
    answers = pl.DataFrame({"event_time": frames[0]["event_time"], "window_end": frames[0]["event_time"]}).with_columns(
        job=pl.lit("vehicle-distribution"),
        key=pl.lit("617700169958293503"),
        window_start=pl.col("window_end"),
        pane_index=pl.lit(0),
        cell=pl.int_range(BATCH).cast(pl.UInt64),
        vehicles=pl.int_range(BATCH),
        share=pl.lit(0.5),
    )
    answer_values = codec.encode(answers, Result)
    found["encode"] = race(
        {
            "codec": (rows, lambda: [codec.encode(frame, VehiclePosition) for frame in frames]),
            "Python classes": (BATCH, lambda: write_by_classes(frames[0])),
            "codec, JSON": (1_000, lambda: codec.encode(frames[0][:1_000], VehiclePosition, encoding="json")),
        },
        turns=turns,
    )
    found["results"] = race(
        {
            "codec, encode": (BATCH, lambda: codec.encode(answers, Result)),
            "codec, decode": (BATCH, lambda: codec.decode(answer_values, types=[Result])),
        },
        turns=turns,
    )
    found["ratio"] = {
        "decode, all columns": found["decode"]["codec, all columns"] / found["decode"]["Python classes, all columns"],
        "decode, 4 columns": found["decode"]["codec, 4 columns"] / found["decode"]["Python classes, 4 columns"],
        "decode, all columns, against parse only": found["decode"]["codec, all columns"]
        / found["decode"]["Python classes, parse only"],
        "encode": found["encode"]["codec"] / found["encode"]["Python classes"],
    }
    found["bytes_per_event"] = {
        "vehicle position, binary": sum(batch.nbytes - 4 * (BATCH + 1) for batch in values) / rows,
        "vehicle position, JSON": sum(map(len, text.to_pylist())) / BATCH,
        "result of three columns, binary": sum(map(len, answer_values.to_pylist())) / BATCH,
    }
    found["conditions"]["load_average_after"] = [round(load, 2) for load in os.getloadavg()]
    return found


def show(found: dict[str, Any], console: Console) -> None:
    table = Table(title="Codec on one core", title_justify="left")
    table.add_column("what")
    table.add_column("events/s", justify="right")
    for part in ("decode", "encode", "results"):
        for name, rate in found[part].items():
            table.add_row(f"{part}: {name}", f"{rate:,.0f}")
        table.add_section()
    for name, ratio in found["ratio"].items():
        table.add_row(f"codec / Python classes: {name}", f"{ratio:.1f} x")
    table.add_section()
    for name, size in found["bytes_per_event"].items():
        table.add_row(f"bytes: {name}", f"{size:,.0f}")
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the codec on one core.")
    parser.add_argument("--turns", type=int, default=9, help="how often each contestant runs")
    parser.add_argument("--batches", type=int, default=10, help=f"how many batches of {BATCH:,} events")
    parser.add_argument("--no-write", action="store_true", help="do not write the results file")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    pa.set_cpu_count(1)
    console = Console()
    with console.status(f"{options.turns} turns of {options.batches * BATCH:,} events"):
        found = measure(turns=options.turns, batches=options.batches)
    show(found, console)
    if not options.no_write:
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        RESULTS.write_text(json.dumps(found, indent=2) + "\n")
        console.print(f"written to {RESULTS}")


if __name__ == "__main__":
    main()
