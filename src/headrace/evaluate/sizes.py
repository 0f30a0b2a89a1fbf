"""Bytes per event: what one of a load costs in Kafka, binary and JSON, with and without compression.

Measured where it counts, in the log files of the broker: the same events are written to a topic per encoding and
compression by the producer that the feeds use, and the files are looked at. So batching, record headers and keys are in
the figure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.events import Codec
from headrace.kafka import Producer, Topics, TopicSpec

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from headrace.dev import EmbeddedBroker
    from headrace.events import Encoding
    from headrace.kafka.producer import Compression
    from headrace.observe.recipes import Sample

ENCODINGS: tuple[Encoding, ...] = ("binary", "json")
COMPRESSIONS: tuple[Compression, ...] = ("none", "lz4", "zstd")


def bytes_per_event(broker: EmbeddedBroker, sample: Sample) -> dict[str, dict[str, float]]:
    """Measure it.

    Args:
        broker: A broker whose files can be looked at; topics are made there and deleted again.
        sample: The events.

    Returns:
        By encoding: the size of a value alone (`value`), then what a record takes on disk per compression.
    """
    sizes: dict[str, dict[str, float]] = {}
    for encoding in ENCODINGS:
        values = Codec().encode(sample.frame, sample.type, encoding=encoding).to_pylist()
        sizes[encoding] = {"value": sum(map(len, values)) / len(values)}
        for compression in COMPRESSIONS:
            sizes[encoding][compression] = _on_disk(
                broker, f"size.{encoding}.{compression}", sample.keys, values, compression
            )
    return sizes


def _on_disk(
    broker: EmbeddedBroker, topic: str, keys: Sequence[bytes], values: Sequence[bytes], compression: Compression
) -> float:
    topics = Topics(broker.connection)
    topics.ensure([TopicSpec(name=topic, partitions=1)])
    with Producer(broker.connection, compression=compression, linger=0.05) as producer:
        for key, value in zip(keys, values, strict=True):
            producer.send(topic, value, key=key)
    size = sum(path.stat().st_size for path in _logs(broker.data.kafka, topic))
    topics.delete([topic])
    return size / len(values)


def _logs(directory: Path, topic: str) -> list[Path]:
    return list(directory.rglob(f"{topic}-0/*.log"))
