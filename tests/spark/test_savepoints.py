"""Savepoints on Spark: taken while a query runs and when it stops, restored, spread over other key groups, forked."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from headrace.errors import StateError
from headrace.inprocess import Runner
from headrace.savepoints import Manifest, read_savepoint, verify
from headrace.spark.checkpoint.identity import is_in_use
from headrace.spark.checkpoint.requests import Request, ask
from headrace.spark.checkpoint.savepoints import Fork, restorer
from headrace.stream import Job, Stream
from headrace.stream.job import Output
from headrace.time import bounded
from headrace.time.instants import instant
from headrace.windows import count, session, tumbling
from headrace.windows import sum as total
from headrace_transit.schemas import VehiclePosition
from headrace_transit.simulator import Fleet

if TYPE_CHECKING:
    from pathlib import Path

    from tests.spark.conftest import Bench

    from headrace.spark.run.progress import BatchDone

#: Five starts of the query and a few batches.
pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(900)]

TOPIC = "input.savepoints"
START = datetime(2026, 3, 2, 7, 30, tzinfo=UTC)
POSITIONS = Stream.topic(TOPIC, VehiclePosition).watermark(bounded("1s"), idle_after="1min")
PER_LINE = POSITIONS.key_by("line").window(tumbling("10s")).aggregate(reports=count()).named("per-line")
DEEPER = PER_LINE.select("line", "reports").key_by("line").window(tumbling("20s")).aggregate(reports=total("reports"))
VISITS = POSITIONS.key_by("vehicle_id").window(session("25s")).aggregate(reports=count())
JOB = Job("savepoints", PER_LINE, outputs={"deeper": Output(DEEPER.named("deeper")), "visits": Output(VISITS)})


def part(first: int, last: int) -> pl.DataFrame:
    fleet = Fleet(vehicles=60, seed=7, start=START, gps_loss=0.0)
    seconds = [fleet.positions(second) for second in range(last)][first:]
    rows = pl.concat(seconds).with_columns(pl.col("event_time").alias("ingestion_time"))
    # Some fall silent between the savepoint and its restore, so that their sessions end in the last part.
    silent = pl.col("vehicle_id").str.ends_with("0") | pl.col("vehicle_id").str.ends_with("5")
    return rows.filter(~(silent & (pl.col("event_time") >= START + timedelta(seconds=20))))


def at(second: int) -> int:
    return instant(START + timedelta(seconds=second))


def answers(frame: pl.DataFrame) -> list[tuple[object, ...]]:
    names = [name for name in ("line", "vehicle_id") if name in frame.columns]
    return sorted(frame.select(*names, "window_start", "window_end", "reports").rows(), key=str)


def asked_while_running(bench: Bench, request: Request, watermark: int, **changes: Any) -> dict[str, Any]:
    """Run the job, and ask for something as soon as its watermark has come so far; end with the answer."""
    answered: list[dict[str, Any]] = []

    def wanted() -> None:
        checkpoint = bench.checkpoint
        answered.append(ask(checkpoint, request, alive=lambda: is_in_use(checkpoint), patience=120))

    asking = threading.Thread(target=wanted)

    def until(batches: list[BatchDone]) -> bool:
        last = batches[-1].watermark if batches else None
        if last is not None and last >= watermark and not asking.is_alive() and not answered:
            asking.start()
        return bool(answered)

    # A query that is asked to stop ends without another batch that could be looked at.
    bench.run(JOB, until=until, **changes) if request.kind == "savepoint" else bench.run(
        JOB, until=lambda batches: until(batches) or asking.is_alive(), **changes
    )
    asking.join(60)
    return answered[0]


def test_a_savepoint_is_where_a_run_goes_on_with_nothing_lost_or_twice(bench: Bench, tmp_path: Path) -> None:
    fork = replace(JOB, name="savepoints-b", result_topic="analytics.savepoints-b")
    bench.prepare(JOB)
    bench.prepare(fork)
    parts = [part(first, first + 15) for first in (0, 15, 30, 45)]

    # Taken while the query runs: it goes on, and comes to the second part.
    bench.send_rows(TOPIC, parts[0], VehiclePosition, "vehicle_id")
    told = asked_while_running(bench, Request("savepoint", str(tmp_path / "one"), "one"), at(13))
    one = Manifest.from_text(told["manifest"], where="answer")
    assert verify(tmp_path / "one") == []
    assert sum(one.position["offsets"][TOPIC].values()) == parts[0].height
    assert one.jobs[0].sources == (TOPIC,)
    assert [step.step for step in one.jobs[0].steps] == list(JOB.steps)
    bench.send_rows(TOPIC, parts[1], VehiclePosition, "vehicle_id")
    bench.run_to(JOB, watermark=at(28))

    # An older savepoint than the results: refused, and gone on with on request, on another number of key groups.
    old = {"checkpoint": tmp_path / "old", "key_groups": 3, "take_over": False}
    old["restore"] = restorer(lambda: read_savepoint(tmp_path / "one"))
    with pytest.raises(StateError, match="is older than its results"):
        bench.run_to(JOB, watermark=at(28), **old)
    bench.send_rows(TOPIC, parts[2], VehiclePosition, "vehicle_id")
    bench.checkpoint = tmp_path / "old"
    bench.run_to(JOB, watermark=at(43), accept_old_checkpoint=True, **old)

    # Taken when the query stops, and restored in another place with fewer key groups.
    asked = Request("stop", str(tmp_path / "two"), "two")
    told = asked_while_running(bench, asked, at(43), key_groups=3, take_over=False)
    two = Manifest.from_text(told["manifest"], where="answer")
    assert (two.key_groups, two.checkpoint) == (3, one.checkpoint)
    bench.send_rows(TOPIC, parts[3], VehiclePosition, "vehicle_id")
    restore = restorer(lambda: read_savepoint(tmp_path / "two"))
    new = {"checkpoint": tmp_path / "new", "restore": restore, "take_over": False}
    bench.run_to(JOB, watermark=at(58), key_groups=2, state_partitions=1, **new)
    with pytest.raises(StateError, match="there is a checkpoint"):
        bench.run_to(JOB, watermark=at(58), **new)

    # A fork of the first savepoint writes what comes after it to a topic of its own.
    restore = restorer(lambda: read_savepoint(tmp_path / "one"), Fork(JOB.name, fork.name))
    bench.run_to(fork, watermark=at(58), checkpoint=tmp_path / "fork", restore=restore)

    runner = Runner(JOB)
    batches = [runner.step(rows) for rows in parts]
    assert answers(bench.read(JOB.result_topic)) == answers(pl.concat([batch.results for batch in batches]))
    assert answers(bench.read(fork.result_topic)) == answers(pl.concat([batch.results for batch in batches[1:]]))
    for name in JOB.outputs:
        expected = pl.concat([batch.outputs[name] for batch in batches])
        assert expected.height
        assert answers(bench.read(JOB.output_topic(name))) == answers(expected), name
