"""Ingestion: from a source of raw messages to typed events on Kafka.

A **connector** hands over raw messages (MQTT, a recording), a **processor** makes events of them or says why not, and
the **runner** delivers both: events to the input topics, everything else to the dead letters.
"""

from __future__ import annotations

from headrace.extras import require

require("ingest", by="headrace.ingest")

from headrace.ingest.connector import Connector, SourceError
from headrace.ingest.message import Batch, RawMessage
from headrace.ingest.processor import Cause, Dismissal, EventFrame, Processed, Processor

__all__ = [
    "RawMessage",
    "Batch",
    "Connector",
    "SourceError",
    "Processor",
    "Processed",
    "EventFrame",
    "Dismissal",
    "Cause",
]
