from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.transit.reference import Answer, Watched, answer_of, distribution, rows_of

from headrace.inprocess import Runner
from headrace_transit.jobs import all_jobs
from headrace_transit.simulator import Arrivals, Disorder, Fleet
from headrace_transit.topics import topics

if TYPE_CHECKING:
    from headrace.stream import Job


@pytest.fixture(scope="module")
def job() -> Job:
    return all_jobs()["vehicle-distribution"]


def positions(fleet: Fleet, seconds: int) -> pl.DataFrame:
    return fleet.positions(0, seconds=seconds).with_columns(ingestion_time=pl.col("event_time"))


def test_every_job_describes_itself_and_has_its_topics() -> None:
    jobs = all_jobs().values()
    further = [topic for job in jobs for topic in job.result_topics[1:]]
    declared = {spec.name for spec in topics((job.result_topic for job in jobs), further=further)}
    assert "analytics.final-stop-distribution.pairs" in declared
    for name, job in all_jobs().items():
        assert job.name == name
        assert job.description
        assert job.windows or name.startswith("emergency-stop") or name == "bunching"
        assert {*job.sources, *job.result_topics, job.late_topic} <= declared


def test_the_plan_of_vehicle_distribution_reads_as_it_was_written(job: Job) -> None:
    assert job.sources == ("input.vehicle-position",)
    assert job.result_topic == "analytics.vehicle-distribution"
    assert "30s" in job.windows
    assert "5s" in job.windows
    plan = job.explain()
    for word in ("key_by vehicle_id", "key_by cell", "latest(cell)", "count()"):
        assert word in plan


def test_counts_equal_the_computation_by_hand_window_by_window(job: Job) -> None:
    fleet = Fleet(vehicles=120, seed=11, gps_loss=0.05)
    rows = positions(fleet, 90)
    assert rows["latitude"].null_count() > 0
    runner = Runner(job.stream, key_groups=3)
    results = [runner.step(part).results for part in rows.iter_slices(1500)]
    found = answer_of(pl.concat([*results, runner.finish().results]))
    expected = distribution(rows_of(rows))
    assert len(expected) == 90 // 5 + 5
    assert found.keys() == expected.keys()
    for window, cells in expected.items():
        assert found[window] == cells
    # In every window that lies inside the run, each vehicle that knows where it is counts exactly once.
    full = [cells for window, cells in expected.items() if sum(cells.values()) == 120]
    assert len(full) > 5


@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 1000),
    vehicles=st.integers(1, 30),
    sizes=st.lists(st.integers(1, 12), min_size=2, max_size=8),
    late_share=st.sampled_from([0.0, 0.05, 0.5]),
    groups=st.integers(1, 5),
)
def test_counts_equal_those_by_hand_with_disorder_duplicates_and_late_events(
    seed: int, vehicles: int, sizes: list[int], late_share: float, groups: int
) -> None:
    job = all_jobs()["vehicle-distribution"]
    disorder = Disorder(late_share=late_share, late_mean=20, duplicate_share=0.05)
    arrivals = Arrivals(Fleet(vehicles=vehicles, seed=seed, gps_loss=0.02), disorder, stop_events=False)
    runner, watched = Runner(job.stream, key_groups=groups), Watched()
    late = 0
    for seconds in sizes:
        batch = arrivals.take(seconds).positions.rename({"arrival_time": "ingestion_time"})
        step = runner.step(batch)
        assert answer_of(step.results) == watched.batch(rows_of(batch))
        late += 0 if step.late is None else step.late.height
    assert answer_of(runner.finish().results) == watched.finish()
    assert late == len(watched.late)


def test_the_computation_by_hand_knows_its_windows() -> None:
    place = (60.17, 24.94)
    rows = [("a", 31_000_000, *place), ("a", 34_999_999, None, None), ("b", 61_000_000, *place)]
    answer: Answer = distribution(rows)
    assert sorted(start for start, _ in answer) == [second * 1_000_000 for second in range(5, 65, 5)]
    assert {count for cells in answer.values() for count in cells.values()} == {1}
    watched = Watched()
    assert watched.batch([("a", 100_000_000, *place)]) == {}
    assert list(watched.batch([("a", 111_000_000, *place)])) == [
        (s * 1_000_000, (s + 30) * 1_000_000) for s in (75, 80)
    ]
    watched.batch([("b", 79_000_000, *place)])
    assert watched.late == [("b", 79_000_000, *place)]


@pytest.mark.parametrize("name", list(all_jobs()))
def test_a_job_can_be_sent_to_workers(name: str) -> None:
    """Spark pickles the pipeline of a job; an expression with a function of ours in it may refuse that."""
    from pyspark import cloudpickle

    pipeline = all_jobs()[name].pipeline
    again = cloudpickle.loads(cloudpickle.dumps(pipeline))
    assert again.schema == pipeline.schema
