"""The parts of an evaluation on a real broker: readers, sizes, the load generator, the meter."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import polars as pl
import pytest

from headrace.cli.topics import make_topics
from headrace.config import Settings
from headrace.errors import JobError
from headrace.evaluate.meter import OTHERS, Meter, mean_cores, most_memory
from headrace.evaluate.parts import Part
from headrace.evaluate.sizes import bytes_per_event
from headrace.evaluate.visibility import ResultWatch
from headrace.events import Codec, Result
from headrace.kafka import Consumer, Topics, TopicSpec, TransactionalProducer
from headrace_transit.jobs import all_jobs
from headrace_transit.load import load as fleet_load
from headrace_transit.load import sample
from headrace_transit.topics import VEHICLE_POSITIONS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headrace.dev import EmbeddedBroker


def until(done: Callable[[], bool], *, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


@pytest.mark.broker
def test_a_reader_of_committed_results_waits_for_the_transaction(broker: EmbeddedBroker) -> None:
    topic = f"analytics.{uuid.uuid4().hex[:10]}"
    Topics(broker.connection).ensure([TopicSpec(name=topic, partitions=2)])
    at = datetime(2026, 3, 1, tzinfo=UTC)
    frame = pl.DataFrame({"event_time": [at] * 4, "key": list("abcd"), "vehicles": [1, 2, 3, 4]}).with_columns(
        window_end=pl.lit(datetime(2026, 3, 1, 0, 0, 5, tzinfo=UTC)),
        pane_timing=pl.Series(["on_time", "on_time", "on_time", "late"]),
    )
    waiting = ResultWatch(broker.connection, {topic: "cells"})
    hasty = ResultWatch(broker.connection, {topic: "cells"}, kind="uncommitted")
    try:
        with TransactionalProducer(broker.connection, transactional_id=topic).transaction() as producer:
            for key, value in zip("abcd", Codec().encode(frame, Result).to_pylist(), strict=True):
                producer.send(topic, value, key=key.encode())
            producer.flush()
            until(lambda: hasty.sightings()["rows"].sum() == 3)
            assert waiting.sightings().is_empty()
        until(lambda: waiting.sightings()["rows"].sum() == 3)
        seen = waiting.sightings()
        assert seen["due"].unique().to_list() == [datetime(2026, 3, 1, 0, 0, 5, tzinfo=UTC)]
        assert seen["job"].unique().to_list() == ["cells"]
        # The one is never behind the other.
        assert hasty.sightings()["seen"].min() <= seen["seen"].min()  # type: ignore[operator]
        waiting.check()
    finally:
        waiting.close()
        hasty.close()


@pytest.mark.broker
def test_bytes_per_event(broker: EmbeddedBroker) -> None:
    sizes = bytes_per_event(broker, sample(vehicles=100, seconds=5))
    for measured in sizes.values():
        assert measured["none"] > measured["value"] > measured["lz4"] > measured["zstd"] > 0
    assert sizes["json"]["value"] > 2 * sizes["binary"]["value"]
    assert not [topic.name for topic in Topics(broker.connection).overview() if topic.name.startswith("size.")]


@pytest.mark.broker
def test_the_load_generator_follows_the_clock(broker: EmbeddedBroker, tmp_path: Path) -> None:
    make_topics(broker.connection, list(all_jobs().values()), Settings())
    command = fleet_load.command(bootstrap=broker.bootstrap, rate=50, seed=1)
    load = Part("the load generator", command, log=tmp_path / "load.log")
    begin = time.time()
    try:
        until(lambda: len(load.told("feed")) >= 3)
        load.check()
    finally:
        load.stop()
    assert load.told()[-1]["events"] > 50
    with Consumer(broker.connection, [VEHICLE_POSITIONS]) as consumer:
        values = [record.value for record in consumer if record.timestamp >= begin * 1e6]
    times = Codec().decode(values).frame.filter(pl.col("operator") != 0)["event_time"].dt.epoch("us") / 1e6
    # Event times are true times: none before the start, none after now.
    assert begin - 1 <= times.min() <= times.max() <= time.time() + 1  # type: ignore[operator]


def test_a_part_that_ends_by_itself_is_told(tmp_path: Path) -> None:
    program = "import sys; print('{\"event\": \"a\"}'); print('noise'); sys.stderr.write('no luck\\n'); sys.exit(3)"
    part = Part("the broken part", [sys.executable, "-c", program], log=tmp_path / "part.log")
    until(lambda: part._process.poll() is not None)
    with pytest.raises(JobError, match="the broken part ended with exit code 3; the last it said: no luck"):
        part.check()
    part.stop()
    assert [line["event"] for line in part.told()] == ["a"]


def test_the_meter_tells_who_uses_the_processor() -> None:
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    meter = Meter(every=0.2)
    try:
        meter.watch({"busy": busy.pid, "me": os.getpid()})
        until(lambda: mean_cores(meter.samples(), begin=0, end=2**60).get("busy", 0.0) > 0.02)
        meter.close()
    finally:
        busy.kill()
        busy.wait()
    samples = meter.samples()
    cores = mean_cores(samples, begin=0, end=2**60)
    assert set(cores) == {"busy", "me", OTHERS}
    assert most_memory(samples, begin=0, end=2**60)["me"] > 10
    # What a process used before it was watched is not counted: this one has run for long.
    assert max(cores.values()) <= 1.2 * (os.cpu_count() or 1)
