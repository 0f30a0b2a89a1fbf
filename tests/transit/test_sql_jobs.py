"""The jobs of the application in SQL give what those in Python give, result by result."""

# ruff: noqa: S608

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from headrace.config import Settings
from headrace.inprocess import Runner
from headrace.registry import Registry
from headrace.streaming_sql import Session
from headrace.streaming_sql.ddl import parse_script
from headrace.streaming_sql.script import Fragment
from headrace.streaming_sql.user_functions import function_at
from headrace_transit.jobs import all_jobs
from headrace_transit.simulator import Fleet
from headrace_transit.topics import VEHICLE_POSITIONS

if TYPE_CHECKING:
    from headrace.stream import Stream

ROOT = Path(__file__).resolve().parents[2]
WINDOW = ["window_start", "window_end"]
STOPPED = ["vehicle_id", "line", "stopped", "latitude", "longitude", "speed", "duration", "deceleration", "cell"]


@pytest.fixture(scope="module")
def session() -> Session:
    made = Session(Registry(Settings()).catalog(load=partial(function_at, directories=(ROOT,))), name="transit")
    for statement in parse_script((ROOT / "examples" / "transit.sql").read_text()):
        made.execute(statement)
    return made


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return Fleet(vehicles=80, seed=3, emergency_rate=1, gps_loss=0.02)


def results(stream: Stream, fleet: Fleet, output: str = "") -> pl.DataFrame:
    runner = Runner(stream)
    (source,) = {entry.source.name for entry in runner.pipeline.entries}
    rows = fleet.positions(0, seconds=120) if source == VEHICLE_POSITIONS else fleet.stop_events(0, seconds=600)
    rows = rows.with_columns(ingestion_time=pl.col("event_time"))
    batches = [runner.step({source: part}) for part in rows.iter_slices(4_000)]
    batches.append(runner.finish())
    return pl.concat([batch.outputs[output] if output else batch.results for batch in batches])


@pytest.mark.parametrize(
    ("view", "job", "columns"),
    [
        ("vehicle_distribution", "vehicle-distribution", ["cell", *WINDOW, "vehicles"]),
        ("delay_distribution", "delay-distribution", ["cell", *WINDOW, "arrivals", "p50", "p90", "p99"]),
        ("flow_direction", "flow-direction", ["cell", "to", *WINDOW, "vehicles", "departures", "share"]),
        ("emergency_stops", "emergency-stop-sql", STOPPED),
        ("emergency_stops", "emergency-stop-pattern", STOPPED),
        ("final_stop_distribution", "final-stop-distribution", ["final_cell", *WINDOW, "vehicles"]),
        ("final_stop_pairs", "final-stop-distribution.pairs", ["cell", "final_cell", *WINDOW, "vehicles"]),
    ],
)
def test_sql_gives_what_python_gives(session: Session, fleet: Fleet, view: str, job: str, columns: list[str]) -> None:
    planned = session.catalog.plan(Fragment.whole(f"SELECT * FROM {view}"))
    found = planned.final([results(planned.stream, fleet)]).rename({"neighbour": "to"}, strict=False)
    name, _, output = job.partition(".")
    expected = results(all_jobs()[name], fleet, output)
    assert expected.height > 0
    assert sorted(found.select(columns).rows()) == sorted(expected.select(columns).rows())


def test_each_is_a_job(session: Session) -> None:
    assert {job.result_topic for job in session.jobs.values()} == {
        "sql.vehicle-distribution", "sql.delay-distribution", "sql.flow-direction", "sql.emergency-stops",
        "sql.final-stop-distribution", "sql.final-stop-pairs",
    }  # fmt: skip
    assert {job.delivery for job in session.jobs.values()} == {"exactly_once"}
