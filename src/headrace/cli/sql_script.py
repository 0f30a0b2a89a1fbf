"""`headrace sql` with statements: of a file, of an argument, of a pipe, or typed into the shell."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cli.jobs import registry
from headrace.cli.options import UsageError
from headrace.cli.run import RunFlags, run_chosen
from headrace.cli.sql_console import Console
from headrace.cli.sql_jobs import ShellJobs
from headrace.cli.sql_session import SqlEnvironment
from headrace.cli.sql_shell import Shell, interact, read_pipe
from headrace.errors import PlanError
from headrace.streaming_sql import statements
from headrace.streaming_sql.ddl import parse_script
from headrace.streaming_sql.planning import function_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.cli.options import Globals
    from headrace.cli.printer import Format
    from headrace.cli.tables import FileTable, TopicTable
    from headrace.config import Settings


@dataclass(frozen=True)
class Request:
    """What the command line says.

    Args:
        options: The options before the command.
        settings: The settings.
        tables: The tables of `--table`.
        begin: Where to begin in topics, in microseconds since the epoch; 0 for their beginning.
        disorder: How late events of `--table` may be.
        form: How rows are printed.
        check: Whether nothing is to be run.
        fresh: Whether jobs forget their checkpoints.
    """

    options: Globals
    settings: Settings
    tables: Sequence[FileTable | TopicTable]
    begin: int
    disorder: str
    form: Format
    check: bool = False
    fresh: bool = False


def run_request(request: Request, text: str | None, file: Path | None) -> None:
    """Carry statements out.

    Args:
        request: What the command line says.
        text: The statements; None: they are in the file, or come from standard input.
        file: The file.

    Raises:
        HeadraceError: A statement is wrong, or could not be carried out.
    """
    directories = () if file is None else (file.absolute().parent,)
    environment = SqlEnvironment(request.settings, request.tables, request.begin, request.disorder, directories)
    if file is not None:
        text = _read(file)
    if text is not None:
        try:
            _whole(request, environment, text, name="sql" if file is None else file.stem)
        except PlanError as problem:
            raise problem if file is None else PlanError(f"{file}: {problem.message}", hint=problem.hint) from problem
        return
    console = Console(environment, environment.session(), request.form)
    if request.check:
        console.check(sys.stdin.read())
        return
    jobs = ShellJobs(request.options, environment, console.session.catalog)
    console.start_job = jobs.start
    try:
        if sys.stdin.isatty():
            history = request.settings.paths.home / "sql-history"
            interact(Shell(console, jobs), console, history, function_names())
        else:
            read_pipe(Shell(console, jobs, stop_at_error=True), sys.stdin)
    finally:
        jobs.close()


def _whole(request: Request, environment: SqlEnvironment, text: str, *, name: str) -> None:
    """Carry out a text as a whole: its jobs run at its end, all in one query."""
    script = parse_script(text)
    several = sum(isinstance(each, statements.Insert) for each in script) > 1
    console = Console(environment, environment.session(name, alone=not several), request.form)
    if request.check:
        console.check(text)
        return
    console.run(text)
    if console.jobs:
        flags = RunFlags(fresh=request.fresh, from_now=False)
        run_chosen(request.settings, console.jobs, registry(request.settings), flags)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise UsageError(f"{file} cannot be read: {problem}", hint="Give the path of a file of SQL.") from problem
