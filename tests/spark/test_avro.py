"""Avro in Confluent's wire format on real Spark: the tasks ask the registry, two schemas in one topic, Avro out."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from tests.formats.samples import records
from tests.formats.test_confluent import Registry, registry, value
from tests.spark.test_formats import produce

from headrace.formats import avro
from headrace.kafka import Consumer
from headrace.kafka.topics import DEAD_LETTERS
from headrace.stream import Job, Stream
from headrace.time import bounded
from headrace.time.instants import instant
from headrace.windows import count, tumbling
from headrace.windows import sum as total

if TYPE_CHECKING:
    from tests.spark.conftest import Bench

__all__ = ["registry"]  # the fixture

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.slow]

START = datetime(2026, 3, 1, 8, tzinfo=UTC)
TOPIC = "avro-scans"
OLD = {
    "type": "record",
    "name": "Scan",
    "fields": [
        {"name": "depot", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
NEW = OLD | {"fields": [*OLD["fields"], {"name": "belt", "type": ["null", "int"], "default": None}]}


def test_two_schemas_of_a_registry_in_one_topic(bench: Bench, registry: Registry) -> None:
    old, new = registry.put(f"{TOPIC}-value", OLD), registry.put(f"{TOPIC}-value", NEW)
    job = Job(
        "avro-per-depot",
        Stream.topic(TOPIC, format=avro("latest", registry=registry.url, subject=f"{TOPIC}-value", time="at"))
        .watermark(bounded("1s"), idle_after="1min")
        .key_by("depot")
        .window(tumbling("10s"))
        .aggregate(scans=count(), belts=total("belt"))
        .select("depot", "scans", "belts"),
        format=avro(registry=registry.url, subject="analytics.avro-per-depot-value"),
    )
    bench.prepare(job)
    values = []
    for second in range(30):
        row = {"depot": "north", "at": START + timedelta(seconds=second)}
        values += [value(old, OLD, row), value(new, NEW, row | {"belt": 1})]
    unknown, cut = value(99, OLD, {"depot": "x", "at": START}), values[0][:-1]
    produce(bench, TOPIC, [*values, unknown, cut])
    bench.run_to(job, watermark=instant(START + timedelta(seconds=28)))

    with Consumer(bench.broker.connection, [job.result_topic]) as consumer:
        written = [record.value for record in consumer]
    results = avro("latest", registry=registry.url, subject="analytics.avro-per-depot-value", time="event_time")
    found = results.decode(records(*written))
    assert not found.rejections
    assert Counter(found.frame.select("depot", "scans", "belts").rows()) == {("north", 20, 10): 2}
    dead = bench.read(DEAD_LETTERS)
    reasons = dict(dead.filter(dead["topic"] == TOPIC).select("value", "text").rows())
    assert set(reasons) == {unknown, cut}
    assert "does not know it" in reasons[unknown]
    # Two schemas and an unknown one, in at most a process for each task slot and the driver.
    assert all(times <= 4 for path, times in registry.asked.items() if path.startswith("/schemas/"))
