"""How many bytes a batch reads: planned over a real topic; these tests need no Spark session."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from headrace.kafka import Topics, TopicSpec
from headrace.kafka.producer import Producer
from headrace.kafka.ranges import CHUNK_BYTES, Range, RangeReader
from headrace.spark.source.advice import Advice, AdviceFile
from headrace.spark.source.kafka_source import KafkaPlan, KafkaStreamReader
from headrace.spark.stages.shipping import Packed

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.dev import EmbeddedBroker

pytestmark = pytest.mark.broker

BOUND = 3_000_000
LARGE = 100_000


def _filled(broker: EmbeddedBroker, topic: str, *partitions: list[int]) -> None:
    """Fill partitions with records of given lengths."""
    Topics(broker.connection).ensure([TopicSpec(name=topic, partitions=len(partitions))])
    with Producer(broker.connection) as producer:
        for number, lengths in enumerate(partitions):
            for length in lengths:
                producer.send(topic, b"x" * length, partition=number)


def _batches(broker: EmbeddedBroker, topic: str, path: Path, *partitions: list[int]) -> list[int]:
    """Plan batches until everything is read, and tell how many bytes each holds."""
    advice = AdviceFile(path)
    reader = KafkaStreamReader(KafkaPlan(broker.connection, (topic,), stage=Packed(b""), tasks=1, advice=advice))
    start: dict[str, Any] = {"offsets": {topic: {}}, "now": time.time_ns() // 1_000}
    known: dict[str, int] = {}
    found = []
    ends = {str(number): len(lengths) for number, lengths in enumerate(partitions)}
    while start["offsets"][topic] != ends:
        advice.write(Advice(most=200_000, most_bytes=BOUND, record_bytes=known))
        end = reader.latestOffset(start, None)
        size = 0
        for number, lengths in enumerate(partitions):
            part = lengths[start["offsets"][topic].get(str(number), 0) : end["offsets"][topic][str(number)]]
            size += sum(part)
            if part:
                known[f"{topic}/{number}"] = -(-sum(part) // len(part))
        if end["offsets"] != start["offsets"]:
            found.append(size)
        start = end
    return found


def test_a_backlog_of_large_records_is_read_in_batches_that_are_bounded_by_bytes(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    lengths = [LARGE] * 200, [LARGE] * 100
    _filled(broker, "input.large", *lengths)
    sizes = _batches(broker, "input.large", tmp_path / "advice", *lengths)
    assert sum(sizes) == 300 * LARGE
    assert max(sizes) <= BOUND + 2 * LARGE, "also the first, of which nothing was known"
    assert len(sizes) <= 30, "and yet they are not small"


def test_records_that_become_large_in_the_middle_of_a_backlog_are_noticed(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    lengths = ([100] * 20_000 + [LARGE] * 200,)
    _filled(broker, "input.growing", *lengths)
    sizes = _batches(broker, "input.growing", tmp_path / "advice", *lengths)
    assert sum(sizes) == sum(lengths[0])
    assert max(sizes) <= BOUND + LARGE
    assert len(sizes) <= 30, "the small ones before them are not read one by one"


def test_small_records_are_read_at_once(broker: EmbeddedBroker, tmp_path: Path) -> None:
    lengths = [100] * 9_000, [100] * 10
    _filled(broker, "input.small", *lengths)
    assert _batches(broker, "input.small", tmp_path / "advice", *lengths) == [901_000]


def test_a_task_holds_large_records_in_chunks(broker: EmbeddedBroker) -> None:
    lengths = [900_000] * 90
    _filled(broker, "input.chunks", lengths)
    found = list(RangeReader(broker.connection).read([Range("input.chunks", 0, 0, 90)]))
    assert sum(len(chunk.values) for chunk in found) == 90
    assert [offset for chunk in found for offset in chunk.offsets.to_pylist()] == list(range(90))
    assert max(chunk.values.nbytes for chunk in found) <= 2 * CHUNK_BYTES
