"""All jobs of the application in one query: the same answers as in process, second outputs and counters included."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import polars as pl
import pytest
from tests.spark.relocated import relocated

from headrace.inprocess import Runner
from headrace.time.instants import instant
from headrace_transit.jobs import all_jobs
from headrace_transit.schemas import StopEvent, VehiclePosition
from headrace_transit.simulator import Fleet

if TYPE_CHECKING:
    from tests.spark.conftest import Bench

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]

START = datetime(2026, 3, 2, 7, 30, tzinfo=UTC)
SECONDS = 60
PLACE = "all-jobs"
POSITIONS, STOP_EVENTS = f"input.vehicle-position.{PLACE}", f"input.stop-event.{PLACE}"


def values(frame: pl.DataFrame, columns: list[str]) -> list[tuple[object, ...]]:
    lists = [pl.col(name).cast(pl.String) if frame.schema[name].is_nested() else pl.col(name) for name in columns]
    # Some seconds before the end both have come to the same answers, wherever exactly they stopped.
    return sorted(
        frame.filter(pl.col("event_time") < START + timedelta(seconds=SECONDS - 5)).select(lists).rows(), key=str
    )


def test_all_jobs_in_one_query_say_what_they_say_in_process(bench: Bench) -> None:
    jobs = [relocated(job, PLACE) for job in all_jobs().values()]
    for job in jobs:
        bench.prepare(job)
    fleet = Fleet(vehicles=300, seed=3, start=START, emergency_rate=1.0, gps_loss=0.01)
    feeds = {
        POSITIONS: (VehiclePosition, fleet.positions(0, seconds=SECONDS)),
        STOP_EVENTS: (StopEvent, fleet.stop_events(0, seconds=SECONDS)),
    }
    # The simulated vehicles of a line are not so close: beside one in ten another arrives, half a minute later.
    kind, arrivals = feeds[STOP_EVENTS]
    close = arrivals.gather_every(10).with_columns(
        pl.lit("99/1").alias("vehicle_id"),
        pl.lit("03:00").alias("trip_start"),
        pl.col("event_time") + pl.duration(seconds=30),
    )
    feeds[STOP_EVENTS] = (
        kind,
        pl.concat([arrivals, close.filter(pl.col("event_time") < START + timedelta(seconds=SECONDS))]).sort(
            "event_time"
        ),
    )
    parts: dict[str, list[pl.DataFrame]] = {}
    half = START + timedelta(seconds=SECONDS // 2)
    for topic, (_, rows) in feeds.items():
        whole = rows.with_columns(ingestion_time=pl.col("event_time"))
        parts[topic] = [whole.filter(pl.col("event_time") < half), whole.filter(pl.col("event_time") >= half)]

    counters: dict[str, dict[str, int]] = {}
    for number, until in enumerate((half - timedelta(seconds=3), START + timedelta(seconds=SECONDS - 4))):
        for topic, (kind, _) in feeds.items():
            bench.send_rows(topic, parts[topic][number], kind, "vehicle_id")
        for batch in bench.run_to(*jobs, watermark=instant(until)):
            for job_name, steps in batch.counters.items():
                told = counters.setdefault(job_name, {})
                for name, count in steps.items():
                    told[name] = told.get(name, 0) + count

    for job in jobs:
        runner = Runner(job)
        topic = job.sources[0]
        steps = [runner.step(part) for part in parts[topic]]
        assert len(job.pipeline.stages) == 1  # a second stage would cost every job of the query
        expected = pl.concat([step.results for step in steps])
        assert expected.height, job.name
        kept = [name for name in expected.columns if not name.startswith("pane")]
        assert values(bench.read(job.result_topic), kept) == values(expected, kept), job.name
        for output in job.outputs:
            beside = pl.concat([step.outputs[output] for step in steps])
            found = bench.read(job.output_topic(output))
            assert values(found, kept := [name for name in beside.columns if not name.startswith("pane")]) == values(
                beside, kept
            )
            assert found.get_column("job").unique().to_list() == [f"{job.name}.{output}"]
        together: dict[str, int] = {}
        for step in steps:
            together = {name: together.get(name, 0) + step.counts.get(name, 0) for name in together | step.counts}
        assert counters.get(job.name, {}) == together
    assert counters["final-stop-distribution"]["final_stop.found"] > 1000
