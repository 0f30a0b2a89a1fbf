"""`headrace sql`: one query over files and topics, the statements of a file, or a shell.

Tables of one query that are all there (files, and what topics hold now) give an answer that is all there. With
`--follow` topics are streams: the query runs until it is stopped, and its rows are printed as they are decided.
Files of statements and the shell are in `headrace.cli.sql_script` and `headrace.cli.sql_shell`.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli import terminal
from headrace.cli.moments import moment
from headrace.cli.options import Bootstrap, Globals, UsageError
from headrace.cli.printer import Format, Printer
from headrace.cli.stopping import stop_on_signals
from headrace.cli.tables import FileTable, TopicTable, table_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.cli.question import Question
    from headrace.config import Settings


class Engine(StrEnum):
    """Where a query runs."""

    inprocess = "inprocess"
    spark = "spark"


def sql(
    ctx: typer.Context,
    query: Annotated[
        str | None,
        typer.Argument(
            metavar="[QUERY]",
            help="A SELECT, or statements with semicolons between them; - reads it from standard input. "
            "Without it a shell begins.",
            show_default=False,
        ),
    ] = None,
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
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            metavar="FILE",
            help="Carry out the statements of a file; -f FILE.sql is the same. Each INSERT INTO a topic is a job on "
            "Spark, all of them in one query.",
            show_default=False,
        ),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Read and plan all statements, and run none of them.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Read topics as streams: print rows as they are decided, until Ctrl-C.")
    ] = False,
    engine: Annotated[Engine, typer.Option("--engine", help="Where a query runs.")] = Engine.inprocess,
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
        str, typer.Option("--disorder", metavar="TIME", help="How late events of --table may be, such as 500ms.")
    ] = "1s",
    forms: Annotated[
        list[str] | None,
        typer.Option(
            "--format",
            "-f",
            metavar="[table|csv|json]",
            help="How rows are printed; json: a line per row. With a name that ends in .sql: --file.",
            show_default="table",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Jobs forget their checkpoint: offsets and state.")] = False,
    bootstrap: Bootstrap = None,
) -> None:
    """Run SQL over files and topics: one query, the statements of a file, or a shell."""
    form, script = _form(forms, file, json=json)
    if script is not None and query is not None:
        raise UsageError(f"a query and the file {script}", hint="Give one of them.")
    text = sys.stdin.read() if query == "-" else query
    given = [table_of(words) for words in tables or []]
    settings = Globals.of(ctx).settings(broker__bootstrap=(bootstrap, "--bootstrap"))
    if text is not None and not check and _is_one_query(text):
        if not given:
            raise UsageError("there is no table", hint="Name one: --table positions=positions.csv")
        begin = _begin(since, "now" if follow else "start")
        _one_query(
            text, given, follow=follow, engine=engine, begin=begin, disorder=disorder, settings=settings, form=form
        )
        return
    if follow or engine is not Engine.inprocess:
        raise UsageError("--follow and --engine are for one query", hint="Give a SELECT, and --table for its tables.")

    from headrace.cli.sql_script import Request, run_request

    begin = _begin(since, "start")
    run_request(
        Request(Globals.of(ctx), settings, given, begin, disorder, form, check=check, fresh=fresh), text, script
    )


def _form(forms: list[str] | None, file: Path | None, *, json: bool) -> tuple[Format, Path | None]:
    """Tell how rows are printed, and which file is to be carried out: `-f` says both."""
    chosen, script = Format.json if json else Format.table, file
    for word in forms or []:
        if word in set(Format):
            chosen = Format.json if json else Format(word)
        elif word.lower().endswith(".sql") or Path(word).is_file():
            if script is not None:
                raise UsageError(f"two files: {script} and {word}", hint="Give one; it can hold many statements.")
            script = Path(word)
        else:
            hint = f"It is one of {', '.join(Format)}, or a file of SQL."
            raise UsageError(f"-f {word} is neither a format nor a file", hint=hint)
    return chosen, script


def _is_one_query(text: str) -> bool:
    """Tell whether a text is one query, or nothing that can be told apart: then whoever plans it says what is wrong."""
    from headrace.errors import PlanError
    from headrace.streaming_sql.ddl import parse_script
    from headrace.streaming_sql.statements import Query

    try:
        script = parse_script(text)
    except PlanError:
        words = text.split(maxsplit=1)
        return not words or words[0].upper() in ("SELECT", "WITH", "FROM") or words[0].startswith("(")
    return not script or (len(script) == 1 and isinstance(script[0], Query))


def _begin(since: str | None, default: str) -> int:
    return int(moment(since or default, now=datetime.now(UTC)).timestamp() * 1e6)


def _one_query(
    text: str,
    given: Sequence[FileTable | TopicTable],
    begin: int,
    disorder: str,
    settings: Settings,
    form: Format,
    *,
    follow: bool,
    engine: Engine,
) -> None:
    from headrace.cli.question import Question

    topics = [table for table in given if isinstance(table, TopicTable)]
    files = {table.name: table.frame() for table in given if isinstance(table, FileTable)}
    if follow and not topics:
        raise UsageError("--follow, and no table is a topic", hint="Name one: --table positions=topic:TOPIC")
    printer = Printer(form, follow=follow)
    with stop_on_signals() as stop:
        question = Question(text, files, topics, begin, disorder, settings, stop)
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
