"""Streams from and to Spark's own DataFrames: the same answer as in process, in a batch and in a streaming query."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import polars as pl
import pytest

from headrace.errors import ConfigError, PlanError
from headrace.inprocess import run
from headrace.spark.session.session import spark_settings, start_session
from headrace.stream import Stream
from headrace.time import bounded
from headrace.windows import count, sliding, tumbling
from headrace.windows import max as highest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

START = datetime(2026, 3, 2, 7, 30, tzinfo=UTC)
ROWS = pl.DataFrame(
    {
        "sensor": [f"s{number % 7}" for number in range(600)],
        "at": [START + timedelta(seconds=number // 10) for number in range(600)],
        "value": [float(number * 37 % 101) for number in range(600)],
    }
).with_columns(pl.col("at").dt.cast_time_unit("us"))


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory, jars: list[Path]) -> Iterator[SparkSession]:
    local = tmp_path_factory.mktemp("local")
    settings = spark_settings(jars=jars, state_partitions=2, driver_memory="1g", local_directory=local)
    session = start_session("bridge", master="local[2]", settings=settings)
    yield session
    session.stop()


def busy(source: Stream) -> Stream:
    """Sensors per level of their highest value: two stages in a chain."""
    return (
        source.watermark(bounded("2s"), idle_after="1h")
        .key_by("sensor")
        .window(sliding("10s", every="5s"))
        .aggregate(value=highest("value"))
        .with_columns(level=(pl.col("value") // 25).cast(pl.Int64))
        .key_by("level")
        .same_window()
        .aggregate(sensors=count())
    )


def _expected() -> list[tuple[object, ...]]:
    schema = {"sensor": pl.String, "value": pl.Float64}
    rows = ROWS.rename({"at": "event_time"})
    return _rows(run(busy(Stream.rows("frame", schema)), rows).results)


def _rows(results: pl.DataFrame) -> list[tuple[object, ...]]:
    instants = [pl.col(name).dt.timestamp("us") for name in ("window_start", "window_end")]
    return sorted(results.select("level", *instants, "sensors").rows())


def test_a_batch_frame_gives_what_the_in_process_runner_gives(spark: SparkSession) -> None:
    frame = spark.createDataFrame(ROWS.to_pandas()).repartition(3)
    results = busy(Stream.from_spark(frame, time="at")).to_spark(spark)
    assert not results.isStreaming
    assert _rows(pl.from_arrow(results.toArrow())) == _expected()  # type: ignore[arg-type]


def test_a_streaming_frame_stays_one_and_gives_the_same(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    ending = ROWS.tail(1).with_columns(pl.lit("end").alias("sensor"), pl.col("at") + timedelta(minutes=5))
    for number, part in enumerate([*ROWS.iter_slices(200), ending]):
        part.write_parquet(tmp_path / "in" / f"{number}.parquet")
    source = spark.readStream.schema("sensor string, at timestamp, value double").parquet(str(tmp_path / "in"))
    results = busy(Stream.from_spark(source, time="at")).to_spark(spark)
    assert results.isStreaming
    found: list[pl.DataFrame] = []
    query = (
        results.writeStream.outputMode("update")
        .foreachBatch(lambda batch, _: found.append(pl.from_arrow(batch.toArrow())))  # type: ignore[arg-type]
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        wanted = _expected()
        for _ in range(600):
            if query.exception() is not None or sum(part.height for part in found) >= len(wanted):
                break
            query.processAllAvailable() if query.lastProgress is None else query.awaitTermination(0.2)
    finally:
        query.stop()
    assert _rows(pl.concat([part for part in found if part.height])) == wanted


def test_what_cannot_work_is_refused(spark: SparkSession) -> None:
    frame = spark.createDataFrame(ROWS.head(3).to_pandas())
    with pytest.raises(PlanError, match="there is no column 'when'"):
        Stream.from_spark(frame, time="when")
    stream = Stream.rows("readings", {"sensor": pl.String}).watermark(bounded("1s"))
    windowed = stream.key_by("sensor").window(tumbling("5s")).aggregate(n=count())
    with pytest.raises(PlanError, match="rows readings is not a DataFrame"):
        windowed.to_spark(spark)


def test_another_state_store_than_rocksdb_is_refused_before_a_query_starts(spark: SparkSession, tmp_path: Path) -> None:
    ROWS.write_parquet(tmp_path / "0.parquet")
    source = spark.readStream.schema("sensor string, at timestamp, value double").parquet(str(tmp_path))
    stream = busy(Stream.from_spark(source, time="at"))
    name = "spark.sql.streaming.stateStore.providerClass"
    needed = spark.conf.get(name)
    spark.conf.set(name, "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider")
    try:
        with pytest.raises(
            ConfigError, match="HDFSBackedStateStoreProvider, and stateful streams need RocksDB"
        ) as caught:
            stream.to_spark(spark)
        assert f'spark.conf.set("{name}", "{needed}")' in caught.value.hint
        frame = spark.createDataFrame(ROWS.to_pandas())
        assert busy(Stream.from_spark(frame, time="at")).to_spark(spark).count() == len(_expected())  # has no state
    finally:
        spark.conf.set(name, needed)
    assert stream.to_spark(spark).isStreaming
