"""Runs a Flink job as a process of its own, and listens to it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from benchmarks.peers.build import class_path

from headrace.dev import find_java
from headrace.evaluate.parts import Part
from headrace.kafka import Topics, TopicSpec
from headrace_transit.topics import VEHICLE_POSITIONS

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.dev import EmbeddedBroker

#: What Flink asks for on Java 17.
_OPEN = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/sun.nio.ch",
)


def output_topic(job: str) -> str:
    """Where a Flink job writes."""
    return f"flink.{job}"


def start(broker: EmbeddedBroker, job: str, *, directory: Path, begin: str, memory: str = "10g") -> Part:
    """Start a job.

    Args:
        broker: The Kafka with the input.
        job: Its name.
        directory: Where its checkpoints and its log go.
        begin: "earliest" or "latest".
        memory: Its heap.
    """
    Topics(broker.connection).ensure([TopicSpec(name=output_topic(job), partitions=4)])
    checkpoints = directory / f"flink-{job}-{time.time_ns()}"
    checkpoints.mkdir(parents=True)
    command = [
        str(find_java().executable),
        f"-Xmx{memory}",
        *(word for package in _OPEN for word in ("--add-opens", f"{package}=ALL-UNNAMED")),
        *("-cp", ":".join(map(str, class_path())), "headrace.peers.Main"),
        *(job, broker.bootstrap, VEHICLE_POSITIONS, output_topic(job), str(checkpoints), begin),
    ]
    return Part(f"Flink's {job}", command, log=directory / f"flink-{job}.log")


def throughput(broker: EmbeddedBroker, job: str, *, events: int, directory: Path, patience: float) -> float | None:
    """Events a second that a job reads from a filled topic, the first quarter left out; None if it takes too long.

    Reading is held back by what comes after it, so that in the long run the job reads as fast as it works.
    """
    part = start(broker, job, directory=directory, begin="earliest")
    deadline = time.monotonic() + patience
    try:
        while True:
            part.check()
            counts = [(line["at"], line["count"]) for line in part.told("count")]
            done = [at for at, count in counts if count >= events]
            if done:
                begin, first = next((at, count) for at, count in counts if count >= events / 4)
                return (events - first) / ((done[0] - begin) / 1e6)
            if time.monotonic() > deadline:
                warm = [(at, count) for at, count in counts if count >= events / 20]
                if len(warm) < 20:
                    return None
                return (warm[-1][1] - warm[0][1]) / ((warm[-1][0] - warm[0][0]) / 1e6)
            time.sleep(0.1)
    finally:
        part.stop()
