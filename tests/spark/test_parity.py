"""In process = on Spark: the same plans, the same events, several jobs in one query, with a restart in the middle."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import polars as pl
import pytest

from headrace import sql
from headrace.cep import Pattern
from headrace.cep.measures import first, last
from headrace.inprocess import Runner
from headrace.stream import Job, Stream
from headrace.time import bounded
from headrace.time.instants import instant
from headrace.windows import count, latest, session, sliding, tumbling
from headrace.windows import max as highest
from headrace_transit.schemas import VehiclePosition
from headrace_transit.simulator import Fleet

if TYPE_CHECKING:
    from tests.spark.conftest import Bench

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]

TOPIC = "input.parity"
START = datetime(2026, 3, 2, 7, 30, tzinfo=UTC)
SECONDS = 60
SETTLED = START + timedelta(seconds=SECONDS - 4)
POSITIONS = Stream.topic(TOPIC, VehiclePosition).watermark(bounded("2s"), idle_after="1min")

STOPS = (
    Pattern.begin("cruising", pl.col("speed") >= 10)
    .next("braking", pl.col("acceleration") < 0)
    .one_or_more()
    .next("stopped", pl.col("speed") < 1)
    .within("10s")
    .skip("past_last")
)

STOPS_BY_SQL = """
    SELECT vehicle_id, at, from_speed FROM positions MATCH_RECOGNIZE (
      PARTITION BY vehicle_id ORDER BY event_time
      MEASURES stopped.event_time AS at, cruising.speed AS from_speed
      ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
      PATTERN (cruising braking+? stopped) WITHIN INTERVAL '10' SECOND
      DEFINE cruising AS speed >= 10, braking AS acceleration < 0, stopped AS speed < 1)
"""

TIME_OUTS_BY_SQL = (
    STOPS_BY_SQL.replace("SELECT vehicle_id, at, from_speed", "SELECT *")
    .replace(
        "MEASURES stopped.event_time AS at", "MEASURES LAST(event_time) AS at, MATCH_NUMBER() IS NULL AS unnumbered"
    )
    .replace("ONE ROW PER MATCH", "ONE ROW PER MATCH WITH TIMED OUT MATCHES")
)

JOBS = [
    Job(
        "lines-revised",
        POSITIONS.key_by("vehicle_id")
        .window(tumbling("10s"), allowed_lateness="1min")
        .aggregate(line=latest("line"))
        .key_by("line")
        .same_window()
        .aggregate(vehicles=count()),
    ),
    Job(
        "standing",
        POSITIONS.filter(pl.col("speed") < 1).key_by("vehicle_id").window(session("3s")).aggregate(reports=count()),
    ),
    Job(
        "fastest",
        POSITIONS.key_by("mode").window(sliding("20s", every="5s")).aggregate(speed=highest("speed"), reports=count()),
    ),
    Job(
        "emergency-stops",
        POSITIONS.key_by("vehicle_id")
        .match(STOPS)
        .select(at=last("stopped.event_time"), from_speed=first("cruising.speed")),
    ),
    Job("emergency-stops-by-sql", sql(STOPS_BY_SQL, {"positions": POSITIONS})),
    Job(
        "stops-or-time-outs",
        POSITIONS.key_by("vehicle_id")
        .match(STOPS)
        .with_timed_out()
        .select(from_speed=first("cruising.speed"), at=last("event_time")),
    ),
    Job("stops-or-time-outs-by-sql", sql(TIME_OUTS_BY_SQL, {"positions": POSITIONS})),
    Job(
        "once-a-minute",
        POSITIONS.deduplicate("vehicle_id", within="1min")
        .key_by("mode")
        .window(tumbling("10s"))
        .aggregate(reports=count()),
    ),
]


def _last(results: pl.DataFrame) -> list[tuple[object, ...]]:
    """What results say in the end: the last firing of each key and window.

    Only up to a time that event time has passed everywhere: on Kafka it follows the slowest of four partitions, in
    process there is one.
    """
    results = results.filter(pl.col("window_end" if "window_end" in results.columns else "at") <= SETTLED)
    if "window_end" not in results.columns:
        return sorted(results.select(sorted(results.columns)).rows())
    identity = [
        name for name in results.columns if name in {"line", "vehicle_id", "mode", "window_start", "window_end"}
    ]
    values = [name for name in results.columns if name in {"vehicles", "reports", "speed"}]
    latest_first = results.sort("pane_index", descending=True)
    return sorted(latest_first.unique(identity, keep="first", maintain_order=True).select(*identity, *values).rows())


def test_every_kind_of_step_gives_the_same_answer_in_process_in_a_stream_and_in_a_batch(bench: Bench) -> None:
    for job in JOBS:
        bench.prepare(job)
    fleet = Fleet(vehicles=240, seed=7, start=START, emergency_rate=1.0, gps_loss=0.0)
    rows = pl.concat([fleet.positions(second) for second in range(SECONDS)])
    rows = rows.with_columns(pl.col("event_time").alias("ingestion_time"))
    half = START + timedelta(seconds=SECONDS // 2)
    # One vehicle of the first half reports half a minute late: within the allowed lateness of the first job.
    held = (pl.col("vehicle_id") == rows.item(0, "vehicle_id")) & (pl.col("event_time") < half)
    before = rows.filter((pl.col("event_time") < half) & ~held)
    after = pl.concat([rows.filter(pl.col("event_time") >= half), rows.filter(held)])

    bench.send_rows(TOPIC, before, VehiclePosition, "vehicle_id")
    bench.run_to(*JOBS, watermark=instant(half) - 4_000_000)
    bench.send_rows(TOPIC, after, VehiclePosition, "vehicle_id")
    bench.run_to(*JOBS, watermark=instant(SETTLED))

    for job in JOBS:
        runner = Runner(job.stream)
        parts = [runner.step(before).results, runner.step(after).results]
        expected = pl.concat(parts)
        found = bench.read(job.result_topic).select(expected.columns)
        if job.name == "lines-revised":
            assert expected.get_column("pane_index").max() == 1, "nothing was revised"
        assert len(_last(expected)) > 2, f"{job.name} gives too little to compare"
        assert _last(found) == _last(expected), job.name

    # A batch sees everything at once, so nothing is late: the in-process runner is given it the same way.
    answers = bench.batch(*JOBS)
    for job in JOBS:
        together = Runner(job.stream).step(pl.concat([before, after]))
        assert together.late is None
        assert _last(answers[job.name].results) == _last(together.results), f"{job.name} in a batch"
