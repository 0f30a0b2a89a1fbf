"""A query of `headrace sql` and what it is asked over; how it is answered in this process.

Files are frames. Topics are frames as well where the answer is to be all there, and streams where it goes on, or where
Spark reads them (`headrace.cli.question_on_spark`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from headrace.cli import terminal
from headrace.cli.connect import connect
from headrace.cli.jobs import registry
from headrace.cli.progress import Steps
from headrace.cli.tables import TopicReader
from headrace.stream import Job

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from headrace.cli.printer import Printer
    from headrace.cli.stopping import Stop
    from headrace.cli.tables import TopicTable
    from headrace.config import Settings
    from headrace.kafka.consumer import Record, Start
    from headrace.stream import Stream
    from headrace.stream.plan import TopicSource

#: A partition without events for this long does not hold the others back.
_IDLE_AFTER = "10s"


@dataclass(frozen=True)
class Query(Job):
    """A job whose results are only looked at: its columns may be called as they like."""

    def __post_init__(self) -> None:
        # What cannot be planned should fail before anything is started.
        _ = self.pipeline


@dataclass(frozen=True)
class Question:
    """A query, and what it is asked over.

    Args:
        query: One SELECT.
        files: Tables that are files, by name.
        topics: Tables that are topics.
        begin: Where to begin in topics, in microseconds since the epoch; 0 for their beginning.
        disorder: How late the events of a stream may be.
        settings: The settings.
        stop: Set when the user wants it to end.
    """

    query: str
    files: Mapping[str, pl.DataFrame]
    topics: Sequence[TopicTable]
    begin: int
    disorder: str
    settings: Settings
    stop: Stop

    @property
    def start(self) -> Start:
        """Where to begin in topics."""
        return self.begin or "beginning"

    @cached_property
    def reader(self) -> TopicReader:
        """Reads topics."""
        from headrace.events import Codec

        return TopicReader(connect(self.settings), Codec(registry(self.settings).types))

    def stream(self, tables: Mapping[str, Any]) -> Stream:
        """The query over streams."""
        from headrace.inprocess.sql_queries import sql
        from headrace.streaming_sql.passing import runnable

        return runnable(sql(self.query, tables))

    def job(self) -> Job:
        """The query as a job over topics; files can be read in its conditions."""
        streams = {
            table.name: self.reader.stream(table, disorder=self.disorder, idle_after=_IDLE_AFTER)
            for table in self.topics
        }
        return Query("sql", self.stream({**self.files, **streams}))

    def answer(self) -> pl.DataFrame:
        """Answer it in this process, over what files and topics hold now."""
        from headrace.inprocess.sql_queries import sql

        found: pl.DataFrame = sql(self.query, {**self.files, **self._read_topics()})
        return found

    def _read_topics(self) -> dict[str, pl.DataFrame]:
        frames: dict[str, pl.DataFrame] = {}
        if not self.topics:
            return frames
        with Steps() as steps:
            for table in self.topics:
                with steps.step(f"Reading {table.topic}") as step:
                    events = self.reader.frame(table, self.start, self.stop, _progress(step))
                    others = f", {events.ignored:,} of other types" if events.ignored else ""
                    dead = f", {events.dead:,} records are no events" if events.dead else ""
                    step.done(f"{events.frame.height:,} events{others}{dead}")
                frames[table.name] = events.frame
        return frames

    def follow(self, job: Job, printer: Printer) -> None:
        """Run it in this process until it is stopped, and print its rows as they come."""
        from headrace.inprocess import Runner
        from headrace.kafka.consumer import Consumer

        runner = Runner(job.pipeline)
        feed = _Feed([entry.source for entry in job.pipeline.entries])
        late = 0
        with Consumer(self.reader.connection, feed.topics, start=self.start, follow=True) as consumer:
            while not self.stop.is_set():
                rows = feed.rows(consumer.read(limit=20_000, timeout=0.25))
                # Without rows, too: idle partitions are found by the clock.
                batch = runner.step(rows, now=time.time_ns() // 1_000)
                late += 0 if batch.late is None else batch.late.height
                if batch.results.height:
                    printer.show(batch.results)
        if late or feed.dead:
            terminal.note(f"{late:,} events came too late, {feed.dead:,} records are no events.")


def _progress(step: Any) -> Any:
    return lambda count: step.progress(f"{count:,} records")


class _Feed:
    """Turns records into rows, by topic and partition."""

    def __init__(self, sources: Sequence[Any]) -> None:
        self._sources: dict[str, TopicSource] = {source.topic: source for source in sources}
        self.dead = 0

    @property
    def topics(self) -> list[str]:
        return list(self._sources)

    def rows(self, records: Sequence[Record]) -> dict[str, dict[str, pl.DataFrame]]:
        import pyarrow as pa

        from headrace.formats import Records

        values: dict[tuple[str, int], list[bytes | None]] = {}
        for record in records:
            values.setdefault((record.topic, record.partition), []).append(record.value)
        fed: dict[str, dict[str, pl.DataFrame]] = {}
        for (topic, partition), part in values.items():
            source = self._sources[topic]
            decoded = source.format.decode(Records(pa.array(part, pa.binary())))
            self.dead += len(decoded.rejections)
            fed.setdefault(topic, {})[str(partition)] = decoded.frame
        return fed
