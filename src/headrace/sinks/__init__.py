"""Sinks: where the frames of a job go besides its Kafka topics, and the contract for sinks of your own."""

from headrace.sinks.contract import BatchFrames, BatchToken, Sink, SinkError, SinkWriter
from headrace.sinks.memory import MemorySink, memory
from headrace.sinks.parquet import ParquetSink, parquet

__all__ = [
    "BatchFrames",
    "BatchToken",
    "MemorySink",
    "ParquetSink",
    "Sink",
    "SinkError",
    "SinkWriter",
    "memory",
    "parquet",
]
