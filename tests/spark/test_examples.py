"""The five examples at once, as `headrace run examples/*.py` runs them, give what they give in process."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer

from headrace import Job
from headrace.dev.jars import default_directory
from headrace.formats import json as json_format
from headrace.inprocess import Runner
from headrace.kafka import Topics, TopicSpec

if TYPE_CHECKING:
    from headrace.dev import EmbeddedBroker

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("parcels", "payments", "sensors", "clicks", "logs")
PATIENCE = 400


def committed(bootstrap: str, topics: dict[str, int]) -> dict[str, list[dict[str, Any]]]:
    """Read as many results of each topic as are expected, and what comes within two seconds after the last."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "examples", "isolation.level": "read_committed"}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.subscribe(list(topics))
    found: dict[str, list[dict[str, Any]]] = {topic: [] for topic in topics}
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        message = consumer.poll(2)
        if message is not None and message.error() is not None:
            continue  # the topic is not there yet
        if message is not None:
            found[message.topic() or ""].append(json.loads(message.value() or b""))
        elif all(len(found[topic]) >= number for topic, number in topics.items()):
            break
    consumer.close()
    return found


def in_order(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


def test_the_examples_give_on_spark_what_they_give_in_process(broker: EmbeddedBroker, tmp_path: Path) -> None:
    bootstrap = broker.connection.bootstrap
    producer = Producer({"bootstrap.servers": bootstrap})
    expected: dict[str, list[dict[str, Any]]] = {}
    for name in NAMES:
        example = runpy.run_path(str(ROOT / "examples" / f"{name}.py"))
        jobs = [value for value in example.values() if isinstance(value, Job)]
        (topic,) = {topic for job in jobs for topic in job.sources}
        Topics(broker.connection).ensure([TopicSpec(name=topic, partitions=1)])
        for record in example["records"]():
            producer.produce(topic, record)
        for job in jobs:
            # Nobody says on Kafka that no more will come: windows that are still open give nothing yet.
            results = Runner(job).step(example["records"](), now=time.time_ns() // 1_000).results
            values = json_format().encode(results.select(job.stream.schema.names())).to_pylist()
            expected[job.result_topic] = [json.loads(value) for value in values]
    assert producer.flush(60) == 0

    kept = {key: value for key, value in os.environ.items() if not key.startswith("HEADRACE_")}
    errors = (tmp_path / "errors.txt").open("w")
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace.cli", "run", *(f"examples/{name}.py" for name in NAMES), "-b", bootstrap],
        cwd=ROOT,
        env=kept
        | {
            "PYTHONPATH": str(ROOT / "src"),
            "HEADRACE_PATHS__HOME": str(tmp_path / "home"),
            "HEADRACE_PATHS__JARS": str(default_directory()),
            "HEADRACE_SPARK__DRIVER_MEMORY": "800m",
        },
        stderr=errors,
    )
    try:
        found = committed(bootstrap, {topic: len(rows) for topic, rows in expected.items()})
    finally:
        process.terminate()
        process.wait(60)
        errors.close()
    said = (tmp_path / "errors.txt").read_text()
    assert {topic: len(rows) for topic, rows in found.items()} == {t: len(rows) for t, rows in expected.items()}, said
    for topic, rows in expected.items():
        assert in_order(found[topic]) == in_order(rows)
