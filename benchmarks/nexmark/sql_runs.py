"""NEXMark in SQL on Spark, from Kafka to Kafka, exactly once; the answers are those of an independent computation."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import workload
from benchmarks.nexmark.generator import Auctions
from benchmarks.nexmark.queries import TOPIC
from benchmarks.nexmark.sql_queries import SQL, side_input, tables_of_topics, with_more_columns
from benchmarks.nexmark.sql_reference import expected
from rich.console import Console
from rich.table import Table

from headrace.dev import EmbeddedBroker, ServerSettings
from headrace.engine.changelog import final
from headrace.evaluate.parity import stream_results
from headrace.kafka import Topics
from headrace.kafka.producer import Producer
from headrace.kafka.topics import TopicSpec
from headrace.stream import Job
from headrace.streaming_sql import Session
from headrace.streaming_sql.result_keys import keyed_results
from headrace.streaming_sql.script import Fragment

if TYPE_CHECKING:
    import argparse

    import polars as pl

RESULTS = Path(__file__).parents[1] / "results" / "nexmark-sql.json"
SIDE = "nexmark-side"
#: Answers to these wait for event time: when the last event has been read, some are still open.
WAITING = ("q5", "q6", "q7", "q8", "q11", "q12", "cep0", "cep1", "cep2", "cep3")
#: What is in which answer depends on when it was asked.
BY_THE_CLOCK = ("q12",)
console = Console()


def job(query: str) -> tuple[Job, list[str]]:
    """Plan a query as a job; the columns of its answer are named beside it."""
    session = Session()
    list(session.run(tables_of_topics(TOPIC, SIDE)))
    planned = session.catalog.plan(Fragment.whole(SQL[query]))
    names = [name for name, _ in planned.columns]
    return Job(
        f"nexmark-sql-{query}", keyed_results(planned.named_stream, names), description=f"NEXMark {query}"
    ), names


def fill_side(broker: EmbeddedBroker) -> None:
    """Write the rows that q13 looks up."""
    Topics(broker.connection).ensure([TopicSpec(name=SIDE, partitions=1)])
    with Producer(broker.connection) as producer:
        for row in side_input().iter_rows(named=True):
            producer.send(SIDE, json.dumps(row).encode(), key=str(row["key"]).encode())


def is_right(query: str, found: pl.DataFrame, names: list[str], events: pl.DataFrame) -> bool:
    """Tell whether answers are those of an independent computation; those that wait may be incomplete at the end."""
    if query in BY_THE_CLOCK:
        return found.height > 0
    rows = final(found.select(each for each in (*names, "is_retraction") if each in found.columns))
    there = Counter(_comparable(row) for row in rows.select(names).rows())
    wanted = Counter(_comparable(row) for row in expected(query, events))
    missing, extra = wanted - there, there - wanted
    return not extra and there.total() > 0 and (query in WAITING or not missing)


def _comparable(row: tuple[Any, ...]) -> tuple[Any, ...]:
    values = (float(value) if isinstance(value, Decimal) else value for value in row)
    return tuple(value.replace(tzinfo=None) if hasattr(value, "tzinfo") else value for value in values)


def run(chosen: argparse.Namespace) -> None:
    """Run the queries that are chosen.

    Raises:
        SystemExit: An answer is wrong.
    """
    events = with_more_columns(Auctions(rate=chosen.rate).events(0, chosen.events))
    names = [name for name in SQL if not chosen.only or name in chosen.only]
    figures: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        with EmbeddedBroker(ServerSettings(data_dir=home / "kafka", memory="1g")) as broker:
            workload.fill(broker, TOPIC, events, key="auction")
            fill_side(broker)
            for name in names:
                planned, columns = job(name)
                figure, _, _ = workload.on_spark(
                    broker, planned, events=chosen.events, batch=chosen.batch, directory=home
                )
                right = is_right(name, stream_results(planned, broker.connection), columns, events)
                figures[name] = {"on Spark": figure.to_dict(), "right": right}
                console.print(f"{name}: {figure.events_per_second:,.0f} events/s on Spark, right: {right}")
    show(figures, chosen)


def show(figures: dict[str, dict[str, Any]], chosen: argparse.Namespace) -> None:
    """Print a table, and write it where it is one of figures."""
    table = Table("query", "on Spark, events/s", "per core", "answers right")
    for name, found in figures.items():
        spark = found["on Spark"]
        table.add_row(
            name,
            f"{spark['events_per_second']:,}",
            f"{spark['events_per_core']:,}",
            "yes" if found["right"] else "NO",
        )
    console.print(table)
    if wrong := [name for name, found in figures.items() if not found["right"]]:
        raise SystemExit(f"wrong answers: {', '.join(wrong)}")
    if chosen.quick or chosen.only:
        console.print("Not written: --quick and --only are for looking, not for figures.")
        return
    conditions = workload.conditions(
        events=chosen.events, events_per_batch=chosen.batch, rate=chosen.rate, cores_used="2 on Spark"
    )
    RESULTS.write_text(json.dumps({"conditions": conditions, "queries": figures}, indent=2) + "\n", "utf-8")
    console.print(f"written to {RESULTS}")
