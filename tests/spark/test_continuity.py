"""A checkpoint that does not fit its topic any more: the loss is named, and going on is a choice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import polars as pl
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from headrace.errors import StateError
from headrace.kafka import Topics, TopicSpec
from headrace.stream import Job, Stream
from headrace.time import bounded
from headrace.time.instants import instant
from headrace.windows import count, tumbling
from headrace_transit.schemas import VehiclePosition

if TYPE_CHECKING:
    from tests.spark.conftest import Bench

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]

START = datetime(2026, 3, 2, 7, 30, tzinfo=UTC)


def _job(name: str) -> Job:
    stream = Stream.topic(f"input.{name}", VehiclePosition).watermark(bounded("1s")).key_by("line")
    return Job(name, stream.window(tumbling("5s")).aggregate(n=count()))


def _send(bench: Bench, job: Job, first: int, last: int) -> None:
    """Ten events a second in each of two partitions, in order."""
    for partition in range(2):
        times = [START + timedelta(milliseconds=100 * tenth) for tenth in range(10 * first, 10 * last)]
        rows = pl.DataFrame({"event_time": times, "ingestion_time": times}).with_columns(
            vehicle_id=pl.lit(f"v{partition}"), line=pl.lit("1")
        )
        bench.send_partition(job.sources[0], rows, VehiclePosition, partition)


def _counts(bench: Bench, job: Job) -> dict[int, int]:
    rows = bench.read(job.result_topic).select("window_start", "n").rows()
    found = {int((start - START).total_seconds()): n for start, n in rows}
    assert len(found) == len(rows), "no window twice"
    return found


def _at(second: float) -> int:
    return instant(START + timedelta(seconds=second))


def test_what_has_expired_is_named_and_skipped_only_on_request(bench: Bench) -> None:
    job = _job("expired")
    bench.prepare(job, partitions=2)
    topic = job.sources[0]
    _send(bench, job, 0, 12)
    bench.run_to(job, watermark=_at(10.9))
    # While the job was away, retention took 50 events of one partition that it had not read.
    _send(bench, job, 12, 32)
    admin = AdminClient(bench.broker.connection.client_config())
    for future in admin.delete_records([TopicPartition(topic, 1, 170)]).values():
        future.result(10)

    with pytest.raises(StateError) as caught:
        bench.run_to(job, watermark=_at(30.9))
    message = str(caught.value)
    assert f"{topic} partition 1: 50 events from 120 on have expired; it begins at 170 now" in message
    assert "partition 0" not in message
    assert "--accept-loss" in caught.value.hint
    assert "--fresh" in caught.value.hint

    bench.run_to(job, watermark=_at(30.9), accept_loss=True)
    # 50 events from second 12 on are gone; the state of the window [10, 15) was kept.
    assert _counts(bench, job) == {0: 100, 5: 100, 10: 70, 15: 80, 20: 100, 25: 100}


def test_a_topic_made_anew_is_another_one_though_its_offsets_would_fit(bench: Bench) -> None:
    job = _job("renewed")
    bench.prepare(job, partitions=2)
    topic = job.sources[0]
    _send(bench, job, 0, 7)
    bench.run_to(job, watermark=_at(5.9))
    topics = Topics(bench.broker.connection)
    topics.delete([topic])
    topics.ensure([TopicSpec(name=topic, partitions=2)])
    _send(bench, job, 10, 32)  # more than the job had read of the old one

    with pytest.raises(StateError, match=f"{topic} partition 0: read up to 70 of a topic that was deleted") as caught:
        bench.run_to(job, watermark=_at(30.9))
    assert "Nothing was changed" in caught.value.hint

    bench.run_to(job, watermark=_at(30.9), accept_loss=True)
    counts = _counts(bench, job)
    assert counts == {0: 100, 5: 40, 10: 100, 15: 100, 20: 100, 25: 100}, "all of the new one was read, once"


def test_a_job_that_reads_another_topic_is_told_so(bench: Bench) -> None:
    job, renamed = _job("before"), Job("before", _job("after").stream)
    for each in (job, renamed):
        bench.prepare(each, partitions=2)
        _send(bench, each, 0, 7)
    bench.run_to(job, watermark=_at(5.9))

    with pytest.raises(StateError) as caught:
        bench.run_to(renamed, watermark=_at(5.9))
    told = "its state is of events of input.before, which it no longer reads; it reads input.after now"
    assert told in caught.value.message
    assert "Let it read input.before again; or start afresh (--fresh)" in caught.value.hint

    _send(bench, job, 7, 12)
    bench.run_to(job, watermark=_at(10.9))
    assert _counts(bench, job) == {0: 100, 5: 100}, "the refusal has changed nothing"
    bench.run_to(renamed, watermark=_at(5.9), fresh=True)
