"""What `headrace sql` does with statements: it shows answers, follows queries, and writes or runs what is inserted."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cli import terminal
from headrace.cli.printer import Format, Printer
from headrace.cli.sql_rows import FollowedRows, can_redraw
from headrace.cli.stopping import stop_on_signals
from headrace.errors import PlanError
from headrace.inprocess.sql_answers import answer_in_process
from headrace.streaming_sql import statements
from headrace.streaming_sql.ddl import parse_script
from headrace.streaming_sql.session import Answer, Done, Insertion, Insertions, Listing, Text
from headrace.streaming_sql.table_sink import target_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import polars as pl

    from headrace.cli.sql_session import SqlEnvironment
    from headrace.stream import Job
    from headrace.streaming_sql.session import Result, Session

#: What a file that INSERT INTO writes is called, by its format.
_ENDINGS = {".csv": "csv", ".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet"}


@dataclass
class Console:
    """Carries out statements and shows what they give.

    Args:
        environment: Where.
        session: The session.
        form: How rows are printed.
        timing: Whether it is said how long a statement took.
        start_job: What to do with an INSERT INTO that is a job; None: it is kept in `jobs`.
    """

    environment: SqlEnvironment
    session: Session
    form: Format = Format.table
    timing: bool = False
    start_job: Callable[[Insertion], None] | None = None
    jobs: list[Job] = field(default_factory=list)

    def run(self, text: str) -> None:
        """Carry out all statements of a text.

        Raises:
            HeadraceError: One cannot be carried out; those before it were.
        """
        for statement in parse_script(text):
            begin = time.monotonic()
            self.show(self.session.execute(statement))
            if self.timing:
                terminal.note(f"{(time.monotonic() - begin) * 1e3:,.0f} ms")

    def check(self, text: str) -> None:
        """Read and plan all statements of a text, and run none.

        Raises:
            HeadraceError: One of them is wrong.
        """
        for statement in parse_script(text):
            result = self.session.execute(statement)
            match result:
                case Done(notes=notes):
                    for note in notes:
                        terminal.note(note, style="yellow")
                case Answer() if isinstance(statement, statements.Query):
                    _note(result.planned.cautions)
                    columns = ", ".join(result.planned.schema)
                    terminal.line(f"{statement.query.at}: SELECT gives {columns}")
                case Insertions(parts=parts):
                    for part in parts:
                        _note(part.answer.planned.cautions)
                        what = "is written by this process" if part.job is None else f"is the job {part.job.name}"
                        terminal.line(f"{part.insert.text.at}: INSERT INTO {part.insert.table} {what}")
        terminal.note("All statements are fine.")

    def show(self, result: Result) -> None:
        """Show what a statement gave, or run it."""
        match result:
            case Done():
                terminal.note(result.text)
                for note in result.notes:
                    terminal.note(note, style="yellow")
            case Listing():
                self._list(result)
            case Text():
                terminal.line(result.text)
            case Answer():
                self._answer(result)
            case Insertions():
                for part in result.parts:
                    self._insert(part)

    def _list(self, listing: Listing) -> None:
        if self.form is Format.table:
            terminal.rows(listing.header, listing.rows)
            return
        import polars as pl

        rows = [dict(zip(listing.header, row, strict=True)) for row in listing.rows]
        Printer(self.form).show(pl.DataFrame(rows, schema=dict.fromkeys(listing.header, pl.String)))

    def _answer(self, answer: Answer) -> None:
        if not answer.is_bounded:
            _note(answer.planned.cautions)
            self._follow(answer)
            return
        found = answer_in_process(answer.planned, answer.tables)
        Printer(self.form).show(found.rows)
        if self.form is Format.table:
            terminal.note(f"({found.rows.height:,} row{'' if found.rows.height == 1 else 's'})")
        _note(found.notes)

    def _follow(self, answer: Answer) -> None:
        from headrace.cli.sql_follow import follow_query

        connection = self.environment.connection
        redraw = can_redraw()
        terminal.note("Ctrl-C ends the query.")
        with stop_on_signals() as stop, FollowedRows(answer.planned, self.form, redraw=redraw) as shown:
            follow_query(answer, connection, self.environment.begin or "beginning", stop, shown.show)
        terminal.note(f"({shown.shown:,} rows)")

    def _insert(self, part: Insertion) -> None:
        _note(part.answer.planned.cautions)
        if part.job is not None:
            if self.start_job is None:
                self.jobs.append(part.job)
            else:
                self.start_job(part)
            return
        if not part.answer.is_bounded:
            if part.target.connector not in ("print", "blackhole"):
                raise part.insert.text.problem(
                    "a query over a topic and a file cannot be written",
                    hint="Bring the file into a topic first: INSERT INTO a table of it SELECT * FROM the file.",
                )
            self._follow(part.answer)
            return
        found = answer_in_process(part.answer.planned, part.answer.tables)
        columns = part.columns
        renamed = found.rows.rename({name: source for name, source in part.answer.planned.columns if name != source})
        written = self._write(part, target_rows(renamed, columns))
        terminal.note(f"{written:,} rows into {part.insert.table}.")
        _note(found.notes)

    def _write(self, part: Insertion, rows: pl.DataFrame) -> int:
        """Write all rows of a query that is at its end."""
        connector = part.target.connector
        if connector == "print":
            Printer(self.form).show(rows)
        elif connector in ("file", "filesystem"):
            _write_file(part, rows)
        elif connector in ("kafka", "upsert-kafka"):
            self._produce(part, rows)
        elif connector != "blackhole":
            raise part.insert.text.problem(f"{part.insert.table} was given by the program and is not written")
        return rows.height

    def _produce(self, part: Insertion, rows: pl.DataFrame) -> None:
        """Send rows to the topic of a table."""
        from headrace.kafka import Topics
        from headrace.kafka.producer import Producer
        from headrace.kafka.topics import TopicSpec
        from headrace.streaming_sql.table_sink import writer_of

        topic, output = writer_of(part.target, part.insert, self.session.catalog.formats)
        connection = self.environment.connection
        Topics(connection).ensure([TopicSpec(name=topic)])
        keys = [part.target.definition.primary_key[0]] if _has_key(part) and part.target.definition else []
        names = rows.get_column(keys[0]).cast(str).to_list() if keys else [None] * rows.height
        with Producer(connection) as producer:
            for name, value in zip(names, output.encode(rows).to_pylist(), strict=True):
                producer.send(topic, value, key=None if name is None else name.encode())


def _has_key(part: Insertion) -> bool:
    return part.target.definition is not None and bool(part.target.definition.primary_key)


def _write_file(part: Insertion, rows: pl.DataFrame) -> None:
    definition = part.target.definition
    options = {} if definition is None else {key: option.value for key, option in definition.options.items()}
    path = Path(options.get("path", ""))
    kind = options.get("format") or _ENDINGS.get(path.suffix.lower(), "")
    if kind not in ("csv", "json", "parquet"):
        raise part.insert.text.problem(f"the file {path} has no format that is known", hint="Say 'format' = 'csv'.")
    new = path.with_name(f"{path.name}.new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "csv":
            rows.write_csv(new)
        elif kind == "json":
            rows.write_ndjson(new)
        else:
            rows.write_parquet(new)
        new.replace(path)  # all of the file is there, or the one before
    except OSError as problem:
        raise PlanError(f"{path} cannot be written: {os.strerror(problem.errno or 0)}") from problem


def _note(notes: Iterable[str]) -> None:
    for note in notes:
        terminal.note(note, style="yellow")
