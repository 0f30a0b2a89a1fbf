"""What sinks besides Kafka are given, whoever wrote a batch to Kafka; without Spark and without a broker."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import polars as pl
import pytest

from headrace.engine.state import frame_to_bytes
from headrace.errors import StateError
from headrace.events import Codec
from headrace.events.letters import SCHEMA as LETTERS
from headrace.events.letters import Reason, Rejection, dead_letter
from headrace.sinks import SinkError, memory
from headrace.sinks.contract import BatchFrames, Sink, SinkWriter
from headrace.spark.checkpoint.positions import Position, Span
from headrace.spark.output.job_sinks import JobSinks
from headrace.spark.output.records import Writer
from headrace.spark.output.task_writer import COPY
from headrace.spark.run.batches import _frames_of
from headrace.stream import Job, Stream
from headrace.time import bounded
from headrace.windows import count, tumbling
from headrace_transit.schemas import VehiclePosition

if TYPE_CHECKING:
    from headrace.delivery import Delivery
    from headrace.sinks import BatchToken

START = datetime(2026, 3, 2, tzinfo=UTC)


def job(*sinks: Sink) -> Job:
    stream = Stream.topic("input.counted", VehiclePosition).watermark(bounded("1s")).key_by("line")
    return Job("counted", stream.window(tumbling("5s")).aggregate(n=count()), sinks=sinks)


def result_body(number: int) -> bytes:
    made = job()
    rows = pl.DataFrame(
        {
            "line": [f"line {number}"],
            "window_start": [START],
            "window_end": [START + timedelta(seconds=5)],
            "event_time": [START + timedelta(seconds=5)],
            "n": [number],
        }
    )
    missing = [
        pl.lit(None, kind).alias(name) for name, kind in made.pipeline.schema.items() if name not in rows.columns
    ]
    return frame_to_bytes(
        rows.with_columns(missing).select(list(made.pipeline.schema)).cast(dict(made.pipeline.schema))
    )


def letter_body(topic: str) -> bytes:
    row = dead_letter(Rejection(Reason.MALFORMED, "no event"), b"\xff", topic=topic)
    return frame_to_bytes(pl.DataFrame([row], schema=LETTERS))


def span(begin: int, end: int) -> Span:
    return Span(Position({"input.counted": {0: begin}}, begin), Position({"input.counted": {0: end}}, end))


def test_sinks_get_what_the_driver_and_the_tasks_have_written() -> None:
    writer = Writer(job(memory()), Codec())
    bodies = {"result": [result_body(1)], COPY + "result": [result_body(2)]}
    by_driver = writer.finish({"result": bodies["result"]}, Counter())
    for finished in (by_driver, None):  # None: Kafka has the batch already
        letters = [letter_body("input.counted"), letter_body("input.other")]
        frames = _frames_of(writer, finished, bodies, letters, span(0, 3))
        assert sorted(frames.results["counted"]["n"].to_list()) == [1, 2]
        assert frames.results["counted"]["idempotency_key"].n_unique() == 2
        assert frames.dead_letters is not None
        assert frames.dead_letters["topic"].to_list() == ["input.counted"]


def test_keys_are_those_of_the_topic() -> None:
    writer = Writer(job(memory()), Codec())
    bodies = {"result": [result_body(1), result_body(2)]}
    finished = writer.finish(bodies, Counter())
    (sent,) = writer.encode(finished, 0)
    on_kafka = Codec().decode(list(sent.values)).frame["idempotency_key"].to_list()
    assert finished.frames([]).results["counted"]["idempotency_key"].to_list() == on_kafka


def test_a_batch_is_recognized_by_what_it_reads_and_not_by_its_number() -> None:
    sink = memory()
    made = job(sink)
    frames = {"counted": lambda: BatchFrames("counted", {"counted": pl.DataFrame({"n": [1]})})}

    def run(checkpoint: str, *batches: tuple[int, int, int]) -> None:
        sinks = JobSinks([made], checkpoint)
        sinks.open()
        for number, begin, end in batches:
            sinks.write(number, span(begin, end), frames)
        sinks.close()

    run("c1", (0, 0, 10), (1, 10, 20))
    assert sink.table("counted").height == 2
    run("c1", (1, 10, 20), (2, 20, 30))  # repeated after a crash
    assert sink.table("counted").height == 3
    run("c1", (1, 0, 30), (2, 30, 40))  # an older copy of the checkpoint, which reads in other batches
    assert sink.table("counted").height == 4
    sinks = JobSinks([made], "c1")
    sinks.open()
    assert sinks.ends() == [Position({"input.counted": {0: 40}}, 40)]
    with pytest.raises(StateError, match="a part of this batch"):
        sinks.write(9, span(35, 50), frames)
    run("c2", (0, 0, 10))  # another checkpoint begins anew
    assert sink.table("counted").height == 5


class Broken(Sink):
    name = "broken"
    delivery: Delivery = "at_least_once"

    def open(self, job: str) -> SinkWriter:
        return BrokenWriter()


class BrokenWriter(SinkWriter):
    def last(self) -> BatchToken | None:
        return None

    def write(self, token: BatchToken, frames: BatchFrames) -> None:
        raise ZeroDivisionError("by zero")


def test_a_sink_that_fails_is_named_with_the_batch() -> None:
    sinks = JobSinks([job(Broken())], "c1")
    sinks.open()
    with pytest.raises(SinkError, match="sink broken of job 'counted' failed on batch 7: ZeroDivisionError: by zero"):
        sinks.write(7, span(0, 1), {"counted": lambda: BatchFrames("counted", {})})
