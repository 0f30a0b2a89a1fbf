"""Kafka: the embedded broker, its jars, topics and clients.

An embedded broker and a topic in it:

>>> with EmbeddedBroker(ServerSettings(data_dir=Path("data"))) as broker:  # doctest: +SKIP
...     Topics(broker.connection).ensure([TopicSpec(name="input.vehicle-position", partitions=4)])

Spark needs the jars of its Kafka connector, and the same connection:

>>> jars = JarCache().get(SPARK_CONNECTOR)  # doctest: +SKIP
>>> options = broker.connection.spark_options()  # doctest: +SKIP
"""

from __future__ import annotations

from headrace.extras import require

require("kafka", by="headrace.broker")

from headrace.broker.connection import SPARK_REDACTION, Connection
from headrace.broker.consumer import Consumer, Record
from headrace.broker.datadir import BrokerState, DataDirectory
from headrace.broker.detached import BrokerStatus
from headrace.broker.embedded import EmbeddedBroker
from headrace.broker.jars import EMBEDDED_BROKER, SPARK_CONNECTOR, JarCache
from headrace.broker.java import Java, find_java
from headrace.broker.process import GuardedProcess
from headrace.broker.producer import FencedError, Producer, TransactionalProducer
from headrace.broker.progress import Progress, silent
from headrace.broker.server import ServerSettings
from headrace.broker.topics import (
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
    "EmbeddedBroker",
    "ServerSettings",
    "BrokerState",
    "BrokerStatus",
    "DataDirectory",
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
    "JarCache",
    "SPARK_CONNECTOR",
    "EMBEDDED_BROKER",
    "Java",
    "find_java",
    "GuardedProcess",
    "Progress",
    "silent",
]
