"""A checkpoint outlives changes of the jobs: their order, their number, their stages, and the state partitions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import polars as pl
import pytest

from headrace.inprocess import Runner
from headrace.sinks import memory
from headrace.spark.run.progress import StateChange
from headrace.stream import Job, Stream
from headrace.stream.job import Output
from headrace.time import bounded
from headrace.time.instants import instant
from headrace.windows import count, tumbling
from headrace.windows import sum as total
from headrace_transit.schemas import VehiclePosition
from headrace_transit.simulator import Fleet

if TYPE_CHECKING:
    from tests.spark.conftest import Bench

    from headrace.spark.run.progress import RunEvent

#: Five starts of the query and a batch.
pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(900)]

TOPIC = "input.by-name"
START = datetime(2026, 3, 2, 7, 30, tzinfo=UTC)
POSITIONS = Stream.topic(TOPIC, VehiclePosition).watermark(bounded("1s"), idle_after="1min")
PER_LINE = POSITIONS.key_by("line").window(tumbling("10s")).aggregate(reports=count())

KEPT = memory()
LINES = Job("by-name-lines", PER_LINE.named("per-line"), sinks=[KEPT])
MODES = Job("by-name-modes", POSITIONS.key_by("mode").window(tumbling("7s")).aggregate(reports=count()))
#: Two levels, a union of them, and a further output: Spark's plan gets another stage.
DEEPER = PER_LINE.select("line", "reports").key_by("line").window(tumbling("20s")).aggregate(reports=total("reports"))
DEEP = Job("by-name-deep", PER_LINE.union(DEEPER), outputs={"long": Output(DEEPER)})


def part(first: int, last: int) -> pl.DataFrame:
    fleet = Fleet(vehicles=60, seed=7, start=START, gps_loss=0.0)
    seconds = [fleet.positions(second) for second in range(last)][first:]
    return pl.concat(seconds).with_columns(pl.col("event_time").alias("ingestion_time"))


def at(second: int) -> int:
    return instant(START + timedelta(seconds=second))


def answers(frame: pl.DataFrame) -> list[tuple[object, ...]]:
    names = [name for name in ("line", "mode") if name in frame.columns]
    return sorted(frame.select(*names, "window_start", "window_end", "reports").rows(), key=str)


def test_jobs_come_and_go_and_state_moves_with_nothing_lost_or_twice(bench: Bench) -> None:
    for job in (LINES, MODES, DEEP):
        bench.prepare(job)
    parts = [part(first, first + 15) for first in (0, 15, 30, 45, 60)]
    told: list[str] = []

    def tell(event: RunEvent) -> None:
        if isinstance(event, StateChange):
            told.append(event.detail)

    bench.send_rows(TOPIC, parts[0], VehiclePosition, "vehicle_id")
    bench.run_to(LINES, watermark=at(13))
    bench.send_rows(TOPIC, parts[1], VehiclePosition, "vehicle_id")
    bench.run_to(MODES, LINES, watermark=at(28), tell=tell, take_over=True)
    assert any("with by-name-modes, which is new" in each for each in told)
    # It has taken part since it came, so it is taken out as of now.
    bench.send_rows(TOPIC, parts[2], VehiclePosition, "vehicle_id")
    bench.run_to(LINES, watermark=at(43), tell=tell)
    assert any("without by-name-modes: its state is kept" in each for each in told)
    bench.send_rows(TOPIC, parts[3], VehiclePosition, "vehicle_id")
    bench.run_to(DEEP, LINES, MODES, watermark=at(58), tell=tell, take_over=True)
    assert any("with by-name-deep, which is new" in each for each in told)
    assert any("moving the saved state" in each for each in told)
    bench.send_rows(TOPIC, parts[4], VehiclePosition, "vehicle_id")
    bench.run_to(MODES, DEEP, LINES, watermark=at(73), state_partitions=3)

    for job in (LINES, MODES, DEEP):
        runner = Runner(job)
        batches = [runner.step(rows) for rows in parts]
        expected = pl.concat([batch.results for batch in batches])
        assert expected.height > 3
        assert answers(bench.read(job.result_topic)) == answers(expected), job.name
        for name in job.outputs:
            long = pl.concat([batch.outputs[name] for batch in batches])
            assert answers(bench.read(job.output_topic(name))) == answers(long), name

    # The sink of a job that was there all the time has the same results, under tokens whose numbers grow.
    assert answers(KEPT.table(LINES.name)) == answers(bench.read(LINES.result_topic))
    numbers = [token.batch for token in KEPT.tokens(LINES.name)]
    assert numbers == sorted(set(numbers))

    batch = bench.batch(DEEP)[DEEP.name]
    together = Runner(DEEP).step(pl.concat(parts))
    assert answers(batch.results) == answers(together.results)
    assert answers(batch.outputs["long"]) == answers(together.outputs["long"])
