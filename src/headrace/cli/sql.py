"""`headrace sql`: a query with MATCH_RECOGNIZE over files and topics, in this process or on Spark.

Tables that are all there (files, and what topics hold now) give an answer that is all there. With `--follow` topics are
streams: the query runs until it is stopped, and its rows are printed as they are decided.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import terminal
from headrace.cli.moments import moment
from headrace.cli.options import Bootstrap, Globals, UsageError
from headrace.cli.printer import Format, Printer
from headrace.cli.stopping import stop_on_signals
from headrace.cli.tables import FileTable, TopicTable, table_of

if TYPE_CHECKING:
    from headrace.cli.question import Question


class Engine(StrEnum):
    """Where a query runs."""

    inprocess = "inprocess"
    spark = "spark"


def sql(
    ctx: typer.Context,
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="One SELECT; - reads it from standard input.", show_default=False)
    ],
    tables: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            "-t",
            metavar="NAME=SOURCE",
            help="What the query calls NAME: a file (.csv, .parquet, .json, .jsonl), or topic:TOPIC, or "
            "topic:TOPIC:TYPE where a topic holds events of several types; as often as you like.",
            show_default=False,
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Read topics as streams: print rows as they are decided, until Ctrl-C.")
    ] = False,
    engine: Annotated[Engine, typer.Option("--engine", help="Where it runs.")] = Engine.inprocess,
    since: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME",
            help='Where to begin in topics: "14:30", "5m ago", "start", "now" [default: start; with --follow: now].',
            show_default=False,
        ),
    ] = None,
    disorder: Annotated[
        str, typer.Option("--disorder", metavar="TIME", help="With --follow: how late events may be, such as 500ms.")
    ] = "1s",
    form: Annotated[Format, typer.Option("--format", "-f", help="json: a line per row.")] = Format.table,
    json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Run a SQL query with MATCH_RECOGNIZE over files and topics."""
    from headrace.cli.question import Question

    text = sys.stdin.read() if query == "-" else query
    given = [table_of(words) for words in tables or []]
    if not given:
        raise UsageError("there is no table", hint="Name one: --table positions=positions.csv")
    topics = [table for table in given if isinstance(table, TopicTable)]
    files = {table.name: table.frame() for table in given if isinstance(table, FileTable)}
    if follow and not topics:
        raise UsageError("--follow, and no table is a topic", hint="Name one: --table positions=topic:TOPIC")
    begin = moment(since or ("now" if follow else "start"), now=datetime.now(UTC))
    settings = Globals.of(ctx).settings(broker__bootstrap=(bootstrap, "--bootstrap"))
    printer = Printer(Format.json if json else form, follow=follow)
    with stop_on_signals() as stop:
        question = Question(text, files, topics, int(begin.timestamp() * 1e6), disorder, settings, stop)
        (_follow if follow else _answer)(question, engine, printer)
    stop.finish()


def _answer(question: Question, engine: Engine, printer: Printer) -> None:
    if engine is Engine.spark:
        from headrace.cli.question_on_spark import answer

        found = answer(question)
    else:
        found = question.answer()
    if not question.stop.is_set():
        printer.show(found)


def _follow(question: Question, engine: Engine, printer: Printer) -> None:
    job = question.job()
    printer.check(job.stream.schema)
    names = ", ".join(table.topic for table in question.topics)
    terminal.note(f"Following {names}{' on Spark' if engine is Engine.spark else ''}; Ctrl-C stops.")
    if engine is Engine.spark:
        from headrace.cli.question_on_spark import follow

        follow(question, job, printer)
    else:
        question.follow(job, printer)
    terminal.note(f"{printer.printed:,} rows.")
