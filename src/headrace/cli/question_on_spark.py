"""How `headrace sql --engine spark` answers a query: as a batch over files or topics, or as a stream over topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from headrace.cli.options import UsageError
from headrace.cli.run import quiet_spark, run_in_thread
from headrace.engine.operator import EVENT_TIME

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.cli.printer import Printer
    from headrace.cli.question import Question
    from headrace.kafka import Connection
    from headrace.kafka.consumer import Start
    from headrace.spark.run.batch import Answer, Offsets
    from headrace.stream import Job


def answer(question: Question) -> pl.DataFrame:
    """Answer a query on Spark, over what files or topics hold now."""
    found: list[pl.DataFrame] = []
    if question.topics:
        job = question.job()
        _with_spark(question, lambda: found.append(_over_topics(question, job)))
    else:
        _with_spark(question, lambda: found.append(_over_files(question)))
    rows = found[0]
    # Key groups are done in any order.
    return rows.sort(EVENT_TIME, maintain_order=True) if EVENT_TIME in rows.columns else rows


def follow(question: Question, job: Job, printer: Printer) -> None:
    """Run a query on Spark until it is stopped, and print its rows as they come."""
    from headrace.spark.run.following import FollowOptions
    from headrace.spark.run.following import follow as run

    spark = question.settings.spark

    def tell(found: Answer) -> None:
        if found.results.height:
            printer.show(found.results)

    def work() -> None:
        options = FollowOptions(
            connection=question.reader.connection,
            master=spark.master,
            starting=question.begin or "earliest",
            key_groups=spark.key_groups,
            state_partitions=spark.state_partitions,
            driver_memory=spark.driver_memory,
        )
        run(job, options, tell, question.stop)

    _with_spark(question, work)


def _with_spark(question: Question, work: Callable[[], None]) -> None:
    from headrace.dev import find_java

    find_java()  # its error says how to install one; Spark's own does not
    with quiet_spark(question.settings.log_directory / "sql.log"):
        run_in_thread(work, question.stop)


def _session(question: Question) -> Any:
    from headrace.spark.session.session import spark_settings, start_session

    spark = question.settings.spark
    settings = spark_settings(
        state_partitions=spark.state_partitions,
        driver_memory=spark.driver_memory,
        local_directory=question.settings.checkpoint_directory / "sql-local",
    )
    return start_session("headrace-sql", master=spark.master, settings=settings)


def _over_topics(question: Question, job: Job) -> pl.DataFrame:
    from headrace.spark.run.batch import run_batch

    connection = question.reader.connection
    begin = "earliest" if question.start == "beginning" else _offsets(connection, job, question.start)
    spark = _session(question)
    try:
        return run_batch(spark, [job], connection, start=begin, to_the_end=True)[job.name].results
    finally:
        spark.stop()


def _offsets(connection: Connection, job: Job, start: Start) -> Offsets:
    """The offsets at a time; the end of a partition where there is nothing newer."""
    from headrace.kafka import Topics
    from headrace.kafka.consumer import Consumer

    topics = Topics(connection)
    found: dict[str, dict[int, int]] = {}
    for topic in job.sources:
        ends = {part.partition: part.latest for part in topics.get(topic).partitions}
        with Consumer(connection, [topic], start=start) as consumer:
            places = consumer.positions
        found[topic] = {part: places[topic, part] if places[topic, part] >= 0 else end for part, end in ends.items()}
    return found


def _over_files(question: Question) -> pl.DataFrame:
    from headrace.stream import Stream
    from headrace.time import bounded

    timed = [name for name, frame in question.files.items() if isinstance(frame.schema.get(EVENT_TIME), pl.Datetime)]
    if not timed:
        raise UsageError(
            f"on Spark a table needs a timestamp column {EVENT_TIME}, and {', '.join(question.files)} has none",
            hint="Rename one in the file, or use --engine inprocess.",
        )
    spark = _session(question)
    try:
        tables: dict[str, Any] = dict(question.files)
        for name in timed:
            rows = spark.createDataFrame(question.files[name].to_arrow(compat_level=pl.CompatLevel.oldest()))
            tables[name] = Stream.from_spark(rows, time=EVENT_TIME, name=name).watermark(bounded("0s"))
        found = question.stream(tables).to_spark(spark).toArrow()
        return pl.DataFrame(found)
    finally:
        spark.stop()
