"""Kafka: connections, topics, readers, writers and rights.

>>> topics = Topics(Connection(bootstrap="localhost:9092"))  # doctest: +SKIP
>>> topics.ensure([TopicSpec(name="parcels.scans", partitions=4)])  # doctest: +SKIP

For a broker without a cluster see `headrace.dev`.
"""

from __future__ import annotations

from headrace.extras import require

require("kafka", by="headrace.kafka")

from headrace.kafka.connection import SPARK_REDACTION, Connection
from headrace.kafka.consumer import Consumer, Record
from headrace.kafka.producer import FencedError, Producer, TransactionalProducer
from headrace.kafka.topics import (
    COMMITS,
    DEAD_LETTERS,
    Topics,
    TopicSpec,
    commit_spec,
    dead_letter_spec,
    late_spec,
    late_topic,
)

__all__ = [
    "Connection",
    "SPARK_REDACTION",
    "Topics",
    "TopicSpec",
    "DEAD_LETTERS",
    "COMMITS",
    "dead_letter_spec",
    "late_spec",
    "late_topic",
    "commit_spec",
    "Producer",
    "TransactionalProducer",
    "FencedError",
    "Consumer",
    "Record",
]
