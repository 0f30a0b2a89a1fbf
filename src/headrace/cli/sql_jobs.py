"""Jobs that a shell has started: each INSERT INTO is a `headrace run` of its own, which ends with the shell."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.cli import terminal
from headrace.errors import PlanError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from headrace.cli.options import Globals
    from headrace.cli.sql_session import SqlEnvironment
    from headrace.dev.process import GuardedProcess
    from headrace.streaming_sql.catalog import Catalog
    from headrace.streaming_sql.session import Insertion

_GRACE = 20.0


@dataclass(frozen=True)
class RunningJob:
    """A job that was started.

    Args:
        name: Its name.
        process: Its process.
        log: Where it writes what it says.
    """

    name: str
    process: GuardedProcess
    log: Path

    @property
    def state(self) -> str:
        """Whether it runs."""
        code = self.process.poll()
        return "running" if code is None else f"ended with exit code {code}"


class ShellJobs:
    """Starts jobs, and stops them when the shell is left.

    Args:
        options: The options of the command line, for the processes.
        environment: Where the jobs are to run.
        catalog: What their statements may name.
    """

    def __init__(self, options: Globals, environment: SqlEnvironment, catalog: Catalog) -> None:
        self._options = options
        self._environment = environment
        self._catalog = catalog
        self.running: dict[str, RunningJob] = {}

    def start(self, part: Insertion) -> None:
        """Start a job.

        Raises:
            HeadraceError: It cannot be started from here.
        """
        from headrace.dev.process import GuardedProcess

        if part.job is None:
            raise PlanError(f"INSERT INTO {part.insert.table} is no job")
        name = part.job.name
        if name in self.running and self.running[name].process.poll() is None:
            raise PlanError(f"the job {name} is running", hint=rf"Stop it with \stop {name}.")
        directory = self._environment.settings.paths.home / "sql-jobs"
        directory.mkdir(parents=True, exist_ok=True)
        file = directory / f"{name}.sql"
        file.write_text(script_of(self._catalog, part, name), encoding="utf-8")
        log = self._environment.settings.log_directory / f"sql-{name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        connection = self._environment.connection
        words = [*self._options.arguments(), "run", str(file), "--bootstrap", connection.bootstrap]
        with log.open("wb") as output:
            command: Sequence[str] = [sys.executable, "-m", "headrace.cli", *words]
            process = GuardedProcess(command, grace=_GRACE, stdout=output.fileno(), stderr=output.fileno())
        self.running[name] = RunningJob(name, process, log)
        terminal.note(
            rf"The job {name} starts on Spark and writes {part.job.result_topic}; \jobs, \log {name}, \stop {name}."
        )

    def stop(self, name: str) -> None:
        """Stop a job.

        Raises:
            PlanError: There is none of this name.
        """
        self._known(name).process.stop()
        terminal.note(f"The job {name} has stopped. The same INSERT INTO continues it.")

    def log(self, name: str, lines: int = 20) -> str:
        """Give the last lines of the log of a job.

        Raises:
            PlanError: There is none of this name.
        """
        text = self._known(name).log.read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def close(self) -> None:
        """Stop all jobs."""
        for job in self.running.values():
            if job.process.poll() is None:
                terminal.note(f"Stopping {job.name}.")
            job.process.stop()

    def _known(self, name: str) -> RunningJob:
        if name not in self.running:
            raise PlanError(f"there is no job {name} here", hint=f"Jobs: {', '.join(self.running) or 'none'}.")
        return self.running[name]


def script_of(catalog: Catalog, part: Insertion, name: str) -> str:
    """Give the text of a file of SQL that is this INSERT INTO, with all definitions that there are.

    Raises:
        PlanError: The query reads what only this process has.
    """
    texts = [entry.definition.text.text for entry in catalog.entries if entry.definition is not None]
    lost = [table.name for table in part.answer.tables if table.definition is None]
    if lost:
        raise part.insert.text.problem(
            f"table {lost[0]} was given by --table, and a job cannot read it",
            hint=f"Write CREATE TABLE {lost[0]} (...) WITH ('connector' = 'kafka', 'topic' = ...).",
        )
    settings = f"SET 'pipeline.name' = '{name}'"
    if part.job is not None and part.job.delivery != "exactly_once":
        settings += f";\nSET 'job.delivery' = '{part.job.delivery}'"
    return ";\n\n".join([*texts, settings, part.insert.text.text]) + ";\n"
