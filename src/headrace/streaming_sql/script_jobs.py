"""Jobs in files of SQL: each INSERT INTO is one."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from headrace.streaming_sql import statements
from headrace.streaming_sql.ddl import parse_script
from headrace.streaming_sql.script import ScriptError
from headrace.streaming_sql.session import Insertions, Session

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.stream import Job
    from headrace.streaming_sql.catalog import Catalog


_log = logging.getLogger(__name__)


def jobs_of_script(text: str, catalog: Catalog, *, name: str) -> dict[str, Job]:
    """Give the jobs of a text of SQL.

    The only INSERT INTO of a text gives a job of its name; of several each is named after its table as well.

    Args:
        text: Statements.
        catalog: Where they look tables up, and define theirs.
        name: What the jobs are called, such as the name of the file.

    Raises:
        PlanError: A statement is wrong, or cannot be a part of a job.
    """
    script = parse_script(text)
    several = sum(isinstance(each, statements.Insert) for each in script) > 1
    session = Session(catalog, name=name, alone=not several)
    for statement in script:
        if isinstance(statement, statements.Query):
            raise statement.query.problem(
                "a SELECT gives its rows to nobody here", hint="Write INSERT INTO a table before it, or CREATE VIEW."
            )
        result = session.execute(statement)
        if isinstance(result, Insertions):
            for part in result.parts:
                for caution in part.answer.planned.cautions:
                    _log.warning("%s: %s", name, caution)
                if part.job is None:
                    raise part.insert.text.problem(
                        f"INSERT INTO {part.insert.table} reads or writes what only one process has",
                        hint="The tables of a job have 'connector' = 'kafka'. `headrace sql -f` runs the others.",
                    )
    return session.jobs


def load_script(path: Path, catalog: Catalog, *, name: str) -> dict[str, Job]:
    """Give the jobs of a file; see `jobs_of_script`.

    Raises:
        PlanError: A statement is wrong; the message names the file.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise ScriptError(f"{path} cannot be read: {problem}") from problem
    try:
        return jobs_of_script(text, catalog, name=name)
    except ScriptError as problem:
        raise ScriptError(f"{path}: {problem.message}", hint=problem.hint) from problem
