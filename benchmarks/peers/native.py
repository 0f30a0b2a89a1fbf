"""Spark's own operators: what it can do of the jobs without Headrace.

Decoding is by Headrace's codec in an Arrow stage (Spark's protobuf reader cannot be had for this version), with the H3
cell computed there, too; windows, watermark, state and sink are Spark's. It has no operator for patterns, and its
sliding windows copy every row into every window.
"""

from __future__ import annotations

import tempfile
import threading
import time
from typing import TYPE_CHECKING, Any

import polars as pl

from headrace.events import Codec
from headrace.geo import h3_cell
from headrace.kafka import Topics, TopicSpec
from headrace_transit.schemas import VehiclePosition
from headrace_transit.topics import VEHICLE_POSITIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from benchmarks.engine import Ground

_SCHEMA = "vehicle_id string, cell bigint, delay int, event_time timestamp"


def _decoded(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    codec = Codec()
    columns = ["vehicle_id", "latitude", "longitude", "delay"]
    for batch in batches:
        rows = codec.decode(batch, types=[VehiclePosition], columns=columns).frame
        cells = rows.with_columns(cell=h3_cell("latitude", "longitude", resolution=9).cast(pl.Int64))
        chosen = cells.filter(pl.col("cell").is_not_null()).select("vehicle_id", "cell", "delay", "event_time")
        yield from (
            chosen.with_columns(pl.col("delay").cast(pl.Int32))
            .to_arrow(compat_level=pl.CompatLevel.oldest())
            .to_batches()
        )


def vehicle_distribution(rows: Any) -> Any:
    """Newest cell per vehicle, then vehicles per cell, in the same windows."""
    from pyspark.sql import functions as f

    newest = rows.groupBy("vehicle_id", f.window("event_time", "30 seconds", "5 seconds")).agg(
        f.max_by("cell", "event_time").alias("cell")
    )
    counted = newest.groupBy("cell", f.window("window", "5 seconds")).agg(f.count("*").alias("vehicles"))
    return counted.selectExpr("cast(cell as string) AS key", "to_json(struct(*)) AS value")


def delay_quantiles(rows: Any) -> Any:
    """Quantiles of the delay per cell."""
    from pyspark.sql import functions as f

    told = rows.groupBy("cell", f.window("event_time", "5 minutes", "5 seconds")).agg(
        f.percentile_approx("delay", [0.5, 0.9, 0.99]).alias("delay"), f.count("*").alias("n")
    )
    return told.selectExpr("cast(cell as string) AS key", "to_json(struct(*)) AS value")


def throughput(
    ground: Ground, session: Any, build: Callable[[Any], Any], *, batch: int, patience: float
) -> float | None:
    """Events a second over the batches after the second; None if fewer than three batches are done in time."""
    Topics(ground.broker.connection).ensure([TopicSpec(name="spark.native", partitions=4)])
    spark = session(ground)
    try:
        rows = (
            spark.readStream.format("kafka")
            .options(**ground.broker.connection.spark_options())
            .option("subscribe", VEHICLE_POSITIONS)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", batch)
            .load()
            .select("value")
            .mapInArrow(_decoded, _SCHEMA)
            .withWatermark("event_time", "1 second")
        )
        with tempfile.TemporaryDirectory(dir=ground.directory) as checkpoint:
            query = (
                build(rows)
                .writeStream.format("kafka")
                .options(**ground.broker.connection.spark_options())
                .option("topic", "spark.native")
                .outputMode("append")
                .option("checkpointLocation", checkpoint)
                .trigger(availableNow=True)
                .start()
            )
            ended = threading.Event()
            deadline = time.monotonic() + patience
            while query.isActive and time.monotonic() < deadline:
                ended.wait(0.2)
            problem = query.exception()
            done = [progress for progress in query.recentProgress if progress.numInputRows][2:]
            query.stop()
        if problem is not None:
            raise SystemExit(f"Spark's own operators failed: {str(problem)[:2000]}")
        if not done:
            return None
        seconds = sum(progress.durationMs["triggerExecution"] for progress in done) / 1000
        return float(sum(progress.numInputRows for progress in done) / seconds)
    finally:
        spark.stop()
