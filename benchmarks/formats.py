"""How fast records of every format become columns on one core, beside the obvious Python way, and a job on JSON.

    python -m benchmarks.formats            # prints tables, writes benchmarks/results/formats.json

The same event of 20 columns and a time, in five formats. Both sides start from the same values in memory and end with
the same Polars frame; that they are the same is checked before anything is timed. The obvious way is what one writes
without Headrace: `json.loads`, `fastavro.schemaless_reader`, protobuf's classes or the `csv` module for each message,
and a frame of the rows. The contestants take turns, each figure is the median, and seconds are of processor time.
Memory is the growth of the peak of the process above what it had before, in a process of its own for each contestant.

End to end: a tumbling count per key from a topic of JSON, Kafka to Kafka and exactly once on Spark, beside Spark
reading the topic alone. The broker runs on the same cores; events per second are by the clock.
"""

from __future__ import annotations

import os

# Before Polars is imported: one core means one thread.
os.environ.setdefault("POLARS_MAX_THREADS", "1")

import argparse
import csv as plain_csv
import json as plain_json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import polars as pl
import pyarrow as pa
from benchmarks.codec import by_classes, conditions, positions, race
from rich.console import Console
from rich.table import Table

from headrace.events import Codec, Layout, TypeRegistry
from headrace.formats import Records, avro, csv, json, protobuf
from headrace.formats.avro_schema import AvroField, AvroType, schema_json, schema_of
from headrace.formats.envelope import EnvelopeFormat
from headrace_transit.schemas import VehiclePosition

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.formats.format import Format

RESULTS = Path(__file__).parent / "results" / "formats.json"
BATCH = 10_000
TOPIC = "benchmark.scans"
INSTANT = pl.Datetime("us", "UTC")
COLUMNS = [
    "vehicle_id", "latitude", "longitude", "speed", "heading", "acceleration", "delay", "odometer", "doors_open",
    "line", "route", "direction", "mode", "operator", "vehicle_number", "operating_day", "trip_start", "next_stop",
    "occupancy", "location_source",
]  # fmt: skip


@dataclass(frozen=True)
class Contestant:
    """One format: its values, and two ways to read them.

    Args:
        format: Headrace's.
        values: The values of records.
        obvious: Reads them message by message to the frame that the format gives, `ingestion_time` left out.
        obvious_name: What that way is.
    """

    format: Format
    values: pa.BinaryArray
    obvious: Callable[[pa.BinaryArray], pl.DataFrame]
    obvious_name: str

    def read(self, values: pa.BinaryArray) -> pl.DataFrame:
        """Decode the values as a runner does."""
        arrived = pa.array([0] * len(values), pa.timestamp("us", "UTC")) if self.format.reads else None
        decoded = self.format.decode(Records(values, timestamps=arrived))
        if decoded.rejections:
            raise SystemExit(f"{self.format.name}: {next(iter(decoded.rejections.values()))}")
        return decoded.frame


def events(rows: int) -> pl.DataFrame:
    """Vehicle positions of 20 columns; their time is in whole milliseconds."""
    return positions(rows).select(pl.col("event_time").dt.truncate("1ms"), *COLUMNS)


def contestants(rows: int, names: tuple[str, ...] = ()) -> dict[str, Contestant]:
    """Make the values of each format."""
    frame = events(rows)
    made: dict[str, Callable[[pl.DataFrame], Contestant]] = {
        "envelope": _envelope, "protobuf": _protobuf, "json": _json, "avro": _avro, "csv": _csv,
    }  # fmt: skip
    return {name: make(frame) for name, make in made.items() if not names or name in names}


def _envelope(frame: pl.DataFrame) -> Contestant:
    layout = Layout(VehiclePosition.DESCRIPTOR).schema
    types = TypeRegistry(VehiclePosition)
    columns = tuple((name, layout[name]) for name in COLUMNS)
    kind = EnvelopeFormat(VehiclePosition.DESCRIPTOR.full_name, columns, types)
    schema = pl.Schema(frame.schema)
    return Contestant(
        kind,
        Codec(types).encode(frame, VehiclePosition),
        lambda values: by_classes(values, COLUMNS, schema).drop("ingestion_time"),
        "protobuf classes",
    )


def _protobuf(frame: pl.DataFrame) -> Contestant:
    rows = frame.select(COLUMNS).iter_rows(named=True)
    values = pa.array([VehiclePosition(**row).SerializeToString() for row in rows], pa.binary())
    fields = [VehiclePosition.DESCRIPTOR.fields_by_name[name] for name in COLUMNS]
    presence = [(field.name, field.has_presence) for field in fields]

    def read(values: pa.BinaryArray) -> pl.DataFrame:
        data: dict[str, list[Any]] = {name: [] for name in COLUMNS}
        appends = [(name, optional, data[name].append) for name, optional in presence]
        for value in values.to_pylist():
            message = VehiclePosition.FromString(value)
            for name, optional, append in appends:
                append(getattr(message, name) if not optional or message.HasField(name) else None)
        found = pl.DataFrame(data, schema_overrides={name: frame.schema[name] for name in COLUMNS})
        return found.select(pl.lit(0).cast(INSTANT).alias("event_time"), *COLUMNS)

    return Contestant(protobuf(VehiclePosition, columns=COLUMNS), values, read, "protobuf classes")


def _json(frame: pl.DataFrame) -> Contestant:
    kind = json(schema={name: frame.schema[name] for name in COLUMNS}, time="at")
    schema = {"at": pl.String, **{name: frame.schema[name] for name in COLUMNS}}

    def read(values: pa.BinaryArray) -> pl.DataFrame:
        found = pl.from_dicts([plain_json.loads(value) for value in values.to_pylist()], schema=schema)
        at = pl.col("at").str.to_datetime("%Y-%m-%dT%H:%M:%S%.fZ", time_unit="us", time_zone="UTC")
        return found.select(at.alias("event_time"), *COLUMNS)

    return Contestant(kind, kind.encode(frame.rename({"event_time": "at"})), read, "json.loads")


def _avro(frame: pl.DataFrame) -> Contestant:
    nullable = schema_of({name: frame.schema[name] for name in COLUMNS}, "Position")
    at = AvroField("at", AvroType("long", "timestamp-millis"))
    schema = schema_json(AvroType("record", name="Position", fields=(at, *nullable.fields)))
    kind = avro(schema, time="at")
    parsed = fastavro.parse_schema(schema)
    types = {"at": INSTANT, **{name: frame.schema[name] for name in COLUMNS}}

    def read(values: pa.BinaryArray) -> pl.DataFrame:
        rows = [fastavro.schemaless_reader(BytesIO(value), parsed, None) for value in values.to_pylist()]
        return pl.from_dicts(rows, schema=types).select(pl.col("at").alias("event_time"), *COLUMNS)

    return Contestant(kind, kind.encode(frame.rename({"event_time": "at"})), read, "fastavro")


def _csv(frame: pl.DataFrame) -> Contestant:
    types = {"at": INSTANT, **{name: frame.schema[name] for name in COLUMNS}}
    kind = csv(types, time="at")

    def read(values: pa.BinaryArray) -> pl.DataFrame:
        rows = [next(plain_csv.reader([value.decode()])) for value in values.to_pylist()]
        texts = pl.DataFrame(rows, schema=dict.fromkeys(types, pl.String), orient="row").select(
            pl.when(pl.all() != "").then(pl.all())
        )
        at = pl.col("at").str.to_datetime("%Y-%m-%dT%H:%M:%S%.fZ", time_unit="us", time_zone="UTC")
        numbers = [
            pl.col(name) == "true" if kind == pl.Boolean else pl.col(name).cast(kind)
            for name, kind in types.items()
            if name != "at"
        ]
        return texts.select(at.alias("event_time"), *numbers)

    return Contestant(kind, kind.encode(frame.rename({"event_time": "at"})), read, "csv.reader")


def check(name: str, contestant: Contestant) -> None:
    """Both ways must give the same frame."""
    values = contestant.values.slice(0, 1_000)
    ours, theirs = contestant.read(values).drop("ingestion_time"), contestant.obvious(values)
    ours = ours.select(theirs.columns)
    if not ours.equals(theirs):
        raise SystemExit(f"{name}: the two ways do not give the same frame: nothing to compare\n{ours}\n{theirs}")


def decoding(*, turns: int, rows: int) -> dict[str, Any]:
    """Events per second of processor time, both ways, and the memory that they take."""
    found: dict[str, Any] = {}
    for name, contestant in contestants(rows).items():
        check(name, contestant)
        parts = [contestant.values.slice(first, BATCH) for first in range(0, rows, BATCH)]
        rates = race(
            {
                "headrace": (rows, lambda one=contestant, parts=parts: [one.read(part) for part in parts]),
                "obvious": (BATCH, lambda one=contestant, parts=parts: one.obvious(parts[0])),
            },
            turns=turns,
        )
        found[name] = {
            "bytes_per_event": round(sum(map(len, contestant.values.to_pylist())) / rows, 1),
            "events_per_second": round(rates["headrace"]),
            "obvious_way": contestant.obvious_name,
            "obvious_events_per_second": round(rates["obvious"]),
            "ratio": round(rates["headrace"] / rates["obvious"], 2),
            "peak_memory_mb": _memory(name, "headrace"),
            "obvious_peak_memory_mb": _memory(name, "obvious"),
        }
    return found


def _memory(name: str, way: str) -> float:
    """Measure the memory of one batch in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.formats", "--memory", f"{name}:{way}"]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _show_memory(what: str) -> None:
    name, _, way = what.partition(":")
    contestant = contestants(BATCH, (name,))[name]
    read = contestant.read if way == "headrace" else contestant.obvious
    read(contestant.values.slice(0, 100))  # what is imported and made once is not counted
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    frame = read(contestant.values)
    print(round((_status("VmHWM") - before) / 1024, 1))
    del frame


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def end_to_end(*, rows: int, turns: int, batch: int | None) -> dict[str, Any]:
    """Count per key from a topic of JSON, beside reading it alone."""
    from benchmarks.engine import Ground, read_only, streaming

    from headrace import Job, Stream, bounded, tumbling
    from headrace.dev import SPARK_CONNECTOR, EmbeddedBroker, JarCache, ServerSettings
    from headrace.kafka import Producer, Topics, TopicSpec
    from headrace.kafka.topics import commit_spec, dead_letter_spec, late_spec
    from headrace.windows import count

    contestant = contestants(BATCH, ("json",))["json"]
    job = Job(
        "positions-per-vehicle",
        Stream.topic(TOPIC, format=contestant.format)
        .watermark(bounded("5s"), idle_after="30s")
        .key_by("vehicle_id")
        .window(tumbling("5s"))
        .aggregate(n=count()),
        description="positions of each vehicle",
        format=json(),
    )
    figures: dict[str, list[float]] = {"read": [], "count": []}
    with (
        tempfile.TemporaryDirectory() as directory,
        EmbeddedBroker(ServerSettings(data_dir=Path(directory) / "kafka", memory="1g")) as broker,
    ):
        results = TopicSpec(name=job.result_topic, partitions=2)
        specs = [
            TopicSpec(name=TOPIC, partitions=4),
            results,
            late_spec(results.name),
            dead_letter_spec(),
            commit_spec(),
        ]
        Topics(broker.connection).ensure(specs)
        frame = events(rows).rename({"event_time": "at"})
        with Producer(broker.connection) as producer:
            for first in range(0, rows, BATCH):
                part = frame.slice(first, BATCH)
                for number, value in enumerate(contestant.format.encode(part).to_pylist()):
                    producer.send(TOPIC, value, partition=number % 4)
        jars = list(JarCache().get(SPARK_CONNECTOR))
        ground = Ground(broker, jars, Path(directory), rows, batch)
        for _ in range(turns):
            figures["read"].append(read_only(ground, TOPIC))
            figures["count"].append(streaming(ground, job))
    read, counted = (statistics.median(figures[name]) for name in ("read", "count"))
    return {
        "events": rows,
        "read_events_per_second": round(read),
        "count_events_per_second": round(counted),
        "ratio": round(counted / read, 3),
    }


def show(found: dict[str, Any], console: Console) -> None:
    table = Table(title="An event of 20 columns to a frame, on one core", title_justify="left")
    for name in ("format", "bytes", "events/s", "obvious way", "events/s", "ratio", "peak MB", "obvious peak MB"):
        table.add_column(name, justify="left" if name in ("format", "obvious way") else "right")
    for name, row in found["decoding"].items():
        table.add_row(
            name,
            f"{row['bytes_per_event']:,.0f}",
            f"{row['events_per_second']:,}",
            row["obvious_way"],
            f"{row['obvious_events_per_second']:,}",
            f"{row['ratio']:.1f} x",
            f"{row['peak_memory_mb']:,.0f}",
            f"{row['obvious_peak_memory_mb']:,.0f}",
        )
    console.print(table)
    if (whole := found.get("end_to_end")) is not None:
        console.print(
            f"Kafka to Kafka, tumbling count per key from JSON: {whole['count_events_per_second']:,} events/s, "
            f"{whole['ratio']:.2f} of reading alone ({whole['read_events_per_second']:,})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the formats.")
    parser.add_argument("--turns", type=int, default=9, help="how often each contestant decodes")
    parser.add_argument("--rows", type=int, default=100_000, help="events to decode")
    parser.add_argument("--topic-rows", type=int, default=4_000_000, help="events in the topic, end to end")
    parser.add_argument("--batch", type=int, help="the most events of a batch, end to end")
    parser.add_argument("--repeat", type=int, default=3, help="turns end to end")
    parser.add_argument("--decoding-only", action="store_true", help="without Kafka and Spark")
    parser.add_argument("--quick", action="store_true", help="little data: to see that it works; writes nothing")
    parser.add_argument("--memory", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.memory:
        _show_memory(chosen.memory)
        return
    if chosen.quick:
        chosen.turns, chosen.rows, chosen.topic_rows, chosen.batch, chosen.repeat = 2, 2 * BATCH, 200_000, 25_000, 1
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    if cores:
        os.sched_setaffinity(0, {max(cores)})
    pa.set_cpu_count(1)
    console = Console()
    started = time.time()
    found: dict[str, Any] = {"conditions": conditions(chosen.turns, chosen.rows // BATCH)}
    found["decoding"] = decoding(turns=chosen.turns, rows=chosen.rows)
    if not chosen.decoding_only:
        if cores:
            os.sched_setaffinity(0, cores)
        found["end_to_end"] = end_to_end(rows=chosen.topic_rows, turns=chosen.repeat, batch=chosen.batch)
    found["conditions"]["load_average_after"] = [round(load, 2) for load in os.getloadavg()]
    found["conditions"]["minutes"] = round((time.time() - started) / 60, 1)
    show(found, console)
    if not (chosen.quick or chosen.decoding_only):
        RESULTS.parent.mkdir(parents=True, exist_ok=True)
        RESULTS.write_text(plain_json.dumps(found, indent=2) + "\n")
        console.print(f"written to {RESULTS}")


if __name__ == "__main__":
    main()
