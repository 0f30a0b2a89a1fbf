"""One job's failure is its own: the others go on, and after a mend it takes in what it has missed, once."""

from __future__ import annotations

import json
import threading
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from headrace.errors import BrokerError, FailedJobError
from headrace.inprocess import Runner
from headrace.kafka import Topics, TopicSpec, commit_spec
from headrace.spark.checkpoint.continuity import BEGINNING
from headrace.spark.checkpoint.identity import Identity
from headrace.spark.output.sink import Outgoing
from headrace.spark.output.task_writer import Order, bring_out
from headrace.spark.run import faults
from headrace.spark.run.catchup import CatchUp
from headrace.spark.run.isolation import StoppedJobs
from headrace.spark.run.progress import BatchDone, JobChange, StateChange
from headrace.spark.run.runner import RunOptions, _Run, run_jobs
from headrace.spark.run.supervisor import Restarts
from headrace.spark.stages.slots import Slots
from headrace.stream import Job, Stream
from headrace.time import bounded
from headrace.time.instants import instant
from headrace.windows import count, latest, sliding, tumbling
from headrace_transit.schemas import VehiclePosition
from headrace_transit.simulator import Fleet

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.spark.conftest import Bench

    from headrace.dev import EmbeddedBroker
    from headrace.spark.run.progress import RunEvent

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]

TOPIC = "input.isolation"
START = datetime(2026, 3, 2, 7, 30, tzinfo=UTC)
POSITIONS = Stream.topic(TOPIC, VehiclePosition).watermark(bounded("1s"), idle_after="1min")
QUICK = Restarts(pause=(0.1, 0.1))


def fragile(frame: pl.DataFrame) -> pl.DataFrame:
    """Stands for a user's function with a mistake in it: it cannot take one of the lines."""
    if "poison" in frame.get_column("line").to_list():
        raise ValueError("cannot handle this line")
    return frame


def half_mended(frame: pl.DataFrame) -> pl.DataFrame:
    """Can take the line where it stood first, and not the next time."""
    if frame.filter(pl.col("line") == "poison", pl.col("event_time") >= START + timedelta(seconds=30)).height:
        raise ValueError("cannot handle this line")
    return frame


def mended(frame: pl.DataFrame) -> pl.DataFrame:
    return frame


def lines(function: object) -> Job:
    """Two keys and one window, so that state and what is merged at the driver are both at stake."""
    stream = (
        POSITIONS.map_batches(function, name="lines")  # type: ignore[arg-type]
        .key_by("vehicle_id")
        .window(sliding("20s", every="5s"))
        .aggregate(line=latest("line"))
        .key_by("line")
        .same_window()
        .aggregate(vehicles=count())
    )
    return Job("fragile-lines", stream)


MODES = Job("modes", POSITIONS.key_by("mode").window(tumbling("5s")).aggregate(reports=count()))


def reports(first: int, last: int) -> pl.DataFrame:
    fleet = Fleet(vehicles=60, seed=3, start=START, gps_loss=0.0)
    rows = fleet.positions(first, seconds=last - first)
    return rows.with_columns(ingestion_time=pl.col("event_time"))


def poisoned(rows: pl.DataFrame) -> pl.DataFrame:
    first = pl.int_range(pl.len()) == 0
    return rows.with_columns(line=pl.when(first).then(pl.lit("poison")).otherwise("line"))


def at(second: int) -> int:
    return instant(START + timedelta(seconds=second))


def answers(frame: pl.DataFrame, *columns: str) -> list[tuple[object, ...]]:
    return sorted(frame.select("window_end", *columns).rows(), key=str)


def test_the_others_go_on_and_the_job_comes_back_with_nothing_lost_or_twice(bench: Bench) -> None:
    bench.prepare(MODES)
    bench.prepare(lines(mended))
    parts = [reports(0, 20), poisoned(reports(20, 30)), reports(30, 45), reports(45, 60)]
    stopped = StoppedJobs(bench.checkpoint)

    bench.send_rows(TOPIC, parts[0], VehiclePosition, "vehicle_id")
    bench.run_to(MODES, lines(fragile), watermark=at(17))
    before = bench.read("analytics.fragile-lines").height
    assert before > 0

    bench.send_rows(TOPIC, parts[1], VehiclePosition, "vehicle_id")
    events: list[RunEvent] = []
    done = bench.run(
        MODES,
        lines(fragile),
        until=lambda batches: batches[-1].watermarks.get("modes", 0) >= at(27),
        tell=events.append,
        restarts=QUICK,
    )
    changes = [event for event in events if isinstance(event, JobChange)]
    assert [(change.job, change.state) for change in changes] == [("fragile-lines", "stopped")]
    assert "cannot handle this line" in changes[0].detail
    assert "mend it and start again" in changes[0].detail
    assert "fragile-lines" not in done[-1].watermarks
    assert list(stopped.read()) == ["fragile-lines"]
    assert bench.read("analytics.fragile-lines").height == before

    # It still fails after a start without a change, and the others go on all the same.
    bench.send_rows(TOPIC, parts[2], VehiclePosition, "vehicle_id")
    events.clear()
    bench.run(
        MODES,
        lines(fragile),
        until=lambda batches: batches[-1].watermarks.get("modes", 0) >= at(42),
        tell=events.append,
        restarts=QUICK,
    )
    states = [event.state for event in events if isinstance(event, JobChange)]
    assert states[0] == "catching_up"
    assert states[-1] == "stopped"
    assert bench.read("analytics.fragile-lines").height == before

    # Mended, it takes in what it has missed and takes part again, over another restart, too.
    events.clear()
    bench.run_to(MODES, lines(mended), watermark=at(42), tell=events.append)
    assert [event.state for event in events if isinstance(event, JobChange)][-1] == "returned"
    bench.send_rows(TOPIC, parts[3], VehiclePosition, "vehicle_id")
    events.clear()
    bench.run_to(MODES, lines(mended), watermark=at(57), tell=events.append)
    assert not [event for event in events if isinstance(event, JobChange)]
    assert stopped.read() == {}
    assert not stopped.directory("fragile-lines").exists()

    for job, columns in ((MODES, ("mode", "reports")), (lines(mended), ("line", "vehicles"))):
        runner = Runner(job)
        expected = pl.concat([runner.step(part).results for part in parts])
        found = bench.read(job.result_topic)
        assert expected.height > 10
        assert answers(found, *columns) == answers(expected, *columns), job.name
        assert found.get_column("idempotency_key").is_unique().all()


def stop_alone(bench: Bench, parts: list[pl.DataFrame], **changes: Any) -> None:
    """Let the job fail alone in the second part, while the other one goes on."""
    bench.send_rows(TOPIC, parts[0], VehiclePosition, "vehicle_id")
    bench.run_to(MODES, lines(fragile), watermark=at(17), **changes)
    bench.send_rows(TOPIC, parts[1], VehiclePosition, "vehicle_id")
    reached = at(27)
    bench.run(
        MODES,
        lines(fragile),
        until=lambda batches: batches[-1].watermarks.get("modes", 0) >= reached,
        restarts=QUICK,
        **changes,
    )
    assert list(StoppedJobs(bench.checkpoint).read()) == ["fragile-lines"]
    # A batch that was planned when the run was stopped would have none of the events that come next.
    spark = bench.checkpoint / "spark"
    for path in (spark / "offsets").iterdir():
        if path.name.isdigit() and not (spark / "commits" / path.name).exists():
            path.unlink()
            path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


def assert_once(bench: Bench, parts: list[pl.DataFrame]) -> None:
    for job, columns in ((MODES, ("mode", "reports")), (lines(mended), ("line", "vehicles"))):
        runner = Runner(job)
        expected = pl.concat([runner.step(part).results for part in parts])
        found = bench.read(job.result_topic)
        assert expected.height > 10
        assert answers(found, *columns) == answers(expected, *columns), job.name


def crash_after_commit(monkeypatch: pytest.MonkeyPatch, when: Callable[[], bool]) -> None:
    """End the query between a transaction and Spark's own log of it."""

    def reach(point: str) -> None:
        if point == "after-commit" and when():
            raise BrokerError("crashed after the commit")

    monkeypatch.setattr(faults, "reach", reach)


@pytest.fixture
def own_topics(bench: Bench) -> None:
    """Topics that no other test has written to."""
    names = [
        TOPIC,
        "analytics.modes",
        "analytics.modes.late",
        "analytics.fragile-lines",
        "analytics.fragile-lines.late",
    ]
    topics = Topics(bench.broker.connection)
    there = [name for name in names if not topics.missing([name])]
    if there:
        topics.delete(there)
    bench.prepare(MODES)
    bench.prepare(lines(mended))


@pytest.mark.usefixtures("own_topics")
def test_a_job_that_came_back_and_is_killed_in_its_first_batch_writes_it_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [reports(0, 20), poisoned(reports(20, 30)), reports(30, 45)]
    stop_alone(bench, parts)
    bench.send_rows(TOPIC, parts[2], VehiclePosition, "vehicle_id")
    events: list[RunEvent] = []
    with monkeypatch.context() as patched:
        crash_after_commit(
            patched, lambda: any(isinstance(event, JobChange) and event.state == "returned" for event in events)
        )
        with pytest.raises(BrokerError, match="crashed after the commit"):
            bench.run_to(MODES, lines(mended), watermark=at(42), tell=events.append, restarts=Restarts(most=0))
    bench.run_to(MODES, lines(mended), watermark=at(42))
    assert_once(bench, parts)


@pytest.mark.long
@pytest.mark.usefixtures("own_topics")
def test_a_job_that_fails_again_in_its_first_batch_keeps_what_it_took_in(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = [reports(0, 20), poisoned(reports(20, 30)), poisoned(reports(30, 45)), reports(45, 60)]
    stop_alone(bench, parts)
    bench.send_rows(TOPIC, parts[2], VehiclePosition, "vehicle_id")
    catch_up, tries = CatchUp.run, []

    def flaky(self: CatchUp, *words: Any) -> Any:
        tries.append(self.job.name)
        if len(tries) == 1:
            raise BrokerError("Kafka was away for a moment")
        return catch_up(self, *words)

    # It takes in what it has missed, at the second try, and then cannot take the events that come next.
    monkeypatch.setattr(CatchUp, "run", flaky)
    events: list[RunEvent] = []
    bench.run(
        MODES,
        lines(half_mended),
        until=lambda batches: batches[-1].watermarks.get("modes", 0) >= at(42),
        tell=events.append,
        restarts=QUICK,
    )
    states = [event.state for event in events if isinstance(event, JobChange)]
    assert "returned" in states
    assert states[-1] == "stopped"
    assert len(tries) == 2
    bench.send_rows(TOPIC, parts[3], VehiclePosition, "vehicle_id")
    bench.run_to(MODES, lines(mended), watermark=at(57))
    assert_once(bench, parts)


@pytest.mark.long
@pytest.mark.usefixtures("own_topics")
def test_catching_up_ends_when_the_run_is_stopped(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = [reports(0, 20), poisoned(reports(20, 30))]
    stop_alone(bench, parts)
    monkeypatch.setattr("headrace.spark.run.catchup.STEP_EVENTS", 50)
    stop = threading.Event()
    events: list[RunEvent] = []

    def report(event: RunEvent) -> None:
        events.append(event)
        if isinstance(event, JobChange) and event.detail.endswith("events left"):
            stop.set()

    options = RunOptions(connection=bench.broker.connection, checkpoint=bench.checkpoint, jars=bench.jars)
    run_jobs([MODES, lines(mended)], options, report, stop)
    states = [event.state for event in events if isinstance(event, JobChange)]
    assert states == ["catching_up", "catching_up"], "no step is begun after the stop"
    assert [event.state for event in events if isinstance(event, StateChange)][-1] == "stopped"
    assert not any(isinstance(event, BatchDone) for event in events)
    monkeypatch.undo()
    bench.run_to(MODES, lines(mended), watermark=at(27))
    assert_once(bench, parts)


def test_a_job_is_not_left_out_of_a_batch_that_a_partition_has_begun_since_the_start(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    name = f"begun-{uuid.uuid4().hex[:8]}"
    ours = Job(name, POSITIONS.key_by("line").window(tumbling("5s")).aggregate(n=count()))
    other = Job(f"{name}-other", ours.stream)
    topics = [TopicSpec(name=name) for name in (*ours.result_topics, ours.late_topic, *other.result_topics)]
    Topics(broker.connection).ensure([*topics, commit_spec()])
    (tmp_path / BEGINNING).write_text(json.dumps({TOPIC: {"0": 0}}))
    options = RunOptions(connection=broker.connection, checkpoint=tmp_path, jars=[], apart_rows=0)
    run = _Run(
        [ours, other],
        options,
        replace(Identity.fresh([ours, other], key_groups=2, state_partitions=2), token="c1"),
        lambda _: None,
        threading.Event(),
    )
    deliveries = run._deliveries
    deliveries.open()
    order = Order(broker.connection, (), deliveries.modes, 0, Slots(4, ()), deliveries.query, "c1", deliveries.run)
    records = [Outgoing(ours.result_topic, [b"k"], [b"v"])]
    assert bring_out(order, "exactly_once", 0, 0, [name], records)
    deliveries.close()
    run._failed[name] = run.last
    assert not run._leave_out(FailedJobError(name, "cannot handle this line")), "its results are out, in part"
    assert StoppedJobs(tmp_path).read() == {}
    assert run._leave_out(FailedJobError(other.name, "cannot handle this line")) is False, "only the second time"
    assert run._leave_out(FailedJobError(other.name, "cannot handle this line")), "nothing of it is out"


def test_the_only_job_fails_as_a_whole(bench: Bench) -> None:
    job = Job("fragile-alone", lines(fragile).stream)
    bench.prepare(job)
    with pytest.raises(FailedJobError, match=r"job 'fragile-alone' failed: step 'map_batches lines' failed.*twice"):
        bench.run_to(job, watermark=at(57), restarts=QUICK)
