"""Latency beside Flink: one job alone at 16 x, results timed by the same readers, committed and not.

A reader that waits for transactions sees Flink's results when its checkpoint is done, every 10 s here, and Headrace's
when their micro-batch is out. One that does not wait sees both as soon as they are written.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from benchmarks.peers import flink

from headrace.dev import EmbeddedBroker, ServerSettings
from headrace.evaluate import measures
from headrace.evaluate.judgement import judge_load
from headrace.evaluate.meter import Meter, mean_cores
from headrace.evaluate.parts import Part, jobs_command
from headrace.evaluate.plan import BASE
from headrace.evaluate.visibility import ResultWatch
from headrace.kafka import Topics
from headrace.observe.probe import wall
from headrace_transit.jobs import all_jobs
from headrace_transit.load import load as fleet_load
from headrace_transit.topics import topics

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_START = 120.0
_DRAIN = 12.0


def measured(
    system: str, job: str, *, volume: float, seconds: float, warm_up: float, directory: Path
) -> dict[str, Any]:
    """Time the results of a job under load.

    Args:
        system: "headrace" or "flink".
        job: Its name.
        volume: Multiple of 700 events/s.
        seconds: How long.
        warm_up: Seconds of load before that.
        directory: For data and logs.
    """
    directory.mkdir(parents=True, exist_ok=True)
    meter = Meter()
    with EmbeddedBroker(ServerSettings(data_dir=directory / "kafka")) as broker:
        connection = broker.connection
        Topics(connection).ensure(topics([all_jobs()[job].result_topic]))
        parts: list[Part] = []
        try:
            if system == "flink":
                runner = flink.start(broker, job, directory=directory, begin="latest")
                topic, ready = flink.output_topic(job), "count"
            else:
                command = jobs_command(
                    [job], bootstrap=broker.bootstrap, home=directory, master="local[2]", settings=()
                )
                runner = Part("headrace run", command, log=directory / "jobs.log")
                topic, ready = all_jobs()[job].result_topic, "progress"
            parts.append(runner)
            _until(lambda: bool(runner.told(ready)), _START, parts)
            kinds = ("committed", "uncommitted")
            watches = {kind: ResultWatch(connection, {topic: job}, kind=kind) for kind in kinds}  # type: ignore[arg-type]
            rate = round(volume * BASE)
            load = Part(
                "the load generator",
                fleet_load.command(bootstrap=broker.bootstrap, rate=rate, seed=1),
                log=directory / "load.log",
            )
            parts.append(load)
            meter.watch({"system": runner.pid, "broker": broker.pid, "load": load.pid, "measuring": os.getpid()})
            _until(lambda: False, warm_up, parts)
            begin = wall()
            _until(lambda: False, seconds, parts)
            end = wall()
            _until(lambda: False, _DRAIN, parts)
            kept = judge_load(load.told("feed"), begin=begin, end=end, wanted=rate)
        finally:
            meter.close()
            for part in reversed(parts):
                part.stop()
        windowed = bool(all_jobs()[job].windows)
        told = {
            kind: measures.latency_summary(watch.sightings(), job, begin=begin, end=end, windowed=windowed)
            for kind, watch in watches.items()
        }
        for watch in watches.values():
            watch.close()
    cores = mean_cores(meter.samples(), begin=begin, end=end)
    return {
        "system": system,
        "job": job,
        "rate": rate,
        "seconds": seconds,
        "valid": kept.valid,
        "reasons": list(kept.reasons),
        "cores": {part: round(value, 3) for part, value in cores.items()},
        "latency": told,
    }


def _until(done: Callable[[], bool], seconds: float, parts: list[Part]) -> None:
    deadline = time.monotonic() + seconds
    while not done() and time.monotonic() < deadline:
        for part in parts:
            part.check()
        time.sleep(0.1)
