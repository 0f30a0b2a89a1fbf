"""One job's failure is its own: the others go on, and after a mend it takes in what it has missed, once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import polars as pl
import pytest

from headrace.errors import FailedJobError
from headrace.events import VehiclePosition
from headrace.inprocess import Runner
from headrace.spark.isolation import StoppedJobs
from headrace.spark.progress import JobChange
from headrace.spark.supervisor import Restarts
from headrace.stream import Job, Stream
from headrace.time import bounded
from headrace.time.instants import instant
from headrace.transit.simulator import Fleet
from headrace.windows import count, latest, sliding, tumbling

if TYPE_CHECKING:
    from tests.spark.conftest import Bench

    from headrace.spark.progress import RunEvent

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


def test_the_only_job_fails_as_a_whole(bench: Bench) -> None:
    job = Job("fragile-alone", lines(fragile).stream)
    bench.prepare(job)
    with pytest.raises(FailedJobError, match=r"job 'fragile-alone' failed: step 'map_batches lines' failed.*twice"):
        bench.run_to(job, watermark=at(57), restarts=QUICK)
