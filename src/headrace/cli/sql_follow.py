"""Queries over topics in this process: they run until they are stopped, and show their rows as they come."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.cli import terminal
from headrace.formats import Records
from headrace.inprocess import Runner
from headrace.stream.intake import partition_names
from headrace.stream.pipeline import compile_plan
from headrace.stream.plan import TopicSource
from headrace.streaming_sql.constants import constant_sources
from headrace.streaming_sql.passing import runnable

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

    import polars as pl

    from headrace.kafka import Connection
    from headrace.kafka.consumer import Record, Start
    from headrace.streaming_sql.session import Answer

_RECORDS = 20_000
_SECONDS = 0.25
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def follow_query(
    answer: Answer, connection: Connection, start: Start, stop: threading.Event, show: Callable[[pl.DataFrame], None]
) -> None:
    """Run a query until it is stopped.

    Args:
        answer: The query; tables that are all there are read once, at the beginning.
        connection: Where its topics are.
        start: Where to begin in them.
        stop: Ends it.
        show: Is given the rows of the query as they come.
    """
    from headrace.kafka.consumer import Consumer

    planned = answer.planned
    pipeline = compile_plan(runnable(planned.stream).node)
    sources = [entry.source for entry in pipeline.entries]
    topics = list(dict.fromkeys(source.topic for source in sources if isinstance(source, TopicSource)))
    names = {source.name for source in sources}
    first = constant_sources(planned.stream) | {
        table.bounded.source: table.bounded.read().frame
        for table in answer.tables
        if table.bounded is not None and table.bounded.source in names
    }
    late = dead = 0
    with Consumer(connection, topics, start=start, follow=True) as consumer:
        # A partition that has not been read yet holds the watermark back, so that none is late for another.
        runner = Runner(pipeline, partitions=Counter(topic for topic, _ in consumer.positions))
        while not stop.is_set():
            fed: dict[str, Any] = {**first, **_by_partition(consumer.read(limit=_RECORDS, timeout=_SECONDS))}
            first = {}
            # Without rows, too: idle partitions are found by the clock.
            batch = runner.step(fed, now=time.time_ns() // 1_000)
            late += 0 if batch.late is None else batch.late.height
            dead += 0 if batch.dead is None else batch.dead.height
            if batch.results.height:
                show(planned.rows(batch.results))
    if late or dead:
        terminal.note(f"{late:,} rows came too late, {dead:,} records could not be read.")


def _by_partition(records: Sequence[Record]) -> dict[str, dict[str, Records]]:
    parts: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        parts.setdefault((record.topic, record.partition), []).append(record)
    fed: dict[str, dict[str, Records]] = {}
    for (topic, partition), part in parts.items():
        (name,) = partition_names(topic, partition + 1)[-1:]
        fed.setdefault(topic, {})[name] = _records(part)
    return fed


def _records(part: Sequence[Record]) -> Records:
    headers = [[{"key": key, "value": value} for key, value in record.headers] for record in part]
    return Records(
        pa.array([record.value for record in part], pa.binary()),
        keys=pa.array([record.key for record in part], pa.binary()),
        headers=pa.array(headers, _HEADERS),
        timestamps=pa.array([record.timestamp for record in part], pa.timestamp("us", "UTC")),
        partitions=pa.array([record.partition for record in part], pa.int32()),
        offsets=pa.array([record.offset for record in part], pa.int64()),
    )
