"""The development environment: an embedded broker, the pinned jars, Java, and guarded child processes.

An embedded broker and a topic in it:

>>> with EmbeddedBroker(ServerSettings(data_dir=Path("data"))) as broker:  # doctest: +SKIP
...     Topics(broker.connection).ensure([TopicSpec(name="parcels.scans", partitions=4)])

A program that reads Kafka with Spark's own source needs the jars of its connector, and the same connection:

>>> jars = JarCache().get(SPARK_CONNECTOR)  # doctest: +SKIP
>>> options = broker.connection.spark_options()  # doctest: +SKIP
"""

from __future__ import annotations

from headrace.extras import require

require("kafka", by="headrace.dev")

from headrace.dev.datadir import BrokerState, DataDirectory
from headrace.dev.detached import BrokerStatus
from headrace.dev.embedded import EmbeddedBroker
from headrace.dev.jars import EMBEDDED_BROKER, SPARK_CONNECTOR, JarCache
from headrace.dev.java import Java, find_java
from headrace.dev.process import GuardedProcess
from headrace.dev.progress import Progress, silent
from headrace.dev.server import ServerSettings

__all__ = [
    "EmbeddedBroker",
    "ServerSettings",
    "BrokerState",
    "BrokerStatus",
    "DataDirectory",
    "JarCache",
    "SPARK_CONNECTOR",
    "EMBEDDED_BROKER",
    "Java",
    "find_java",
    "GuardedProcess",
    "Progress",
    "silent",
]
